"""Chats in Cohere's format with models of several vendors: complete and streamed, with tools, images and documents."""

import json
from typing import Any

import httpx
import pytest
from fakes.anthropic import Answer as ClaudeAnswer
from fakes.anthropic import FakeAnthropic
from fakes.cohere import KEY, FakeCohere
from fakes.cohere import Answer as CohereAnswer
from fakes.openai import Answer, FakeOpenAI
from support.every_operation import PNG
from support.gateways import LocalGateway
from support.media import row_of
from support.shared import Share

from gateway.accounts.projects import ProjectChange, update_project

COHERE = "cohere/command-a-reasoning-08-2025"
OPENAI = "openai/gpt-4o"
CLAUDE = "anthropic/claude-sonnet-5"
HELLO = [{"role": "user", "content": "Hello"}]
LOOK = {"name": "look", "parameters": {"type": "object", "properties": {"x": {"type": "integer"}}}}
TOOLS = [{"type": "function", "function": LOOK}]


@pytest.fixture
def service(share: Share) -> FakeCohere:
    return share.fake(FakeCohere)


@pytest.fixture
def compatible(share: Share) -> FakeOpenAI:
    return share.fake(FakeOpenAI)


@pytest.fixture
def claude(share: Share) -> FakeAnthropic:
    return share.fake(FakeAnthropic)


@pytest.fixture
def gateway(share: Share, service: FakeCohere, compatible: FakeOpenAI, claude: FakeAnthropic) -> LocalGateway:
    return share.gateway(
        {
            "LLM_COHERE_API_KEY": KEY,
            "LLM_COHERE_BASE_URL": service.url,
            "LLM_OPENAI_API_KEY": "sk-upstream",
            "LLM_OPENAI_BASE_URL": compatible.url,
            "LLM_ANTHROPIC_API_KEY": "sk-ant-upstream",
            "LLM_ANTHROPIC_BASE_URL": claude.url,
        }
    )


def post(gateway: LocalGateway, model: str, **body: Any) -> httpx.Response:
    headers = {"Authorization": f"Bearer {gateway.key}"}
    sent = {"model": model, "messages": HELLO, "stream": False} | body
    return httpx.post(f"{gateway.address}/v2/chat", json=sent, headers=headers, timeout=30)


def stream(gateway: LocalGateway, model: str, **body: Any) -> list[dict[str, Any]]:
    answer = post(gateway, model, stream=True, **body)
    assert answer.headers["content-type"].startswith("text/event-stream"), answer.text
    lines = answer.text.splitlines()
    events = [json.loads(line[6:]) for line in lines if line.startswith("data: ")]
    assert [line[7:] for line in lines if line.startswith("event: ")] == [event["type"] for event in events]
    return events


def joined(events: list[dict[str, Any]], member: str) -> str:
    """The text, thinking or plan of a stream."""
    messages = [event["delta"]["message"] for event in events if event["type"].endswith("-delta")]
    return "".join(message.get(member) or message.get("content", {}).get(member, "") for message in messages)


def test_every_vendor_answers_whole_and_streamed(
    gateway: LocalGateway, service: FakeCohere, compatible: FakeOpenAI, claude: FakeAnthropic
) -> None:
    service.script(*[CohereAnswer("It is 42.", thinking="Hm.")] * 2)
    compatible.script(*[Answer("It is 42.")] * 2)
    claude.script(*[ClaudeAnswer("It is 42.", thinking="Hm.")] * 2)
    for model in (COHERE, OPENAI, CLAUDE):
        body = post(gateway, model).json()
        content = {block["type"]: block[block["type"]] for block in body["message"]["content"]}
        assert (content["text"], body["finish_reason"], body["model"]) == ("It is 42.", "COMPLETE", model)
        assert content.get("thinking", "Hm.") == "Hm."
        row = row_of(gateway, body["metadata"]["log_id"])
        assert body["usage"]["billed_units"]["input_tokens"] == row.input + row.cache_read
        assert row.cost_nusd == round(body["usage"]["cost"] * 1e9) > 0
        events = stream(gateway, model)
        kinds = [event["type"] for event in events]
        assert (kinds[0], kinds[1], kinds[-1]) == ("message-start", "content-start", "message-end")
        begun = {"role": "assistant", "content": [], "tool_plan": "", "tool_calls": [], "citations": []}
        assert events[0]["delta"]["message"] == begun
        assert kinds.count("content-start") == kinds.count("content-end") == len(content)
        assert joined(events, "text") == "It is 42." and joined(events, "thinking") == content.get("thinking", "")
        end = events[-1]
        assert end["delta"]["finish_reason"] == "COMPLETE" and end["delta"]["usage"]["cost"] > 0
        assert end["id"] == events[0]["id"] and end["metadata"]["used_provider"] == model.partition("/")[0]


def test_calls_of_tools_and_their_results_reach_every_vendor(
    gateway: LocalGateway, service: FakeCohere, compatible: FakeOpenAI, claude: FakeAnthropic
) -> None:
    calls = (("look", '{"x": 1}'), ("look", '{"x": 2}'))
    service.script(*[CohereAnswer(plan="I look.", tools=calls)] * 2)
    compatible.script(*[Answer(tools=calls)] * 2)
    claude.script(*[ClaudeAnswer(tools=calls)] * 2)
    for model, upstream in ((COHERE, service), (OPENAI, compatible), (CLAUDE, claude)):
        body = post(gateway, model, tools=TOOLS, tool_choice="REQUIRED").json()
        message = body["message"]
        assert body["finish_reason"] == "TOOL_CALL"
        assert [json.loads(call["function"]["arguments"]) for call in message["tool_calls"]] == [{"x": 1}, {"x": 2}]
        events = stream(gateway, model, tools=TOOLS)
        starts = [event for event in events if event["type"] == "tool-call-start"]
        assert [event["index"] for event in starts] == [0, 1]
        assert len([event for event in events if event["type"] == "tool-call-end"]) == 2
        for place in (0, 1):
            pieces = [e["delta"] for e in events if e["type"] == "tool-call-delta" and e["index"] == place]
            text = "".join(piece["message"]["tool_calls"]["function"]["arguments"] for piece in pieces)
            assert json.loads(text) == {"x": place + 1}
        results = [
            {
                "role": "tool",
                "tool_call_id": call["id"],
                "content": [{"type": "document", "document": {"data": {"y": 7}}}],
            }
            for call in message["tool_calls"]
        ]
        answer = post(gateway, model, messages=[*HELLO, message, *results], tools=TOOLS)
        assert answer.status_code == 200, answer.text
        assert '"y"' in json.dumps(upstream.calls[-1].body).replace("\\", "")


