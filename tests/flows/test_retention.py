"""Payloads of projects that retain them, through the whole gateway: kept with their fee on every surface, or not at
all."""

import http.client
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway
from support.shared import Share, usage_of
from support.spending import (
    ALIKE,
    BODIES,
    FORMS,
    SECOND_OF_SOUND,
    SECRETS,
    STREAMED,
    TOKEN_NUSD,
    pay,
    query,
    say_in_headers,
    sent_to,
    until,
    write_mint,
)

from gateway.accounts.organizations import set_policy
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.billing.context import RequestContext
from gateway.billing.reconciliation import doctor
from gateway.engine.payload_collection import HEAD_BYTES, MAX_BODY_BYTES
from gateway.engine.retention import FREE_HEADS
from gateway.metering import payload_table
from gateway.metering.payload_table import ANSWER_CUT, SENT_CUT
from gateway.metering.payload_table import STREAMED as AS_STREAM
from gateway.metering.usage_table import raw_id
from gateway.money import NANO

FEE_NUSD = (10 + 100) * 10  # 10 tokens in, 100 out, ten nano-dollars each
CHAT = "/v1/chat/completions"


@pytest.fixture
def mint(share: Share) -> FakeUpstream:
    return share.fake(FakeUpstream)


@pytest.fixture(params=["sqlite", "postgresql"])
def gateway(request, share: Share, mint: FakeUpstream) -> Iterator[LocalGateway]:
    """A gateway that sells `coin` to a project that retains; the books must agree when a test is done."""
    store = {}
    if request.param == "postgresql":
        store = SECRETS | {"DATABASE_URL": request.getfixturevalue("shared_postgresql_url")}
    running = share.gateway(lambda folder: write_mint(folder / "catalogue", mint.url) | store, name=request.param)
    switch(running, retention="retain")
    yield running
    rest(running)
    assert doctor(running.services.store.database) == []
    assert select(running, "SELECT COALESCE(SUM(leased_nusd), 0) FROM budget") == [(0,)]


def caller(gateway: LocalGateway) -> Any:
    return gateway.services.accounts.authentication.caller(gateway.key)


def switch(gateway: LocalGateway, **change: Any) -> None:
    services = gateway.services
    project_id = caller(gateway).project_id
    update_project(services.store.database, services.store.control, project_id, ProjectChange(**change), actor="test")


def rest(gateway: LocalGateway) -> None:
    services = gateway.services
    services.store.journal.flush(60)
    services.billing.settlements.reap()
    services.billing.spending.maintain(idle_s=-1.0, keep_s=-1.0)


def select(gateway: LocalGateway, sql: str, *values: bytes) -> list[tuple]:
    gateway.services.store.journal.flush(60)
    database = gateway.services.store.database
    return database.read(lambda: [tuple(row) for row in database.execute(sql, values).fetchall()])


def send(gateway: LocalGateway, text: str = "Hello", path: str = CHAT, **more: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}", **more.pop("headers", {})}
    with httpx.Client(timeout=20) as http_client:
        body = {"model": "mint/coin"} | BODIES[path](text) | more
        headers |= JSON | say_in_headers(path, body)
        return http_client.post(gateway.address + path, content=json.dumps(body), headers=headers)


JSON = {"Content-Type": "application/json"}


def logs(gateway: LocalGateway) -> list[payload_table.LogInfo]:
    """All logs of the gateway's organization, oldest first."""
    own = raw_id(gateway.organization_id)
    rows = select(gateway, "SELECT request FROM request_log WHERE organization = ? ORDER BY at, request", own)
    return [gateway.services.engine.retention.find(bytes(row[0]).hex()) for row in rows]


def set_credits(gateway: LocalGateway, nusd: int) -> None:
    ledger = gateway.services.billing.ledger
    organization = caller(gateway).organization_id
    change = nusd - ledger.balance(organization).balance_nusd
    ledger.post(organization, "adjustment", change, f"{organization} to {nusd}")


def use_own_key(gateway: LocalGateway) -> None:
    services = gateway.services
    stored = services.accounts.provider_keys
    stored.add(caller(gateway).organization_id, ProviderKeyDraft("mint", "own-key"), actor="operator")
    switch(gateway, mode="api-keys")


# Kept as it was sent, with its fee.

NO_TOKENS = ("/v1/audio/speech", "/v1/ocr", "/v1/images/generations", "/v1/images/edits")


