from gateway.telemetry.gauges import merge


def test_gauges_of_workers_are_merged_by_their_meaning() -> None:
    """docs/health.md, Metrics. Measurements of the same thing by several workers are not added up."""
    same_thing = ("cooldowns", "credentials", "job_last_run_timestamp_seconds", "job_failing", "configuration_refused")
    longest = ("loop_lag_seconds", "loop_busy_seconds", "journal_largest_batch", "control_age_seconds")
    assert {name: merge(name, [1.0, 3.0, 2.0]) for name in (*same_thing, *longest)} == dict.fromkeys(
        (*same_thing, *longest), 3.0
    )
    assert merge("database_up", [1.0, 0.0]) == merge("redis_up", [0.0, 1.0]) == 0.0
    assert merge("in_flight", [1.0, 3.0]) == merge("connections", [3.0, 1.0]) == 4.0
