"""The schedule of the leading worker."""

import threading

import pytest

from gateway.clock import Clock
from gateway.worker.leader_schedule import LeaderSchedule, ScheduledJob


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
