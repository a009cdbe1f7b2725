"""Streams of upstreams cut anywhere and damaged anyhow: the same events, or a failure of theirs; nothing is lost."""

import gzip
import itertools
import zlib

from fakes.bedrock import encode_frame
from hypothesis import given
from hypothesis import strategies as st

from gateway.errors import StreamTruncated, UpstreamFailed
from gateway.neutral.events import ReasoningDelta, TextDelta
from gateway.providers.bedrock.eventstream import FrameReader
from gateway.providers.sse import EventReader
from gateway.providers.think_tags import MAX_BLANKS, _Splitter
from gateway.transport.upstream_responses import Unpacker

CRUMBS = st.sampled_from(
    [b"data: ", b"data:", b"event: x", b"id: 1", b": c", b"\n", b"\r", b"\r\n", b"\n\n", b"{}", b"x", b"\xff", b" "]
)
WIRE = st.lists(CRUMBS, max_size=60).map(b"".join)
CUTS = st.lists(st.integers(0, 400), max_size=20)


def cut(data: bytes, cuts: list[int]) -> list[bytes]:
    edges = [0, *sorted(place % (len(data) + 1) for place in cuts), len(data)]
    return [data[a:b] for a, b in itertools.pairwise(edges)]


def events_of(pieces: list[bytes]) -> list[tuple[str, bytes]]:
    reader = EventReader()
    return [event for piece in pieces for event in reader.feed(piece)] + reader.finish()


@given(WIRE, CUTS)
def test_no_cut_changes_the_events_of_a_stream(data: bytes, cuts: list[int]) -> None:
    # A cut may fall into a CRLF, which is one end of a line and not two.
    assert events_of(cut(data, cuts)) == events_of([data])


FRAMES = st.lists(
    st.sampled_from([encode_frame("a", {"x": 1}), encode_frame("b", {"text": "é" * 50}), encode_frame("c", {})]),
    max_size=6,
).map(b"".join)


@given(FRAMES, CUTS)
def test_no_cut_changes_the_frames_of_an_event_stream(data: bytes, cuts: list[int]) -> None:
    whole, reader = FrameReader().feed(data), FrameReader()
    assert [frame for piece in cut(data, cuts) for frame in reader.feed(piece)] == whole
    assert reader.finish() == []


@given(FRAMES, CUTS, st.integers(0, 2000), st.binary(max_size=40))
def test_a_damaged_event_stream_fails_as_the_providers(data: bytes, cuts: list[int], at: int, spoilt: bytes) -> None:
    at %= len(data) + 1
    reader = FrameReader()
    try:
        for piece in cut(data[:at] + spoilt + data[at + len(spoilt) :], cuts):
            reader.feed(piece)
        reader.finish()
    except (UpstreamFailed, StreamTruncated):
        return


@given(st.binary(max_size=300), CUTS, st.binary(max_size=40), st.sampled_from([gzip.compress, zlib.compress]))
def test_a_packed_body_is_itself_again_whatever_follows_it(said: bytes, cuts: list[int], more: bytes, pack) -> None:
    unpacker, plain = Unpacker("host"), b""
    for piece in cut(pack(said) + more, cuts):
        if not unpacker.ended:
            plain += unpacker.unpack(piece, False)
    assert plain == said and unpacker.ended


@given(st.binary(max_size=100), CUTS)
def test_invalid_compression_is_the_providers_fault(data: bytes, cuts: list[int]) -> None:
    unpacker = Unpacker("host")
    try:
        for piece in cut(data, cuts):
            unpacker.unpack(piece, False)
        unpacker.unpack(b"", True)
    except (UpstreamFailed, StreamTruncated):
        return


@given(st.lists(st.sampled_from(["<think>", "</think>", "<", "think>", "</", " ", "\n", "a", " " * 3000]), max_size=30))
def test_reasoning_in_tags_loses_no_word(pieces: list[str]) -> None:
    splitter, said = _Splitter(0), ""
    for piece in pieces:
        for event in splitter.add(TextDelta(piece)):
            assert isinstance(event, TextDelta | ReasoningDelta)
            said += event.text
        assert len(splitter._held) <= MAX_BLANKS + 3100
    said += "".join(event.text for event in splitter.flush())
    assert said.count("a") == "".join(pieces).count("a")
