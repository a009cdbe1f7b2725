"""Rate limiting: requests and tokens per minute and concurrent requests, per organization, project, key, model and
operation; off by default.

Counters live in each worker. With redis they are exchanged in the background, and sooner when a worker has admitted an
eighth of its share of what was left at the last exchange, so that a burst over all workers passes a limit by less than
an eighth, or by less than one request of each worker. Without redis each worker admits its share (limit ÷ live workers,
at least one).
"""

import math
import threading
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import NamedTuple

from msgspec import Struct

from gateway.clock import SECOND_US, Clock
from gateway.errors import RateLimited, Unavailable
from gateway.limits.rate_rules import CONCURRENCY, NAMES, OPERATION, REQUESTS, TOKENS, RateLimits, Rule
from gateway.store.redis import Redis, rate_window

WINDOW_S = 60
# How often a worker exchanges its counts while it admits its share. Admissions of the others since their last
# exchange are unknown to it, so a burst passes a limit by up to this part of it.
EXCHANGES = 8
# Above this number, windows of subjects that were idle for two periods are dropped.
CACHE_SIZE = 50_000


class RateLimitStatus(NamedTuple):
    """The remainder of a rate limit after admission. After `reset_s` seconds everything is available again."""

    kind: str
    amount: int
    remaining: int
    reset_s: int


class _Window:
    """A sliding one-minute window: the count of the current minute, and the part of the previous one within the last 60
    seconds.

    `unsent` was not sent to the other workers yet; `others` is what the other workers counted in this minute.
    """

    __slots__ = ("before", "count", "others", "start", "unsent")

    def __init__(self, start: int) -> None:
        self.start = start
        self.count = 0
        self.before = 0
        self.unsent = 0
        self.others = 0

    def used(self, now_s: float) -> float:
        start = int(now_s) // WINDOW_S * WINDOW_S
        if start != self.start:
            whole = self.count + self.others
            if start == self.start + WINDOW_S:
                self.before = whole
            else:
                self.before = 0
            self.start = start
            self.count = 0
            self.others = 0
            self.unsent = 0
        return self.count + self.others + self.before * (1 - (now_s - start) / WINDOW_S)

    def add(self, amount: int) -> None:
        self.count += amount
        self.unsent += amount


class Slot(Struct, eq=False):
    """An admitted request. Call `release` on every exit path, with the tokens that the request used; it is idempotent.
    `leave` frees the concurrency slot earlier."""

    statuses: tuple[RateLimitStatus, ...] = ()
    free: Callable[[], object] | None = None
    count: Callable[[int], object] | None = None

    def leave(self) -> None:
        free = self.free
        self.free = None
        if free is not None:
            free()

    def release(self, tokens: int = 0) -> None:
        self.leave()
        count = self.count
        self.count = None
        if count is not None and tokens:
            count(tokens)


