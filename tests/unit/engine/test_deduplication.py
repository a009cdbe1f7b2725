import hashlib

import orjson
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine import stored_responses

LARGE = "x" * stored_responses.MIN_PART_BYTES
leaves = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=20) | st.just(LARGE)
values = st.recursive(
    leaves, lambda inner: st.lists(inner) | st.dictionaries(st.text(max_size=5), inner), max_leaves=30
)


def digest(data: bytes) -> bytes:
    return hashlib.sha256(data).digest()[:16]


@given(values)
def test_split_documents_are_restored(value: object) -> None:
    segments, parts = stored_responses.split(value, digest)
    assert (
        orjson.loads(
            stored_responses.join(stored_responses.unpack_segments(stored_responses.pack_segments(segments)), parts)
        )
        == value
    )
    assert set(stored_responses.digests_of(segments)) == parts.keys()


def test_a_caller_cannot_write_what_looks_like_a_piece() -> None:
    _, parts = stored_responses.split({"a": LARGE}, digest)
    (known,) = parts
    forged = {"a": known.hex(), "b": [known.decode("latin-1")]}
    segments, own = stored_responses.split(forged, digest)
    assert own == {} and orjson.loads(stored_responses.join(segments, own)) == forged


def test_a_longer_list_has_the_pieces_of_the_shorter_one() -> None:
    said = [{"text": f"{place} some words"} for place in range(2000)]
    _, before = stored_responses.split(said, digest)
    _, after = stored_responses.split([*said, {"text": "more"}], digest)
    assert len(before) > 5 and before.keys() <= after.keys()


def test_pieces_have_a_bound() -> None:
    segments, parts = stored_responses.split(
        [f"{place}{LARGE}" for place in range(stored_responses.MAX_PARTS * 2)], digest
    )
    assert len(parts) == stored_responses.MAX_PARTS
    assert (
        len(stored_responses.join(segments, parts)) > stored_responses.MAX_PARTS * 2 * stored_responses.MIN_PART_BYTES
    )
