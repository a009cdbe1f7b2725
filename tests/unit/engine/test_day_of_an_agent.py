"""A simulated day of a coding agent under a route: what it costs, and how much of its prompts comes from the cache.

The turns have the texts of the labelled set. The provider's cache is simulated: five minutes for each model and
conversation. Prices are those of the catalogue.
"""

import random
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, NamedTuple

from support.clock import FakeClock

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.catalogue import loader
from gateway.catalogue.prices import cost_of
from gateway.clock import SECOND_US
from gateway.configuration.settings import CONFIG
from gateway.engine.model_routes import CACHE_S, LONG_CACHE_S, ModelRoutes
from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Requirements
from gateway.neutral.parts import Message, Text, ToolCall, ToolResult
from gateway.neutral.usage import Usage
from gateway.routes.compiled import compile_route
from gateway.routes.route_document import read_document
from gateway.routing.cache_lifetimes import CacheLifetimes
from gateway.routing.sticky import Sticky

SMALL, MEDIUM, LARGE = "claude-haiku-5-5", "claude-sonnet-5-5", "claude-opus-5-5"
DOCUMENT = {
    "rules": [
        {"name": "sub-agents", "when": {"agent": "sub"}, "use": SMALL},
        {"name": "large", "when": {"difficulty": ["large"]}, "use": LARGE},
        {"name": "small", "when": {"difficulty": ["small"]}, "use": SMALL},
    ],
    "otherwise": MEDIUM,
}
LABELLED = tomllib.loads((Path(__file__).parents[2] / "samples" / "labelled_turns.toml").read_text())["held_out"]
CALLER = Caller("key_1", "user", "", "org_1", "proj_1", "user_1", "mem_1", "owner", "credits")
SYSTEM_TOKENS, STEP_TOKENS, OUTPUT_TOKENS, LONGEST_PROMPT = 18_000, 1_600, 350, 160_000
CLAUDE_CODE = "claude.com/claude-code"
TURNS = 1_200


class SimulatedTurn(NamedTuple):
    at_s: float
    session: str
    first: str
    messages: tuple[Message, ...]
    tokens: int
    sub: bool


def play(chance: random.Random) -> Iterator[SimulatedTurn]:
    """Yield the turns of sessions: a task, steps of tools, further prompts, pauses, compactions and sub-agents."""
    at_s = 1_700_000_000.0
    for number in range(10_000):
        level = chance.choices(("small", "medium", "large"), (25, 50, 25))[0]
        first = wish = text_of(chance, level)
        tokens = SYSTEM_TOKENS
        yield SimulatedTurn(at_s, f"s{number}", "title", (say(f"Please write a 5-10 word title: {first}"),), 900, False)
        for _ in range(chance.randint(1, 5)):
            yield SimulatedTurn(at_s, f"s{number}", first, (say(wish),), tokens, False)
            for step in range(chance.randint(3, 20)):
                at_s += chance.expovariate(1 / 20)
                tokens += STEP_TOKENS
                failed = chance.random() < 0.08
                messages = (say(wish), Message("tool", (ToolResult("1", (Text("done"),), is_error=failed),)))
                yield SimulatedTurn(at_s, f"s{number}", first, messages, tokens, False)
                if chance.random() < 0.04:
                    yield from play_helper(chance, at_s, f"s{number}")
                if tokens > LONGEST_PROMPT:  # a compaction begins a new conversation
                    first, tokens = f"The conversation was compacted: {number} {step}", SYSTEM_TOKENS
            wish = text_of(chance, chance.choices(("small", "medium", "large"), (45, 40, 15))[0])
            at_s += chance.choice((20, 60, 120, 900))  # every fourth pause is longer than the cache


def play_helper(chance: random.Random, at_s: float, session: str) -> Iterator[SimulatedTurn]:
    first = f"Search the code for {chance.random()}"
    for step in range(chance.randint(3, 8)):
        yield SimulatedTurn(at_s + step, session, first, (say(first),), 9_000 + step * STEP_TOKENS, True)


def say(text: str) -> Message:
    return Message("user", (Text(text),))


def text_of(chance: random.Random, level: str) -> str:
    return chance.choice(LABELLED[level]).removeprefix("> ").removeprefix("! ")


class SimulatedProvider:
    """Counts the cost and the cached tokens of calls."""

    def __init__(self, catalogue: Any) -> None:
        self._catalogue = catalogue
        self._cached: dict[tuple[str, str, str], tuple[float, int]] = {}
        self.cost_nusd = self.read = self.tokens = 0

    def serve(self, turn: SimulatedTurn, model: str) -> None:
        place = (model, turn.session, turn.first)
        at_s, tokens = self._cached.get(place, (0.0, 0))
        cached = min(tokens, turn.tokens) if turn.at_s - at_s <= CACHE_S else 0
        self._cached[place] = (turn.at_s, turn.tokens)
        written = turn.tokens - cached
        mapping = next(one for one in self._catalogue.models[model].mappings if one.provider == "anthropic")
        usage = Usage(input=0, cache_read=cached, cache_write=written, output=OUTPUT_TOKENS)
        self.cost_nusd += cost_of(usage, mapping, int(turn.at_s * SECOND_US)).total
        self.read += cached
        self.tokens += turn.tokens


def measure(seed: int) -> tuple[float, float]:
    """Return the share of the cost that a route saves in a day, and the share of input tokens that leave the cache."""
    catalogue = loader.load(CONFIG / "catalogue", sandbox=False)
    clock = FakeClock()
    route = compile_route("house", 1, read_document(DOCUMENT))
    book: Any = SimpleNamespace(find=lambda organization, project, name: route, teams_of=lambda *ids: frozenset())
    limits: Any = SimpleNamespace(any=False)
    shares: Any = SimpleNamespace(used=lambda idents: None)
    sessions = Sticky(clock, 2.0 * LONG_CACHE_S)
    routes = ModelRoutes(book, limits, shares, sessions, CacheLifetimes(clock, None, b"key"), lambda: catalogue, b"key")
    routed, pinned = SimulatedProvider(catalogue), SimulatedProvider(catalogue)
    for turn, _ in zip(play(random.Random(seed)), range(TURNS), strict=False):
        system = "You are an agent for Claude Code." if turn.sub else "You are Claude Code."
        call = Message("assistant", (ToolCall("1", "Bash", "{}"),))
        conversation = Conversation(
            (Message("system", (Text(system),)), say(turn.first), call, *turn.messages), (FunctionTool("Task"),)
        )
        needs = Requirements(tools=True, prompt_bytes=turn.tokens * 4)
        request = ChatRequest("house", needs, lambda conversation=conversation: conversation)  # type: ignore[misc]
        at_us = int(turn.at_s * SECOND_US)
        context = RequestContext("0" * 32, CALLER, at_us, 0.0, 100.0, session=turn.session, source=CLAUDE_CODE)
        sent = routes.apply(context, request)
        assert sent is not None
        routed.serve(turn, sent.requested_model)
        pinned.serve(turn, LARGE)
    saved = 1 - routed.cost_nusd / pinned.cost_nusd
    return saved, pinned.read / pinned.tokens - routed.read / routed.tokens


def test_a_day_costs_half_and_keeps_its_cache() -> None:
    saved, lost = measure(68)
    assert saved >= 0.3, f"saved {saved:.1%}"
    assert lost <= 0.02, f"{lost:.1%} fewer tokens from the cache"
    # docs/routes.md has these figures.
    assert (round(100 * saved), round(100 * lost, 1)) == (52, 1.0)
