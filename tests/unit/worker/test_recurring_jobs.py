import ast
import re
from pathlib import Path
from types import SimpleNamespace

import gevent
import pytest

from gateway import errors
from gateway.admin import sso_sign_in
from gateway.control.leadership import TERM_DURATION_S, Leadership
from gateway.control.version import Control
from gateway.oauth import clients
from gateway.runtime.fair_threads import native_id
from gateway.runtime.loop_turns import always
from gateway.store.documents import Documents
from gateway.telemetry.gauges import job_rows
from gateway.worker import recurring_jobs
from gateway.worker.recurring_jobs import JOB_TABLE, Background, NodeLock, RecurringJob, Scope, read_report

PACKAGE = Path(__file__).resolve().parents[3] / "gateway"


class Counted:
    def __init__(self):
        self.runs = 0

    def __call__(self, services, wanted):
        self.runs += services


@pytest.fixture
def run_table(database_url, open_store, clock, tmp_path):
    """Return a function that makes the background of one more worker on `node`."""
    made = []

    def make(*table, node="n", services=1):
        store = open_store(database_url)
        control = Control(store, clock, node=node)
        control.start()
        leadership = Leadership(store, control, clock)
        lock = NodeLock(tmp_path / node / "background.lock")
        made.append((Background(table, services, leadership, lock, clock, Documents(store)), control))
        return made[-1][0]

    yield make
    for background, control in made:
        background.stop()
        control.stop()


def job(function, every_s=0.1, scope=Scope.INSTALLATION, name="count"):
    return RecurringJob(name, every_s, scope, function, first_s=0.1)


def wait(condition, seconds=60.0):
    with gevent.Timeout(seconds, RuntimeError("it did not happen")):
        while not condition():
            gevent.sleep(0.02)


@pytest.mark.extended
def test_only_the_leader_does_the_work_of_the_installation_and_another_takes_over(run_table):
    works = [Counted(), Counted()]
    first, second = (run_table(job(work), node=f"n{number}") for number, work in enumerate(works))
    first.start()
    wait(lambda: works[0].runs > 1)
    second.start()
    gevent.sleep(0.3)
    assert second.leadership.leading() is False and works[1].runs == 0
    first.stop()
    wait(lambda: works[1].runs > 0)
    assert second.leadership.epoch > 1


def test_the_scheduler_is_imported_outside_the_thread_of_the_event_loop(run_table, monkeypatch):
    imported = recurring_jobs.scheduling
    used_in = []

    class Scheduling:
        @property
        def GeventScheduler(self):
            used_in.append(native_id())
            return imported.GeventScheduler

    monkeypatch.setattr(recurring_jobs, "scheduling", Scheduling())
    work = Counted()
    run_table(job(work)).start()
    wait(lambda: work.runs > 0)
    assert used_in and native_id() not in used_in


@pytest.mark.slow
def test_one_worker_of_each_node_does_the_work_of_a_node(run_table):
    works = [Counted(), Counted(), Counted()]
    workers = [
        run_table(job(work, scope=Scope.NODE), node=node)
        for work, node in zip(works, ("here", "here", "there"), strict=True)
    ]
    workers[0].start()
    wait(lambda: works[0].runs > 0)
    workers[1].start()
    workers[2].start()
    wait(lambda: works[2].runs > 1)
    assert works[1].runs == 0
    workers[0].stop()
    wait(lambda: works[1].runs > 0)


def test_every_worker_does_its_own_work(run_table):
    works = [Counted(), Counted()]
    for work in works:
        run_table(job(work, scope=Scope.WORKER)).start()
    wait(lambda: all(work.runs > 1 for work in works))


def test_a_leader_that_cannot_renew_stops_its_jobs(run_table, clock):
    work = Counted()
    background = run_table(job(work))
    background.start()
    wait(lambda: work.runs > 0)
    background.leadership._stopping.set()
    clock.advance(TERM_DURATION_S + 0.1)
    before = work.runs
    gevent.sleep(0.3)
    assert work.runs == before


