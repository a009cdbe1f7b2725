"""The cost of translation: callers' formats against three upstream formats, `python -m bench.lanes`.

The caller speaks OpenAI's chat completions or the AI SDK's protocol, or calls a tool of `/mcp`. The first lane passes
the body on, the others
build the request anew for Anthropic and Google and read their answers; all else is the same. Each lane is compared with
its base: the relay, or the same question over chat completions. Answers come from a small server of
this module, so that only the gateway's own CPU differs.
"""

import argparse
import contextlib
import socket
import sys
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import orjson

from bench.processes import BenchError, cpu_seconds
from bench.run import WARM_UP_S, Phase, Write, build, run_load
from bench.targets import KEY, Target, start_gateway, write_ai_request, write_request, write_tool_request
from bench.upstreams import serve, serving, size_of, write_reply

TEXT = "A fixed answer whose length is that of a short paragraph, so that reading it costs what it usually costs."
OPENAI = {
    "id": "chatcmpl-lane", "object": "chat.completion", "created": 1_700_000_000, "model": "gpt-4o-mini",
    "choices": [{"index": 0, "message": {"role": "assistant", "content": TEXT}, "finish_reason": "stop"}],
    "usage": {"prompt_tokens": 19, "completion_tokens": 32, "total_tokens": 51},
}  # fmt: skip
ANTHROPIC = {
    "id": "msg_lane", "type": "message", "role": "assistant", "model": "claude", "stop_reason": "end_turn",
    "content": [{"type": "text", "text": TEXT}], "usage": {"input_tokens": 19, "output_tokens": 32},
}  # fmt: skip
GOOGLE = {
    "responseId": "lane", "modelVersion": "gemini",
    "candidates": [{"content": {"role": "model", "parts": [{"text": TEXT}]}, "finishReason": "STOP", "index": 0}],
    "usageMetadata": {"promptTokenCount": 19, "candidatesTokenCount": 32, "totalTokenCount": 51},
}  # fmt: skip

EVENTS = 50
STREAM_HEAD = b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nContent-Length: %d\r\n\r\n"


def _event(name: str, **members: object) -> bytes:
    return b"event: %b\ndata: %b\n\n" % (name.encode(), orjson.dumps({"type": name, **members}))


EMBEDDING = {
    "object": "list", "model": "text-embedding-3-small", "usage": {"prompt_tokens": 8, "total_tokens": 8},
    "data": [{"object": "embedding", "index": 0, "embedding": "AACAPwAAgD8AAIA/" * 16}],
}  # fmt: skip
WORDS = [f"t{number} " for number in range(EVENTS)]
ANTHROPIC_STREAM = b"".join(
    (
        _event("message_start", message={**ANTHROPIC, "content": [], "stop_reason": None}),
        _event("content_block_start", index=0, content_block={"type": "text", "text": ""}),
        *[_event("content_block_delta", index=0, delta={"type": "text_delta", "text": word}) for word in WORDS],
        _event("content_block_stop", index=0),
        _event("message_delta", delta={"stop_reason": "end_turn"}, usage={"output_tokens": 50}),
        _event("message_stop"),
    )
)


def _chunk(word: str, reason: str | None = None) -> bytes:
    choice = {"index": 0, "delta": {"content": word} if word else {}, "logprobs": None, "finish_reason": reason}
    return _data({**OPENAI, "object": "chat.completion.chunk", "choices": [choice], "usage": None})


def _candidate(word: str, **members: object) -> bytes:
    content = {"role": "model", "parts": [{"text": word}]}
    return _data({**GOOGLE, "candidates": [{"content": content, "index": 0, **members}]})


def _data(wire: object) -> bytes:
    return b"data: %b\n\n" % orjson.dumps(wire)


