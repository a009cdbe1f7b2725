"""The figures of reports as JSON numbers."""

from gateway.metering.figures import ActivityFigures
from gateway.money import usd_number
from gateway.reports.report_answers import ShownMetrics

# The figures that the metrics are computed from.
NEEDED = (
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
