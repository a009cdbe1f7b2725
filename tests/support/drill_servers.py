"""Servers of the fairness drill, each in a separate process:

    python tests/support/drill_servers.py upstream PORT
    python tests/support/drill_servers.py stand-in PORT REQUESTS_PER_SECOND ANSWER_BYTES
    python tests/support/drill_servers.py silent PORT
    python tests/support/drill_servers.py hostile PORT
    python tests/support/drill_servers.py begun PORT

The upstream answers chat completions with a text about as long as the prompt. The stand-in takes the place of the
gateway for the client of a flood: it answers as often as the gateway did, with as many bytes. The silent upstream
reads requests and answers none. The hostile one answers short requests with LONG_ANSWER bytes, and streams with one
byte in each chunk or with events of two bytes. The one that has begun sends a head of HEAD_BYTES and the first words
of a stream; after them nothing, or for a short chat as many words as are read.
"""

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager

LONG = 100_000  # bytes of a request that gets the long text
TEXTS = {False: "Hello", True: "word " * 40_000}
USAGE = {"prompt_tokens": 10, "completion_tokens": 10, "total_tokens": 20}
PIECE = bytes(1 << 16)

LONG_ANSWER = 62_000_000
CODE = 'def f(a, b):\n\treturn {"x": [1, 2], "y": "\\\\"}\n'
TINY_S = 3.0  # how long a hostile stream takes
HEAD_BYTES = 60_000
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n"


def write_chunk(text: str, **more: object) -> bytes:
    choice = {"index": 0, "delta": {"content": text}, **more}
    whole = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "m", "choices": [choice]}
    return b"\n\ndata: %b\n\n" % json.dumps(whole).encode()


def in_chunk(data: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(data), data)


TEXT_CHUNK = in_chunk(write_chunk("Hello"))
LAST_CHUNK = in_chunk(write_chunk("", finish_reason="stop") + b"data: [DONE]\n\n")
Answer = Callable[[bytes, int, asyncio.StreamWriter], Awaitable[None]]


