"""The same Idempotency-Key never makes a second upstream call, whatever became of the first one."""

import threading
from collections.abc import Iterator

import gevent
import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from support.fleet import wait_until
from support.gateways import GatewayProcess, LocalGateway

BODY = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "Hello"}]}
STREAM = BODY | {"stream": True, "stream_options": {"include_usage": True}}
MESSAGE = {"model": "openai/gpt-4o-mini", "max_tokens": 50, "messages": [{"role": "user", "content": "Hello"}]}
RESPONSE = {"model": "openai/gpt-4o-mini", "input": "Hello"}
ROUTES = [
    ("chat/completions", BODY),
    ("chat/completions", STREAM),
    ("messages", MESSAGE),
    ("messages", MESSAGE | {"stream": True}),
    ("responses", RESPONSE),
    ("responses", RESPONSE | {"stream": True}),
    ("responses/compact", RESPONSE),
]


@pytest.fixture
def http() -> Iterator[httpx.Client]:
    with httpx.Client(timeout=20) as client:
        yield client


def send(gateway, http, body=BODY, key="k-1", path="chat/completions", token="") -> httpx.Response:
    headers = {"Authorization": f"Bearer {token or gateway.key}", "Idempotency-Key": key}
    return http.post(f"{gateway.url}/{path}", json=body, headers=headers)


def spent(gateway: LocalGateway) -> int:
    gateway.services.store.journal.flush(60)
    database = gateway.services.store.database
    return database.read(lambda: database.execute("SELECT COALESCE(SUM(cost_nusd), 0) FROM usage").fetchone()[0])


@pytest.mark.parametrize(("path", "body"), ROUTES)
def test_a_second_request_gets_the_same_bytes_for_nothing(
    gateway: LocalGateway, upstream: FakeOpenAI, http, path, body
) -> None:
    first = send(gateway, http, body, path=path)
    cost = spent(gateway)
    again = send(gateway, http, body, path=path)
    assert first.status_code == again.status_code == 200 and cost > 0
    assert again.content == first.content and again.headers["content-type"] == first.headers["content-type"]
    assert again.headers["idempotent-replayed"] == "true" and "idempotent-replayed" not in first.headers
    assert len(upstream.calls) == 1 and spent(gateway) == cost


def test_another_body_under_the_same_key_is_refused(gateway: LocalGateway, upstream: FakeOpenAI, http) -> None:
    send(gateway, http)
    other_answer = send(gateway, http, BODY | {"temperature": 0.5})
    assert other_answer.status_code == 422 and other_answer.json()["error"]["code"] == "idempotency_key_reused"
    assert len(upstream.calls) == 1


def test_a_key_counts_for_one_route_and_one_api_key(gateway: LocalGateway, upstream: FakeOpenAI, http) -> None:
    send(gateway, http)
    assert send(gateway, http, RESPONSE, path="responses").status_code == 200
    assert send(gateway, http, key="k-2").status_code == 200
    assert len(upstream.calls) == 3


def test_the_same_request_twice_at_once_is_done_once(gateway: LocalGateway, upstream: FakeOpenAI, http) -> None:
    upstream.script(Answer("Slow.", silence_s=0.6))
    first = gevent.spawn(send, gateway, http)
    gevent.sleep(0.3)
    with httpx.Client(timeout=60) as second_client:
        second = send(gateway, second_client)
    assert second.status_code == 409 and second.json()["error"]["code"] == "idempotency_in_flight"
    assert second.headers["retry-after"] == "1"
    assert first.get().status_code == 200 and len(upstream.calls) == 1


def test_a_failure_after_an_upstream_call_is_given_again(gateway: LocalGateway, upstream: FakeOpenAI, http) -> None:
    upstream.script(*[Answer(status=500)] * 10)
    first = send(gateway, http, BODY | {"model": "openai/gpt-4o-mini"})
    calls = len(upstream.calls)
    again = send(gateway, http)
    assert first.status_code >= 500 and again.status_code == first.status_code
    assert again.content == first.content and again.headers["x-should-retry"] == "false"
    assert len(upstream.calls) == calls >= 1


@pytest.mark.parametrize("status", [429, 529])
def test_after_a_limit_or_overload_the_same_request_is_served_when_it_comes_again(
    gateway: LocalGateway, upstream: FakeOpenAI, http, status: int
) -> None:
    upstream.script(Answer(status=status))
    assert send(gateway, http).status_code == status
    assert send(gateway, http).status_code == 200
    assert send(gateway, http).headers["idempotent-replayed"] == "true" and len(upstream.calls) == 2


def test_answered_prompts_are_not_sent_again_when_another_meets_a_limit(
    gateway: LocalGateway, upstream: FakeOpenAI, http
) -> None:
    upstream.script(Answer("fine"), Answer(status=429))
    body = {"model": "openai/gpt-4o-mini", "prompt": ["a", "b"]}
    first = send(gateway, http, body, path="completions")
    cost = spent(gateway)
    again = send(gateway, http, body, path="completions")
    assert first.status_code == again.status_code == 429 and again.headers["idempotent-replayed"] == "true"
    assert len(upstream.calls) == 2 and spent(gateway) == cost > 0


