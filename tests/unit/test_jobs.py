import gevent
import pytest

from gateway import errors
from gateway.control import Control
from gateway.jobs import TERM_S, Jobs, RecurringJob


class Counted:
    def __init__(self):
        self.runs = 0

    def __call__(self, services):
        self.runs += services


@pytest.fixture
def make_jobs(database_url, open_store, clock):
    made = []

    def make(*table):
        store = open_store(database_url)
        control = Control(store, clock, node=f"n{len(made)}")
        control.start()
        made.append(Jobs(store, control, clock, table, services=1))
        return made[-1]

    yield make
    for jobs in made:
        jobs.stop()
        jobs._control.stop()


def _wait(condition, seconds=4.0):
    with gevent.Timeout(seconds, RuntimeError("it did not happen")):
        while not condition():
            gevent.sleep(0.02)


def test_only_the_leader_works_and_another_takes_over(make_jobs):
    works = [Counted(), Counted()]
    first, second = (make_jobs(RecurringJob("count", 0.1, work)) for work in works)
    first.start()
    _wait(lambda: works[0].runs > 1)
    second.start()
    gevent.sleep(0.3)
    assert second.leading() is False and works[1].runs == 0
    first.stop()
    _wait(lambda: works[1].runs > 0)
    assert second.epoch > 1


def test_a_leader_that_cannot_renew_stops_its_jobs(make_jobs, clock):
    work = Counted()
    jobs = make_jobs(RecurringJob("count", 0.1, work))
    jobs._campaign()
    _wait(lambda: work.runs > 0)
    clock.advance(TERM_S + 0.1)
    before = work.runs
    gevent.sleep(0.3)
    assert work.runs == before and not jobs.leading()
    jobs._resign()


def test_a_leader_that_was_overtaken_stops(make_jobs, database):
    jobs = make_jobs(RecurringJob("count", 0.1, Counted()))
    jobs._campaign()
    assert jobs.leading()
    database.write(lambda: database.execute("UPDATE leader SET epoch = epoch + 1, worker = 0"))
    jobs._campaign()
    assert not jobs.leading() and jobs._scheduler is None


def test_a_job_that_fails_is_run_again(make_jobs):
    runs = []

    def fail(services):
        runs.append(services)
        raise RuntimeError("no")

    make_jobs(RecurringJob("fail", 0.1, fail)).start()
    _wait(lambda: len(runs) > 2)


def test_a_job_that_finds_no_store_is_run_again_without_a_fuss(make_jobs, caplog):
    runs = []

    def fail(services):
        runs.append(services)
        raise errors.Unavailable("The store is away.")

    make_jobs(RecurringJob("fail", 0.1, fail)).start()
    _wait(lambda: len(runs) > 2)
    told = [record for record in caplog.records if "store is away" in record.getMessage()]
    assert told and not any(record.exc_info for record in told)


def test_a_slow_job_never_runs_twice_at_once(make_jobs):
    running, most = [], []

    def slow(services):
        running.append(1)
        most.append(len(running))
        gevent.sleep(0.15)
        running.pop()

    make_jobs(RecurringJob("slow", 0.05, slow)).start()
    _wait(lambda: len(most) > 2)
    assert max(most) == 1


def test_one_job_can_be_run_by_hand(make_jobs):
    work = Counted()
    jobs = make_jobs(RecurringJob("count", 3600, work))
    jobs.run("count")
    assert work.runs == 1
    with pytest.raises(errors.NotFound, match="count"):
        jobs.run("other")
