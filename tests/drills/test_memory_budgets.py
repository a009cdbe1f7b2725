"""How much memory do requests take that wait for a silent provider, and how much do the budgets say?

    make memory

prints for each kind of body how much the worker's resident memory grew, at the end and at most, and what the budget of
large bodies counted; then the memory of streams that have begun, of callers who do not read their answers, and of long
headers of callers and providers.
"""

import json
import re
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from support.drill_servers import run_server
from support.gateways import GatewayProcess, free_port
from support.large_chats import KINDS, agent_chat, agent_contents, agent_messages

pytestmark = pytest.mark.soak

TOKEN = "scrape-me"
MODEL = "gpt-4.1"
BODIES_MB = 256
MEGABYTE = 1 << 20
CALLERS = 120
TIMES = 1.5  # what the budgets say, which the worker's memory may take
USUAL_TIMES = 1.5  # the memory of usual requests, which the budgets may count
STILL_S = 2.0
PATIENCE_S = 90.0
READ_S = 0.05
CHAT = "/v1/chat/completions"
RUNNING = 40  # streams at once
RETURNED_S = 33.0  # in which free memory is returned to the system
SHARE = 1.0  # of its prompt, which a stream may take with everything else
READERS = 60
STREAM_BYTES = 1 << 20  # that a stream may take while its caller does not read
CONNECTIONS = 400
CONNECTION_BYTES = 24 << 10  # that an idle connection may take, with its greenlet


def resident(process: int) -> int:
    """Return the resident bytes of a process."""
    lines = Path(f"/proc/{process}/status").read_text()
    found = re.search(r"VmRSS:\s+(\d+) kB", lines)
    assert found
    return int(found[1]) << 10


@dataclass
class Watch:
    """The resident memory of a process, read all the time."""

    process: int
    before: int = 0
    most: int = 0
    _ended: threading.Event = field(default_factory=threading.Event)

    def __enter__(self) -> "Watch":
        self.before = self.most = resident(self.process)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(self, *given: object) -> None:
        self._ended.set()
        self._thread.join()

    def _read(self) -> None:
        while not self._ended.wait(READ_S):
            with suppress(OSError):
                self.most = max(self.most, resident(self.process))


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with run_server("silent", free_port()) as address:
        yield address


@pytest.fixture(scope="module")
def begun() -> Iterator[str]:
    with run_server("begun", free_port()) as address:
        yield address


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    with run_server("hostile", free_port()) as address:
        yield address


@pytest.fixture
def gateway(tmp_path: Path, upstream: str, begun: str, hostile: str) -> Iterator[GatewayProcess]:
    environment = {
        "LLM_ANTHROPIC_BASE_URL": f"{begun}/v1",
        "LLM_ANTHROPIC_API_KEY": "sk-begun",
        "LLM_GOOGLE_AI_STUDIO_BASE_URL": f"{begun}/v1beta",
        "LLM_GOOGLE_AI_STUDIO_API_KEY": "sk-begun",
        "LLM_GROQ_BASE_URL": begun,
        "LLM_GROQ_API_KEY": "sk-begun",
        "LLM_DEEPSEEK_BASE_URL": hostile,
        "LLM_DEEPSEEK_API_KEY": "sk-hostile",
        "GATEWAY_METRICS_TOKEN": TOKEN,
        "GATEWAY_BOOTSTRAP_CREDITS_USD": "100000",
        "GATEWAY_SERVER_BODIES_MB": str(BODIES_MB),
        "GATEWAY_SERVER_ORGANIZATION_BODIES_MB": str(BODIES_MB),
        "GATEWAY_TIMEOUTS_SILENCE_S": "600",
        "GATEWAY_TIMEOUTS_REQUEST_S": "600",
        "LLM_OPENAI_BASE_URL": f"{upstream}/v1",
        "LLM_OPENAI_API_KEY": "sk-upstream",
    }
    running = GatewayProcess(tmp_path / "data", 1, **environment)
    running.start()
    yield running
    running.discard()


