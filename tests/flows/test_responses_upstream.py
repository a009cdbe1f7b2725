"""Responses in and out through the whole gateway: the relay, what it changes, and the way to and from chat."""

import json

import openai
import pytest
from fakes.responses import Answer, FakeResponses, call, custom_call, refused, said, searched, thought
from openai import OpenAI
from openai.types.responses import Response
from support.gateways import LocalGateway
from support.shared import Share

from gateway.metering.usage_table import find

MODEL = "openai/gpt-5.3-codex"
ENCRYPTED = ["reasoning.encrypted_content"]
TOOL = {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}, "strict": False}


@pytest.fixture
def service(share: Share) -> FakeResponses:
    return share.fake(FakeResponses)


@pytest.fixture
def relaying(share: Share, service: FakeResponses) -> LocalGateway:
    """A gateway with the strict fake of the Responses API as its provider `openai`."""
    return share.gateway({"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": service.url})


@pytest.fixture
def sdk(relaying: LocalGateway) -> OpenAI:
    return OpenAI(base_url=relaying.url, api_key=relaying.key, max_retries=0)


def test_a_whole_answer_is_relayed_under_our_names(sdk: OpenAI, relaying: LocalGateway, service: FakeResponses) -> None:
    service.script(Answer(thought("Hm."), said("Good day."), prompt=1000, completion=500, cached=400, reasoning=100))
    answer = sdk.responses.create(model=MODEL, input="Hello")
    Response.model_validate(answer.to_dict(), strict=True)
    assert (answer.output_text, answer.model) == ("Good day.", MODEL)
    assert all(answer.id.removeprefix("resp_") in item.id for item in answer.output)
    (row,) = find(relaying.services.store.database, answer.llmgateway["log_id"])
    assert (row.input, row.cache_read, row.output, row.reasoning) == (600, 400, 500, 100)


@pytest.mark.parametrize("include_usage", [True, False])
def test_a_stream_is_relayed_and_the_sdk_rebuilds_it(sdk: OpenAI, service: FakeResponses, include_usage: bool) -> None:
    """The output has reasoning only if the request wants it; without reasoning all other items move up."""
    wish = {"reasoning": {"effort": "low"}} if include_usage else {}
    calls = (call("run", '{"a": 1}'), call("run", '{"b": 2}'), custom_call("patch", "*** Begin"))
    service.script(Answer(thought("Hm."), searched("x"), said("Hello.", sources=("https://a.org",)), *calls, piece=1))
    with sdk.responses.stream(model=MODEL, input="Hello", tools=[TOOL], **wish) as stream:
        events = list(stream)
        final = stream.get_final_response()
    assert [event.sequence_number for event in events] == list(range(len(events)))
    first = ["reasoning"] if include_usage else []
    assert [item.type for item in final.output[:-3]] == [*first, "web_search_call", "message"]
    assert [item.arguments for item in final.output[-3:-1]] == ['{"a": 1}', '{"b": 2}']


@pytest.mark.parametrize("stored", [True, False])
def test_sealed_reasoning_goes_back_byte_for_byte_in_a_tool_loop(
    sdk: OpenAI, service: FakeResponses, stored: bool
) -> None:
    service.script(Answer(thought("Hm."), call("run", "{}")), Answer(said("Done.")))
    first = sdk.responses.create(model=MODEL, input="Go", tools=[TOOL], store=stored, include=ENCRYPTED)
    output = {"type": "function_call_output", "call_id": first.output[1].call_id, "output": "ok"}
    if stored:
        second = sdk.responses.create(model=MODEL, input=[output], tools=[TOOL], previous_response_id=first.id)
    else:
        items = [{"role": "user", "content": "Go"}, *first.output, output]
        second = sdk.responses.create(model=MODEL, input=items, tools=[TOOL], store=False)
    assert second.output_text == "Done."
    sent = service.calls[1].body["input"]
    assert [item["type"] for item in sent] == ["message", "reasoning", "function_call", "function_call_output"]


