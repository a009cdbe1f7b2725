"""Parts of a JSON text are counted without decoding it, with any cut into pieces."""

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.neutral import json_weight

TEXTS = st.text(alphabet='"\\{}[],a', max_size=30)
VALUES = st.recursive(
    st.none() | st.integers(0, 9) | TEXTS,
    lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner),
    max_leaves=20,
)


@pytest.mark.parametrize(
    "text",
    ["1,2,abc,", 'a\n",', "\\,", "\\\\", "é,"],
    ids=["plain", "escaped", "backslashes", "only backslashes", "utf-8"],
)
def test_a_long_text_full_of_commas_is_counted_in_pieces(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A single match over 28 MB blocked the interpreter for half a second, and with it every caller of the worker."""
    longest: list[int] = []
    blank_escapes = json_weight.blank_escapes

    def watch(piece: bytes) -> bytes:
        longest.append(len(piece))
        return blank_escapes(piece)

    monkeypatch.setattr(json_weight, "blank_escapes", watch)
    raw = orjson.dumps({"model": "m", "messages": [{"role": "user", "content": text * 400_000}], "more": [1, 2, 3]})
    assert not json_weight.has_more(raw, 9) and json_weight.has_more(raw, 8)
    assert max(longest) < json_weight.PIECE_BYTES + 16 and len(longest) > 5


@given(VALUES, st.integers(1, 9))
def test_where_a_piece_ends_changes_nothing(value: object, size: int) -> None:
    raw = orjson.dumps(value)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(json_weight, "PIECE_BYTES", size)
        assert not json_weight.has_more(raw, _structure(value))
        assert not _structure(value) or json_weight.has_more(raw, _structure(value) - 1)


@given(VALUES)
def test_marks_within_texts_are_no_structure(value: object) -> None:
    raw = orjson.dumps(value)
    assert json_weight.has_more(raw, 0) == (_structure(value) > 0)
    if _structure(value):
        assert not json_weight.has_more(raw, _structure(value))
        assert json_weight.has_more(raw, _structure(value) - 1)


def _structure(value: object) -> int:
    """Count objects, lists and commas of a value."""
    if not isinstance(value, dict | list):
        return 0
    inner = value.values() if isinstance(value, dict) else value
    return 1 + max(0, len(value) - 1) + sum(map(_structure, inner))


@pytest.mark.parametrize(
    ("raw", "large"),
    [
        (b"[" * (json_weight.LARGE - 1), False),
        (b'{"text":"' + b"A sentence of some length, and one more. " * 9_000 + b'"}', False),
        (b'{"text":"' + b"x" * json_weight.LARGE_WITHOUT_PARTS + b'"}', True),
        (
            b"[" + b'{"text":"one message of an agent, with a text of more than a line"},' * 2_000 + b"1]",
            True,
        ),
        (b"[" + b"0.12345678," * 20_000 + b"1]", True),
    ],
    ids=["short", "one text", "long text", "objects", "numbers"],
)
def test_a_thread_handles_long_texts_and_those_of_many_parts(raw: bytes, large: bool) -> None:
    assert json_weight.is_large(raw) is large
