"""The telemetry of the real Claude Code, through its own OTLP exporter: the outcomes equal what it did."""

import json
import os
import re
import sqlite3
import subprocess
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents.clients import CLIENTS, Client, Gateway
from agents.upstreams import PLACES, Job, Model, ModelAtAnthropic
from fakes import anthropic
from support.gateways import GatewayProcess

from gateway.metering.outcomes.names import OUTCOMES

Serve = Callable[..., tuple[GatewayProcess, list[Model]]]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "outcomes.md"
WAIT_S = 30
FIRST = "one\ntwo\nthree"
SECOND = "one\n2\n2.5\nthree"
GH = "#!/bin/sh\necho https://github.com/acme/house/pull/7\n"


class ModelThatDelivers(ModelAtAnthropic):
    """Writes a file, edits it, tries to edit one that it must not, commits, and opens a pull request."""

    def _work(self, body: dict[str, Any]) -> anthropic.Answer:
        if "Write" not in [tool["name"] for tool in body.get("tools") or ()]:
            return anthropic.Answer("A title.")
        done = sum(
            block.get("type") == "tool_result"
            for message in body["messages"]
            if isinstance(message["content"], list)
            for block in message["content"]
        )
        steps = self._steps()
        if done >= len(steps):
            return anthropic.Answer("All is done.", input=1000, output=20)
        name, arguments = steps[done]
        return anthropic.Answer("Next.", tools=((name, json.dumps(arguments)),), input=1000, output=20, turn=done)

    def _steps(self) -> list[tuple[str, dict[str, Any]]]:
        job = self._job
        return [
            ("Write", {"file_path": job.path, "content": FIRST}),
            ("Edit", {"file_path": job.path, "old_string": "two\n", "new_string": "2\n2.5\n"}),
            ("Write", {"file_path": f"{job.folder}/secret.txt", "content": "no\n"}),
            ("Bash", {"command": "git add -A && git commit -q -m first", "description": "commit"}),
            ("Bash", {"command": "gh pr create --title t --body b", "description": "open a pull request"}),
        ]


def telling_client(protocol: str, temporality: str) -> Client:
    """Claude Code that exports to the gateway, as docs/outcomes.md says."""
    plain = CLIENTS["claude"]

    def configure(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
        folder = home / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "gh").write_text(GH)
        (folder / "gh").chmod(0o755)
        (home / ".gitconfig").write_text("[user]\n\tname = A\n\temail = a@example.com\n")
        settings = home / ".claude"
        settings.mkdir(exist_ok=True)
        (settings / "settings.json").write_text(json.dumps({"permissions": {"ask": ["Edit(secret.txt)"]}}))
        return {
            **plain.configure(home, gateway, model),
            "PATH": f"{folder}:{os.environ['PATH']}",
            **documented(gateway),
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": temporality,
            "OTEL_METRIC_EXPORT_INTERVAL": "700",
        }

    def begin(prompt: str, model: str) -> list[str]:
        return ["--print", "--permission-mode", "acceptEdits", "--allowedTools", "Bash", "--", prompt]

    return replace(plain, configure=configure, begin=begin)


def documented(gateway: Gateway) -> dict[str, str]:
    """The variables of the first block of docs/outcomes.md, with the address and the key of a gateway."""
    block = DOCUMENT.read_text().partition("```sh\n")[2].partition("```")[0]
    text = block.replace("http://127.0.0.1:4001", gateway.address).replace("llmgtwy_…", gateway.key)
    return dict(re.findall(r'^export (\w+)="?([^"\n]*)"?$', text, re.MULTILINE))


def stored(gateway: GatewayProcess) -> dict[str, int]:
    """The sums of all outcomes."""
    store = sqlite3.connect(f"file:{gateway.data}/gateway.db?mode=ro", uri=True)
    sums = ", ".join(f"SUM({name})" for name in OUTCOMES)
    (row,) = store.execute(f"SELECT {sums} FROM outcome").fetchall()
    store.close()
    return dict(zip(OUTCOMES, [value or 0 for value in row], strict=True))


def sessions(gateway: GatewayProcess, table: str) -> set[str]:
    """The sessions that a table names."""
    store = sqlite3.connect(f"file:{gateway.data}/gateway.db?mode=ro", uri=True)
    found = {row[0] for row in store.execute(f"SELECT session FROM {table}")}
    store.close()
    return found


@pytest.mark.parametrize("temporality", ["delta", "cumulative"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_outcomes_equal_what_claude_code_did(
    protocol: str, temporality: str, programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    place = replace(PLACES["messages"], kind=ModelThatDelivers)
    gateway, (model,) = serve(place)
    subprocess.run(["git", "init", "-q", job.folder], check=True)
    user = Gateway(gateway.address, gateway.key)
    client = telling_client(protocol, temporality)
    began = time.monotonic()
    run = client.run(programs["claude"], Path(job.folder), user, place.model, "Do it all.", False)
    took_ms = (time.monotonic() - began) * 1000
    report = f"{run}\n{[(call.status, call.problem) for call in model.calls]}\n{gateway.log()[-3000:]}"
    assert run.code == 0, report
    assert Path(job.path).read_text() == SECOND, report
    log = subprocess.run(["git", "-C", job.folder, "log", "--oneline"], capture_output=True, text=True).stdout
    assert len(log.splitlines()) == 1, report
    until = time.monotonic() + WAIT_S
    while not stored(gateway)["pull_requests"] and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(2)  # nothing more comes
    found = stored(gateway)
    assert 0 < found.pop("active_ms") < 2 * took_ms  # the person's and the agent's time
    assert found == {
        "sessions": 1,
        "commits": 1,
        "pull_requests": 1,
        "lines_added": 3 + 2,
        "lines_removed": 1,
        "edits_accepted": 2,
        "edits_rejected": 1,
    }, report
    assert sessions(gateway, "outcome") == sessions(gateway, '"usage"') and len(sessions(gateway, "outcome")) == 1
