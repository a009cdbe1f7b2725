"""The schedule of the leading worker."""

import threading

import pytest

from gateway.clock import Clock
from gateway.worker.recurring_jobs import LeaderSchedule, ScheduledJob


@pytest.fixture
def schedule():
    made = LeaderSchedule(Clock())
    yield made
    made.end()


def test_a_scheduled_job_runs_again_after_its_interval(schedule) -> None:
    runs = threading.Semaphore(0)
    schedule.start(lambda: [ScheduledJob("videos", 1.0, 0.0, runs.release)])
    assert runs.acquire(timeout=60) and runs.acquire(timeout=60)


def test_a_second_start_schedules_nothing_again(schedule) -> None:
    schedule.start(lambda: [])
    schedule.start(lambda: pytest.fail("the jobs were scheduled twice"))


def test_no_run_starts_after_the_end_and_runs_in_progress_are_awaited(schedule) -> None:
    began, may_end = threading.Event(), threading.Event()
    ended = []

    def work() -> None:
        began.set()
        may_end.wait(60)
        ended.append(True)

    schedule.start(lambda: [ScheduledJob("rollups", 1.0, 0.0, work)])
    assert began.wait(60)
    schedule.end()
    may_end.set()
    schedule.wait_until(float("inf"))
    assert ended == [True]


@pytest.mark.slow
def test_frequent_jobs_run_at_their_own_intervals(schedule) -> None:
    runs: list[str] = []
    enough = threading.Event()

    def note(name: str, maximum: int) -> None:
        runs.append(name)
        if runs.count(name) >= maximum:
            enough.set()

    schedule.start(
        lambda: [
            ScheduledJob("videos", 1.0, 0.0, lambda: note("videos", 6)),
            ScheduledJob("mail", 2.0, 1.0, lambda: note("mail", 99)),
        ]
    )
    assert enough.wait(60)
    assert 2 <= runs.count("mail") <= 3


@pytest.mark.slow
def test_a_frequent_job_in_progress_is_not_started_again_and_delays_no_other(schedule) -> None:
    began: list[str] = []
    may_end, enough = threading.Event(), threading.Event()

    def slow() -> None:
        began.append("slow")
        may_end.wait(60)

    def quick() -> None:
        began.append("quick")
        if began.count("quick") >= 3:
            enough.set()

    schedule.start(lambda: [ScheduledJob("slow", 1.0, 0.0, slow), ScheduledJob("quick", 1.0, 0.0, quick)])
    assert enough.wait(60)
    assert began.count("slow") == 1
    may_end.set()
    schedule.end()
    schedule.wait_until(float("inf"))
