"""Commits in one round trip, directly and through a pooler in transaction mode."""

import pytest
from support.transaction_pooler import TransactionPooler

from gateway import errors
from gateway.store.journal import Journal, Statement
from gateway.store.postgresql import MAX_SINGLE_ROWS
from gateway.store.statements import StatementBatch

NOTE = Statement(
    "note", "INSERT INTO note (id, amount, text, data) VALUES (?, ?, ?, ?) ON CONFLICT (id) DO NOTHING", exact=True
)
ADD = Statement("add", "UPDATE note SET amount = amount + ? WHERE id = ?", sums=True)
TEXTS = ["plain", 'with "quotes" and \\ backslashes', "{}, NULL", "", "ü\n\t€", None]


@pytest.fixture
def pooler(postgresql_url):
    pooler = TransactionPooler(postgresql_url)
    yield pooler
    pooler.close()


@pytest.fixture
def store(pooler, open_store):
    store = open_store(pooler.url)
    sql = "CREATE TABLE note (id BIGINT PRIMARY KEY, amount SMALLINT, text VARCHAR(60), data BYTEA)"
    store.write(lambda: store.execute(sql))
    return store


@pytest.fixture
def journal(store, clock):
    journal = Journal(store, clock)
    yield journal
    journal.close()


def notes(first, count):
    return [
        (number, None if number % 3 else number, TEXTS[number % len(TEXTS)], bytes([number % 256, 0, 92]))
        for number in range(first, first + count)
    ]


def read(store):
    rows = store.query_rows("SELECT id, amount, text, data FROM note ORDER BY id")
    return [(*row[:3], bytes(row[3])) for row in rows]


@pytest.mark.parametrize("count", [1, MAX_SINGLE_ROWS, MAX_SINGLE_ROWS + 1, 100])
def test_any_values_arrive_whole_in_any_number(store, count):
    rows = notes(0, count)
    store.write_together([StatementBatch("note", NOTE.sql, rows, exact=True)])
    assert read(store) == rows


def test_a_commit_is_one_round_trip_once_its_statements_are_known(pooler, postgresql_url, open_store, clock):
    pooler.close()
    direct = TransactionPooler(postgresql_url, servers=1)
    store = open_store(direct.url)
    store.write(
        lambda: store.execute("CREATE TABLE note (id BIGINT PRIMARY KEY, amount INTEGER, text TEXT, data BYTEA)")
    )
    journal = Journal(store, clock)
    try:
        journal.append((NOTE, (1, 0, "a", b"")), (ADD, ((1,), 0))).wait(60)
        before = direct.round_trips
        for number in range(2, 12):
            journal.append((NOTE, (number, 0, "a", b"")), (ADD, ((1, number - 1), 1))).wait(60)
        assert direct.round_trips - before == 10
        assert sum(row[1] for row in read(store)) == 20
    finally:
        journal.close()
        store.close()
        direct.close()


def test_statements_prepared_on_another_server_connection_are_sent_again(pooler, store, journal):
    for first in range(0, 120, 12):
        tickets = [journal.append((NOTE, row)) for row in notes(first, 12)]
        for ticket in tickets:
            ticket.wait(60)
    assert read(store) == notes(0, 120)
    assert journal.failed == 0


def test_a_statement_that_another_client_prepared_is_sent_without_a_name(postgresql_url, open_store):
    store = open_store(postgresql_url)
    store.write(
        lambda: store.execute("CREATE TABLE note (id BIGINT PRIMARY KEY, amount INTEGER, text TEXT, data BYTEA)")
    )
    store.write_together([StatementBatch("note", NOTE.sql, notes(0, 1), exact=True)])
    (connection,) = store.peewee._idle
    connection.prepared.clear()  # a pooler gave this client the session of another one
    store.write_together([StatementBatch("note", NOTE.sql, notes(1, 1), exact=True)])
    assert read(store) == notes(0, 2)
    assert store.peewee._idle == [connection] and not connection.closed


def test_a_duplicate_undoes_its_transaction_and_only_its_entry_fails(store, journal):
    journal.append((NOTE, (5, 1, "first", b""))).wait(60)
    tickets = [journal.append((NOTE, (number, 1, "later", b"")), (ADD, ((5,), 10))) for number in range(10)]
    refused = []
    for number, ticket in enumerate(tickets):
        try:
            ticket.wait(60)
        except errors.Unavailable:
            refused.append(number)
    assert refused == [5]
    assert [row[0] for row in read(store)] == list(range(10))
    assert read(store)[5][1:3] == (91, "first")


def test_a_restarted_pooler_is_used_again_at_once(pooler, store, journal):
    for number in range(6):
        if number % 2:
            pooler.restart()
        journal.append((NOTE, (number, 1, "a", b""))).wait(60)
    assert len(read(store)) == 6


@pytest.mark.parametrize("count", [1, MAX_SINGLE_ROWS + 1])
def test_a_text_with_nul_is_refused_and_never_cut(store, count):
    rows = [(number, 1, "cut\0off", b"") for number in range(count)]
    with pytest.raises(Exception, match="NUL"):
        store.write_together([StatementBatch("note", NOTE.sql, rows, exact=True)])
    assert read(store) == []
