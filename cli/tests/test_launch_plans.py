"""`launch --dry-run` and the environment of every agent, against golden files.

WRITE_GOLDENS=1 writes the files anew; read the difference before you commit it.
"""

import json
import os
from pathlib import Path

import pytest
from harness.client_runs import Client
from harness.fake_agents import write_custom_agents

from llmgateway_cli.agents.definitions import AGENTS, Agent, LaunchPlan

GOLDENS = Path(__file__).with_name("goldens") / "launch"
KEY = "llmgtwy_golden-secret"
# A path before /v1, as behind a proxy; nothing answers there.
ADDRESS = "http://127.0.0.1:9/llm"
ENTRY = {"id": "vendor/some-model", "name": "Some Model", "context_length": 200_000, "max_output": 32_000}
CUSTOM = {
    "id": "mine",
    "label": "My agent",
    "command": "my-agent",
    "args": ["--at", "${gatewayUrl}/v1", "--with", "${model}"],
    "env": {"MY_KEY": "${apiKey}", "MY_MODEL": "${model}"},
    "defaultModel": "some-default",
}


@pytest.fixture
def offline(tmp_path: Path) -> Client:
    client = Client(tmp_path / "home", {"LLMGATEWAY_GATEWAY_URL": ADDRESS, "LLMGATEWAY_API_KEY": KEY})
    write_custom_agents(client.folder, CUSTOM)
    return client


def check(name: str, actual: object) -> None:
    """Compare with the golden file, or write it."""
    path = GOLDENS / name
    text = json.dumps(actual, indent=2) + "\n"
    if os.environ.get("WRITE_GOLDENS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    assert text == path.read_text()


@pytest.mark.parametrize("name", [*(agent.id for agent in AGENTS), "mine"])
def test_a_dry_run_is_the_golden_one(name: str, offline: Client) -> None:
    chosen = ("-m", "vendor/some-model", name, "--continue", "-p", f"say {KEY}")
    runs = {
        "default": offline.run("launch", "--dry-run", "--json", name).document,
        "with model and arguments": offline.run("launch", "--dry-run", "--json", *chosen).document,
        "as text": offline.run("launch", "--dry-run", *chosen).stdout.splitlines(),
    }
    text = json.dumps(runs).replace(str(offline.home), "HOME")
    assert KEY not in text
    check(f"{name}.json", json.loads(text))


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.id)
def test_the_environment_of_an_agent_is_the_golden_one(agent: Agent) -> None:
    plans = {
        "default": LaunchPlan(ADDRESS, KEY, agent.default_model if agent.needs_model else ""),
        "with model": LaunchPlan(ADDRESS, KEY, "vendor/some-model", ENTRY),
    }
    check(f"{agent.id}.environment.json", {name: agent.environment(plan) for name, plan in plans.items()})
    for plan in plans.values():
        assert not any(KEY in argument for argument in agent.arguments(plan))


def test_every_golden_file_is_of_an_agent_of_today() -> None:
    assert {path.name.partition(".")[0] for path in GOLDENS.iterdir()} == {"mine", *(agent.id for agent in AGENTS)}


def test_a_dry_run_needs_no_key(offline: Client) -> None:
    del offline.environment["LLMGATEWAY_API_KEY"]
    assert "claude" in offline.run("launch", "--dry-run", "claude").stdout


def test_a_dry_run_shows_address_model_and_variables_without_the_program(offline: Client) -> None:
    lines = offline.run("launch", "--dry-run", "claude").stdout.splitlines()
    shown = [line.split() for line in lines]
    assert ["address:", ADDRESS] in shown and [f"ANTHROPIC_BASE_URL={ADDRESS}"] in [words[1:] for words in shown]
    assert "choice of Claude Code" in "\n".join(lines)
    finished = offline.run("launch", "--dry-run", "codex", PATH=str(offline.home))
    assert "gpt-5.4, or auto" in finished.stdout and "not installed" in finished.stderr


@pytest.mark.parametrize("command", [("launch", "codex"), ("codex",)], ids=" ".join)
def test_a_dry_run_can_be_asked_for_behind_the_name_of_the_agent(command: tuple[str, ...], offline: Client) -> None:
    shown = offline.run(*command, "--dry-run", "exec", "say hi").stdout
    assert shown == offline.run("launch", "--dry-run", "codex", "exec", "say hi").stdout
    assert "--dry-run" not in shown


def test_an_own_option_of_an_agent_goes_to_the_agent(offline: Client) -> None:
    assert "aider is not installed" in offline.refused("launch", "aider", "--dry-run", PATH=str(offline.home))


def test_a_dry_run_uses_the_address_of_the_option(offline: Client) -> None:
    other = ("--gateway-url", "https://llm.example", "--dry-run", "--json", "codex")
    assert offline.run("launch", *other).document["gatewayUrl"] == "https://llm.example"
    message = offline.refused("launch", "--gateway-url", "http://llm.example", "--dry-run", "codex")
    assert "is not encrypted (--gateway-url)" in message


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_a_dry_run_at_a_terminal_shows_the_same(columns: int, plain: bool, offline: Client) -> None:
    environment = {"NO_COLOR": "1"} if plain else {}
    with offline.terminal("launch", "--dry-run", "aider", columns=columns, **environment) as terminal:
        text = " ".join(terminal.end().split())
    assert "aider --model openai/gpt-5.4" in text and "OPENAI_API_BASE" in text
