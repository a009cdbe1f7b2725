"""The waterfall of a request: when each upstream call began, when its first token came, and when it ended."""

from collections.abc import Sequence

from msgspec import Struct

from gateway.metering.usage_table import UsageRecord

WIDTH = 1000  # units of the drawing, which is stretched to the page


class CallBar(Struct, frozen=True):
    """The bar of an upstream call. `x`, `waiting` and `streaming` are units of the drawing, times are in ms after the
    arrival of the request."""

    failed: bool
    x: float
    waiting: float
    streaming: float
    begins_ms: int
    ends_ms: int
    first_token_ms: int


class Waterfall(Struct, frozen=True):
    total_ms: int
    bars: tuple[CallBar, ...]


def draw_waterfall(arrived_us: int, attempts: Sequence[UsageRecord]) -> Waterfall:
    """Return the bars of the calls on a common scale that begins with the arrival of the request."""
    spans = []
    for attempt in attempts:
        begins = max(0, (attempt.at - arrived_us) // 1000)
        spans.append((attempt, begins, begins + attempt.duration_ms))
    total = max((end for _, _, end in spans), default=0) or 1
    bars = []
    for attempt, begins, end in spans:
        first = min(attempt.ttft_ms or attempt.duration_ms, attempt.duration_ms)
        bars.append(
            CallBar(
                bool(attempt.error),
                round(begins / total * WIDTH, 2),
                round(max(first / total * WIDTH, 2), 2),
                round((end - begins - first) / total * WIDTH, 2),
                begins,
                end,
                attempt.ttft_ms or 0,
            )
        )
    return Waterfall(total, tuple(bars))
