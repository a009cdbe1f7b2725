import gevent
import pytest
from support.fickle_database import Fickle

from gateway import errors
from gateway.runtime.send_batch import current_batch
from gateway.store.journal import UNTIMED_WAIT_S, Journal, Statement, forget_writers

INSERT = Statement("insert", "INSERT INTO entry (id, amount) VALUES (?, ?)")
SPEND = Statement("spend", "UPDATE total SET amount = amount + ? WHERE id = ?", exact=True)
ADD = Statement("add", "UPDATE total SET amount = amount + ? WHERE id = ?", sums=True)
SHARED = Statement("shared", "UPDATE total SET amount = amount + 1 WHERE id = ?", ordered=True)


@pytest.fixture
def store(database):
    def make():
        database.execute("CREATE TABLE entry (id INTEGER PRIMARY KEY, amount BIGINT NOT NULL)")
        database.execute("CREATE TABLE total (id INTEGER PRIMARY KEY, amount BIGINT NOT NULL)")
        database.execute_many("INSERT INTO total VALUES (?, 0)", [(n,) for n in range(50)])

    database.write(make)
    return database


@pytest.fixture
def journal(store, clock):
    journal = Journal(store, clock)
    yield journal
    journal.close()


def _sum(store, table="entry"):
    return store.read(lambda: store.execute(f"SELECT coalesce(sum(amount), 0) FROM {table}").fetchone()[0])


@pytest.fixture
def fickle(store):
    return Fickle(store)


@pytest.fixture
def shaky(fickle, clock):
    journal = Journal(fickle, clock)
    yield journal
    fickle.away = False
    journal.close()


def test_rows_are_durable_when_the_ticket_returns(store, journal):
    journal.append((INSERT, (1, 5)), (SPEND, (5, 0))).wait(60)
    assert (_sum(store), _sum(store, "total")) == (5, 5)


def test_appends_during_a_commit_share_the_next_one(store, journal):
    tickets = [journal.append((INSERT, (n, 1))) for n in range(300)]
    for ticket in tickets:
        ticket.wait(60)
    assert _sum(store) == 300
    assert journal.commits <= 2
    assert journal.pending == 0


def test_those_who_are_ready_to_run_join_the_commit(store, journal, monkeypatch):
    monkeypatch.setattr("gateway.store.journal.GATHER_S", 2.0)  # a busy machine takes longer than five milliseconds

    def work(number):
        for _ in range(20):
            gevent.sleep(0)
        journal.append((INSERT, (number, 1))).wait(60)

    first = journal.append((INSERT, (0, 1)))
    gevent.joinall([gevent.spawn(work, number) for number in range(1, 9)])
    assert first.posted() and _sum(store) == 9
    assert journal.commits == 1


def test_a_lone_entry_after_a_lone_commit_waits_for_no_other_greenlet(store, journal, monkeypatch):
    monkeypatch.setattr("gateway.store.journal.GATHER_S", 600.0)
    journal.append((INSERT, (0, 1))).wait(60)
    ended = []

    def stay_busy():
        while not ended:
            gevent.sleep(0)

    busy = gevent.spawn(stay_busy)
    gevent.sleep(0)
    journal.append((INSERT, (1, 1))).wait(60)
    ended.append(True)
    busy.join()
    assert journal.commits == 2 and _sum(store) == 2


@pytest.mark.parametrize(("entries", "together"), [(2, False), (3, True)])
def test_answers_of_several_requests_are_sent_together_and_that_of_a_lone_one_at_once(journal, entries, together):
    tickets = [journal.append((INSERT, (number, 1))) for number in range(entries)]
    tickets[0].wait(60)
    assert current_batch().is_open is together


def test_a_process_that_is_never_idle_commits_all_the_same(fickle, shaky):
    fickle.away = True
    shaky.append((INSERT, (1, 1)))
    with gevent.Timeout(60):
        while not fickle.attempts:
            gevent.sleep(0)


def test_a_bad_entry_sinks_alone(store, journal):
    tickets = [journal.append((INSERT, (n, 1)), (SPEND, (1, 0))) for n in (1, 2, 3, 2, 4, 5)]
    failed = []
    for number, ticket in enumerate(tickets):
        try:
            ticket.wait(60)
        except errors.Unavailable:
            failed.append(number)
    assert failed == [3]
    assert (_sum(store), _sum(store, "total"), journal.failed) == (5, 5, 1)


def test_a_value_that_the_driver_cannot_take_sinks_alone(store, journal):
    bad = journal.append((INSERT, (1, object())))
    good = journal.append((INSERT, (2, 1)))
    good.wait(60)
    with pytest.raises(errors.Unavailable):
        bad.wait(60)


