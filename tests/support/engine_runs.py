"""Runs of the engine with scripted providers and a settlement that records its calls."""

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

from gateway import ids
from gateway.billing.context import Attempt, Outcome, RequestContext
from gateway.callers.authentication import Caller
from gateway.catalogue.entries import Mapping, Provider
from gateway.clock import Clock
from gateway.configuration.settings import Timeouts
from gateway.engine.attempts import Walk
from gateway.engine.run import Run, RunSettings
from gateway.errors import GatewayError
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.events import Batch
from gateway.neutral.request import Request, Requirements
from gateway.providers.protocol import Credential, Target
from gateway.runtime.disconnects import ReadingOn

DEADLINE_S = 60.0
TIMEOUTS = Timeouts(30.0, 60.0, 60.0, 5.0, 20.0, 1.0, first_byte_s=3.0, first_byte_reasoning_s=30.0)


def target_at(
    name: str,
    bounded: bool = False,
    cancellation: bool = True,
    reasoning: bool = False,
    plain_cancellation: bool = False,
) -> Target:
    """Return a target of the model `m` at the provider of that name."""
    mapping = Mapping(name, "m", "m", reasoning=reasoning)
    provider = Provider(name, name.title(), "openai", cancellation=cancellation, plain_cancellation=plain_cancellation)
    return Target(provider, mapping, Credential("", "platform", name, bounded=bounded), "")


class Books:
    """Replacement of the settlement, the planner and the decisions that records its calls in order.

    `broke` maps identities of provider keys without budget to the error; `refuse` is raised when an answer is settled;
    `short` is the error of a budget after a billed failure; `shut` are providers that accept no requests.
    """

    marked: frozenset[str] = frozenset()

    def __init__(self) -> None:
        self.calls: list[tuple[str, Any]] = []
        self.output_cap: int | None = None
        self.checked_length = 1 << 40
        self.terms = SimpleNamespace(request="r", billing_identity=SimpleNamespace(project="p"))
        self.broke: dict[str, GatewayError] = {}
        self.shut: set[str] = set()
        self.refuse: GatewayError | None = None
        self.short: GatewayError | None = None

    def call_names(self) -> list[str]:
        return [name for name, _ in self.calls]

    # The settlement.

    def reserves_call(self, target: Target) -> bool:
        return target.credential.bounded

    def begin(self, number: int, target: Target, bound: Any = None, *, patient: bool = True) -> None:
        if target.credential.ident in self.broke:
            raise self.broke[target.credential.ident]
        self.calls.append(("begin", target.provider.id))

    def settle(self, attempt: Attempt) -> None:
        self.calls.append(("settle", attempt))
        if self.refuse is not None:
            raise self.refuse

    def failed(self, attempt: Attempt, *more: Any) -> GatewayError | None:
        self.calls.append(("failed", attempt))
        return self.short

    def __getattr__(self, name: str) -> Callable[..., None]:
        """Record every other call: abandon, unused, keep, close, grow …"""
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *given, **named: self.calls.append((name, given[0] if given else None))


class Planned(Books):
    """Replacement of the planner that records its calls in the list of the books.

    `timeout_s`, `first_byte_s`, `is_hanging` and `is_unreachable` return values and are not recorded.
    """

    def __init__(self, books: Books) -> None:
        super().__init__()
        self.calls, self._books = books.calls, books
        self.hanging = False

    def timeout_s(self, target: Target, request: Request, first_byte_s: float) -> float:
        return first_byte_s

    def first_byte_s(self, target: Target, request: Request, first_byte_s: float) -> float:
        return first_byte_s

    def is_hanging(self, target: Target, request_id: str) -> bool:
        return self.hanging

    def is_unreachable(self, target: Target) -> bool:
        return target.provider.id in self._books.shut

    def failed(self, attempt: Attempt, *more: Any) -> None:
        self.calls.append(("planner failed", attempt.target.provider.id))


class Answering:
    """A scripted stream in progress; `closed` after its call was ended."""

    is_sent = True

    def __init__(self, batches: Iterator[Batch]) -> None:
        self.batches, self.closed, self.head_at = batches, False, 0.0

    def close(self) -> None:
        self.closed = True


class Providers:
    """Scripted providers by name. An error is raised, a function is called, and any other value is the result or the
    batches."""

    marked: frozenset[str] = frozenset()

    def __init__(self, **script: Any) -> None:
        self.script, self.answering = script, []

    def send(
        self, request: Request, target: Target, until: float, tap: Any, should_abandon: Callable[[], bool] | None = None
    ) -> Any:
        said = self.script[target.provider.id]
        if isinstance(said, Exception):
            raise said
        return said() if callable(said) else said

    def stream(self, request: Request, target: Target, deadline: float, tap: Any) -> Answering:
        said = self.script[target.provider.id]
        if isinstance(said, Exception):
            raise said
        self.answering.append(Answering(iter(said() if callable(said) else said)))
        return self.answering[-1]


def make_context() -> RequestContext:
    key, organization, project, user, member = map(ids.new, ("key", "org", "proj", "user", "member"))
    caller = Caller(key, "user", "k", organization, project, user, member, "owner", "credits")
    return RequestContext("0" * 32, caller, 0, 0.0, 0.0)


def make_run(
    clock: Clock, providers: Providers, *targets: Target | tuple[Target, ...], drain_s: float = 0.0, **more: Any
) -> Run:
    """Return a run of a request at these targets, best first (several keys of a target as a tuple). Its `settlement` is
    Books."""
    groups = tuple(target if isinstance(target, tuple) else (target,) for target in targets)
    books = Books()
    needs = Requirements(max_tokens=100, prompt_bytes=10, messages=1)
    request = EmbeddingsRequest("m", needs, lambda: EmbeddingsInput(("Hello",)))
    plan = SimpleNamespace(
        adapts=False,
        remembered=True,
        cooldowns=lambda target: target.provider.id in books.shut,
        limit=lambda request, mapping: None,
        plan="plan",
    )

    def keep(*given: Any) -> None:
        books.calls.append(("decision", given[-1]))

    fields: dict[str, Any] = {
        "context": make_context(),
        "request": request,
        "outcome": Outcome(request, None, attempts=[], warnings=[]),
        "route_plan": plan,
        "walk": Walk(groups, maximum=len(groups), refusals=[]),
        "settlement": books,
        "planner": Planned(books),
        "upstreams": providers,
        "clock": clock,
        "deadline": clock.monotonic() + DEADLINE_S,
        "settings": RunSettings(TIMEOUTS, drain_s, 4096),
        "decisions": SimpleNamespace(keep=keep, keep_refused=keep),
        "reading_on": ReadingOn(),
    }
    return Run(**(fields | more))
