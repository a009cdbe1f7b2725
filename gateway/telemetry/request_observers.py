"""Finished requests and their observers: every request is counted here and reported to the registered observers."""

import re
from collections.abc import Callable, Iterator, Mapping
from typing import Protocol

from msgspec import Struct

from gateway.billing.context import Attempt, RequestContext
from gateway.callers.authentication import Caller
from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.metering.counters import Count, Counters

# A finished request, as every observer receives it.

# The paths that load balancers and orchestrators request to check the gateway.

LIVENESS = ("/livez", "/healthz", "/health/liveliness")
READINESS = ("/readyz", "/health/readiness")
PROBE_PATHS = frozenset((*LIVENESS, *READINESS))


TRACEPARENT = re.compile(r"00-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})")
NO_TRACE = "0" * 32
NO_SPAN = "0" * 16
UNMATCHED = "unmatched"  # the operation of a request that matches no operation


def parse_traceparent(header: str) -> re.Match[str] | None:
    """Return trace id, span id and flags of a `traceparent` header; None if it is invalid (W3C Trace Context)."""
    match = TRACEPARENT.fullmatch(header.strip())
    if match is None or match[1] == NO_TRACE or match[2] == NO_SPAN:
        return None
    return match


class FinishedRequest(Struct, frozen=True, eq=False):
    """`operation` is the operation's name in the table ("POST /v1/chat/completions"), `status` the HTTP status sent,
    `at_us` the time when it finished, `took_s` its duration, `peer` the caller's address according to trusted proxies,
    `shown_id` the request id that the caller saw.

    `error` is why it was refused or failed, or what interrupted its response; None on success.
    `caller` is None without authentication.
    `context` None: it never reached the engine. `replayed`: an earlier answer was returned again.
    `paid`: it asked a model for something, with `body`. `traceparent`: the header of that name.
    """

    operation: str
    status: int
    at_us: int
    took_s: float
    request_id: str
    shown_id: str
    peer: str = ""
    error: GatewayError | None = None
    caller: Caller | None = None
    context: RequestContext | None = None
    replayed: bool = False
    paid: bool = False
    body: bytes = b""
    traceparent: str = ""

    @property
    def attempts(self) -> list[Attempt]:
        """The upstream calls in order; empty when the request was refused before any."""
        outcome = self.context.outcome if self.context is not None else None
        if outcome is not None:
            return outcome.attempts
        return []

    @property
    def trace_id(self) -> str | None:
        """The id of the caller's trace, None without one."""
        match = self.traceparent and parse_traceparent(self.traceparent)
        if match:
            return match[1]
        return None

    @property
    def refused(self) -> bool:
        """Whether the request failed before any upstream call."""
        return self.error is not None and not self.attempts


Observer = Callable[[FinishedRequest], None]

# Buckets in seconds for the gateway's own share of a request, which is far below the provider's.
OWN_BUCKETS = (0.0005, 0.001, 0.002, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0)


class Arrival(Protocol):
    """The attributes of an incoming request that are used here (surfaces.http.Inbound)."""

    request_id: str
    peer: str
    body: bytes
    headers: Mapping[str, str]
    context: RequestContext | None
    caller: Caller | None

    @property
    def shown_id(self) -> str: ...


class RequestObservers:
    """The registry of a worker. Observers run in the request's greenlet, once per request; they must neither wait nor
    raise."""

    def __init__(self, counters: Counters, clock: Clock) -> None:
        self.counters = counters
        self.clock = clock
        # OperationReporters share these lists, so that each needs one lookup.
        self.observers: list[Observer] = []
        self.failure_observers: list[Observer] = []
        self.marked_observers: list[Observer] = []
        self._operations: dict[str, OperationReporter] = {}

    def observe(self, observer: Observer) -> None:
        """Call `observer` for every request."""
        self.observers.append(observer)

    def observe_failures(self, observer: Observer) -> None:
        """Call `observer` for requests that were refused or failed only."""
        self.failure_observers.append(observer)

    def observe_marked(self, observer: Observer) -> None:
        """Call `observer` for requests with metadata or with a replayed answer only."""
        self.marked_observers.append(observer)

    def of(self, operation: str, paid: bool = False) -> "OperationReporter":
        """Return the reporter for `operation`; `paid` operations call models."""
        reporter = self._operations.get(operation)
        if reporter is None:
            reporter = self._operations[operation] = OperationReporter(self, operation, paid)
        return reporter

    def refused(self, error: GatewayError, request_id: str, peer: str, operation: str = UNMATCHED) -> None:
        """Report a request that reached no operation: an unknown path, another host, an unread body."""
        self.of(operation).count(error.status)
        self.publish(
            FinishedRequest(operation, error.status, self.clock.now_us(), 0.0, request_id, request_id, peer, error)
        )

    def publish(self, finished: FinishedRequest) -> None:
        """Count the error, and call the observers."""
        if finished.error is not None:
            self.counters.add("errors_total", (finished.operation, finished.error.kind))
            for observer in self.failure_observers:
                observer(finished)
        if finished.replayed or (finished.context is not None and finished.context.metadata):
            for observer in self.marked_observers:
                observer(finished)
        for observer in self.observers:
            observer(finished)


