"""The line of an unreadable result is found without a search of all that a provider sent."""

import time

import pytest

from gateway.batches.result_index import NAMED_BYTES, ResultIndex, download
from gateway.providers.batches.batch_calls import MAX_RESULT_BYTES
from gateway.providers.batches.batch_codec import UNREADABLE, ResultLine

PART = "part_0123456789abcdef"
NAME = f'"custom_id":"{PART}-7"'.encode()


class Part:
    id, remote, word, files, total, verified = PART, "batch_1", "completed", "file-1", 10, True


class Results:
    """The results that a provider sends."""

    def __init__(self, *bodies: bytes) -> None:
        self._bodies = bodies

    def results(self, *_given):
        for body in self._bodies:
            yield ResultLine("", UNREADABLE, body)


def unreadable_of(tmp_path, *bodies: bytes) -> tuple[set[int], int]:
    index = ResultIndex(str(tmp_path))
    try:
        download(Results(*bodies), Part(), None, index, range(10))
        return index.unreadable, index.strange
    finally:
        index.close()


@pytest.mark.parametrize("filling", [b"x", b" part_0123456789abcde"])
def test_a_result_as_large_as_possible_takes_no_moment_of_the_event_loop(tmp_path, filling):
    """A search of 64 MB kept every other request waiting for more than a second."""
    body = NAME + filling * (MAX_RESULT_BYTES // len(filling))
    began = time.process_time()
    assert unreadable_of(tmp_path, body) == ({7}, 0)
    assert time.process_time() - began < 0.2


def test_the_name_is_found_at_the_beginning_and_at_the_end_if_it_is_the_only_one(tmp_path):
    filling = b"x " * NAMED_BYTES
    assert unreadable_of(tmp_path, NAME + filling) == ({7}, 0)
    assert unreadable_of(tmp_path, filling + NAME) == ({7}, 0)
    assert unreadable_of(tmp_path, filling + NAME + filling) == (set(), 1)
    assert unreadable_of(tmp_path, NAME + filling + NAME.replace(b"-7", b"-8")) == (set(), 1)
