"""Labelled gauges that any worker can report: providers and credentials, jobs, budgets near their end."""

from collections import Counter
from collections.abc import Iterable
from typing import NamedTuple

from gateway.clock import SECOND_US
from gateway.limits.budgets import SpentBudget
from gateway.metering.counters import GaugeRow, Labels, provider_label
from gateway.providers.credentials import Credentials
from gateway.routing.cooldowns import provider_of
from gateway.routing.provider_health import Health
from gateway.telemetry.budget_watch import balances_of, counts_of


class LabelledGauge(NamedTuple):
    """A gauge's help text and label names."""

    text: str
    labels: tuple[str, ...]


# Per worker; a node reports the largest value of its workers.
PER_WORKER_GAUGES = {
    "cooldowns": LabelledGauge("Models, regions and keys in cooldown, by provider and reason.", ("provider", "reason")),
    "credentials": LabelledGauge("Provider keys of the platform by state.", ("provider", "state")),
    "job_last_run_timestamp_seconds": LabelledGauge("When recurring work was done last.", ("job",)),
    "job_last_success_timestamp_seconds": LabelledGauge("When recurring work last went well.", ("job",)),
    "job_failing": LabelledGauge("1 while the last round of recurring work failed.", ("job",)),
}
# For the whole installation, the same from every worker.
INSTALLATION = {
    "budgets_near_end": LabelledGauge("Limits and credits that are nearly or wholly spent.", ("scope", "state")),
    "credits_low_usd": LabelledGauge("Credits left, of the organizations with the least.", ("organization",)),
}
# Gauges of a node with the largest or smallest value of its workers; all others are summed.
UNSUMMED_GAUGES = frozenset(
    {
        *PER_WORKER_GAUGES,
        *("loop_lag_seconds", "loop_busy_seconds", "journal_largest_batch", "control_age_seconds"),
        "configuration_refused",
    }
)
SMALLEST = frozenset(("redis_up", "database_up"))


class JobHealth(NamedTuple):
    """The health of a job: the end of its last round (µs), its error, and the end of the last successful round (0:
    none)."""

    name: str
    at_us: int
    error: str
    good_us: int = 0


def provider_rows(health: Health, credentials: Credentials) -> list[GaugeRow]:
    """Return cooldowns, and the state of each platform credential: ok, or the reason of a cooldown for all models."""
    cooling = health.cooldowns.active()
    counted = Counter((provider_label(provider_of(key)), reason) for key, reason in cooling.items())
    rows: list[GaugeRow] = [("cooldowns", labels, float(count)) for labels, count in counted.items()]
    states: Counter[Labels] = Counter()
    # A key in cooldown for only one organization's requests counts as well.
    cooling = {key.partition("@")[0]: reason for key, reason in cooling.items()}
    for provider, keys in credentials.platform().items():
        for key in keys:
            states[provider, cooling.get(f"{provider}#{key.ident}", "ok")] += 1
    return [*rows, *(("credentials", labels, float(count)) for labels, count in states.items())]


def job_rows(jobs: Iterable[JobHealth]) -> list[GaugeRow]:
    """Return rows for the jobs that this worker ran."""
    rows: list[GaugeRow] = []
    for job in jobs:
        if job.at_us:
            rows.append(("job_last_run_timestamp_seconds", (job.name,), job.at_us / SECOND_US))
            if job.good_us:
                rows.append(("job_last_success_timestamp_seconds", (job.name,), job.good_us / SECOND_US))
            rows.append(("job_failing", (job.name,), 1.0 if job.error else 0.0))
    return rows


def budget_rows(budgets: list[SpentBudget]) -> list[GaugeRow]:
    """Return rows for budgets that are near their end."""
    counts = [("budgets_near_end", labels, value) for labels, value in counts_of(budgets).items()]
    return [*counts, *(("credits_low_usd", labels, value) for labels, value in balances_of(budgets).items())]


def merge(name: str, values: list[float]) -> float:
    """Return one gauge of a node, merged from those of its workers."""
    if name in SMALLEST:
        return min(values)
    if name in UNSUMMED_GAUGES:
        return max(values)
    return sum(values)
