"""Prompt caches of providers in sessions of agents: what was written is read again, at the price of its lifetime."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import httpx
import pytest
from fakes.anthropic import FakeAnthropic
from fakes.prompt_cache import PromptCache
from support.clock import FakeClock
from support.gateways import LocalGateway
from support.shared import Share, usage_of

from gateway.metering.usage_table import UsageRecord
from gateway.routing.cache_lifetimes import CacheLifetimes

Json = dict[str, Any]
MODEL = "anthropic/claude-sonnet-4-5"
# Nano-dollars of a million tokens, by column of a usage row.
INPUT, READ, SHORT, HOUR = 3_000_000_000, 300_000_000, 3_750_000_000, 6_000_000_000
RULES = "Follow the rules of the house. " * 300
SCHEMA = {"type": "object", "properties": {"path": {"type": "string"}}}
PAUSE_S = 600.0
MARK = {"type": "ephemeral"}


@dataclass
class Chat:
    """An agent that speaks chat completions; `calls` in each turn."""

    path: str = "/v1/chat/completions"
    said: list[Json] = field(default_factory=lambda: [{"role": "user", "content": "Mend it. " * 200}])
    number: int = 0

    def go_on(self, calls: int) -> None:
        names = [f"call_{self.number}_{each}" for each in range(calls)]
        self.number += 1
        made = [{"id": name, "type": "function", "function": {"name": "read", "arguments": "{}"}} for name in names]
        self.said.append({"role": "assistant", "content": "I read.", "tool_calls": made})
        self.said += [{"role": "tool", "tool_call_id": name, "content": f"{name} has a line. " * 40} for name in names]

    def body(self) -> Json:
        tool = {"type": "function", "function": {"name": "read", "parameters": SCHEMA}}
        return {"messages": [{"role": "system", "content": RULES}, *self.said], "tools": [tool]}


class Messages(Chat):
    """An agent that speaks Anthropic's format and marks nothing."""

    def __init__(self) -> None:
        super().__init__("/v1/messages")

    def go_on(self, calls: int) -> None:
        names = [f"toolu_{self.number}_{each}" for each in range(calls)]
        self.number += 1
        made = [{"type": "tool_use", "id": name, "name": "read", "input": {}} for name in names]
        self.said.append({"role": "assistant", "content": [{"type": "text", "text": "I read."}, *made]})
        found = [{"type": "tool_result", "tool_use_id": name, "content": f"{name} has a line. " * 40} for name in names]
        self.said.append({"role": "user", "content": found})

    def body(self) -> Json:
        return {
            "system": RULES,
            "messages": self.said,
            "max_tokens": 100,
            "tools": [{"name": "read", "input_schema": SCHEMA}],
        }


class SubAgent(Messages):
    """A sub-agent with other instructions."""

    def body(self) -> Json:
        return super().body() | {"system": f"Search for the others. {RULES}"}


class MarkedMessages(Messages):
    """One that marks its instructions and tools, as some agents do."""

    def body(self) -> Json:
        body = super().body()
        tools = [{**tool, "cache_control": MARK} for tool in body["tools"]]
        return body | {"system": [{"type": "text", "text": RULES, "cache_control": MARK}], "tools": tools}


class Responses(Chat):
    """An agent that speaks the Responses API."""

    def __init__(self) -> None:
        super().__init__("/v1/responses")

    def go_on(self, calls: int) -> None:
        names = [f"call_{self.number}_{each}" for each in range(calls)]
        self.number += 1
        made = {"type": "function_call", "name": "read", "arguments": "{}"}
        self.said += [{**made, "call_id": name} for name in names]
        self.said += [
            {"type": "function_call_output", "call_id": name, "output": f"{name} has a line. " * 40} for name in names
        ]

    def body(self) -> Json:
        tool = {"type": "function", "name": "read", "parameters": SCHEMA, "strict": False}
        return {"instructions": RULES, "input": self.said, "tools": [tool], "store": False}


AGENTS = (Chat, Messages, MarkedMessages, Responses)


@pytest.fixture
def clock() -> FakeClock:
    return FakeClock()


@pytest.fixture
def vendor(share: Share, clock: FakeClock) -> FakeAnthropic:
    fake: FakeAnthropic = share.fake(FakeAnthropic)
    fake.prompt_cache = PromptCache(clock)
    return fake


@pytest.fixture
def gateway(share: Share, vendor: FakeAnthropic, clock: FakeClock) -> Iterator[LocalGateway]:
    """A gateway with a fake clock for the pauses of sessions."""
    running = share.gateway({"LLM_ANTHROPIC_API_KEY": "sk-ant-up", "LLM_ANTHROPIC_BASE_URL": vendor.url})
    planner = running.services.routing.planner
    usual = planner.cache_lifetimes
    planner.cache_lifetimes = CacheLifetimes(clock, None, b"key")
    yield running
    planner.cache_lifetimes = usual