@contextmanager
def run_server(kind: str, port: int, *given: object) -> Iterator[str]:
    """Run a server of a drill and return its address."""
    command = [sys.executable, __file__, kind, str(port), *map(str, given)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as running:
        assert running.stdout is not None and running.stdout.readline()
        try:
            yield f"http://127.0.0.1:{port}"
        finally:
            running.kill()


def write_answer(text: str) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": "stop"}
    whole = {"id": "chatcmpl-1", "object": "chat.completion", "created": 1, "model": "gpt-4.1", "choices": [choice]}
    return json.dumps({**whole, "usage": USAGE}).encode()


def head_of(size: int) -> bytes:
    return b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n" % size


class Upstream:
    """Answers at once."""

    def __init__(self) -> None:
        bodies = {long: write_answer(text) for long, text in TEXTS.items()}
        self._answers = {long: head_of(len(body)) + body for long, body in bodies.items()}

    async def answer(self, head: bytes, size: int, writer: asyncio.StreamWriter) -> None:
        writer.write(self._answers[size > LONG])
        await writer.drain()


class StandIn:
    """Answers at a rate, one request after the other."""

    def __init__(self, rate: float, size: int) -> None:
        self._pause_s = 1 / rate
        self._size = size
        self._turn = asyncio.Lock()

    async def answer(self, head: bytes, size: int, writer: asyncio.StreamWriter) -> None:
        async with self._turn:
            await asyncio.sleep(self._pause_s)
        writer.write(head_of(self._size))
        for start in range(0, self._size, len(PIECE)):
            writer.write(PIECE[: self._size - start])
            await writer.drain()


class Silent:
    """Never answers."""

    async def answer(self, head: bytes, size: int, writer: asyncio.StreamWriter) -> None:
        await asyncio.Event().wait()


class Hostile:
    """Answers each dialect, of which it makes the answers once."""

    def __init__(self) -> None:
        code = CODE * (LONG_ANSWER // len(json.dumps(CODE)))
        image = "QUJD" * (LONG_ANSWER // 4)
        picture = {"inlineData": {"mimeType": "image/png", "data": image}}
        counts = {"promptTokenCount": 10, "candidatesTokenCount": 10, "totalTokenCount": 20}
        candidate = {"content": {"role": "model", "parts": [picture]}, "finishReason": "STOP", "index": 0}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "stop_reason": "end_turn"}
        tokens = {"input_tokens": 10, "output_tokens": 10}
        self._small = write_response("Hello")
        self._answers = {
            b"/responses": write_response(code),
            b"/chat/completions": write_answer(code),
            b"/messages": json.dumps(
                {**message, "content": [{"type": "text", "text": code}], "stop_sequence": None, "usage": tokens}
            ).encode(),
            b":generateContent": json.dumps({"candidates": [candidate], "usageMetadata": counts}).encode(),
        }
        self._chunks = b"".join(b"1\r\n%c\r\n" % byte for byte in b": x\n\n" * 2_000)
        events = b"data: {}\n\n" * 6_000
        self._events = in_chunk(events)

    async def answer(self, head: bytes, size: int, writer: asyncio.StreamWriter) -> None:
        path = head.split(b" ", 2)[1].partition(b"?")[0]
        if b"/tiny" in path:
            await self._stream(writer, self._chunks if path.startswith(b"/tiny-chunks") else self._events)
            return
        body = next(known for end, known in self._answers.items() if path.endswith(end))
        if size > LONG:
            body = self._small
        writer.write(head_of(len(body)))
        for start in range(0, len(body), len(PIECE)):
            writer.write(body[start : start + len(PIECE)])
            await writer.drain()

    async def _stream(self, writer: asyncio.StreamWriter, piece: bytes) -> None:
        writer.write(STREAM_HEAD + TEXT_CHUNK)
        until = time.monotonic() + TINY_S
        while time.monotonic() < until:
            writer.write(piece)
            await writer.drain()
        writer.write(LAST_CHUNK + b"0\r\n\r\n")
        await writer.drain()


class Begun:
    """Begins a stream of each dialect."""

    def __init__(self) -> None:
        tokens = {"input_tokens": 10, "output_tokens": 1}
        message = {"id": "msg_1", "type": "message", "role": "assistant", "model": "m", "content": [], "usage": tokens}
        block = {"type": "content_block_start", "index": 0, "content_block": {"type": "text", "text": ""}}
        word = {"type": "content_block_delta", "index": 0, "delta": {"type": "text_delta", "text": "Hello"}}
        candidate = {"content": {"role": "model", "parts": [{"text": "Hello"}]}, "index": 0}
        self._events = {
            b"/messages": write_events({"type": "message_start", "message": message}, block, word),
            b":streamGenerateContent": b"data: %b\n\n" % json.dumps({"candidates": [candidate]}).encode(),
            b"/chat/completions": write_chunk("Hello"),
        }
        more = "".join(f"X-More-{place}: {'a' * 1000}\r\n" for place in range(HEAD_BYTES // 1020))
        self._head = STREAM_HEAD[:-2] + more.encode() + b"\r\n"
        self._end = asyncio.Event()

    async def answer(self, head: bytes, size: int, writer: asyncio.StreamWriter) -> None:
        path = head.split(b" ", 2)[1].partition(b"?")[0]
        events = next(known for end, known in self._events.items() if path.endswith(end))
        writer.write(self._head + in_chunk(events))
        while size < LONG and path.endswith(b"/chat/completions"):
            writer.write(in_chunk(write_chunk("word " * 2_000)))
            await writer.drain()
        await self._end.wait()


def write_events(*events: dict[str, object]) -> bytes:
    return b"".join(b"event: %b\ndata: %b\n\n" % (str(e["type"]).encode(), json.dumps(e).encode()) for e in events)


def write_response(text: str) -> bytes:
    content = [{"type": "output_text", "text": text, "annotations": []}]
    item = {"id": "msg_1", "type": "message", "role": "assistant", "status": "completed", "content": content}
    whole = {"id": "resp_1", "object": "response", "created_at": 1, "status": "completed", "model": "m"}
    usage = {"input_tokens": 10, "output_tokens": 10, "total_tokens": 20}
    return json.dumps({**whole, "output": [item], "usage": usage}).encode()


async def serve(port: int, answer: Answer) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while True:
                head = await reader.readuntil(b"\r\n\r\n")
                lines = head.lower().split(b"\r\n")
                size = next((int(line[15:]) for line in lines if line.startswith(b"content-length:")), 0)
                await reader.readexactly(size)
                await answer(head, size, writer)
                if b"connection: close" in lines:
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(talk, "127.0.0.1", port, limit=1 << 20)
    print("ready", flush=True)
    await server.serve_forever()


def main(kind: str, port: str, *given: str) -> None:
    if kind == "upstream":
        server: Upstream | StandIn | Silent | Hostile | Begun = Upstream()
    elif kind == "hostile":
        server = Hostile()
    elif kind == "begun":
        server = Begun()
    elif kind == "silent":
        server = Silent()
    else:
        server = StandIn(float(given[0]), int(given[1]))
    asyncio.run(serve(int(port), server.answer))


if __name__ == "__main__":
    main(*sys.argv[1:])
