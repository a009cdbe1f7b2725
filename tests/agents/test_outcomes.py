"""The telemetry of real coding agents, through their own OTLP exporters: the stored outcomes equal what they did."""

import io
import json
import os
import re
import sqlite3
import subprocess
import time
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from agents.clients import CLIENTS, UNCONFINED, Client, Gateway, configure_codex
from agents.launching import SCRIPTS, User
from agents.upstreams import PLACES, Job, Model, ModelAtAnthropic, ModelAtGoogle, ModelAtResponses
from fakes import anthropic, google, responses
from support import npm
from support.gateways import GatewayProcess

from gateway.metering.outcomes.names import OUTCOMES

Serve = Callable[..., tuple[GatewayProcess, list[Model]]]
DOCUMENT = Path(__file__).resolve().parents[2] / "docs" / "outcomes.md"
WAIT_S = 30
FIRST = "one\ntwo\nthree"
SECOND = "one\n2\n2.5\nthree"
GH = "#!/bin/sh\necho https://github.com/acme/house/pull/7\n"
COMMIT = "git add -A && git -c user.name=A -c user.email=a@example.com commit -q -m first"
REMOTE = "https://github.com/acme/house.git"
REPOSITORY = "acme/house"
CODEX_MODEL = "gpt-5.5"  # one of Codex' own list, which gets the tool for patches
GEMINI_SESSION = "0d2f3c1e-3f0b-4f4e-9d2c-1f4c2d9e8a77"
WORK = {"sessions": 1, "lines_added": 3 + 2, "lines_removed": 1, "edits_accepted": 2}


class ModelThatDelivers(ModelAtAnthropic):
    """Writes a file, edits it, tries an edit that fits nowhere and one that it must not make, commits, and opens a pull
    request."""

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
            ("Edit", {"file_path": job.path, "old_string": "nowhere\n", "new_string": "2\n"}),
            ("Write", {"file_path": f"{job.folder}/secret.txt", "content": "no\n"}),
            ("Bash", {"command": COMMIT, "description": "commit"}),
            ("Bash", {"command": "gh pr create --title t --body b", "description": "open a pull request"}),
        ]


class GeminiThatDelivers(ModelAtGoogle):
    """Writes a file, edits it, tries an edit that fits nowhere, and commits. Its service takes `$schema`, which Gemini
    CLI sends with one of its own tools."""

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        body = json.loads(environ["wsgi.input"].read())
        for tool in body.get("tools") or ():
            for declared in tool.get("functionDeclarations", ()):
                declared.get("parametersJsonSchema", {}).pop("$schema", None)
        return super().serve(environ | {"wsgi.input": io.BytesIO(json.dumps(body).encode())}, start)

    def _work(self, body: dict[str, Any]) -> google.Answer:
        declared = [tool["name"] for group in body.get("tools") or () for tool in group.get("functionDeclarations", ())]
        done = sum("functionResponse" in part for turn in body["contents"] for part in turn.get("parts", ()))
        steps = self._steps()
        if "write_file" not in declared or done >= len(steps):
            return google.Answer("All is done.", prompt=1000)
        return google.Answer("", tools=(steps[done],), prompt=1000)

    def _steps(self) -> list[tuple[str, dict[str, Any]]]:
        edit = {"file_path": self._job.path, "instruction": "Change it."}
        return [
            ("write_file", {"file_path": self._job.path, "content": FIRST}),
            ("replace", {**edit, "old_string": "two\n", "new_string": "2\n2.5\n"}),
            ("replace", {**edit, "old_string": "nowhere\n", "new_string": "2\n"}),
            ("run_shell_command", {"command": COMMIT, "description": "commit"}),
        ]


class CodexThatDelivers(ModelAtResponses):
    """Adds a file by a patch, changes it, tries a patch that fits nowhere, and commits."""

    def _work(self, body: dict[str, Any]) -> responses.Answer:
        items = body["input"] if isinstance(body["input"], list) else []
        done = sum(item.get("type", "").endswith("_output") for item in items)
        patches = [
            f"*** Add File: {self._job.name}\n+one\n+two\n+three\n",
            f"*** Update File: {self._job.name}\n@@\n one\n-two\n+2\n+2.5\n three\n",
            f"*** Update File: {self._job.name}\n@@\n-nowhere\n+2\n",
        ]
        if done < len(patches):
            patch = f"*** Begin Patch\n{patches[done]}*** End Patch\n"
            return responses.Answer(responses.custom_call("apply_patch", patch))
        if done == len(patches):
            return responses.Answer(responses.call("exec_command", json.dumps({"cmd": COMMIT})))
        return responses.Answer(responses.said("All is done."))


