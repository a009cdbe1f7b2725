import hashlib

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine import pieces

LARGE = "x" * pieces.APART
leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20) | st.just(LARGE)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=30
)


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


@given(values)
def test_what_was_split_is_the_same_again(value: object) -> None:
    segments, parts = pieces.split(value, digest)
    assert pieces.join(pieces.unpack(pieces.pack(segments)), parts) == value
    assert set(pieces.digests_of(segments)) == parts.keys()


def test_a_caller_cannot_write_what_looks_like_a_piece() -> None:
    _, parts = pieces.split({"a": LARGE}, digest)
    (known,) = parts
    forged = {"a": known.hex(), "b": [known.decode("latin-1")]}
    segments, own = pieces.split(forged, digest)
    assert own == {} and pieces.join(segments, own) == forged


def test_a_longer_list_has_the_pieces_of_the_shorter_one() -> None:
    said = [{"text": f"{place} some words"} for place in range(2000)]
    _, before = pieces.split(said, digest)
    _, after = pieces.split([*said, {"text": "more"}], digest)
    assert len(before) > 5 and before.keys() <= after.keys()


def test_pieces_have_a_bound() -> None:
    segments, parts = pieces.split([f"{place}{LARGE}" for place in range(pieces.MOST_PIECES * 2)], digest)
    assert len(parts) == pieces.MOST_PIECES
    assert len(orjson.dumps(pieces.join(segments, parts))) > pieces.MOST_PIECES * 2 * pieces.APART
