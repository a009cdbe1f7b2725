"""One organization, or strangers, flood a worker with each kind of work: how much longer do others wait?

    pytest tests/drills/test_fairness.py -s -m soak

prints the median and the 99th percentile of another organization's requests, quiet and flooded (each the median of
ROUNDS, which alternate), and for the flooded time which share of it the event loop's thread computed, and which share
it was ready to run and waited for a processor. As root on Linux the drill has priority over other sessions of the
machine; a large share of waiting then means that the gateway's own threads and the flood fill the machine.

The measured requests are served by an upstream in a process of its own. The sandbox computed most of the time of a
request of 200 KB, in the worker that was measured. In the quiet rounds the same client floods a stand-in for the
gateway, at the rate and with the sizes of the flood that was measured before: its processor time is no work of the
gateway.
"""

import collections
import http.client
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import flooding
from support.drill_servers import run_server
from support.gateways import GatewayProcess, free_port

pytestmark = pytest.mark.soak

FLOODING = Path(flooding.__file__)
MODEL = "gpt-4.1"
PASSWORD = "a long enough password"
PAUSE_S = 0.01
HEAD_START_S = 1.5
# A conversation is stored first, and answers of 62 MB take seconds.
HEAD_STARTS_S = {"chains": 8.0, **dict.fromkeys(("long_responses", "long_chats", "long_messages", "long_images"), 4.0)}
REST_S = 0.5  # in which work of a flood that was ended is completed
ROUNDS = 3
TIMES = 3  # the quiet value that others may wait under a flood
# Requests below this duration are not compared: the machine's own pauses dominate them.
MIN_S = 0.01
# Texts of the measured requests, and how many are sent in each round.
TEXTS = {"small": ("Hello", 150), "of 200 KB": ("word " * 40_000, 40)}
DETECTORS = ("secrets", "personal", "network", "injection")
PRIORITY = "-20"  # of the sessions of the drill and of its gateway (sched(7), autogroup)


@dataclass
class Waits:
    """Seconds of each answered request, by round."""

    rounds: list[list[float]] = field(default_factory=list)

    def share(self, part: float) -> float:
        """Return the median of the rounds' quantiles."""
        return statistics.median(sorted(one)[min(len(one) - 1, int(len(one) * part))] for one in self.rounds)

    def __str__(self) -> str:
        return f"p50 {self.share(0.5) * 1000:6.1f} ms  p99 {self.share(0.99) * 1000:6.1f} ms"


@dataclass
class LoopTime:
    """Time of the thread of an event loop: computing, and ready to run without a processor (proc_schedstat)."""

    process: int
    computing_s: float = 0.0
    waiting_s: float = 0.0
    total_s: float = 0.0

    def count(self, sign: int) -> None:
        """Begin (-1) or end (1) a time that counts."""
        with suppress(OSError):
            computing, waiting, _ = Path(f"/proc/{self.process}/schedstat").read_text().split()
            self.computing_s += sign * int(computing) / 1e9
            self.waiting_s += sign * int(waiting) / 1e9
        self.total_s += sign * time.perf_counter()

    def __str__(self) -> str:
        return f"loop {self.computing_s / self.total_s:4.0%} CPU, {self.waiting_s / self.total_s:3.0%} waiting"


def prefer(process: int) -> None:
    """Give the session of a process priority over other sessions, where the system allows it."""
    with suppress(OSError):
        Path(f"/proc/{process}/autogroup").write_text(PRIORITY)


@pytest.fixture(scope="module")
def upstream() -> Iterator[str]:
    with run_server("upstream", free_port()) as address:
        yield address


@pytest.fixture(scope="module")
def hostile() -> Iterator[str]:
    with run_server("hostile", free_port()) as address:
        yield address


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory, upstream: str, hostile: str) -> Iterator[GatewayProcess]:
    environment = {
        **hostile_providers(hostile),
        "GATEWAY_BOOTSTRAP_CREDITS_USD": "100000",
        "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD,
        "LLM_OPENAI_BASE_URL": f"{upstream}/v1",
        "LLM_OPENAI_API_KEY": "sk-upstream",
    }
    running = GatewayProcess(tmp_path_factory.mktemp("fair") / "data", 1, **environment)
    own = Path("/proc/self/autogroup")
    before = own.read_text().split()[-1] if own.exists() else "0"
    prefer(os.getpid())
    prefer(running.start().workers()[0])
    yield running
    running.discard()
    with suppress(OSError):
        own.write_text(before)


def hostile_providers(address: str) -> dict[str, str]:
    """Return the settings of the providers that the floods of hostile answers call."""
    paths = {"XAI": "/v1", "DEEPSEEK": "", "ANTHROPIC": "/v1", "GOOGLE_AI_STUDIO": "/v1beta"}
    paths |= {"GROQ": "/tiny-chunks", "MISTRAL": "/tiny-events"}
    settings = {"LLM_XAI_USE_RESPONSES_API": "true"}
    for name, path in paths.items():
        settings |= {f"LLM_{name}_BASE_URL": address + path, f"LLM_{name}_API_KEY": "sk-hostile"}
    return settings


