"""Chat completions through the whole gateway, with the official SDK, against a strict fake of the OpenAI API."""

import json
from collections.abc import Sequence

import gevent
import gevent.event
import httpx
import openai
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from pydantic import BaseModel
from support.gateways import LocalGateway, local_gateway

from gateway.metering.usage_table import find
from gateway.store.statements import StatementBatch

MODEL = "openai/gpt-4o-mini"
HELLO = [{"role": "user", "content": "Hello"}]
WEATHER = {
    "type": "function",
    "function": {
        "name": "weather",
        "description": "The weather of a city.",
        "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    },
}


class City(BaseModel):
    name: str
    people: int


def rows_of(gateway: LocalGateway, request_id: str) -> list:
    return find(gateway.services.store.database, request_id)


def raw(gateway: LocalGateway, body: dict | bytes, **headers: str) -> httpx.Response:
    content = body if isinstance(body, bytes) else json.dumps(body).encode()
    all_headers = {"Authorization": f"Bearer {gateway.key}", "Content-Type": "application/json", **headers}
    with httpx.Client(timeout=60) as http:
        return http.post(f"{gateway.url}/chat/completions", content=content, headers=all_headers, timeout=20)


def test_an_answer_comes_back_with_usage_cost_and_who_served_it(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day.", prompt=1000, completion=500))
    answer = client.chat.completions.create(model=MODEL, messages=HELLO)
    assert answer.choices[0].message.content == "Good day."
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (1000, 500)
    # gpt-4o-mini: 0.15 and 0.60 dollars a million tokens.
    assert answer.usage.cost == pytest.approx(1000 * 0.15e-6 + 500 * 0.6e-6, abs=1e-15)
    assert answer.metadata["used_provider"] == "openai"
    assert answer.model == MODEL


def test_every_answer_has_one_durable_usage_row_when_its_last_byte_leaves(
    client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI
) -> None:
    upstream.script(Answer("Good day.", prompt=1000, completion=500))
    answer = client.chat.completions.create(model=MODEL, messages=HELLO)
    (row,) = rows_of(gateway, answer.metadata["log_id"])
    assert (row.input, row.output, row.cost_nusd) == (1000, 500, 450_000)


def test_an_answer_that_is_prepared_while_its_row_is_written_leaves_after_the_commit(
    client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    upstream.script(Answer("First."), Answer("Second."))
    client.chat.completions.create(model=MODEL, messages=HELLO)  # after a lone request the next one is settled early
    database = gateway.services.store.database
    commit = database.write_together
    began = gevent.event.Event()
    held = gevent.event.Event()

    def commit_later(batches: Sequence[StatementBatch]) -> None:
        began.set()
        held.wait()
        commit(batches)

    monkeypatch.setattr(database, "write_together", commit_later)
    asking = gevent.spawn(raw, gateway, {"model": MODEL, "messages": HELLO})
    began.wait(timeout=60)
    gevent.sleep(0.2)  # an answer that does not wait would arrive meanwhile
    waits = not asking.ready()
    held.set()
    assert waits
    answer = asking.get(timeout=60).json()
    assert answer["choices"][0]["message"]["content"] == "Second."
    assert len(rows_of(gateway, answer["metadata"]["log_id"])) == 1


def test_a_stream_ends_with_usage_and_metadata_by_default(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day to you.", prompt=10, completion=5, piece=3))
    chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
    assert "".join(c.choices[0].delta.content or "" for c in chunks) == "Good day to you."
    assert [c.choices[0].finish_reason for c in chunks if c.choices[0].finish_reason] == ["stop"]
    assert chunks[-1].usage.total_tokens == 15
    assert chunks[-1].metadata["used_model"] == "gpt-4o-mini"
    assert all(c.usage is None for c in chunks[:-1])
    assert len({c.id for c in chunks}) == 1


def test_parallel_tool_calls_stream_in_fragments_and_rebuild_exactly(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(tools=(("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Rome"}')), piece=1))
    with client.chat.completions.stream(model=MODEL, messages=HELLO, tools=[WEATHER]) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls
    assert [json.loads(c.function.arguments)["city"] for c in calls] == ["Oslo", "Rome"]
    assert final.choices[0].finish_reason == "tool_calls"


def test_a_tool_loop_goes_round(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(tools=(("weather", '{"city": "Oslo"}'),)), Answer("It rains."))
    first = client.chat.completions.create(model=MODEL, messages=HELLO, tools=[WEATHER]).choices[0].message
    call = first.tool_calls[0]
    history = [*HELLO, first, {"role": "tool", "tool_call_id": call.id, "content": "rain"}]
    assert client.chat.completions.create(model=MODEL, messages=history, tools=[WEATHER]).choices[0].message.content
    assert upstream.calls[1].body["messages"][2]["tool_call_id"] == call.id


def test_a_parsed_answer_has_the_requested_class(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer('{"name": "Oslo", "people": 700000}'))
    parsed = client.chat.completions.parse(model=MODEL, messages=HELLO, response_format=City)
    assert parsed.choices[0].message.parsed == City(name="Oslo", people=700000)


def test_ignored_and_unknown_parameters_have_no_effect_upstream(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    body = {"model": MODEL, "messages": HELLO, "stop": 7, "seed": "x", "logit_bias": [], "frobnicate": {"a": 1}}
    assert raw(gateway, body).status_code == 200
    assert {"stop", "seed", "logit_bias", "frobnicate"}.isdisjoint(upstream.calls[0].body)


@pytest.mark.parametrize("status", [401, 402, 403, 404, 500])
def test_a_providers_refusal_never_looks_like_the_callers_fault(
    gateway: LocalGateway, upstream: FakeOpenAI, status: int
) -> None:
    upstream.script(*[Answer(status=status)] * 3)
    answer = raw(gateway, {"model": MODEL, "messages": HELLO})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == (502, "upstream_error", "all_providers_failed")
    assert "sk-upstream" not in answer.text


LIMITED = (429, "rate_limit_error", "upstream_rate_limited")
OVERLOADED = (529, "overloaded", "overloaded")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("status", "named", "expected", "wait"),
    [(429, "30", LIMITED, "30"), (429, "", LIMITED, "1"), (503, "7", OVERLOADED, "7"), (529, "", OVERLOADED, "1")],
)
def test_limits_and_overload_come_back_as_they_are_with_the_time_to_wait(
    gateway: LocalGateway, upstream: FakeOpenAI, status: int, named: str, expected: tuple, wait: str, stream: bool
) -> None:
    upstream.script(Answer(status=status, headers={"Retry-After": named} if named else {}))
    answer = raw(gateway, {"model": MODEL, "messages": HELLO, "stream": stream})
    error = answer.json()["error"]
    assert (answer.status_code, error["type"], error["code"]) == expected
    assert (answer.headers["retry-after"], answer.headers["x-llmgateway-attempts"]) == (wait, "1")
    assert raw(gateway, {"model": MODEL, "messages": HELLO}).status_code == 200


def test_a_wait_in_milliseconds_comes_back_as_such(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(status=429, headers={"retry-after-ms": "1250"}))
    answer = raw(gateway, {"model": MODEL, "messages": HELLO})
    assert (answer.headers["retry-after-ms"], answer.headers["retry-after"]) == ("1250", "2")


def test_the_callers_own_fault_shows_the_attempts_too(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(status=400))
    answer = raw(gateway, {"model": MODEL, "messages": HELLO})
    assert (answer.status_code, answer.headers["x-llmgateway-attempts"]) == (400, "1")


def test_a_stream_that_the_upstream_cuts_never_looks_whole(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("A long answer that is cut.", piece=2, cut=900))
    with pytest.raises(openai.APIError):
        list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))


def test_a_failure_before_the_first_byte_of_a_stream_is_a_json_error(
    gateway: LocalGateway, upstream: FakeOpenAI
) -> None:
    upstream.script(*[Answer(status=500)] * 3)
    answer = raw(gateway, {"model": MODEL, "messages": HELLO, "stream": True})
    assert answer.status_code == 502
    assert answer.headers["content-type"] == "application/json"


def test_a_missing_usage_is_estimated_and_marked(client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("x" * 400, usage=False))
    chunks = list(client.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
    (row,) = rows_of(gateway, chunks[-1].metadata["log_id"])
    assert row.usage_basis == "estimated"
    assert row.output == pytest.approx(100, abs=5)


BAD_REQUESTS = [
    (b"{", {}, 400, "invalid_json", ""),
    (b"[]", {}, 400, "invalid_parameters", ""),
    (b'{"messages": [{"role": "user", "content": "x"}]}', {}, 400, "invalid_parameters", "model"),
    (b'{"model": "auto"}', {}, 400, "invalid_parameters", "messages"),
    (b'{"model": "auto", "messages": "x"}', {}, 400, "invalid_parameters", "messages"),
    (b'{"model": "auto", "messages": [{"role": "king"}]}', {}, 400, "invalid_parameters", "messages.0.role"),
    (b'{"model": "gpt-4o-mimi", "messages": [{"role": "user", "content": "x"}]}', {}, 400, "model_not_found", "model"),
    (b"{}", {"Content-Type": "text/plain"}, 415, "unsupported_media_type", ""),
    (b"{}", {"Authorization": "Bearer llmgtwy_wrong"}, 401, "invalid_api_key", ""),
    (b"{}", {"Authorization": ""}, 401, "invalid_api_key", ""),
    (b'{"model": "' + b"x" * (33 << 20) + b'"}', {}, 413, "request_too_large", ""),
]


@pytest.mark.parametrize(("body", "headers", "status", "code", "param"), BAD_REQUESTS)
def test_invalid_input_is_refused_with_the_reason(
    gateway: LocalGateway, upstream: FakeOpenAI, body: bytes, headers: dict, status: int, code: str, param: str
) -> None:
    answer = raw(gateway, body, **headers)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param)
    assert len(error["message"]) > 15
    assert not upstream.calls


def test_a_key_may_come_as_x_api_key(gateway: LocalGateway) -> None:
    answer = raw(gateway, {"model": MODEL, "messages": HELLO}, **{"Authorization": "", "x-api-key": gateway.key})
    assert answer.status_code == 200


def test_the_callers_request_id_is_echoed_but_never_the_key_of_the_account(gateway: LocalGateway) -> None:
    headers = {"x-request-id": "mine-1"}
    first, second = (raw(gateway, {"model": MODEL, "messages": HELLO}, **headers).json() for _ in range(2))
    assert first["metadata"]["request_id"] == second["metadata"]["request_id"] == "mine-1"
    assert first["metadata"]["log_id"] != second["metadata"]["log_id"]
    assert len(rows_of(gateway, first["metadata"]["log_id"])) == 1


def test_an_sdk_error_names_the_status_and_the_code(client: OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="no-such-model", messages=HELLO)
    assert caught.value.code == "model_not_found"


class Watching(FakeOpenAI):
    """Notes, while a request waits for it, whether every connection of the gateway's pool came free."""

    def serve(self, environ, start):
        pool = self.gateway.services.store.database.peewee
        for _ in range(100):
            if pool._slots._free.counter == pool._size:
                self.free = True
                break
            gevent.sleep(0.01)
        return super().serve(environ, start)


def test_no_database_connection_is_held_while_an_upstream_answers(settings) -> None:
    with Watching() as upstream:
        environment = {"LLM_OPENAI_API_KEY": "k", "LLM_OPENAI_BASE_URL": upstream.url}
        with local_gateway(settings, **environment) as gateway:
            upstream.gateway, upstream.free = gateway, False
            client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
            for stream in (False, True):
                upstream.free = False
                reply = client.chat.completions.create(
                    model="openai/gpt-4o-mini", messages=[{"role": "user", "content": "x"}], stream=stream
                )
                assert list(reply) and upstream.free
