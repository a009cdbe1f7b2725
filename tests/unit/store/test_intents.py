import os

import pytest

from gateway.errors import Unavailable
from gateway.store.intents import Intents, orphans

ONE, TWO = b"1" * 16, b"2" * 16


def files(folder):
    return sorted(folder.glob("*.log"))


def abandoned(folder):
    """Return the intents that the next worker finds."""
    return [(dict(orphan.intents), set(orphan.epochs)) for orphan in orphans(folder)]


@pytest.fixture
def intents(tmp_path):
    return Intents(tmp_path, "a/node")


def test_open_intents_are_read_after_a_kill(intents, tmp_path):
    intents.claim(7)
    intents.begin(ONE, 0, b"payload")
    assert abandoned(tmp_path) == []  # Its owner lives.
    intents.close()
    ((found, epochs),) = abandoned(tmp_path)
    assert found[ONE, 0].payload == b"payload" and epochs == {7}


def test_a_voided_intent_is_not_acted_on(intents, tmp_path):
    intents.begin(ONE, 0, b"")
    intents.begin(TWO, 0, b"")
    intents.void(ONE, 0)
    intents.close()
    assert list(abandoned(tmp_path)[0][0]) == [(TWO, 0)]


def test_nothing_stays_of_a_worker_that_ended_all(intents, tmp_path):
    intents.begin(ONE, 0, b"")
    intents.end(ONE, 0)
    intents.end(ONE, 0)
    intents.close()
    assert files(tmp_path) == []


@pytest.mark.parametrize("damage", [lambda data: data[:-3], lambda data: data[:-1] + b"X"])
def test_a_torn_last_record_hides_only_itself(intents, tmp_path, damage):
    intents.begin(ONE, 0, b"whole")
    intents.begin(TWO, 0, b"torn")
    intents.close()
    (path,) = files(tmp_path)
    path.write_bytes(damage(path.read_bytes()))
    assert list(abandoned(tmp_path)[0][0]) == [(ONE, 0)]


def test_a_long_life_leaves_no_long_file(tmp_path):
    intents = Intents(tmp_path, "node", segment_bytes=2000)
    intents.claim(1)
    for number in range(500):
        intents.begin(number.to_bytes(16, "big"), 0, b"x" * 50)
        intents.end(number.to_bytes(16, "big"), 0)
    assert sum(path.stat().st_size for path in files(tmp_path)) < 4000


def test_a_segment_with_something_open_stays_and_later_ones_know_the_epoch(tmp_path):
    intents = Intents(tmp_path, "node", segment_bytes=200)
    intents.claim(5)
    intents.begin(ONE, 0, b"x" * 300)
    intents.begin(TWO, 0, b"")
    assert len(files(tmp_path)) == 2
    intents.close()
    assert [(list(found), epochs) for found, epochs in abandoned(tmp_path)] == [([(TWO, 0)], {5}), ([(ONE, 0)], {5})]


def test_two_heirs_never_hold_the_same_file(intents, tmp_path):
    intents.begin(ONE, 0, b"")
    intents.close()
    heir = orphans(tmp_path)
    first = next(heir)
    assert abandoned(tmp_path) == []
    first.discard()
    assert files(tmp_path) == []


def test_a_file_that_cannot_be_made_is_reported(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(Unavailable):
        Intents(blocked / "journal", "node")


def test_files_are_for_their_owner_alone(intents, tmp_path):
    assert os.stat(files(tmp_path)[0]).st_mode & 0o777 == 0o600


def test_a_killed_owner_leaves_a_file_that_is_read_up_to_its_last_record(intents, tmp_path):
    intents.begin(ONE, 0, b"payload")
    (path,) = files(tmp_path)
    copy = tmp_path / "heir" / "copy.log"
    copy.parent.mkdir()
    copy.write_bytes(path.read_bytes())  # as a kill leaves it: room for more, all of it zero
    assert len(copy.read_bytes()) > 100_000
    assert list(abandoned(copy.parent)[0][0]) == [(ONE, 0)]


def test_a_record_larger_than_a_segment_finds_room(tmp_path):
    intents = Intents(tmp_path, "node", segment_bytes=200)
    intents.claim(3)
    intents.begin(ONE, 0, b"x" * 5000)
    intents.begin(TWO, 0, b"y")
    intents.leave()
    found = {key: one.payload for intents_, _ in abandoned(tmp_path) for key, one in intents_.items()}
    assert found == {(ONE, 0): b"x" * 5000, (TWO, 0): b"y"}


def test_a_full_disk_refuses_the_next_request_and_keeps_the_others(tmp_path, monkeypatch):
    intents = Intents(tmp_path, "node", segment_bytes=200)
    intents.begin(ONE, 0, b"x" * 100)
    monkeypatch.setattr(os, "posix_fallocate", _refuse)
    with pytest.raises(Unavailable, match="No space"):
        intents.begin(TWO, 0, b"x" * 100)
    monkeypatch.undo()
    intents.begin(TWO, 0, b"x" * 100)
    intents.leave()
    assert {key for found, _ in abandoned(tmp_path) for key in found} == {(ONE, 0), (TWO, 0)}


def _refuse(*_args):
    raise OSError(28, "No space left on device")


def test_a_revised_intent_counts_as_it_was_written_last_also_in_a_later_file(tmp_path):
    intents = Intents(tmp_path, "node", segment_bytes=4096)
    intents.begin(ONE, 0, b"first")
    intents.begin(TWO, 0, b"other")
    intents.revise(ONE, 0, b"second")
    intents.revise(b"3" * 16, 0, b"never begun")
    for number in range(40):  # until the next file
        intents.begin(number.to_bytes(16, "big"), 1, bytes(200))
    intents.revise(ONE, 0, b"third")
    intents.leave()
    payloads = [found[ONE, 0].payload for found, _ in abandoned(tmp_path) if (ONE, 0) in found]
    assert payloads == [b"third", b"second"]


def test_a_revised_intent_ends_once(tmp_path):
    intents = Intents(tmp_path, "node", segment_bytes=4096)
    intents.begin(ONE, 0, b"first")
    for number in range(40):
        intents.begin(number.to_bytes(16, "big"), 1, bytes(200))
        intents.end(number.to_bytes(16, "big"), 1)
    intents.revise(ONE, 0, b"second")
    intents.end(ONE, 0)
    intents.close()
    assert files(tmp_path) == []
