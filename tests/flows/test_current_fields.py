"""Fields of the vendors' current clients, each sent once as those clients send it: what reaches the provider."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import anthropic
import httpx2
import openai
import pytest
from fakes.anthropic import Answer as Written
from fakes.anthropic import FakeAnthropic
from fakes.chat_and_responses import FakeVendor
from fakes.responses import Answer, said, searched
from openai import OpenAI
from support.gateways import LocalGateway
from support.shared import Share, usage_of

from gateway.accounts.projects import ProjectChange, update_project

MODEL, OLDER = "openai/gpt-5.4", "openai/gpt-3.5-turbo"
TALK = [{"role": "user", "content": "Hello"}]
PLACE = {"type": "approximate", "approximate": {"city": "Oslo", "country": "NO"}}


@pytest.fixture
def vendor(share: Share) -> FakeVendor:
    return share.fake(FakeVendor)


@pytest.fixture
def maker(share: Share) -> FakeAnthropic:
    return share.fake(FakeAnthropic)


@pytest.fixture
def gateway(share: Share, vendor: FakeVendor, maker: FakeAnthropic) -> LocalGateway:
    environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": vendor.url}
    environment |= {"LLM_ANTHROPIC_API_KEY": "sk-ant-up", "LLM_ANTHROPIC_BASE_URL": maker.url}
    environment["GATEWAY_ROUTING_PROVIDER_OBJECTS"] = "true"
    return share.gateway(environment)


@pytest.fixture
def claude(gateway: LocalGateway) -> Iterator[anthropic.Anthropic]:
    with httpx2.Client() as http:
        yield anthropic.Anthropic(base_url=gateway.address, api_key=gateway.key, max_retries=0, http_client=http)


@pytest.mark.parametrize(
    ("field", "reaches"),
    [
        ({"service_tier": "fast"}, {"service_tier": "priority"}),
        ({"prompt_cache_options": {"mode": "implicit", "ttl": "30m"}}, None),
        ({"prompt_cache_retention": "in-memory"}, {"prompt_cache_retention": "in_memory"}),
        ({"prompt_cache_retention": "24h"}, None),
    ],
    ids=str,
)
def test_a_field_of_an_openai_client_reaches_the_provider(
    client: OpenAI, vendor: FakeVendor, field: dict[str, Any], reaches: dict[str, Any] | None
) -> None:
    client.chat.completions.create(model=MODEL, messages=TALK, extra_body=field)
    client.responses.create(model=MODEL, input="Hello", extra_body=field)
    for sent in (vendor.chat.calls[-1].body, vendor.responses.calls[-1].body):
        assert {name: sent.get(name) for name in field} == (reaches or field)


@pytest.mark.parametrize(("ttl", "cost"), [("30m", 2 * 60 + 2.5 * 40 + 10 * 5), ("12h", 2 * 60 + 5 * 40 + 10 * 5)])
@pytest.mark.parametrize("stream", [False, True])
def test_tokens_cached_for_an_hour_are_billed_at_their_price(
    client: OpenAI, gateway: LocalGateway, vendor: FakeVendor, ttl: str, cost: float, stream: bool
) -> None:
    counts = {"cached_tokens": 0, "cache_write_tokens": 40}
    usage = {"input_tokens": 100, "input_tokens_details": counts, "output_tokens": 5, "total_tokens": 105}
    reported = {"usage": usage | {"output_tokens_details": {"reasoning_tokens": 0}}}
    vendor.responses.script(
        Answer(said("Hi."), members=reported | {"prompt_cache_options": {"mode": "implicit", "ttl": ttl}})
    )
    answer = client.responses.create(
        model="openai/gpt-6.1-sol", input="Hello", stream=stream, extra_body={"prompt_cache_options": {"ttl": ttl}}
    )
    if stream:
        assert list(answer)[-1].type == "response.completed"
    assert vendor.responses.calls[-1].body["prompt_cache_options"] == {"ttl": ttl}
    assert usage_of(gateway)[-1].cost_nusd == cost * 1000


@pytest.mark.parametrize("tier", ["scale", "ultrafast"])
def test_a_tier_that_is_not_offered_is_left_out_in_words(client: OpenAI, vendor: FakeVendor, tier: str) -> None:
    raw = client.chat.completions.with_raw_response
    answer = raw.create(model=MODEL, messages=TALK, extra_body={"service_tier": tier})
    assert "service_tier" not in vendor.chat.calls[-1].body
    assert f"service_tier {tier} was left out" in answer.headers["x-llmgateway-warnings"]


def test_sampling_that_a_model_has_fixed_is_left_out_in_words(client: OpenAI, vendor: FakeVendor) -> None:
    warning = "temperature is fixed for openai/gpt-5.4 and was left out."
    chat = client.chat.completions.with_raw_response.create(model=MODEL, messages=TALK, temperature=0.2, top_p=1)
    response = client.responses.with_raw_response.create(model=MODEL, input="Hello", temperature=0.2, top_p=1)
    assert [answer.headers["x-llmgateway-warnings"] for answer in (chat, response)] == [warning, warning]
    assert all("temperature" not in one.calls[-1].body for one in (vendor.chat, vendor.responses))


def test_web_search_options_search_the_web(client: OpenAI, vendor: FakeVendor) -> None:
    vendor.responses.script(Answer(searched("news"), said("It rains.", sources=("https://news.example",))))
    options = {"search_context_size": "low", "user_location": PLACE}
    answer = client.chat.completions.create(model=MODEL, messages=TALK, web_search_options=options)
    assert answer.choices[0].message.annotations and answer.usage.cost_details["web_search_cost"] == 0.01
    (tool,) = vendor.responses.calls[-1].body["tools"]
    assert (tool["type"], tool["search_context_size"]) == ("web_search", "low")
    assert (tool["user_location"]["city"], tool["user_location"]["country"]) == ("Oslo", "NO")


def test_web_search_options_for_a_model_without_web_search_are_left_out_in_words(
    client: OpenAI, vendor: FakeVendor
) -> None:
    raw = client.chat.completions.with_raw_response
    answer = raw.create(model=OLDER, messages=TALK, web_search_options={})
    assert "web_search_options" not in vendor.chat.calls[-1].body
    assert "web_search was left out" in answer.headers["x-llmgateway-warnings"]


CLAUDE = {"model": "anthropic/claude-opus-4-8", "max_tokens": 100, "messages": TALK}
SERVER = {"type": "url", "url": "https://tools.example/mcp", "name": "tools"}


def test_an_unnamed_set_of_tools_reaches_the_provider(claude: anthropic.Anthropic, maker: FakeAnthropic) -> None:
    tools = [{"type": "browser_toolset_20260801"}]
    claude.messages.create(**CLAUDE, tools=tools)
    assert maker.calls[-1].body["tools"] == tools


def test_tool_servers_reach_the_provider_with_their_opt_in(claude: anthropic.Anthropic, maker: FakeAnthropic) -> None:
    tools = [{"type": "mcp_toolset", "mcp_server_name": "tools"}]
    betas = ["mcp-client-2025-11-20"]
    claude.beta.messages.create(**CLAUDE, mcp_servers=[SERVER], tools=tools, betas=betas)
    sent = maker.calls[-1]
    assert (sent.body["mcp_servers"], sent.body["tools"]) == ([SERVER], tools)
    assert sent.headers["anthropic-beta"] == betas[0]


@pytest.mark.parametrize("more", [{}, {"extra_body": {"top_p": 0.5, "temperature": 0.5}}], ids=["relayed", "rebuilt"])
def test_the_container_of_an_earlier_turn_reaches_the_provider(
    claude: anthropic.Anthropic, maker: FakeAnthropic, more: dict[str, Any]
) -> None:
    body = CLAUDE | {"model": "anthropic/claude-sonnet-4-5"}
    claude.messages.create(**body, container="container_1", **more)
    assert maker.calls[-1].body["container"] == "container_1"


FAST_AND_HERE = {"speed": "fast", "inference_geo": "us"}


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("more", [{}, {"extra_body": {"top_p": 0.5, "temperature": 0.5}}], ids=["relayed", "rebuilt"])
@pytest.mark.parametrize(
    ("options", "cost"),
    [({}, 188), ({"speed": "fast"}, 376), ({"inference_geo": "us"}, 206.8), (FAST_AND_HERE, 413.6)],
)
def test_speed_and_place_of_claude_reach_it_and_are_billed_at_their_multiples(
    claude: anthropic.Anthropic,
    gateway: LocalGateway,
    maker: FakeAnthropic,
    options: dict[str, str],
    cost: float,
    more: Any,
    stream: bool,
) -> None:
    body = CLAUDE | {"model": "anthropic/claude-opus-5-5"} | options | more
    if stream:
        with claude.messages.stream(**body) as events:
            events.get_final_message()
    else:
        claude.messages.create(**body)
    sent = maker.calls[-1]
    assert {name: sent.body[name] for name in FAST_AND_HERE if name in sent.body} == options
    assert ("anthropic-beta" in sent.headers) == ("speed" in options)
    assert usage_of(gateway)[-1].cost_nusd == cost * 1000  # 12 tokens in, 7 out at $4 and $20 a million


def test_a_fast_answer_that_breaks_off_is_billed_as_fast(
    claude: anthropic.Anthropic, gateway: LocalGateway, maker: FakeAnthropic
) -> None:
    rates = []
    for options in ({}, {"speed": "fast"}):
        maker.script(Written("Hello. " * 200, cut=3000, stop=False))
        with (
            pytest.raises(anthropic.APIError),
            claude.messages.stream(**CLAUDE | {"model": "anthropic/claude-opus-5-5"} | options) as events,
        ):
            events.get_final_message()
        row = usage_of(gateway)[-1]
        # Output costs five times as much as input. How much text came before the cut varies with the events' size.
        rates.append(row.cost_nusd / (row.input + 5 * row.output))
    assert rates[0] and rates[1] == 2 * rates[0]


@pytest.mark.parametrize(
    ("model", "options", "kept"),
    [
        ("claude-sonnet-5-5", FAST_AND_HERE, {"inference_geo": "us"}),
        ("claude-haiku-4-5", {"inference_geo": "us"}, {}),
        ("claude-opus-5-5", {"speed": "light", "inference_geo": "mars"}, {}),
    ],
)
def test_a_speed_or_place_that_is_not_offered_is_left_out_in_words(
    claude: anthropic.Anthropic, maker: FakeAnthropic, model: str, options: dict[str, Any], kept: dict[str, str]
) -> None:
    answer = claude.messages.with_raw_response.create(**CLAUDE | {"model": f"anthropic/{model}"} | options)
    assert {name: maker.calls[-1].body[name] for name in options if name in maker.calls[-1].body} == kept
    warnings = answer.headers["x-llmgateway-warnings"]
    assert [name in warnings for name in options] == [name not in kept for name in options]
    assert "service_tier" not in warnings


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("top_logprobs", 2),
        ("include", ["message.output_text.logprobs"]),
        ("moderation", {"model": "omni-moderation-latest"}),
        ("max_tool_calls", 3),
    ],
)
def test_a_cached_response_is_not_returned_to_a_request_for_more(
    client: OpenAI, gateway: LocalGateway, vendor: FakeVendor, field: str, value: Any
) -> None:
    store = gateway.services.store
    change = ProjectChange(cache_enabled=True, cache_ttl_s=60)
    update_project(store.database, store.control, gateway.project_id, change, actor="test")
    body = {"model": MODEL, "input": "Hello"}
    for more in ({}, {"user": "somebody"}, {field: value}):
        client.responses.create(**body, extra_body=more)
    assert len(vendor.responses.calls) == 2


def test_a_cached_message_is_not_returned_to_a_request_for_citations(
    claude: anthropic.Anthropic, gateway: LocalGateway, maker: FakeAnthropic
) -> None:
    store = gateway.services.store
    change = ProjectChange(cache_enabled=True, cache_ttl_s=60)
    update_project(store.database, store.control, gateway.project_id, change, actor="test")
    paper = {"type": "document", "source": {"type": "text", "media_type": "text/plain", "data": "It rains."}}
    for more in ({}, {}, {"citations": {"enabled": True}}):
        claude.messages.create(**CLAUDE | {"messages": [{"role": "user", "content": [paper | more]}]})
    assert len(maker.calls) == 2


CALLED = [
    {"type": "mcp_tool_use", "id": "mcptoolu_1", "name": "look", "server_name": "tools", "input": {"at": "Oslo"}},
    {"type": "mcp_tool_result", "tool_use_id": "mcptoolu_1", "content": [{"type": "text", "text": "Rain."}]},
    {"type": "text", "text": "It rains."},
]
SUMMED_UP = {"type": "compaction", "content": "They spoke of the rain.", "signature": "c2ln"}


@pytest.mark.parametrize("blocks", [CALLED, [SUMMED_UP]], ids=["calls at tool servers", "a compaction"])
def test_responses_of_the_provider_return_to_it_unchanged(
    claude: anthropic.Anthropic, maker: FakeAnthropic, blocks: list[dict[str, Any]]
) -> None:
    turns = [*TALK, {"role": "assistant", "content": blocks}, {"role": "user", "content": "And now?"}]
    claude.beta.messages.create(**CLAUDE | {"messages": turns}, betas=["mcp-client-2025-11-20", "compact-2026-01-12"])
    assert maker.calls[-1].body["messages"][:2] == turns[:2]


def test_a_compaction_is_read_by_another_vendors_model(claude: anthropic.Anthropic, vendor: FakeVendor) -> None:
    turns = [{"role": "assistant", "content": [SUMMED_UP]}, {"role": "user", "content": "And now?"}]
    claude.messages.create(**CLAUDE | {"model": OLDER, "messages": turns})
    assert vendor.chat.calls[-1].body["messages"][0]["content"] == SUMMED_UP["content"]


def test_tools_of_another_vendor_are_refused_in_plain_words(claude: anthropic.Anthropic) -> None:
    with pytest.raises(anthropic.BadRequestError, match="a file, tool or part of another vendor") as caught:
        claude.messages.create(
            **CLAUDE | {"model": OLDER}, tools=[{"type": "browser_toolset_20260801"}], tool_choice={"type": "any"}
        )
    assert caught.value.body["error"]["code"] == "model_not_supported"


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("image_config", {"aspect_ratio": "1:1"}),
        ("image_config", {"n": "many"}),
        ("image_config", 7),
        ("routing", "price"),
        ("routing", "fastest"),
        ("routing", 3),
        ("no_reasoning", True),
        ("no_reasoning", "yes"),
    ],
)
@pytest.mark.parametrize("stream", [False, True])
def test_a_preference_without_effect_is_left_out_with_a_warning(
    client: OpenAI, field: str, value: Any, stream: bool
) -> None:
    raw = client.chat.completions.with_raw_response
    answer = raw.create(model=MODEL, messages=TALK, stream=stream, extra_body={field: value})
    assert answer.headers["x-llmgateway-warnings"].startswith(f"{field} was left out: ")
    assert answer.headers["x-llmgateway-warnings"].count("left out") == 1


@pytest.mark.parametrize(("field", "value"), [("routing", "fastest"), ("no_reasoning", "yes"), ("image_config", 7)])
def test_a_wrong_value_of_a_preference_with_an_effect_is_named(client: OpenAI, field: str, value: Any) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.chat.completions.create(model="auto", messages=TALK, extra_body={field: value})
    assert (caught.value.param, caught.value.code) == (field, "invalid_parameters")
