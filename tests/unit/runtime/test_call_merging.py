import gevent
import pytest
from gevent.event import Event

from gateway.runtime.call_merging import SharedCalls


def test_callers_during_the_work_get_its_result():
    shared, go, calls = SharedCalls(), Event(), []

    def work():
        calls.append(1)
        go.wait()
        return len(calls)

    asking = [gevent.spawn(shared.run, "a", work) for _ in range(3)]
    gevent.sleep(0)
    go.set()
    gevent.joinall(asking, raise_error=True)
    assert [one.value for one in asking] == [1, 1, 1]
    assert shared.run("a", work) == 2


def test_other_keys_do_not_wait():
    shared, go = SharedCalls(), Event()
    slow = gevent.spawn(shared.run, "a", go.wait)
    gevent.sleep(0)
    assert shared.run("b", lambda: "at once") == "at once"
    go.set()
    slow.join()


def test_all_get_the_error_and_the_next_one_tries_again():
    shared, go = SharedCalls(), Event()

    def work():
        go.wait()
        raise KeyError("gone")

    def ask():
        with pytest.raises(KeyError):
            shared.run("a", work)

    asking = [gevent.spawn(ask) for _ in range(2)]
    gevent.sleep(0)
    go.set()
    gevent.joinall(asking, raise_error=True)
    assert shared.run("a", lambda: "well") == "well"


def test_when_the_request_that_worked_is_ended_the_next_one_works_and_the_others_wait_for_it():
    shared, calls = SharedCalls(), []

    def work():
        calls.append(1)
        gevent.sleep(0.01)
        return "found"

    asking = [gevent.spawn(shared.run, "a", work) for _ in range(4)]
    gevent.sleep(0)
    asking[0].kill()
    gevent.sleep(0)
    asking[1].kill()
    gevent.joinall(asking, raise_error=True)
    assert [one.value for one in asking[2:]] == ["found"] * 2 and len(calls) == 3
