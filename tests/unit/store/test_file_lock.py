import gevent
import pytest

from gateway.runtime.threads import Threads
from gateway.store.sqlite import FairFileLock


@pytest.fixture
def threads():
    threads = Threads(1)
    yield threads
    threads.close()


def test_a_turn_that_comes_as_its_greenlet_is_killed_goes_to_the_next(tmp_path, threads):
    holder = FairFileLock(tmp_path / "writer", threads)
    next_one = FairFileLock(tmp_path / "writer", threads)

    class KilledAtOnce:
        def run(self, work):
            holder.release()
            work()
            asking.kill(block=False)

    killed = FairFileLock(tmp_path / "writer", KilledAtOnce())
    assert holder.acquire(1)
    asking = gevent.spawn(killed.acquire, 5)
    asking.join()
    assert isinstance(asking.value, gevent.GreenletExit)
    try:
        assert next_one.acquire(0.2)
    finally:
        for lock in (killed, holder, next_one):
            lock.close()
