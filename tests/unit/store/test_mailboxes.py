import re
import time
from functools import partial

import pytest

from gateway.errors import Unavailable
from gateway.store import mailboxes
from gateway.store.documents import Documents
from gateway.store.mailboxes import MAX_BYTES, MAX_MESSAGE_BYTES, MAX_WAITING, OWNER_BYTES, OWNER_WAITING, Mailboxes


@pytest.fixture
def workers(database, open_store, database_url):
    """Two workers of one installation."""
    both = Mailboxes(Documents(database)), Mailboxes(Documents(open_store(database_url)))
    yield both
    for one in both:
        one.leave()
    until(lambda: not any(one._collecting for one in both))


def until(condition):
    end = time.monotonic() + 60
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def post(workers, owner, name, message):
    place = workers.find(owner, name)
    assert place is not None
    return workers.post(owner, place, name, message)


def test_a_message_reaches_a_mailbox_of_another_worker_and_of_the_own(workers):
    here, there = workers
    box = here.open("key_1")
    post(there, "key_1", box.name, b"from there")
    assert box.take(5) == b"from there"
    post(here, "key_1", box.name, b"from here")
    assert box.take(0) == b"from here"
    here.close(box)


def test_a_mailbox_belongs_to_its_owner(workers):
    here, there = workers
    box = here.open("key_1")
    assert here.find("key_2", box.name) is None and there.find("key_2", box.name) is None
    assert there.find("key_1", "other") is None
    here.close(box)


def test_mailboxes_are_counted_over_all_workers_until_they_are_closed(workers):
    here, there = workers
    one, two = here.open("key_1"), there.open("key_1")
    here.open("key_10")
    assert here.count("key_1") == there.count("key_1") == 2
    here.close(one)
    there.close(two)
    assert one.ended and one.take(5) is None
    until(lambda: here.count("key_1") == 0)
    assert there.find("key_1", one.name) is None


def test_a_worker_that_leaves_ends_all_and_takes_no_more(workers):
    here, there = workers
    box = here.open("key_1")
    here.leave()
    assert box.ended and box.take(5) is None
    with pytest.raises(Unavailable):
        here.open("key_1")
    there.close(there.open("key_1"))


def test_one_who_takes_nothing_is_no_listener(workers):
    here, _ = workers
    box = here.open("key_1")
    for _ in range(MAX_WAITING + 1):
        post(here, "key_1", box.name, b"x")
    assert box.ended
    here.close(box)


def test_a_mailbox_holds_so_many_bytes_and_gives_room_as_they_are_taken(workers):
    here, _ = workers
    box, piece = here.open("key_1"), bytes(MAX_MESSAGE_BYTES)
    for _ in range(3):
        assert all(post(here, "key_1", box.name, piece) for _ in range(MAX_BYTES // MAX_MESSAGE_BYTES))
        while box.size:
            assert box.take(0) == piece
    assert not post(here, "key_1", box.name, piece + b"x") and not box.ended
    for _ in range(MAX_BYTES // MAX_MESSAGE_BYTES):
        post(here, "key_1", box.name, piece)
    assert not post(here, "key_1", box.name, b"x") and box.ended
    here.close(box)


def test_an_owner_has_so_many_bytes_in_all_mailboxes_of_a_worker_and_disturbs_no_other(workers):
    here, _ = workers
    boxes = [here.open("key_1") for _ in range(OWNER_BYTES // MAX_MESSAGE_BYTES + 1)]
    taken = [post(here, "key_1", box.name, bytes(MAX_MESSAGE_BYTES)) for box in boxes]
    assert taken == [True] * (len(boxes) - 1) + [False]
    assert not any(box.ended for box in boxes)
    other = here.open("key_2")
    assert post(here, "key_2", other.name, b"x") and other.take(0) == b"x"
    assert boxes[0].take(0) and post(here, "key_1", boxes[-1].name, b"x")


def test_waiting_messages_in_the_store_are_bounded_for_each_owner(workers, monkeypatch):
    here, there = workers
    monkeypatch.setattr(mailboxes, "POLL_INTERVAL_S", 60.0)  # the other worker takes nothing
    fetch = there._fetch
    fetched: list[int] = []

    def record_fetch() -> int:
        fetched.append(fetch())
        return fetched[-1]

    monkeypatch.setattr(there, "_fetch", record_fetch)
    mine, other = there.open("key_1"), there.open("key_2")
    until(lambda: fetched)  # its only look for now is over
    assert [post(here, "key_1", mine.name, b"x") for _ in range(OWNER_WAITING + 1)].count(True) == OWNER_WAITING
    assert not here.has_room("key_1", here.find("key_1", mine.name))
    assert post(here, "key_2", other.name, bytes(MAX_MESSAGE_BYTES))
    there._fetch()
    assert post(here, "key_1", mine.name, b"x")
    there._collecting = False


def test_counting_reads_the_owners_own_documents_alone(workers, database):
    """It looked at the mailboxes of all keys."""
    here, _ = workers
    seen = []
    execute = database.execute
    database.execute = lambda sql, params=(): seen.append((sql, params)) or execute(sql, params)
    here.count("key_1")
    here.has_room("key_1", "post:elsewhere")
    database.execute = execute

    def plan_of(sql, params):
        if database.kind != "sqlite":  # an empty table is read whole
            execute("SET LOCAL enable_seqscan = off")
        explain = "EXPLAIN QUERY PLAN" if database.kind == "sqlite" else "EXPLAIN"
        return " ".join(str(row) for row in execute(f"{explain} {sql}", params).fetchall())

    plans = [database.write(partial(plan_of, *one)) for one in seen]
    assert len(plans) == 2
    assert all(re.search(r"SEARCH document USING INDEX \w+ \(kind=|Index Cond: .*kind", plan) for plan in plans), plans
