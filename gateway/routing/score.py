"""The score of a candidate: one number that compares it with the best candidate (lower is better)."""

import functools
from collections.abc import Iterable
from typing import Any, NamedTuple

from gateway.callers.credential_sources import OWN_SOURCE
from gateway.routing.candidates import Candidate

# Factors and their weights; the share of an inactive factor is distributed to the others.
PRICE = 0.6
IMAGE_PRICE = 1.0
UPTIME = 0.5
THROUGHPUT = 0.05
LATENCY = 0.025
LEADING = 0.9
TRAILING = 0.1

DEFAULT_UPTIME = 100.0
DEFAULT_LATENCY_MS = 1000.0
DEFAULT_THROUGHPUT = 50.0
PENALTY_BELOW = 95.0
PENALTY_SLOPE = 5.0

LARGE_PROMPT_TOKENS = 5000
# Minimum divisors: a price of zero or an uptime of zero must not divide by zero.
MIN_PRICE = 1_000_000.0
MIN_UPTIME = 1.0
MIN_THROUGHPUT = 0.1
MIN_LATENCY_MS = 1.0


class Weights(NamedTuple):
    price: float
    uptime: float
    throughput: float
    latency: float

    def normalised(self) -> "Weights":
        total = sum(self)
        return Weights(*(weight / total for weight in self))


class ScoreEntry(NamedTuple):
    """A candidate that may serve this request, with its current figures. `price` is in n$ per million units."""

    candidate: Candidate
    credentials: tuple[Any, ...]
    price: float
    uptime: float
    latency_ms: float
    throughput: float
    lacking: tuple[str, ...] = ()


class Scored(NamedTuple):
    """An entry with its score. Entries compare by score, then by key, so the order is deterministic."""

    score: float
    key: str
    entry: ScoreEntry

    @property
    def candidate(self) -> Candidate:
        return self.entry.candidate

    @property
    def credentials(self) -> tuple[Any, ...]:
        """Return the usable keys of this provider, in the order in which to try them."""
        return self.entry.credentials


@functools.cache
def weigh(strategy: str, stream: bool, image: bool = False) -> Weights:
    """Return the weights of the active factors, which sum to 1. `strategy` is "", auto, price, throughput or latency.

    Latency is the time to the first token and counts for streams only.
    """
    latency = stream
    if strategy == "price":
        weights = Weights(LEADING, TRAILING, 0.0, 0.0)
    elif strategy == "throughput":
        weights = Weights(0.0, TRAILING, LEADING, 0.0)
    elif strategy == "latency":
        weights = Weights(0.0, TRAILING, 0.0, LEADING if latency else 0.0)
    else:
        weights = Weights(IMAGE_PRICE if image else PRICE, UPTIME, THROUGHPUT, LATENCY if latency else 0.0)
    return weights.normalised()


def penalty(uptime: float) -> float:
    """Return the extra score of an unreliable provider by its uptime in percent: 0.07 at 90, 0.62 at 80, 1.73 at 70,
    5.61 at 50.
    """
    if uptime >= PENALTY_BELOW:
        return 0.0
    return ((PENALTY_BELOW - uptime) / PENALTY_BELOW * PENALTY_SLOPE) ** 2


def grade(entry: ScoreEntry) -> tuple[int, bool]:
    """Return what decides before the score: the number of preferences that the entry lacks, then whether it begins with
    a key of the platform while others begin with the organization's own."""
    return len(entry.lacking), entry.credentials[0].source != OWN_SOURCE


def _grade_of(scored: Scored) -> tuple[int, bool]:
    return grade(scored.entry)


def rank(entries: Iterable[ScoreEntry], weights: Weights) -> list[Scored]:
    """Rank entries, best first: those that fulfil every preference come before those that lack one, and so on; then
    those with an own key come before those without.

    Within that, each factor is the distance from the best entry as a ratio (twice the cheapest price is 1.0), times
    its weight; then the penalty for low uptime and the provider's distance from priority 1 are added.
    """
    rows = list(entries)
    if not rows:
        return []
    w_price, w_uptime, w_throughput, w_latency = weights
    _, _, prices, uptimes, latencies, throughputs, _ = zip(*rows, strict=True)
    price = min(prices)
    uptime = max(*uptimes, MIN_UPTIME)
    throughput = max(*throughputs, MIN_THROUGHPUT)
    latency = min(latencies)
    per_price = w_price / max(price, MIN_PRICE)
    per_latency = w_latency / max(latency, MIN_LATENCY_MS)
    scored = []
    make = tuple.__new__
    for row in rows:
        candidate, _, own_price, up, wait, speed, _ = row
        score = (own_price - price) * per_price + (wait - latency) * per_latency + candidate.handicap
        if up < uptime:
            score += w_uptime * (uptime / max(up, MIN_UPTIME) - 1.0)
        if speed < throughput:
            score += w_throughput * (throughput / max(speed, MIN_THROUGHPUT) - 1.0)
        if up < PENALTY_BELOW:
            score += penalty(up)
        scored.append(make(Scored, (score, candidate.key, row)))
    scored.sort()
    if len(rows) > 1 and len({grade(row) for row in rows}) > 1:
        scored.sort(key=_grade_of)
    return scored
