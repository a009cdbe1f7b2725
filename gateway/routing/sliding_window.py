"""A sliding window: an hour of counts in minute buckets, with recent buckets weighted most."""

from collections.abc import Iterator
from dataclasses import dataclass

from gateway.routing.score import DEFAULT_LATENCY_MS, DEFAULT_THROUGHPUT, DEFAULT_UPTIME

MINUTES = 60
TICK_S = 10.0
TICKS_PER_MINUTE = 6
LAST_MINUTE = 10.0
LAST_FIVE = 3.0
REST = 1.0
# With fewer outcomes the uptime is unknown: a single failed first request would read as 0 %.
MIN_EVENTS = 3

Figures = tuple[float, float, float]
DEFAULTS: Figures = (DEFAULT_UPTIME, DEFAULT_LATENCY_MS, DEFAULT_THROUGHPUT)


@dataclass(slots=True)
class Counts:
    """Counts of one period: outcomes, waits for the first token, and output tokens with their duration.

    `faults` are the failures that are the provider's own, neither rate limits nor rejected credentials.
    """

    succeeded: int = 0
    failed: int = 0
    waits: int = 0
    wait_ms: int = 0
    tokens: int = 0
    token_ms: int = 0
    faults: int = 0

    def add(self, other: "Counts") -> None:
        self.succeeded += other.succeeded
        self.failed += other.failed
        self.waits += other.waits
        self.wait_ms += other.wait_ms
        self.tokens += other.tokens
        self.token_ms += other.token_ms
        self.faults += other.faults

    def listed(self) -> list[int]:
        return [self.succeeded, self.failed, self.waits, self.wait_ms, self.tokens, self.token_ms, self.faults]


class Tally(Counts):
    """Successes of one minute for the windows `keys`, until they are added there.

    `places` are further keys of cooldowns that a success ends. `until` is the end of that minute in seconds of the
    monotonic clock, `tick` is the tick of the first outcome.
    """

    __slots__ = ("keys", "places", "tick", "until")

    def __init__(self, keys: tuple[str, ...], places: tuple[str, ...]) -> None:
        super().__init__()
        self.keys = keys
        self.places = places
        self.tick = 0
        self.until = 0.0

    def begin(self, now: float) -> None:
        self.tick = int(now // TICK_S)
        self.until = (self.tick // TICKS_PER_MINUTE + 1) * TICKS_PER_MINUTE * TICK_S

    def take(self) -> Counts:
        """Return the counts since the last call, and reset them."""
        taken = Counts(*self.listed())
        self.succeeded = self.failed = self.waits = self.wait_ms = self.tokens = self.token_ms = 0
        return taken


class Window:
    """Counts of one key. Times are ticks of ten seconds of a monotonic clock.

    `fresh` holds this worker's counts since the last export; counts absorbed from other workers are never exported
    again.
    """

    __slots__ = ("_buckets", "_figures", "_figures_tick", "events", "fresh", "streak", "touched")

    def __init__(self) -> None:
        self._buckets: dict[int, Counts] = {}
        self._figures: Figures = DEFAULTS
        self._figures_tick = -1
        self.fresh: dict[int, Counts] = {}
        self.streak = 0  # faults since the last success
        self.touched = 0
        self.events = 0

    def add(self, tick: int, counts: Counts) -> None:
        """Add counts of this worker at `tick`."""
        minute = tick // TICKS_PER_MINUTE
        self.absorb(minute, counts, tick)
        fresh = self.fresh.get(minute)
        if fresh is None:
            fresh = self.fresh[minute] = Counts()
        fresh.add(counts)
        if counts.succeeded:
            self.streak = 0
        else:
            self.streak = self.streak + counts.faults

    def absorb(self, minute: int, counts: Counts, tick: int) -> None:
        """Add counts that another worker recorded in `minute`."""
        bucket = self._buckets.get(minute)
        if bucket is None:
            bucket = self._buckets[minute] = Counts()
        bucket.add(counts)
        self.touched = tick
        self._figures_tick = -1

    def figures(self, tick: int) -> Figures:
        """Return uptime in percent, milliseconds to the first token and tokens per second; defaults if unknown."""
        if self._figures_tick != tick:
            self._figures = self._read(tick)
            self._figures_tick = tick
        return self._figures

    def own_uptime(self, tick: int) -> tuple[float, int, int]:
        """Return the uptime in percent, counting only the provider's own faults, and the numbers of outcomes and of
        faults."""
        minute = tick // TICKS_PER_MINUTE
        elapsed = (tick % TICKS_PER_MINUTE) / TICKS_PER_MINUTE
        succeeded = faults = 0.0
        events = failures = 0
        for then, counts in self._buckets.items():
            weight = weigh_age(minute - then, elapsed)
            if weight:
                events += counts.succeeded + counts.faults
                failures += counts.faults
                succeeded += weight * counts.succeeded
                faults += weight * counts.faults
        return (100.0 * succeeded / (succeeded + faults) if events else DEFAULT_UPTIME), events, failures

    def counts_of(self, minute: int) -> Counts | None:
        """Return the counts of one minute, None without any."""
        return self._buckets.get(minute)

    def take_fresh(self, minute: int) -> Iterator[tuple[int, Counts]]:
        """Return the counts that were not exported yet, as (minutes ago, counts), and mark them as exported."""
        fresh = self.fresh
        self.fresh = {}
        return ((max(0, minute - then), counts) for then, counts in fresh.items())

    def _read(self, tick: int) -> Figures:
        minute = tick // TICKS_PER_MINUTE
        elapsed = (tick % TICKS_PER_MINUTE) / TICKS_PER_MINUTE
        succeeded = failed = waits = wait_ms = tokens = token_ms = 0.0
        events = 0
        old = []
        for then, counts in self._buckets.items():
            weight = weigh_age(minute - then, elapsed)
            if not weight:
                old.append(then)
                continue
            events += counts.succeeded + counts.failed
            succeeded += weight * counts.succeeded
            failed += weight * counts.failed
            waits += weight * counts.waits
            wait_ms += weight * counts.wait_ms
            tokens += weight * counts.tokens
            token_ms += weight * counts.token_ms
        for then in old:
            del self._buckets[then]
        self.events = events
        return (
            100.0 * succeeded / (succeeded + failed) if events >= MIN_EVENTS else DEFAULT_UPTIME,
            wait_ms / waits if waits else DEFAULT_LATENCY_MS,
            1000.0 * tokens / token_ms if token_ms else DEFAULT_THROUGHPUT,
        )


def weigh_age(age: int, elapsed: float) -> float:
    """Return the weight of a bucket that is `age` minutes older than the current one, of which the share `elapsed` has
    passed.

    The last minute counts ten times, the last five minutes three times, the rest of the hour once. The edges slide: a
    bucket that is half in the last minute gets half of each weight, so figures do not jump at the start of a minute.
    """
    if age <= 0:
        return LAST_MINUTE
    if age > MINUTES:
        return 0.0
    newer = _weight_within(age)
    older = _weight_within(age + 1)
    return newer * (1.0 - elapsed) + older * elapsed


def _weight_within(minutes: int) -> float:
    if minutes <= 1:
        return LAST_MINUTE
    if minutes <= 5:
        return LAST_FIVE
    if minutes <= MINUTES:
        return REST
    return 0.0
