"""A conversation keeps the model of its route: it rises at once, and falls only when its cache is worthless."""

import sys
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from support.clock import FakeClock

from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.catalogue import loader
from gateway.clock import SECOND_US
from gateway.configuration.settings import CONFIG
from gateway.engine.model_routes import CACHE_S, LONG_CACHE_S, STEP_S, CallerShares, ModelRoutes
from gateway.errors import Unavailable
from gateway.ids import digest
from gateway.limits.budgets import Limits, Status
from gateway.neutral.chat import ChatRequest, Conversation, FunctionTool, Requirements
from gateway.neutral.parts import CacheMark, Message, Text
from gateway.routes.choices import RouteChoice
from gateway.routes.compiled import compile_route
from gateway.routes.route_document import read_document
from gateway.routing.cache_lifetimes import CacheLifetimes
from gateway.routing.sticky import Sticky, Store

SMALL, LARGE = "gpt-4o-mini", "gpt-4o"
DOCUMENT = {"rules": [{"when": {"difficulty": ["large"]}, "use": LARGE}], "otherwise": SMALL}
HARD = "Investigate why the workers deadlock under load, and design a fix."
EASY = "Fix the typo in the readme."
CALLER = Caller("key_1", "user", "", "org_1", "proj_1", "user_1", "mem_1", "owner", "credits")
Ask = Callable[..., RouteChoice]


@pytest.fixture(scope="module")
def catalogue() -> Any:
    return loader.load(CONFIG / "catalogue", sandbox=False)


@pytest.fixture
def catalogues(catalogue: Any) -> list[Any]:
    """The catalogues of one worker; the last one is in force."""
    return [catalogue]


@pytest.fixture
def make_routes(catalogues: list[Any]) -> Callable[..., ModelRoutes]:
    def make(document: dict[str, Any], shared: Store | None = None) -> ModelRoutes:
        clock = FakeClock()
        route = compile_route("house", 3, read_document(document))
        book: Any = SimpleNamespace(find=lambda organization, project, name: route, teams_of=lambda *ids: frozenset())
        limits: Any = SimpleNamespace(any=False)
        shares: Any = SimpleNamespace(used=lambda idents: None)
        sessions = Sticky(clock, 2.0 * LONG_CACHE_S, shared)
        lifetimes = CacheLifetimes(clock, None, b"key")
        return ModelRoutes(book, limits, shares, sessions, lifetimes, lambda: catalogues[-1], b"key")

    return make


@pytest.fixture
def make_ask(make_routes: Callable[..., ModelRoutes]) -> Callable[..., Ask]:
    def make(document: dict[str, Any] = DOCUMENT) -> Ask:
        routes = make_routes(document)
        now = [1_700_000_000 * SECOND_US]

        def ask(
            text: str,
            pause_s: float = 1,
            session: str = "s",
            first: str = "Hello.",
            system: str = "You code.",
            **more: Any,
        ) -> RouteChoice:
            now[0] += int(pause_s * SECOND_US)
            messages = [
                Message("system", (Text(system, cache=more.get("mark")),)),
                Message("user", (Text(first, cache=more.get("mark")),)),
                Message("assistant", (Text("Yes."),)),
                Message("user", (Text(text),)),
            ]
            conversation = Conversation(tuple(messages), (FunctionTool("Bash"),))
            request = ChatRequest("house", Requirements(tools=True, prompt_bytes=400_000), lambda: conversation)
            headers = more.get("headers", {})
            context = RequestContext("0" * 32, CALLER, now[0], 0.0, 100.0, session=session, headers=headers)
            sent = routes.apply(context, request, more.get("remember", True))
            assert sent is not None and context.route is not None
            assert (sent.requested_model, *sent.options.models) == context.route.models
            return context.route

        return ask

    return make


@pytest.fixture
def ask(make_ask: Callable[..., Ask]) -> Ask:
    return make_ask()


def test_a_session_rises_at_once_and_stays_while_its_cache_lives(ask: Ask) -> None:
    assert ask(EASY).models == (SMALL,)
    risen = ask(HARD)
    assert risen.models == (LARGE,) and risen.lost_cache_nusd > 0
    kept = ask(EASY)
    assert (kept.models, kept.kept, kept.wanted) == ((LARGE, SMALL), True, SMALL)


def test_a_session_falls_after_a_pause_longer_than_the_cache(ask: Ask) -> None:
    ask(HARD)
    assert ask(EASY, pause_s=CACHE_S - 1).kept
    fallen = ask(EASY, pause_s=CACHE_S + 2 * STEP_S)
    assert fallen.models == (SMALL,) and not fallen.kept


