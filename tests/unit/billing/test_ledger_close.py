"""The spending of an hour is posted exactly once after its end, and late rows as corrections."""

import pytest
from support.billing import DOLLAR, attempt_at, target
from support.statement_work import count_steps, note_statements
from support.usage import insert_rows, usage_row

from gateway.billing.ledger_close import HOUR_US, LedgerClose
from gateway.billing.reconciliation import doctor
from gateway.errors import Unavailable
from gateway.metering.models import CREDITS
from gateway.metering.rollups.job import Rollups
from gateway.metering.usage_table import raw_id
from gateway.store.documents import Documents

BEGAN_US = 1_750_000_000_000_000  # 2025-06-15T15:06:40Z, when the attempts of conftest begin


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, DOLLAR, "start")
    return started


@pytest.fixture
def hours(process):
    return LedgerClose(process.database, Documents(process.database), process.ledger)


def spend(process, account, used, at_us=BEGAN_US):
    settlement = process.admit(account)
    attempt = attempt_at(target(), usage=used, finish="stop")
    attempt.at_us = at_us
    settlement.begin(0, target())
    settlement.settle(attempt)
    settlement.close()


def entries(process, account):
    booked = [(entry.kind, entry.amount_nusd) for entry in process.ledger.entries(account.organization)]
    return sorted(entry for entry in booked if entry[0] != "grant")


def test_an_hour_is_not_closed_while_its_answers_may_still_be_on_their_way(process, hours, account, used):
    spend(process, account, used, process.database.now_us())
    spend(process, account, used, process.database.now_us() - HOUR_US)
    assert hours.close() == 0 and entries(process, account) == []


def test_spending_is_posted_once_when_the_hour_is_over(process, hours, account, used):
    spend(process, account, used)
    spend(process, account, used)
    assert hours.close() == 40_000
    assert hours.close() == 0
    assert entries(process, account) == [("usage", -40_000)]
    assert process.ledger.entries(account.organization)[0].ref == f"{account.organization}:2025-06-15T15"
    assert doctor(process.database) == []


def test_a_row_that_comes_late_is_booked_as_a_correction(process, hours, account, used):
    spend(process, account, used)
    hours.close()
    spend(process, account, used)  # as the recovery records an attempt of long ago
    assert any("hour" in problem for problem in doctor(process.database))
    assert hours.close() == 20_000
    assert entries(process, account) == [("adjustment", -20_000), ("usage", -20_000)]
    assert doctor(process.database) == []


def test_a_row_that_waited_for_hours_on_a_node_that_was_cut_off_is_booked(process, hours, account, used):
    """Other nodes sum up and close hours meanwhile; the node's journal marks its late commit."""
    rollups, since_us = Rollups(process.database), process.clock.now_us() - 5 * HOUR_US
    rollups.catch_up()
    hours.close()
    settlement = process.admit(account)
    attempt = attempt_at(target(), usage=used, finish="stop")
    settlement.begin(0, target())
    process.clock.set(since_us)
    attempt.at_us = since_us
    process.fail_once(after=False)
    settlement.settle(attempt)
    process.clock.set(since_us + 5 * HOUR_US)
    settlement.close()
    assert hours.close() == 0 and any("ledger usage 0" in problem for problem in doctor(process.database))
    found_us = process.clock.now_us()
    assert hours.close_late(found_us) == 0
    rollups.advance()
    assert hours.close_late(found_us) == 20_000 and hours.close_late(found_us) == hours.close() == 0
    assert entries(process, account) == [("usage", -20_000)]
    process.clock.advance(1)
    rollups.catch_up()
    assert doctor(process.database) == []


def test_spending_of_a_closed_hour_that_no_entry_books_is_reported(process, hours, account, used):
    hours.close()
    spend(process, account, used)
    process.database.write(
        lambda: process.database.execute("UPDATE usage SET posted_at = at")
    )  # so that nothing notices it
    assert hours.close() == 0 and entries(process, account) == []
    hour = BEGAN_US // HOUR_US
    expected = f"{account.organization.removeprefix('org_')} hour {hour}: ledger usage 0, usage rows 0.00002"
    assert doctor(process.database) == [expected]


