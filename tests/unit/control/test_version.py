import gevent
import pytest
from gevent.event import Event

from gateway import errors
from gateway.control.version import VERSION_LEASE_S, WORKER_TIMEOUT_S, Control, VersionedCache
from gateway.errors import Unavailable


class Cut:
    """A Database with reads and writes that can be made to fail."""

    def __init__(self, database):
        self._database = database
        self.reads = 0
        self.no_reads = self.no_writes = False

    def read(self, work):
        if self.no_reads:
            raise errors.Unavailable()
        self.reads += 1
        return self._database.read(work)

    def write(self, work):
        if self.no_writes:
            raise errors.Unavailable()
        return self._database.write(work)

    def __getattr__(self, name):
        return getattr(self._database, name)


@pytest.fixture
def make_control(database_url, open_store, clock):
    controls = []

    def make(store=None):
        control = Control(store or open_store(database_url), clock, node=f"n{len(controls)}")
        control.start()
        controls.append(control)
        return control

    yield make
    for control in controls:
        control.stop()


@pytest.fixture
def cut(database):
    return Cut(database)


def _change(control):
    control._database.write(control.bump)


def test_a_change_is_seen_by_every_worker_once_it_is_confirmed(make_control):
    first, second = make_control(), make_control()
    before = second.check()
    _change(first)
    first.confirm()
    assert (first.check(), second.check()) == (before + 1, before + 1)


def test_confirming_does_not_wait_for_the_lease_when_all_have_seen_it(make_control, monkeypatch):
    first, _ = make_control(), make_control()
    _change(first)
    behind, count = [], first._count_behind
    monkeypatch.setattr(first, "_count_behind", lambda version: behind.append(count(version)) or behind[-1])
    first.confirm()
    assert behind[-1] == 0, "the lease ran out first"


def test_an_operators_change_is_confirmed_too(make_control, database):
    worker = make_control()
    operator = Control.observer(database)
    before = worker.check()
    database.write(operator.bump)
    operator.confirm()
    assert worker.check() == before + 1
    assert operator.check() == before + 1


def test_a_silent_worker_is_waited_for_no_longer_than_its_lease(make_control, cut, clock):
    silent, other_control = make_control(cut), make_control()
    cut.no_reads = cut.no_writes = True
    _change(other_control)
    start = clock.monotonic()
    other_control.confirm()
    assert 0.9 * VERSION_LEASE_S < clock.monotonic() - start < 30 * VERSION_LEASE_S
    with pytest.raises(errors.Unavailable):
        silent.check()


def test_a_bump_that_is_rolled_back_changes_nothing(make_control):
    control = make_control()
    before = control.check()

    def work():
        control.bump()
        raise ValueError

    with pytest.raises(ValueError):
        control._database.write(work)
    control.confirm()
    assert control.check() == before


def test_a_bump_outside_of_a_transaction_is_refused(make_control):
    with pytest.raises(errors.Internal):
        make_control().bump()


def test_within_the_lease_no_check_reads(make_control, cut):
    control = make_control(cut)
    before = cut.reads
    for _ in range(1000):
        control.check()
    assert cut.reads == before


def test_an_ended_lease_is_renewed_by_one_shared_read(make_control, cut):
    control = make_control(cut)
    control._trusted_until, before = 0.0, cut.reads
    checks = [gevent.spawn(control.check) for _ in range(20)]
    gevent.joinall(checks, raise_error=True)
    assert cut.reads == before + 1
    assert {check.value for check in checks} == {control.version}


@pytest.mark.parametrize("stood_still_s", [0.2, VERSION_LEASE_S, WORKER_TIMEOUT_S])
def test_a_request_that_waited_for_a_read_is_served_after_a_long_suspension(make_control, cut, clock, stood_still_s):
    control = make_control(cut)
    before = control.check()
    clock.advance(VERSION_LEASE_S)
    reads, read = [], cut.read

    def slow_read(work):
        cut.read = read
        reads.extend(gevent.spawn(control.check) for _ in range(5))
        gevent.sleep(0)
        clock.advance(stood_still_s)
        return read(work)

    cut.read = slow_read
    assert control.check() == before
    assert [one.get(timeout=60) for one in reads] == [before] * 5


def test_a_failed_shared_read_fails_for_all_waiting_requests(make_control, cut, clock):
    control = make_control(cut)
    clock.advance(VERSION_LEASE_S)
    greenlets, reads = [], []

    def failing_read(work):
        reads.append(work)
        greenlets.extend(gevent.spawn(control.check) for _ in range(5) if len(reads) == 1)
        gevent.sleep(0)
        raise errors.Unavailable()

    cut.read = failing_read
    with pytest.raises(errors.Unavailable):
        control.check()
    for greenlet in greenlets:
        with pytest.raises(errors.Unavailable):
            greenlet.get(timeout=60)
    assert len(reads) == 1