def test_an_exact_statement_refuses_a_row_that_is_gone(store, journal):
    lost = journal.append((INSERT, (1, 7)), (SPEND, (7, 99)))
    found = journal.append((INSERT, (2, 3)), (SPEND, (3, 0)))
    found.wait(60)
    with pytest.raises(errors.Unavailable):
        lost.wait(60)
    assert (_sum(store), _sum(store, "total")) == (3, 3)


def test_changes_of_one_id_are_summed(store, journal):
    journal.append((ADD, ((), 99))).wait(60)
    for ids, amount in (((5, 7), 10), ((7,), 3), ((), 99), ((9, 5), 1)):
        ticket = journal.append((ADD, (ids, amount)))
    ticket.wait(60)
    rows = store.read(lambda: store.execute("SELECT id, amount FROM total WHERE amount > 0 ORDER BY id").fetchall())
    assert [tuple(row) for row in rows] == [(5, 11), (7, 13), (9, 1)]


def test_entries_wait_for_a_store_that_is_away_and_then_post(store, fickle, shaky):
    fickle.away = True
    ticket = shaky.append((INSERT, (1, 1)))
    with pytest.raises(errors.Unavailable):
        ticket.wait(0.02)
    fickle.away = False
    shaky.flush(60)
    assert ticket.posted() and _sum(store) == 1


def test_a_commit_whose_answer_was_lost_is_not_repeated(store, fickle, shaky):
    fickle.lose_answers = 2
    shaky.append((SPEND, (5, 0))).wait(60)
    shaky.append((SPEND, (1, 0))).wait(60)
    assert _sum(store, "total") == 6


def test_a_full_queue_refuses_at_once(fickle, clock):
    fickle.away = True
    journal = Journal(fickle, clock, capacity=2)
    journal.append((INSERT, (1, 1)))
    journal.append((INSERT, (2, 1)))
    with pytest.raises(errors.Unavailable):
        journal.append((INSERT, (3, 1)))
    fickle.away = False
    journal.close()


def test_flush_says_when_it_did_not_finish(fickle, shaky):
    fickle.away = True
    shaky.append((INSERT, (1, 1)))
    with pytest.raises(errors.Unavailable):
        shaky.flush(0.02)


def test_close_writes_what_is_queued_and_refuses_more(store, clock):
    journal = Journal(store, clock)
    journal.append((INSERT, (1, 4)))
    journal.close()
    assert _sum(store) == 4
    with pytest.raises(errors.Unavailable):
        journal.append((INSERT, (2, 4)))


def test_close_gives_up_on_an_absent_store_and_says_so(fickle, clock):
    journal = Journal(fickle, clock)
    fickle.away = True
    journal.append((INSERT, (1, 1)))
    with pytest.raises(errors.Unavailable, match="1 records"):
        journal.close(timeout_s=0.05)


def test_writers_that_share_rows_in_any_order_lose_nothing(database_url, store, open_store, clock):
    journals = [Journal(open_store(database_url), clock) for _ in range(4)]
    for n in range(400):
        journals[n % 4].append(*[(SHARED, ((n * 7 + k * 13) % 50,)) for k in range(3)])
    for journal in journals:
        journal.close()
    assert _sum(store, "total") == 1200
    assert sum(journal.failed for journal in journals) == 0


def test_marks_of_journals_long_gone_are_forgotten(store, journal, clock):
    journal.append((INSERT, (1, 1))).wait(60)
    assert forget_writers(store, clock.now_us() - 60_000_000) == 0
    assert forget_writers(store, clock.now_us() + 1) == 1


def test_an_append_does_not_wait(fickle, shaky):
    fickle.away = True
    with gevent.Timeout(0.05):
        for n in range(1000):
            shaky.append((INSERT, (n, 1)))
    assert shaky.pending == 1000


def test_a_patient_waiter_gives_up_when_its_time_is_over(fickle, shaky):
    fickle.away = True
    ticket = shaky.append((INSERT, (1, 1)))
    with gevent.Timeout(60), pytest.raises(errors.Unavailable, match="in time"):
        ticket.wait(UNTIMED_WAIT_S + 0.1)


@pytest.mark.slow
def test_a_patient_waiter_returns_when_the_store_comes_back(fickle, shaky):
    fickle.away = True
    ticket = shaky.append((INSERT, (1, 1)))
    gevent.spawn_later(3 * UNTIMED_WAIT_S, setattr, fickle, "away", False)
    with gevent.Timeout(60):
        ticket.wait(8.0)
    assert ticket.posted()


def test_waiters_of_a_closed_journal_are_released(fickle, clock):
    journal = Journal(fickle, clock)
    fickle.away = True
    waiter = gevent.spawn(lambda: journal.append((INSERT, (1, 1))).wait(UNTIMED_WAIT_S + 0.2))
    gevent.sleep(0.01)
    with pytest.raises(errors.Unavailable):
        journal.close(timeout_s=0.1)
    with gevent.Timeout(60), pytest.raises(errors.Unavailable):
        waiter.get()
