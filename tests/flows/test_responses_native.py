"""A vendor with both APIs: what goes to which, for callers of every dialect, and what comes back to them."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import anthropic
import pytest
from fakes import openai as chat
from fakes.chat_and_responses import FakeVendor
from fakes.openai import FakeOpenAI
from fakes.responses import Answer, call, drawn, looked_up, ran, said, searched, thought
from openai import OpenAI
from openai.types.responses import Response
from pydantic import BaseModel
from support.gateways import LocalGateway, local_gateway
from support.shared import Share

from gateway.configuration.settings import Settings
from gateway.metering.usage_table import find

MODEL = "openai/gpt-5-mini"
PAGE = "https://news.example/today"
FUNCTION = {"type": "function", "name": "run", "parameters": {"type": "object", "properties": {}}, "strict": False}
NESTED = {"type": "function", "function": {"name": "run", "parameters": FUNCTION["parameters"]}}
FOUND = (searched("news"), said("It rains.", sources=(PAGE,)))
HELLO = [{"role": "user", "content": "Hello"}]


@pytest.fixture
def vendor(share: Share) -> FakeVendor:
    return share.fake(FakeVendor)


@pytest.fixture
def gateway(share: Share, vendor: FakeVendor) -> LocalGateway:
    """A gateway with nothing but the vendor's key and address, which lets callers name objects of its account."""
    environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": vendor.url}
    return share.gateway(environment | {"GATEWAY_ROUTING_PROVIDER_OBJECTS": "true"})


@pytest.fixture
def sdk(gateway: LocalGateway) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


@pytest.fixture
def claude(gateway: LocalGateway) -> anthropic.Anthropic:
    return anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=gateway.key, max_retries=0)


def test_responses_go_to_the_vendors_responses_api_with_all_that_they_say(sdk: OpenAI, vendor: FakeVendor) -> None:
    own = [
        {"type": "image_generation", "quality": "low", "partial_images": 1},
        {"type": "file_search", "vector_store_ids": ["vs_1"], "max_num_results": 3},
        {"type": "code_interpreter", "container": {"type": "auto"}},
        {"type": "web_search", "search_context_size": "low", "filters": {"allowed_domains": ["news.example"]}},
        FUNCTION,
    ]
    wishes = {
        "truncation": "auto",
        "top_logprobs": 3,
        "max_tool_calls": 2,
        "include": ["message.output_text.logprobs", "file_search_call.results"],
        "reasoning": {"effort": "low", "summary": "auto"},
        "text": {"verbosity": "low"},
        "parallel_tool_calls": False,
    }
    answer = sdk.responses.create(model=MODEL, input="Hello", instructions="Be brief.", tools=own, **wishes)
    Response.model_validate(answer.to_dict(), strict=True)
    (sent,) = vendor.responses.calls
    assert not vendor.chat.calls and sent.body["store"] is False
    assert sent.body["tools"] == own and sent.body["instructions"] == "Be brief."
    assert {name: sent.body[name] for name in wishes if name != "include"} == {
        name: value for name, value in wishes.items() if name != "include"
    }
    assert set(sent.body["include"]) == {*wishes["include"], "reasoning.encrypted_content"}


def test_chat_completions_stay_where_they_are(sdk: OpenAI, vendor: FakeVendor) -> None:
    sdk.chat.completions.create(model=MODEL, messages=HELLO, tools=[NESTED])
    list(sdk.chat.completions.create(model=MODEL, messages=HELLO, stream=True))
    assert len(vendor.chat.calls) == 2 and not vendor.responses.calls


