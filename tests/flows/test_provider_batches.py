"""Batches at batch APIs of providers: their lines have the prices there and are never lost or billed twice."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from typing import Any

import anthropic
import openai
import pytest
from fakes.openai import Answer
from openai import OpenAI
from support.batch_books import settled
from support.provider_batches import (
    VENDORS,
    Vendor,
    assert_half_price,
    begin,
    begin_held,
    chat_line,
    is_creation,
    output,
    run,
    shorten_waits,
)
from support.shared import Share, Tenant, usage_of

from gateway.accounts import guardrail_changes, keys
from gateway.accounts.limit_drafts import LimitDraft
from gateway.accounts.spending_limits import SpendingLimits
from gateway.batches import batch_runs, native_parts, native_results, native_sending, result_index
from gateway.errors import Unavailable
from gateway.guardrails.rule_sets import GuardrailRule
from gateway.limits.budgets import Limits
from gateway.limits.limit_rules import read_subject


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    shorten_waits(monkeypatch)


@pytest.fixture
def vendor(request: pytest.FixtureRequest) -> Vendor:
    """OpenAI, unless the test names others."""
    return VENDORS[getattr(request, "param", "openai")]


@pytest.fixture
def upstream(share: Share, vendor: Vendor) -> Any:
    return share.fake(vendor.fake)


@pytest.fixture
def gateway(share: Share, vendor: Vendor, upstream: Any) -> Iterator[Tenant]:
    variable = f"LLM_{vendor.name.upper().replace('-', '_')}_BASE_URL"
    tenant = share.gateway({**vendor.environment, variable: upstream.url})
    tenant.services.engine.lines.planner._absent.clear()
    yield tenant


@pytest.fixture
def client(gateway: Tenant) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


every_vendor = pytest.mark.parametrize("vendor", VENDORS, indirect=True)


@every_vendor
def test_lines_go_to_the_batch_api_of_their_provider_at_its_price(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    upstream.script(*[vendor.answer(f"Answer {number}.") for number in range(12)])
    batch = begin(client, [chat_line(number, vendor) for number in range(12)])
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 12, 0), done
    lines = output(client, done)
    assert [line["custom_id"] for line in lines] == [f"line-{number}" for number in range(12)]
    texts = [line["response"]["body"]["choices"][0]["message"]["content"] for line in lines]
    assert texts == [f"Answer {number}." for number in range(12)]  # though the results came in the reverse order
    assert [call.problem for call in upstream.calls if call.problem] == []
    rows = usage_of(gateway)
    assert len(rows) == 12 and {line["response"]["request_id"] for line in lines} == {row.request_id for row in rows}
    for row in rows:
        assert_half_price(gateway, row)
    assert sum(row.cost_nusd for row in rows) == round(done.cost_details["cost"] * 1e9)
    assert done.cost_details["cost"] > 0
    settled(gateway)
    assert upstream.desk.files == {} or vendor.name == "google-ai-studio"  # what was uploaded is deleted
    assert upstream.desk.deleted


@every_vendor
def test_errors_of_lines_are_errors_in_the_dialect_of_the_caller(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    upstream.script(vendor.answer("Fine."), vendor.answer(status=400), vendor.answer("Fine."))
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(3)]).id)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 2, 1), done
    errors = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
    assert errors[0]["response"]["status_code"] == 400 and errors[0]["response"]["body"]["error"]["message"]
    assert len([row for row in usage_of(gateway) if row.cost_nusd]) == 2
    settled(gateway)


@every_vendor
def test_lines_that_a_provider_could_not_serve_are_sent_as_requests(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    upstream.desk.busy = (2,)
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(3)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    rows = usage_of(gateway)
    tiers = sorted(json.loads(row.extra or "{}").get("tier", "") for row in rows if row.cost_nusd)
    assert tiers == ["", "batch", "batch"]
    settled(gateway)


@every_vendor
def test_an_expired_batch_of_a_provider_bills_what_ran(client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor):
    upstream.desk.partial = 2
    batch = begin(client, [chat_line(number, vendor) for number in range(5)], sending="native")
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed, done.request_counts.failed) == ("completed", 2, 3), done
    errors = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
    assert {line["response"]["body"]["error"]["code"] for line in errors} == {"batch_not_executed"}
    assert len(usage_of(gateway)) == 2
    settled(gateway)


@every_vendor
def test_a_cancelled_batch_is_cancelled_at_its_provider(client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor):
    batch = begin_held(gateway, client, upstream, [chat_line(number, vendor) for number in range(4)])
    assert client.batches.cancel(batch.id).status == "cancelling"
    done = run(gateway, client, batch.id)
    assert done.status == "cancelled" and usage_of(gateway) == []
    errors = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
    assert [line["error"]["code"] for line in errors] == ["batch_cancelled"] * 4
    settled(gateway)


@every_vendor
def test_a_creation_whose_answer_was_lost_is_found_again(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    upstream.desk.lost_replies = 1
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(3)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    created = [call for call in upstream.calls if is_creation(call)]
    assert len(created) == 1, [call.body for call in created]
    assert len(usage_of(gateway)) == 3
    settled(gateway)


@every_vendor
def test_a_lost_creation_is_found_behind_many_batches_of_others(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    desk, begin_at_desk = upstream.desk, upstream.desk.begin

    def begin_before_others(prefix: str, lines: list[Any], body: dict[str, Any]) -> Any:
        own = begin_at_desk(prefix, lines, body)
        for _ in range(250):
            about = {key: value for key, value in body.items() if key not in ("metadata", "name")} | {"name": "other"}
            begin_at_desk(prefix, [("other-1", {}), ("other-2", {})], about)
        return own

    desk.begin = begin_before_others
    desk.lost_replies = 1
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(3)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert len([call for call in upstream.calls if is_creation(call)]) == 1 and len(usage_of(gateway)) == 3
    settled(gateway)


@pytest.mark.parametrize("sending", ["auto", "native"])
@every_vendor
def test_a_result_that_cannot_be_read_keeps_no_other_line_waiting(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor, sending: str
):
    upstream.desk.spoilt = (2,)
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(5)], sending=sending).id)
    answered = 5 if sending == "auto" else 4  # it is sent as a request, or has an error
    assert (done.status, done.request_counts.completed) == ("completed", answered), done
    tiers = sorted(json.loads(row.extra or "{}").get("tier", "") for row in usage_of(gateway) if row.cost_nusd)
    assert tiers == [""] * (answered - 4) + ["batch"] * 4
    if sending == "native":
        (error,) = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
        assert error["custom_id"] == "line-1" and error["response"]["status_code"] == 502
        assert error["response"]["body"]["error"]["code"] == "upstream_error"
    settled(gateway)


def test_results_larger_than_one_download_are_read_in_several(
    client: OpenAI, gateway: Tenant, upstream: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(result_index, "SPOOL_BYTES", 3000)
    upstream.script(*[Answer("A long answer. " * 70) for _ in range(12)])
    done = run(gateway, client, begin(client, [chat_line(number, VENDORS["openai"]) for number in range(12)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 12), done
    assert len(usage_of(gateway)) == 12
    downloads = [call for call in upstream.calls if call.path.endswith("/content")]
    assert len(downloads) >= 6
    settled(gateway)


def test_a_file_of_endless_results_is_not_read_to_its_end(
    client: OpenAI, gateway: Tenant, upstream: Any, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setattr(result_index, "SPARE_RESULTS", 5)
    desk, file_of = upstream.desk, upstream.desk.file_of
    desk.file_of = lambda lines, name="custom_id": file_of(lines) + b"\n" + b"\n".join([file_of(lines[:1])] * 1000)
    read = gateway.services.engine.lines.calls.results
    yielded: list[int] = []

    def count(*given: Any) -> Iterator[Any]:
        for result in read(*given):
            yielded.append(1)
            yield result

    monkeypatch.setattr(gateway.services.engine.lines.calls, "results", count)
    done = run(gateway, client, begin(client, [chat_line(number, VENDORS["openai"]) for number in range(3)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert len(yielded) <= 9 * native_results.MAX_MISSES and len(usage_of(gateway)) == 3
    settled(gateway)


@every_vendor
def test_a_creation_that_fails_for_the_moment_is_repeated(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    upstream.desk.failed_creations = 2
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(3)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert [part["status"] for part in done.provider_batches[:2]] == ["failed", "failed"]
    assert [json.loads(row.extra or "{}").get("tier") for row in usage_of(gateway)] == ["batch"] * 3
    assert upstream.desk.files == {} or vendor.name == "google-ai-studio"
    settled(gateway)


@pytest.mark.parametrize("sending", ["auto", "native"])
@every_vendor
def test_creations_that_always_fail_end_after_some_uploads(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor, sending: str
):
    upstream.desk.failed_creations = always = 1000
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(3)], sending=sending).id)
    assert always - upstream.desk.failed_creations == native_sending.MAX_CREATIONS
    assert upstream.desk.files == {} and upstream.desk.batches == {}
    answered = 3 if sending == "auto" else 0
    assert (done.status, done.request_counts.completed) == ("completed", answered), done
    assert len([row for row in usage_of(gateway) if row.cost_nusd]) == answered
    settled(gateway)


@every_vendor
def test_an_outage_of_the_provider_loses_no_line(client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor):
    batch = begin_held(gateway, client, upstream, [chat_line(number, vendor) for number in range(3)])
    upstream.desk.failing = True
    seen = len(upstream.calls)
    run(gateway, client, batch.id, lambda: len(upstream.calls) > seen + 8)
    upstream.desk.held = upstream.desk.failing = False
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert len([call for call in upstream.calls if is_creation(call)]) == 1 and len(usage_of(gateway)) == 3
    settled(gateway)


def test_an_hour_of_errors_of_the_provider_costs_few_calls_and_no_line(
    client: OpenAI, gateway: Tenant, upstream: Any, monkeypatch: pytest.MonkeyPatch
):
    """The clock of the batch moves to the next poll each time, with the waits of the product."""
    for module in (native_parts, native_results):
        monkeypatch.setattr(module, "FIRST_POLL_S", 2.0)
    monkeypatch.setattr(native_parts, "MAX_TROUBLE_S", 300.0)
    batch = begin_held(gateway, client, upstream, [chat_line(number, VENDORS["openai"]) for number in range(3)])
    clock, began = gateway.services.engine.batches._clock, time.monotonic()
    moved = [0.0]
    now_us = type(clock).now_us
    monkeypatch.setattr(type(clock), "now_us", lambda self: now_us(self) + round(moved[0] * 1e6))
    upstream.desk.failing, upstream.desk.held = True, False
    seen = len(upstream.calls)
    while moved[0] < 3600 and time.monotonic() < began + 60:
        moved[0] += 10
        gateway.services.engine.batches.run()
        time.sleep(0.01)
    calls = upstream.calls[seen:]
    assert moved[0] >= 3600 and 10 <= len(calls) <= 40, len(calls)
    upstream.desk.failing = False
    moved[0] += 300
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert len([call for call in upstream.calls if is_creation(call)]) == 1 and len(usage_of(gateway)) == 3
    settled(gateway)


@every_vendor
def test_a_provider_that_forgets_a_batch_loses_no_line(client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor):
    batch = begin_held(gateway, client, upstream, [chat_line(number, vendor) for number in range(3)])
    upstream.desk.forget()
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert len([row for row in usage_of(gateway) if row.cost_nusd]) == 3
    settled(gateway)


@every_vendor
def test_a_provider_without_the_api_gets_the_lines_as_requests(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    upstream.desk.absent = True
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(3)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert {json.loads(row.extra or "{}").get("tier", "") for row in usage_of(gateway)} == {""}
    settled(gateway)


@every_vendor
def test_messages_of_anthropics_client_go_to_the_batch_api_of_every_provider(
    gateway: Tenant, upstream: Any, vendor: Vendor
):
    messages = anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=gateway.key, max_retries=0)
    params = {"model": vendor.model, "max_tokens": 20, "messages": [{"role": "user", "content": "Hello!"}]}
    requests: Any = [{"custom_id": f"message-{number}", "params": params} for number in range(3)]
    batch = messages.messages.batches.create(requests=requests)
    run(gateway, None, batch.id, lambda: messages.messages.batches.retrieve(batch.id).processing_status == "ended")
    results = list(messages.messages.batches.results(batch.id))
    assert [one.custom_id for one in results] == [f"message-{number}" for number in range(3)]
    assert all(one.result.message.content[0].text == "Hello." for one in results)
    for row in usage_of(gateway):
        assert_half_price(gateway, row)
    settled(gateway)


def test_lines_go_to_the_batch_api_over_postgresql(
    share: Share, vendor: Vendor, upstream: Any, shared_postgresql_url: str
):
    secrets = {name: "s" * 32 for name in ("GATEWAY_API_KEY_HASH_SECRET", "GATEWAY_ENCRYPTION_KEY")}
    address = {"LLM_OPENAI_BASE_URL": upstream.url, "DATABASE_URL": shared_postgresql_url}
    gateway = share.gateway({**vendor.environment, **secrets, **address})
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    upstream.desk.lost_replies = 1
    upstream.desk.busy = (2,)
    done = run(gateway, client, begin(client, [chat_line(number, vendor) for number in range(5)]).id)
    assert (done.status, done.request_counts.completed) == ("completed", 5), done
    assert len([row for row in usage_of(gateway) if row.cost_nusd]) == 5
    settled(gateway)


def test_every_endpoint_of_openai_takes_lines(client: OpenAI, gateway: Tenant, upstream: Any):
    bodies = {
        "/v1/embeddings": {"model": "openai/text-embedding-3-small", "input": "Hello!"},
        "/v1/moderations": {"model": "openai/omni-moderation-latest", "input": "Hello!"},
    }
    for endpoint, body in bodies.items():
        lines = [{"custom_id": str(n), "method": "POST", "url": endpoint, "body": body} for n in range(3)]
        done = run(gateway, client, begin(client, lines, endpoint, sending="native").id)
        assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert [call.body["endpoint"] for call in upstream.calls if is_creation(call)] == list(bodies)
    assert len(usage_of(gateway)) == 6
    settled(gateway)


def test_a_batch_shows_the_batches_of_providers_and_their_progress(client: OpenAI, gateway: Tenant, upstream: Any):
    batch = begin_held(gateway, client, upstream, [chat_line(number, VENDORS["openai"]) for number in range(3)])
    kept = next(iter(upstream.desk.batches.values()))
    kept.results = {kept.lines[0][0]: (200, {}), kept.lines[1][0]: (400, {"error": {"message": "Refused."}})}
    run(gateway, client, batch.id, lambda: client.batches.retrieve(batch.id).request_counts.completed == 1)
    shown = client.batches.retrieve(batch.id)
    assert (shown.status, shown.request_counts.failed) == ("in_progress", 1)
    (part,) = shown.provider_batches
    assert part == {
        "id": kept.ident,
        "provider": "openai",
        "model": "gpt-4o-mini",
        "status": "in_progress",
        "total": 3,
        "succeeded": 1,
        "failed": 1,
    }
    assert client.batches.list().data[0].provider_batches == [part]
    client.batches.cancel(batch.id)
    run(gateway, client, batch.id)


def test_the_reservation_of_a_batch_has_the_price_of_its_batch_api(client: OpenAI, gateway: Tenant):
    def bound(sending: str) -> float:
        lines = [chat_line(number, VENDORS["openai"], max_tokens=1000) for number in range(10)]
        return run(gateway, client, begin(client, lines, sending=sending).id).cost_details["bound"]

    direct, native = bound("direct"), bound("auto")
    assert native == pytest.approx(direct / 2, rel=0.001)
    settled(gateway)


def test_a_batch_that_fits_at_the_batch_price_alone_is_not_refused(client: OpenAI, gateway: Tenant):
    limit_key(gateway, 100_000)
    lines = [chat_line(number, VENDORS["openai"], max_tokens=25) for number in range(10)]
    assert run(gateway, client, begin(client, lines, sending="direct").id).status == "failed"
    assert run(gateway, client, begin(client, lines).id).status == "completed"
    settled(gateway)


def test_a_batch_that_runs_up_to_a_limit_stays_below_it(client: OpenAI, gateway: Tenant, upstream: Any):
    limit_key(gateway, 20_000)
    lines = [chat_line(number, VENDORS["openai"], max_tokens=50) for number in range(20)]
    done = run(gateway, client, begin(client, lines, metadata={"up_to_limit": "true"}).id)
    assert done.status == "completed" and 0 < done.request_counts.completed < 20, done
    errors = [json.loads(line) for line in client.files.content(done.error_file_id).text.splitlines()]
    assert {line["response"]["body"]["error"]["code"] for line in errors} == {"key_limit_reached"}
    assert 0 < sum(row.cost_nusd for row in usage_of(gateway)) <= 20_000
    settled(gateway)


def test_a_worker_that_dies_while_results_are_read_bills_no_line_twice(
    client: OpenAI, gateway: Tenant, upstream: Any, monkeypatch: pytest.MonkeyPatch
):
    batch = begin(client, [chat_line(number, VENDORS["openai"]) for number in range(30)])
    port = gateway.services.engine.batches.port
    deliver = port.deliver
    delivered: list[int] = []

    def count(job: Any, task: Any, line: Any, sending: Any) -> Any:
        delivered.append(line.number)
        if len(delivered) == 10:  # the worker ends here, as if it were killed
            monkeypatch.setattr(batch_runs.BatchClaim, "is_held", lambda self: False)
        return deliver(job, task, line, sending)

    with monkeypatch.context() as killed:
        monkeypatch = killed
        killed.setattr(port, "deliver", count)
        run(gateway, client, batch.id, lambda: len(delivered) >= 10)
        time.sleep(0.4)
    let_others_claim(gateway, batch.id)
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 30), done
    assert len(usage_of(gateway)) == 30
    assert [call.body["metadata"] for call in upstream.calls if is_creation(call)][1:] == [], upstream.desk
    settled(gateway)


def test_a_worker_that_dies_before_a_creation_leaves_its_lines_to_the_next(
    client: OpenAI, gateway: Tenant, upstream: Any, monkeypatch: pytest.MonkeyPatch
):
    batch = begin(client, [chat_line(number, VENDORS["openai"]) for number in range(3)])
    calls = gateway.services.engine.lines.calls
    died: list[str] = []

    def die(lot: Any, target: Any) -> Any:
        died.append(lot.name)
        monkeypatch.setattr(batch_runs.BatchClaim, "is_held", lambda self: False)
        raise Unavailable("The worker is dead.")

    with monkeypatch.context() as killed:
        monkeypatch = killed
        killed.setattr(calls, "create", die)
        run(gateway, client, batch.id, lambda: bool(died))
        time.sleep(0.4)
    let_others_claim(gateway, batch.id)
    done = run(gateway, client, batch.id)
    assert (done.status, done.request_counts.completed) == ("completed", 3), done
    assert len(usage_of(gateway)) == 3
    settled(gateway)


def test_lines_of_a_revoked_key_are_billed(client: OpenAI, gateway: Tenant, upstream: Any):
    """The provider has done the work. Its cost counts although the answers cannot be delivered."""
    batch = begin_held(gateway, client, upstream, [chat_line(number, VENDORS["openai"]) for number in range(3)])
    services = gateway.services
    key = services.accounts.authentication.caller(gateway.key).key_id
    keys.revoke(services.store.database, services.store.control, key, actor="test")
    upstream.desk.held = False
    run(gateway, None, batch.id, lambda: services.engine.batches.rows.find(batch.id).has_ended)
    rows = usage_of(gateway)
    assert [row.finish for row in rows] == ["undelivered"] * 3
    for row in rows:
        assert_half_price(gateway, row)
    settled(gateway)


@pytest.mark.parametrize("up_to_limit", [True, False])
def test_lines_of_a_revoked_key_are_billed_although_limits_changed(
    client: OpenAI, gateway: Tenant, upstream: Any, monkeypatch: pytest.MonkeyPatch, up_to_limit: bool
):
    """The hold that a line names was never placed, because its budgets are those of the changed limits."""
    services = gateway.services
    upstream.desk.held = True
    metadata = {"up_to_limit": "true"} if up_to_limit else {}
    batch = begin(client, [chat_line(number, VENDORS["openai"]) for number in range(3)], metadata=metadata)
    with monkeypatch.context() as stopped:
        checked: list[bool] = []

        def stop(sending: Any) -> None:
            checked.append(True)
            raise Unavailable("The worker was suspended.")

        stopped.setattr(native_sending.NativeSending, "collect", stop)
        run(gateway, client, batch.id, lambda: bool(checked))
        time.sleep(0.4)
    draft = LimitDraft((read_subject("organization"),), 10**12)
    SpendingLimits(services.store.database, services.store.control).put(gateway.organization_id, "new", draft, actor="")
    let_others_claim(gateway, batch.id)
    run(gateway, client, batch.id, lambda: bool(upstream.desk.batches))
    key = services.accounts.authentication.caller(gateway.key).key_id
    keys.revoke(services.store.database, services.store.control, key, actor="test")
    database = services.store.database
    if up_to_limit:  # and what was placed with the lines has ended
        for (ident,) in database.query_rows("SELECT id FROM hold WHERE id LIKE ?", (f"{batch.id}:%",)):
            services.engine.batches._holds.release(ident)
    upstream.desk.held = False
    run(gateway, None, batch.id, lambda: services.engine.batches.rows.find(batch.id).has_ended)
    rows = usage_of(gateway)
    assert [row.finish for row in rows] == ["undelivered"] * 3 and all(row.cost_nusd for row in rows)
    settled(gateway)


def test_values_that_a_guardrail_masks_are_not_sent_and_come_back_in_the_answer(
    client: OpenAI, gateway: Tenant, upstream: Any
):
    stores = (gateway.services.store.database, gateway.services.store.control)
    rule = GuardrailRule("", "Mail", "mask", detectors=("email",))
    place = (gateway.organization_id, "organization", gateway.organization_id)
    guardrail_changes.add_guardrail(*stores, *place, rule, active=True, actor="operator")
    line = chat_line(1, VENDORS["openai"])
    line["body"]["messages"][0]["content"] = "Write to anna@example.com."
    batch = begin_held(gateway, client, upstream, [line])
    sent = next(iter(upstream.desk.batches.values())).lines[0][1]["messages"][0]["content"]
    assert "anna@example.com" not in sent
    placeholder = sent.removeprefix("Write to ").removesuffix(".")
    upstream.script(Answer(f"I wrote to {placeholder}."))
    upstream.desk.held = False
    done = run(gateway, client, batch.id)
    (answered,) = output(client, done)
    assert answered["response"]["body"]["choices"][0]["message"]["content"] == "I wrote to anna@example.com."
    settled(gateway)


@pytest.mark.parametrize("vendor", ["anthropic"], indirect=True)
def test_a_batch_of_another_application_is_neither_cancelled_nor_delivered(
    client: OpenAI, gateway: Tenant, upstream: Any, vendor: Vendor
):
    """Anthropic's batches have no name, so one of the same size may pass for a lost one until its results are read."""
    upstream.desk.held = True
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(native_sending, "SETTLED_S", 0.0)
        creating = gateway.services.engine.lines.calls

        def fail(lot: Any, target: Any) -> Any:
            lines = [(f"other-{number}", {}) for number in range(lot.count)]
            upstream.desk.begin("msgbatch_", lines, {})
            raise Unavailable("The provider answered nothing.")

        patch.setattr(creating, "create", fail)
        batch = begin(client, [chat_line(number, vendor) for number in range(3)])
        parts = gateway.services.engine.batches.parts_of
        find = gateway.services.engine.batches.rows.find
        run(
            gateway,
            client,
            batch.id,
            lambda: [p.verified for p in parts([find(batch.id)]).get(batch.id, ())] == [False],
        )
    client.batches.cancel(batch.id)
    run(gateway, client, batch.id, lambda: upstream.calls[-1].path.count("/") == 4)
    (foreign,) = upstream.desk.batches.values()
    assert foreign.state == "working"
    foreign.results = {custom_id: (500, None) for custom_id, _ in foreign.lines}
    foreign.state = "ended"
    done = run(gateway, client, batch.id)
    assert done.status == "cancelled" and usage_of(gateway) == []
    assert list(upstream.desk.batches.values()) == [foreign]  # it was not deleted either
    settled(gateway)


