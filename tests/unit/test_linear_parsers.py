"""Every parser of a caller's or a provider's bytes takes time by their number, whatever they are.

The time of the processor is measured, and only where it is much, because a C function that copies everything that came
before would count as one step of Python. tests/unit/test_linear_patterns.py does the same for regular expressions.
"""

from collections.abc import Callable, Iterable
from contextlib import suppress
from typing import Any

import orjson
import pytest
from support.clock import FakeClock
from support.pattern_attacks import growth_of
from support.replies import MemoryReply
from wsproto.connection import Connection, ConnectionType

from gateway.errors import GatewayError
from gateway.media.sounds import length_of
from gateway.neutral import json_extraction, json_weight
from gateway.neutral.chat import ResponseFormat
from gateway.neutral.events import TextDelta
from gateway.neutral.json_repair import Unrepairable, repair
from gateway.neutral.long_json import dumps_in_pieces, loads_in_pieces
from gateway.neutral.parts import ToolCall
from gateway.neutral.tool_arguments import read_arguments
from gateway.providers.answer_checks import read_object
from gateway.providers.bedrock.eventstream import FrameReader
from gateway.providers.failures import explain, scrub
from gateway.providers.inline_files import InlineFiles
from gateway.providers.registry import FACTORIES, Resources
from gateway.providers.sse import EventReader, LongEvent
from gateway.providers.think_tags import _Splitter
from gateway.runtime.byte_ranges import read_range
from gateway.runtime.large_files import StoredFile
from gateway.server.http1 import read_chunked, read_head
from gateway.surfaces import health, surface_table
from gateway.surfaces.anthropic import schema as messages
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.bodies.validation_errors import read_media
from gateway.surfaces.google import schema as generate
from gateway.surfaces.openai import chat_schema
from gateway.surfaces.openai.completions_writer import without_fence
from gateway.surfaces.responses import schema as responses
from gateway.surfaces.scim.filters import parse_filter
from gateway.surfaces.web import listing as listing_module
from gateway.surfaces.web.forms import FormLimits, read_form
from gateway.surfaces.web.http import Inbound
from gateway.transport.connections import read_fields
from gateway.transport.websockets import WebSocket

GROWTH = 9.0  # of the time for four times the bytes: quadratic code takes sixteen times as long
PIECE = 64  # bytes that arrive at once
LONGER = 16
ADDRESSES = surface_table.addresses()
WIRES = {name: make(Resources(None, FakeClock(), lambda secret: "t")) for name, make in FACTORIES.items()}  # type: ignore[arg-type]
CODECS = {name: wire.codecs["chat"] for name, wire in WIRES.items() if "chat" in wire.codecs}
CRUMBS = (
    *(
        "a",
        " ",
        "\n",
        "\r",
        "\r\n",
        "\n\n",
        ",",
        ":",
        ";",
        "/",
        "//",
        "\\",
        '"',
        "'",
        "`",
        "<",
        "=",
        "&",
        "%",
        "%41",
        "-",
        "--",
    ),
    *(
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "{}",
        "[]",
        "{[",
        '{"a":',
        '"a":1,',
        '["',
        '\\"',
        "\\u",
        "\\ud800",
        "\\ud83d\\ude00",
    ),
    *(
        "/*",
        "/* ",
        "#",
        "```",
        "```json\n{",
        "<think>",
        "</think>",
        "</",
        "0",
        "-0",
        "1e",
        ".",
        "a=1&",
        "a;q=0,",
        '"a",',
        "\0",
    ),
    *(
        "data: ",
        "data: a\n",
        "data: a\n\n",
        "data:\n",
        "event: a\n",
        "event: a\ndata: a\n\n",
        ": a\n",
        "\ufeff",
        "\u00fc",
        "\U0001f600",
    ),
    *("X-A: a\r\n", "1\r\na\r\n", "1;a\r\n", "--b\r\n", "\r\n--", 'a eq "b" and ', "(a pr) or ", "a[", "bytes=0-1,"),
    *('{"choices":[{"content":"', '"content":"', '{"type":"text","text":"a"},', "data:a/b;base64,"),
)


class Source:
    """Bytes of a caller, as the reader of chunks takes them."""

    def __init__(self, data: bytes) -> None:
        self.data, self.at = data, 0

    def take_line(self, most: int) -> bytes:
        end = self.data.find(b"\n", self.at, self.at + most)
        if end < 0:
            raise GatewayError("no line")
        return self.take(end + 1 - self.at)

    def take(self, size: int) -> bytes:
        self.at += size
        return self.data[self.at - size : self.at]

    take_exactly = read = take