@pytest.mark.parametrize("stream", [False, True])
def test_chat_searches_the_web_and_cites(sdk: OpenAI, gateway: LocalGateway, vendor: FakeVendor, stream: bool) -> None:
    vendor.responses.script(Answer(*FOUND, prompt=1000, completion=100))
    request = {"model": MODEL, "messages": HELLO, "tools": [{"type": "web_search"}]}
    if stream:
        chunks = list(sdk.chat.completions.create(**request, stream=True))
        deltas = [choice.delta.to_dict() for chunk in chunks for choice in chunk.choices]
        notes = [note for delta in deltas for note in delta.get("annotations", ())]
        text = "".join(delta.get("content") or "" for delta in deltas)
        final = chunks[-1]
    else:
        final = sdk.chat.completions.create(**request)
        text, notes = final.choices[0].message.content, [n.to_dict() for n in final.choices[0].message.annotations]
    assert text == "It rains." and [note["url_citation"]["url"] for note in notes] == [PAGE]
    (row,) = find(gateway.services.store.database, final.metadata["log_id"])
    # 1000 tokens in at $0.25 and 100 out at $2 a million, and one search at $10 a thousand
    assert (row.input, row.output, row.cost_nusd) == (1000, 100, 250_000 + 200_000 + 10_000_000)


@pytest.mark.parametrize("stream", [False, True])
def test_messages_search_the_web_and_cite(
    claude: anthropic.Anthropic, gateway: LocalGateway, vendor: FakeVendor, stream: bool
) -> None:
    vendor.responses.script(Answer(*FOUND))
    tools = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]
    request = {"model": MODEL, "max_tokens": 100, "messages": HELLO, "tools": tools}
    if stream:
        with claude.messages.stream(**request) as events:
            message = events.get_final_message()
    else:
        message = claude.messages.create(**request)
    (text,) = [block for block in message.content if block.type == "text"]
    assert text.text == "It rains." and [citation.url for citation in text.citations] == [PAGE]
    assert message.stop_reason == "end_turn" and message.usage.server_tool_use.web_search_requests == 1


@pytest.mark.parametrize("stream", [False, True])
def test_responses_search_the_web_and_cite(sdk: OpenAI, vendor: FakeVendor, stream: bool) -> None:
    vendor.responses.script(Answer(*FOUND))
    request = {"model": MODEL, "input": "Hello", "tools": [{"type": "web_search"}]}
    if stream:
        response = list(sdk.responses.create(**request, stream=True))[-1].response
    else:
        response = sdk.responses.create(**request)
    assert [item.type for item in response.output] == ["web_search_call", "message"]
    assert [note.url for note in response.output[1].content[0].annotations] == [PAGE]


def test_reasoning_goes_on_between_turns_through_our_own_store(sdk: OpenAI, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(thought("Hm."), call("run", "{}")), Answer(said("Done.")))
    first = sdk.responses.create(model=MODEL, input="Go", tools=[FUNCTION])
    output = {"type": "function_call_output", "call_id": first.output[-1].call_id, "output": "ok"}
    second = sdk.responses.create(model=MODEL, input=[output], tools=[FUNCTION], previous_response_id=first.id)
    assert second.output_text == "Done."
    sent = vendor.responses.calls[1].body
    assert [item["type"] for item in sent["input"]] == ["message", "reasoning", "function_call", "function_call_output"]
    assert sent["input"][1]["encrypted_content"] in vendor.responses.sealed
    assert sent["store"] is False and "previous_response_id" not in sent


def test_thinking_of_messages_goes_on_in_a_tool_loop(claude: anthropic.Anthropic, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(thought("Hm."), call("run", "{}")), Answer(said("Done.")))
    request = {
        "model": MODEL,
        "max_tokens": 4000,
        "thinking": {"type": "enabled", "budget_tokens": 1024},
        "tools": [{"name": "run", "input_schema": FUNCTION["parameters"]}],
    }
    first = claude.messages.create(messages=HELLO, **request)
    result = {"type": "tool_result", "tool_use_id": first.content[-1].id, "content": "ok"}
    turns = [*HELLO, {"role": "assistant", "content": first.content}, {"role": "user", "content": [result]}]
    second = claude.messages.create(messages=turns, **request)
    assert second.content[-1].text == "Done."
    sent = vendor.responses.calls[1].body["input"]
    assert [item["type"] for item in sent] == ["message", "reasoning", "function_call", "function_call_output"]
    assert sent[1]["encrypted_content"] in vendor.responses.sealed


