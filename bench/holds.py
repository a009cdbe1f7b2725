"""Measures how long large answers hold the event loop: `python -m bench.holds`.

An upstream gives answers of tens of megabytes and streams of long and of many events, each to callers of several
dialects. The worker records the CPU time between two switches of its event loop. It ends with status 1 if one took
20 ms or more.
"""

import argparse
import base64
import http.client
import secrets
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import orjson

from bench.processes import BenchError
from bench.targets import KEY, Target, start_gateway
from bench.upstreams import serve, serving, size_of

MAX_MS = 20.0
MB = 1 << 20
WORD = "Grüße "
USAGE = {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15}
HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: %s\r\nContent-Length: %d\r\n\r\n"
TEXTS = ("long text", "umlauts", "many parts", "many numbers", "many calls", "long events", "many events")
MARK = "answer with "  # begins each text of a request
CHAT_MODEL = "openai/gpt-4.1"
REPEATED = 2


@dataclass(frozen=True, slots=True)
class Case:
    """A request, sent REPEATED times. Its text names the upstream's answer. `keyed`: it has an Idempotency-Key, for
    which the answer is stored."""

    name: str
    path: str
    model: str
    body: dict[str, Any]
    keyed: bool = False


def cases() -> Iterator[Case]:
    """Yield the requests."""
    for answer in TEXTS:
        more: dict[str, Any] = {"stream": True} if answer.endswith("events") else {}
        asked = {"messages": [{"role": "user", "content": MARK + answer}], **more}
        yield Case(f"chat: {answer}", "/v1/chat/completions", CHAT_MODEL, asked)
        yield Case(f"messages: {answer}", "/v1/messages", CHAT_MODEL, asked | {"max_tokens": 9})
        yield Case(f"responses: {answer}", "/v1/responses", CHAT_MODEL, {"input": MARK + answer, **more})
        yield Case(f"chat with an idempotency key: {answer}", "/v1/chat/completions", CHAT_MODEL, asked, keyed=True)
    inputs = {"input": [MARK + "vectors"] * 2048}
    yield Case("embeddings", "/v1/embeddings", "openai/text-embedding-3-small", inputs)
    yield Case("images", "/v1/images/generations", "openai/gpt-image-1", {"prompt": MARK + "images", "n": 4})
    sound = {"input": MARK + "sound", "voice": "alloy"}
    yield Case("speech", "/v1/audio/speech", "openai/gpt-4o-mini-tts", sound)


def write_answers() -> dict[str, tuple[bytes, bytes]]:
    """Return the content type and the body of each answer."""
    json = b"application/json"
    many = [{"token": "a", "logprob": -0.5, "bytes": [97], "top_logprobs": []} for _ in range(80_000)]
    calls = [
        {"id": f"call_{number}", "type": "function", "function": {"name": "f", "arguments": "{}" * 50}}
        for number in range(4_000)
    ]
    return {
        "long text": (json, _chat({"content": "word " * (4 * MB)})),
        "umlauts": (json, _chat({"content": WORD * (2 * MB)})),
        "many parts": (json, _chat({"content": "a" * 80_000}, logprobs={"content": many})),
        "many numbers": (json, _chat({"content": "a"}, logprobs=[place / 7 for place in range(3_000_000)])),
        "many calls": (json, _chat({"content": None, "tool_calls": calls})),
        "vectors": (json, _vectors()),
        "images": (json, orjson.dumps({"created": 1, "data": [{"b64_json": _picture()}] * 4, "usage": _image_usage()})),
        "sound": (b"audio/mpeg", b"\xff\xfb\x90\x64" + bytes(413) * 50_000),
        "long events": (b"text/event-stream", _stream(["word " * 200_000] * 20)),
        "many events": (b"text/event-stream", _stream(["word "] * 40_000)),
    }


def _chat(message: dict[str, Any], **more: Any) -> bytes:
    choice = {"index": 0, "message": {"role": "assistant", **message}, "finish_reason": "stop", **more}
    return orjson.dumps({"id": "x", "object": "chat.completion", "model": "m", "choices": [choice], "usage": USAGE})


def _vectors() -> bytes:
    vector = [0.0123456789 + place / 1e6 for place in range(1536)]
    data = [{"object": "embedding", "index": place, "embedding": vector} for place in range(2048)]
    return orjson.dumps(
        {"object": "list", "model": "m", "data": data, "usage": {"prompt_tokens": 9, "total_tokens": 9}}
    )


