"""The measures of usage that a plot can show, and how their values are written."""

from collections.abc import Callable

from msgspec import Struct

from gateway.metering.figures import ROW_FIGURES, ActivityFigures
from gateway.money import round_usd
from gateway.reports.latency_percentiles import TimedCall
from gateway.surfaces.console.shown_figures import round_count, round_duration

HUNDREDTHS = 100  # of a percent in one percent


class Measure(Struct, frozen=True):
    """A measure: the sum of its `figures` without those of `minus`. With `per` it is `scale` times this sum divided by
    that of `per`, and its parts do not add up. `kind` is how a value is written. A `timed`
    measure has no figures: it is a percentile of the time to the first token ("wait"), of the duration, or of the speed
    of single calls, and names are ranked by their requests."""

    label: str
    section: str
    figures: tuple[str, ...]
    minus: tuple[str, ...] = ()
    per: tuple[str, ...] = ()
    scale: int = 1
    kind: str = "count"
    timed: str = ""
    percent: int = 50

    @property
    def is_ratio(self) -> bool:
        """Return whether the measure is a share or an average, which cannot be stacked."""
        return bool(self.per or self.timed)

    @property
    def is_of_rows(self) -> bool:
        """Return whether the statistics keep no sums of the measure, so that usage rows are summed."""
        return any(name in ROW_FIGURES for name in self.figures)

    @property
    def read(self) -> tuple[str, ...]:
        """Return the figures that are read."""
        return (*self.figures, *self.minus, *self.per)

    def value(self, figures: ActivityFigures) -> int | None:
        """Return the value of some usage; None for a ratio of nothing."""
        if self.timed:
            return None
        sum_ = _sum(figures, self.figures) - _sum(figures, self.minus)
        if not self.per:
            return sum_
        whole = _sum(figures, self.per)
        return round(sum_ * self.scale / whole) if whole else None

    def size(self, figures: ActivityFigures) -> int:
        """Return by which names are ranked: the sum, for a ratio that of its denominator."""
        if self.per or self.timed:
            return _sum(figures, self.per or ("requests",))
        return _sum(figures, self.figures) - _sum(figures, self.minus)

    @property
    def write(self) -> Callable[[int], str]:
        """Return the function that writes a value."""
        return WRITERS[self.kind]


def _sum(figures: ActivityFigures, names: tuple[str, ...]) -> int:
    total: int = sum(getattr(figures, name) for name in names)
    return total


def write_percent(hundredths: int) -> str:
    """Return hundredths of a percent as people read them."""
    return f"{hundredths / HUNDREDTHS:.3g} %"


def write_speed(hundredths: int) -> str:
    """Return hundredths of a token a second as people read them."""
    return f"{hundredths / HUNDREDTHS:.3g}/s"


WRITERS: dict[str, Callable[[int], str]] = {
    "usd": round_usd,
    "count": round_count,
    "percent": write_percent,
    "ms": round_duration,
    "speed": write_speed,
}
PERCENT = 100 * HUNDREDTHS
MILLION = 1_000_000
TOKENS = ("input_tokens", "output_tokens")
# The first is the default.
MEASURES: dict[str, Measure] = {
    "spend": Measure("Spend", "Costs", ("cost_nusd",), kind="usd"),
    "inputSpend": Measure(
        "Spend on input tokens", "Costs", ("input_nusd", "cached_nusd", "cache_write_nusd"), kind="usd"
    ),
    "outputSpend": Measure("Spend on output tokens", "Costs", ("output_nusd",), kind="usd"),
    "ownKeysSpend": Measure("Spend with own provider keys", "Costs", ("byok_nusd",), kind="usd"),
    "savings": Measure("Saved by discounts", "Costs", ("discount_nusd",), kind="usd"),
    "requestCost": Measure("Average cost of a request", "Costs", ("cost_nusd",), per=("requests",), kind="usd"),
    "tokenCost": Measure("Cost of a million tokens", "Costs", ("cost_nusd",), per=TOKENS, scale=MILLION, kind="usd"),
    "requests": Measure("Requests", "Requests", ("requests",)),
    "errors": Measure("Failed requests", "Requests", ("errors",)),
    "callerErrors": Measure("Errors of callers", "Requests", ("client_errors",)),
    "providerErrors": Measure("Errors of providers", "Requests", ("errors",), minus=("client_errors",)),
    "errorRate": Measure(
        "Share of failed requests", "Requests", ("errors",), per=("requests",), scale=PERCENT, kind="percent"
    ),
    "cached": Measure("Answers from the cache", "Requests", ("cached_requests",)),
    "cacheRate": Measure(
        "Share of answers from the cache",
        "Requests",
        ("cached_requests",),
        per=("requests",),
        scale=PERCENT,
        kind="percent",
    ),
    "tokens": Measure("Tokens", "Tokens", TOKENS),
    "inputTokens": Measure("Input tokens", "Tokens", ("input_tokens",)),
    "outputTokens": Measure("Output tokens", "Tokens", ("output_tokens",)),
    "reasoningTokens": Measure("Reasoning tokens", "Tokens", ("reasoning_tokens",)),
    "cachedTokens": Measure("Tokens read from prompt caches", "Tokens", ("cached_tokens",)),
    "cacheWriteTokens": Measure("Tokens written to prompt caches", "Tokens", ("cache_write_tokens",)),
    "promptCacheRate": Measure(
        "Share of input from prompt caches",
        "Tokens",
        ("cached_tokens",),
        per=("input_tokens",),
        scale=PERCENT,
        kind="percent",
    ),
    **{
        f"{timed}{percent}": Measure(f"{label}, {name}", "Times", (), kind="ms", timed=timed, percent=percent)
        for timed, label in (("wait", "Time to first token"), ("duration", "Duration"))
        for percent, name in ((50, "median"), (95, "p95"), (99, "p99"))
    },
    "speed5": Measure("Tokens per second, p5", "Times", (), kind="speed", timed="speed", percent=5),
    "speed50": Measure("Tokens per second, median", "Times", (), kind="speed", timed="speed"),
    "toolAnswers": Measure("Answers that call tools", "Tools", ("tool_answers",)),
    "toolShare": Measure(
        "Share of answers that call tools",
        "Tools",
        ("tool_answers",),
        per=("requests",),
        scale=PERCENT,
        kind="percent",
    ),
    "searches": Measure("Searches of hosted tools", "Tools", ("searches",)),
    "codeSessions": Measure("Sessions of hosted code tools", "Tools", ("code_sessions",)),
}


def time_of(measure: Measure, call: TimedCall) -> int | None:
    """Return what a timed measure reads of a call; None if the call does not have it."""
    if measure.timed == "duration":
        return call.duration_ms
    if call.ttft_ms <= 0:
        return None
    if measure.timed == "wait":
        return call.ttft_ms
    streamed_ms = call.duration_ms - call.ttft_ms
    return call.output * 1_000 * HUNDREDTHS // streamed_ms if streamed_ms > 0 and call.output else None
