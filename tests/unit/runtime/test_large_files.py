"""Large bodies are in unnamed files on disk, and can be read concurrently."""

import os

import pytest

from gateway.errors import RequestTooLarge, Unavailable
from gateway.runtime.large_files import FileReader, StoredFile, copy, whole


def test_small_files_stay_in_memory_and_large_ones_do_not(tmp_path):
    file = StoredFile(str(tmp_path / "spool"), in_memory=10)
    file.write(b"0123456789")
    assert not file.on_disk and not (tmp_path / "spool").exists()
    file.write(b"ab")
    assert file.on_disk and len(file) == 12 and file.read_all() == b"0123456789ab"
    assert os.listdir(tmp_path / "spool") == []  # the file has no name, so nothing is left after a kill


def test_a_file_is_read_as_often_as_one_likes_by_several_at_a_time(tmp_path):
    file = StoredFile(str(tmp_path), in_memory=0)
    for number in range(5):
        file.write(bytes([number]) * 100_000)
    first, second = file.pieces(), file.pieces()
    taken = next(first) + next(second)
    assert taken[: len(taken) // 2] == taken[len(taken) // 2 :]
    assert b"".join(file.pieces()) == file.read_all() == whole(file) and len(file) == 500_000
    assert file.read(3, 99_999) == b"\0\1\1" and file.read(9, 500_000) == b""


def test_a_full_disk_is_an_error_of_ours_and_not_a_crash(tmp_path):
    blocked = tmp_path / "blocked"
    blocked.write_text("a file where the folder should be")
    with pytest.raises(Unavailable) as caught:
        StoredFile(str(blocked), in_memory=0).write(b"x")
    assert str(tmp_path) not in caught.value.message


def test_wsgi_reads_it_front_to_back():
    reader = FileReader(StoredFile.of(b"one\ntwo\nthree"))
    assert (reader.read(2), reader.readline(), list(reader), reader.read()) == (
        b"on",
        b"e\n",
        [b"two\n", b"three"],
        b"",
    )


def test_a_body_without_a_length_is_accepted_up_to_its_cap(tmp_path):
    file = StoredFile(str(tmp_path), in_memory=1)
    copy(FileReader(StoredFile.of(bytes(1000))).read, file, 1000, lambda: RequestTooLarge("no"))
    assert len(file) == 1000
    with pytest.raises(RequestTooLarge):
        copy(
            FileReader(StoredFile.of(bytes(1001))).read, StoredFile(str(tmp_path)), 1000, lambda: RequestTooLarge("no")
        )