def turn(gateway: LocalGateway, agent: Chat, session: str = "s1", stream: bool = False) -> None:
    headers = {"Authorization": f"Bearer {gateway.key}", "X-Session-Id": session}
    body = {"model": MODEL, **agent.body(), **({"stream": True} if stream else {})}
    with httpx.Client(timeout=60) as http:
        answer = http.post(gateway.address + agent.path, headers=headers, json=body)
        assert answer.status_code == 200, answer.text


def marks_of(vendor: FakeAnthropic) -> list[str]:
    """The lifetimes of the marks that the vendor got last."""
    body = vendor.calls[-1].body
    contents = [body["system"], *[each["content"] for each in body["messages"]]]
    blocks = [*body["tools"], *[block for content in contents if isinstance(content, list) for block in content]]
    return [block["cache_control"].get("ttl", "5m") for block in blocks if "cache_control" in block]


def written(row: UsageRecord) -> tuple[int, int]:
    """The tokens written for five minutes and for an hour."""
    hour = json.loads(row.extra or "{}").get("units", {}).get("cache_write_1h", 0)
    return row.cache_write - hour, hour


@pytest.mark.parametrize("agent", AGENTS)
@pytest.mark.parametrize("stream", [False, True])
def test_a_turn_reads_all_that_the_turn_before_wrote(
    gateway: LocalGateway, vendor: FakeAnthropic, agent: type[Chat], stream: bool
) -> None:
    session = agent()
    for calls in (1, 3, 30, 1, 2):  # more results at once than a provider looks back from a mark
        turn(gateway, session, stream=stream)
        session.go_on(calls)
    rows = usage_of(gateway)
    assert rows[0].cache_write > 1024 and rows[0].cache_read == 0
    for before, row in pairwise(rows):
        assert row.cache_read == before.cache_read + before.cache_write
        assert row.input == 0
    assert all(call.problem == "" for call in vendor.calls)


def test_pauses_make_the_marks_last_an_hour_where_that_costs_less(
    gateway: LocalGateway, vendor: FakeAnthropic, clock: FakeClock
) -> None:
    session = Messages()
    lives = []
    for pause_s in (0.0, 0.0, PAUSE_S, PAUSE_S, PAUSE_S, 0.0, PAUSE_S):
        clock.advance(pause_s)
        turn(gateway, session)
        lives.append(set(marks_of(vendor)))
        session.go_on(1)
    assert lives == [{"5m"}] * 3 + [{"1h"}] * 4
    rows = usage_of(gateway)
    assert [row.cache_read for row in rows[2:4]] == [0, 0]  # forgotten in each pause
    for before, row in pairwise(rows[3:]):
        assert row.cache_read == before.cache_read + before.cache_write
    for row in rows:
        short, hour = written(row)
        assert row.cache_write_nusd == (short * SHORT + 500_000) // 10**6 + (hour * HOUR + 500_000) // 10**6
        assert row.input_nusd == (row.input * INPUT + 500_000) // 10**6
        assert row.cached_nusd == (row.cache_read * READ + 500_000) // 10**6
    assert written(rows[-1])[1] > 0


@pytest.mark.parametrize("pause_s", [60.0, 4000.0])
def test_marks_last_five_minutes_where_an_hour_saves_nothing(
    gateway: LocalGateway, vendor: FakeAnthropic, clock: FakeClock, pause_s: float
) -> None:
    """The cache lives on through short pauses, and not through those of more than an hour."""
    session = Chat()
    for _ in range(5):
        clock.advance(pause_s)
        turn(gateway, session)
        assert set(marks_of(vendor)) == {"5m"}
        session.go_on(1)


def test_an_agents_own_pauses_count_and_not_those_of_its_sub_agents(
    gateway: LocalGateway, vendor: FakeAnthropic, clock: FakeClock
) -> None:
    """A main agent waits while its sub-agents work, in the same session and with other conversations."""
    main = Messages()
    for number in range(4):
        turn(gateway, main)
        main.go_on(1)
        sub = SubAgent()
        sub.said = [{"role": "user", "content": f"Task {number}: find it. " * 200}]
        for _ in range(5):
            clock.advance(100)
            turn(gateway, sub)
            assert set(marks_of(vendor)) == {"5m"}
            sub.go_on(1)
    turn(gateway, main)
    assert set(marks_of(vendor)) == {"1h"}