def test_batches_of_two_organizations_are_apart(
    share: Share, vendor: Vendor, client: OpenAI, gateway: Tenant, upstream: Any
):
    other = share.gateway({**vendor.environment, "LLM_OPENAI_BASE_URL": upstream.url})
    assert other.organization_id != gateway.organization_id
    theirs = OpenAI(base_url=other.url, api_key=other.key, max_retries=0)
    upstream.desk.held = True
    mine = begin(client, [chat_line(number, vendor) for number in range(2)])
    foreign = begin(theirs, [chat_line(number, vendor) for number in range(3)])
    run(gateway, client, mine.id, lambda: len(upstream.desk.batches) == 2)
    assert sorted(len(one.lines) for one in upstream.desk.batches.values()) == [2, 3]
    upstream.desk.held = False
    assert run(gateway, client, mine.id).request_counts.completed == 2
    assert run(other, theirs, foreign.id).request_counts.completed == 3
    with pytest.raises(openai.NotFoundError):
        theirs.batches.retrieve(mine.id)
    assert (len(usage_of(gateway)), len(usage_of(other))) == (2, 3)
    settled(gateway)
    settled(other)


def let_others_claim(gateway: Tenant, ident: str) -> None:
    """Let the claim of a dead worker end."""
    database = gateway.services.store.database
    database.write(lambda: database.execute("UPDATE batch_job SET due_at = 1 WHERE id = ?", (ident,)))


def limit_key(gateway: Tenant, nusd: int) -> None:
    """Set the spending limit of the organization's key."""
    own = gateway.services.accounts.authentication.caller(gateway.key)
    gateway.services.billing.budgets.set_limits("key", own.key_id, Limits(total_nusd=nusd))
