"""Usage rows go, and the books are as provable as before: counters, ledger and rollups to the nano-dollar."""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from support.billing import DOLLAR, attempt_at, target

from gateway import ids
from gateway.billing.ledger_close import COMPARED_KEY, LedgerClose, closed_until_us
from gateway.billing.reconciliation import MARKED, doctor
from gateway.clock import DAY_US
from gateway.configuration.settings import SettingsError
from gateway.errors import Unavailable
from gateway.metering.rollups import purge as module
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.purge import UsagePurge
from gateway.store.documents import Documents


class Books:
    """A billing process with its rollups, closing of hours and purge, some days from now."""

    def __init__(self, start_billing, account) -> None:
        self.start_billing, self.account, self.database = start_billing, account, start_billing.database
        start_billing.database.bind()
        account.teams = ((ids.new("team"), "Research"),)
        start_billing.ledger.grant(account.organization, DOLLAR, "start")
        self.rollups = Rollups(start_billing.database)
        self.hours = LedgerClose(start_billing.database, Documents(start_billing.database), start_billing.ledger)
        self.purge = self.keep_rows(3)
        self.ahead_us = 0
        now = start_billing.database.now_us
        start_billing.database.now_us = lambda: now() + self.ahead_us
        self.rollups.catch_up()

    def keep_rows(self, days: int) -> UsagePurge:
        return UsagePurge(self.database, self.start_billing.clock, days, MARKED, lambda: closed_until_us(self.database))

    def spend(
        self, used, hours_later: int = 0, source: str = "platform", retries: int = 0, posted: bool = True
    ) -> None:
        start_us = self.start_billing.clock.now_us()
        place = target(source)
        settlement = self.start_billing.admit(self.account, credits=source == "platform")
        for number in range(retries + 1):
            attempt = attempt_at(place, number, usage=used, finish="stop")
            attempt.at_us += hours_later * 3_600_000_000
            settlement.begin(number, place)
            if number < retries:
                settlement.failed(attempt)
            else:
                settlement.settle(attempt)
        settlement.close()
        self.start_billing.rest()
        if posted:
            shift = "UPDATE usage SET posted_at = posted_at + ? WHERE posted_at >= ? AND posted_at < ?"
            self.run(shift, self.ahead_us, start_us, start_us + DAY_US)

    def close(self) -> int:
        self.rollups.catch_up()
        return self.hours.close()

    def run(self, sql: str, *params):
        return self.database.write(lambda: self.database.execute(sql, params).rowcount)

    def count(self, table: str) -> int:
        return self.database.read(lambda: self.database.execute(f"SELECT COUNT(*) FROM {table}").fetchone()[0])

    def adjustments(self) -> list[int]:
        entries = self.start_billing.ledger.entries(self.account.organization)
        return [entry.amount_nusd for entry in entries if entry.kind == "adjustment"]


@pytest.fixture
def books(start_billing, account, used):
    """Seven requests in three hours, closed, five days ago."""
    process = Books(start_billing(), account)
    process.start_another = start_billing
    for hour in (0, 0, 1, 1, 2):
        process.spend(used, hour)
    process.spend(used, 1, retries=1)
    process.spend(used, 1, source="byok")
    process.close()
    process.ahead_us = 5 * DAY_US
    assert process.close() == 0
    assert doctor(process.database) == []
    yield process
    del process.database.now_us


@pytest.fixture
def unposted(start_billing, account, used):
    """Two requests in an hour that was not over when the ledger closed last, five days ago."""
    process = Books(start_billing(), account)
    process.close()
    process.spend(used)
    process.spend(used, retries=1)
    process.run("UPDATE usage SET at = ?, posted_at = ?", process.database.now_us(), process.database.now_us() - 1)
    process.ahead_us = 5 * DAY_US
    process.rollups.catch_up()
    yield process
    del process.database.now_us


def test_rows_stay_until_the_ledger_has_posted_their_hour(unposted):
    assert unposted.purge.run() == 0 and unposted.count("usage") == 3
    assert unposted.close() == 60_000
    assert unposted.purge.run() == 3 and unposted.count("usage") == 0
    assert unposted.close() == 0 and doctor(unposted.database) == []


def test_a_late_row_that_is_removed_before_the_ledger_closes_again_is_posted(books, used):
    books.spend(used, 1)
    books.rollups.catch_up()
    assert books.purge.run() == 9 and books.count("usage") == 0
    assert books.close() == 20_000 and books.adjustments() == [-20_000]
    assert doctor(books.database) == [] and books.close() == 0