def test_tools_and_reasoning_of_models_that_join_them_there_alone(sdk: OpenAI, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(call("run", '{"a": 1}')))
    request = {"model": "openai/gpt-5.4", "messages": HELLO, "tools": [NESTED]}
    completion = sdk.chat.completions.create(**request, reasoning_effort="high")
    assert completion.choices[0].message.tool_calls[0].function.arguments == '{"a": 1}'
    assert vendor.responses.calls[0].body["reasoning"] == {"effort": "high"}
    sdk.chat.completions.create(**request, reasoning_effort="none")
    sdk.chat.completions.create(model="openai/gpt-5.4", messages=HELLO, reasoning_effort="high")
    assert len(vendor.chat.calls) == 2 and len(vendor.responses.calls) == 1


@pytest.mark.parametrize("stream", [False, True])
def test_a_server_without_the_api_answers_over_chat_completions(
    settings: Callable[..., Settings], stream: bool
) -> None:
    with FakeOpenAI() as server:
        environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": server.url}
        with local_gateway(settings, **environment) as gateway:
            sdk = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
            for _ in range(2):
                if stream:
                    response = list(sdk.responses.create(model=MODEL, input="Hello", stream=True))[-1].response
                else:
                    response = sdk.responses.create(model=MODEL, input="Hello")
                assert response.output_text == "Hello."
        paths = [call.path for call in server.calls]
    assert paths == ["/v1/responses", "/v1/chat/completions", "/v1/chat/completions"]


@pytest.mark.parametrize("stream", [False, True])
def test_failover_to_a_provider_with_chat_completions_alone(
    settings: Callable[..., Settings], vendor: FakeVendor, stream: bool
) -> None:
    with FakeOpenAI() as chat_only:
        environment = {
            "LLM_OPENAI_API_KEY": "sk-upstream",
            "LLM_OPENAI_BASE_URL": vendor.url,
            "LLM_NANOGPT_API_KEY": "sk-other",
            "LLM_NANOGPT_BASE_URL": chat_only.url,
        }
        vendor.responses.script(*[Answer(status=500)] * 3)
        chat_only.script(chat.Answer("From the other."))
        with local_gateway(settings, **environment) as gateway:
            sdk = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
            if stream:
                response = list(sdk.responses.create(model="gpt-5-mini", input="Hello", stream=True))[-1].response
            else:
                response = sdk.responses.create(model="gpt-5-mini", input="Hello")
    assert response.output_text == "From the other."


def test_a_background_answer_is_made_by_the_gateway_and_not_by_the_provider(sdk: OpenAI, vendor: FakeVendor) -> None:
    events = list(sdk.responses.create(model=MODEL, input="Hello", background=True, stream=True))
    assert events[-1].type == "response.completed"
    assert not vendor.responses.calls[-1].body.get("background")


WHOLE = (
    thought("Hm."),
    drawn("aW1hZ2U="),
    looked_up("rain", "file_1"),
    ran("2 + 2"),
    said("It rains.", sources=(PAGE,)),
)
TOOLS = [
    {"type": "image_generation"},
    {"type": "file_search", "vector_store_ids": ["vs_1"]},
    {"type": "code_interpreter", "container": {"type": "auto"}},
]


def test_a_relayed_answer_keeps_fields_of_its_vendor(sdk: OpenAI, vendor: FakeVendor) -> None:
    counted = {"input_tokens": 9, "input_tokens_details": {"image_tokens": 0, "text_tokens": 9}}
    drew = {**counted, "output_tokens": 7, "total_tokens": 16}
    own = {"tool_usage": {"image_gen": drew, "web_search": {"num_requests": 0}}, "temperature": 1.0, "top_p": 0.98}
    vendor.responses.script(Answer(*WHOLE, members=own))
    whole = sdk.responses.create(model=MODEL, input="Hello", tools=TOOLS, top_p=0.5)
    vendor.responses.script(Answer(*WHOLE, members=own))
    streamed = list(sdk.responses.create(model=MODEL, input="Hello", tools=TOOLS, top_p=0.5, stream=True))
    for response in (whole, streamed[-1].response):
        Response.model_validate(response.to_dict(), strict=True)
        assert response.tool_usage.to_dict() == own["tool_usage"]
        assert (response.temperature, response.top_p) == (1.0, 0.5), (
            "what the caller asked for stands, what they left open is told"
        )
        found = {item.type: item.to_dict() for item in response.output}
        assert found["image_generation_call"]["result"] == "aW1hZ2U="
        assert found["file_search_call"]["results"][0]["file_id"] == "file_1"
        assert found["code_interpreter_call"]["outputs"] == [{"type": "logs", "logs": "4"}]
    kinds = {event.type for event in streamed}
    assert {"response.image_generation_call.partial_image", "response.code_interpreter_call_code.delta"} <= kinds