def test_when_the_request_that_reads_for_all_is_ended_the_next_one_reads(make_control, cut, clock):
    control = make_control(cut)
    version = control.check()
    clock.advance(VERSION_LEASE_S)
    read = cut.read

    def read_for_ever(work):
        cut.read = read
        gevent.sleep(60)

    cut.read = read_for_ever
    first = gevent.spawn(control.check)
    gevent.sleep(0)
    others = [gevent.spawn(control.check) for _ in range(3)]
    gevent.sleep(0)
    first.kill()
    assert [one.get(timeout=60) for one in others] == [version] * 3


def test_a_lease_that_cannot_be_renewed_is_unavailable_and_comes_back(make_control, cut, clock):
    control = make_control(cut)
    cut.no_reads = True
    control.check()
    clock.advance(VERSION_LEASE_S + 0.1)
    with pytest.raises(errors.Unavailable):
        control.check()
    cut.no_reads = False
    assert control.check() == control.version


def test_an_epoch_is_owned_by_its_worker_alone_and_while_its_row_lives(make_control, clock):
    first, second = make_control(), make_control()
    assert first.owns(first.epoch) and not second.owns(first.epoch)
    clock.advance(WORKER_TIMEOUT_S + 0.1)
    assert not first.owns(first.epoch)


def test_a_worker_without_a_live_row_reads_for_every_check(make_control, cut, clock):
    control = make_control(cut)
    cut.no_writes = True
    clock.advance(5)
    assert not control.alive()
    before = cut.reads
    for _ in range(3):
        control.check()
    assert cut.reads >= before + 3


def test_listeners_get_each_change_even_when_one_of_them_fails(make_control):
    control, changes = make_control(), []
    control.on_change(lambda version: 1 / 0)
    control.on_change(changes.append)
    _change(control)
    control.confirm()
    assert changes == [control.version]


def test_every_listener_forgets_before_one_of_them_reads_the_store(make_control):
    control, steps = make_control(), []
    for name in ("limits", "discounts"):
        control.on_change(
            lambda version, name=name: steps.append(f"{name} forgot"),
            lambda version, name=name: steps.append(f"{name} read"),
        )
    _change(control)
    control.confirm()
    assert steps == ["limits forgot", "discounts forgot", "limits read", "discounts read"]


def test_every_start_has_a_higher_epoch(make_control):
    first, second = make_control(), make_control()
    epoch = first.epoch
    assert second.epoch > epoch
    first.stop()
    first.start()
    assert first.epoch > second.epoch


def test_a_worker_with_a_removed_row_continues_under_a_new_epoch(make_control, database):
    control = make_control()
    epoch = control.epoch
    database.write(lambda: database.execute("DELETE FROM worker WHERE epoch = ?", (epoch,)))
    control._beat()
    assert control.epoch > epoch
    assert set(control.live_epochs()) == {control.epoch}


def test_a_stopped_worker_leaves_no_row_and_no_trust(make_control, database):
    control, other_control = make_control(), make_control()
    control.stop()
    assert list(other_control.live_epochs().values()) == ["n1"]
    assert not control.alive()


@pytest.fixture
def coaster(cut, clock):
    """A worker that may serve for a minute without the store, and its changes of state."""
    control = Control(cut, clock, coast_s=60.0)
    control.changes = []
    control.on_coasting(control.changes.append)
    control.start()
    yield control
    cut.no_reads = cut.no_writes = False
    control.stop()


def _wait(condition):
    with gevent.Timeout(60):
        while not condition():
            gevent.sleep(0.01)


def test_a_worker_that_may_serve_alone_trusts_its_state_until_its_time_is_over(coaster, cut, clock):
    version = coaster.check()
    cut.no_reads = cut.no_writes = True
    _wait(lambda: coaster.changes == [True])
    clock.advance(30)
    _wait(lambda: coaster.owns(coaster.epoch))
    assert coaster.check() == version and coaster.serves_alone()
    clock.advance(31)
    assert not coaster.owns(coaster.epoch) and not coaster.serves_alone()
    with pytest.raises(errors.Unavailable):
        coaster.check()


def test_a_worker_that_served_alone_reads_changes_as_soon_as_the_store_is_back(coaster, cut, database):
    before = coaster.check()
    cut.no_reads = cut.no_writes = True
    _wait(lambda: coaster.serves_alone())
    database.write(Control.observer(database).bump)
    assert coaster.check() == before
    cut.no_reads = cut.no_writes = False
    _wait(lambda: coaster.changes == [True, False])
    _wait(lambda: coaster.check() == before + 1)


def test_a_worker_that_may_not_serve_alone_refuses_as_soon_as_its_lease_is_over(make_control, cut, clock):
    control = make_control(cut)
    cut.no_reads = cut.no_writes = True
    clock.advance(WORKER_TIMEOUT_S + 1)
    assert not control.serves_alone()
    with pytest.raises(errors.Unavailable):
        control.check()


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


def test_a_failed_read_fails_all_waiting_callers_and_is_not_kept() -> None:
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
