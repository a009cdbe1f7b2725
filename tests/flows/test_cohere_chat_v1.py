"""Chats in version 1 of Cohere's format with models of several vendors: complete and streamed, with tools and
documents."""

import json
from typing import Any

import httpx
import pytest
from fakes.cohere import KEY, FakeCohere
from fakes.cohere import Answer as CohereAnswer
from fakes.openai import Answer, FakeOpenAI
from support.gateways import LocalGateway
from support.media import row_of
from support.shared import Share

COHERE = "cohere/command-a-reasoning-08-2025"
OPENAI = "openai/gpt-4o"
DOCUMENT = {"id": "d1", "title": "Facts", "snippet": "It is 42."}
DEFINITIONS = {
    "x": {"type": "int", "description": "A number.", "required": True},
    "names": {"type": "List[str]"},
    "more": {"type": "Other"},
}
TOOLS = [{"name": "look", "description": "Looks.", "parameter_definitions": DEFINITIONS}]
SCHEMA = {
    "type": "object",
    "properties": {
        "x": {"type": "integer", "description": "A number."},
        "names": {"type": "array", "items": {"type": "string"}},
        "more": {},
    },
    "required": ["x"],
}
CALLS = (("look", '{"x": 1}'), ("look", '{"x": 2}'))
READ_CALLS = [{"name": "look", "parameters": {"x": x}} for x in (1, 2)]


@pytest.fixture
def service(share: Share) -> FakeCohere:
    return share.fake(FakeCohere)


@pytest.fixture
def compatible(share: Share) -> FakeOpenAI:
    return share.fake(FakeOpenAI)


@pytest.fixture
def gateway(share: Share, service: FakeCohere, compatible: FakeOpenAI) -> LocalGateway:
    return share.gateway(
        {
            "LLM_COHERE_API_KEY": KEY,
            "LLM_COHERE_BASE_URL": service.url,
            "LLM_OPENAI_API_KEY": "sk-upstream",
            "LLM_OPENAI_BASE_URL": compatible.url,
        }
    )


def post(gateway: LocalGateway, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}"}
    return httpx.post(f"{gateway.address}/v1/chat", json={"message": "Hello"} | body, headers=headers, timeout=30)


def stream(gateway: LocalGateway, **body: Any) -> list[dict[str, Any]]:
    """The events of a stream; the last one alone is finished."""
    answer = post(gateway, stream=True, **body)
    assert answer.headers["content-type"] == "application/stream+json", answer.text
    events = [json.loads(line) for line in answer.text.splitlines() if line]
    assert [event["is_finished"] for event in events] == [False] * (len(events) - 1) + [True]
    return events


def joined(events: list[dict[str, Any]], kind: str) -> str:
    return "".join(event.get("text", "") for event in events if event["event_type"] == kind)


def test_every_vendor_answers_whole_and_streamed(
    gateway: LocalGateway, service: FakeCohere, compatible: FakeOpenAI
) -> None:
    service.script(*[CohereAnswer("It is 42.", thinking="Hm.")] * 2)
    compatible.script(*[Answer("It is 42.")] * 2)
    history = [{"role": "USER", "message": "Hi"}, {"role": "CHATBOT", "message": "Hi!", "tool_calls": None}]
    for model in (COHERE, OPENAI):
        body = post(gateway, model=model, chat_history=history, preamble="Be brief.").json()
        assert (body["text"], body["finish_reason"], body["model"]) == ("It is 42.", "COMPLETE", model)
        said = [{"role": "USER", "message": "Hello"}, {"role": "CHATBOT", "message": "It is 42."}]
        assert body["chat_history"] == [*history, *said]
        row = row_of(gateway, body["metadata"]["log_id"])
        assert body["meta"]["billed_units"]["input_tokens"] == row.input + row.cache_read
        assert row.cost_nusd == round(body["usage"]["cost"] * 1e9) > 0
        events = stream(gateway, model=model, chat_history=history)
        assert (events[0]["event_type"], joined(events, "text-generation")) == ("stream-start", "It is 42.")
        end = events[-1]
        assert (end["event_type"], end["finish_reason"]) == ("stream-end", "COMPLETE")
        assert end["response"]["chat_history"] == body["chat_history"]
        assert end["response"]["generation_id"] == events[0]["generation_id"] and end["response"]["usage"]["cost"] > 0
    sent = [call.body["messages"] for call in (service.calls[0], compatible.calls[0])]
    for messages in sent:
        assert [message["role"] for message in messages] == ["system", "user", "assistant", "user"]