def counted(gateway: GatewayProcess) -> int:
    """Return what the worker's budget of large bodies counts."""
    request = urllib.request.Request(f"{gateway.address}/metrics", headers={"Authorization": f"Bearer {TOKEN}"})
    with urllib.request.urlopen(request, timeout=30) as answer:
        found = re.search(r"^llmgateway_bodies_bytes(?:{[^}]*})? (\S+)", answer.read().decode(), re.MULTILINE)
    assert found
    return int(float(found[1]))


def send(gateway: GatewayProcess, path: str, content: bytes, headers: str = "", method: str = "POST") -> socket.socket:
    """Send a request and return its connection without reading an answer. `headers` are whole lines."""
    caller = socket.socket()
    caller.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    caller.settimeout(60)
    caller.connect(("127.0.0.1", gateway.port))
    head = f"{method} {path} HTTP/1.1\r\nHost: here\r\nContent-Type: application/json\r\n"
    head += f"Content-Length: {len(content)}\r\n{headers}Authorization: Bearer {gateway.key}\r\n\r\n"
    with suppress(OSError):  # refused before it was read
        caller.sendall(head.encode() + content)
    return caller


def when_still(read: Callable[[], int]) -> int:
    """Return a figure that has not changed for STILL_S."""
    until = time.monotonic() + PATIENCE_S
    value, since = read(), time.monotonic()
    while time.monotonic() - since < STILL_S:
        assert time.monotonic() < until, "the figure does not come to rest"
        time.sleep(0.2)
        now = read()
        if now != value:
            value, since = now, time.monotonic()
    return value


@pytest.mark.parametrize("kind", KINDS)
def test_waiting_requests_take_the_memory_that_the_budget_counts(gateway: GatewayProcess, kind: str) -> None:
    path, make, usual = KINDS[kind]
    body = make()
    content = json.dumps(body if "{model}" in path else {"model": MODEL, **body}).encode()
    path = path.replace("{model}", MODEL)
    small = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}).encode()
    callers = [send(gateway, "/v1/chat/completions", small)]  # all modules are imported
    time.sleep(1)
    with Watch(gateway.workers()[0]) as memory:
        callers.extend(send(gateway, path, content) for _ in range(CALLERS))
        held = when_still(lambda: counted(gateway))
        grown = resident(memory.process) - memory.before
    for caller in callers:
        caller.close()
    most = memory.most - memory.before
    print(
        f"\n{kind:<20} body {len(content) / MEGABYTE:5.2f} MB   counted {held / MEGABYTE:6.1f} MB   "
        f"memory {grown / MEGABYTE:6.1f} MB ({grown / max(1, held):4.2f} times), at most {most / MEGABYTE:6.1f} MB"
    )
    assert held > BODIES_MB * MEGABYTE / 8, "too few requests waited"
    assert grown <= TIMES * held
    assert most <= TIMES * BODIES_MB * MEGABYTE
    assert not usual or held <= USUAL_TIMES * grown


def chat(model: str, text: str = "Hello", **more: object) -> bytes:
    return json.dumps({"model": model, "messages": [{"role": "user", "content": text}], **more}).encode()


def warm(gateway: GatewayProcess, *requests: tuple[str, bytes]) -> None:
    """Let a request of each kind begin, so that its modules are imported."""
    for path, content in requests:
        caller = send(gateway, path, content)
        assert caller.recv(12)[9:] == b"200"
        caller.close()
    time.sleep(1)


def measure(gateway: GatewayProcess, title: str, begin: Callable[[], list[socket.socket]], wait_s: float) -> int:
    """Print and return the bytes by which the worker's memory grew, `wait_s` after the requests have begun."""
    with Watch(gateway.workers()[0]) as memory:
        callers = begin()
        time.sleep(wait_s)
        grown = resident(memory.process) - memory.before
        held = counted(gateway)
    for caller in callers:
        caller.close()
    most = memory.most - memory.before
    print(
        f"\n{title:<28} {len(callers)} callers   counted {held / MEGABYTE:6.1f} MB   "
        f"memory {grown / MEGABYTE:6.1f} MB, at most {most / MEGABYTE:6.1f} MB"
    )
    return grown


