"""Answers of usage reports: figures of hours and days, of apps, and of the parts of a breakdown."""

from typing import Annotated, Any, NotRequired, TypedDict

from msgspec import Meta

from gateway.neutral.units import UNITS
from gateway.surfaces.answer_structs import describe_answer

# Figures of units, which the writers add to each hour or day.
UNIT_COUNTS = tuple(dict.fromkeys(figure for unit in UNITS for figure in unit.figures))
UNIT_COSTS = tuple(dict.fromkeys(unit.cost for unit in UNITS if unit.cost))


class ShortFigures(TypedDict):
    requestCount: int
    inputTokens: int
    outputTokens: int
    totalTokens: int
    cost: Annotated[float, Meta(description="In US dollars, like all costs.")]
    discountSavings: float


class SplitFigures(TypedDict):
    """Figures of requests that credits paid for, and of requests with provider keys of the organization."""

    creditsRequestCount: int
    apiKeysRequestCount: int
    creditsCost: float
    apiKeysCost: float


class ActivityPart(ShortFigures):
    """A part of an hour or day: a model, an API key or a person."""

    id: str
    provider: NotRequired[str]
    description: NotRequired[str]
    email: NotRequired[str]


class ActivitySource(ShortFigures, SplitFigures):
    source: str
    lastUsedAt: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class LatencyPercentiles(TypedDict):
    """Milliseconds that half of the calls, and 95 % of them, did not exceed."""

    p50: int
    p95: int


class ActivityLatency(TypedDict):
    """The latency of the answered upstream calls of a model at a provider."""

    provider: str
    model: str
    calls: int
    durationMs: LatencyPercentiles
    timeToFirstTokenMs: LatencyPercentiles | None


class ActivityStep(ShortFigures, SplitFigures):
    date: str
    errorCount: int
    clientErrorCount: int
    errorRate: Annotated[float, Meta(description="In percent of the requests.")]
    cacheCount: int
    cacheRate: Annotated[float, Meta(description="In percent of the requests.")]
    dataStorageCost: float
    creditsDataStorageCost: float
    apiKeysDataStorageCost: float
    modelBreakdown: list[ActivityPart]
    apiKeyBreakdown: list[ActivityPart]
    userBreakdown: NotRequired[list[ActivityPart]]


class ActivityReport(TypedDict):
    activity: list[Any]
    granularity: NotRequired[str]


def describe_report() -> dict[str, Any]:
    """Return the JSON schema of a report, including the figures of units."""
    step = describe_answer(ActivityStep)
    counts = {figure.member: {"type": "integer" if figure.divisor == 1 else "number"} for figure in UNIT_COUNTS}
    members = {**counts, **{figure.member: {"type": "number"} for figure in UNIT_COSTS}}
    step = {
        **step,
        "properties": {**step["properties"], **members},
        "required": list(dict.fromkeys([*step["required"], *members])),
    }
    report = describe_answer(ActivityReport)
    return {**report, "properties": {**report["properties"], "activity": {"type": "array", "items": step}}}