def test_a_ledger_that_lacks_removed_rows_is_repaired(unposted):
    """Earlier releases removed rows before their hour was posted, and did not look at a removed hour again."""
    unposted.purge._closed_until = unposted.database.now_us
    assert unposted.purge.run() == 3
    assert unposted.close() == 0
    unposted.run("DELETE FROM document WHERE key = ?", COMPARED_KEY)
    assert any("ledger usage 0" in problem for problem in doctor(unposted.database))
    assert unposted.close() == 60_000
    assert doctor(unposted.database) == [] and unposted.close() == 0


def test_after_a_purge_the_books_agree_and_one_nano_dollar_is_reported_still(books):
    assert books.purge.run() == 8
    assert books.count("usage") == books.count("team_usage") == 0 and books.count("removed_spend") > 0
    assert books.close() == 0 and doctor(books.database) == []
    for scope in ("key", "member", "team"):
        for step, reported in ((1, True), (-2, True), (1, False)):
            books.run(f"UPDATE budget SET settled_nusd = settled_nusd + {step} WHERE scope = '{scope}'")
            assert any("counter" in problem for problem in doctor(books.database)) == reported, scope


def test_a_row_that_comes_for_a_purged_hour_is_booked_and_the_purged_rest_is_not_booked_back(books, used):
    books.purge.run()
    books.spend(used, 1)  # of a node that is back after weeks
    assert books.close() == 20_000
    assert books.adjustments() == [-20_000]
    assert doctor(books.database) == []
    assert books.close() == 0 and doctor(books.database) == []
    books.ahead_us += 5 * DAY_US
    books.close()
    assert books.purge.run() == 1
    assert books.close() == 0 and doctor(books.database) == [] and books.adjustments() == [-20_000]


def test_a_worker_that_dies_after_its_rows_were_removed_is_not_billed_for_them_again(books):
    """The intent file names every call since the worker began, including calls with removed rows."""
    books.purge.run()
    books.start_billing.die()
    assert books.start_another().recovery.run() == 0
    assert books.count("usage") == 0 and doctor(books.database) == []


def test_an_hour_that_is_purged_by_half_is_no_difference_and_can_be_computed_again(books, used, monkeypatch):
    monkeypatch.setattr(module, "STEP_ROWS", 3)
    monkeypatch.setattr(module, "ROUND_STEPS", 1)
    assert books.purge.run() == 3
    assert 0 < books.count("usage") < 8 and doctor(books.database) == []
    books.spend(used, 0)
    assert books.close() == 20_000
    assert books.rollups.rebuild(0, 10**6) >= 3
    assert doctor(books.database) == [] and books.adjustments() == [-20_000]
    rows = books.database.read(lambda: books.database.execute("SELECT request FROM usage").fetchall())
    books.run("DELETE FROM usage WHERE request = ?", bytes(rows[0][0]))
    assert doctor(books.database)


class Breaking:
    """A store that fails its next write, before the transaction or after its commit; for a single user."""

    def __init__(self, database, after: bool) -> None:
        self._database, self._after = database, after

    def __getattr__(self, name: str):
        return getattr(self._database, name)

    def write(self, work, patient=False):
        if self._after:
            self._database.write(work, patient)
        raise Unavailable("injected")


def test_a_purge_that_breaks_in_the_middle_loses_and_doubles_nothing(books, monkeypatch):
    monkeypatch.setattr(module, "STEP_ROWS", 2)
    calls = 0
    while books.count("usage"):
        calls += 1
        books.purge._database = Breaking(books.database, after=calls % 2 == 1)
        with pytest.raises(Unavailable):
            books.purge.run()
        books.purge._database = books.database
        assert doctor(books.database) == []
        books.purge.run(lambda counted=iter([True]): next(counted, False))
    assert calls > 1 and books.close() == 0 and doctor(books.database) == []


def test_spending_of_a_limited_provider_key_is_compared_after_its_rows_are_removed(books, used):
    ident = ids.new("pkey")
    extra = f'{{"provider_key":"{ident}","bounded":true}}'
    row = "SELECT request, attempt, kind FROM usage WHERE mode = 1"
    (found,) = books.database.read(lambda: books.database.execute(row).fetchall())
    books.run("UPDATE usage SET extra = ? WHERE mode = 1", extra)
    insert = "INSERT INTO budget (id, scope, scope_id, kind, settled_nusd, leased_nusd, period, generation)"
    books.run(f"{insert} VALUES (?, 'provider_key', ?, 'total', 20000, 0, '', 0)", f"{ident}:total", ident)
    assert found and doctor(books.database) == []
    books.purge.run()
    assert doctor(books.database) == []
    books.run("UPDATE budget SET settled_nusd = 19999 WHERE scope = 'provider_key'")
    assert len(doctor(books.database)) == 1