def test_a_cache_of_an_hour_keeps_the_model_for_an_hour(ask: Ask) -> None:
    mark = CacheMark("1h")
    ask(HARD, mark=mark)
    assert ask(EASY, pause_s=LONG_CACHE_S - STEP_S, mark=mark).kept
    assert not ask(EASY, pause_s=LONG_CACHE_S + 2 * STEP_S, mark=mark).kept


def test_a_compaction_begins_a_conversation_that_may_fall(ask: Ask) -> None:
    ask(HARD)
    assert ask(EASY, first="This session continues from a summary: …").models == (SMALL,)


def test_a_conversation_that_keeps_its_first_message_may_fall_after_its_compaction(ask: Ask) -> None:
    ask(HARD)
    compaction = {"x-codex-turn-metadata": '{"request_kind":"compaction"}'}
    for _ in range(2):  # agents repeat a compaction that failed
        assert ask(EASY, headers=compaction).models[0] == LARGE
    assert ask(EASY).models == (SMALL,)
    assert ask(HARD).lost_cache_nusd > 0


def test_conversations_of_a_session_are_told_apart_by_the_name_that_the_agent_gives_them(ask: Ask) -> None:
    ask(HARD, headers={"thread-id": "main"})
    assert ask(EASY, headers={"thread-id": "helper"}).models == (SMALL,)
    assert ask(EASY, headers={"thread-id": "main"}).kept


def test_sub_agents_and_other_sessions_have_models_of_their_own(ask: Ask) -> None:
    ask(HARD)
    assert ask(EASY, system="You are an agent for Claude Code.").models == (SMALL,)
    assert ask(EASY, session="other").models == (SMALL,)


def test_titles_and_probes_neither_keep_nor_move_a_session(ask: Ask) -> None:
    ask(HARD)
    title = "Please write a 5-10 word title for this conversation."
    assert ask(title).models == (SMALL,) and ask(EASY).kept


def test_a_compaction_is_written_by_the_model_that_has_the_conversation_in_its_cache(ask: Ask) -> None:
    ask(HARD)
    summary = "Your task is to create a detailed summary of the conversation so far."
    assert ask(summary, pause_s=2 * CACHE_S).models[0] == LARGE


def test_an_explanation_changes_nothing(ask: Ask) -> None:
    ask(HARD, remember=False)
    assert not ask(EASY).kept


def test_a_route_may_choose_a_model_for_each_turn(make_ask: Callable[..., Ask]) -> None:
    ask = make_ask({**DOCUMENT, "keepSession": False})
    ask(HARD)
    assert ask(EASY).models == (SMALL,)


def test_the_reference_is_the_most_expensive_model_unless_the_route_names_one(make_ask: Callable[..., Ask]) -> None:
    assert make_ask()(EASY).reference == LARGE
    named = make_ask({**DOCUMENT, "reference": "openai/gpt-4.1"})(EASY)
    assert named.reference == "openai/gpt-4.1"
    assert {mapping.provider for mapping in named.references} == {"openai"}


def test_the_reference_follows_the_catalogue(catalogues: list[Any], make_routes: Callable[..., ModelRoutes]) -> None:
    routes = make_routes(DOCUMENT)
    context = RequestContext("0" * 32, CALLER, 0, 0.0, 100.0)
    for names, reference in (((SMALL, LARGE), LARGE), ((SMALL,), SMALL)):
        models = {name: catalogues[0].find_version(name) for name in names}
        catalogues.append(SimpleNamespace(find_version=models.get))
        routes.apply(context, ChatRequest("house", Requirements(), lambda: Conversation(())))
        assert context.route is not None and context.route.reference == reference


class SharedSessions:
    """The store that all workers share."""

    def __init__(self) -> None:
        self.values: dict[str, str] = {}

    def get(self, key: str) -> str | None:
        return self.values.get(key)

    def put(self, key: str, value: str, ttl_s: float) -> None:
        self.values[key] = value


def test_the_store_gets_no_digest_by_which_a_guessed_text_could_be_confirmed(
    make_routes: Callable[..., ModelRoutes],
) -> None:
    shared = SharedSessions()
    messages = (Message("user", (Text("Sell the house."),)),)
    conversation = Conversation(messages, (FunctionTool("Bash"),))
    request = ChatRequest("house", Requirements(tools=True), lambda: conversation)
    make_routes(DOCUMENT, shared).apply(RequestContext("0" * 32, CALLER, 0, 0.0, 100.0), request)
    guess = digest("\0\0Sell the house.")
    guessed = SharedSessions()
    Sticky(FakeClock(), 100.0, guessed).pin(CALLER.project_id, guess, "route house", SMALL)
    assert len(shared.values) == 1
    assert shared.values.keys() != guessed.values.keys()