def test_chat_callers_reach_models_that_speak_responses_only(sdk: OpenAI, service: FakeResponses) -> None:
    service.script(Answer(thought("Hm."), call("run", '{"a": 1}'), piece=2), Answer(said("Done.")))
    tools = [{"type": "function", "function": {"name": "run", "parameters": TOOL["parameters"]}}]
    with sdk.chat.completions.stream(model=MODEL, messages=[{"role": "user", "content": "Go"}], tools=tools) as stream:
        message = stream.get_final_completion().choices[0].message
    history = [
        {"role": "user", "content": "Go"},
        message,
        {"role": "tool", "tool_call_id": message.tool_calls[0].id, "content": "ok"},
    ]
    second = sdk.chat.completions.create(model=MODEL, messages=history, tools=tools)
    assert (message.tool_calls[0].function.arguments, second.choices[0].message.content) == ('{"a": 1}', "Done.")


@pytest.mark.parametrize(
    ("answer", "status", "reason"),
    [
        (Answer(said("x"), incomplete="max_output_tokens"), "incomplete", "max_output_tokens"),
        (Answer(said("x"), incomplete="content_filter"), "incomplete", "content_filter"),
        (Answer(refused("No.")), "completed", None),
    ],
)
@pytest.mark.parametrize("streamed", [False, True])
def test_every_good_end_comes_through(sdk, relaying, service, answer, status, reason, streamed) -> None:
    service.script(answer)
    if streamed:
        response = list(sdk.responses.create(model=MODEL, input="x", stream=True))[-1].response
    else:
        response = sdk.responses.create(model=MODEL, input="x")
    assert (response.status, response.incomplete_details and response.incomplete_details.reason) == (status, reason)
    (row,) = find(relaying.services.store.database, response.llmgateway["log_id"])
    assert row.output == 5


@pytest.mark.parametrize(
    "fault", [{"cut": 2500}, {"terminal": False}, {"error_at": 6}, {"failed": "server_error"}, {"cancelled": True}]
)
def test_no_bad_end_of_a_stream_looks_whole(sdk: OpenAI, service: FakeResponses, fault: dict) -> None:
    service.script(Answer(said("A long answer that breaks."), piece=2, **fault))
    kinds = []
    with pytest.raises(openai.APIError):
        kinds.extend(event.type for event in sdk.responses.create(model=MODEL, input="x", stream=True))
    assert "response.completed" not in kinds


@pytest.mark.parametrize("status", [401, 429, 500])
def test_a_providers_refusal_never_looks_like_the_callers_fault(
    sdk: OpenAI, service: FakeResponses, status: int
) -> None:
    service.script(*[Answer(status=status)] * 3)
    with pytest.raises(openai.APIStatusError) as caught:
        sdk.responses.create(model=MODEL, input="x")
    assert caught.value.status_code == (429 if status == 429 else 502)


def test_a_provider_error_about_the_request_is_passed_on(sdk: OpenAI, service: FakeResponses) -> None:
    service.script(Answer(failed="invalid_prompt"))
    with pytest.raises(openai.BadRequestError) as caught:
        sdk.responses.create(model=MODEL, input="x")
    assert caught.value.code == "invalid_prompt"


def test_foreign_tools_reach_the_servers_that_have_them(sdk: OpenAI, service: FakeResponses) -> None:
    sdk.responses.create(model=MODEL, input="x", tools=[{"type": "local_shell"}])
    assert service.calls[0].body["tools"] == [{"type": "local_shell"}]


def test_a_parsed_stream_of_one_byte_writes_is_whole(sdk: OpenAI, service: FakeResponses) -> None:
    service.script(Answer(call("run", '{"city": "Oslo"}'), call("run", '{"city": "Rome"}'), fragment=1, piece=1))
    with sdk.responses.stream(model=MODEL, input="x", tools=[TOOL]) as stream:
        final = stream.until_done().get_final_response()
    assert [json.loads(item.arguments)["city"] for item in final.output] == ["Oslo", "Rome"]


def test_an_answer_that_failed_there_is_metered_by_its_usage(
    sdk: OpenAI, relaying: LocalGateway, service: FakeResponses
) -> None:
    service.script(Answer(failed="server_error", prompt=1000, completion=500))
    with pytest.raises(openai.InternalServerError) as raised:
        sdk.responses.create(model=MODEL, input="Hello")
    relaying.services.store.journal.flush(60)
    (row,) = find(relaying.services.store.database, raised.value.response.headers["x-request-id"])
    assert (row.input, row.output) == (1000, 500) and row.cost_nusd > 0