def test_cohere_gets_the_body_as_it_was_sent_and_its_answer_is_kept(gateway: LocalGateway, service: FakeCohere) -> None:
    document = {"id": "d1", "data": {"title": "Facts", "snippet": "It is 42."}}
    cited = CohereAnswer("It is 42.", plan="I read.", cited=((6, 8, document),))
    service.script(cited, cited)
    own = {"documents": ["one", document], "safety_mode": "STRICT", "seed": 7, "k": 0, "max_tokens": 90}
    body = post(gateway, COHERE, **own, citation_options={"mode": "FAST"}, unknown=1).json()
    sent = service.calls[-1].body
    assert {name: sent[name] for name in own} == own and sent["citation_options"] == {"mode": "FAST"}
    assert "unknown" not in sent and sent["messages"] == HELLO
    (citation,) = body["message"]["citations"]
    assert citation["sources"][0]["document"] == document and body["message"]["tool_plan"] == "I read."
    events = stream(gateway, COHERE, **own)
    assert joined(events, "tool_plan") == "I read."
    (start,) = [event for event in events if event["type"] == "citation-start"]
    assert start["delta"]["message"]["citations"]["sources"][0]["document"] == document


def test_a_repeated_chat_is_answered_from_the_cache(gateway: LocalGateway, service: FakeCohere) -> None:
    stores = gateway.services.store.database, gateway.services.store.control
    update_project(*stores, gateway.project_id, ProjectChange(cache_enabled=True, cache_ttl_s=60), actor="test")
    service.script(*[CohereAnswer("It is 42.", plan="Hm.")] * 2)
    first = post(gateway, COHERE, seed=1).json()
    second = post(gateway, COHERE.title(), seed=1)
    assert second.headers["x-llmgateway-cache"] == "HIT" and second.json()["message"] == first["message"]
    for cached in (False, True):
        events = stream(gateway, COHERE, seed=1)
        assert (joined(events, "tool_plan"), joined(events, "text")) == ("Hm.", "It is 42.")
        assert events[-1]["metadata"].get("cached", False) == cached
    assert joined(stream(gateway, COHERE, seed=2), "text") == "Hello."


def test_other_vendors_read_documents_images_and_parameters(gateway: LocalGateway, compatible: FakeOpenAI) -> None:
    content = [{"type": "text", "text": "What?"}, {"type": "image_url", "image_url": {"url": PNG}}]
    shape = {"type": "object", "properties": {"a": {"type": "string"}}}
    answer = post(
        gateway,
        OPENAI,
        messages=[{"role": "system", "content": "Be brief."}, {"role": "user", "content": content}],
        documents=["one", {"id": "d1", "data": {"snippet": "two"}}],
        p=0.5,
        stop_sequences=["!"],
        max_tokens=90,
        response_format={"type": "json_object", "json_schema": shape},
    )
    assert answer.status_code == 200, answer.text
    sent = compatible.calls[-1].body
    texts = [part.get("text") for part in sent["messages"][1]["content"]]
    assert texts == ["one", '{"id":"d1","snippet":"two"}', "What?", None]
    assert sent["messages"][1]["content"][3]["image_url"]["url"] == PNG
    assert (sent["top_p"], sent["stop"], sent["max_completion_tokens"]) == (0.5, ["!"], 90)
    assert sent["response_format"]["json_schema"]["schema"]["properties"] == shape["properties"]


def test_citations_of_other_vendors_name_their_pages(gateway: LocalGateway, claude: FakeAnthropic) -> None:
    page = "https://news.example/today"
    claude.script(*[ClaudeAnswer("Rain.", search=page)] * 2)
    (citation,) = post(gateway, CLAUDE).json()["message"]["citations"]
    assert citation["sources"][0]["document"]["url"] == page
    events = stream(gateway, CLAUDE)
    (start,) = [event for event in events if event["type"] == "citation-start"]
    assert start["delta"]["message"]["citations"]["sources"][0]["document"]["url"] == page


def test_errors_have_the_form_that_the_clients_read(
    gateway: LocalGateway, service: FakeCohere, compatible: FakeOpenAI
) -> None:
    answer = post(
        gateway, OPENAI, messages=[{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}]
    )
    assert (answer.status_code, answer.json()["param"]) == (400, "messages.0.content.0.image_url.url")
    answer = post(gateway, OPENAI, temperature=9)
    assert (answer.status_code, answer.json()["param"]) == (400, "temperature")
    compatible.script(Answer("It is 42, as all know.", error_at=3))
    end = stream(gateway, OPENAI)[-1]
    assert (end["type"], end["delta"]["finish_reason"]) == ("message-end", "ERROR") and end["delta"]["error"]
    service.script(CohereAnswer("It is 42.", ends=False))
    assert stream(gateway, COHERE)[-1]["delta"]["finish_reason"] == "ERROR"
