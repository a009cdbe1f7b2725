"""Routes compiled for requests: each condition is a function, and reads its part of a request at its first use."""

from collections.abc import Callable, Iterator, Mapping
from datetime import datetime
from functools import partial
from hashlib import blake2b
from typing import Any
from zoneinfo import ZoneInfo

from msgspec import Struct

from gateway.clock import SECOND_US
from gateway.neutral.chat import ChatRequest
from gateway.routes.route_document import (
    DAYS,
    DIFFICULTIES,
    Agent,
    BudgetShare,
    Conditions,
    Difficulty,
    Hours,
    Judge,
    Range,
    RouteDocument,
    Split,
    Target,
    Turn,
    models_of,
)
from gateway.routes.turns import TurnTexts, agent_of, difficulty_of, turn_of

BYTES_PER_TOKEN = 4  # of a prompt without a count of tokens
MINUTES = 60
ANY = "*"
STATED = "difficulty"  # the metadata by which an agent states how difficult a turn is


class RoutedRequest:
    """A request as the rules of a route see it. `judge` is asked for the difficulty of work, and returns none where it
    cannot tell. `teams_of` and `used_of` are called only by rules that need them: the
    ids of the caller's teams, and the percentage that is used of a limit ("": of the fullest one)."""

    __slots__ = ("_agent", "_difficulty", "_texts", "_turn", "at_us", "headers", "judge", "key_id", "metadata",
                 "project_id", "request", "source", "teams_of", "used_of")  # fmt: skip

    def __init__(
        self,
        request: ChatRequest,
        *,
        key_id: str = "",
        project_id: str = "",
        source: str = "",
        at_us: int = 0,
        headers: Mapping[str, str] = {},
        metadata: Mapping[str, str] = {},
        teams_of: Callable[[], frozenset[str]] = frozenset,
        used_of: Callable[[str], int | None] = lambda limit: None,
    ) -> None:
        self.request = request
        self.key_id = key_id
        self.project_id = project_id
        self.source = source
        self.at_us = at_us
        self.headers = headers
        self.metadata = metadata
        self.teams_of = teams_of
        self.used_of = used_of
        self.judge: Callable[[RoutedRequest], Difficulty | None] | None = None
        self._texts: TurnTexts | None = None
        self._turn: Turn | None = None
        self._agent: Agent | None = None
        self._difficulty: Difficulty | None = None

    @property
    def texts(self) -> TurnTexts:
        texts = self._texts
        if texts is None:
            texts = self._texts = TurnTexts(self.request)
        return texts

    @property
    def turn(self) -> Turn:
        turn = self._turn
        if turn is None:
            turn = self._turn = turn_of(self.request, self.texts, self.headers)
        return turn

    @property
    def agent(self) -> Agent:
        agent = self._agent
        if agent is None:
            agent = self._agent = agent_of(self.headers, self.texts)
        return agent

    @property
    def difficulty(self) -> Difficulty:
        found = self._difficulty
        if found is None:
            found = self._difficulty = self._judge_difficulty()
        return found

    def _judge_difficulty(self) -> Difficulty:
        """Return the difficulty that the agent states, that of the model that judges, or that of the gateway."""
        stated = self.metadata.get(STATED, "")
        own = difficulty_of(self.request, self.texts, self.turn, stated, self.agent)
        if self.judge is None or self.turn != "work" or stated in DIFFICULTIES:
            return own
        judged = self.judge(self)
        if judged is None:
            return own
        # Failures since the text was judged raise the difficulty.
        return max(judged, own, key=DIFFICULTIES.index) if self.texts.failures else judged

    @property
    def known_difficulty(self) -> str:
        """The difficulty where a rule has read it, otherwise ""."""
        return self._difficulty or ""

    def body_value(self, path: tuple[str, ...]) -> Any:
        """Return a member of the caller's body, as JSON has it; None without one. Members that are not passed on have
        the values that the surface read."""
        request = self.request
        first = path[0]
        if first == "metadata" and len(path) == 2:
            return self.metadata.get(path[1].lower())
        if first in READ_MEMBERS and len(path) == 1:
            return READ_MEMBERS[first](request)
        value: Any = request.native and request.native.body
        for name in path:
            value = value.get(name) if isinstance(value, dict) else getattr(value, name, None)
        return value


