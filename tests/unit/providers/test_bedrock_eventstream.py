import random
import struct
import zlib

import pytest
from fakes.bedrock import encode_frame

from gateway.errors import StreamTruncated, UpstreamFailed
from gateway.providers.bedrock import eventstream
from gateway.providers.bedrock.eventstream import Frame, FrameReader
from gateway.providers.sse import THREAD_BYTES, LongEvent

FRAMES = [
    encode_frame("messageStart", {"role": "assistant"}),
    encode_frame("contentBlockDelta", {"delta": {"text": "naïve ✓"}, "contentBlockIndex": 0}),
    encode_frame("throttlingException", {"message": "slow down"}, "exception"),
]
STREAM = b"".join(FRAMES)


def read(*pieces: bytes) -> list[Frame]:
    reader = FrameReader()
    return [frame for piece in pieces for frame in reader.feed(piece)]


def test_frames_are_those_that_the_vendors_reader_reads():
    from botocore.eventstream import EventStreamBuffer

    vendor = EventStreamBuffer()
    vendor.add_data(STREAM)
    theirs = [(event.headers[":message-type"], bytes(event.payload)) for event in vendor]
    assert [(frame.kind, frame.payload) for frame in read(STREAM)] == theirs
    assert [frame.name for frame in read(STREAM)] == ["messageStart", "contentBlockDelta", "throttlingException"]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (0, b""),  # true
        (1, b""),  # false
        (2, b"\x01"),
        (3, b"\x01" * 2),
        (4, b"\x01" * 4),
        (5, b"\x01" * 8),
        (6, b"\x00\x03abc"),
        (8, b"\x01" * 8),  # a time
        (9, b"\x01" * 16),  # a UUID
    ],
)
def test_headers_of_any_type_may_come_before_those_that_are_read(kind: int, value: bytes) -> None:
    frame = encode_frame("messageStop", {}, before=b"\x04date" + bytes([kind]) + value)
    assert [found.name for found in read(frame)] == ["messageStop"]


def test_any_split_gives_the_same_frames():
    whole = read(STREAM)
    for at in range(len(STREAM)):
        assert read(STREAM[:at], STREAM[at:]) == whole
    assert read(*(STREAM[at : at + 1] for at in range(len(STREAM)))) == whole


def test_any_spoilt_byte_is_noticed_or_leaves_the_frame_unfinished():
    dice = random.Random(7)
    for at in dice.sample(range(len(FRAMES[1])), 60):
        spoilt = bytearray(FRAMES[1])
        spoilt[at] ^= 1 << dice.randrange(8)
        with pytest.raises(UpstreamFailed):
            read(bytes(spoilt) + FRAMES[0])


def test_frame_of_impossible_size_is_refused_before_it_is_awaited():
    head = encode_frame("x", {})

    start = struct.pack(">II", 1 << 30, 10)
    with pytest.raises(UpstreamFailed, match="larger"):
        read(start + struct.pack(">I", zlib.crc32(start)) + head)


def test_a_cut_inside_a_frame_is_no_orderly_end():
    reader = FrameReader()
    reader.feed(FRAMES[0])
    assert reader.finish() == []
    reader.feed(FRAMES[1][:-1])
    with pytest.raises(StreamTruncated):
        reader.finish()


def test_a_frame_that_comes_in_crumbs_is_looked_at_once_it_is_whole(monkeypatch):
    looked = []
    genuine = eventstream._read_prelude
    monkeypatch.setattr(eventstream, "_read_prelude", lambda data, at: looked.append(at) or genuine(data, at))
    frame = encode_frame("messageStart", {"role": "x" * 20_000})
    (found,) = read(*(frame[at : at + 1] for at in range(len(frame))))
    assert found == read(frame)[0]
    assert len(looked) <= 4


def test_a_long_frame_is_reported_once_and_nothing_of_it_is_lost():
    long = encode_frame("long", {"text": "x" * (3 * THREAD_BYTES)})
    wire = FRAMES[0] + long + long + FRAMES[1]
    reader, found, told = FrameReader(), [], 0
    for start in range(0, len(wire), 65_536):
        try:
            found += reader.feed(wire[start : start + 65_536])
        except LongEvent:
            told += 1
    assert told == 1 and found == FrameReader().feed(wire) and reader.held == 0