@pytest.mark.parametrize("path", [path for path in BODIES if path not in ALIKE])
def test_requests_and_responses_are_retained_on_every_paid_route(gateway, path: str) -> None:
    switch(gateway, retention_days=3)
    answer = send(gateway, "Hello tokens:100", path)
    assert answer.status_code == 200
    [info] = logs(gateway)
    bodies = gateway.services.engine.retention.read(info)
    assert bodies.sent == answer.request.content and bodies.answer == answer.content and bodies.raw == []
    model = json.loads(answer.request.content)["model"]
    assert (info.status, info.path, info.asked, info.served) == (200, path, model, model)
    fee_nusd = dict.fromkeys(NO_TOKENS, 0).get(
        path, FEE_NUSD if model == "mint/coin" else 1000
    )  # of all tokens; characters are none
    assert (info.cost_nusd, info.storage_nusd, info.finish) == (100 * TOKEN_NUSD, fee_nusd, "stop")
    assert info.expires_at - info.at == 3 * 86_400_000_000


@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_is_kept_byte_for_byte(gateway, path: str) -> None:
    answer = send(gateway, path=path, stream=True)
    assert answer.headers["content-type"].partition(";")[0] in ("text/event-stream", "application/stream+json")
    [info] = logs(gateway)
    assert gateway.services.engine.retention.read(info).answer == answer.content
    assert info.flags == AS_STREAM and info.answer_bytes == len(answer.content) and info.storage_nusd == FEE_NUSD


def test_the_fee_is_paid_by_the_credits_beside_the_cost_and_counts_for_no_limit(gateway) -> None:
    usage = send(gateway).json()["usage"]
    assert usage["cost_details"]["data_storage_cost"] == FEE_NUSD / NANO and usage["cost"] == 0.03
    own, services = caller(gateway), gateway.services
    assert services.billing.ledger.balance(own.organization_id).spent_nusd == 100 * TOKEN_NUSD + FEE_NUSD
    assert services.billing.budgets.status(own.key_id).usage_nusd == 100 * TOKEN_NUSD
    assert services.billing.budgets.status(own.member_id).usage_nusd == 100 * TOKEN_NUSD


def test_large_bodies_are_cut_and_marked(gateway) -> None:
    set_credits(gateway, 1000 * NANO)
    more = " tokens:200000 greedy:1050000 piece:500"
    answer = send(gateway, "x" * (MAX_BODY_BYTES + 10) + more, max_tokens=1, stream=True)
    assert len(answer.content) > MAX_BODY_BYTES
    [info] = logs(gateway)
    bodies = gateway.services.engine.retention.read(info)
    assert info.flags == AS_STREAM | SENT_CUT | ANSWER_CUT
    assert bodies.sent == answer.request.content[:MAX_BODY_BYTES] and bodies.answer == answer.content[:MAX_BODY_BYTES]
    assert (info.sent_bytes, info.answer_bytes) == (len(answer.request.content), len(answer.content))


def test_nothing_lies_readable_in_the_table(gateway) -> None:
    send(gateway, "the secret of the tenant")
    own = raw_id(gateway.organization_id)
    [(sent, answer)] = select(gateway, "SELECT sent, answer FROM request_log WHERE organization = ?", own)
    assert b"secret" not in bytes(sent) and b"word" not in bytes(answer)


# Payment, and the outcome without enough credits.


def test_own_provider_keys_cost_the_fee_and_nothing_else(gateway) -> None:
    use_own_key(gateway)
    assert send(gateway).status_code == 200
    assert gateway.services.billing.ledger.balance(caller(gateway).organization_id).spent_nusd == FEE_NUSD
    [row] = usage_of(gateway)
    assert (row.mode, row.cost_nusd, row.storage_nusd) == (1, 100 * TOKEN_NUSD, FEE_NUSD)


def test_own_provider_keys_without_credits_get_a_remedy(gateway, mint: FakeUpstream) -> None:
    use_own_key(gateway)
    set_credits(gateway, 0)
    refused = send(gateway)
    assert refused.status_code == 402 and refused.json()["error"]["code"] == "insufficient_credits"
    assert "retention to none" in refused.json()["error"]["message"] and mint.calls == []
    switch(gateway, retention="none")
    assert send(gateway).status_code == 200


def test_the_fee_is_reserved_with_the_cost(gateway, mint: FakeUpstream) -> None:
    set_credits(gateway, 100 * TOKEN_NUSD + 500)  # enough for the answer, not for keeping it
    assert send(gateway).status_code == 402 and mint.calls == []


# Data that is not kept.


@pytest.mark.parametrize("policy", ["zeroDataRetention", "blockPromptLogging"])
def test_a_policy_wins_over_retention(gateway, mint: FakeUpstream, tmp_path: Path, policy: str) -> None:
    services, own = gateway.services, caller(gateway)
    set_policy(services.store.database, services.store.control, own.organization_id, {policy: True}, actor="test")
    assert (
        caller(gateway).retention == "retain" and services.engine.retention.begin(context_of(gateway), "/", b"") is None
    )
    send(gateway)  # no provider complies, and that is not kept either
    assert logs(gateway) == []