# The tool's model → nano-dollars of a token of text in, of an image in and of an image out.
IMAGE_MODELS = {
    "gpt-image-1": (5_000, 10_000, 40_000),
    "gpt-image-1-mini": (2_000, 2_500, 8_000),
    "": (5_000, 8_000, 30_000),
}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("image_model", IMAGE_MODELS)
def test_images_that_the_vendors_tool_made_are_billed_at_the_prices_of_its_model(
    sdk: OpenAI, vendor: FakeVendor, image_model: str, stream: bool
) -> None:
    counted = {"input_tokens": 309, "input_tokens_details": {"image_tokens": 300, "text_tokens": 9}}
    used = {"image_gen": {**counted, "output_tokens": 1056, "total_tokens": 1365}, "web_search": {"num_requests": 0}}
    tool = {"type": "image_generation"} | ({"model": image_model} if image_model else {})
    vendor.responses.script(Answer(drawn("aW1hZ2U="), members={"tool_usage": used, "tools": [tool]}))
    answer = sdk.responses.create(model=MODEL, input="A fox", tools=[tool], stream=stream)
    usage = list(answer)[-1].response.usage if stream else answer.usage
    text, image, made = IMAGE_MODELS[image_model]
    details = usage.cost_details
    assert details["image_input_cost"] == pytest.approx((9 * text + 300 * image) / 10**9)
    assert details["image_output_cost"] == pytest.approx(1056 * made / 10**9)
    assert usage.cost == pytest.approx(
        sum(details[name] for name in ("input_cost", "output_cost", "image_input_cost", "image_output_cost"))
    )


def test_every_relayed_event_is_the_vendors_under_our_ids(sdk: OpenAI, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(*WHOLE))
    events = list(sdk.responses.create(model=MODEL, input="Hello", tools=TOOLS, stream=True))
    final = events[-1].response
    known = {item.id for item in final.output}
    event_bodies = [event.to_dict() for event in events]
    assert {event["item_id"] for event in event_bodies if "item_id" in event} <= known
    assert {event["item"]["id"] for event in event_bodies if "item" in event} == known
    assert [event["sequence_number"] for event in event_bodies] == list(range(len(event_bodies)))


def test_items_of_the_vendors_tools_go_back_to_it_in_the_next_turn(sdk: OpenAI, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(*WHOLE))
    first = sdk.responses.create(model=MODEL, input="Hello", tools=TOOLS)
    second = sdk.responses.create(model=MODEL, input="More", tools=TOOLS, previous_response_id=first.id)
    assert second.output_text == "Hello."
    kinds = [item["type"] for item in vendor.responses.calls[1].body["input"]]
    assert kinds == [
        "message",
        "reasoning",
        "image_generation_call",
        "file_search_call",
        "code_interpreter_call",
        "message",
        "message",
    ]


def test_an_unknown_end_reason_is_passed_on(sdk: OpenAI, vendor: FakeVendor) -> None:
    vendor.responses.script(*[Answer(said("x"), incomplete="max_messages")] * 2)
    whole = sdk.responses.create(model=MODEL, input="Hello")
    *_, last = sdk.responses.create(model=MODEL, input="Hello", stream=True)
    for response in (whole, last.response):
        assert (response.status, response.incomplete_details.reason) == ("incomplete", "max_messages")


def test_a_parsed_answer_is_relayed(sdk: OpenAI, vendor: FakeVendor) -> None:
    class City(BaseModel):
        name: str

    vendor.responses.script(Answer(said('{"name": "Oslo"}')))
    assert sdk.responses.parse(model=MODEL, input="Where?", text_format=City).output_parsed == City(name="Oslo")
    assert vendor.responses.calls[0].body["text"]["format"]["strict"] is True


