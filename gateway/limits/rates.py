"""Requests and tokens per minute and requests at once, per organization, project, key, model and operation; off by
default.

Counters live in this worker. With redis they are exchanged in the background and count over all workers; without it
each worker admits its share (limit ÷ live workers), so that more workers never mean more requests.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from gateway.clock import SECOND_US, Clock
from gateway.control import Control
from gateway.errors import InvalidRequest, RateLimited, Unavailable
from gateway.store.database import Database
from gateway.store.redis import Redis, rate_window

REQUESTS, TOKENS, CONCURRENCY = "requests", "tokens", "concurrency"
KINDS = (REQUESTS, TOKENS, CONCURRENCY)
OPERATION = "operation"  # of each organization, or of the one that a subject "organization/operation" names
SCOPES = ("organization", "project", "key", "model", OPERATION)
EACH = "*"
# Scopes in which an account sets limits of its own → the scope of their rows.
OF_ACCOUNTS = {"project": "account_project", "key": "account_key"}
WINDOW_S = 60
BYTES_PER_TOKEN = 4
# Windows of subjects that were silent for two spans are dropped beyond this many.
REMEMBERED = 50_000
NAMES = {REQUESTS: "requests per minute", TOKENS: "tokens per minute", CONCURRENCY: "requests at once"}


class Rule(NamedTuple):
    """`amount` of `kind` for a subject of `scope`; 0 blocks it."""

    scope: str
    subject: str
    kind: str
    amount: int


class SetRate(NamedTuple):
    """What may be done of a kind: as the operator set it and as the account did; None: not at all."""

    operators: int | None
    own: int | None

    @property
    def in_force(self) -> int | None:
        """The lower one."""
        return min((one for one in self if one is not None), default=None)


class RateLimitStatus(NamedTuple):
    """What is left of a rate limit after admission: `reset_s` until everything is free again."""

    kind: str
    amount: int
    remaining: int
    reset_s: int


class RateLimits:
    """The operator's limits and those that accounts set below them for what is their own: rows of a table, remembered
    under the control version."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database, self._control = database, control
        self._version = -1
        self._rules: dict[tuple[str, str], dict[str, int]] = {}

    def set_limit(self, scope: str, subject: str, kind: str, amount: int | None) -> None:
        """Set a limit ("*" as subject: each one of the scope), or remove it with None; in force when this returns."""
        self._database.write(lambda: self.write_limit(scope, subject, kind, amount))
        self._control.confirm()

    def write_limit(self, scope: str, subject: str, kind: str, amount: int | None) -> None:
        """The same within a transaction in hand; the caller confirms. InvalidRequest."""
        if scope not in SCOPES or kind not in KINDS:
            raise InvalidRequest(f"Rate limits are of {', '.join(SCOPES)} and count {', '.join(KINDS)}.")
        if amount is not None and amount < 0:
            raise InvalidRequest("A rate limit cannot be negative; 0 blocks.")
        self._control.bump()
        self._replace(scope, subject, kind, amount)

    def write_own(self, scope: str, subject: str, kind: str, amount: int | None) -> None:
        """Set or remove a limit of an account's own project or key within a transaction in hand; the caller confirms.
        InvalidRequest (rate_limit_above_operators) for more than the operator lets it have."""
        most = self._read_of(scope, subject)[kind].operators
        if amount is not None and most is not None and amount > most:
            raise InvalidRequest(
                f"The operator lets this {scope} have {most} {NAMES[kind]}; ask for no more.",
                param=kind,
                code="rate_limit_above_operators",
            )
        self._control.bump()
        self._replace(OF_ACCOUNTS[scope], subject, kind, amount)

    def of(self, scope: str, subject: str) -> dict[str, "SetRate"]:
        """By kind what is set for a project or key; it is read from the store."""
        return self._database.read(lambda: self._read_of(scope, subject))

    def _read_of(self, scope: str, subject: str) -> dict[str, "SetRate"]:
        sql = "SELECT scope, scope_id, kind, amount FROM rate_limit WHERE scope IN (?, ?) AND scope_id IN (?, ?)"
        given = (scope, OF_ACCOUNTS[scope], subject, EACH)
        rows = self._database.execute(sql, given).fetchall()
        amounts = {(found, ident, kind): amount for found, ident, kind, amount in rows}
        return {
            kind: SetRate(
                amounts.get((scope, subject, kind), amounts.get((scope, EACH, kind))),
                amounts.get((OF_ACCOUNTS[scope], subject, kind)),
            )
            for kind in KINDS
        }

    def _replace(self, scope: str, subject: str, kind: str, amount: int | None) -> None:
        run = self._database.execute
        run("DELETE FROM rate_limit WHERE scope = ? AND scope_id = ? AND kind = ?", (scope, subject, kind))
        if amount is not None:
            sql = "INSERT INTO rate_limit (scope, scope_id, kind, amount) VALUES (?, ?, ?, ?)"
            run(sql, (scope, subject, kind, amount))

    def list_limits(self) -> list[Rule]:
        """All of them, those of accounts under scopes of their own."""
        return self._rows()

    def rules(self, subjects: Sequence[tuple[str, str]]) -> list[Rule]:
        """What applies to (scope, subject) pairs: their own amount, else that of each one of the scope."""
        if not self.active():
            return []
        table = self._rules
        found = []
        for scope, subject in subjects:
            for kind in KINDS if subject else ():
                amounts = table.get((scope, kind))
                amount = _amount_of(scope, subject, amounts) if amounts else None
                if amount is not None:
                    found.append(Rule(scope, subject, kind, amount))
        return found

    def active(self) -> bool:
        """Whether there is any limit."""
        return self.active_at(self._control.check())

    def active_at(self, version: int) -> bool:
        """The same under the control version at hand."""
        if version != self._version:
            self._renew(version)
        return bool(self._rules)

    def worker_count(self) -> int:
        """Live workers, at least this one."""
        return max(1, len(self._control.live_epochs()))

    def _renew(self, version: int) -> None:
        table: dict[tuple[str, str], dict[str, int]] = {}
        for row in self._rows():
            table.setdefault((row.scope, row.kind), {})[row.subject] = row.amount
        for scope, own in OF_ACCOUNTS.items():
            for kind in KINDS:
                _lower(table, (scope, kind), table.pop((own, kind), {}))
        self._rules, self._version = table, version

    def _rows(self) -> list[Rule]:
        sql = "SELECT scope, scope_id, kind, amount FROM rate_limit ORDER BY scope, scope_id"
        return [Rule(*row) for row in self._database.read(lambda: self._database.execute(sql).fetchall())]


