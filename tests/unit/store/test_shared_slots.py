import gevent
import gevent.event
import pytest
from support.fleet import wait_until

from gateway.errors import Unavailable
from gateway.store.documents import Documents
from gateway.store.shared_slots import LEASE_S, SharedSlots


@pytest.fixture
def workers(database, open_store, database_url, clock):
    """Two workers of one installation."""
    return [SharedSlots(Documents(one), clock, "export", 2) for one in (database, open_store(database_url))]


def test_slots_of_all_workers_are_limited_until_they_are_released(workers):
    here, there = workers
    first, second = here.take(["org_1"]), there.take(["org_1"])
    assert first is not None and second is not None
    assert here.take(["org_1"]) is None and there.take(["org_1"]) is None
    assert here.take(["org_10"]) is not None
    second.give()
    second.give()
    assert here.take(["org_1"]) is not None and there.take(["org_1"]) is None


def test_no_slot_is_used_when_one_of_several_names_has_none_left(workers):
    here, there = workers
    assert [here.take(["org_2"]) is not None for _ in range(3)] == [True, True, False]
    assert there.take(["org_1", "org_2"]) is None
    assert [here.take(["org_1"]) is not None for _ in range(3)] == [True, True, False]


def test_a_refused_take_does_not_wait_for_the_writer_of_the_store(workers, monkeypatch):
    here, there = workers
    held = [here.take(["org_1"]) for _ in range(2)]

    def refuse(*document):
        raise AssertionError("a refused take wrote to the store")

    monkeypatch.setattr(Documents, "put_if_absent", refuse)
    assert there.take(["org_1"]) is None
    monkeypatch.undo()
    for slots in held:
        slots.give()


def test_a_refused_take_reads_many_slots_at_once(database, clock, monkeypatch):
    slots = SharedSlots(Documents(database), clock, "socket", 60)
    held = [slots.take(["org_1"]) for _ in range(60)]
    assert None not in held
    reads = []
    query_row, query_rows = database.query_row, database.query_rows
    monkeypatch.setattr(database, "query_row", lambda *given: reads.append(given) or query_row(*given))
    monkeypatch.setattr(database, "query_rows", lambda *given: reads.append(given) or query_rows(*given))
    assert slots.take(["org_1"]) is None and 0 < len(reads) <= 3
    held[30].give()
    assert slots.take(["org_1"]) is not None and slots.take(["org_1"]) is None


def test_an_unrenewed_slot_lapses_and_its_holder_takes_no_other(workers, database, clock):
    here, there = workers
    documents = Documents(database)
    kept, dead = here.take(["org_1"]), here.take(["org_1"])
    for _ in range(5):
        clock.advance(LEASE_S / 4)
        kept.renew()
    for number in range(2):  # what the store's own clock does after a minute
        if documents.get("slot", f"export/org_1/{number}") == dead._token:
            documents.delete("slot", f"export/org_1/{number}")
    other = there.take(["org_1"])
    assert other is not None
    dead.renew()
    dead.give()
    assert here.take(["org_1"]) is None
    kept.give()
    assert here.take(["org_1"]) is not None


def test_an_unavailable_store_does_not_prevent_the_end_of_a_session(workers, monkeypatch):
    held = workers[0].take(["org_1"])

    def away(*given):
        raise Unavailable("away")

    monkeypatch.setattr(held._documents, "delete", away)
    held.give()


@pytest.mark.parametrize("hangs_up_at", [1, 2])
def test_slots_of_a_killed_greenlet_are_released(workers, database, monkeypatch, hangs_up_at):
    here, there = workers
    put, committed, calls = Documents.put_if_absent, gevent.event.Event(), []

    def put_if_absent(*document):
        stored = put(*document)
        calls.append(document)
        if len(calls) == hangs_up_at:
            committed.set()
            gevent.sleep(0.01)  # the store's word is on its way
        return stored

    monkeypatch.setattr(Documents, "put_if_absent", put_if_absent)
    taking = gevent.spawn(here.take, ["org_1", "org_2"])
    committed.wait()
    taking.kill()
    taken = []

    def both_are_free() -> bool:
        taken.append(there.take(["org_1", "org_2"]) is not None)
        return taken.count(True) == 2

    wait_until(both_are_free)
    assert there.take(["org_1", "org_2"]) is None
