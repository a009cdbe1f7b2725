"""Ten injected faults, found as an operator would: from the log, the metrics and the operator's command alone.

Each test knows what it broke, and finds in what the gateway tells which request failed, why, for whom and what to do.
"""

import json
import os
import re
import signal
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.openai import Answer, FakeOpenAI
from support.gateways import GatewayProcess, free_port

MODEL = "openai/gpt-4o-mini"
NOWHERE = "http://127.0.0.1:9/v1"
Line = dict[str, Any]


class Installation:
    """A gateway with one worker, a provider with scripted faults, an absent provider, and a Redis that is away."""

    def __init__(self, folder: Path, upstream: FakeOpenAI) -> None:
        self.upstream = upstream
        self.gateway = GatewayProcess(
            folder / "data",
            1,
            GATEWAY_LOG_FORMAT="json",
            GATEWAY_LOG_REQUESTS="json",
            GATEWAY_METRICS_TOKEN="scrape",
            GATEWAY_BOOTSTRAP_CREDITS_USD="unlimited",
            REDIS_URL=f"redis://127.0.0.1:{free_port()}/0",
            LLM_OPENAI_API_KEY="sk-upstream-secret",
            LLM_OPENAI_BASE_URL=upstream.url,
            LLM_OPENAI_USE_RESPONSES_API="false",
            LLM_GROQ_API_KEY="gsk-upstream-secret",
            LLM_GROQ_BASE_URL=NOWHERE,
        ).start()

    def send_chat(self, model: str = MODEL, key: str = "", **more: Any) -> str:
        """Send a request and read its answer; the id that its caller would quote."""
        body = {"model": model, "messages": [{"role": "user", "content": "my private words"}], **more}
        headers = {"Authorization": f"Bearer {key or self.gateway.key}", "Content-Type": "application/json"}
        url = f"{self.gateway.url}/chat/completions"
        try:
            with urllib.request.urlopen(urllib.request.Request(url, json.dumps(body).encode(), headers)) as answer:
                answer.read()
                return answer.headers["x-request-id"]
        except urllib.error.HTTPError as error:
            return error.headers["x-request-id"]

    def lines(self) -> list[Line]:
        return [json.loads(line) for line in self.gateway.log().splitlines() if line.startswith("{")]

    def find(self, matches: Callable[[Line], bool]) -> Line:
        """The newest line of the log that is wanted, once it is written."""
        until = time.monotonic() + 15
        while time.monotonic() < until:
            found = [line for line in self.lines() if matches(line)]
            if found:
                return found[-1]
            time.sleep(0.05)
        raise AssertionError("no such line:\n" + "\n".join(map(str, self.lines()[-15:])))

    def request(self, request_id: str) -> Line:
        return self.find(lambda entry: entry.get("event") == "request" and entry["request_id"] == request_id)

    def event(self, name: str) -> Line:
        entry = self.find(lambda entry: entry.get("event") == name)
        assert entry["remedy"], "an event says what to do"
        return entry

    def metric(self, name: str, *labels: str) -> float:
        headers = {"Authorization": "Bearer scrape"}
        with urllib.request.urlopen(urllib.request.Request(f"{self.gateway.address}/metrics", headers=headers)) as page:
            text = page.read().decode()
        rows = [line for line in text.splitlines() if re.match(rf"llmgateway_{name}[{{ ]", line)]
        return sum(float(row.rpartition(" ")[2]) for row in rows if all(label in row for label in labels))

    def key_of(self, *more: str) -> tuple[str, str]:
        """A new key: its id and its token."""
        output = self.gateway.manage("keys", "create", "--description", "for a test", *more)
        token = re.findall(r"llmgtwy_\S+", output)[0]
        return re.findall(r"key_[0-9a-f]{32}", output)[0], token


@pytest.fixture(scope="module")
def installation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Installation]:
    with FakeOpenAI() as upstream:
        created = Installation(tmp_path_factory.mktemp("faults"), upstream)
        yield created
        created.gateway.discard()


@pytest.fixture(scope="module")
def own_key(installation: Installation) -> str:
    """The id of the first key."""
    return re.findall(r"key_[0-9a-f]{32}", installation.gateway.manage("keys", "list"))[0]


def test_an_unavailable_redis_is_reported_and_fails_no_request(installation: Installation, own_key: str) -> None:
    entry = installation.request(installation.send_chat())
    assert entry["status"] == 200 and entry["key"] == own_key
    assert "REDIS_URL" in installation.event("redis.away")["remedy"] and installation.metric("redis_up") == 0


def test_a_provider_that_fails_is_named_with_every_try(installation: Installation, own_key: str) -> None:
    installation.upstream.script(Answer(status=500))
    entry = installation.request(installation.send_chat())
    assert (entry["status"], entry["key"], entry["model"]) == (502, own_key, MODEL)
    assert {(one["provider"], one["status"]) for one in entry["tried"]} == {("openai", 500)} and entry["remedy"]
    assert installation.metric("attempts_total", 'provider="openai"', 'outcome="server_error"') == len(entry["tried"])


def test_a_provider_that_limits_our_rate_is_distinguished(installation: Installation) -> None:
    installation.upstream.script(Answer(status=429))
    entry = installation.request(installation.send_chat())
    assert (entry["status"], entry["code"]) == (429, "upstream_rate_limited") and "add a provider" in entry["remedy"]
    assert installation.metric("attempts_total", 'outcome="rate_limited"') >= 1


def test_a_stream_that_breaks_has_its_line_although_its_status_was_good(
    installation: Installation, own_key: str
) -> None:
    installation.upstream.script(Answer("A long answer that breaks. " * 20, cut=900))
    entry = installation.request(installation.send_chat(stream=True))
    assert entry["status"] == 200 and entry["code"] in ("stream_truncated", "fetch_failed") and entry["key"] == own_key
    assert installation.metric("streams_cut_total", 'provider="openai"') == 1


