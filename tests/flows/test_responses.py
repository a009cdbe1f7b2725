"""Responses through the whole gateway, with the official SDK, against a strict fake of the chat API."""

import gc
import json
from collections.abc import Callable, Iterator

import httpx
import openai
import pytest
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from openai.types.responses import Response
from pydantic import BaseModel
from support.gateways import LocalGateway
from support.spending import until

from gateway.accounts import keys, projects
from gateway.accounts.changes import OPERATOR
from gateway.metering.usage_table import find

MODEL = "openai/gpt-4o-mini"
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


class City(BaseModel):
    name: str
    people: int


def strictly(answer: Response) -> Response:
    """The answer, when every member of it is what the published types say."""
    return Response.model_validate(answer.to_dict(), strict=True)


def http(gateway: LocalGateway, method: str, path: str, **more) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}", **more.pop("headers", {})}
    with httpx.Client(timeout=60) as client:
        return client.request(method, gateway.url + path, headers=headers, timeout=20, **more)


def test_an_answer_is_a_valid_response_with_usage_cost_and_who_served_it(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day.", prompt=1000, completion=500, cached=400))
    answer = strictly(client.responses.create(model=MODEL, input="Hello", metadata={"mine": "yes"}))
    assert (answer.output_text, answer.status, answer.model) == ("Good day.", "completed", MODEL)
    assert (answer.usage.input_tokens, answer.usage.input_tokens_details.cached_tokens) == (1000, 400)
    assert answer.usage.cost > 0
    assert (answer.metadata, answer.llmgateway["used_provider"]) == ({"mine": "yes"}, "openai")


def test_every_answer_has_one_usage_row(client: OpenAI, gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day.", prompt=1000, completion=500))
    answer = client.responses.create(model=MODEL, input="Hello")
    (row,) = find(gateway.services.store.database, answer.llmgateway["log_id"])
    assert (row.input, row.output, row.cost_nusd) == (1000, 500, 450_000)


def test_a_stream_brings_the_answer_in_order_and_ends_complete(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day to you.", prompt=10, completion=5, piece=3))
    with client.responses.stream(model=MODEL, input="Hello") as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    assert "".join(event.delta for event in events if event.type == "response.output_text.delta") == "Good day to you."
    assert (strictly(final).output_text, final.usage.total_tokens) == ("Good day to you.", 15)


def test_parallel_tool_calls_stream_in_fragments_and_go_round(client: OpenAI, upstream: FakeOpenAI) -> None:
    calls = (("weather", '{"city": "Oslo"}'), ("weather", '{"city": "Rome"}'))
    upstream.script(Answer(tools=calls, piece=1), Answer("It rains."))
    with client.responses.stream(model=MODEL, input="Hello", tools=[WEATHER]) as stream:
        stream.until_done()
        first = stream.get_final_response()
    cities = [json.loads(item.arguments)["city"] for item in first.output]
    outputs = [{"type": "function_call_output", "call_id": item.call_id, "output": "rain"} for item in first.output]
    second = client.responses.create(model=MODEL, input=outputs, tools=[WEATHER], previous_response_id=first.id)
    assert (cities, second.output_text) == (["Oslo", "Rome"], "It rains.")
    assert [message["role"] for message in upstream.calls[1].body["messages"]] == ["user", "assistant", "tool", "tool"]


def test_a_parsed_answer_has_the_requested_class(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer('{"name": "Oslo", "people": 700000}'))
    parsed = client.responses.parse(model=MODEL, input="Hello", text_format=City)
    assert parsed.output_parsed == City(name="Oslo", people=700000)
    assert upstream.calls[0].body["response_format"]["json_schema"]["strict"] is True


def test_a_chain_of_five_turns_is_the_whole_conversation(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(*(Answer(f"Answer {turn}.") for turn in range(5)))
    previous, said = None, []
    for turn in range(5):
        answer = client.responses.create(
            model=MODEL, input=f"Question {turn}", instructions="Be brief.", previous_response_id=previous
        )
        previous = answer.id
        said += [("user", f"Question {turn}"), ("assistant", f"Answer {turn}.")]
    sent = [(message["role"], message["content"]) for message in upstream.calls[-1].body["messages"]]
    assert sent == [("system", "Be brief."), *said[:-1]]


def test_a_chain_outlives_the_deletion_of_an_earlier_link(client: OpenAI, upstream: FakeOpenAI) -> None:
    first = client.responses.create(model=MODEL, input="One")
    second = client.responses.create(model=MODEL, input="Two", previous_response_id=first.id)
    client.responses.delete(first.id)
    client.responses.create(model=MODEL, input="Three", previous_response_id=second.id)
    assert len(upstream.calls[-1].body["messages"]) == 5


def test_a_stored_response_is_retrieved_listed_and_deleted(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hello")
    assert client.responses.retrieve(response.id).to_dict() == response.to_dict()
    (item,) = client.responses.input_items.list(response.id).data
    assert (item.role, item.content[0].text) == ("user", "Hello")
    client.responses.delete(response.id)
    with pytest.raises(openai.NotFoundError):
        client.responses.retrieve(response.id)


def test_input_items_come_in_pages(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input=[{"role": "user", "content": str(n)} for n in range(5)])
    listed = client.responses.input_items.list(response.id, limit=2, order="asc")
    assert [item.content[0].text for item in listed] == ["0", "1", "2", "3", "4"]
    assert client.responses.input_items.list(response.id, limit=2).data[0].content[0].text == "4"


def test_nothing_is_stored_when_the_caller_says_so(client: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hello", store=False)
    with pytest.raises(openai.NotFoundError) as caught:
        client.responses.create(model=MODEL, input="More", previous_response_id=response.id)
    assert caught.value.code == "previous_response_not_found"


def test_a_reference_to_a_stored_item_stands_for_it(client: OpenAI, upstream: FakeOpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hello")
    items = [{"type": "item_reference", "id": response.output[0].id}, {"role": "user", "content": "More"}]
    client.responses.create(model=MODEL, input=items)
    assert [message["content"] for message in upstream.calls[1].body["messages"]] == ["Hello.", "More"]


@pytest.fixture
def stranger(gateway: LocalGateway) -> Iterator[OpenAI]:
    """A client of another project of the same organization."""
    services = gateway.services
    mine = services.accounts.authentication.caller(gateway.key)
    project = projects.create_project(
        services.store.database, services.store.control, mine.organization_id, name="Other", actor=OPERATOR
    )
    draft = keys.Draft(project.id, mine.member_id, "other")
    key = keys.create(
        services.store.database, services.store.control, services.store.secrets.hash_keys, draft, actor=OPERATOR
    )
    yield OpenAI(base_url=gateway.url, api_key=key.token, max_retries=0)


def test_another_project_never_sees_a_stored_response(client: OpenAI, stranger: OpenAI) -> None:
    response = client.responses.create(model=MODEL, input="Hello")
    tries: list[Callable] = [
        lambda: stranger.responses.retrieve(response.id),
        lambda: stranger.responses.delete(response.id),
        lambda: stranger.responses.input_items.list(response.id),
        lambda: stranger.responses.create(model=MODEL, input="x", previous_response_id=response.id),
        lambda: stranger.responses.create(model=MODEL, input=[{"type": "item_reference", "id": response.output[0].id}]),
    ]
    for attempt in tries:
        with pytest.raises(openai.NotFoundError):
            attempt()
    assert client.responses.retrieve(response.id).id == response.id


def test_a_compacted_conversation_goes_on(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Long."), Answer("The user greeted."), Answer("On we go."))
    response = client.responses.create(model=MODEL, input="Hello")
    compacted = client.responses.compact(model=MODEL, previous_response_id=response.id)
    assert (compacted.object, compacted.usage.input_tokens > 0) == ("response.compaction", True)
    assert [item.type for item in compacted.output] == ["message", "compaction"]
    following = [*compacted.output, {"role": "user", "content": "Go on"}]
    assert client.responses.create(model=MODEL, input=following).output_text == "On we go."
    sent = upstream.calls[2].body["messages"]
    assert [message["role"] for message in sent] == ["user", "developer", "user"]
    assert "The user greeted." in sent[1]["content"]


TRIGGER = [{"role": "user", "content": "Hello"}, {"type": "compaction_trigger"}]


@pytest.mark.parametrize("stream", [True, False])
def test_a_compaction_trigger_gives_one_item_that_every_model_reads(
    client: OpenAI, upstream: FakeOpenAI, stream: bool
) -> None:
    upstream.script(Answer("The user greeted."), Answer("On we go."))
    items: list = []
    if stream:
        events = list(client.responses.create(model=MODEL, input=TRIGGER, tools=[WEATHER], stream=True))
        assert [event.type for event in events[2:]] == [
            *("response.output_item.added", "response.output_item.done", "response.completed"),
        ]
        items = events[-1].response.output
        assert events[-2].item == items[0]
    else:
        items = strictly(client.responses.create(model=MODEL, input=TRIGGER, tools=[WEATHER])).output
    assert [item.type for item in items] == ["compaction"]
    assert upstream.calls[0].body["tool_choice"] == "none"
    following = [{"role": "user", "content": "Hello"}, *items, {"role": "user", "content": "Go on"}]
    assert client.responses.create(model=MODEL, input=following).output_text == "On we go."
    sent = upstream.calls[1].body["messages"]
    assert [message["role"] for message in sent] == ["user", "developer", "user"]
    assert "The user greeted." in sent[1]["content"]


@pytest.mark.parametrize("stream", [True, False])
def test_a_compaction_without_a_summary_is_a_failure(gateway: LocalGateway, upstream: FakeOpenAI, stream: bool) -> None:
    upstream.script(Answer(" "))
    answer = http(gateway, "POST", "/responses", json={"model": MODEL, "input": TRIGGER, "stream": stream})
    if stream:
        assert "response.failed" in answer.text and "response.completed" not in answer.text
    else:
        assert answer.status_code == 502


def test_a_stream_that_the_upstream_cuts_never_looks_whole(client: OpenAI, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("A long answer that is cut.", piece=2, cut=900))
    kinds = []
    with pytest.raises(openai.APIError) as caught:
        kinds.extend(event.type for event in client.responses.create(model=MODEL, input="Hello", stream=True))
    assert "response.completed" not in kinds and caught.value.code == "stream_truncated"


def test_a_cut_response_ends_once(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("A long answer that is cut.", piece=2, cut=900))
    answer = http(gateway, "POST", "/responses", json={"model": MODEL, "input": "Hello", "stream": True})
    kinds = [line.removeprefix("event: ") for line in answer.text.splitlines() if line.startswith("event: ")]
    assert kinds[-2].endswith(".delta") and kinds[-1] == "response.failed" and "error" not in kinds


def test_a_failure_before_the_first_byte_is_a_json_error(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(*[Answer(status=500)] * 3)
    answer = http(gateway, "POST", "/responses", json={"model": MODEL, "input": "Hello", "stream": True})
    assert (answer.status_code, answer.json()["error"]["code"]) == (502, "all_providers_failed")


SHELL = {"type": "local_shell"}
FORCED_SHELL = {"model": "nanogpt/gpt-4o-mini", "input": "x", "tools": [SHELL], "tool_choice": "required"}
ORPHAN = {"type": "function_call_output", "call_id": "c", "output": "x"}
BAD = [
    ({"input": "x"}, 400, "invalid_parameters", "model"),
    ({"model": MODEL}, 400, "invalid_parameters", "input"),
    ({"model": MODEL, "input": []}, 400, "invalid_parameters", "input"),
    ({"model": MODEL, "input": [{"role": "king", "content": "x"}]}, 400, "invalid_parameters", "input.0.role"),
    ({"model": MODEL, "input": [{"type": 7}]}, 400, "invalid_parameters", "input.0.type"),
    ({"model": MODEL, "input": "x", "tools": [{"type": "function"}]}, 400, "invalid_parameters", "tools.0.name"),
    ({"model": MODEL, "input": "x", "tool_choice": "perhaps"}, 400, "invalid_parameters", "tool_choice"),
    ({"model": MODEL, "input": "x", "background": True, "store": False}, 400, "invalid_parameters", "store"),
    ({"model": MODEL, "input": "x", "conversation": "conv_1"}, 400, "unsupported_parameter", "conversation"),
    ({"model": MODEL, "previous_response_id": "resp_no"}, 404, "previous_response_not_found", "previous_response_id"),
    ({"model": MODEL, "input": [{"type": "item_reference", "id": "msg_1"}]}, 404, "not_found", "input.0.id"),
    ({"model": MODEL, "input": [ORPHAN]}, 400, "invalid_parameters", "input.0.call_id"),
    (FORCED_SHELL, 400, "model_not_supported", "tools"),
]  # fmt: skip


@pytest.mark.parametrize(("body", "status", "code", "param"), BAD)
def test_invalid_input_is_refused_with_the_reason(
    gateway: LocalGateway, upstream: FakeOpenAI, body: dict, status: int, code: str, param: str
) -> None:
    answer = http(gateway, "POST", "/responses", json=body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (status, code, param), error
    assert not upstream.calls


def test_unknown_parameters_have_no_effect(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    body = {"model": MODEL, "input": "x", "frobnicate": {"a": 1}, "client_metadata": {"b": "c"}}
    assert http(gateway, "POST", "/responses", json=body).status_code == 200


LONG = [{"type": "message", "role": "user", "content": [{"type": "input_text", "text": "x"}] * 8000}]


@pytest.fixture
def long_response(client: OpenAI, gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> str:
    """The id of a long stored response; a read of its turns fails the test."""
    ident = client.responses.create(model=MODEL, input=LONG).id

    def read(ident: str, maximum: int) -> None:
        raise AssertionError(f"{ident} was read")

    monkeypatch.setattr(gateway.services.engine.responses._turns, "chain", read)
    return ident


def take_credits(gateway: LocalGateway) -> None:
    ledger = gateway.services.billing.ledger
    organization = gateway.services.accounts.authentication.caller(gateway.key).organization_id
    ledger.post(organization, "adjustment", -ledger.balance(organization).balance_nusd, f"all of {organization}")
    assert until(lambda: http(gateway, "POST", "/responses", json={"model": MODEL, "input": "x"}).status_code == 402)


REFUSALS = [
    (take_credits, MODEL, 402, "insufficient_credits"),
    (lambda gateway: None, "openai/none", 400, "model_not_found"),
]


@pytest.mark.parametrize("path", ["/responses", "/responses/compact"])
@pytest.mark.parametrize(("change", "model", "status", "code"), REFUSALS, ids=[row[3] for row in REFUSALS])
def test_a_request_that_cannot_be_served_reads_no_long_conversation(
    gateway: LocalGateway, long_response: str, path: str, change: Callable, model: str, status: int, code: str
) -> None:
    change(gateway)
    body = {"model": model, "input": "More", "previous_response_id": long_response}
    refused = http(gateway, "POST", path, json=body)
    assert (refused.status_code, refused.json()["error"]["code"]) == (status, code)


def test_bytes_of_a_long_conversation_count_until_its_request_ends(client: OpenAI, gateway: LocalGateway) -> None:
    first = client.responses.create(model=MODEL, input=LONG)
    budget = gateway.services.engine.responses._budget
    before = budget.held
    with client.responses.create(model=MODEL, input="More", previous_response_id=first.id, stream=True) as events:
        next(events)
        assert budget.held - before > 8000 * 300
        for _ in events:
            pass
    gc.collect()
    assert budget.held == before