class RateLimiter:
    """Admits requests by rate. `RateLimiter()` limits nothing. `exchange` must run about every second to count across
    workers.

    `limited(version)` returns whether any limit exists under a known control version, so that `enter` must be called.
    """

    def __init__(
        self, limits: RateLimits | None = None, clock: Clock | None = None, redis: Redis | None = None
    ) -> None:
        self._limits = limits
        self._clock = clock or Clock()
        self._redis = redis
        # Called for every request, so it is bound once.
        self.limited: Callable[[int], bool] = _limits_nothing if limits is None else limits.active_at
        self._windows: dict[tuple[str, str, str], _Window] = {}
        self._running: dict[tuple[str, str], int] = {}
        # The divisor of limits: for windows 1 while counts are exchanged, for slots always the number of live workers.
        self._share = self._workers = 1
        self._counted = False  # whether both are current: they are not updated while nothing is limited
        self._exchanging = threading.Lock()

    def enter(
        self,
        organization: str,
        project: str,
        key: str,
        model: str,
        tokens: int,
        operation: str = "chat",
        canonical: str = "",
        others: tuple[str, ...] = (),
        *,
        counted: bool = True,
    ) -> Slot:
        """Count a request in every window that applies to it, or in none (unless `counted`, only check them).

        `model` is the model as the caller wrote it, `canonical` its id: limits of a model count it under any name.
        `others` are further models that may serve it.

        RateLimited names the limit, and when to retry. `tokens` is the estimated prompt with its media; the true
        count replaces it when the slot is released.
        """
        if self._limits is None:
            return Slot()
        subjects = (
            ("organization", organization),
            ("project", project),
            ("key", key),
            ("model", model),
            ("model", canonical if canonical != model else ""),
            (OPERATION, f"{organization}/{operation}"),
            *[("model", other) for other in others],
        )
        rules = self._limits.rules(subjects)
        if not rules:
            return Slot()
        if not self._counted:
            self._count_workers()
        now = self._clock.now_us() / SECOND_US
        if self._redis is not None and self._share < self._workers:
            self._refresh(rules, tokens, now, self._redis)
        rate_limits = tuple(self._check(rule, tokens, now) for rule in rules)
        if not counted:
            return Slot(rate_limits)
        for rule in rules:
            self._count(rule, tokens, now)
        return Slot(rate_limits, partial(self._free, rules), partial(self._correct, rules, tokens))

    def exchange(self) -> None:
        """Exchange counts with the other workers. Never raises for redis: without it the worker uses its share."""
        if self._limits is None:
            return
        try:
            if not self._limits.active():
                self._counted = False
                return
            self._workers = self._limits.worker_count()
        except Unavailable:
            return  # the database is down: keep the last values
        if self._redis is None:
            self._share = self._workers
        else:
            with self._exchanging:
                self._exchange(self._redis, list(self._windows.items()))
        self._counted = True
        self._forget()

    def running_of(self, scope: str, subject: str) -> int | None:
        """Return the slots of one subject in use; None when other workers may hold some too."""
        if self._workers == 1:
            return self._running.get((scope, subject), 0)
        return None

    def running(self) -> int:
        """Return the slots in use, summed over all limits."""
        return sum(self._running.values())

    def _count_workers(self) -> None:
        """Count live workers before the first request under a new limit. Until the next exchange, each worker would
        otherwise admit the full limit."""
        if self._limits is None:
            return
        try:
            self._workers = self._limits.worker_count()
        except Unavailable:
            return
        if self._redis is not None:
            self._share = 1
        else:
            self._share = self._workers
        self._counted = True

    def _check(self, rule: Rule, guess: int, now: float) -> RateLimitStatus:
        share = self._workers if rule.kind == CONCURRENCY else self._share
        amount = -(-rule.amount // share)
        if rule.kind == CONCURRENCY:
            used: float = self._running.get((rule.scope, rule.subject), 0)
            needed = 1
            reset = 1
        else:
            window = self._window(rule, now)
            used = window.used(now)
            needed = 1 if rule.kind == REQUESTS else guess
            reset = math.ceil(window.start + WINDOW_S - now)
        # A prompt larger than a full minute's tokens is admitted when nothing else is counted.
        if amount == 0 or used + min(needed, amount) > amount:
            raise _refusal(rule, reset, now)
        return RateLimitStatus(rule.kind, rule.amount, max(0, int((amount - used - needed) * share)), reset)

    def _count(self, rule: Rule, guess: int, now: float) -> None:
        if rule.kind == CONCURRENCY:
            place = (rule.scope, rule.subject)
            self._running[place] = self._running.get(place, 0) + 1
        else:
            self._window(rule, now).add(1 if rule.kind == REQUESTS else guess)

    def _free(self, rules: Sequence[Rule]) -> None:
        """Free the concurrency slots of a request."""
        for rule in rules:
            place = (rule.scope, rule.subject)
            if rule.kind == CONCURRENCY:
                self._running[place] -= 1
                if not self._running[place]:
                    del self._running[place]

    def _correct(self, rules: Sequence[Rule], guess: int, tokens: int) -> None:
        """Replace the estimated tokens of a request with those that it used."""
        now = self._clock.now_us() / SECOND_US
        for rule in rules:
            if rule.kind == TOKENS:
                window = self._window(rule, now)
                window.used(now)
                window.add(max(tokens - guess, -window.count))

    def _window(self, rule: Rule, now: float) -> _Window:
        place = (rule.scope, rule.subject, rule.kind)
        window = self._windows.get(place)
        if window is None:
            window = self._windows[place] = _Window(int(now) // WINDOW_S * WINDOW_S)
        return window

    def _refresh(self, rules: Sequence[Rule], tokens: int, now: float, redis: Redis) -> None:
        """Exchange the counts of windows in which this worker has admitted a part of its share of what was left."""
        if not any(self._is_stale(rule, tokens, now) for rule in rules):
            return
        with self._exchanging:
            places = [(rule.scope, rule.subject, rule.kind) for rule in rules if self._is_stale(rule, tokens, now)]
            if places:  # unless another request has exchanged them meanwhile
                self._exchange(redis, [(place, self._windows[place]) for place in places])

    def _is_stale(self, rule: Rule, tokens: int, now: float) -> bool:
        if rule.kind == CONCURRENCY:
            return False
        window = self._window(rule, now)
        left = rule.amount - window.used(now)
        needed = 1 if rule.kind == REQUESTS else tokens
        part = (left + window.unsent) / (self._workers * EXCHANGES)
        return window.unsent > 0 and left > 0 and window.unsent + needed > part

    def _exchange(self, redis: Redis, windows: Iterable[tuple[tuple[str, str, str], _Window]]) -> None:
        """Exchange counts. Without an answer of redis this worker admits its share until the next exchange."""
        now = self._clock.now_us() / SECOND_US
        sent: dict[str, tuple[_Window, int]] = {}
        for (scope, subject, kind), window in windows:
            window.used(now)
            sent[rate_window(f"{scope}:{kind}", subject, window.start)] = (window, window.unsent)
        try:
            totals = redis.add({name: unsent for name, (_, unsent) in sent.items()}, 2 * WINDOW_S)
        except Unavailable:
            self._share = self._workers
            return
        self._share = 1
        for name, (window, unsent) in sent.items():
            if name.endswith(f":{window.start}"):
                window.unsent -= unsent
                window.others = max(0, totals[name] - (window.count - window.unsent))

    def _forget(self) -> None:
        if len(self._windows) <= CACHE_SIZE:
            return
        old = self._clock.now_us() / SECOND_US - 2 * WINDOW_S
        self._windows = {place: window for place, window in self._windows.items() if window.start > old}


def _limits_nothing(version: int) -> bool:
    return False


def tightest_of(rate_limits: Sequence[RateLimitStatus]) -> dict[str, RateLimitStatus]:
    """Return by kind the limit with the least remaining."""
    tightest: dict[str, RateLimitStatus] = {}
    for status in rate_limits:
        known = tightest.get(status.kind)
        if known is None or status.remaining < known.remaining:
            tightest[status.kind] = status
    return tightest


def headers(rate_limits: Sequence[RateLimitStatus], now_us: int) -> list[tuple[str, str]]:
    """Return the rate-limit headers of a response: the tightest limit of each kind; [] without limits.

    `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers; the other headers are those of the
    larger APIs, which many clients read.
    """
    tightest = tightest_of(rate_limits)
    pairs = [(name, value) for kind in (REQUESTS, TOKENS) if kind in tightest for name, value in _pairs(tightest[kind])]
    if not tightest:
        return pairs
    pairs += [
        ("RateLimit-Policy", ", ".join(map(_policy, tightest.values()))),
        ("RateLimit", ", ".join(f'"{s.kind}";r={s.remaining};t={s.reset_s}' for s in tightest.values())),
    ]
    first = tightest.get(REQUESTS) or next(iter(tightest.values()))
    for prefix, reset in (("RateLimit", first.reset_s), ("X-RateLimit", now_us // SECOND_US + first.reset_s)):
        pairs += [
            (f"{prefix}-Limit", str(first.amount)),
            (f"{prefix}-Remaining", str(first.remaining)),
            (f"{prefix}-Reset", str(reset)),
        ]
    return pairs


def _pairs(status: RateLimitStatus) -> list[tuple[str, str]]:
    values = (("limit", status.amount), ("remaining", status.remaining), ("reset", f"{status.reset_s}s"))
    return [(f"x-ratelimit-{name}-{status.kind}", str(value)) for name, value in values]


def _policy(status: RateLimitStatus) -> str:
    if status.kind == CONCURRENCY:
        return f'"concurrency";q={status.amount};qu="concurrent-requests"'
    unit = ';qu="tokens"' if status.kind == TOKENS else ""
    return f'"{status.kind}";q={status.amount};w={WINDOW_S}{unit}'


def _refusal(rule: Rule, reset_s: int, now_s: float) -> RateLimited:
    wait = max(1, reset_s)
    status = RateLimitStatus(rule.kind, rule.amount, 0, wait)
    subject = f"organization ({rule.subject.partition('/')[2]})" if rule.scope == OPERATION else rule.scope
    unit = NAMES[rule.kind]
    if rule.amount == 1:
        unit = unit.replace("requests", "request")
    if rule.amount:
        message = f"The {subject} may make {rule.amount} {unit}; try again in {wait} s."
    else:
        message = f"The {subject} is blocked: its limit is 0 {unit}, until it is raised."
    refused = RateLimited(
        message,
        retry_after=float(wait),
        headers=tuple(headers((status,), int(now_s * SECOND_US))),
    )
    refused.standings = (status,)
    return refused