def test_work_of_many_steps_is_reported_when_its_worker_leads_no_more(run_table, clock):
    told = []

    def long(services, wanted):
        told.append(wanted())
        clock.advance(TERM_DURATION_S + 0.1)
        told.append(wanted())

    run_table(job(long, every_s=3600)).start()
    wait(lambda: len(told) == 2, 12)
    assert told == [True, False]


def test_work_of_many_steps_is_reported_when_its_worker_leaves(run_table):
    told = []

    def long(services, wanted):
        told.append(wanted())
        while wanted():
            gevent.sleep(0.01)
        told.append(False)

    background = run_table(job(long, scope=Scope.WORKER))
    background.start()
    wait(lambda: told)
    background.stop()
    assert told == [True, False]


def test_a_job_that_fails_is_run_again_and_its_trouble_is_known(run_table, caplog):
    runs = []

    def fail(services, wanted):
        runs.append(services)
        raise RuntimeError("no")

    background = run_table(job(fail))
    background.start()
    wait(lambda: len(runs) > 2)
    (report,) = background.reports()
    assert report.error == "RuntimeError" and report.at_us > 0
    assert sum("the job count failed" in record.getMessage() for record in caplog.records) == 1


def test_when_a_job_last_went_well_is_distinguished_from_when_it_was_done_last(run_table, clock):
    runs = []

    def fail_later(services, wanted):
        runs.append(services)
        if len(runs) > 1:
            raise RuntimeError("no")

    background = run_table(job(fail_later))
    assert job_rows(background.reports()) == []
    background.start()
    wait(lambda: background.reports()[0].good_us)
    good_s = {name: value for name, _, value in job_rows(background.reports())}["job_last_success_timestamp_seconds"]
    wait(lambda: len(runs) > 2 and background.reports()[0].error)
    told = {name: value for name, labels, value in job_rows(background.reports()) if labels == ("count",)}
    assert told["job_last_success_timestamp_seconds"] == good_s < told["job_last_run_timestamp_seconds"]
    assert told["job_failing"] == 1


def test_a_job_that_finds_no_store_is_run_again_without_a_fuss(run_table, caplog):
    runs = []

    def fail(services, wanted):
        runs.append(services)
        raise errors.Unavailable("The store is down.")

    run_table(job(fail)).start()
    wait(lambda: len(runs) > 2)
    told = [record for record in caplog.records if "store is down" in record.getMessage()]
    assert told and not any(record.exc_info for record in told)


def test_a_slow_job_never_runs_twice_at_once(run_table):
    running, maximum = [], []

    def slow(services, wanted):
        running.append(1)
        maximum.append(len(running))
        gevent.sleep(0.15)
        running.pop()

    run_table(job(slow, every_s=0.05)).start()
    wait(lambda: len(maximum) > 2)
    assert max(maximum) == 1


def test_one_job_can_be_run_by_hand(run_table):
    work = Counted()
    background = run_table(job(work, every_s=3600))
    background.run("count")
    assert work.runs == 1
    with pytest.raises(errors.NotFound, match="count"):
        background.run("other")


def test_the_last_round_of_rare_work_is_known_to_other_processes(run_table, database):
    work = Counted()
    background = run_table(job(work, every_s=600, name="rare"))
    assert read_report(Documents(database), "rare") is None
    background._run_once(background._table["rare"])
    assert read_report(Documents(database), "rare") == background.reports()[0]


def test_the_table_names_each_job_once_and_every_scope():
    names = [one.name for one in JOB_TABLE]
    assert len(set(names)) == len(names) and {one.scope for one in JOB_TABLE} == set(Scope)