def test_a_search_costs_the_same_relayed(sdk: OpenAI, gateway: LocalGateway, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(searched("a"), *FOUND, prompt=1000, completion=100))
    response = sdk.responses.create(model=MODEL, input="Hello", tools=[{"type": "web_search"}])
    (row,) = find(gateway.services.store.database, response.llmgateway["log_id"])
    assert row.cost_nusd == 250_000 + 200_000 + 2 * 10_000_000


def test_a_document_by_address_reaches_the_api_that_takes_addresses(
    claude: anthropic.Anthropic, vendor: FakeVendor
) -> None:
    paper = {"type": "document", "source": {"type": "url", "url": "https://papers.example/a.pdf"}}
    messages = [{"role": "user", "content": [paper, {"type": "text", "text": "Sum up."}]}]
    message = claude.messages.create(model="openai/gpt-5.6-luna", max_tokens=100, messages=messages)
    assert message.content[0].text == "Hello."
    (sent,) = vendor.responses.calls
    assert sent.body["input"][0]["content"][0] == {"type": "input_file", "file_url": "https://papers.example/a.pdf"}


def test_search_uses_of_messages_are_a_limit_of_tool_calls(claude: anthropic.Anthropic, vendor: FakeVendor) -> None:
    tools = [{"type": "web_search_20250305", "name": "web_search", "max_uses": 2}]
    claude.messages.create(model=MODEL, max_tokens=100, messages=HELLO, tools=tools)
    assert vendor.responses.calls[0].body["max_tool_calls"] == 2


@pytest.fixture
def grok(settings: Callable[..., Settings], vendor: FakeVendor) -> Iterator[OpenAI]:
    environment = {"LLM_XAI_API_KEY": "xai-upstream", "LLM_XAI_BASE_URL": vendor.url}
    with local_gateway(settings, **environment) as running:
        yield OpenAI(base_url=running.url, api_key=running.key, max_retries=0)


def test_another_vendor_with_the_api_is_relayed_to(grok: OpenAI, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(*FOUND))
    response = grok.responses.create(model="xai/grok-4.5", input="Hello", tools=[{"type": "web_search"}, FUNCTION])
    assert response.output_text == "It rains." and response.output[1].content[0].annotations[0].url == PAGE
    found = grok.chat.completions.create(model="xai/grok-4.5", messages=HELLO, tools=[{"type": "web_search"}])
    assert found.choices[0].message.content == "Hello." and len(vendor.responses.calls) == 2


def test_tools_that_another_vendors_api_does_not_know_are_rewritten(grok: OpenAI, vendor: FakeVendor) -> None:
    nested = {"type": "namespace", "name": "files", "description": "Files.", "tools": [FUNCTION]}
    response = grok.responses.create(model="xai/grok-4.5", input="Hello", tools=[nested])
    assert response.output_text == "Hello." and not vendor.responses.calls
    grok.responses.create(model="xai/grok-4.5", input="Hello", tools=[nested, {"type": "web_search"}])
    assert [tool.get("name") for tool in vendor.responses.calls[0].body["tools"]] == ["files__run", None]


@pytest.mark.parametrize("stream", [False, True])
def test_thinking_is_answered_by_a_server_without_the_api(settings: Callable[..., Settings], stream: bool) -> None:
    thinking = {"type": "enabled", "budget_tokens": 1024}
    with FakeOpenAI() as server:
        environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": server.url}
        with local_gateway(settings, **environment) as gateway:
            client = anthropic.Anthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0)
            request = {"model": MODEL, "max_tokens": 4000, "messages": HELLO, "thinking": thinking}
            if stream:
                with client.messages.stream(**request) as events:
                    message = events.get_final_message()
            else:
                message = client.messages.create(**request)
    assert message.content[-1].text == "Hello."


def test_an_effort_that_the_gateway_changes_leaves_a_response_where_it_belongs(sdk: OpenAI, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(thought("Hm."), said("Yes.")))
    response = sdk.responses.create(model="auto", input="Hello", include=["reasoning.encrypted_content"])
    assert response.output_text == "Yes." and response.output[0].encrypted_content
    assert vendor.responses.calls[0].body["reasoning"]["effort"] in ("minimal", "low")