def pieces_of(data: bytes, size: int = PIECE) -> list[bytes]:
    return [data[at : at + size] for at in range(0, len(data), size)]


def feed(reader: Any, data: bytes) -> None:
    for piece in pieces_of(data):
        with suppress(LongEvent):
            reader.feed(piece)
    reader.finish()


def split(text: str) -> None:
    splitter = _Splitter(0)
    for at in range(0, len(text), 16):
        splitter.add(TextDelta(text[at : at + 16]))
    splitter.flush()


def stored(data: bytes) -> StoredFile:
    file = StoredFile(in_memory=1 << 24)
    file.write(data)
    return file


def form(data: bytes) -> None:
    kind = {"content-type": "multipart/form-data; boundary=b"}
    read_form(Inbound("POST", "/v1/x", kind, upload=stored(data)), FormLimits(64, 16, 1 << 20, 1 << 20))


def join_halves(data: bytes) -> None:
    half = b""
    for piece in pieces_of(data):
        _, half = json_weight.join_halves(b'"%b"' % piece, half)


class Peer:
    """A channel after its peer has sent some frames and closed the connection."""

    def __init__(self, data: bytes) -> None:
        self._pieces = iter(pieces_of(data, 4096))

    def receive(self) -> bytes:
        return next(self._pieces, b"")

    def send(self, data: bytes) -> None:
        return None

    close = hold = lambda self, *given: None


def read_frames(frames: bytes) -> None:
    """Read messages of a server until the connection ends."""
    socket = WebSocket(Peer(frames), Connection(ConnectionType.CLIENT))  # type: ignore[arg-type]
    while socket.receive() is not None:
        continue


