"""Outages of the store: only an answer or Unavailable, in bounded time, and all is well soon after."""

import socket
import time

import gevent
import pytest
from gevent.server import StreamServer
from psycopg.conninfo import conninfo_to_dict

from gateway import errors
from gateway.store.journal import Journal, Statement

COUNT = Statement("count", "UPDATE control SET version = version + 1 WHERE id = ?", exact=True)


class Proxy:
    """A relay to a PostgreSQL socket that can be cut, or swallow all bytes."""

    def __init__(self, url):
        facts = conninfo_to_dict(url)
        self._path = f"{facts['host']}/.s.PGSQL.5432"
        self._pairs = []
        self.swallow = self.refuse = False
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.url = f"postgresql://postgres@127.0.0.1:{self._server.server_port}/{facts['dbname']}"

    def _serve(self, caller, _address):
        if self.refuse:
            return
        server = socket.socket(socket.AF_UNIX)
        server.connect(self._path)
        self._pairs.append((caller, server))
        gevent.joinall([gevent.spawn(self._relay, caller, server), gevent.spawn(self._relay, server, caller)], count=1)

    def _relay(self, source, target):
        try:
            while data := source.recv(65536):
                if not self.swallow:
                    target.sendall(data)
        except OSError:
            return

    def cut(self):
        for pair in self._pairs:
            for end in pair:
                end.close()
        self._pairs.clear()

    def close(self):
        self.cut()
        self._server.stop()


@pytest.fixture
def proxy(postgresql_url):
    proxy = Proxy(postgresql_url)
    yield proxy
    proxy.close()


@pytest.fixture
def store(proxy, open_store):
    store = open_store(proxy.url, pool_size=3, pool_wait_s=0.4)
    store.read(lambda: None)
    return store


def _read(store):
    return store.read(lambda: store.execute("SELECT version FROM control").fetchone()[0])


def _expect_outage(use):
    start = time.monotonic()
    with pytest.raises(errors.Unavailable):
        use()
    assert time.monotonic() - start < 30


def test_a_refusing_server_is_unavailable_and_served_again_at_once(proxy, store):
    proxy.refuse = True
    proxy.cut()
    _expect_outage(lambda: _read(store))
    _expect_outage(lambda: store.write(lambda: None))
    proxy.refuse = False
    assert _read(store) == 1
    assert store.write(lambda: 2) == 2


def test_a_connection_names_its_program_and_notices_that_its_server_is_gone(store):
    parameters = store.read(lambda: store.peewee.connection().info.get_parameters())
    assert parameters["application_name"] == "llmgateway"
    assert {"keepalives_idle", "keepalives_interval", "keepalives_count"} <= set(parameters)


def test_a_silent_server_is_unavailable_within_the_patience(proxy, store):
    proxy.swallow = True
    readers = [gevent.spawn(_expect_outage, lambda: _read(store)) for _ in range(8)]
    gevent.joinall(readers, raise_error=True)
    proxy.swallow = False
    assert _read(store) == 1


def test_a_connection_lost_within_a_write_is_unavailable_and_undone(proxy, store):
    def work():
        store.execute("UPDATE control SET version = 99")
        proxy.cut()
        store.execute("UPDATE control SET version = 100")

    _expect_outage(lambda: store.write(work))
    assert _read(store) == 1


def test_the_journal_posts_each_entry_once_through_cuts(proxy, store, clock):
    journal = Journal(store, clock)
    for _ in range(10):
        tickets = [journal.append((COUNT, (1,))) for _ in range(20)]
        gevent.sleep(0.005)
        proxy.cut()
    journal.flush(60)
    assert all(ticket.posted() for ticket in tickets)
    assert _read(store) == 201
    journal.close()


def test_a_read_only_server_is_unavailable_for_writes_alone(store):
    name = store.read(lambda: store.execute("SELECT current_database()").fetchone()[0])
    # For this database alone: other processes use the server at the same time.
    store.write(lambda: store.execute(f"ALTER DATABASE {name} SET default_transaction_read_only = on"))
    try:
        store.peewee.drain()
        _expect_outage(lambda: store.write(lambda: store.execute("UPDATE control SET version = 5")))
        assert _read(store) == 1
    finally:
        reset = f"SET TRANSACTION READ WRITE; ALTER DATABASE {name} RESET default_transaction_read_only"
        store.write(lambda: store.execute(reset))


def test_a_full_disk_is_unavailable_and_then_forgotten(sqlite_database):
    def fill():
        sqlite_database.execute("PRAGMA max_page_count = 1")
        for n in range(200):
            row = ("k", str(n), b"x" * 4000, 1)
            sqlite_database.execute("INSERT INTO document (kind, key, value, expires_at) VALUES (?, ?, ?, ?)", row)

    _expect_outage(lambda: sqlite_database.write(fill))
    sqlite_database.write(lambda: sqlite_database.execute("PRAGMA max_page_count = 100000"))
    assert sqlite_database.write(lambda: 1) == 1
    assert sqlite_database.read(lambda: sqlite_database.execute("SELECT count(*) FROM document").fetchone()[0]) == 0