def test_a_row_that_goes_unnoticed_is_reported_once_it_is_gone(books, used):
    books.spend(used, posted=False)  # behind the watermark, and removed before the next comparison
    assert books.purge.run() == 9
    assert doctor(books.database)
    books.rollups.catch_up()
    assert books.hours.close() == 0 or books.adjustments()
    assert [problem for problem in doctor(books.database) if "rollup" in problem] == []


def test_nothing_goes_where_rows_are_kept_for_ever_or_are_young(books):
    assert books.keep_rows(0).run() == 0
    assert books.keep_rows(6).run() == 0
    with pytest.raises(SettingsError, match="at least 3"):
        books.keep_rows(2)


STEPS = ["spend", "spend", "spend late", "close", "purge", "purge a little", "rebuild", "days"]


@pytest.mark.extended
@settings(max_examples=8, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(st.sampled_from(STEPS), min_size=3, max_size=9))
@pytest.mark.slow
def test_any_sequence_of_removals_late_rows_rebuilding_and_closing_leaves_doctor_silent(books, used, steps):
    for step in steps:
        act(books, used, step)
    books.close()
    assert doctor(books.database) == []


def act(books: Books, used, step: str) -> None:
    if step == "days":
        books.ahead_us += 4 * DAY_US
        books.rollups.catch_up()
    elif step.startswith("spend"):
        books.spend(used, 1 if step.endswith("late") else 0, retries=len(step) % 2)
    elif step == "close":
        books.close()
    elif step == "rebuild":
        books.rollups.rebuild(0, 10**6)
    else:
        with pytest.MonkeyPatch.context() as patch:
            if step.endswith("little"):
                patch.setattr(module, "STEP_ROWS", 2)
                patch.setattr(module, "ROUND_STEPS", 1)
            books.purge.run()


def test_a_partition_that_is_old_is_dropped_whole(books, used):
    if books.database.kind != "postgresql":
        pytest.skip("SQLite has no partitions")
    books.purge.partitions.keep_ready()
    first = books.purge.partitions.ranges()[0]
    books.ahead_us = 20 * DAY_US
    books.close()
    deleted = books.purge._delete
    books.purge._delete = lambda *_: 0  # what is dropped is not deleted
    books.purge.run()
    assert books.count("usage") == books.count("team_usage") == 0
    assert first.name not in {one.name for one in books.purge.partitions.ranges()}
    assert books.close() == 0 and doctor(books.database) == []
    books.spend(used, 1)
    assert books.close() == 20_000 and doctor(books.database) == [] and books.adjustments() == [-20_000]
    books.purge._delete = deleted
    books.ahead_us += 5 * DAY_US
    books.close()
    assert books.purge.run() == 1 and doctor(books.database) == []


def test_a_row_that_came_unnoticed_keeps_its_partition_until_it_is_counted(books, used):
    if books.database.kind != "postgresql":
        pytest.skip("SQLite has no partitions")
    books.purge.partitions.keep_ready()
    books.ahead_us = 20 * DAY_US
    books.close()
    books.purge._delete = lambda *_: 0
    copy = "INSERT INTO usage SELECT * FROM usage WHERE attempt = 0 LIMIT 1"
    books.run("CREATE TABLE spare AS SELECT * FROM usage WHERE attempt = 0 LIMIT 1")
    books.run("UPDATE spare SET attempt = 9, cost_nusd = 0")
    books.run(copy.replace("usage WHERE attempt = 0 LIMIT 1", "spare"))
    with pytest.raises(Unavailable):
        books.purge.run()
    assert books.count("usage") == 9
    books.rollups.catch_up()
    books.purge.run()
    assert books.count("usage") == 0 and doctor(books.database) == []


def test_removing_rests_for_most_of_the_time_and_never_for_long(books, monkeypatch) -> None:
    """Or one commit in a hundred of others would find the writer held."""
    pauses: list[float] = []
    monkeypatch.setattr(module, "MAX_LOAD", 1 / 100)
    monkeypatch.setattr(module, "pause", pauses.append)
    moments = iter([0.0, 0.02, 10.0, 10.5, 20.0])
    monkeypatch.setattr(books.purge._clock, "monotonic", lambda: next(moments))
    counts = iter([2_500, 10, None])
    assert books.purge._repeat(lambda: next(counts), lambda: True) == 2_510
    assert pauses == [pytest.approx(1.98), 5.0]
