import gevent
import pytest

from gateway.callers.throttle import Throttle, ThrottleGate
from gateway.errors import RateLimited


@pytest.fixture
def throttle(company) -> Throttle:
    return Throttle(company.database, b"a hash key of the tests")


def test_a_full_gate_says_how_long_to_wait(throttle) -> None:
    gate = ThrottleGate("sign in", "a@example.com", 2, 60)
    throttle.take(gate)
    throttle.take(gate)
    with pytest.raises(RateLimited) as caught:
        throttle.take(gate)
    assert 0 < caught.value.retry_after <= 60 and caught.value.code == "too_many_attempts"


def test_gates_of_other_subjects_stay_open(throttle) -> None:
    throttle.take(ThrottleGate("sign in", "a@example.com", 1, 60))
    throttle.take(ThrottleGate("sign in", "b@example.com", 1, 60))
    throttle.take(ThrottleGate("codes", "a@example.com", 1, 60))


def test_the_addresses_of_an_ipv6_network_are_one_subject(throttle) -> None:
    throttle.take(ThrottleGate("sign in", "2001:db8::1", 1, 60))
    throttle.take(ThrottleGate("sign in", "2001:db8:0:1::1", 1, 60))
    with pytest.raises(RateLimited):
        throttle.take(ThrottleGate("sign in", "2001:db8::2", 1, 60))


def test_a_window_that_is_over_opens_the_gate(throttle, company) -> None:
    gate = ThrottleGate("sign in", "a@example.com", 1, 60)
    throttle.take(gate)
    company.database.write(lambda: company.database.execute("UPDATE attempt SET ends_at = 1"))
    throttle.take(gate)
    with pytest.raises(RateLimited):
        throttle.take(gate)


def test_a_forgiven_attempt_does_not_count(throttle) -> None:
    gate = ThrottleGate("sign in", "a@example.com", 1, 60)
    for _ in range(3):
        throttle.take(gate)
        throttle.forgive(gate)
    throttle.take(gate)
    with pytest.raises(RateLimited):
        throttle.take(gate)


def test_a_burst_gets_no_more_through_than_one_after_the_other(throttle) -> None:
    gate = ThrottleGate("sign in", "a@example.com", 3, 60)

    def passed() -> bool:
        try:
            throttle.take(gate)
        except RateLimited:
            return False
        return True

    tries = [gevent.spawn(passed) for _ in range(12)]
    assert sum(one.get() for one in tries) == 3


def test_the_store_learns_no_address(throttle, company) -> None:
    throttle.take(ThrottleGate("sign in", "a@example.com", 5, 60))
    rows = company.database.read(lambda: company.database.execute("SELECT * FROM attempt").fetchall())
    assert len(rows) == 1 and "example" not in str(rows)