def test_an_effort_that_a_model_lacks_changes_nothing_else_of_the_body(sdk: OpenAI, vendor: FakeVendor) -> None:
    search = {"type": "web_search", "search_context_size": "low", "filters": {"allowed_domains": ["news.example"]}}
    wishes = {
        "truncation": "auto",
        "context_management": [{"type": "compaction", "compact_threshold": 100_000}],
        "reasoning": {"effort": "xhigh", "summary": "detailed"},
        "text": {"verbosity": "low"},
        "tools": [search, FUNCTION],
    }
    response = sdk.responses.with_raw_response.create(model="openai/gpt-5", input="Hello", **wishes)
    assert "reasoning.effort xhigh was replaced by high" in response.headers["x-llmgateway-warnings"]
    sent = vendor.responses.calls[0].body
    assert {name: sent[name] for name in wishes} == wishes | {"reasoning": {"effort": "high", "summary": "detailed"}}


def test_offered_tools_are_left_out_by_a_server_without_the_api(settings: Callable[..., Settings]) -> None:
    offered = [FUNCTION, {"type": "web_search"}, {"type": "mcp", "server_label": "x"}, {"type": "local_shell"}]
    with FakeOpenAI() as server:
        environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": server.url}
        with local_gateway(settings, **environment) as gateway:
            sdk = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
            for _ in range(2):
                response = sdk.responses.create(model=MODEL, input="Hello", tools=offered)
                assert response.output_text == "Hello."
                warnings = " ".join(response.llmgateway["warnings"])
                assert "web_search was left out" in warnings and "mcp was left out" in warnings
                names = [tool["function"]["name"] for tool in server.calls[-1].body["tools"]]
                assert names[1:] == ["local_shell"]
        assert [call.path for call in server.calls].count("/v1/responses") == 1


def test_a_tool_of_free_text_is_a_function_for_a_vendor_that_lacks_it(grok: OpenAI, vendor: FakeVendor) -> None:
    free = {"type": "custom", "name": "patch", "description": "Patches."}
    for tools in ([free], [free, {"type": "web_search"}]):
        grok.responses.create(model="xai/grok-4.5", input="Hello", tools=tools)
    nested = {"type": "custom", "custom": {"name": "patch", "description": "Patches."}}
    for tools in ([nested], [nested, {"type": "web_search"}]):
        grok.chat.completions.create(model="xai/grok-4.5", messages=HELLO, tools=tools)
    sent = [call.body["tools"][0] for call in (*vendor.chat.calls, *vendor.responses.calls)]
    assert len(sent) == 4
    for tool in sent:
        function = tool.get("function", tool)
        assert tool["type"] == "function" and function["name"] == "patch"
        assert function["parameters"]["required"] == ["input"]


def test_a_session_continues_when_the_account_cannot_decrypt_its_reasoning_any_more(
    sdk: OpenAI, gateway: LocalGateway, vendor: FakeVendor
) -> None:
    vendor.responses.script(Answer(thought("Hm."), said("Good day.")), Answer(said("Gladly.")))
    asked = {"model": MODEL, "store": False, "include": ["reasoning.encrypted_content"]}
    first = sdk.responses.create(input=HELLO, **asked)
    vendor.responses.sealed.clear()  # the operator replaced the key by one of another account
    items = [*HELLO, *first.output, {"role": "user", "content": "Go on"}]
    assert sdk.responses.create(input=items, **asked).output_text
    refused, served = vendor.responses.calls[1:]
    assert (refused.status, served.status) == (400, 200)
    assert [item["type"] for item in served.body["input"]] == ["message", "message", "message"]


def test_a_compaction_of_another_account_is_left_out_with_a_warning(sdk: OpenAI, vendor: FakeVendor) -> None:
    compaction = {"type": "compaction", "encrypted_content": "gw1.responses.0123456789abcdef.gAAAA"}
    answer = sdk.responses.with_raw_response.create(model=MODEL, input=[*HELLO, compaction])
    assert "another account compacted" in answer.headers["x-llmgateway-warnings"]
    assert [item["role"] for item in vendor.responses.calls[0].body["input"]] == ["user"]
    compacted = sdk.responses.compact(model=MODEL, input=[*HELLO, compaction])
    assert [item.type for item in compacted.output] == ["message", "compaction"]
