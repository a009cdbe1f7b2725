import time

import gevent
import pytest

from gateway import errors
from gateway.configuration.settings import RedisSettings as Config
from gateway.configuration.settings import SettingsError
from gateway.store import redis


@pytest.fixture
def client(redis_url, clock):
    client = redis.open_redis(Config(redis_url, 0.5), clock)
    yield client
    client.close()


@pytest.fixture
def absent(tmp_path, clock):
    return redis.open_redis(Config(f"unix://{tmp_path}/none.sock", 0.2), clock)


def wait_until(done):
    until = time.monotonic() + 5
    while not done():
        assert time.monotonic() < until, "it did not come to that"
        time.sleep(0.005)


def test_without_a_url_redis_is_not_used(clock):
    assert redis.open_redis(Config("", 0.5), clock) is None


def test_a_bad_url_is_refused(clock):
    with pytest.raises(SettingsError, match="REDIS_URL"):
        redis.open_redis(Config("localhost", 0.5), clock)


def test_values_end_with_their_life_span(client):
    client.put("a", b"1", 60)
    assert client.get("a") == b"1"
    client.put("a", b"2", 0.03)
    wait_until(lambda: client.get("a") is None)


def test_a_value_that_exists_is_not_replaced(client):
    key = redis.realtime_secret("abc")
    assert client.put_if_absent(key, b"x", 5)
    assert not client.put_if_absent(key, b"y", 5)
    assert client.get(key) == b"x"


def test_counters_add_up_over_workers_and_expire(client):
    keys = [redis.rate_window("key", f"key_{n}", 60) for n in range(2)]
    client.add({keys[0]: 2}, 60)
    assert client.add({keys[0]: 3, keys[1]: 1}, 60) == {keys[0]: 5, keys[1]: 1}
    short = redis.rate_window("key", "key_2", 60)
    client.add({short: 2}, 0.03)
    wait_until(lambda: client.get(short) is None)
    assert client.add({short: 1}, 60) == {short: 1}


def test_more_greenlets_than_connections_all_get_an_answer(client):
    tasks = [gevent.spawn(client.put, f"n{n}", b"1", 5) for n in range(60)]
    gevent.joinall(tasks, raise_error=True)
    assert client.connected()


def test_an_absent_server_is_unavailable_and_then_left_in_peace(absent, clock, monkeypatch):
    clock.freeze()
    with pytest.raises(errors.Unavailable):
        absent.get("a")
    assert absent.error == "ConnectionError"
    assert not absent.connected()
    monkeypatch.setattr(absent, "_client", None)  # no request goes to the server, and no caller waits for it
    for _ in range(50):
        with pytest.raises(errors.Unavailable):
            absent.get("a")
