"""Reports as types, which the tools that return them describe to their clients."""

from typing import Literal, TypedDict

from gateway.metering.figures import ActivityFigures
from gateway.money import usd_number


class ShownScope(TypedDict):
    """The usage that a report contains: that of a project, or of one member's keys in it."""

    type: Literal["project", "member"]
    projectId: str
    userId: str | None


class ShownMetrics(TypedDict):
    requestCount: int
    errorCount: int
    cacheCount: int
    inputTokens: int
    outputTokens: int
    totalTokens: int
    reasoningTokens: int
    cachedTokens: int
    costUsd: float
    dataStorageCostUsd: float
    creditsCostUsd: float
    byokCostUsd: float
    discountSavingsUsd: float


class NamedMetrics(ShownMetrics):
    """The usage of a provider, model, app or key."""

    id: str
    name: str


class DatedMetrics(ShownMetrics):
    """The usage of a day or hour."""

    date: str


class ReportCoverage(TypedDict):
    """The requests that a ranking covers."""

    requestCount: int
    totalRequestCount: int
    complete: bool


class ShownPage(TypedDict):
    limit: int
    offset: int
    hasMore: bool


class ShownPerson(TypedDict):
    id: str
    name: str | None


class ShownOrganization(TypedDict):
    id: str
    name: str
    kind: str


class ShownProject(TypedDict):
    id: str
    name: str


class ShownKeyLimits(TypedDict):
    """An API key with what it has spent and may spend."""

    id: str
    name: str
    usageUsd: float
    usageLimitUsd: float | None
    periodUsageUsd: float
    periodUsageLimitUsd: float | None
    periodStartedAt: str | None
    expiresAt: str | None


class AccountReport(TypedDict):
    user: ShownPerson
    organization: ShownOrganization
    project: ShownProject
    role: str
    usageScope: ShownScope
    apiKey: ShownKeyLimits
    creditsBalanceUsd: float | None


# `from` is a keyword of Python, so this type has no class.
ReportHead = TypedDict(
    "ReportHead",
    {
        "scope": ShownScope,
        "from": str,
        "to": str,
        "timezone": Literal["UTC"],
        "currency": Literal["USD"],
        "updatedAt": str | None,
    },
)


class UsageReport(ReportHead):
    granularity: str
    totals: ShownMetrics
    series: list[DatedMetrics]
    mostUsedProvider: NamedMetrics | None
    mostUsedModel: NamedMetrics | None
    mostUsedApp: NamedMetrics | None
    appUsageCoverage: ReportCoverage


class BreakdownReport(ReportHead):
    groupBy: str
    sortBy: str
    rows: list[NamedMetrics]
    pagination: ShownPage
    coverage: ReportCoverage


# The figures of reports as JSON numbers.

# The figures that the metrics are computed from.
METRIC_FIGURES = (
    "requests",
    "errors",
    "cached_requests",
    "input_tokens",
    "output_tokens",
    "cached_tokens",
    "reasoning_tokens",
    "cost_nusd",
    "byok_nusd",
    "storage_nusd",
    "discount_nusd",
)


def show_metrics(figures: ActivityFigures) -> ShownMetrics:
    return {
        "requestCount": figures.requests,
        "errorCount": figures.errors,
        "cacheCount": figures.cached_requests,
        "inputTokens": figures.input_tokens,
        "outputTokens": figures.output_tokens,
        "totalTokens": figures.input_tokens + figures.output_tokens,
        "reasoningTokens": figures.reasoning_tokens,
        "cachedTokens": figures.cached_tokens,
        "costUsd": usd_number(figures.cost_nusd),
        "dataStorageCostUsd": usd_number(figures.storage_nusd),
        "creditsCostUsd": usd_number(figures.cost_nusd - figures.byok_nusd),
        "byokCostUsd": usd_number(figures.byok_nusd),
        "discountSavingsUsd": usd_number(figures.discount_nusd),
    }


def total(rows: list[ActivityFigures]) -> ActivityFigures:
    summed = ActivityFigures()
    for figures in rows:
        summed.add(figures)
    return summed
