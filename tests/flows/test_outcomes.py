"""Exports of agents' telemetry become the outcomes of the caller's key, however they are sent."""

import gzip
from typing import Any

import httpx
import pytest
from fakes.otlp import FakeCollector
from support.agent_telemetry import CUMULATIVE, MetricExport, log_export
from support.shared import Share, Tenant

from gateway.accounts import organizations
from gateway.errors import Unavailable
from gateway.ids import digest
from gateway.metering.outcomes import outcome_book
from gateway.metering.outcomes.names import OUTCOMES
from gateway.metering.usage_table import raw_id

PROTOBUF = {"Content-Type": "application/x-protobuf"}
SESSION = "7a1b8c1e-3f0b-4f4e-9d2c-1f4c2d9e8a77"
BY = {"actor": "test"}


def send(tenant: Tenant, body: bytes | dict[str, Any], signal: str = "metrics", **headers: str) -> httpx.Response:
    bearer = {"Authorization": f"Bearer {tenant.key}"}
    url = f"{tenant.address}/v1/{signal}"
    if isinstance(body, dict):
        return httpx.post(url, json=body, headers=bearer | headers, timeout=30)
    return httpx.post(url, content=body, headers=bearer | PROTOBUF | headers, timeout=30)


def outcomes(tenant: Tenant, organization_id: str = "") -> dict[tuple[str, str], dict[str, int]]:
    """The stored outcomes of an organization that are not 0, by session and agent."""
    tenant.services.telemetry.outcomes.flush()
    sql = f"SELECT session, agent, {', '.join(OUTCOMES)} FROM outcome WHERE organization = ?"
    rows = tenant.services.store.database.query_rows(sql, (raw_id(organization_id or tenant.organization_id),))
    return {
        (session, agent): {name: int(value) for name, value in zip(OUTCOMES, values, strict=True) if value}
        for session, agent, *values in rows
    }


def export(tenant: Tenant, amount: int = 2, after_us: int = 0, **more: Any) -> MetricExport:
    now_us = tenant.services.store.database.now_us() + after_us
    made = MetricExport(now_us - 1_000_000, now_us, **more)
    return made.add("claude_code.commit.count", amount, session__id=SESSION)


def test_each_form_of_export_counts_for_the_key_of_its_sender(gateway: Tenant) -> None:
    other_id, _, other_key = gateway.settle("other", 1_000)
    assert send(gateway, export(gateway, 2).protobuf).status_code == 200
    packed = gzip.compress(export(gateway, 3, 1).protobuf)
    assert send(gateway, packed, **{"Content-Encoding": "gzip"}).status_code == 200
    answer = send(gateway, export(gateway, 4, 2).json)
    assert (answer.status_code, answer.json()) == (200, {})
    events = log_export(
        gateway.services.store.database.now_us(),
        {"event.name": "codex.tool_decision", "tool_name": "apply_patch", "decision": "approved"},
    )
    assert send(gateway, events.SerializeToString(), "logs").status_code == 200
    assert send(gateway, export(gateway, 50).protobuf, Authorization=f"Bearer {other_key}").status_code == 200
    assert outcomes(gateway) == {(SESSION, "claude-code"): {"commits": 9}, ("", "codex"): {"edits_accepted": 1}}
    assert outcomes(gateway, other_id) == {(SESSION, "claude-code"): {"commits": 50}}


def test_an_export_that_is_sent_again_counts_once(gateway: Tenant) -> None:
    sent = export(gateway, 2).protobuf
    for _ in range(3):
        assert send(gateway, sent).status_code == 200
    assert outcomes(gateway) == {(SESSION, "claude-code"): {"commits": 2}}


def test_cumulative_exports_count_their_increase(gateway: Tenant) -> None:
    start_us = gateway.services.store.database.now_us() - 5_000_000
    for second, amount in enumerate((2, 2, 5)):
        made = MetricExport(start_us, start_us + (second + 1) * 1_000_000, CUMULATIVE)
        made.add("claude_code.lines_of_code.count", amount, type="added", session__id=SESSION)
        assert send(gateway, made.protobuf).status_code == 200
    assert outcomes(gateway) == {(SESSION, "claude-code"): {"lines_added": 5}}


def test_a_malformed_export_is_refused_and_counts_nothing(gateway: Tenant) -> None:
    body = export(gateway).protobuf
    answer = send(gateway, body[:-3])
    assert answer.status_code == 400 and "OTLP" in answer.text
    assert outcomes(gateway) == {}


@pytest.mark.parametrize("bearer", ["", "llmgtwy_" + "0" * 40])
def test_an_export_needs_a_key(gateway: Tenant, bearer: str) -> None:
    headers = {"Authorization": f"Bearer {bearer}"} if bearer else {}
    answer = httpx.post(
        f"{gateway.address}/v1/metrics", content=export(gateway).protobuf, headers=PROTOBUF | headers, timeout=30
    )
    assert answer.status_code == 401 and outcomes(gateway) == {}


def test_the_session_is_a_digest_under_zero_data_retention(gateway: Tenant) -> None:
    policy = {"zeroDataRetention": True}
    organizations.set_policy(
        gateway.services.store.database, gateway.services.store.control, gateway.organization_id, policy, **BY
    )
    send(gateway, export(gateway).protobuf)
    assert outcomes(gateway) == {(digest(SESSION), "claude-code"): {"commits": 2}}


def test_a_key_in_an_attribute_is_not_stored(gateway: Tenant) -> None:
    made = MetricExport(1, gateway.services.store.database.now_us())
    made.add("claude_code.commit.count", 1, session__id=gateway.key, model=gateway.key)
    send(gateway, made.protobuf)
    gateway.services.telemetry.outcomes.flush()
    stored = gateway.services.store.database.query_rows(
        "SELECT session, model FROM outcome WHERE organization = ?", (raw_id(gateway.organization_id),)
    )
    assert stored == [(digest(gateway.key), "")]


def test_exports_are_accepted_while_the_store_is_down_and_counted_later(
    gateway: Tenant, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object) -> None:
        raise Unavailable("down")

    with monkeypatch.context() as broken:
        broken.setattr(outcome_book, "store_exports", fail)
        assert send(gateway, export(gateway).protobuf).status_code == 200
        with pytest.raises(Unavailable):
            gateway.services.telemetry.outcomes.flush()
    assert outcomes(gateway) == {(SESSION, "claude-code"): {"commits": 2}}


def test_exports_are_counted_and_forwarded(share: Share) -> None:
    collector = share.fake(FakeCollector)
    observed = share.gateway({"OTEL_EXPORTER_OTLP_ENDPOINT": collector.address})
    assert send(observed, export(observed).protobuf).status_code == 200
    assert outcomes(observed) == {(SESSION, "claude-code"): {"commits": 2}}