def test_hours_are_closed_although_the_clock_was_ahead_at_the_last_round(process, hours, account, used, monkeypatch):
    now_us = process.database.now_us
    monkeypatch.setattr(process.database, "now_us", lambda: now_us() + 1000 * HOUR_US)
    hours.close()
    monkeypatch.undo()
    spend(process, account, used)
    assert hours.close() == 20_000 and doctor(process.database) == []


def test_a_row_is_booked_although_a_clock_that_was_ahead_was_set_right_before_it_was_recorded(
    process, hours, account, used
):
    spend(process, account, used)
    back = "UPDATE usage SET posted_at = at - ?"
    process.database.write(lambda: process.database.execute(back, (2 * HOUR_US,)))
    assert hours.close() == 20_000 and doctor(process.database) == []


def test_hours_that_were_not_closed_in_time_are_closed_in_one_round(process, hours, account, used):
    for number in range(4):
        spend(process, account, used, BEGAN_US + number * HOUR_US)
    assert hours.close() == 80_000
    assert len(entries(process, account)) == 4 and doctor(process.database) == []


def test_a_round_that_is_cut_short_is_done_by_the_next(process, hours, account, used):
    for number in range(2):
        spend(process, account, used, BEGAN_US + number * HOUR_US)
    answers = iter([True, False])
    with pytest.raises(Unavailable):
        hours.close(lambda: next(answers))
    assert hours.close() == 20_000
    assert len(entries(process, account)) == 2


def test_calls_with_own_keys_are_not_posted(process, hours, account, used):
    settlement = process.admit(account, credits=False)
    settlement.begin(0, target("byok"))
    settlement.settle(attempt_at(target("byok"), usage=used, finish="stop"))
    settlement.close()
    assert hours.close() == 0 and entries(process, account) == []


@pytest.mark.parametrize("late", [False, True], ids=["recorded at once", "recorded a year later"])
@pytest.mark.slow
def test_the_work_to_close_many_hours_grows_linearly_with_the_rows(process, hours, account, late):
    """Re-rated rows are recorded later, for each hour of the past."""
    if process.database.kind != "sqlite":
        pytest.skip("counts the steps of SQLite's statements")
    fields = {"organization": raw_id(account.organization), "mode": CREDITS, "cost_nusd": 1}
    if late:
        fields["posted_at"] = BEGAN_US + 8_760 * HOUR_US
    steps = []
    for first, count in ((0, 200), (200, 800)):
        rows = [usage_row(BEGAN_US + (first + hour) * HOUR_US, **fields) for hour in range(count) for _ in range(10)]
        insert_rows(process.database, *rows)
        process.database.write(lambda: process.database.execute("DELETE FROM document"))
        with pytest.MonkeyPatch.context() as patch:
            noted = note_statements(patch)
            assert hours.close() == len(rows)
        reads = [(sql, params) for sql, params in noted if "FROM usage" in sql or "FROM removed_spend" in sql]
        steps.append(count_steps(process.database, reads))
    assert steps[1] < 5 * steps[0] * 1.5


def test_a_late_row_that_is_removed_during_the_round_is_posted_once(process, hours, account, used, monkeypatch):
    """It counts as late, and then as removed."""
    spend(process, account, used)  # recorded now, more than a day after its hour
    owner = account.organization.removeprefix("org_")
    sum_day = LedgerClose._sum_day

    def remove_first(self, *arguments):
        process.database.write(lambda: process.database.execute("DELETE FROM usage"))
        sql = "INSERT INTO removed_spend (kind, owner, hour, nusd) VALUES ('credits', ?, ?, 20000)"
        process.database.write(lambda: process.database.execute(sql, (owner, BEGAN_US // HOUR_US)))
        monkeypatch.setattr(LedgerClose, "_sum_day", sum_day)
        return sum_day(self, *arguments)

    monkeypatch.setattr(LedgerClose, "_sum_day", remove_first)
    with pytest.raises(Unavailable, match="removed"):
        hours.close()
    assert hours.close() == 20_000
    assert entries(process, account) == [("usage", -20_000)]