def manage(gateway: GatewayProcess, *arguments: str) -> dict[str, Any]:
    """The object that an operator's command prints; what it notes may follow."""
    output: dict[str, Any] = json.JSONDecoder().raw_decode(gateway.manage(*arguments, "--json"))[0]
    return output


@pytest.fixture(scope="module")
def other_key(gateway: GatewayProcess) -> str:
    """A key of another organization."""
    organization = manage(gateway, "organizations", "create", "other")["id"]
    project = manage(gateway, "projects", "create", organization, "other")["id"]
    gateway.manage("members", "add", organization, "other@localhost", "--role", "owner")
    gateway.manage("credits", "grant", "100000", "--organization", organization)
    key = manage(gateway, "keys", "create", "--description", "other", "--project", project)
    return next(
        value for value in key.values() if isinstance(value, str) and value.startswith("llmgtwy_") and value.isascii()
    )


@pytest.fixture(scope="module")
def session(gateway: GatewayProcess) -> str:
    """A session of the owner of the flooding organization, which has some requests to report and to export."""
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    measure(gateway, gateway.key, json.dumps(body).encode(), 200)
    status, answer = gateway.post("/auth/sign-in/email", {"email": "owner@localhost", "password": PASSWORD})
    assert status == 200
    token: str = answer["token"]
    return token


def measure(gateway: GatewayProcess, key: str, content: bytes, count: int) -> list[float]:
    """Send `count` requests one after the other and return their durations; every request must be answered."""
    seconds = []
    caller = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for _ in range(count):
        began = time.perf_counter()
        caller.request("POST", "/v1/chat/completions", content, headers)
        answer = caller.getresponse()
        answer.read()
        seconds.append(time.perf_counter() - began)
        assert answer.status == 200
        time.sleep(PAUSE_S)
    caller.close()
    return seconds


def add_guardrails(gateway: GatewayProcess) -> None:
    """Let all detectors mask the prompts of the flooding organization. No other kind of flood follows."""
    listed = json.JSONDecoder().raw_decode(gateway.manage("organizations", "list", "--json"))[0]
    default = next(one["id"] for one in listed if one["name"] == "Default")
    detectors = [part for group in DETECTORS for part in ("--detector", group)]
    gateway.manage("guardrails", "create", "All", "mask", *detectors, "--organization", default)


@dataclass
class FloodingClient:
    """The answers that a flood got."""

    statuses: list[str] = field(default_factory=list)
    rate: float = 1.0  # answers per second
    size: int = 0  # bytes that were read of an answer, on average


@contextmanager
def flood(kind: str, address: str, gateway: GatewayProcess, session: str) -> Iterator[FloodingClient]:
    """Flood an address with one kind of work, from HEAD_START_S before the block to its end."""
    client = FloodingClient()
    command = [sys.executable, str(FLOODING), kind, address, gateway.key, session]
    began = time.monotonic()
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as running:
        try:
            time.sleep(HEAD_STARTS_S.get(kind, HEAD_START_S))
            yield client
        finally:
            running.kill()
        assert running.stdout is not None
        # The client was killed, maybe within its last line.
        lines = [line.split() for line in running.stdout.read().splitlines(keepends=True) if line.endswith("\n")]
    if lines:
        client.statuses = [status for status, _ in lines if status != flooding.MORE]
        client.rate = max(1, len(client.statuses)) / (time.monotonic() - began)
        client.size = sum(int(size) for _, size in lines) // max(1, len(client.statuses))


@pytest.mark.parametrize("size", TEXTS)
@pytest.mark.parametrize("kind", flooding.KINDS)
def test_a_flood_of_one_organization_lengthens_the_waits_of_others_at_most_threefold(
    gateway: GatewayProcess, other_key: str, session: str, kind: str, size: str
) -> None:
    text, count = TEXTS[size]
    content = json.dumps({"model": MODEL, "messages": [{"role": "user", "content": text}]}).encode()
    quiet, flooded, loop = Waits(), Waits(), LoopTime(gateway.workers()[0])
    answers: collections.Counter[str] = collections.Counter()
    if kind == "guarded_prompts" and size == "small":
        add_guardrails(gateway)
    for _ in range(ROUNDS):
        time.sleep(REST_S)
        measure(gateway, other_key, content, 10)
        with flood(kind, gateway.address, gateway, session) as flooding_client:
            loop.count(-1)
            flooded.rounds.append(measure(gateway, other_key, content, count))
            loop.count(1)
        answers.update(flooding_client.statuses)
        time.sleep(REST_S)
        stand_in = run_server("stand-in", free_port(), flooding_client.rate, flooding_client.size)
        with stand_in as address, flood(kind, address, gateway, session):
            quiet.rounds.append(measure(gateway, other_key, content, count))
    print(f"\n{kind:<14} {size:<10} quiet {quiet}   flooded {flooded}   {loop}   flood's answers {dict(answers)}")
    assert answers, "nothing was flooded"
    assert flooded.share(0.99) <= TIMES * max(quiet.share(0.99), MIN_S)
