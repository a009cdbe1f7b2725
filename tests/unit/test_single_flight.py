import gevent
import pytest
from gevent.event import Event

from gateway.errors import Unavailable
from gateway.single_flight import SingleFlight


def test_who_asks_while_work_runs_gets_its_result():
    flight, go, calls = SingleFlight(), Event(), []

    def work():
        calls.append(1)
        go.wait()
        return len(calls)

    asking = [gevent.spawn(flight.do, "a", work) for _ in range(3)]
    gevent.sleep(0)
    go.set()
    gevent.joinall(asking, raise_error=True)
    assert [one.value for one in asking] == [1, 1, 1]
    assert flight.do("a", work) == 2


def test_other_keys_do_not_wait():
    flight, go = SingleFlight(), Event()
    slow = gevent.spawn(flight.do, "a", go.wait)
    gevent.sleep(0)
    assert flight.do("b", lambda: "at once") == "at once"
    go.set()
    slow.join()


def test_all_get_the_error_and_the_next_one_tries_again():
    flight, go = SingleFlight(), Event()

    def work():
        go.wait()
        raise KeyError("gone")

    def ask():
        with pytest.raises(KeyError):
            flight.do("a", work)

    asking = [gevent.spawn(ask) for _ in range(2)]
    gevent.sleep(0)
    go.set()
    gevent.joinall(asking, raise_error=True)
    assert flight.do("a", lambda: "well") == "well"


def test_who_waited_for_a_request_that_was_ended_is_told_to_come_again():
    flight = SingleFlight()
    first = gevent.spawn(flight.do, "a", lambda: gevent.sleep(60))
    gevent.sleep(0)
    second = gevent.spawn(flight.do, "a", lambda: "never asked")
    gevent.sleep(0)
    first.kill()
    with pytest.raises(Unavailable):
        second.get()
