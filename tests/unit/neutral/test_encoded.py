from base64 import b64decode, b64encode
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.neutral import file_types
from gateway.neutral.file_types import decode_base64


@given(st.binary(max_size=60), st.integers(0, 80), st.sampled_from(["", "=", "==", "-", "\n", "é"]))
def test_decoding_in_pieces_equals_decoding_in_one_call(data: bytes, at: int, spoilt: str) -> None:
    text = b64encode(data).decode()
    text = text[: at % (len(text) + 1)] + spoilt + text[at % (len(text) + 1) :]
    wanted = None
    with suppress(ValueError):
        wanted = b64decode(text, validate=True) if len(text) % 4 == 0 else None  # it takes a lone = at the end
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(file_types, "BASE64_PIECE_LENGTH", 4)
        if wanted is None and len(text) > 4:
            with pytest.raises(ValueError):
                decode_base64(text)
        elif wanted is not None:
            assert decode_base64(text) == wanted