STREAMS = {
    "chat to chat": (CHAT, "groq/qwen3-32b", agent_chat),
    "chat to messages": (CHAT, "anthropic/claude-sonnet-5", agent_chat),
    "messages": ("/v1/messages", "anthropic/claude-sonnet-5", agent_messages),
    "messages to chat": ("/v1/messages", "groq/qwen3-32b", agent_messages),
    "gemini": ("/v1beta/models/{model}:streamGenerateContent?alt=sse", "gemini-3.5-flash", agent_contents),
}


@pytest.mark.parametrize("kind", STREAMS)
def test_memory_of_streams_that_have_begun_is_a_fraction_of_their_prompts(gateway: GatewayProcess, kind: str) -> None:
    path, model, make = STREAMS[kind]
    path = path.replace("{model}", model)

    def content(turns: int) -> bytes:
        return json.dumps(make(turns) if ":" in path else {"model": model, "stream": True, **make(turns)}).encode()

    warm(gateway, (path, content(40)))
    prompt = content(80)

    def begin() -> list[socket.socket]:
        callers = [send(gateway, path, prompt) for _ in range(RUNNING)]
        assert {caller.recv(12)[9:] for caller in callers} == {b"200"}
        return callers

    grown = measure(gateway, f"streams, {kind}", begin, RETURNED_S)
    assert grown <= SHARE * RUNNING * len(prompt)
    assert counted(gateway) < MEGABYTE


def test_memory_of_answers_that_callers_do_not_read_is_counted(gateway: GatewayProcess) -> None:
    content = chat("deepseek/deepseek-v4-pro")
    grown = measure(gateway, "answers of 62 MB", lambda: [send(gateway, CHAT, content) for _ in range(READERS)], 20.0)
    assert grown <= TIMES * BODIES_MB * MEGABYTE


def test_memory_of_streams_that_callers_do_not_read_is_bounded(gateway: GatewayProcess) -> None:
    content = chat("groq/qwen3-32b", stream=True)
    warm(gateway, (CHAT, content))
    grown = measure(gateway, "endless streams", lambda: [send(gateway, CHAT, content) for _ in range(READERS)], 10.0)
    assert grown <= READERS * STREAM_BYTES


def test_memory_of_lists_that_callers_do_not_read_is_bounded(gateway: GatewayProcess) -> None:
    def begin() -> list[socket.socket]:
        return [send(gateway, "/v1/models", b"", f"X-Caller: {place}\r\n", "GET") for place in range(READERS)]

    grown = measure(gateway, "lists of models", begin, 5.0)
    assert grown <= READERS * STREAM_BYTES


LONG_HEADERS = "".join(f"X-More-{place}: {'a' * 1000}\r\n" for place in range(58))


def test_memory_of_idle_connections_is_small_after_long_headers(gateway: GatewayProcess) -> None:
    def begin() -> list[socket.socket]:
        callers = [send(gateway, "/livez", b"", LONG_HEADERS, "GET") for _ in range(CONNECTIONS)]
        for caller in callers:
            assert caller.recv(4096)[9:12] == b"200"
        return callers

    grown = measure(gateway, "idle after long headers", begin, RETURNED_S)
    assert grown <= CONNECTIONS * CONNECTION_BYTES


@pytest.mark.parametrize("model", [MODEL, "groq/qwen3-32b"])
def test_memory_of_requests_with_long_headers_is_little_more_than_the_headers(
    gateway: GatewayProcess, model: str
) -> None:
    content = chat(model, "word " * 25_000, stream=True)
    measure(gateway, f"usual headers, {model}", lambda: [send(gateway, CHAT, content) for _ in range(100)], 3.0)
    usual = measure(gateway, "again", lambda: [send(gateway, CHAT, content) for _ in range(100)], RETURNED_S)
    grown = measure(
        gateway, "long headers", lambda: [send(gateway, CHAT, content, LONG_HEADERS) for _ in range(100)], RETURNED_S
    )
    assert grown - usual <= 100 * TIMES * len(LONG_HEADERS) * 2
