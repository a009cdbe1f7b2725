"""Files within JSON bodies: what is sent is the very JSON, and no file is ever whole in memory on its way."""

import json
import os
import tracemalloc
from base64 import b64decode, b64encode
from pathlib import Path

import pytest

from gateway.providers.inline_files import PIECE_BYTES, Base64Files
from gateway.runtime.large_files import StoredFile, whole


@pytest.mark.parametrize("size", [0, 1, 2, 3, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 2])
def test_a_file_stands_in_its_place_as_base64(size: int) -> None:
    data = os.urandom(size)
    files = Base64Files()
    body = {"a": f"data:x;base64,{files.hold(StoredFile.of(data))}", "b": [files.hold(StoredFile.of(b"two"))], "c": 1}
    sent = files.encode(body)
    read = json.loads(whole(sent))
    assert b64decode(read["a"].partition(",")[2]) == data and read["b"] == [b64encode(b"two").decode()]
    assert len(whole(sent)) == len(sent)
    assert whole(sent) == whole(sent)  # it is sent again at each try


def test_a_body_without_files_is_plain() -> None:
    assert Base64Files().encode({"a": 1}) == b'{"a":1}'


def test_large_files_are_sent_in_flat_memory(tmp_path: Path) -> None:
    files, body = Base64Files(), {}
    for number in range(4):
        file = StoredFile(str(tmp_path))
        for _ in range(8):
            file.write(bytes(1 << 20))
        assert file.on_disk
        body[str(number)] = files.hold(file)
    tracemalloc.start()
    sent = files.encode(body)
    assert not isinstance(sent, bytes)
    total = sum(map(len, sent.pieces()))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert total == len(sent) > 40 << 20 and peak < 2 << 20
