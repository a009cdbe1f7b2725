"""`launch`: agents are started with the gateway's address and key, and end as they would without this program."""

import json
import os
import signal
import stat
import subprocess
import sys
from pathlib import Path

import pytest
from harness.accounts import Account
from harness.client_runs import PATIENCE_S, Client
from harness.fake_agents import SYSTEM, FakeAgents, write_custom_agents
from harness.stub_service import StubService

from llmgateway_cli.agents import programs
from llmgateway_cli.agents.definitions import AGENTS

CLIENT = Path(__file__).resolve().parents[1]
WRONG = "llmgtwy_" + "w" * 40
READY = "echo ready; while :; do sleep 0.05; done"


@pytest.fixture
def user(user: Client, agents: FakeAgents) -> Client:
    """A user with an API key in the environment and only the fake agents."""
    user.environment["PATH"] = agents.path
    return user


@pytest.mark.parametrize("agent", AGENTS, ids=lambda agent: agent.id)
def test_an_agent_gets_address_and_key_but_no_secret_in_its_command_line(
    agent: object, user: Client, agents: FakeAgents, account: Account
) -> None:
    name = agent.id  # type: ignore[attr-defined]
    program = agent.program  # type: ignore[attr-defined]
    agents.install(program)
    finished = user.run("launch", "-m", "sandbox-echo", name, "--print", "two words")
    assert finished.stdout == ""
    assert agents.arguments(program)[-2:] == ["--print", "two words"]
    environment = agents.environment(program)
    assert account.key in environment.values()
    assert "sandbox-echo" in str(environment) + str(agents.arguments(program)) or name == "crush"
    for shown in (agents.command_line(program), finished.stdout, finished.stderr):
        assert account.key not in shown


@pytest.mark.parametrize("name", ["claude", "claude-code", "CLAUDE"])
def test_the_name_of_an_agent_is_a_hidden_command(name: str, user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    user.run(name, "--help", "--json")
    assert agents.arguments("claude") == ["--help", "--json"]
    assert "claude-code" not in user.run("--help").stdout


def test_exit_codes_are_passed_on(user: Client, agents: FakeAgents) -> None:
    agents.install("claude", work="exit 7")
    user.run("launch", "claude", code=7)


def test_a_leading_separator_is_not_passed_on(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    user.run("launch", "claude", "--", "-m", "x", "--")
    assert agents.arguments("claude") == ["-m", "x", "--"]


def test_the_agent_reads_the_terminal_and_gets_ctrl_c(user: Client, agents: FakeAgents) -> None:
    agents.install("claude", work=f"trap 'echo stopped; exit 42' INT; read line; echo got $line; {READY}")
    with user.terminal("launch", "claude") as terminal:
        terminal.expect("Starting Claude Code")
        terminal.type("hello")
        terminal.expect("ready")
        terminal.interrupt()
        assert "got hello" in terminal.end(42)


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGHUP])
def test_signals_reach_the_agent(sent: signal.Signals, user: Client, agents: FakeAgents) -> None:
    agents.install("claude", work=f"trap 'echo caught; exit 9' {sent.name.removeprefix('SIG')}; {READY}")
    with user.terminal("launch", "claude") as terminal:
        terminal.expect("ready")
        os.kill(terminal._process.pid, sent)
        assert "caught" in terminal.end(9)


def test_the_exit_code_of_a_killed_agent_is_that_of_the_signal(user: Client, agents: FakeAgents) -> None:
    agents.install("claude", work="kill -9 $$")
    user.run("launch", "claude", code=-signal.SIGKILL)


def run_as_child(script: str) -> int:
    """Return the exit code of a shell script that runs as a child, as on Windows; $PPID is the program above it."""
    program = (
        "import os, sys; from llmgateway_cli.agents.programs import run_child; "
        "sys.exit(run_child(['/bin/sh', '-c', sys.argv[1]], os.environ))"
    )
    environment = {"PATH": SYSTEM, "PYTHONPATH": str(CLIENT)}
    return subprocess.run([sys.executable, "-c", program, script], env=environment, timeout=PATIENCE_S).returncode