def _picture() -> str:
    png = b"\x89PNG\r\n\x1a\n\0\0\0\rIHDR\0\0\4\0\0\0\4\0\10\2\0\0\0" + bytes(4 * MB)
    return base64.b64encode(png).decode()


def _image_usage() -> dict[str, Any]:
    return {"input_tokens": 9, "output_tokens": 9, "total_tokens": 18}


def _stream(texts: list[str]) -> bytes:
    chunks = [{"delta": {"role": "assistant", "content": "a"}}, *[{"delta": {"content": text}} for text in texts]]
    chunks.append({"delta": {}, "finish_reason": "stop"})
    head = {"id": "x", "object": "chat.completion.chunk", "model": "m"}
    wires = [head | {"choices": [{"index": 0} | chunk]} for chunk in chunks]
    wires.append(head | {"choices": [], "usage": USAGE})
    return b"".join(b"data: %b\n\n" % orjson.dumps(wire) for wire in wires) + b"data: [DONE]\n\n"


def answer_calls(connection: socket.socket, answers: dict[str, tuple[bytes, bytes]]) -> None:
    """Serve one connection of the gateway."""
    with connection, connection.makefile("rb") as lines:
        while head := b"".join(iter(lines.readline, b"\r\n")):
            body = lines.read(size_of(head))
            name = body.partition(MARK.encode())[2].partition(b'"')[0].decode()
            kind, content = answers.get(name, (b"application/json", _chat({"content": "Hi"})))
            connection.sendall(HEAD % (kind, len(content)))
            connection.sendall(content)


def send(gateway: Target, case: Case) -> float:
    """Send the request of a case and read its response; return its size in MB. BenchError for an error."""
    connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=120)
    headers = {"Authorization": f"Bearer {KEY}", "Content-Type": "application/json"}
    if case.keyed:
        headers["Idempotency-Key"] = secrets.token_hex()
    try:
        connection.request("POST", case.path, orjson.dumps({"model": case.model, **case.body}), headers)
        response = connection.getresponse()
        first = response.read(MB)
        size = len(first)
        while piece := response.read(MB):
            size += len(piece)
    except (OSError, http.client.HTTPException) as error:
        raise BenchError(f"{case.name}: {error!r}") from None
    finally:
        connection.close()
    if response.status != 200:
        raise BenchError(f"{case.name}: status {response.status}: {first[:500]!r}")
    return size / MB


def measure(port: int, only: str) -> Iterator[tuple[Case, float, list[dict[str, Any]]]]:
    """Yield each case, the size of its response in MB, and the holds during its requests. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="holds-") as name:
        folder = Path(name)
        holds = folder / "holds"
        holds.touch()
        settings = Path(__file__).with_name("holds.conf.py")
        with serving("bench.holds", port, folder) as own:
            more = {
                "BENCH_HOLDS": str(holds),
                "LLM_OPENAI_BASE_URL": f"http://127.0.0.1:{port}/v1",
                "LLM_OPENAI_USE_RESPONSES_API": "false",
            }
            with start_gateway(own, port, folder, more, settings) as gateway:
                for case in cases():
                    if only not in case.name:
                        continue
                    seen = len(holds.read_bytes().splitlines())
                    for _ in range(REPEATED):
                        size = send(gateway, case)
                    yield case, size, [orjson.loads(line) for line in holds.read_bytes().splitlines()[seen:]]


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when no turn of the event loop took MAX_MS or more; otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.holds", description=__doc__.partition("\n")[0])
    parser.add_argument("--port", type=int, default=19_580, help="first of two ports (19580)")
    parser.add_argument("--only", default="", help="only cases with this word in their name")
    parser.add_argument("--serve", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    if options.serve:
        answers = write_answers()
        serve(options.serve, lambda connection: answer_calls(connection, answers))
    longest = 0.0
    try:
        for case, size, holds in measure(options.port, options.only):
            worst = max(holds, key=lambda hold: hold["ms"], default={"ms": 0.0, "place": ""})
            longest = max(longest, worst["ms"])
            print(f"{case.name}, {size:.1f} MB: {worst['ms']:.1f} ms {worst['place']}", flush=True)
    except BenchError as error:
        print(f"holds: {error}", file=sys.stderr)
        return 1
    print(f"longest hold: {longest:.1f} ms of CPU (limit {MAX_MS:.0f})")
    return int(longest >= MAX_MS)


if __name__ == "__main__":
    sys.exit(main())
