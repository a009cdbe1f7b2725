"""One organization, or strangers, flood a worker with each kind of work: how much longer do others wait?

    pytest tests/drills/test_fairness.py -s -m soak

prints the median and the 99th percentile of another organization's requests, quiet and flooded.
"""

import collections
import http.client
import json
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from support import flooding
from support.gateways import GatewayProcess

pytestmark = pytest.mark.soak

FLOODING = Path(flooding.__file__)
PASSWORD = "a long enough password"
PAUSE_S = 0.01
HEAD_START_S = 1.5
TIMES = 3  # the quiet value that others may wait under a flood
# Requests below this duration are not compared: the machine's own pauses dominate them.
LEAST_S = 0.01
# Texts of the measured requests, and how many are sent.
TEXTS = {"small": ("Hello", 300), "of 200 KB": ("word " * 40_000, 100)}


@dataclass
class Waits:
    """Seconds of each answered request."""

    seconds: list[float] = field(default_factory=list)

    def share(self, part: float) -> float:
        return sorted(self.seconds)[min(len(self.seconds) - 1, int(len(self.seconds) * part))]

    def __str__(self) -> str:
        return f"p50 {self.share(0.5) * 1000:7.1f} ms  p99 {self.share(0.99) * 1000:7.1f} ms"


@pytest.fixture(scope="module")
def gateway(tmp_path_factory: pytest.TempPathFactory) -> Iterator[GatewayProcess]:
    environment = {"GATEWAY_BOOTSTRAP_CREDITS_USD": "100000", "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD}
    running = GatewayProcess(tmp_path_factory.mktemp("fair") / "data", 1, **environment)
    yield running.start()
    running.discard()


def manage(gateway: GatewayProcess, *arguments: str) -> dict[str, Any]:
    """The object that an operator's command prints; what it notes may follow."""
    made: dict[str, Any] = json.JSONDecoder().raw_decode(gateway.manage(*arguments, "--json"))[0]
    return made


@pytest.fixture(scope="module")
def other(gateway: GatewayProcess) -> str:
    """A key of another organization."""
    organization = manage(gateway, "organizations", "create", "other")["id"]
    project = manage(gateway, "projects", "create", organization, "other")["id"]
    gateway.manage("members", "add", organization, "other@localhost", "--role", "owner")
    gateway.manage("credits", "grant", "1000", "--organization", organization)
    made = manage(gateway, "keys", "create", "--description", "other", "--project", project)
    return next(word for word in made.values() if isinstance(word, str) and word.startswith("llmgtwy_"))


@pytest.fixture(scope="module")
def session(gateway: GatewayProcess) -> str:
    """A session of the owner of the flooding organization, which has some requests to report and to export."""
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    measure(gateway, gateway.key, json.dumps(body).encode(), 200)
    status, answer = gateway.post("/auth/sign-in/email", {"email": "owner@localhost", "password": PASSWORD})
    assert status == 200
    token: str = answer["token"]
    return token


def measure(gateway: GatewayProcess, key: str, content: bytes, count: int) -> Waits:
    """Send `count` requests one after the other and return their durations; every request must be answered."""
    waits = Waits()
    caller = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=60)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    for _ in range(count):
        began = time.perf_counter()
        caller.request("POST", "/v1/chat/completions", content, headers)
        answer = caller.getresponse()
        answer.read()
        waits.seconds.append(time.perf_counter() - began)
        assert answer.status == 200
        time.sleep(PAUSE_S)
    caller.close()
    return waits


@pytest.mark.parametrize("size", TEXTS)
@pytest.mark.parametrize("kind", flooding.KINDS)
def test_a_flood_of_one_organization_lengthens_the_waits_of_others_at_most_threefold(
    gateway: GatewayProcess, other: str, session: str, kind: str, size: str
) -> None:
    text, count = TEXTS[size]
    content = json.dumps({"model": "sandbox-echo", "messages": [{"role": "user", "content": text}]}).encode()
    measure(gateway, other, content, 20)
    quiet = measure(gateway, other, content, count)
    command = [sys.executable, str(FLOODING), kind, gateway.address, gateway.key, session]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as flood:
        try:
            time.sleep(HEAD_START_S)
            flooded = measure(gateway, other, content, count)
        finally:
            flood.kill()
        answers = collections.Counter((flood.stdout or []).read().split())  # type: ignore[union-attr]
    print(f"\n{kind:<14} {size:<10} quiet {quiet}   flooded {flooded}   flood's answers {dict(answers)}")
    assert answers, "nothing was flooded"
    assert flooded.share(0.99) <= TIMES * max(quiet.share(0.99), LEAST_S)