def test_the_code_of_a_child_is_its_own_or_128_and_the_signal() -> None:
    assert run_as_child("exit 5") == 5
    assert run_as_child("kill -15 $$") == 128 + signal.SIGTERM


@pytest.mark.parametrize("name", ["INT", "TERM", "HUP"])
def test_a_child_gets_signals(name: str) -> None:
    assert run_as_child(f"trap 'exit 6' {name}; kill -{name} $PPID; for i in $(seq 200); do sleep 0.05; done") == 6


def test_an_error_is_red_at_a_terminal(user: Client) -> None:
    with user.terminal("launch", "nothing") as terminal:
        assert "error: There is no agent 'nothing'" in terminal.end(1)
    assert "\x1b[31m" in terminal.output


def test_a_missing_agent_comes_with_its_installation(user: Client) -> None:
    message = user.refused("launch", "codex")
    assert "Codex CLI is not installed" in message and "npm install -g @openai/codex" in message


def test_an_agent_that_is_too_old_comes_with_its_installation(user: Client, agents: FakeAgents) -> None:
    agents.install("claude", version="2.1.128")
    message = user.refused("launch", "claude")
    assert "Claude Code 2.1.128 is too old: version 2.1.129" in message and "npm install -g" in message
    assert not agents.was_started("claude")
    agents.install("claude", version="2.1.129")
    user.run("launch", "claude")


def test_an_unreadable_version_does_not_prevent_the_start(user: Client, agents: FakeAgents) -> None:
    agents.install("claude", version="nightly")
    user.run("launch", "claude")


def test_a_version_that_does_not_come_in_time_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    program = tmp_path / "slow"
    program.write_text("#!/bin/sh\nexec sleep 60\n")
    program.chmod(0o755)
    monkeypatch.setattr(programs, "VERSION_TIMEOUT_S", 0.1)
    assert programs.read_version(str(program), {"PATH": SYSTEM}) == ""


def test_a_program_that_cannot_be_run_is_reported(user: Client, agents: FakeAgents, tmp_path: Path) -> None:
    agents.install("aider")
    (tmp_path / "programs" / "aider").write_text("#!/no/such/interpreter\n")
    assert "cannot be started" in user.refused("launch", "-m", "sandbox-echo", "aider")


