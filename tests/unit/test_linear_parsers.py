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

from gateway.errors import GatewayError
from gateway.neutral import cut_pairs, json_extraction, json_weight
from gateway.neutral.chat import ResponseFormat
from gateway.neutral.events import TextDelta
from gateway.neutral.json_repair import Unrepairable, repair
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
from gateway.surfaces.bodies import audio_uploads as audio_uploads_module
from gateway.surfaces.bodies.media_urls import read_media
from gateway.surfaces.google import schema as generate
from gateway.surfaces.openai import chat_schema
from gateway.surfaces.openai.code_fences import without_fence
from gateway.surfaces.responses import schema as responses
from gateway.surfaces.scim.filters import parse_filter
from gateway.surfaces.web import listing as listing_module
from gateway.surfaces.web.forms import FormLimits, read_form
from gateway.surfaces.web.http import Inbound

GROWTH = 9.0  # of the time for four times the bytes: quadratic code takes sixteen times as long
PIECE = 64  # bytes that arrive at once
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
        _, half = cut_pairs.join_halves(b'"%b"' % piece, half)


OF_BYTES: dict[str, Callable[[bytes], object]] = {
    "events": lambda data: EventReader().feed(data),
    "events in pieces": lambda data: feed(EventReader(), data),
    "frames": lambda data: feed(FrameReader(), data),
    "an answer": read_object,
    "an answer with a file": lambda data: InlineFiles().read(pieces_of(data)),
    "an error": lambda data: explain(data),
    "parts": lambda data: json_weight.has_more(data, 1 << 30),
    "half characters": cut_pairs.without_halves,
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
    "a sound": lambda data: audio_uploads_module.detect_format(stored(data), "file"),
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
        if growth > GROWTH:
            found[crumb] = growth
    return found


@pytest.mark.extended
@pytest.mark.slow
@pytest.mark.parametrize("name", OF_BYTES)
def test_bytes_are_parsed_in_linear_time(name: str) -> None:
    assert slow(OF_BYTES[name], CRUMBS, True) == {}


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