def context_of(gateway: LocalGateway) -> RequestContext:
    return RequestContext("0" * 32, caller(gateway), 0, 0.0, 0.0)


def test_without_retention_nothing_is_kept_and_nothing_is_paid(gateway) -> None:
    switch(gateway, retention="none")
    assert send(gateway).json()["usage"]["cost_details"]["data_storage_cost"] == 0
    assert logs(gateway) == []
    assert [row.storage_nusd for row in usage_of(gateway)] == [None]


def test_an_answer_given_again_is_neither_kept_nor_paid_again(gateway, mint: FakeUpstream) -> None:
    switch(gateway, cache_enabled=True)
    send(gateway)
    assert send(gateway).json()["metadata"]["cached"] is True
    keyed = [send(gateway, "again", headers={"Idempotency-Key": "k"}) for _ in range(2)]
    assert keyed[1].headers["idempotent-replayed"] == "true"
    assert [info.storage_nusd for info in logs(gateway)] == [FEE_NUSD, FEE_NUSD] and len(mint.calls) == 2


# Failures.


def test_a_refused_request_is_kept_at_no_cost(gateway) -> None:
    refused = send(gateway, model="no-such\0model")
    assert refused.status_code == 400
    [info] = logs(gateway)
    assert (info.status, info.asked, info.served, info.attempts, info.storage_nusd) == (400, "no-suchmodel", "", 0, 0)
    assert gateway.services.engine.retention.read(info).answer == refused.content


def test_a_request_that_failed_everywhere_is_kept_at_no_cost(gateway, mint: FakeUpstream) -> None:
    with mint.away():
        failed = send(gateway)
    assert failed.status_code == 502
    [info] = logs(gateway)
    assert (info.status, info.attempts, info.cost_nusd, info.storage_nusd) == (502, 1, 0, 0)
    assert gateway.services.engine.retention.read(info).answer == failed.content


def free_bytes(gateway: LocalGateway) -> int:
    return sum(len(part) for row in select(gateway, "SELECT sent, answer FROM request_log") for part in row)


@pytest.mark.parametrize("refusal", ["no credits", "unknown model", "wrong body"])
def test_refused_requests_are_kept_shortened_and_few(gateway, mint: FakeUpstream, refusal: str) -> None:
    if refusal == "no credits":
        set_credits(gateway, 0)
    noise = os.urandom(300_000).hex()  # does not compress
    more = {"no credits": {}, "unknown model": {"model": "none"}, "wrong body": {"temperature": "hot"}}[refusal]
    count = int(FREE_HEADS[0]) + 20
    for _ in range(count):
        assert send(gateway, noise, **more).status_code in (400, 402)
    kept = logs(gateway)
    assert mint.calls == [] and FREE_HEADS[0] <= len(kept) < count
    assert all(info.flags & SENT_CUT and info.sent_bytes > len(noise) for info in kept)
    assert len(gateway.services.engine.retention.read(kept[0]).sent) == HEAD_BYTES
    assert free_bytes(gateway) < len(kept) * 2 * HEAD_BYTES


def test_a_stranger_leaves_no_trace(gateway) -> None:
    assert send(gateway, headers={"Authorization": "Bearer llmgtwy_nobody"}).status_code == 401
    assert logs(gateway) == []


# Exchanges with the provider.


def test_debugging_keeps_what_went_upstream_without_secrets(gateway) -> None:
    send(gateway, "tokens:5 look", headers={"x-debug": "true"})
    [info] = logs(gateway)
    [exchange] = gateway.services.engine.retention.read(info).raw
    assert (exchange["method"], exchange["provider"], exchange["url"]) == ("POST", "mint", "")
    assert json.loads(exchange["request"])["model"] == "coin" and "look" in exchange["request"]
    assert exchange["status"] == 200 and json.loads(exchange["response"])["usage"]["completion_tokens"] == 5
    assert "mint-key" not in json.dumps(exchange) and exchange["truncated"] is False


def test_debugging_a_stream_keeps_every_chunk_from_upstream(gateway) -> None:
    send(gateway, "tokens:20", headers={"x-debug": "true"}, stream=True)
    [info] = logs(gateway)
    [exchange] = gateway.services.engine.retention.read(info).raw
    assert exchange["response"].count("data: ") == 7 and exchange["response"].endswith("data: [DONE]\n\n")


# Callers that leave, and workers that die.


def begin(gateway: Any, text: str, **more: Any) -> http.client.HTTPResponse | http.client.HTTPConnection:
    """Send a request and leave its answer unread."""
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=20)
    body = {"model": "mint/coin"} | BODIES[CHAT](text) | more
    connection.request("POST", CHAT, json.dumps(body), {"Authorization": f"Bearer {gateway.key}"} | JSON)
    return connection


