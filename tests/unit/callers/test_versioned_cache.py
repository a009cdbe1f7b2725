import gevent
from gevent.event import Event

from gateway.callers.versioned_cache import VersionedCache
from gateway.errors import Unavailable


class Version:
    """A control version that the test moves."""

    def __init__(self) -> None:
        self.now = 1

    def check(self) -> int:
        return self.now


def test_a_value_is_read_once_while_the_version_stands() -> None:
    memory, reads = VersionedCache(Version(), 10), []
    for _ in range(3):
        assert memory.get("a", lambda version: reads.append(version) or "value") == "value"
    assert reads == [1]


def test_everything_is_forgotten_when_the_version_moves() -> None:
    version = Version()
    memory = VersionedCache(version, 10)
    memory.get("a", lambda version: "old")
    version.now = 2
    assert memory.get("a", lambda version: "new") == "new"


def test_a_read_that_a_change_overtook_is_not_kept() -> None:
    version = Version()
    memory = VersionedCache(version, 10)

    def overtaken(seen: int) -> str:
        version.now = 2
        memory.get("b", lambda version: "something else")
        return "old"

    assert memory.get("a", overtaken) == "old"
    assert memory.get("a", lambda version: "new") == "new"


def test_a_request_after_a_change_does_not_join_a_read_begun_before_it() -> None:
    version, gate = Version(), Event()
    memory = VersionedCache(version, 10)
    early = gevent.spawn(memory.get, "a", lambda version: gate.wait() and "old")
    gevent.sleep(0)
    version.now = 2
    assert memory.get("a", lambda version: "new") == "new"
    gate.set()
    assert early.get(timeout=60) == "old"
    assert memory.get("a", lambda version: "newer") == "new"


def test_concurrent_misses_share_one_read() -> None:
    memory, gate, reads = VersionedCache(Version(), 10), Event(), []

    def read(version: int) -> str:
        reads.append(version)
        gate.wait()
        return "value"

    greenlets = [gevent.spawn(memory.get, "a", read) for _ in range(20)]
    gevent.sleep(0)
    gate.set()
    assert [greenlet.get(timeout=60) for greenlet in greenlets] == ["value"] * 20
    assert len(reads) == 1


def test_a_failed_read_fails_all_who_wait_and_is_not_kept() -> None:
    memory, gate = VersionedCache(Version(), 10), Event()

    def fail(version: int) -> str:
        gate.wait()
        raise Unavailable()

    greenlets = [gevent.spawn(memory.get, "a", fail) for _ in range(3)]
    gevent.sleep(0)
    gate.set()
    gevent.joinall(greenlets, timeout=60)
    assert all(isinstance(greenlet.exception, Unavailable) for greenlet in greenlets)
    assert memory.get("a", lambda version: "value") == "value"


def test_when_a_reader_is_killed_the_next_one_reads() -> None:
    memory, gate = VersionedCache(Version(), 10), Event()
    leader = gevent.spawn(memory.get, "a", lambda version: gate.wait())
    gevent.sleep(0)
    follower = gevent.spawn(memory.get, "a", lambda version: "read")
    gevent.sleep(0)
    leader.kill()
    assert follower.get(timeout=60) == "read"


def test_memory_is_bounded_and_drops_the_oldest() -> None:
    memory, reads = VersionedCache(Version(), 3), []
    for name in "abcda":
        memory.get(name, lambda version, name=name: reads.append(name) or name)
    assert reads == ["a", "b", "c", "d", "a"]
    assert len(memory._values) == 3


def test_a_flood_of_refusals_does_not_push_out_callers() -> None:
    memory = VersionedCache(Version(), 3, lambda value: value == "refused", 2)
    memory.get("caller", lambda version: "known")
    for number in range(100):
        memory.get(number, lambda version: "refused")
    assert memory.get("caller", lambda version: "read again") == "known"
