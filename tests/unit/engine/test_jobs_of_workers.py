"""A job that outlives its worker: one hold, one usage row, one cost, whichever worker ends it."""

import pytest
from support.billing import DOLLAR, attempt_at, request_of, target

from gateway.billing.context import terms_of
from gateway.billing.output_reservation import bill
from gateway.billing.reconciliation import doctor
from gateway.billing.usage_rows import mode_of, record_of
from gateway.limits.cost_bound import CostBound, Payer
from gateway.limits.holds import Holds
from gateway.metering.usage_table import find, write_row

BOUND = CostBound(1_000_000, 0, 0, True)
COST = 20_000


class VideoJob:
    """A poller of a slow job queries the provider, and ends the hold with the row when the job is done."""

    def __init__(self, context, payer: Payer, used) -> None:
        self.context, self.payer, self.used = context, payer, used

    def submit(self, process) -> None:
        Holds(process.database).place(self.context.request_id, self.payer, BOUND)

    def finish(self, process) -> bool:
        terms = terms_of(self.context, request_of())
        attempt = attempt_at(target(), usage=self.used, finish="stop")
        cost_nusd = bill(terms, attempt, 0).total
        statement, values = write_row(record_of(terms, attempt, mode_of(target()), process.database.now_us()))
        return Holds(process.database).settle(
            self.context.request_id, cost_nusd, True, lambda: process.database.execute(statement.sql, values)
        )


@pytest.fixture
def job(account, used):
    context = account.context()
    return VideoJob(context, Payer(account.key, account.member, account.organization, True), used)


def settled(process, account):
    sql = "SELECT settled_nusd, leased_nusd FROM budget WHERE id = ?"
    key = (f"{account.organization}:credits",)
    return tuple(process.database.read(lambda: process.database.execute(sql, key).fetchone()))


def test_a_job_outlives_the_worker_that_submitted_it_and_counts_once(start_billing, account, job):
    first, heir = start_billing(), start_billing()
    first.ledger.grant(account.organization, DOLLAR, "start")
    job.submit(first)
    first.die()
    heir.recovery.run()
    heir.recovery.sweep_lost()
    assert settled(heir, account) == (0, BOUND.bound_nusd) and doctor(heir.database) == []
    assert [job.finish(heir), job.finish(heir)] == [True, False]
    assert settled(heir, account) == (COST, 0)
    assert [row.cost_nusd for row in find(heir.database, job.context.request_id)] == [COST]
    assert doctor(heir.database) == []


def test_a_worker_that_dies_while_it_ends_a_job_leaves_it_to_the_next(start_billing, account, job):
    first, heir = start_billing(), start_billing()
    first.ledger.grant(account.organization, DOLLAR, "start")
    job.submit(first)
    sql = "INSERT INTO no_such_table VALUES (1)"
    with pytest.raises(Exception, match="no_such_table"):
        Holds(first.database).settle(job.context.request_id, COST, True, lambda: first.database.execute(sql))
    first.die()
    assert job.finish(heir) and settled(heir, account) == (COST, 0) and doctor(heir.database) == []


@pytest.mark.parametrize("sql", ["DELETE FROM hold", "DELETE FROM lease WHERE hold IS NOT NULL"])
def test_doctor_finds_a_hold_without_leases_and_leases_without_a_hold(start_billing, account, job, sql):
    process = start_billing()
    process.ledger.grant(account.organization, DOLLAR, "start")
    job.submit(process)
    assert doctor(process.database) == []
    process.database.write(lambda: process.database.execute(sql))
    assert any("held for a job" in problem for problem in doctor(process.database))
