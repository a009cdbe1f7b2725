import time

import pytest

from gateway.errors import Unavailable
from gateway.store.documents import Documents
from gateway.store.mailboxes import MOST_WAITING, Mailboxes


@pytest.fixture
def workers(database, open_store, database_url):
    """Two workers of one installation."""
    both = Mailboxes(Documents(database)), Mailboxes(Documents(open_store(database_url)))
    yield both
    for one in both:
        one.leave()
    until(lambda: not any(one._collecting for one in both))


def until(condition):
    end = time.monotonic() + 5
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.02)


def post(workers, owner, name, message):
    place = workers.find(owner, name)
    assert place is not None
    workers.post(place, name, message)


def test_a_message_reaches_a_mailbox_of_another_worker_and_of_the_own(workers):
    here, there = workers
    box = here.listen("key_1")
    post(there, "key_1", box.name, b"from there")
    assert box.take(5) == b"from there"
    post(here, "key_1", box.name, b"from here")
    assert box.take(0) == b"from here"
    here.close(box)


def test_a_mailbox_belongs_to_its_owner(workers):
    here, there = workers
    box = here.listen("key_1")
    assert here.find("key_2", box.name) is None and there.find("key_2", box.name) is None
    assert there.find("key_1", "other") is None
    here.close(box)


def test_mailboxes_are_counted_over_all_workers_until_they_are_closed(workers):
    here, there = workers
    one, two = here.listen("key_1"), there.listen("key_1")
    here.listen("key_10")
    assert here.count("key_1") == there.count("key_1") == 2
    here.close(one)
    there.close(two)
    assert one.ended and one.take(5) is None
    until(lambda: here.count("key_1") == 0)
    assert there.find("key_1", one.name) is None


def test_a_worker_that_leaves_ends_all_and_takes_no_more(workers):
    here, there = workers
    box = here.listen("key_1")
    here.leave()
    assert box.ended and box.take(5) is None
    with pytest.raises(Unavailable):
        here.listen("key_1")
    there.close(there.listen("key_1"))


def test_one_who_takes_nothing_is_no_listener(workers):
    here, _ = workers
    box = here.listen("key_1")
    for _ in range(MOST_WAITING + 1):
        post(here, "key_1", box.name, b"x")
    assert box.ended
    here.close(box)
