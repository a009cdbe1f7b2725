import pytest
import redis
from support.limits import set_rate_limit

from gateway.configuration.settings import RedisSettings
from gateway.errors import RateLimited
from gateway.limits.rate_limits import RateLimiter
from gateway.limits.rate_rules import RateLimits
from gateway.store.redis import open_redis

WHO = ("org_1", "proj_1", "key_1", "m-1")


@pytest.fixture
def pair(books, redis_url, clock):
    """Two workers that count together."""
    limits = RateLimits(books.worker.database, books.worker.control)
    set_rate_limit(limits, "key", "key_1", "requests", 4)
    clock.freeze()
    with redis.Redis.from_url(redis_url) as client:
        client.flushdb()  # the counts of other tests in this minute
    return [RateLimiter(limits, clock, open_redis(RedisSettings(redis_url, 30.0), clock)) for _ in range(2)]


def test_workers_count_together_over_redis(pair):
    first, second = pair
    for _ in range(3):
        first.enter(*WHO, 10)
    second.enter(*WHO, 10)
    for rates in (first, second, first):
        rates.exchange()
    for rates in (first, second):
        with pytest.raises(RateLimited):
            rates.enter(*WHO, 10)


@pytest.mark.parametrize("order", ["in turns", "one after the other"])
def test_a_burst_at_all_workers_passes_a_limit_by_less_than_one_request_each(pair, make_worker, order):
    """Each worker admitted the whole limit until the next exchange."""
    make_worker()  # the second one in the list of live workers
    for rates in pair:
        rates.exchange()
    requests = [rates for rates in pair for _ in range(10)] if order != "in turns" else pair * 10
    admitted = 0
    for rates in requests:
        try:
            rates.enter(*WHO, 10)
            admitted += 1
        except RateLimited:
            pass
    assert 4 <= admitted <= 5


def test_a_burst_passes_a_large_limit_by_less_than_an_eighth(pair, books, make_worker):
    set_rate_limit(RateLimits(books.worker.database, books.worker.control), "key", "key_1", "requests", 80)
    make_worker()
    for rates in pair:
        rates.exchange()
    first, second = pair
    for _ in range(40):  # half of the limit, of which the first worker knows what was exchanged
        second.enter(*WHO, 10)
    admitted = 40
    with pytest.raises(RateLimited):
        for _ in range(80):
            first.enter(*WHO, 10)
            admitted += 1
    assert 80 <= admitted < 90


def test_without_an_answer_of_redis_a_worker_goes_by_its_share(books, clock):
    limits = RateLimits(books.worker.database, books.worker.control)
    set_rate_limit(limits, "key", "key_1", "requests", 4)
    rates = RateLimiter(limits, clock, open_redis(RedisSettings("unix:///nowhere.sock", 0.1), clock))
    rates.enter(*WHO, 10)
    rates.exchange()
    assert rates.enter(*WHO, 10).statuses[0].remaining == 2


def test_slots_are_shared_out_although_windows_are_counted_together(pair, books, make_worker):
    set_rate_limit(RateLimits(books.worker.database, books.worker.control), "key", "key_1", "concurrency", 2)
    make_worker()
    first = pair[0]
    first.exchange()
    first.enter(*WHO, 10)
    with pytest.raises(RateLimited):
        first.enter(*WHO, 10)