def test_a_stream_that_broke_is_given_again_with_its_error(gateway: LocalGateway, upstream: FakeOpenAI, http) -> None:
    upstream.script(Answer("A long enough answer to be cut in the middle.", cut=1500))
    first = send(gateway, http, STREAM)
    again = send(gateway, http, STREAM)
    assert b"event: error" in first.content and b"[DONE]" not in first.content
    assert again.content == first.content and len(upstream.calls) == 1


def test_a_refusal_before_the_upstream_is_not_kept(gateway: LocalGateway, upstream: FakeOpenAI, http) -> None:
    ledger, own = gateway.services.billing.ledger, organization(gateway)
    ledger.post(own, "adjustment", -100 * 10**9, f"{own} all of it")
    assert send(gateway, http).status_code == 402
    ledger.post(own, "grant", 10**9, f"{own} some of it")
    gevent.sleep(0.15)  # a shortage is believed for a moment
    answer = send(gateway, http)
    assert answer.status_code == 200 and "idempotent-replayed" not in answer.headers
    assert len(upstream.calls) == 1


def organization(gateway: LocalGateway) -> str:
    return gateway.services.accounts.authentication.caller(gateway.key).organization_id


def test_an_unknown_api_key_learns_nothing_of_a_key(gateway: LocalGateway, upstream: FakeOpenAI, http) -> None:
    send(gateway, http)
    assert send(gateway, http, token="llmgtwy_" + "x" * 40).status_code == 401


@pytest.mark.parametrize("key", ["x" * 256, "tab\there", ""])
def test_an_improper_key_is_refused(gateway: LocalGateway, upstream: FakeOpenAI, http, key: str) -> None:
    answer = send(gateway, http, key=key)
    if key:
        assert answer.status_code == 400 and answer.json()["error"]["param"] == "Idempotency-Key"
    assert len(upstream.calls) == (0 if key else 1)


def test_a_caller_that_disconnected_gets_the_complete_response_later(process) -> None:
    with FakeOpenAI() as upstream:
        gateway = process(LLM_OPENAI_API_KEY="sk-x", LLM_OPENAI_BASE_URL=upstream.url)
        upstream.script(Answer("A slow answer of some length.", silence_s=2.0, gap_s=0.1))
        with httpx.Client(timeout=1.0) as hasty, pytest.raises(httpx.TimeoutException):
            hasty.post(f"{gateway.url}/chat/completions", json=BODY, headers=headers(gateway))
        answer = until_answered(gateway, BODY)
        assert answer.status_code == 200 and answer.headers["idempotent-replayed"] == "true"
        assert answer.json()["choices"][0]["message"]["content"] == "A slow answer of some length."
        assert len(upstream.calls) == 1


def headers(gateway: GatewayProcess) -> dict[str, str]:
    return {"Authorization": f"Bearer {gateway.key}", "Idempotency-Key": "k-1"}


def until_answered(gateway: GatewayProcess, body: dict) -> httpx.Response:
    """Ask under the same key until it is not in flight any more."""
    with httpx.Client(timeout=20) as http:
        for _ in range(60):
            answer = http.post(f"{gateway.url}/chat/completions", json=body, headers=headers(gateway))
            if answer.status_code != 409:
                return answer
            gevent.sleep(0.1)
    raise AssertionError("it is in flight for ever")


def test_a_restart_forgets_no_answer(process) -> None:
    with FakeOpenAI() as upstream:
        gateway = process(LLM_OPENAI_API_KEY="sk-x", LLM_OPENAI_BASE_URL=upstream.url)
        first = until_answered(gateway, STREAM)
        gateway.kill()
        gateway.start()
        again = until_answered(gateway, STREAM)
        assert again.content == first.content and again.headers["idempotent-replayed"] == "true"
        assert len(upstream.calls) == 1


def test_a_crash_in_the_middle_is_reported_and_nothing_is_done_twice(process) -> None:
    with FakeOpenAI() as upstream:
        gateway = process(LLM_OPENAI_API_KEY="sk-x", LLM_OPENAI_BASE_URL=upstream.url)
        upstream.script(Answer("Never read.", silence_s=15.0))

        def send_in_vain() -> None:
            with pytest.raises(httpx.HTTPError):
                until_answered(gateway, BODY)

        asking = threading.Thread(target=send_in_vain)
        asking.start()
        wait_until(lambda: upstream.calls)
        gateway.kill()
        asking.join()
        gateway.start()
        answer = until_answered(gateway, BODY)
        assert answer.status_code == 500 and answer.json()["error"]["code"] == "interrupted"
        assert answer.headers["x-should-retry"] == "false" and len(upstream.calls) == 1