class OperationReporter:
    """Reports finished requests of one operation; called once for each."""

    __slots__ = ("_answers", "_now", "_now_us", "_observers", "_operation", "_own", "_paid", "_requests", "_took")

    def __init__(self, requests: RequestObservers, operation: str, paid: bool = False) -> None:
        self._requests = requests
        self._operation = operation
        self._paid = paid
        self._answers: dict[int, Count] = {}
        self._took = requests.counters.durations("request_seconds", (operation,)).observe
        self._own = requests.counters.durations("overhead_seconds", (operation,), OWN_BUCKETS).observe
        self._now = requests.clock.monotonic
        self._now_us = requests.clock.now_us
        self._observers = requests.observers

    def __call__(
        self,
        arrival: Arrival,
        status: int,
        started: float,
        error: GatewayError | None = None,
        replayed: bool = False,
    ) -> None:
        """Report a request; `started` is in monotonic seconds."""
        counted = self._answers.get(status)
        if counted is None:
            counted = self.count(status, 0)
        counted.value += 1
        took_s = self._now() - started
        context = arrival.context
        self._took(took_s)
        if context is not None and context.own_s:
            self._own(context.own_s)
        if error is not None or replayed or (context is not None and context.metadata):
            self._requests.publish(self._finished(arrival, status, took_s, error, replayed))
        elif self._observers:
            finished = self._finished(arrival, status, took_s, None, False)
            for observer in self._observers:
                observer(finished)

    def of_stream(self, arrival: Arrival, status: int, started: float) -> None:
        """Report a streamed response when it ends, since it may fail after it began."""
        context = arrival.context
        outcome = context.outcome if context is not None else None
        if context is None or outcome is None or not outcome.attempts:
            self(arrival, status, started)
            return
        now = self._now()
        context.own_s = now - context.started
        for attempt in outcome.attempts:
            # An attempt of a caller who left may still run.
            context.own_s -= (attempt.ended or now) - attempt.started
        self(arrival, status, started, outcome.attempts[-1].error)

    def count(self, status: int, amount: int = 1) -> Count:
        """Count a response by its status."""
        counted = self._answers[status] = self._requests.counters.count(
            "requests_total", (self._operation, str(status))
        )
        counted.value += amount
        return counted

    def _finished(
        self, arrival: Arrival, status: int, took_s: float, error: GatewayError | None, replayed: bool
    ) -> FinishedRequest:
        context = arrival.context
        request_id = arrival.request_id
        return FinishedRequest(
            self._operation,
            status,
            self._now_us(),
            took_s,
            request_id,
            arrival.shown_id if context is None else context.label or request_id,
            arrival.peer,
            error,
            arrival.caller if context is None else context.caller,
            context,
            replayed,
            self._paid,
            arrival.body,
            arrival.headers.get("traceparent", ""),
        )


class ClosingBody(Iterator[bytes]):
    """A streamed body that calls a callback when it is closed. Iteration uses the body's own iterator, so chunks cost
    nothing."""

    def __init__(self, body: Iterator[bytes], end: Callable[[], None]) -> None:
        self._body = body
        self._end = end

    def __iter__(self) -> Iterator[bytes]:
        return iter(self._body)

    def __next__(self) -> bytes:
        return next(self._body)

    def close(self) -> None:
        """Call the callback once, however much of the body was read."""
        end = self._end
        self._end = _nothing
        try:
            close = getattr(self._body, "close", None)
            if close is not None:
                close()
        finally:
            end()


def _nothing() -> None:
    return