def test_results_of_tools_find_their_calls(gateway: LocalGateway, service: FakeCohere, compatible: FakeOpenAI) -> None:
    service.script(*[CohereAnswer(plan="I look.", tools=CALLS)] * 2)
    compatible.script(*[Answer(tools=CALLS)] * 2)
    for model, upstream in ((COHERE, service), (OPENAI, compatible)):
        body = post(gateway, model=model, tools=TOOLS).json()
        assert (body["tool_calls"], body["finish_reason"]) == (READ_CALLS, "COMPLETE")
        assert upstream.calls[-1].body["tools"][0]["function"]["parameters"] == SCHEMA
        events = stream(gateway, model=model, tools=TOOLS)
        (made,) = [event for event in events if event["event_type"] == "tool-calls-generation"]
        deltas = [event["tool_call_delta"] for event in events if "tool_call_delta" in event]
        for place in (0, 1):
            pieces = [delta for delta in deltas if delta["index"] == place]
            assert pieces[0]["name"] == "look"
            assert json.loads("".join(piece.get("parameters", "") for piece in pieces)) == {"x": place + 1}
        assert made["tool_calls"] == events[-1]["response"]["tool_calls"] == READ_CALLS
        assert joined(events, "tool-calls-chunk") == made["text"] == body["text"]
        results = [{"call": call, "outputs": [{"y": 7}]} for call in reversed(READ_CALLS)]
        # With the calls in the history, and without them.
        for history, message in ((body["chat_history"], ""), ([], "Hello")):
            answer = post(
                gateway, model=model, message=message, chat_history=history, tools=TOOLS, tool_results=results
            )
            assert answer.status_code == 200, answer.text
            assert answer.json()["chat_history"][-2] == {"role": "TOOL", "tool_results": results}
            question, calls, *outputs = upstream.calls[-1].body["messages"]
            assert question["content"] == "Hello" and len(outputs) == 2
            named = {call["id"]: json.loads(call["function"]["arguments"]) for call in calls["tool_calls"]}
            assert [named[output["tool_call_id"]] for output in outputs] == [{"x": 2}, {"x": 1}]
            assert '"y"' in json.dumps(outputs).replace("\\", "")
    assert post(gateway, model=COHERE, tools=TOOLS).status_code == 200


def test_documents_and_their_citations_keep_their_members(gateway: LocalGateway, service: FakeCohere) -> None:
    data = {name: DOCUMENT[name] for name in ("title", "snippet")}
    service.script(*[CohereAnswer("It is 42.", cited=((6, 8, {"id": "d1", "data": data}),))] * 2)
    own = {"p": 0.5, "stop_sequences": ["!"], "max_tokens": 90, "seed": 7}
    more = {"citation_quality": "accurate", "safety_mode": "NONE", "prompt_truncation": "AUTO"}
    body = post(gateway, model=COHERE, documents=[DOCUMENT], **own, **more).json()
    sent = service.calls[-1].body
    assert sent["documents"] == [{"id": "d1", "data": data}]
    assert {name: sent[name] for name in own} == own
    assert (sent["citation_options"], sent["safety_mode"]) == ({"mode": "ACCURATE"}, "OFF")
    (citation,) = body["citations"]
    assert (citation["start"], citation["end"], citation["document_ids"]) == (6, 8, [body["documents"][0]["id"]])
    events = stream(gateway, model=COHERE, documents=[DOCUMENT])
    (cited,) = [event for event in events if event["event_type"] == "citation-generation"]
    assert cited["citations"] == events[-1]["response"]["citations"] == [citation]


def test_a_schema_reaches_other_vendors(gateway: LocalGateway, compatible: FakeOpenAI) -> None:
    shape = {"type": "object", "properties": {"a": {"type": "string"}}}
    answer = post(gateway, model=OPENAI, response_format={"type": "json_object", "schema": shape})
    assert answer.status_code == 200, answer.text
    sent = compatible.calls[-1].body["response_format"]["json_schema"]["schema"]
    assert sent["properties"] == shape["properties"]


def test_a_chat_without_a_model_is_answered_by_the_one_that_the_gateway_chooses(gateway: LocalGateway) -> None:
    body = post(gateway).json()
    assert body["text"] and body["metadata"]["requested_model"] == "auto"


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"connectors": [{"id": "web-search"}]}, "connectors"),
        ({"conversation_id": "c1"}, "conversation_id"),
        ({"search_queries_only": True}, "search_queries_only"),
        ({"raw_prompting": True}, "raw_prompting"),
        ({"message": ""}, "message"),
        ({"temperature": 9}, "temperature"),
        ({"chat_history": [{"role": "USER", "message": 1}]}, "chat_history.0.message"),
    ],
)
def test_unsupported_members_are_refused_by_name(
    gateway: LocalGateway, service: FakeCohere, body: dict[str, Any], param: str
) -> None:
    answer = post(gateway, model=COHERE, **body)
    assert (answer.status_code, answer.json()["param"]) == (400, param), answer.text
    assert answer.json()["message"] and not service.calls


def test_members_that_are_off_have_no_effect(gateway: LocalGateway) -> None:
    off = {"connectors": [], "conversation_id": "", "search_queries_only": False, "raw_prompting": None}
    assert post(gateway, model=COHERE, **off).status_code == 200


def test_a_failed_stream_ends_with_the_error(gateway: LocalGateway, service: FakeCohere) -> None:
    service.script(CohereAnswer("It is 42.", ends=False))
    end = stream(gateway, model=COHERE)[-1]
    assert (end["event_type"], end["finish_reason"]) == ("stream-end", "ERROR") and end["error"]
    assert end["response"]["text"] == "It is 42."
