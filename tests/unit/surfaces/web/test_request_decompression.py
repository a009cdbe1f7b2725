"""Compressed bodies are decompressed in small steps, whatever they contain."""

import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError, InvalidRequest
from gateway.runtime.zstd import zstd
from gateway.surfaces.web import request_decompression as request_decompression_module
from gateway.surfaces.web.request_decompression import MAX_MEMBERS, STEP_OUT, STEPS_INLINE, decode_body

EMPTY = gzip.compress(b"")


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": zstd.compress}


def test_the_codings_of_http_are_understood_in_any_case() -> None:
    """RFC 9110, section 8.4.1: x-gzip is gzip."""
    for coding, pack in {**PACKERS, "x-gzip": gzip.compress, "GZIP": gzip.compress}.items():
        assert decode_body(pack(b"hello"), coding, 1_000) == b"hello"


@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_sixty_thousand_empty_members_are_refused_after_a_few(coding, monkeypatch):
    engines = []
    monkeypatch.setattr(
        request_decompression_module,
        "_count",
        lambda members, count=request_decompression_module._count: engines.append(1) or count(members),
    )
    with pytest.raises(InvalidRequest) as caught:
        decode_body(PACKERS[coding](b"") * 60_000, coding, 1_000_000)
    assert caught.value.code == "malformed_request" and str(MAX_MEMBERS) in caught.value.message
    assert len(engines) == MAX_MEMBERS + 1


@pytest.mark.parametrize("coding", PACKERS)
def test_a_long_body_continues_in_a_thread_after_a_few_steps(coding):
    plain, handed = bytes(8_000_000), []

    def run(work, steps):
        handed.append(work(steps))
        return handed[-1]

    assert decode_body(PACKERS[coding](plain), coding, len(plain), run) == plain
    left = sum(len(part) for batch in handed for part in batch)
    assert len(handed) > 1 and left >= len(plain) - STEPS_INLINE * STEP_OUT
    assert decode_body(PACKERS[coding](plain[:1000]), coding, 1000, run) == plain[:1000]
    assert [batch for batch in handed if not batch] == [[]], "what is short takes no thread"


@given(st.lists(st.binary(max_size=300), min_size=1, max_size=5), st.sampled_from(["gzip", "zstd"]))
def test_members_are_one_body(pieces, coding):
    packed = b"".join(map(PACKERS[coding], pieces))
    assert decode_body(packed, coding, 2000) == b"".join(pieces)


@given(st.binary(max_size=200), st.sampled_from([*PACKERS]), st.binary(max_size=3000), st.integers(0, 3000))
def test_anything_is_a_body_or_refused(noise, coding, data, at):
    packed = PACKERS[coding](data)
    for wire in (noise, packed[:at], packed[:at] + noise + packed[at:], packed + noise):
        try:
            assert len(decode_body(wire, coding, 2000)) <= 2000
        except GatewayError as error:
            assert error.status in (400, 413)


@pytest.mark.parametrize("coding", PACKERS)
@pytest.mark.parametrize("cut", [1, 5, 9])
def test_a_cut_body_is_reported_as_broken_at_any_size(coding, cut):
    packed = PACKERS[coding](bytes(range(256)) * 4000)
    with pytest.raises(InvalidRequest) as caught:
        decode_body(packed[:-cut], coding, 2_000_000)
    assert caught.value.status == 400


def test_a_frame_may_not_ask_for_a_window_beyond_the_cap():
    # Magic number, a descriptor without single segment, a window of 2^(10+20) bytes.
    with pytest.raises(InvalidRequest):
        decode_body(b"\x28\xb5\x2f\xfd\x00" + bytes([20 << 3]) + b"\x01\x00\x00", "zstd", 1000)


def test_a_member_that_ends_after_a_full_step_is_followed_by_the_next():
    packed = gzip.compress(bytes(STEP_OUT + 5000)) + gzip.compress(b"next")
    assert decode_body(packed, "gzip", 1_000_000) == bytes(STEP_OUT + 5000) + b"next"
