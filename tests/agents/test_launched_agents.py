"""Agents that the command-line client starts: they finish a task with nothing but its `launch` and `configure`."""

import json
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from agents.clients import ACCEPT_EDITS, PACKAGES, UNCONFINED
from agents.launching import SCRIPTS, User
from agents.upstreams import DONE, PLACES, Job, Model
from support import npm
from support.gateways import GatewayProcess

Serve = Callable[..., tuple[GatewayProcess, list[Model]]]
PROMPT = "Write the file greeting.txt."
ARGUMENTS = {
    "claude": ["--print", *ACCEPT_EDITS, PROMPT],
    "codex": ["exec", *UNCONFINED, PROMPT],
    "opencode": ["run", "--auto", PROMPT],
    "qwen": ["--approval-mode", "yolo", "--prompt", PROMPT],
    "kimi": ["--prompt", PROMPT],
    "gemini": ["--skip-trust", "--approval-mode", "yolo", "--prompt", PROMPT],
}


def check_work(run: subprocess.CompletedProcess[str], job: Job, gateway: GatewayProcess, model: Model) -> None:
    report = "\n".join([run.stdout[-2000:], run.stderr[-3000:], gateway.log()[-2000:]])
    assert run.returncode == 0, report
    assert Path(job.path).read_text().strip() == job.text, report
    assert DONE in run.stdout, report
    assert len(model.calls) >= 2 and {call.status for call in model.calls} == {200}, report
    assert gateway.key not in run.stdout + run.stderr


@pytest.mark.parametrize("place", ["chat", "messages"])
@pytest.mark.parametrize("agent", PACKAGES)
def test_a_launched_agent_finishes_a_task(
    agent: str, place: str, programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    gateway, (model,) = serve(PLACES[place])
    user = User(job, gateway, programs.values())
    run = user.client("launch", "--check-key", "-m", PLACES[place].model, agent, *ARGUMENTS[agent])
    check_work(run, job, gateway, model)


@pytest.mark.parametrize("agent", SCRIPTS)
def test_a_launched_script_works_with_the_models_of_the_gateway(
    agent: str, cache: Path, job: Job, serve: Serve
) -> None:
    modules = npm.install(cache / "scripts", dict(SCRIPTS.values()))
    gateway, (model,) = serve(PLACES["chat"])
    user = User(job, gateway, [npm.node(cache), modules / ".bin" / agent])
    run = user.client("launch", "-m", PLACES["chat"].model, agent, *ARGUMENTS[agent])
    assert run.returncode == 0 and DONE in run.stdout, run
    assert model.calls and {call.status for call in model.calls} == {200}


@pytest.mark.parametrize("agent", ["claude", "opencode"])
def test_a_configured_agent_finishes_a_task_without_the_client(
    agent: str, programs: dict[str, Path], job: Job, serve: Serve
) -> None:
    gateway, (model,) = serve(PLACES["messages"])
    user = User(job, gateway, programs.values())
    configured = user.client("configure", agent, "--json")
    assert configured.returncode == 0, configured.stderr
    assert gateway.key not in configured.stdout + configured.stderr
    named = PLACES["messages"].model
    if agent == "claude":
        del user.environment["LLMGATEWAY_API_KEY"]
        arguments = ["--model", named, *ARGUMENTS[agent]]
        settings = user.home / ".claude" / "settings.json"
        # Small tasks use the same model.
        content = json.loads(settings.read_text())
        content["env"]["ANTHROPIC_DEFAULT_HAIKU_MODEL"] = named
        settings.write_text(json.dumps(content))
    else:
        arguments = ["run", "--auto", "--model", f"llmgateway/{named}", PROMPT]
        settings = user.home / ".config" / "opencode" / "opencode.json"
        content = json.loads(settings.read_text())
        content["small_model"] = f"llmgateway/{named}"
        settings.write_text(json.dumps(content))
    check_work(user.run(str(programs[agent]), *arguments), job, gateway, model)