def test_a_provider_that_is_not_there_is_reported_as_unreachable(installation: Installation) -> None:
    entry = installation.request(installation.send_chat("groq/gpt-oss-120b"))
    assert entry["status"] in (502, 503) and entry["tried"][0]["error"] == "network_error" and entry["remedy"]
    resting = installation.event("provider.resting")
    assert resting["provider"] == "groq" and resting["reason"] == "unreachable" and "DNS" in resting["remedy"]
    assert installation.metric("cooldowns", 'provider="groq"', 'reason="unreachable"') == 1


def test_an_unknown_key_is_reported_by_its_address(installation: Installation) -> None:
    entry = installation.request(installation.send_chat(key="llmgtwy_nobody_has_ever_seen_this_one"))
    assert (entry["status"], entry["code"], entry["ip"]) == (401, "invalid_api_key", "127.0.0.1") and "key" not in entry
    assert "keys list" in entry["remedy"] and installation.metric("errors_total", 'kind="unauthenticated"') == 1


def test_bytes_that_are_no_request_are_reported_by_their_address(installation: Installation) -> None:
    with socket.create_connection(("127.0.0.1", installation.gateway.port)) as stranger:
        stranger.sendall(b"this is not HTTP\r\n\r\n")
        assert b" 400 " in stranger.recv(1000)
    entry = installation.find(lambda entry: entry.get("event") == "request" and entry["operation"] == "unmatched")
    assert (entry["status"], entry["code"], entry["ip"]) == (400, "malformed_request", "127.0.0.1")


def test_a_deactivated_key_is_reported_by_its_id(installation: Installation) -> None:
    ident, token = installation.key_of()
    installation.gateway.manage("keys", "deactivate", ident)
    entry = installation.request(installation.send_chat(key=token))
    assert (entry["status"], entry["key"]) == (401, ident) and entry["project"].startswith("proj_")
    row = next(row for row in installation.gateway.manage("keys", "list").splitlines() if ident in row)
    assert "inactive" in row


def test_a_spent_limit_is_reported_by_key_and_seen_by_the_command(installation: Installation) -> None:
    ident, token = installation.key_of()
    installation.gateway.manage("limits", "set", ident, "--total", "0.000000001")
    entry = installation.request(installation.send_chat(key=token))
    assert (entry["status"], entry["code"], entry["key"]) == (402, "key_limit_reached", ident)
    assert "limits set" in entry["remedy"] and ident in installation.gateway.manage("limits", "show")
    assert installation.metric("errors_total", 'kind="limit_reached"') == 1


def test_spent_credits_are_reported_by_organization(installation: Installation) -> None:
    organization = installation.gateway.manage("credits", "unlimited", "--off").splitlines()[1].split()[0]
    entry = installation.request(installation.send_chat())
    assert (entry["status"], entry["code"], entry["organization"]) == (402, "insufficient_credits", organization)
    assert "credits grant" in entry["remedy"]
    installation.gateway.manage("credits", "grant", "1")
    assert installation.request(installation.send_chat())["status"] == 200
    assert installation.event("credits.low")["organization"] == organization, "a dollar is little"
    installation.gateway.manage("credits", "unlimited")


def test_a_refused_credential_is_reported_as_one(installation: Installation) -> None:
    installation.upstream.script(*[Answer(status=401)] * 3)
    ids = [installation.send_chat() for _ in range(3)]
    entry = installation.request(ids[-1])
    assert entry["tried"][0]["status"] == 401 and entry["tried"][0]["key"] and "credential" in entry["remedy"]
    refused = installation.event("credential.refused")
    assert refused["provider"] == "openai" and refused["credential"] == entry["tried"][0]["key"]
    assert installation.metric("credentials", 'provider="openai"', 'state="refused"') == 1


def test_a_killed_worker_is_reported_with_what_it_had_under_way(installation: Installation) -> None:
    (pid,) = installation.gateway.workers()
    os.kill(pid, signal.SIGKILL)
    installation.find(
        lambda entry: str(pid) in entry.get("message", "") and entry["level"] in ("error", "warning", "critical")
    )
    until = time.monotonic() + 20
    while not installation.gateway.ready():
        assert time.monotonic() < until
        time.sleep(0.05)


def test_the_command_shows_version_and_catalogue_of_each_worker_and_its_cooldowns(installation: Installation) -> None:
    until = time.monotonic() + 20
    while True:
        # Each time anew: on a busy machine the command takes longer than the cooldown after one failure.
        installation.request(installation.send_chat("groq/gpt-oss-120b"))
        found = json.loads(installation.gateway.manage("status", "--json"))
        # The worker that took the place of the killed one reports within seconds.
        if found["cooldowns"] and found["workers"] and all(worker["version"] for worker in found["workers"]):
            break
        assert time.monotonic() < until, found
    assert {worker["catalogue"] for worker in found["workers"]} == {found["catalogue"]}
    assert {(cooldown["provider"], cooldown["reason"]) for cooldown in found["cooldowns"]} >= {("groq", "unreachable")}
    assert "The books agree" in installation.gateway.manage("doctor")


def test_nothing_that_was_said_and_no_secret_is_in_all_of_it(installation: Installation) -> None:
    text = installation.gateway.log()
    for secret in ("my private words", "sk-upstream-secret", "gsk-upstream-secret"):
        assert secret not in text
    json_lines = [line for line in text.splitlines() if line.startswith("{")]
    assert installation.gateway.key not in "\n".join(json_lines)