def telling_claude(protocol: str, temporality: str) -> Client:
    """Claude Code that exports to the gateway, as docs/outcomes.md says."""
    plain = CLIENTS["claude"]

    def configure(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
        folder = home / "bin"
        folder.mkdir(exist_ok=True)
        (folder / "gh").write_text(GH)
        (folder / "gh").chmod(0o755)
        settings = home / ".claude"
        settings.mkdir(exist_ok=True)
        (settings / "settings.json").write_text(json.dumps({"permissions": {"ask": ["Edit(secret.txt)"]}}))
        return {
            **plain.configure(home, gateway, model),
            "PATH": f"{folder}:{os.environ['PATH']}",
            **documented("Claude Code", gateway),
            "OTEL_EXPORTER_OTLP_PROTOCOL": protocol,
            "OTEL_EXPORTER_OTLP_METRICS_TEMPORALITY_PREFERENCE": temporality,
            "OTEL_METRIC_EXPORT_INTERVAL": "700",
        }

    def begin(prompt: str, model: str) -> list[str]:
        return ["--print", "--permission-mode", "acceptEdits", "--allowedTools", "Bash", "--", prompt]

    return replace(plain, configure=configure, begin=begin)


def telling_gemini(node: Path) -> Client:
    """Gemini CLI that exports to the gateway, as docs/outcomes.md says."""

    def configure(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
        folder = home / ".gemini"
        folder.mkdir(exist_ok=True)
        (folder / "settings.json").write_text('{"security": {"auth": {"selectedType": "gemini-api-key"}}}')
        return {
            "PATH": f"{node.parent}:{os.environ['PATH']}",
            "GEMINI_API_KEY": gateway.key,
            "GOOGLE_GEMINI_BASE_URL": gateway.address,
            "GOOGLE_GENAI_USE_GCA": "false",
            "GOOGLE_GENAI_USE_VERTEXAI": "false",
            **documented("Gemini CLI", gateway),
            "GEMINI_CLI_CUSTOM_HEADERS": f"X-Session-Id: {GEMINI_SESSION}",
            "OTEL_RESOURCE_ATTRIBUTES": "vcs.owner.name=acme,vcs.repository.name=house",
        }

    def begin(prompt: str, model: str) -> list[str]:
        named = ["--session-id", GEMINI_SESSION]
        return ["--skip-trust", "--approval-mode", "yolo", *named, "--model", model, "--prompt", prompt]

    return Client(configure, begin, begin)


def telling_codex(protocol: str) -> Client:
    """Codex that exports to the gateway, as docs/outcomes.md says."""

    def configure(home: Path, gateway: Gateway, model: str) -> dict[str, str]:
        environment = configure_codex(home, gateway, model)
        added = block("Codex", "toml", gateway).replace('"binary"', f'"{protocol}"')
        assert tomllib.loads(added)["otel"]["exporter"]["otlp-http"]["protocol"] == protocol
        with (home / ".codex" / "config.toml").open("a") as file:
            file.write(added)
        attributes = {"OTEL_RESOURCE_ATTRIBUTES": "vcs.owner.name=acme,vcs.repository.name=house"}
        return environment | documented("Codex", gateway) | attributes

    return replace(CLIENTS["codex"], configure=configure)


def block(heading: str, language: str, gateway: Gateway) -> str:
    """A block of a section of docs/outcomes.md, with the address and the key of a gateway."""
    section = DOCUMENT.read_text().partition(f"### {heading}\n")[2].partition("\n#")[0]
    text = section.partition(f"```{language}\n")[2].partition("```")[0]
    return text.replace("http://127.0.0.1:4001", gateway.address).replace("llmgtwy_…", gateway.key)


def documented(heading: str, gateway: Gateway) -> dict[str, str]:
    """The variables of a section of docs/outcomes.md."""
    return dict(re.findall(r'^export (\w+)="?([^"\n]*)"?$', block(heading, "sh", gateway), re.MULTILINE))


def stored(gateway: GatewayProcess) -> dict[str, int]:
    """The sums of all outcomes that are not 0."""
    sums = ", ".join(f"SUM({name})" for name in OUTCOMES)
    (row,) = read(gateway, f"SELECT {sums} FROM outcome")
    return {name: value for name, value in zip(OUTCOMES, row, strict=True) if value}


def read(gateway: GatewayProcess, sql: str) -> list[tuple[Any, ...]]:
    store = sqlite3.connect(f"file:{gateway.data}/gateway.db?mode=ro", uri=True)
    rows = store.execute(sql).fetchall()
    store.close()
    return rows


def wait_until_told(gateway: GatewayProcess, outcome: str) -> dict[str, int]:
    """The stored outcomes, once there is one of the last kind and nothing more comes."""
    until = time.monotonic() + WAIT_S
    while outcome not in stored(gateway) and time.monotonic() < until:
        time.sleep(0.2)
    time.sleep(2)
    return stored(gateway)


def check_place(gateway: GatewayProcess) -> None:
    """The outcomes name the session of the model requests, and the repository."""
    sessions = {row[0] for row in read(gateway, "SELECT session FROM outcome")}
    assert sessions == {row[0] for row in read(gateway, 'SELECT session FROM "usage"')} and len(sessions) == 1
    assert {row[0] for row in read(gateway, "SELECT repository FROM outcome")} == {REPOSITORY}


def check_work(job: Job, report: str) -> None:
    """The file has both edits, and is committed."""
    assert Path(job.path).read_text().strip() == SECOND, report
    log = subprocess.run(["git", "-C", job.folder, "log", "--oneline"], capture_output=True, text=True).stdout
    assert len(log.splitlines()) == 1, report


@pytest.fixture
def repository(job: Job) -> str:
    """The folder of the job as a repository with a remote."""
    subprocess.run(["git", "init", "-q", job.folder], check=True)
    subprocess.run(["git", "-C", job.folder, "remote", "add", "origin", REMOTE], check=True)
    return job.folder


@pytest.mark.parametrize("temporality", ["delta", "cumulative"])
@pytest.mark.parametrize("protocol", ["http/protobuf", "http/json"])
def test_outcomes_equal_what_claude_code_did(
    protocol: str, temporality: str, programs: dict[str, Path], job: Job, repository: str, serve: Serve
) -> None:
    place = replace(PLACES["messages"], kind=ModelThatDelivers)
    gateway, (model,) = serve(place)
    user = Gateway(gateway.address, gateway.key)
    client = telling_claude(protocol, temporality)
    began = time.monotonic()
    run = client.run(programs["claude"], Path(job.folder), user, place.model, "Do it all.", False)
    took_ms = (time.monotonic() - began) * 1000
    report = f"{run}\n{[(call.status, call.problem) for call in model.calls]}\n{gateway.log()[-3000:]}"
    assert run.code == 0, report
    check_work(job, report)
    found = wait_until_told(gateway, "pull_requests")
    assert 0 < found.pop("active_ms") < 2 * took_ms  # the person's and the agent's time
    assert found == {**WORK, "commits": 1, "pull_requests": 1, "edits_rejected": 1}, report
    check_place(gateway)


def test_outcomes_equal_what_gemini_cli_did(cache: Path, job: Job, repository: str, serve: Serve) -> None:
    modules = npm.install(cache / "scripts", dict(SCRIPTS.values()))
    place = replace(PLACES["generate"], kind=GeminiThatDelivers)
    gateway, (model,) = serve(place)
    user = Gateway(gateway.address, gateway.key)
    client = telling_gemini(npm.node(cache))
    run = client.run(modules / ".bin" / "gemini", Path(job.folder), user, place.model, "Do it all.", False)
    report = f"{run}\n{[(call.status, call.problem) for call in model.calls]}\n{gateway.log()[-3000:]}"
    assert run.code == 0, report
    check_work(job, report)
    assert wait_until_told(gateway, "edits_accepted") == WORK, report
    check_place(gateway)


@pytest.mark.parametrize("protocol", ["binary", "json"])
def test_outcomes_equal_what_codex_did(
    protocol: str, programs: dict[str, Path], job: Job, repository: str, serve: Serve
) -> None:
    place = replace(PLACES["responses"], kind=CodexThatDelivers, model=CODEX_MODEL)
    gateway, (model,) = serve(place)
    user = Gateway(gateway.address, gateway.key)
    run = telling_codex(protocol).run(programs["codex"], Path(job.folder), user, place.model, "Do it all.", False)
    report = f"{run}\n{[(call.status, call.problem) for call in model.calls]}\n{gateway.log()[-3000:]}"
    assert run.code == 0, report
    check_work(job, report)
    assert wait_until_told(gateway, "edits_accepted") == {"sessions": 1, "edits_accepted": 2}, report
    check_place(gateway)


# Agent → where its model is, what plays it, the arguments, and the edits that it may make.
LAUNCHED = {
    "claude": (PLACES["messages"], ModelThatDelivers, ["--print", "--allowedTools", "Bash,Edit,Write", "--"], 3),
    "codex": (replace(PLACES["responses"], model=CODEX_MODEL), CodexThatDelivers, ["exec", *UNCONFINED], 2),
    "gemini": (PLACES["generate"], GeminiThatDelivers, ["--skip-trust", "--approval-mode", "yolo", "--prompt"], 2),
}


@pytest.mark.parametrize("agent", LAUNCHED)
def test_agents_that_are_launched_with_telemetry_report(
    agent: str, programs: dict[str, Path], cache: Path, job: Job, repository: str, serve: Serve
) -> None:
    """`launch --telemetry` alone is enough."""
    modules = npm.install(cache / "scripts", dict(SCRIPTS.values()))
    place, kind, arguments, edits = LAUNCHED[agent]
    gateway, _ = serve(replace(place, kind=kind))
    user = User(job, gateway, [*programs.values(), npm.node(cache), modules / ".bin" / agent])
    run = user.client("launch", "--telemetry", "-m", place.model, agent, *arguments, "Do it all.")
    assert run.returncode == 0, run
    assert gateway.key not in run.stdout + run.stderr
    found = wait_until_told(gateway, "edits_accepted")
    assert (found["sessions"], found["edits_accepted"]) == (1, edits), f"{found}\n{run}"