@pytest.fixture
def running(process: Callable[..., Any], tmp_path: Path, mint: FakeUpstream) -> Any:
    """A gateway under gunicorn with a project that retains."""
    gateway = process(**write_mint(tmp_path / "catalogue", mint.url))
    gateway.manage("projects", "set", query(gateway, "SELECT id FROM project")[0][0], "--retention", "retain")
    return gateway


KEPT = "SELECT status, answer_bytes, flags FROM request_log"
PAID = "SELECT finish, storage_nusd FROM usage"


def test_the_sent_part_of_an_abandoned_stream_is_retained(running, mint: FakeUpstream) -> None:
    connection = begin(running, "tokens:400 gap:0.02", max_tokens=400, stream=True)
    connection.getresponse().read(700)
    connection.close()
    assert until(lambda: len(query(running, KEPT)) == 1)
    [(status, size, flags)] = query(running, KEPT)
    assert status == 200 and 700 <= size < 20_000 and flags == AS_STREAM
    [(finish, fee)] = query(running, PAID)
    [(tokens,)] = query(running, "SELECT input + output FROM usage")
    assert finish == "client_disconnect" and fee == 10 * tokens
    assert "The books agree." in running.manage("doctor")


def test_a_complete_answer_of_a_caller_who_left_is_retained_as_complete(running, mint: FakeUpstream) -> None:
    connection = begin(running, "wait:2")
    assert until(lambda: len(mint.calls) == 1)
    connection.close()
    assert until(lambda: len(query(running, KEPT)) == 1)
    assert query(running, KEPT) == [(499, 0, 0)]
    [(finish, fee)] = query(running, PAID)
    assert finish == "client_disconnect" and fee > 0


def test_a_killed_worker_leaves_neither_fee_nor_log(running, mint: FakeUpstream) -> None:
    begin(running, "tokens:4000 gap:0.02", max_tokens=4000, stream=True).getresponse().read(700)
    running.kill()
    assert query(running, KEPT) == []
    running.start()
    assert until(lambda: query(running, PAID) == [("interrupted", None)])
    assert query(running, KEPT) == [] and "The books agree." in running.manage("doctor")


ONE_WITHOUT_THE_OTHER = (
    "SELECT count(*) FROM usage u LEFT JOIN request_log l ON l.request = u.request "
    "WHERE (u.storage_nusd IS NULL) <> (l.request IS NULL)"
)


@pytest.mark.extended
def test_under_load_no_kill_parts_a_fee_from_its_log(running, mint: FakeUpstream) -> None:
    def load(number: int) -> None:
        while True:
            pay(running, f"l{number}", "gap:0.002", stream=number % 2 == 0)

    for _ in range(3):
        callers = [gevent.spawn(load, number) for number in range(8)]
        gevent.sleep(1)
        running.kill()
        gevent.killall(callers)
        running.start()
    assert until(lambda: len(query(running, "SELECT 1 FROM usage")) >= len(mint.calls))
    assert query(running, ONE_WITHOUT_THE_OTHER) == [(0,)]
    kept, called = len(query(running, KEPT)), len(mint.calls)
    assert 20 < kept < called and "The books agree." in running.manage("doctor")


def test_an_abandoned_response_that_another_caller_awaits_is_billed_and_retained(gateway, mint: FakeUpstream) -> None:
    switch(gateway, cache_enabled=True)
    first = begin(gateway, "tokens:100 gap:0.05", stream=True)
    piece = first.getresponse().read(300)
    follower = gevent.spawn(send, gateway, "tokens:100 gap:0.05", stream=True)
    gevent.sleep(0.2)
    first.close()
    answer = follower.get(timeout=20)
    assert answer.content.endswith(b"data: [DONE]\n\n") and len(mint.calls) == 1
    [info] = logs(gateway)
    assert gateway.services.engine.retention.read(info).answer.startswith(piece) and info.storage_nusd == FEE_NUSD


@pytest.mark.parametrize("path", FORMS)
def test_retained_forms_have_their_fields_without_files(gateway, path: str) -> None:
    switch(gateway, retention_days=3)
    with httpx.Client(timeout=20) as http_client:
        headers = {"Authorization": f"Bearer {gateway.key}"}
        answer = http_client.post(gateway.address + path, headers=headers, **sent_to(path, "a word"))
    [info] = logs(gateway)
    bodies = gateway.services.engine.retention.read(info)
    files = [{"name": "file", "filename": "a.wav", "bytes": len(SECOND_OF_SOUND)}]
    assert json.loads(bodies.sent) == {"fields": [["model", "mint/ear"], ["prompt", "a word"]], "files": files}
    assert bodies.answer == answer.content and info.cost_nusd == 100 * TOKEN_NUSD
