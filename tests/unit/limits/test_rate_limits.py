import pytest
from support.limits import set_rate_limit

from gateway.errors import RateLimited
from gateway.limits.rate_limits import RateLimiter, RateLimitStatus, headers
from gateway.limits.rate_rules import RateLimits

WHO = ("org_1", "proj_1", "key_1", "m-1")


@pytest.fixture
def limits(books):
    return RateLimits(books.worker.database, books.worker.control)


@pytest.fixture
def rates(limits, clock):
    clock.set(1_800_000_000_000_000)
    clock.freeze()
    limits._control._beat()  # the worker's row would have expired by then, and new workers give up such a one
    return RateLimiter(limits, clock)


def test_nothing_is_limited_by_default(rates):
    for _ in range(100):
        assert rates.enter(*WHO, 10).statuses == ()


def test_the_request_beyond_the_limit_is_reported_when_to_come_again(limits, rates):
    set_rate_limit(limits, "key", "key_1", "requests", 3)
    for _ in range(3):
        rates.enter(*WHO, 10)
    with pytest.raises(RateLimited) as caught:
        rates.enter(*WHO, 10)
    assert 1 <= caught.value.retry_after <= 60


def test_a_minute_later_requests_are_free_again(limits, rates, clock):
    set_rate_limit(limits, "organization", "*", "requests", 3)
    for _ in range(3):
        rates.enter(*WHO, 10)
    clock.advance(30)
    with pytest.raises(RateLimited):
        rates.enter(*WHO, 10)
    clock.advance(89)
    limits._control._refresh(), limits._control._beat()
    assert rates.enter(*WHO, 10)


def test_one_subject_does_not_use_up_anothers(limits, rates):
    set_rate_limit(limits, "key", "*", "requests", 1)
    rates.enter(*WHO, 10)
    assert rates.enter("org_1", "proj_1", "key_2", "m-1", 10)


def test_an_operation_has_a_limit_of_each_organization(limits, rates):
    set_rate_limit(limits, "operation", "embeddings", "requests", 1)
    set_rate_limit(limits, "operation", "org_2/embeddings", "requests", 2)
    rates.enter(*WHO, 10, "embeddings")
    with pytest.raises(RateLimited, match=r"organization \(embeddings\) may make 1 request per minute"):
        rates.enter(*WHO, 10, "embeddings")
    assert rates.enter(*WHO, 10, "chat").statuses == ()
    for left in (1, 0):
        assert rates.enter("org_2", *WHO[1:], 10, "embeddings").statuses[0].remaining == left


def test_further_models_of_a_request_count_in_their_own_limits(limits, rates):
    set_rate_limit(limits, "model", "m-2", "requests", 1)
    rates.enter(*WHO, 10, others=("m-2",))
    with pytest.raises(RateLimited):
        rates.enter(*WHO, 10, others=("m-2",))
    assert rates.enter(*WHO, 10).statuses == ()


def test_tokens_count_by_what_was_used(limits, rates):
    set_rate_limit(limits, "project", "proj_1", "tokens", 100)
    rates.enter(*WHO, 10).release(95)
    with pytest.raises(RateLimited):
        rates.enter(*WHO, 10)


def test_slots_are_given_back_once_on_every_path(limits, rates):
    set_rate_limit(limits, "model", "m-1", "concurrency", 1)
    slot = rates.enter(*WHO, 10)
    with pytest.raises(RateLimited):
        rates.enter(*WHO, 10)
    slot.release()
    slot.release()
    assert rates.running() == 0
    rates.enter(*WHO, 10)


def test_a_model_is_counted_under_every_name_that_it_has(limits, rates):
    set_rate_limit(limits, "model", "m-1", "requests", 3)
    for written in ("m-1", "mock/m-1", "m-latest"):
        rates.enter(*WHO[:3], written, 10, "chat", "m-1")
    with pytest.raises(RateLimited):
        rates.enter(*WHO[:3], "M-1", 10, "chat", "m-1")
    assert rates.enter(*WHO[:3], "m-2", 10, "chat", "m-2").statuses == ()


def test_a_refusal_counts_nowhere(limits, rates):
    set_rate_limit(limits, "key", "key_1", "concurrency", 5)
    set_rate_limit(limits, "model", "m-1", "requests", 0)
    with pytest.raises(
        RateLimited, match="The model is blocked: its limit is 0 requests per minute, until it is raised"
    ):
        rates.enter(*WHO, 10)
    assert rates.running() == 0


def test_a_limit_can_be_removed(limits, rates):
    set_rate_limit(limits, "key", "key_1", "requests", 0)
    set_rate_limit(limits, "key", "key_1", "requests", None)
    assert rates.enter(*WHO, 10).statuses == () and limits.list_limits() == []


def test_without_redis_each_worker_admits_its_share(limits, rates, make_worker):
    make_worker()
    set_rate_limit(limits, "key", "key_1", "requests", 4)
    rates.enter(*WHO, 10)
    rates.exchange()
    rates.enter(*WHO, 10)
    with pytest.raises(RateLimited):
        rates.enter(*WHO, 10)


def test_headers_show_the_tightest_limit_of_each_kind():
    found = headers(
        [RateLimitStatus("requests", 600, 599, 60), RateLimitStatus("requests", 10, 3, 30)], 1_800_000_000_000_000
    )
    assert ("RateLimit-Policy", '"requests";q=10;w=60') in found
    assert ("RateLimit", '"requests";r=3;t=30') in found
    assert ("X-RateLimit-Reset", "1800000030") in found
    assert ("x-ratelimit-remaining-requests", "3") in found
    assert headers([], 0) == []


@pytest.mark.parametrize("kind", ["concurrency", "requests"])
def test_more_workers_never_mean_more_from_their_first_second_on(limits, rates, make_worker, kind):
    set_rate_limit(limits, "key", "key_1", kind, 6)
    for _ in range(2):
        make_worker()
    rates.exchange()
    for _ in range(2):
        rates.enter(*WHO, 10)
    with pytest.raises(RateLimited):
        rates.enter(*WHO, 10)


def test_the_first_limit_of_all_is_shared_out_from_its_first_request_on(limits, rates, make_worker):
    """Until then nothing was limited, so the workers were not counted."""
    make_worker()
    rates.exchange()
    set_rate_limit(limits, "key", "key_1", "requests", 2)
    rates.enter(*WHO, 10)
    with pytest.raises(RateLimited):
        rates.enter(*WHO, 10)


def test_a_refusal_shows_the_limit_in_headers(limits, rates):
    set_rate_limit(limits, "key", "key_1", "requests", 0)
    with pytest.raises(RateLimited) as caught:
        rates.enter(*WHO, 10)
    headers = dict(caught.value.headers)
    assert (headers["X-RateLimit-Limit"], headers["X-RateLimit-Remaining"]) == ("0", "0")
    assert headers["RateLimit-Policy"] == '"requests";q=0;w=60'
