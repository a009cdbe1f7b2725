"""Packed bodies, whole, cut, joined and damaged: a body within the cap, or a refusal, in a bounded number of steps."""

import gzip
import zlib

from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import GatewayError
from gateway.runtime.zstd import zstd
from gateway.surfaces.web import request_decompression as request_decompression_module
from gateway.surfaces.web.request_decompression import STEP_IN, STEP_OUT, decode_body

CAP = 300_000
BARE = zlib.compressobj(wbits=-15)


def compress_with_checksum(data: bytes) -> bytes:
    return zstd.compress(data, options={zstd.CompressionParameter.checksum_flag: 1})


PACKERS = {"gzip": gzip.compress, "deflate": zlib.compress, "zstd": compress_with_checksum}
BLOCKS = st.one_of(st.binary(max_size=2000), st.integers(0, 400_000).map(bytes))


@st.composite
def packed(draw) -> tuple[str, bytes]:
    coding = draw(st.sampled_from([*PACKERS]))
    data = b"".join(PACKERS[coding](draw(BLOCKS)) for _ in range(draw(st.integers(0, 3))))
    data = data * draw(st.sampled_from([1, 1, 1, 2, 70]))
    for _ in range(draw(st.integers(0, 3))):
        at = draw(st.integers(0, len(data)))
        data = data[:at] + draw(st.binary(max_size=4)) + data[at + draw(st.integers(0, 4)) :]
    return coding, data


@given(packed())
def test_a_packed_body_is_read_within_its_bounds(packed_data: tuple[str, bytes]) -> None:
    coding, data = packed_data
    steps = 0
    try:
        for part in request_decompression_module._steps(data, coding, CAP):
            steps += 1
            assert len(part) <= STEP_OUT
        assert len(decode_body(data, coding, CAP)) <= CAP
    except GatewayError as error:
        assert error.status in (400, 413)
    # Each step brings bytes in or out, but for the last of each member.
    assert (
        steps
        <= 2 * request_decompression_module.MAX_MEMBERS + len(data) // STEP_IN + CAP // 1000 + len(data) // 1000 + 8
    )


@given(st.lists(BLOCKS, min_size=1, max_size=4), st.sampled_from([*PACKERS]))
def test_compressed_bytes_are_restored(pieces: list[bytes], coding: str) -> None:
    whole = b"".join(pieces)
    wire = b"".join(map(PACKERS[coding], pieces))
    try:
        assert decode_body(wire, coding, CAP) == whole
    except GatewayError as error:
        assert error.status == 413 and len(whole) > CAP
