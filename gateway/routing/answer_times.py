"""Usual response times of calls without streaming, to detect a provider that hangs and switch to another one;
and the share of requests that get a second attempt."""

from bisect import bisect_left

from gateway.neutral.request import Requirements

# Upper bounds in seconds, in steps of √2: from a quarter of a second to twenty minutes.
BOUNDS = tuple(0.25 * 2 ** (step / 2) for step in range(25))
PERCENTILE = 0.99
MIN_SAMPLES = 30
# At this number of responses all counts are halved, so that old ones lose weight.
MAX_SAMPLES = 2_000
MAX_KINDS = 64

Kind = tuple[int, int, str]


class AnswerTimes:
    """Response times of one model at one provider, by kind of request.

    The kind is the size of the prompt and of the requested output (both in steps of factor eight), and the reasoning
    effort.
    """

    __slots__ = ("_counts",)

    def __init__(self) -> None:
        self._counts: dict[Kind, list[int]] = {}

    def observe(self, requirements: Requirements, seconds: float) -> None:
        """Count a response that took `seconds`."""
        kind = _kind_of(requirements)
        counts = self._counts.get(kind)
        if counts is None:
            if len(self._counts) >= MAX_KINDS:
                return
            counts = self._counts[kind] = [0] * (len(BOUNDS) + 1)
        counts[bisect_left(BOUNDS, seconds)] += 1
        if sum(counts) >= MAX_SAMPLES:
            counts[:] = [count // 2 for count in counts]

    def typical_s(self, requirements: Requirements) -> float | None:
        """Return the time in seconds within which 99 % of responses of that kind arrived; None if too few are known."""
        counts = self._counts.get(_kind_of(requirements), ())
        seen = sum(counts)
        if seen < MIN_SAMPLES:
            return None
        passed = 0
        for bound, count in zip(BOUNDS, counts, strict=False):
            passed += count
            if passed >= PERCENTILE * seen:
                return bound
        return None


def _kind_of(requirements: Requirements) -> Kind:
    output = -1 if requirements.max_tokens is None else requirements.max_tokens.bit_length() // 3
    return output, requirements.prompt_bytes.bit_length() // 3, requirements.effort


# The share of requests that get a second attempt beside the first one (engine/hedging.py), for each project.

SHARE = 0.1  # of a project's requests in one worker
BURST = 10.0  # second attempts that a share saves up
MAX_PROJECTS = 4096


class HedgeShares:
    """Second attempts that each project has left. The projects that were quiet for the longest are forgotten first, and
    begin with a full burst again."""

    def __init__(self) -> None:
        self._left: dict[str, float] = {}

    def count(self, project: str) -> None:
        """Count a request that may get a second attempt."""
        left = self._left.pop(project, BURST)
        if len(self._left) >= MAX_PROJECTS:
            self._left.pop(next(iter(self._left)))
        self._left[project] = min(BURST, left + SHARE)

    def take(self, project: str) -> bool:
        """Take one second attempt; return whether there was one."""
        left = self._left.get(project, BURST)
        if left < 1.0:
            return False
        self._left[project] = left - 1.0
        return True

    def give_back(self, project: str) -> None:
        """Return a second attempt that could not be begun."""
        self._left[project] = self._left.get(project, BURST) + 1.0
