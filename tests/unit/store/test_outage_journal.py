"""Records kept in a local file while the database is down, and posted exactly once."""

import os

import gevent
import pytest
from support.fickle_database import Fickle

from gateway import errors
from gateway.store import outage_journal
from gateway.store.journal import Journal, Statement
from gateway.store.outage_journal import OutageJournal, post_orphans

INSERT = Statement("insert", "INSERT INTO entry (id, note, data) VALUES (?, ?, ?)", exact=True)
ADD = Statement("add", "UPDATE total SET amount = amount + ? WHERE id = ?", sums=True)


@pytest.fixture
def store(database):
    def make():
        database.execute(
            "CREATE TABLE entry (id INTEGER PRIMARY KEY, note VARCHAR(20), data BLOB)"
            if database.kind == "sqlite"
            else "CREATE TABLE entry (id INTEGER PRIMARY KEY, note VARCHAR(20), data BYTEA)"
        )
        database.execute("CREATE TABLE total (id INTEGER PRIMARY KEY, amount BIGINT NOT NULL)")
        database.execute_many("INSERT INTO total VALUES (?, 0)", [(n,) for n in range(5)])

    database.write(make)
    return Fickle(database)


class Worker:
    """The journal of one worker, with a file for outages."""

    def __init__(self, store, clock, folder, owner):
        self.journal = Journal(store, clock)
        self.outage = OutageJournal(store, clock, folder, owner)
        self.journal.fall_back(self.outage)

    def settle(self, number):
        """Append an entry of one row and one amount, and wait until it is durable somewhere."""
        self.journal.append((INSERT, (number, f"n{number}", bytes([number]))), (ADD, ((1, 2), 10))).wait(60)

    def die(self):
        """End like a killed process: nothing more is posted, and the kernel drops the lock."""
        self.outage._closed = True
        os.close(self.outage._handle)
        self.outage._handle = -1


@pytest.fixture
def start(store, clock, tmp_path):
    workers = []

    def make(owner="node-1"):
        workers.append(Worker(store, clock, tmp_path, owner))
        return workers[-1]

    yield make
    store.away = False
    for worker in workers:
        worker.journal.close()


def read(store):
    ids = [row[0] for row in store.query_rows("SELECT id FROM entry ORDER BY id")]
    return ids, store.query_row("SELECT amount FROM total WHERE id = 1")[0]


def test_answers_end_while_the_database_is_away_and_their_records_are_posted_once(store, start, tmp_path):
    worker = start()
    worker.settle(1)
    assert list(tmp_path.glob("*outage*")) == []
    store.away = True
    for number in range(2, 6):
        worker.settle(number)
    assert worker.journal.behind and read(store) == ([1], 10)
    with pytest.raises(errors.Unavailable):
        worker.journal.flush(0.05)
    store.away = False
    worker.settle(6)
    worker.journal.flush(60)
    assert read(store) == ([1, 2, 3, 4, 5, 6], 60)
    assert not worker.journal.behind
    assert bytes(store.query_row("SELECT data FROM entry WHERE id = 4")[0]) == b"\x04"
    worker.journal.close()
    assert list(tmp_path.glob("*outage*")) == []


def test_a_commit_with_a_lost_answer_is_not_posted_again(store, start):
    worker = start()
    store.lose_answers = 1
    worker.settle(1)
    worker.settle(2)
    worker.journal.flush(60)
    assert read(store) == ([1, 2], 20)


def test_the_records_of_a_killed_worker_are_posted_once_by_the_next(store, start, clock, tmp_path):
    worker = start()
    store.away = True
    for number in range(3):
        worker.settle(number)
    worker.die()
    with pytest.raises(errors.Unavailable):
        post_orphans(store, tmp_path, clock.now_us())
    store.away = False
    store.lose_answers = 1
    with pytest.raises(errors.Unavailable):
        post_orphans(store, tmp_path, clock.now_us())
    assert post_orphans(store, tmp_path, clock.now_us()) == 3
    assert read(store) == ([0, 1, 2], 30)
    assert list(tmp_path.glob("*outage*")) == [] and post_orphans(store, tmp_path, clock.now_us()) == 0


def test_the_file_of_a_living_worker_is_left_alone(store, start, clock, tmp_path):
    worker = start()
    store.away = True
    worker.settle(1)
    assert post_orphans(store._database, tmp_path, clock.now_us()) == 0
    assert worker.outage.path.exists() and worker.journal.behind


def test_a_record_that_was_cut_by_the_kill_ends_the_file(store, start, clock, tmp_path):
    worker = start()
    store.away = True
    worker.settle(1)
    worker.settle(2)
    worker.die()
    os.truncate(worker.outage.path, worker.outage.path.stat().st_size - 3)
    store.away = False
    assert post_orphans(store, tmp_path, clock.now_us()) == 1
    assert read(store) == ([1], 10)


def test_a_refused_entry_of_a_kept_group_fails_alone(store, start):
    worker = start()
    worker.settle(2)
    store.away = True
    rows = [((INSERT, (number, "", b"")), (ADD, ((1,), 1))) for number in (1, 2, 3)]
    for ticket in [worker.journal.append(*entry) for entry in rows]:
        ticket.wait(60)
    store.away = False
    worker.journal.flush(60)
    assert read(store) == ([1, 2, 3], 12)


def test_answers_wait_for_the_database_when_the_file_is_full(store, start, monkeypatch):
    worker = start()
    store.away = True
    worker.settle(1)
    monkeypatch.setattr(outage_journal, "MAX_BYTES", worker.outage._end + 10)
    waiting = gevent.spawn(worker.settle, 2)
    asked = store.attempts
    with gevent.Timeout(60):
        while store.attempts < asked + 2:
            gevent.sleep(0.01)
    assert not waiting.ready()
    store.away = False
    waiting.get(timeout=60)
    worker.journal.flush(60)
    assert read(store) == ([1, 2], 20)


def test_a_worker_that_ends_leaves_its_records_to_the_next(store, start, clock, tmp_path):
    worker = start()
    store.away = True
    worker.settle(1)
    worker.journal.close()
    assert [path.suffix for path in tmp_path.glob("*outage*")] == [".outage"]
    store.away = False
    assert post_orphans(store, tmp_path, clock.now_us()) == 1
    assert read(store) == ([1], 10)


@pytest.mark.parametrize(
    ("waited_us", "posted"), [(outage_journal.RETENTION_US - 60 * 10**6, 2), (outage_journal.RETENTION_US, 0)]
)
def test_records_that_waited_for_too_long_are_set_aside(store, start, clock, tmp_path, waited_us, posted):
    worker = start()
    store.away = True
    for number in (1, 2):
        worker.settle(number)
    worker.die()
    store.away = False
    expired = []
    assert post_orphans(store, tmp_path, clock.now_us() + waited_us, expired.append) == posted
    assert read(store)[0] == [1, 2][:posted]
    assert expired == outage_journal.list_set_aside(tmp_path) and len(expired) == (0 if posted else 1)
    assert outage_journal.kept_bytes(tmp_path) == 0
    assert post_orphans(store, tmp_path, clock.now_us() + waited_us, expired.append) == 0