READ_MEMBERS: dict[str, Callable[[ChatRequest], Any]] = {
    "model": lambda request: request.requested_model,
    "stream": lambda request: request.requirements.stream,
    "user": lambda request: request.user or None,
    "n": lambda request: request.requirements.n,
    "max_tokens": lambda request: request.requirements.max_tokens,
    "reasoning_effort": lambda request: request.requirements.effort or None,
    "service_tier": lambda request: request.options.service_tier or None,
}
Test = Callable[[RoutedRequest], bool]


class CompiledRule(Struct, frozen=True):
    """The tests of a rule, and its target with the models in their order. `total` is the sum of a split's weights."""

    name: str
    tests: tuple[Test, ...]
    models: tuple[str, ...]
    weights: tuple[int, ...] = ()
    total: int = 0

    def pick(self, identity: str) -> tuple[str, ...]:
        """Return the models to try in order: of a split the one of `identity`, which is always the same."""
        if not self.total:
            return self.models
        digest = blake2b(identity.encode(errors="replace"), digest_size=8).digest()
        place = int.from_bytes(digest, "big") % self.total
        for model, weight in zip(self.models, self.weights, strict=True):
            place -= weight
            if place < 0:
                return (model,)
        return self.models[-1:]


class CompiledRoute(Struct, frozen=True, eq=False, weakref=True):
    """A version of a route as requests use it. `project_id` "" is a route of the whole organization. `last_resort` is
    the model that is tried if none of those that a rule names can serve."""

    name: str
    version: int
    rules: tuple[CompiledRule, ...]
    otherwise: CompiledRule
    reference: str = ""
    keep_session: bool = True
    project_id: str = ""
    models: tuple[str, ...] = ()
    last_resort: str = ""
    judge: Judge | None = None

    def choose(self, request: RoutedRequest) -> CompiledRule:
        """Return the first rule with all of its conditions fulfilled."""
        for rule in self.rules:
            for test in rule.tests:
                if not test(request):
                    break
            else:
                return rule
        return self.otherwise


def compile_route(
    name: str, version: int, document: RouteDocument, project_id: str = "", last_resort: str = ""
) -> CompiledRoute:
    """Return a route for requests. The conversation is read last."""
    rules = tuple(
        _compile_rule(rule.name or f"rule {place}", rule.use, _compile(rule.when))
        for place, rule in enumerate(document.rules, start=1)
    )
    return CompiledRoute(
        name,
        version,
        rules,
        _compile_rule("otherwise", document.otherwise, ()),
        document.reference,
        document.keep_session,
        project_id,
        tuple(document.models()),
        last_resort,
        document.judge if isinstance(document.judge, Judge) else None,
    )


def _compile_rule(name: str, target: Target, tests: tuple[Test, ...]) -> CompiledRule:
    models = models_of(target)
    if isinstance(target, Split):
        weights = tuple(target.split.values())
        return CompiledRule(name, tests, models, weights, sum(weights))
    return CompiledRule(name, tests, models)


def _compile(when: Conditions) -> tuple[Test, ...]:
    tests = [*_compile_caller(when), *_compile_request(when), *_compile_conversation(when)]
    if isinstance(when.unless, Conditions):
        inner = _compile(when.unless)
        tests.append(lambda request: not all(test(request) for test in inner))
    return tuple(tests)


def _compile_caller(when: Conditions) -> Iterator[Test]:
    """Yield the tests of who calls."""
    for name, idents in (("key_id", when.keys), ("project_id", when.projects)):
        if idents:
            yield partial(_is_in, name, frozenset(idents))
    if when.applications:
        matches = _matcher(when.applications)
        yield lambda request: matches(request.source)
    if when.teams:
        teams = frozenset(when.teams)
        yield lambda request: not teams.isdisjoint(request.teams_of())
    if isinstance(when.budget, BudgetShare):
        yield partial(_has_used, when.budget.limit, when.budget.at_least, when.budget.below)