def test_a_model_that_the_service_lacks_is_refused_with_suggestions(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    message = user.refused("launch", "-m", "sandbox-ecko", "claude")
    assert "has no model 'sandbox-ecko'" in message and "sandbox-echo" in message
    assert not agents.was_started("claude")


@pytest.mark.parametrize("status", [400, 404, 405])
def test_a_service_may_lack_a_model_with_any_of_these(status: int, user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    models = (200, {"data": [{"id": "auto"}]})
    with StubService({"GET /v1/models": models, "GET /v1/models/a": (status, {"message": "No."})}) as service:
        message = user.refused("launch", "-m", "a", "claude", LLMGATEWAY_API_URL=service.address)
    assert "has no model 'a'" in message


@pytest.mark.parametrize("model", ["auto", "sandbox", "sandbox/sandbox-echo", "sandbox/sandbox-echo:eu"])
def test_ids_aliases_and_pinned_models_are_accepted(model: str, user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    user.run("launch", "-m", model, "claude")
    assert agents.environment("claude")["ANTHROPIC_MODEL"] == model


def test_a_model_without_a_provider_at_present_is_a_warning(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    assert "no provider of the service can serve gpt-5.4" in user.run("launch", "-m", "gpt-5.4", "claude").stderr
    agents.install("opencode")
    user.run("launch", "-m", "gpt-5.4", "opencode")
    provider = json.loads(agents.environment("opencode")["OPENCODE_CONFIG_CONTENT"])["provider"]["llmgateway"]
    assert provider["models"]["gpt-5.4"]["limit"]["context"] == 1050000


def test_without_a_model_the_default_one_or_auto_is_used(user: Client, agents: FakeAgents) -> None:
    agents.install("aider")
    assert "The model is auto" in user.run("launch", "aider").stderr
    assert agents.arguments("aider") == ["--model", "openai/auto"]


@pytest.mark.parametrize(
    ("agent", "option"),
    [
        ("codex", ("-m", "sandbox-echo")),
        ("codex", ("--model", "sandbox-echo")),
        ("codex", ("--model=sandbox-echo",)),
        ("aider", ("--model", "openai/sandbox-echo")),
    ],
)
def test_no_other_model_is_announced_when_the_arguments_of_the_agent_name_one(
    agent: str, option: tuple[str, ...], user: Client, agents: FakeAgents
) -> None:
    agents.install(agent)
    assert "The model is" not in user.run("launch", agent, *option).stderr
    assert agents.arguments(agent)[-len(option) :] == list(option)


def test_the_message_of_aider_is_no_model(user: Client, agents: FakeAgents) -> None:
    agents.install("aider")
    assert "The model is auto" in user.run("launch", "aider", "-m", "Fix the tests").stderr


def test_the_agents_own_key_is_not_sent_to_the_gateway(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    user.run("launch", "claude", ANTHROPIC_API_KEY="sk-ant-own")
    assert "sk-ant-own" not in agents.environment("claude").values()


def test_settings_of_the_users_environment_stay(user: Client, agents: FakeAgents) -> None:
    agents.install("opencode")
    own = {"theme": "dark", "provider": {"other": {"npm": "x"}}}
    user.run("launch", "-m", "sandbox-echo", "opencode", OPENCODE_CONFIG_CONTENT=json.dumps(own), EDITOR="vi")
    assert agents.environment("opencode")["EDITOR"] == "vi"
    content = json.loads(agents.environment("opencode")["OPENCODE_CONFIG_CONTENT"])
    assert content["theme"] == "dark" and set(content["provider"]) == {"other", "llmgateway"}
    message = user.refused("launch", "-m", "sandbox-echo", "opencode", OPENCODE_CONFIG_CONTENT="[")
    assert "OPENCODE_CONFIG_CONTENT is no JSON object" in message


def test_a_subcommand_of_opencode_comes_first(user: Client, agents: FakeAgents) -> None:
    agents.install("opencode")
    user.run("launch", "-m", "sandbox-echo", "opencode", "run", "hello")
    assert agents.arguments("opencode") == ["run", "hello"]


# Keys


def test_the_option_beats_the_environment_beats_the_file(user: Client, agents: FakeAgents, account: Account) -> None:
    agents.install("claude")
    user.configure(apiKey="llmgtwy_of_the_file")
    user.run("launch", "-k", "llmgtwy_of_the_option", "claude")
    assert agents.environment("claude")["ANTHROPIC_AUTH_TOKEN"] == "llmgtwy_of_the_option"
    user.run("launch", "claude")
    assert agents.environment("claude")["ANTHROPIC_AUTH_TOKEN"] == account.key
    user.run("launch", "claude", LLMGATEWAY_API_KEY="")
    assert agents.environment("claude")["ANTHROPIC_AUTH_TOKEN"] == "llmgtwy_of_the_file"


def test_without_a_key_and_a_terminal_the_start_is_refused(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    message = user.refused("launch", "claude", LLMGATEWAY_API_KEY="")
    assert "There is no API key" in message and "LLMGATEWAY_API_KEY" in message


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_a_missing_key_is_read_at_the_terminal_and_stored(
    columns: int, plain: bool, user: Client, agents: FakeAgents, account: Account
) -> None:
    agents.install("claude")
    environment = {"LLMGATEWAY_API_KEY": ""} | ({"NO_COLOR": "1"} if plain else {})
    with user.terminal("launch", "claude", columns=columns, **environment) as terminal:
        terminal.answer("API key:", account.key)
        assert account.key not in terminal.end()
    assert ("\x1b[" in terminal.output) is not plain
    assert agents.environment("claude")["ANTHROPIC_AUTH_TOKEN"] == account.key
    assert user.config["apiKey"] == account.key
    assert stat.S_IMODE((user.folder / "config.json").stat().st_mode) == 0o600


def test_an_empty_answer_starts_nothing(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    with user.terminal("launch", "claude", LLMGATEWAY_API_KEY="") as terminal:
        terminal.answer("API key:", "")
        assert "No API key was typed" in terminal.end(1)
    assert not agents.was_started("claude") and "apiKey" not in user.config


def test_a_key_is_checked_before_the_start(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    # The gateway has no credential for the model of the check, but it knows the key.
    assert "LLMGATEWAY_API_KEY was not refused" in user.run("launch", "--check-key", "claude").stderr
    message = user.refused("launch", "--check-key", "-k", WRONG, "claude")
    assert "refused the API key from --key" in message and "Request id:" in message
    assert WRONG not in message


@pytest.mark.parametrize(
    ("status", "notice"),
    [(200, "is valid."), (402, "is valid, but the service reports: No."), (403, "reports: No."), (500, "got 500")],
)
def test_only_an_invalid_key_prevents_the_start(status: int, notice: str, user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    answer = (status, {"error": {"message": "No."}})
    with StubService({"POST /v1/chat/completions": answer}) as service:
        assert notice in user.run("launch", "--check-key", "claude", LLMGATEWAY_API_URL=service.address).stderr
    assert agents.was_started("claude")
    _, headers, body = service.requests[0]
    assert headers["x-source"] == "llmgateway-cli" and body["model"] == "gpt-5.4-nano" and body["max_tokens"] == 1
    (message,) = body["messages"]
    assert message["role"] == "user" and message["content"]


def test_a_check_that_cannot_reach_the_service_is_a_warning(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    finished = user.run("launch", "--check-key", "claude", LLMGATEWAY_API_URL="http://127.0.0.1:9")
    assert "could not be checked" in finished.stderr and agents.was_started("claude")


def test_a_wrong_key_is_found_when_the_model_is_checked(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    assert "LLMGATEWAY_API_KEY" in user.refused("launch", "-m", "auto", "claude", LLMGATEWAY_API_KEY=WRONG)


# The list, and the choice at the terminal


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_the_list_fits_the_terminal(columns: int, plain: bool, user: Client, agents: FakeAgents) -> None:
    agents.install("codex")
    write_custom_agents(user.folder, {"id": "mine", "label": "My agent", "command": "my-agent"})
    environment = {"NO_COLOR": "1"} if plain else {}
    with user.terminal("launch", "--list", columns=columns, **environment) as terminal:
        text = terminal.end()
    assert all(len(line) <= columns for line in text.splitlines() if not line.startswith("info: "))
    assert ("\x1b[" in terminal.output) is not plain
    for name in ("claude", "gemini", "mine", "Codex CLI"):
        assert name in text


def test_the_list_as_a_document(user: Client, agents: FakeAgents) -> None:
    agents.install("codex")
    listed = user.document("launch", "--list")
    assert [agent["id"] for agent in listed] == [agent.id for agent in AGENTS]
    assert {agent["id"] for agent in listed if agent["installed"]} == {"codex"}
    assert set(listed[0]) == {"id", "label", "command", "installed", "description"}


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_an_agent_is_chosen_at_the_terminal(columns: int, plain: bool, user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    environment = {"NO_COLOR": "1"} if plain else {}
    with user.terminal("launch", columns=columns, **environment) as terminal:
        terminal.answer("Codex CLI (not installed)", "first")
        terminal.answer("Type a number", "1")
        terminal.end()
    assert agents.was_started("claude")
    assert ("\x1b[" in terminal.output) is not plain


def test_ctrl_c_at_the_choice_is_130(user: Client) -> None:
    with user.terminal("launch") as terminal:
        terminal.expect("Codex CLI")
        terminal.wait_for_silence()
        terminal.interrupt()
        terminal.end(130)


def test_without_a_terminal_the_agent_must_be_named(user: Client) -> None:
    assert "launch --list" in user.refused("launch")


def test_an_unknown_agent_is_refused_with_the_known_ones(user: Client) -> None:
    message = user.refused("launch", "clod")
    assert "There is no agent 'clod'" in message and "claude, codex" in message


def test_a_path_without_programs_has_no_agents(user: Client) -> None:
    listed = user.document("launch", "--list", PATH=SYSTEM)
    assert not any(agent["installed"] for agent in listed)
