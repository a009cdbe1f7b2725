from collections.abc import Callable

import gevent
import pytest

from gateway.catalogue.entries import Mapping
from gateway.configuration.settings import RedisSettings as RedisSettings
from gateway.engine.gossip import DatabaseGossipStore, Gossip, JournalPins, Pins, RedisGossipStore, RedisPins
from gateway.errors import ConnectFailed, Unavailable
from gateway.providers.protocol import Credential
from gateway.routing.provider_health import Health
from gateway.store.documents import Documents
from gateway.store.journal import Journal
from gateway.store.redis import open_redis

MAPPING, KEY = Mapping("p", "m", "m"), Credential("secret", ident="k1")
GONE = ConnectFailed("connection refused")


@pytest.fixture
def client(redis_url, clock):
    found = open_redis(RedisSettings(redis_url, 30.0), clock)
    yield found
    found._client.flushall()
    found.close()


@pytest.fixture(params=["sqlite", "postgresql", "redis"])
def board(request, clock, open_store) -> Callable:
    """A factory: each call is another worker's board on one store."""
    if request.param == "redis":
        redis = request.getfixturevalue("client")
        return lambda: RedisGossipStore(redis)
    url = request.getfixturevalue(f"{request.param}_url")
    return lambda: DatabaseGossipStore(open_store(url))


def test_news_of_a_worker_reaches_each_other_worker_once(board):
    first, second, third = board(), board(), board()
    for each in (first, second, third):
        each.collect()
    first.post(b'{"a":1}')
    second.post(b'{"b":2}')
    assert [payload for _, payload in third.collect()] == [b'{"a":1}', b'{"b":2}']
    assert [payload for _, payload in first.collect()] == [b'{"b":2}']
    assert third.collect() == [] and first.collect() == []


def test_a_worker_that_starts_learns_the_latest(board):
    newcomer = board()
    for number in range(3):
        newcomer.post(b"%d" % number)
    assert [payload for _, payload in board().collect()] == [b"0", b"1", b"2"]


def test_a_dead_provider_is_known_to_the_other_worker_after_one_round(board, clock):
    first_health, second_health = Health(clock), Health(clock)
    first, second = Gossip(first_health, board()), Gossip(second_health, board())
    second.beat()
    first_health.sample(MAPPING, KEY, error=GONE)
    first.beat()
    second.beat()
    assert second_health.view("p/m", "p").cooldown == "the provider accepts no connections"
    assert second_health.view("p/m", "p").events == 1


def test_outcomes_are_counted_once_however_often_workers_meet(board, clock):
    healths = [Health(clock) for _ in range(3)]
    exchanges = [Gossip(health, board()) for health in healths]
    for health in healths:
        health.sample(MAPPING, KEY)
    for _ in range(4):
        for exchange in exchanges:
            exchange.beat()
    assert [health.view("p/m").events for health in healths] == [3, 3, 3]


class Away:
    """A gossip store that can be unavailable."""

    def __init__(self):
        self.away, self.posted = True, []

    def post(self, payload):
        if self.away:
            raise Unavailable()
        self.posted.append(payload)

    def collect(self):
        return [(0.0, b"not json"), (0.0, b'{"form": 99}')]


def test_unsent_news_is_sent_when_the_store_is_back(clock):
    health, board = Health(clock), Away()
    exchange = Gossip(health, board)
    health.sample(MAPPING, KEY, error=GONE)
    with pytest.raises(Unavailable):
        exchange.beat()
    board.away = False
    exchange.beat()
    assert len(board.posted) == 1 and b"unreachable" in board.posted[0]


def test_a_single_worker_sends_no_notifications(clock):
    health = Health(clock)
    health.sample(MAPPING, KEY, error=GONE)
    Gossip(health, None).beat()
    assert health.export()["windows"]


@pytest.fixture(params=["documents", "redis"])
def shelf(request, clock, database):
    if request.param == "redis":
        yield RedisPins(request.getfixturevalue("client"))
        return
    journal = Journal(database, clock)
    yield JournalPins(Documents(database), database, journal, clock)
    journal.close(2)


def test_a_pin_written_behind_is_read_by_another_worker_at_once(shelf, clock):
    pins = Pins(shelf, clock, read_s=5.0)
    pins.put("k", "a/m", 60)
    pins.put("k", "b/m", 60)
    gevent.sleep(0.3)
    assert Pins(shelf, clock, read_s=5.0).get("k") == "b/m" and pins.get("unknown") is None


def test_a_pin_lapses(sqlite_database, clock):
    journal = Journal(sqlite_database, clock)
    pins = Pins(JournalPins(Documents(sqlite_database), sqlite_database, journal, clock), clock, read_s=5.0)
    pins.put("k", "a/m", 60)
    journal.flush(60)
    clock.advance(61)
    assert pins.get("k") is None
    journal.close(2)


SLOW_S = 30


class Slow:
    def __init__(self):
        self.reads = 0

    def get(self, key):
        self.reads += 1
        gevent.sleep(SLOW_S)


def test_a_slow_store_delays_one_request_briefly_and_then_none(clock):
    slow = Slow()
    pins = Pins(slow, clock, read_s=0.05)
    began = clock.monotonic()
    for _ in range(20):
        with pytest.raises(Unavailable):
            pins.get("k")
    assert clock.monotonic() - began < SLOW_S and slow.reads == 1