def _compile_request(when: Conditions) -> Iterator[Test]:
    """Yield the tests of headers and body, besides the conversation."""
    for header, accepted in when.headers.items():
        yield partial(_has_header, header, _matcher((accepted,) if isinstance(accepted, str) else accepted))
    if isinstance(when.images, bool):
        yield partial(_has_images, when.images)
    if isinstance(when.prompt_tokens, Range):
        yield partial(_has_size, when.prompt_tokens.at_least or 0, when.prompt_tokens.below)
    for path, values in when.body.items():
        yield partial(_has_member, tuple(path.split(".")), values if isinstance(values, tuple) else (values,))
    if isinstance(when.hours, Hours):
        yield _compile_hours(when.hours)


def _compile_conversation(when: Conditions) -> list[Test]:
    """Return the tests that read the conversation."""
    tests: list[Test] = []
    if isinstance(when.tools, bool):
        tests.append(partial(_offers_tools, when.tools))
    elif isinstance(when.tools, tuple):
        matches = _matcher(when.tools)
        tests.append(lambda request: any(map(matches, request.texts.tools)))
    if when.turns:
        turns = frozenset(when.turns)
        tests.append(lambda request: request.turn in turns)
    if isinstance(when.agent, str):
        agent = when.agent
        tests.append(lambda request: request.agent == agent)
    if when.difficulty:
        levels = frozenset(when.difficulty)
        tests.append(lambda request: request.difficulty in levels)
    return tests


def _matcher(patterns: tuple[str, ...]) -> Callable[[str], bool]:
    """Return whether a text is one of the patterns, in which * stands for any characters."""
    plain = frozenset(pattern for pattern in patterns if ANY not in pattern)
    pieces = [tuple(pattern.split(ANY)) for pattern in patterns if ANY in pattern]
    if not pieces:
        return plain.__contains__
    return lambda text: text in plain or any(_fits(parts, text) for parts in pieces)


def _fits(parts: tuple[str, ...], text: str) -> bool:
    """Return whether a text has the pieces of a pattern in their order, the first and the last one at its ends."""
    first, *middle, last = parts
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    place, end = len(first), len(text) - len(last)
    for piece in middle:
        found = text.find(piece, place, end)
        if found < 0:
            return False
        place = found + len(piece)
    return True


def _is_in(name: str, values: frozenset[str], request: RoutedRequest) -> bool:
    return getattr(request, name) in values


def _has_header(name: str, matches: Callable[[str], bool], request: RoutedRequest) -> bool:
    value = request.headers.get(name)
    return value is not None and matches(value)


def _has_images(wanted: bool, request: RoutedRequest) -> bool:
    needs = request.request.requirements
    return (needs.vision or needs.earlier_images) is wanted


def _offers_tools(wanted: bool, request: RoutedRequest) -> bool:
    return request.request.requirements.tools is wanted


def _has_size(at_least: int, below: int | None, request: RoutedRequest) -> bool:
    needs = request.request.requirements
    tokens = needs.prompt_bytes // BYTES_PER_TOKEN + needs.likely_media_tokens
    return tokens >= at_least and (below is None or tokens < below)


def _has_member(path: tuple[str, ...], values: tuple[Any, ...], request: RoutedRequest) -> bool:
    found = request.body_value(path)
    return any(found == value and type(found) is type(value) for value in values)


def _has_used(limit: str, at_least: int, below: int | None, request: RoutedRequest) -> bool:
    used = request.used_of(limit)
    return used is not None and used >= at_least and (below is None or used < below)


def _compile_hours(hours: Hours) -> Test:
    zone = ZoneInfo(hours.zone)
    begin, end = _minutes(hours.begin), _minutes(hours.end)
    days = frozenset(DAYS.index(day) for day in hours.days or DAYS)

    def test(request: RoutedRequest) -> bool:
        now = datetime.fromtimestamp(request.at_us / SECOND_US, zone)
        minute = now.hour * MINUTES + now.minute
        if begin < end:
            return begin <= minute < end and now.weekday() in days
        # Past midnight, the hours belong to the day on which they began.
        if minute >= begin:
            return now.weekday() in days
        return minute < end and (now.weekday() - 1) % 7 in days

    return test


def _minutes(text: str) -> int:
    hour, _, minute = text.partition(":")
    return int(hour) * MINUTES + int(minute)