class _Window:
    """A rolling minute: what came in this one, and of the last one the part that still lies within 60 seconds.

    `unsent` was not sent to the other workers yet, `others` is what they counted in this minute.
    """

    __slots__ = ("start", "count", "before", "unsent", "others")

    def __init__(self, start: int) -> None:
        self.start, self.count, self.before, self.unsent, self.others = start, 0, 0, 0, 0

    def used(self, now_s: float) -> float:
        start = int(now_s) // WINDOW_S * WINDOW_S
        if start != self.start:
            whole = self.count + self.others
            self.before = whole if start == self.start + WINDOW_S else 0
            self.start, self.count, self.others, self.unsent = start, 0, 0, 0
        return self.count + self.others + self.before * (1 - (now_s - start) / WINDOW_S)

    def add(self, amount: int) -> None:
        self.count += amount
        self.unsent += amount


class Slot(Struct, eq=False):
    """One admitted request. `release` on every path out, with the tokens that it used; safe to repeat."""

    statuses: tuple[RateLimitStatus, ...] = ()
    finish: Callable[[int], object] | None = None

    def release(self, tokens: int = 0) -> None:
        finish, self.finish = self.finish, None
        if finish is not None:
            finish(tokens)


class RateLimiter:
    """Admission by rate. `Rates()` limits nothing. `exchange` must run about each second to count over workers.

    `limited(version)` says whether there is any limit under the control version at hand, so that `enter` has a say.
    """

    def __init__(
        self, limits: RateLimits | None = None, clock: Clock | None = None, redis: Redis | None = None
    ) -> None:
        self._limits, self._clock, self._redis = limits, clock or Clock(), redis
        # Asked of every request: the function itself.
        self.limited: Callable[[int], bool] = _limits_nothing if limits is None else limits.active_at
        self._windows: dict[tuple[str, str, str], _Window] = {}
        self._running: dict[tuple[str, str], int] = {}
        # By what a limit is divided here: of windows 1 while they are exchanged, of slots always the live workers.
        self._share = self._workers = 1

    def enter(
        self, organization: str, project: str, key: str, model: str, prompt_bytes: int, operation: str = "chat"
    ) -> Slot:
        """Count a request in every window that concerns it, or in none.

        RateLimited names which limit, and after how many seconds to come again. Tokens are counted by the size of the
        prompt now and by what was used when the slot is released.
        """
        if self._limits is None:
            return Slot()
        subjects = (
            ("organization", organization),
            ("project", project),
            ("key", key),
            ("model", model),
            (OPERATION, f"{organization}/{operation}"),
        )
        rules = self._limits.rules(subjects)
        if not rules:
            return Slot()
        now = self._clock.now_us() / SECOND_US
        guess = -(-prompt_bytes // BYTES_PER_TOKEN)
        rate_limits = tuple(self._check(rule, guess, now) for rule in rules)
        for rule in rules:
            self._count(rule, guess, now)
        return Slot(rate_limits, lambda tokens: self._leave(rules, guess, tokens))

    def exchange(self) -> None:
        """Exchange counts with the other workers. Never raises for redis: without it the
        worker goes by its share."""
        if self._limits is None:
            return
        try:
            if not self._limits.active():
                return
            self._workers = self._limits.worker_count()
        except Unavailable:
            return  # the database is away: what was known goes on
        self._share = 1 if self._redis is not None and self._exchanged(self._redis) else self._workers
        self._forget()

    def running_of(self, scope: str, subject: str) -> int | None:
        """Slots of one subject in use; None where other workers have some too."""
        return self._running.get((scope, subject), 0) if self._workers == 1 else None

    def running(self) -> int:
        """Slots in use, over all limits."""
        return sum(self._running.values())

    def _check(self, rule: Rule, guess: int, now: float) -> RateLimitStatus:
        share = self._workers if rule.kind == CONCURRENCY else self._share
        amount = -(-rule.amount // share)
        if rule.kind == CONCURRENCY:
            used: float = self._running.get((rule.scope, rule.subject), 0)
            wanted, reset = 1, 1
        else:
            window = self._window(rule, now)
            used = window.used(now)
            wanted = 1 if rule.kind == REQUESTS else guess
            reset = math.ceil(window.start + WINDOW_S - now)
        # A prompt larger than a whole minute's tokens may go when nothing else does.
        if amount == 0 or used + min(wanted, amount) > amount:
            raise _refusal(rule, reset, now)
        return RateLimitStatus(rule.kind, rule.amount, max(0, int((amount - used - wanted) * share)), reset)

    def _count(self, rule: Rule, guess: int, now: float) -> None:
        if rule.kind == CONCURRENCY:
            place = (rule.scope, rule.subject)
            self._running[place] = self._running.get(place, 0) + 1
        else:
            self._window(rule, now).add(1 if rule.kind == REQUESTS else guess)

    def _leave(self, rules: Sequence[Rule], guess: int, tokens: int) -> None:
        now = self._clock.now_us() / SECOND_US
        for rule in rules:
            place = (rule.scope, rule.subject)
            if rule.kind == CONCURRENCY:
                self._running[place] -= 1
                if not self._running[place]:
                    del self._running[place]
            elif rule.kind == TOKENS and tokens:
                window = self._window(rule, now)
                window.used(now)
                window.add(max(tokens - guess, -window.count))

    def _window(self, rule: Rule, now: float) -> _Window:
        place = (rule.scope, rule.subject, rule.kind)
        found = self._windows.get(place)
        if found is None:
            found = self._windows[place] = _Window(int(now) // WINDOW_S * WINDOW_S)
        return found

    def _exchanged(self, redis: Redis) -> bool:
        try:
            self._exchange(redis)
        except Unavailable:
            return False
        return True

    def _exchange(self, redis: Redis) -> None:
        now = self._clock.now_us() / SECOND_US
        sent: dict[str, tuple[_Window, int]] = {}
        for (scope, subject, kind), window in self._windows.items():
            window.used(now)
            sent[rate_window(f"{scope}:{kind}", subject, window.start)] = (window, window.unsent)
        totals = redis.add({name: unsent for name, (_, unsent) in sent.items()}, 2 * WINDOW_S)
        for name, (window, unsent) in sent.items():
            if name.endswith(f":{window.start}"):
                window.unsent -= unsent
                window.others = max(0, totals[name] - (window.count - window.unsent))

    def _forget(self) -> None:
        if len(self._windows) <= REMEMBERED:
            return
        old = self._clock.now_us() / SECOND_US - 2 * WINDOW_S
        self._windows = {place: window for place, window in self._windows.items() if window.start > old}


def _lower(table: dict[tuple[str, str], dict[str, int]], place: tuple[str, str], own: dict[str, int]) -> None:
    """Put an account's own amounts in place of the operator's where they are lower, and where there is none."""
    if not own:
        return
    amounts = table.setdefault(place, {})
    each = amounts.get(EACH)
    for subject, amount in own.items():
        most = amounts.get(subject, each)
        amounts[subject] = amount if most is None else min(amount, most)


def _amount_of(scope: str, subject: str, amounts: dict[str, int]) -> int | None:
    amount = amounts.get(subject)
    if amount is None and scope == OPERATION:
        amount = amounts.get(subject.partition("/")[2])
    return amounts.get(EACH) if amount is None else amount


def _limits_nothing(version: int) -> bool:
    return False


def tightest_of(rate_limits: Sequence[RateLimitStatus]) -> dict[str, RateLimitStatus]:
    """By kind, where the caller has the least left."""
    tightest: dict[str, RateLimitStatus] = {}
    for standing in rate_limits:
        known = tightest.get(standing.kind)
        if known is None or standing.remaining < known.remaining:
            tightest[standing.kind] = standing
    return tightest


def headers(rate_limits: Sequence[RateLimitStatus], now_us: int) -> list[tuple[str, str]]:
    """The rate-limit headers of an answer: the tightest of each kind. [] without limits.

    `RateLimit` and `RateLimit-Policy` follow draft-ietf-httpapi-ratelimit-headers; the others are what clients of
    the larger APIs read.
    """
    tightest = tightest_of(rate_limits)
    pairs = [(name, value) for kind in (REQUESTS, TOKENS) if kind in tightest for name, value in _pairs(tightest[kind])]
    if not tightest:
        return pairs
    pairs += [
        ("RateLimit-Policy", ", ".join(_policy(standing) for standing in tightest.values())),
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


def _pairs(standing: RateLimitStatus) -> list[tuple[str, str]]:
    values = (("limit", standing.amount), ("remaining", standing.remaining), ("reset", f"{standing.reset_s}s"))
    return [(f"x-ratelimit-{name}-{standing.kind}", str(value)) for name, value in values]


def _policy(standing: RateLimitStatus) -> str:
    if standing.kind == CONCURRENCY:
        return f'"concurrency";q={standing.amount};qu="concurrent-requests"'
    unit = ';qu="tokens"' if standing.kind == TOKENS else ""
    return f'"{standing.kind}";q={standing.amount};w={WINDOW_S}{unit}'


def _refusal(rule: Rule, reset_s: int, now_s: float) -> RateLimited:
    wait = max(1, reset_s)
    standing = RateLimitStatus(rule.kind, rule.amount, 0, wait)
    who = f"organization ({rule.subject.partition('/')[2]})" if rule.scope == OPERATION else rule.scope
    return RateLimited(
        f"The {who} may make {rule.amount} {NAMES[rule.kind]}; try again in {wait} s.",
        retry_after=float(wait),
        headers=tuple(headers((standing,), int(now_s * SECOND_US))),
    )
