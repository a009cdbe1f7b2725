"""Answers with files in base64 are read as they arrive, whatever their pieces, and without the files in memory."""

import base64

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.errors import UpstreamFailed
from gateway.providers import inline_files
from gateway.providers.inline_files import MIN_FILE_BYTES, InlineFiles

FILM = bytes(range(256)) * 300
DIGITS = base64.b64encode(FILM).decode()
ANSWER = {"name": 'a "quoted" \\ name', "videos": [{"bytes": DIGITS, "kind": "é"}], "n": 1}


def pieces_of(body: bytes, size: int) -> list[bytes]:
    return [body[at : at + size] for at in range(0, len(body), size)]


@pytest.mark.parametrize("size", [1, 3, 1000, 1 << 20])
@pytest.mark.parametrize("slash", [b"/", b"\\/"])
def test_a_long_text_is_a_file_and_the_rest_is_what_it_was(size: int, slash: bytes) -> None:
    files = InlineFiles()
    wire = orjson.loads(files.read(pieces_of(orjson.dumps(ANSWER).replace(b"/", slash), size)))
    video = wire["videos"][0]
    file = files.take(video["bytes"])
    assert file is not None and file.read_all() == FILM
    assert files.take(video["bytes"]) is None and files.take(7) is None and files.take("other") is None
    video["bytes"] = DIGITS
    assert wire == ANSWER


def test_unused_files_keep_their_beginning() -> None:
    files = InlineFiles(whole=False)
    wire = orjson.loads(files.read(pieces_of(orjson.dumps(ANSWER), 1000)))
    file = files.take(wire["videos"][0]["bytes"])
    assert file is not None and FILM.startswith(file.read_all()) and 16 <= len(file) <= MIN_FILE_BYTES


@settings(max_examples=25, deadline=None)
@given(
    st.recursive(
        st.text() | st.integers() | st.none(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    ),
    st.integers(1, 9),
)
def test_an_answer_without_files_is_unchanged(value: object, size: int) -> None:
    body = orjson.dumps(value, option=orjson.OPT_PASSTHROUGH_DATACLASS) if _fits(value) else b"{}"
    assert InlineFiles().read(pieces_of(body, size)) == body


@pytest.mark.parametrize(
    "text", ["!" * (MIN_FILE_BYTES + 2), "A" * (MIN_FILE_BYTES + 2), "A" * MIN_FILE_BYTES + "\\u0041" * 9]
)
def test_a_long_text_that_is_no_base64_is_an_odd_answer(text: str) -> None:
    with pytest.raises(UpstreamFailed):
        InlineFiles().read([b'{"a": "', text.encode(), b'"}'])


def test_texts_and_files_beyond_the_limits_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UpstreamFailed) as refused:
        InlineFiles().read([b"[" + b"1," * MIN_FILE_BYTES] * 3)
    assert refused.value.code == "response_too_large"
    monkeypatch.setattr(inline_files, "MAX_FILE_BYTES", MIN_FILE_BYTES)
    with pytest.raises(UpstreamFailed) as refused:
        InlineFiles().read([b'["', b"A" * (2 * MIN_FILE_BYTES)])
    assert refused.value.code == "response_too_large"


def _fits(value: object) -> bool:
    """Whether it can be written at all: no lone surrogates, no integers beyond 64 bits."""
    try:
        orjson.dumps(value)
    except TypeError:
        return False
    return True
