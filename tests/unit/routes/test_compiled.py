"""Each condition of a route holds for the requests that it names, and for no others."""

from collections import Counter
from datetime import UTC, datetime
from typing import Any

import pytest

from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Native, Requirements
from gateway.neutral.parts import Message, Text
from gateway.routes.compiled import RoutedRequest, compile_route
from gateway.routes.route_document import read_document

Json = dict[str, Any]
HOUR = 3600 * 10**6
MONDAY = int(datetime(2026, 11, 30, 22, 30, tzinfo=UTC).timestamp() * 1_000_000)


def chat(
    text: str = "Hello.", tools: tuple[str, ...] = (), body: dict[str, Any] | None = None, **needs: Any
) -> ChatRequest:
    conversation = Conversation((Message("user", (Text(text),)),), tuple(FunctionTool(name) for name in tools))
    native = Native("openai", body) if body is not None else None
    return ChatRequest("house", Requirements(tools=bool(tools), **needs), lambda: conversation, native=native)


def holds(when: dict[str, Any], request: ChatRequest | None = None, **more: Any) -> bool:
    route = compile_route("house", 1, read_document({"rules": [{"when": when, "use": "a"}], "otherwise": "b"}))
    return route.choose(RoutedRequest(request or chat(), **more)).models == ("a",)


@pytest.mark.parametrize(
    ("when", "fits", "misses"),
    [
        ({"keys": ["key_1"]}, {"key_id": "key_1"}, {"key_id": "key_2"}),
        ({"projects": ["proj_1"]}, {"project_id": "proj_1"}, {}),
        ({"teams": ["t1", "t2"]}, {"teams_of": lambda: frozenset({"t2"})}, {"teams_of": lambda: frozenset({"t3"})}),
        ({"applications": ["codex*"]}, {"source": "codex-cli"}, {"source": "opencode"}),
        ({"headers": {"x-tier": ["gold", "a*b*c"]}}, {"headers": {"x-tier": "a-b-c"}}, {"headers": {"x-tier": "a-c"}}),
        ({"headers": {"x-tier": "*"}}, {"headers": {"x-tier": ""}}, {"headers": {}}),
        ({"budget": {"atLeast": 80, "limit": "m"}}, {"used_of": {"m": 80}.get}, {"used_of": {"m": 79}.get}),
        ({"budget": {"atLeast": 80}}, {"used_of": {"": 99}.get}, {}),
        ({"agent": "sub"}, {"headers": {"x-openai-subagent": "review"}}, {}),
        ({"body": {"metadata.tier": "gold"}}, {"metadata": {"tier": "gold"}}, {}),
        ({"difficulty": ["large"]}, {"metadata": {"difficulty": "large"}}, {"metadata": {"difficulty": "small"}}),
        ({"hours": {"from": "22:00", "to": "23:00"}}, {"at_us": MONDAY}, {"at_us": MONDAY + HOUR}),
        (
            {"hours": {"from": "23:00", "to": "06:00", "zone": "Europe/Berlin"}},
            {"at_us": MONDAY},
            {"at_us": MONDAY - HOUR},
        ),
        ({"hours": {"days": ["mon"]}}, {"at_us": MONDAY}, {"at_us": MONDAY + 24 * HOUR}),
        (
            {"hours": {"from": "22:00", "to": "06:00", "days": ["mon"]}},
            {"at_us": MONDAY + 4 * HOUR},  # Tuesday at 02:30, in the night that began on Monday
            {"at_us": MONDAY + 24 * HOUR},
        ),
    ],
)
def test_condition_of_the_caller_and_the_time(
    when: dict[str, Any], fits: dict[str, Any], misses: dict[str, Any]
) -> None:
    assert holds(when, **fits) and not holds(when, **misses)
    assert holds({"unless": when}, **misses) and not holds({"unless": when}, **fits)


@pytest.mark.parametrize(
    ("when", "fits", "misses"),
    [
        ({"tools": True}, chat(tools=("Bash",)), chat()),
        ({"tools": ["mcp__*"]}, chat(tools=("Bash", "mcp__github__search")), chat(tools=("Bash",))),
        ({"images": True}, chat(vision=True), chat()),
        ({"promptTokens": {"atLeast": 100}}, chat(prompt_bytes=400), chat(prompt_bytes=399)),
        ({"promptTokens": {"below": 100}}, chat(prompt_bytes=399), chat(prompt_bytes=400)),
        ({"body": {"top.inner": "a"}}, chat(body={"top": {"inner": "a"}}), chat(body={"top": "a"})),
        ({"body": {"seed": [1, 2]}}, chat(body={"seed": 2}), chat(body={"seed": True})),  # true is no number
        ({"body": {"stream": True}}, chat(stream=True), chat()),
        ({"body": {"reasoning_effort": "high"}}, chat(effort="high"), chat()),
        ({"turns": ["probe"]}, chat(max_tokens=1), chat(max_tokens=100)),
    ],
)
def test_condition_of_the_request(when: dict[str, Any], fits: ChatRequest, misses: ChatRequest) -> None:
    assert holds(when, fits) and not holds(when, misses)


def test_all_conditions_of_a_rule_must_hold_and_the_first_rule_decides() -> None:
    rules = [{"when": {"keys": ["k"], "tools": True}, "use": "a"}, {"when": {"keys": ["k"]}, "use": "b"}]
    route = compile_route("house", 1, read_document({"rules": rules, "otherwise": "c"}))
    assert route.choose(RoutedRequest(chat(), key_id="k")).models == ("b",)
    assert route.choose(RoutedRequest(chat(tools=("x",)), key_id="k")).models == ("a",)
    assert route.choose(RoutedRequest(chat(tools=("x",)))).name == "otherwise"


def test_split_keeps_a_session_and_gives_each_model_its_share() -> None:
    route = compile_route("house", 1, read_document({"otherwise": {"split": {"a": 90, "b": 10, "never": 0}}}))
    picked = [route.otherwise.pick(f"session {number}") for number in range(2_000)]
    assert picked == [route.otherwise.pick(f"session {number}") for number in range(2_000)]
    counts = Counter(picked)
    assert 140 < counts[("b",)] < 260 and counts[("a",)] + counts[("b",)] == 2_000


def test_a_request_reads_no_conversation_unless_a_rule_asks_for_it() -> None:
    def fail() -> Conversation:
        raise AssertionError("the conversation was decoded")

    request = ChatRequest("house", Requirements(), fail)
    assert not holds({"keys": ["k"], "difficulty": ["large"]}, request)
    assert holds({"tools": False, "images": False}, request)