@pytest.mark.parametrize("one", JOB_TABLE, ids=lambda one: one.name)
def test_every_job_of_the_table_calls_a_part_of_the_worker(one, tmp_path):
    """Run on services that accept any call of a name that `Services` has."""
    from gateway.worker.services import Services

    class Nothing(int):
        """Zero, and a list without rows."""

        def __iter__(self):
            return iter(())

        def __len__(self):
            return 0

    class Anything:
        def __getattr__(self, name):
            return Anything()

        def __call__(self, *args):
            return Nothing()

        def __sub__(self, other):
            return 0

        def __mul__(self, other):
            return 0

    fields = Services.__dataclass_fields__
    one.function(SimpleNamespace(**{name: Anything() for name in fields}), lambda: True)


# Loops beside the table, with their reasons.
OWN_LOOPS = {
    "worker/recurring_jobs.py": "runs the table",
    "control/version.py": "the worker's own row and the version: what all else depends on, and what must not wait",
    "control/leadership.py": "the leader's row, which the table asks",
    "store/journal.py": "commits, which answers wait for",
}


def test_nothing_else_in_the_package_recurs_by_a_clock():
    found = set()
    for path in PACKAGE.rglob("*.py"):
        text = path.read_text()
        assert not re.search(r"\bchores?\b", text), path
        if not re.search(r"\bwhile\b", text) or not re.search(r"_stopping|pause", text):
            continue  # the module has no such loop, and parsing the whole package takes a second
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.While) and re.search(r"_stopping\.wait\(|pause\(\w*EVERY", ast.unparse(node)):
                found.add(path.relative_to(PACKAGE).as_posix())
    assert found <= set(OWN_LOOPS), found - set(OWN_LOOPS)


# Modules that start greenlets that do not belong to one request; all others start work that ends.
ENDING = {
    "admin/sign_in.py",
    "admin/account_mails.py",
    "application/starting.py",
    "engine/streaming.py",
    "jobs/response_jobs.py",  # until its response ends
    "runtime/disconnects.py",
    "engine/idempotency.py",
    "engine/payload_collection.py",
    "engine/unary.py",
    "engine/coalescing.py",
    "engine/gossip.py",
    "engine/realtime/session.py",
    "providers/google/live/upstream_connection.py",
    "providers/identities/upstream_identity.py",  # until a token is renewed
    "store/sqlite.py",
    "worker/recurring_jobs.py",  # runs of jobs
    "store/outage_journal.py",  # until its records are posted
    "store/shared_slots.py",
    "store/mailboxes.py",  # while a client listens
    "telemetry/agent_signals.py",  # until its exports are forwarded
    "surfaces/responses/routes.py",
}


def test_modules_that_start_greenlets_are_listed():
    using = {
        path.relative_to(PACKAGE).as_posix()
        for path in PACKAGE.rglob("*.py")
        if re.search(r"(?<![.\w])spawn\(", path.read_text()) and path.name != "threads.py"
    }
    assert using <= ENDING | set(OWN_LOOPS)


def test_documents_that_anyone_can_create_are_bounded(sqlite_database, monkeypatch) -> None:
    """Sign-ins that were begun, and metadata of clients that name themselves by an address."""
    documents = Documents(sqlite_database)
    kinds = (clients.KIND, sso_sign_in.KIND)
    for kind in (*kinds, "response_cache"):
        for number in range(4):
            documents.put(kind, str(number), b"{}", 60 + number)
    monkeypatch.setattr(recurring_jobs, "DOCUMENTS", dict.fromkeys(recurring_jobs.DOCUMENTS, 1))
    (job,) = (job for job in JOB_TABLE if job.name == "documents")
    job.function(SimpleNamespace(store=SimpleNamespace(documents=documents)), always)
    sql = "SELECT kind, count(*) FROM document GROUP BY kind"
    kept = dict(sqlite_database.read(lambda: sqlite_database.execute(sql).fetchall()))
    assert kept == {**dict.fromkeys(kinds, 1), "response_cache": 4}