def in_fragments(data: bytes) -> bytes:
    """Return one text message with a letter in each frame, and a ping after each."""
    return b"\x01\0" + b"\0\1a\x89\0" * (len(data) // 5) + b"\x80\0"


OF_BYTES: dict[str, Callable[[bytes], object]] = {
    "events": lambda data: EventReader().feed(data),
    "events in pieces": lambda data: feed(EventReader(), data),
    "frames": lambda data: feed(FrameReader(), data),
    "an answer": read_object,
    "an answer with a file": lambda data: InlineFiles().read(pieces_of(data)),
    "an error": lambda data: explain(data),
    "parts": lambda data: json_weight.has_more(data, 1 << 30),
    "half characters": json_weight.without_halves,
    "half characters in pieces": join_halves,
    "a request head": lambda data: read_head(b"GET /" + data + b" HTTP/1.1\r\nHost: a\r\n\r\n", {}),
    "headers": lambda data: read_head(b"GET / HTTP/1.1\r\nHost: a\r\nX-B: " + data + b"\r\n\r\n", {}),
    "chunks": lambda data: read_chunked(Source(data + b"0\r\n\r\n"), 1 << 24),  # type: ignore[arg-type]
    "a form": lambda data: form(b"--b\r\n" + data),
    "a part of a form": lambda data: form(b'--b\r\nContent-Disposition: form-data; name="a"\r\n\r\n' + data),
    "a chat": lambda data: chat_schema.decode(b'{"model":"m","messages":[' + data + b"]}"),
    "messages": lambda data: messages.decode(b'{"model":"m","max_tokens":1,"messages":[' + data + b"]}"),
    "a response": lambda data: responses.decode(b'{"model":"m","input":[' + data + b"]}"),
    "contents": lambda data: generate.decode(b'{"contents":[{"parts":[' + data + b"]}]}"),
    "a sound": lambda data: uploads_module.detect_sound(stored(data), "file"),
    "response fields": lambda data: read_fields(b"HTTP/1.1 200 OK\r\n" + data + b"\r\n\r\n"),
    "frames of a WebSocket": read_frames,
    "a message in fragments": lambda data: read_frames(in_fragments(data)),
    # Texts of more than a piece, which are decoded, weighed and encoded in pieces.
    "a list in pieces": lambda data: loads_in_pieces(b'{"a":[' + data * LONGER + b"]}"),
    "an object in pieces": lambda data: loads_in_pieces(b"[{" + data * LONGER + b"}]"),
    "a string in pieces": lambda data: loads_in_pieces(b'["' + data * LONGER + b'"]'),
    "weight": lambda data: json_weight.weigh(b'["\xf0\x9f\x98\x80",' + data * LONGER + b"]"),
    "weight of a string": lambda data: json_weight.weigh(b'["\xf0\x9f\x98\x80' + data * LONGER + b'"]'),
    "encoding": lambda data: dumps_in_pieces({data.decode(): [data.decode() * LONGER]}),
}
OF_TEXT: dict[str, Callable[[str], object]] = {
    "repair of an object": lambda text: repair("{" + text, 0),
    "repair of a list": lambda text: repair("[" + text, 0),
    "repair of a string": lambda text: repair('{"a": "' + text, 0),
    "repair of an apostrophe": lambda text: repair("{'a': '" + text, 0),
    "healing": lambda text: json_extraction._heal(text, ResponseFormat("json_object")),
    "arguments": lambda text: read_arguments(ToolCall("c", text, "f")),
    "a fence": lambda text: without_fence("```json\n" + text),
    "reasoning in tags": split,
    "a path": lambda text: ADDRESSES.settle("/" + text),
    "a path of a model": lambda text: ADDRESSES.settle("/v1beta/models/" + text),
    "an alias": lambda text: ADDRESSES.model_of("/" + text),
    "a filter": parse_filter,
    "accepted types": health.prefers_html,
    "accepted codings": listing_module.accepts_gzip,
    "a range": lambda text: read_range(f"bytes={text}", 100),
    "an address of media": lambda text: read_media(text, "url"),
    "data in an address": lambda text: read_media("data:image/png;base64," + text, "url"),
    "a provider's words": scrub,
}


def read_stream(protocol: str, relayed: bool, lead: bytes) -> Callable[[bytes], object]:
    """Return a reader of events that are `lead` and JSON of a caller's choice, all in one piece."""

    def read(data: bytes) -> None:
        reply = MemoryReply(*pieces_of(lead + data, 1 << 22))
        for _ in CODECS[protocol].read_stream(reply, relayed):
            continue

    return read


def chunk(body: dict[str, Any]) -> str:
    return f"data: {orjson.dumps(body).decode()}\n\n"


def delta(**members: Any) -> str:
    return chunk({"choices": [{"index": 0, "delta": members}]})


def block(kind: str, **members: Any) -> str:
    return f"event: {kind}\n{chunk({'type': kind} | members)}"


PIECES = {
    "openai": (
        *(delta(content="a"), delta(content="a") + delta(reasoning_content="b"), delta(reasoning="a")),
        *(
            delta(reasoning_details=[{"type": "reasoning.text", "text": "a"}]),
            delta(content="<think>"),
            delta(content=" "),
        ),
        delta(tool_calls=[{"index": 0, "id": "c", "function": {"name": "f", "arguments": "1"}}]),
        delta(tool_calls=[{"id": "c", "function": {"name": "f", "arguments": "{}"}}]),
        delta(annotations=[{"type": "url_citation", "url_citation": {"url": "https://a/", "title": "a"}}]),
        chunk({"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}),
        'data: {"choices":[{"delta":{"content":"\\ud83d"},"index":0}]}\n\n',
    ),
    "anthropic": (
        block("content_block_delta", index=0, delta={"type": "text_delta", "text": "a"}),
        block("content_block_delta", index=0, delta={"type": "input_json_delta", "partial_json": "1"}),
        block("content_block_delta", index=0, delta={"type": "thinking_delta", "thinking": "1"}),
        block("content_block_delta", index=0, delta={"type": "signature_delta", "signature": "1"}),
        block("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        block("content_block_start", index=0, content_block={"type": "tool_use", "id": "c", "name": "f", "input": {}}),
        block("ping"),
    ),
    "openai-responses": (
        block("response.output_text.delta", item_id="i", output_index=0, content_index=0, delta="a"),
        block("response.reasoning_summary_text.delta", item_id="i", output_index=0, summary_index=0, delta="a"),
        block("response.function_call_arguments.delta", item_id="i", output_index=0, delta="1"),
        block("response.output_item.added", output_index=0, item={"type": "message", "id": "i", "content": []}),
    ),
    "google": (
        chunk({"candidates": [{"content": {"parts": [{"text": "a"}]}}]}),
        chunk({"candidates": [{"content": {"parts": [{"text": "a", "thought": True}]}}]}),
        chunk({"candidates": [{"content": {"parts": [{"functionCall": {"name": "f", "args": {}}}]}}]}),
    ),
    "cohere": (
        block("content-delta", index=0, delta={"message": {"content": {"text": "a"}}}),
        block("tool-call-delta", index=0, delta={"message": {"tool_calls": {"function": {"arguments": "1"}}}}),
    ),
}


def slow(parse: Callable[[Any], object], crumbs: Iterable[str], in_bytes: bool) -> dict[str, float]:
    """Return the crumbs that take more than their share of time when they are repeated."""
    found = {}
    for crumb in crumbs:

        def work(size: int, crumb: str = crumb) -> Callable[[], object]:
            text = crumb * (size // len(crumb))
            given = text.encode("utf-8", "replace") if in_bytes else text

            def parse_it() -> None:
                with suppress(GatewayError, ValueError, Unrepairable, LongEvent, RecursionError):
                    parse(given)

            return parse_it

        growth = growth_of(work)
        if growth > GROWTH:  # measured again, since other processes disturb a measurement
            growth = min(growth_of(work) for _ in range(3))
        if growth > GROWTH:
            found[crumb] = growth
    return found


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("name", OF_BYTES)
def test_bytes_are_parsed_in_linear_time(name: str) -> None:
    assert slow(OF_BYTES[name], CRUMBS, True) == {}


# Beginnings of sounds in each container, and parts that are repeated behind them: empty or nested boxes, pages, frames.
SOUNDS = {
    "mp4": b"\0\0\0\x10ftypM4A \0\0\0\0",
    "ogg": b"OggS\0\2" + bytes(20) + b"\1\x13OpusHead\1\2" + bytes(9),
    "webm": b"\x1aE\xdf\xa3\x80\x18S\x80g\x01\xff\xff\xff\xff\xff\xff\xff",
    "flac": b"fLaC\0\0\0\x22" + bytes(34),
    "wave": b"RIFF\xff\xff\xff\x7fWAVEfmt \x10\0\0\0\1\0\1\0\x80\xbb\0\0\0w\1\0\2\0\x10\0",
    "aiff": b"FORM\x7f\xff\xff\xffAIFF",
    "mpeg": b"ID3\4\0\0\0\0\0\0\xff\xfb\x90\0",
    "aac": b"\xff\xf1P\x80\1\x7f\xfc",
    "amr": b"#!AMR\n",
}
SOUND_PARTS = (
    *(
        b"\0\0\0\x08free",
        b"\0\0\xff\xffmoov",
        b"\0\0\0\x08trak",
        b"\0\0\0\x08moof",
        b"\0\0\0\x10stsd\0\0\0\0\0\0\xff\xff",
    ),
    *(
        b"OggS\0\0" + bytes(20) + b"\0",
        b"OggS",
        b"\0\0\0\1",
        b"\0",
        b"\xff",
        b"\x1fC\xb6u\xff",
        b"\xa3\x81\0",
        b"\xae\x80",
    ),
    *(
        b"\xff\xf8\xc9\x08\0\0",
        b"data\0\0\0\0",
        b"LIST\0\0\0\0",
        b"SSND\0\0\0\0",
        b"\xff\xfb\x10\0",
        b"\xff\xf1P\x80\0\x1f\xfc",
        b"ID3\4\0\0\0\0\0\0",
    ),
)


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("kind", SOUNDS)
def test_sounds_are_measured_in_linear_time(kind: str) -> None:
    crumbs = [part.decode("latin-1") for part in SOUND_PARTS]
    assert slow(lambda text: length_of(stored(SOUNDS[kind] + text.encode("latin-1"))), crumbs, False) == {}


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("name", OF_TEXT)
def test_texts_are_parsed_in_linear_time(name: str) -> None:
    assert slow(OF_TEXT[name], CRUMBS, False) == {}


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("relayed", [True, False])
@pytest.mark.parametrize("protocol", PIECES)
def test_streams_are_read_in_linear_time(protocol: str, relayed: bool) -> None:
    first = "event: message_start\ndata: {}\n\n" if protocol == "anthropic" else ""
    found = slow(read_stream(protocol, relayed, first.encode()), PIECES[protocol], True)
    assert found | slow(read_stream(protocol, relayed, PIECES[protocol][0].encode()), PIECES[protocol], True) == {}


@pytest.mark.slow
def test_members_that_are_repeated_in_a_chunk_are_read_in_linear_time() -> None:
    def read(data: bytes) -> None:
        event = b'data: {"choices":[{"index":0,"delta":{%b"content":"a","role":"[["}}]}\n\n' % data
        read_stream("openai", True, delta(content="a").encode())(event * 8)

    assert slow(read, ('"content":"a",', '"role":"a",', '"content":"a","role":"a",', " "), True) == {}