OPENAI_STREAM = b"".join(
    (
        *map(_chunk, WORDS),
        _chunk("", "stop"),
        _data({**OPENAI, "object": "chat.completion.chunk", "choices": []}),
        b"data: [DONE]\n\n",
    )
)
GOOGLE_STREAM = b"".join((*map(_candidate, WORDS), _candidate("", finishReason="STOP")))
# The end of a path → the answer to it.
ANSWERS = {
    b"/chat/completions": OPENAI,
    b"/embeddings": EMBEDDING,
    b"/messages": ANTHROPIC,
    b":generateContent": GOOGLE,
}
STREAMS = {
    b"/chat/completions": OPENAI_STREAM,
    b"/messages": ANTHROPIC_STREAM,
    b":streamGenerateContent": GOOGLE_STREAM,
}
PROVIDERS = ("OPENAI", "ANTHROPIC", "GOOGLE_AI_STUDIO")
AIM, AI_AIM = 1.30, 1.20


def write_embeddings_request(port: int, prompt: str, stream: bool, model: str) -> bytes:
    """A small one, as the official client sends it."""
    body = f'{{"input":["Say hello. {prompt}"],"model":"{model}","encoding_format":"base64"}}'
    head = (
        f"POST /v1/embeddings HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\n"
        f"accept: application/json\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


def write_config_request(port: int, prompt: str, stream: bool, model: str) -> bytes:
    """GET of the AI SDK's model list."""
    head = f"GET /v4/ai/config HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\n\r\n"
    return head.encode()


def write_chat_call(port: int, prompt: str, stream: bool, model: str) -> bytes:
    """The question of the relay, to the chat tool."""
    params = (
        f'{{"name":"chat","arguments":{{"model":"{model}","temperature":0.7,"max_tokens":200,"messages":['
        '{"role":"system","content":"You are a helpful assistant that answers briefly."},'
        f'{{"role":"user","content":"Say hello. {prompt}"}}]}}}}'
    )
    return write_tool_request(port, "tools/call", params)


def write_tool_list(port: int, prompt: str, stream: bool, model: str) -> bytes:
    return write_tool_request(port, "tools/list", "{}")


def write_account_call(port: int, prompt: str, stream: bool, model: str) -> bytes:
    return write_tool_request(port, "tools/call", '{"name":"get-account","arguments":{}}')


@dataclass(frozen=True, slots=True)
class Lane:
    """`base` is the lane that it is compared with, `aim` the most that it should cost of that, `max_us` the most
    CPU µs that it should cost at all (0: no aim)."""

    name: str
    model: str
    base: str = ""
    aim: float = AIM
    stream: bool = False
    write: Write = write_request
    max_us: int = 0


GPT, CLAUDE, GEMINI = "openai/gpt-4o-mini", "anthropic/claude-haiku-4-5", "google-ai-studio/gemini-2.5-flash-lite"
LANES = (
    Lane("relay to OpenAI", GPT),
    Lane("to Anthropic", CLAUDE, "relay to OpenAI"),
    Lane("to Google", GEMINI, "relay to OpenAI"),
    Lane("AI SDK", CLAUDE, "to Anthropic", AI_AIM, write=write_ai_request),
    Lane("relayed stream", GPT, stream=True),
    Lane("stream", CLAUDE, "relayed stream", stream=True),
    Lane("stream, Google", GEMINI, "relayed stream", stream=True),
    Lane("AI SDK stream", CLAUDE, "stream", AI_AIM, stream=True, write=write_ai_request),
    Lane("embeddings", "openai/text-embedding-3-small", "relay to OpenAI", 1.20, write=write_embeddings_request),
    Lane("AI SDK config", CLAUDE, write=write_config_request),
    Lane("MCP chat", GPT, "relay to OpenAI", write=write_chat_call),
    Lane("MCP tools/list", "", write=write_tool_list, max_us=1000),
    Lane("MCP get-account", "", write=write_account_call, max_us=1000),
)


def main(arguments: list[str] | None = None) -> int:
    """0 when every lane answered; 1 with a reason when the run means nothing."""
    options = read_options(arguments)
    if options.serve:
        serve(options.serve, answer)
        return 0
    try:
        print(write_table(measure(options.rounds, options.seconds, options.port)))
    except BenchError as error:
        print(f"lanes: {error}", file=sys.stderr)
        return 1
    return 0


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.lanes", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which the lanes take turns (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (3)")
    parser.add_argument("--port", type=int, default=19440, help="first of the two ports to use (19440)")
    parser.add_argument("--serve", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args(arguments)


def measure(rounds: int, seconds: float, port: int) -> dict[str, list[float]]:
    """Lane → CPU µs of the gateway a request, one figure a round. BenchError when a lane fails."""
    build()
    figures: dict[str, list[float]] = {lane.name: [] for lane in LANES}
    with tempfile.TemporaryDirectory(prefix="lanes-") as name, start(port, Path(name)) as gateway:
        for lane in LANES:
            run(gateway, lane, WARM_UP_S, Path(name))
        for _ in range(rounds):
            for lane in LANES:
                figures[lane.name].append(run(gateway, lane, seconds, Path(name)))
    return figures


@contextlib.contextmanager
def start(port: int, folder: Path, *gateway_options: Any, module: str = "bench.lanes") -> Iterator[Target]:
    """The upstream of `module`, and a gateway that uses it as its three providers."""
    with serving(module, port, folder) as own:
        more = {f"LLM_{name}_BASE_URL": f"http://127.0.0.1:{port}" for name in PROVIDERS}
        more |= {"LLM_ANTHROPIC_API_KEY": "x", "LLM_GOOGLE_AI_STUDIO_API_KEY": "x"}
        environment, *settings = gateway_options or ({},)
        with start_gateway(own, port, folder, more | environment, *settings) as gateway:
            yield gateway


def run(gateway: Target, lane: Lane, seconds: float, folder: Path) -> float:
    """CPU µs of the gateway's process tree a good answer. BenchError when any answer was not good."""
    before = cpu_seconds(gateway.process.pid)
    figures = run_load(Phase(lane.name, 32, lane.stream), gateway, seconds, folder, lane.model, lane.write)
    if figures["errors"] or not figures["good"]:
        raise BenchError(f"{lane.name}: {figures['errors']} answers were not good; see {lane.model} in the catalogue")
    return (cpu_seconds(gateway.process.pid) - before) * 1e6 / figures["good"]


def write_table(figures: dict[str, list[float]]) -> str:
    """The medians, and the ratio of each lane to its base within each round."""
    lines = ["lane              CPU µs  to its base"]
    for lane in LANES:
        values = figures[lane.name]
        base = figures[lane.base or lane.name]
        ratio = median([value / floor for value, floor in zip(values, base, strict=True)])
        verdict = "" if ratio <= lane.aim else f"  beyond the aim of {lane.aim:.2f}"
        if lane.max_us and median(values) > lane.max_us:
            verdict += f"  beyond the aim of {lane.max_us} µs"
        lines.append(f"{lane.name:<16}{median(values):8.0f}  {ratio:6.2f}{verdict}")
    return "\n".join(lines)


def write_stream(head: bytes, body: bytes) -> bytes:
    """Return the streamed answer to a request, in one write; b"" for a request without streaming."""
    path = head.split(b" ", 2)[1].partition(b"?")[0]
    asked = b'"stream":true' in body or path.endswith(b":streamGenerateContent")
    stream = next((stream for end, stream in STREAMS.items() if asked and path.endswith(end)), b"")
    return stream and STREAM_HEAD % len(stream) + stream


def answer(connection: socket.socket, answers: dict[bytes, dict] = ANSWERS) -> None:
    """The requests of one connection, which come one at a time."""
    with connection, contextlib.suppress(OSError):
        data = b""
        while True:
            head, found, rest = data.partition(b"\r\n\r\n")
            if not found or len(rest) < size_of(head):
                if not (more := connection.recv(1 << 18)):
                    return
                data += more
                continue
            connection.sendall(write_stream(head, rest) or write_reply(head, answers))
            data = rest[size_of(head) :]


if __name__ == "__main__":
    sys.exit(main())
