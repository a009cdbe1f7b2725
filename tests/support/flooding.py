"""Floods a gateway with one kind of work, by an organization or by anonymous callers, from a separate process:

    python tests/support/flooding.py KIND ADDRESS KEY SESSION

It runs until it is killed, at a low priority so that the gateway gets enough processor time, and prints the status of
each answer when it begins, and the bytes that were read since the line before.
"""

import base64
import itertools
import json
import os
import socket
import sys
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from gevent import monkey

if __name__ == "__main__":
    monkey.patch_all()
    sys.path.insert(0, str(Path(__file__).parents[1]))

import gevent
from gevent.lock import RLock
from websockets.sync.client import connect

NICE = 10
MORE = "more"  # in place of the status: further bytes of an answer
REPORTED_BYTES = 1 << 20
HELLO = [{"role": "user", "content": "Hello"}]
CHAIN = 1  # turns of a stored conversation, of 3.6 MB each: a model refuses longer ones
SILENT_S = 0.5  # time in which a caller does not read its answer
DAYS = "from=2026-01-01&to=2026-12-31"
FLAGS = ("include_deactivated", "exclude_deprecated", "no_training", "mapped", "available", "include_restricted")


class Flood:
    """Sends requests to a gateway; `key` and `session` belong to the flooding organization."""

    def __init__(self, address: str, key: str, session: str) -> None:
        self.address, self.key, self.session = address, key, session
        parts = urlsplit(address)
        self._place = (parts.hostname, parts.port)
        self._chaining = RLock()
        self._stored: list[str] = []

    def post(self, path: str, body: Any, token: str = "", **more: Any) -> None:
        content = json.dumps(body).encode()
        self.send(f"POST {path}", content, token or self.key, **more)

    def get(self, path: str, token: str) -> None:
        self.send(f"GET {path}", b"", token)

    def send(self, request_line: str, content: bytes, token: str, silent_s: float = 0.0) -> None:
        """Send a request on a new connection, wait `silent_s` and discard the answer."""
        head = f"{request_line} HTTP/1.1\r\nHost: here\r\nConnection: close\r\nContent-Type: application/json\r\n"
        head += f"Content-Length: {len(content)}\r\n"
        head += f"Authorization: Bearer {token}\r\n\r\n" if token else "\r\n"
        with socket.create_connection(self._place, timeout=60) as caller:
            caller.sendall(head.encode() + content)
            gevent.sleep(silent_s)
            answer = caller.recv(65536)
            # Some answers last longer than a round, so that they count from their first bytes on.
            print(answer.split(b" ", 2)[1].decode() if answer else "closed", len(answer), flush=True)
            size = 0
            while piece := caller.recv(65536):
                size += len(piece)
                if size >= REPORTED_BYTES:
                    print(MORE, size, flush=True)
                    size = 0
                gevent.sleep(0)
            print(MORE, size, flush=True)

    def uploads(self, number: int) -> None:
        parts = [{"type": "text", "text": "a"}] * 40_000  # 1.5 MB
        self.post("/v1/chat/completions", {"model": "sandbox-echo", "messages": [{"role": "user", "content": parts}]})

    def sign_ins(self, number: int) -> None:
        body = {"email": f"stranger{number}@example.com", "password": "a long enough guess"}
        self.send("POST /auth/sign-in/email", json.dumps(body).encode(), "")

    def exports(self, number: int) -> None:
        self.get("/logs/export?format=csv", self.session)

    def reports(self, number: int) -> None:
        self.get(f"/activity?{DAYS}&group={('model', 'key', 'day')[number % 3]}", self.session)

    def large_answers(self, number: int) -> None:
        texts = [f"text {one}" for one in range(1000)]
        body = {"model": "sandbox-embed", "input": texts, "dimensions": 1024}
        self.post("/v1/embeddings", body, silent_s=SILENT_S)

    def websockets(self, number: int) -> None:
        address = self.address.replace("http", "ws") + "/v1/realtime?model=sandbox-realtime"
        sound = base64.b64encode(bytes(48_000)).decode()
        with connect(address, additional_headers={"Authorization": f"Bearer {self.key}"}) as session:
            print("101", 0, flush=True)
            for _ in range(50):
                session.send(json.dumps({"type": "input_audio_buffer.append", "audio": sound}))
                session.send(json.dumps({"type": "input_audio_buffer.clear"}))

    def plans(self, number: int) -> None:
        body = {"model": "auto" if number % 2 else "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
        body |= {"max_tokens": 16 + number % 4000, "routing": ("price", "throughput", "latency")[number % 3]}
        self.post("/v1/chat/completions", body)

    def guarded_prompts(self, number: int) -> None:
        line = f"Anna {number} <anna.{number}@mail.test> paid 4111 1111 1111 1111 for order {number}-{{}}.\n"
        text = "".join(map(line.format, range(1_000_000 // len(line))))
        self.post("/v1/chat/completions", {"model": "sandbox-echo", "messages": [{"role": "user", "content": text}]})

    def long_responses(self, number: int) -> None:
        self.post("/v1/responses", {"model": "xai/grok-4.5", "input": "Hi", "store": False})

    def long_chats(self, number: int) -> None:
        self.post("/v1/chat/completions", {"model": "deepseek/deepseek-v4-pro", "messages": HELLO})

    def long_messages(self, number: int) -> None:
        self.post("/v1/messages", {"model": "anthropic/claude-sonnet-5", "max_tokens": 100, "messages": HELLO})

    def long_images(self, number: int) -> None:
        path = "/v1beta/models/gemini-3-pro-image:generateContent"
        self.post(path, {"contents": [{"role": "user", "parts": [{"text": "Hi"}]}]})

    def tiny_chunks(self, number: int) -> None:
        self.post("/v1/chat/completions", {"model": "groq/qwen3-32b", "messages": HELLO, "stream": True})

    def tiny_events(self, number: int) -> None:
        self.post("/v1/chat/completions", {"model": "mistral/mistral-large-4", "messages": HELLO, "stream": True})

    def chains(self, number: int) -> None:
        body = {"model": "xai/grok-4.5", "input": "Hi", "previous_response_id": self._chain()}
        self.post("/v1/responses", {**body, "store": False})

    def _chain(self) -> str:
        """Return the last response of a conversation of CHAIN turns, which is stored once."""
        with self._chaining:
            while len(self._stored) < CHAIN:
                body = {"model": "xai/grok-4.5", "input": "words " * 600_000, "store": True}
                if self._stored:
                    body["previous_response_id"] = self._stored[-1]
                request = urllib.request.Request(f"{self.address}/v1/responses", json.dumps(body).encode())
                request.add_header("Authorization", f"Bearer {self.key}")
                request.add_header("Content-Type", "application/json")
                with urllib.request.urlopen(request, timeout=60) as answer:
                    self._stored.append(json.load(answer)["id"])
        return self._stored[-1]

    def list_readers(self, number: int) -> None:
        self.send("GET /v1/models", b"", "", silent_s=SILENT_S)

    def model_lists(self, number: int) -> None:
        chosen = [flag for place, flag in enumerate(FLAGS) if number >> place & 1]
        self.get("/v1/models?" + "&".join(f"{flag}=true" for flag in chosen), "")


# The number of concurrent callers for each kind of work.
KINDS: dict[str, int] = {
    "uploads": 16,
    "sign_ins": 32,
    "exports": 8,
    "reports": 16,
    "large_answers": 16,
    "websockets": 8,
    "plans": 16,
    "model_lists": 16,
    # Hostile providers, and what their answers and stored conversations become.
    "long_responses": 2,
    "long_chats": 2,
    "long_messages": 2,
    "long_images": 2,
    "tiny_chunks": 20,
    "tiny_events": 20,
    "chains": 16,
    "list_readers": 60,
    # Prompts of 1 MB of an organization that has guardrails, each with text that no rule has searched.
    "guarded_prompts": 10,
}


def flood_without_end(work: Callable[[int], None], numbers: Iterator[int]) -> None:
    for number in numbers:
        try:
            work(number)
        except Exception as error:
            print(type(error).__name__, 0, flush=True)
            gevent.sleep(0.05)


def main(kind: str, *place: str) -> None:
    os.nice(NICE)
    work, numbers = getattr(Flood(*place), kind), itertools.count()
    gevent.joinall([gevent.spawn(flood_without_end, work, numbers) for _ in range(KINDS[kind])])


if __name__ == "__main__":
    main(*sys.argv[1:])
