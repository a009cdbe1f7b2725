from prometheus_client.parser import text_string_to_metric_families

from gateway.limits.budgets import SpentBudget
from gateway.surfaces.metric_figures import Figures
from gateway.surfaces.prometheus_text import write
from gateway.telemetry.gauges import JobHealth, budget_rows, job_rows, merge


def test_gauges_of_workers_are_merged_by_their_meaning() -> None:
    """docs/health.md, Metrics. Measurements of the same thing by several workers are not added up."""
    same_thing = ("cooldowns", "credentials", "job_last_run_timestamp_seconds", "job_failing", "configuration_refused")
    longest = ("loop_lag_seconds", "loop_busy_seconds", "journal_largest_batch", "control_age_seconds")
    assert {name: merge(name, [1.0, 3.0, 2.0]) for name in (*same_thing, *longest)} == dict.fromkeys(
        (*same_thing, *longest), 3.0
    )
    assert merge("database_up", [1.0, 0.0]) == merge("redis_up", [0.0, 1.0]) == 0.0
    assert merge("in_flight", [1.0, 3.0]) == merge("connections", [3.0, 1.0]) == 4.0


def test_jobs_and_budgets_are_told_apart_by_their_labels() -> None:
    rows = job_rows([JobHealth("books", 3_000_000, "", 2_000_000), JobHealth("prices", 1_000_000, "away")])
    gauges: dict[str, dict] = {}
    for name, labels, value in rows:
        gauges.setdefault(name, {})[labels] = [value]
    budgets = [SpentBudget("key", "key_1", "total", "org_1", "CI", 10, 9)]
    budgets += [SpentBudget("organization", name, "credits", name, name, 10**9, 10**9) for name in ("org_1", "org_2")]
    text = write(Figures({}, {}, gauges, dict.fromkeys(gauges, ""), budget_rows(budgets), {}))[1].decode()
    families = text_string_to_metric_families(text)
    samples = {(sample.name.removeprefix("llmgateway_"), *sample.labels.items()): sample.value
               for family in families for sample in family.samples if sample.labels}  # fmt: skip
    books, prices = ("job", "books"), ("job", "prices")
    del samples[next(place for place in samples if place[0] == "build_info")]
    assert samples == {
        ("job_last_run_timestamp_seconds", books): 3, ("job_last_run_timestamp_seconds", prices): 1,
        ("job_last_success_timestamp_seconds", books): 2, ("job_failing", books): 0, ("job_failing", prices): 1,
        ("budgets_near_end", ("scope", "key"), ("state", "nearly")): 1,
        ("budgets_near_end", ("scope", "organization"), ("state", "spent")): 2,
        ("credits_low_usd", ("organization", "org_1")): 0, ("credits_low_usd", ("organization", "org_2")): 0,
    }  # fmt: skip