@pytest.mark.parametrize(("document", "reads"), [({"otherwise": SMALL}, False), (DOCUMENT, True)])
def test_a_route_with_one_model_reads_no_conversation(
    make_routes: Callable[..., ModelRoutes], document: dict[str, Any], reads: bool
) -> None:
    asked = []

    def decode() -> Conversation:
        asked.append(True)
        return Conversation(())

    request = ChatRequest("house", Requirements(tools=True), decode)
    make_routes(document).apply(RequestContext("0" * 32, CALLER, 0, 0.0, 100.0, session="s"), request)
    assert bool(asked) is reads


def test_limits_of_the_key_its_owner_and_teams_are_known_for_a_second() -> None:
    clock = FakeClock()
    clock.freeze()
    spent = {"key_1": 40, "team_1": 90}
    asked: list[list[str]] = []

    def read(idents: list[str]) -> dict[str, Status]:
        asked.append(idents)
        limits = {ident: Limits(100 if ident in spent else None) for ident in idents}
        return {ident: Status(limit, spent.get(ident, 0), 0, None, None) for ident, limit in limits.items()}

    budgets: Any = SimpleNamespace(statuses=read)
    shares = CallerShares(budgets, clock)
    assert shares.used(["key_1"]) == 40 and shares.used(["mem_1"]) is None
    assert shares.used(["key_1", "mem_1", "team_1"]) == 90
    spent["key_1"] = 95
    assert shares.used(["key_1"]) == 40
    clock.advance(1.5)
    assert shares.used(["key_1"]) == 95
    assert asked == [["key_1"], ["mem_1"], ["team_1"], ["key_1"]]


def test_limits_are_those_seen_last_while_the_store_is_down() -> None:
    clock = FakeClock()
    clock.freeze()
    away = False

    def read(idents: list[str]) -> dict[str, Status]:
        if away:
            raise Unavailable()
        return {ident: Status(Limits(100), 95, 0, None, None) for ident in idents}

    budgets: Any = SimpleNamespace(statuses=read)
    shares = CallerShares(budgets, clock)
    assert shares.used(["key_1"]) == 95
    away = True
    clock.advance(1.5)
    assert shares.used(["key_1", "mem_1"]) == 95 and shares.used(["mem_1"]) is None


TEN_RULES = [
    {"when": {"keys": ["key_2"]}, "use": LARGE},
    {"when": {"projects": ["proj_2"]}, "use": LARGE},
    {"when": {"teams": ["team_2"]}, "use": LARGE},
    {"when": {"applications": ["codex*"]}, "use": LARGE},
    {"when": {"headers": {"x-tier": ["gold", "silver"]}}, "use": LARGE},
    {"when": {"body": {"metadata.tier": "gold"}}, "use": LARGE},
    {"when": {"images": True}, "use": LARGE},
    {"when": {"promptTokens": {"atLeast": 500_000}}, "use": LARGE},
    {"when": {"hours": {"days": ["sat"]}}, "use": LARGE},
    {"when": {"budget": {"atLeast": 80}}, "use": [LARGE, SMALL]},
]
MOST_BYTECODES = 900  # some 15 microseconds


@pytest.mark.parametrize("models", [1, 8])
def test_ten_rules_take_few_steps(make_routes: Callable[..., ModelRoutes], models: int) -> None:
    rules = [
        {**rule, "use": [LARGE, *(f"model-{number}-{place}" for place in range(1, models))]}
        for number, rule in enumerate(TEN_RULES)
    ]
    routes = make_routes({"rules": rules, "otherwise": SMALL})
    request = ChatRequest("house", Requirements(prompt_bytes=4_000), Conversation)
    context = RequestContext("0" * 32, CALLER, 1_700_000_000 * SECOND_US, 0.0, 100.0)
    routes.apply(context, request)
    steps = 0

    def count(frame: Any, event: str, argument: object) -> Any:
        nonlocal steps
        frame.f_trace_opcodes = True
        steps += event == "opcode"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        routes.apply(context, request)
    finally:
        sys.settrace(before)
    assert context.route is not None and context.route.rule == "otherwise"
    assert 0 < steps <= MOST_BYTECODES
