"""`launch`: agents are started with the gateway's address and key, and end as they would without this program."""

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from harness.accounts import Account
from harness.client_runs import PATIENCE_S, Client
from harness.fake_agents import SYSTEM, FakeAgents, write_custom_agents
from harness.stub_service import StubService

from llmgateway_cli.agents.definitions import AGENTS

CLIENT = Path(__file__).resolve().parents[1]
WRONG = "llmgtwy_" + "w" * 40
READY = "echo ready; while :; do sleep 0.05; done"
CUSTOM = {
    "id": "mine",
    "label": "My agent",
    "command": "my-agent",
    "args": ["--with", "${model}"],
    "env": {"MY_KEY": "${apiKey}", "MY_URL": "${gatewayUrl}"},
    "defaultModel": "sandbox-echo",
}


@pytest.fixture
def agents(tmp_path: Path) -> FakeAgents:
    return FakeAgents(tmp_path / "programs")


@pytest.fixture
def user(account: Account, signed_out: Client, agents: FakeAgents) -> Client:
    """A user with an API key in the environment and only the fake agents."""
    signed_out.environment |= {"PATH": agents.path, "LLMGATEWAY_API_KEY": account.key}
    return signed_out


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


@pytest.mark.parametrize("alias", ["claude", "claude-code", "CLAUDE"])
def test_the_name_of_an_agent_is_a_hidden_command(alias: str, user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    user.run(alias, "--help", "--json")
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


def test_a_program_that_cannot_be_run_is_reported(user: Client, agents: FakeAgents, tmp_path: Path) -> None:
    agents.install("aider")
    (tmp_path / "programs" / "aider").write_text("#!/no/such/interpreter\n")
    assert "cannot be started" in user.refused("launch", "-m", "sandbox-echo", "aider")


def test_a_model_that_the_service_lacks_is_refused_with_suggestions(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    message = user.refused("launch", "-m", "sandbox-ecko", "claude")
    assert "has no model 'sandbox-ecko'" in message and "sandbox-echo" in message
    assert not agents.was_started("claude")


@pytest.mark.parametrize("model", ["auto", "sandbox", "sandbox/sandbox-echo", "sandbox/sandbox-echo:eu"])
def test_ids_aliases_and_pinned_models_are_accepted(model: str, user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    user.run("launch", "-m", model, "claude")
    assert agents.environment("claude")["ANTHROPIC_MODEL"] == model


def test_a_model_without_a_provider_at_present_is_a_warning(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    assert "no provider of the service can serve gpt-5.4" in user.run("launch", "-m", "gpt-5.4", "claude").stderr


def test_without_a_model_the_default_one_or_auto_is_used(user: Client, agents: FakeAgents) -> None:
    agents.install("aider")
    assert "The model is auto" in user.run("launch", "aider").stderr
    assert agents.arguments("aider") == ["--model", "openai/auto"]


@pytest.mark.parametrize("option", [("-m", "sandbox-echo"), ("--model", "sandbox-echo"), ("--model=sandbox-echo",)])
def test_no_other_model_is_announced_when_the_arguments_of_the_agent_name_one(
    option: tuple[str, ...], user: Client, agents: FakeAgents
) -> None:
    agents.install("codex")
    assert "The model is" not in user.run("launch", "codex", *option).stderr
    assert agents.arguments("codex")[-len(option) :] == list(option)


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
    user.run("launch", "-m", "sandbox-echo", "opencode", OPENCODE_CONFIG_CONTENT=json.dumps(own))
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


def test_a_check_that_cannot_reach_the_service_is_a_warning(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    finished = user.run("launch", "--check-key", "claude", LLMGATEWAY_API_URL="http://127.0.0.1:9")
    assert "could not be checked" in finished.stderr and agents.was_started("claude")


def test_a_wrong_key_is_found_when_the_model_is_checked(user: Client, agents: FakeAgents) -> None:
    agents.install("claude")
    assert "LLMGATEWAY_API_KEY" in user.refused("launch", "-m", "auto", "claude", LLMGATEWAY_API_KEY=WRONG)


# The user's own agents


def test_an_own_agent_is_started(user: Client, agents: FakeAgents, account: Account) -> None:
    agents.install("my-agent")
    write_custom_agents(user.folder, CUSTOM)
    user.run("mine", "--fast", "on")
    assert agents.arguments("my-agent") == ["--with", "sandbox-echo", "--fast", "on"]
    environment = agents.environment("my-agent")
    assert (environment["MY_KEY"], environment["MY_URL"]) == (account.key, account.address)
    assert environment["LLMGATEWAY_API_KEY"] == account.key
    user.run("launch", "-m", "sandbox-tools", "mine")
    assert agents.arguments("my-agent") == ["--with", "sandbox-tools"]
    user.run("launch", "mine", "--list")
    assert agents.arguments("my-agent") == ["--with", "sandbox-echo", "--list"]


def test_an_own_agent_without_a_model_ignores_the_option(user: Client, agents: FakeAgents) -> None:
    agents.install("my-agent")
    write_custom_agents(user.folder, {"id": "mine", "label": "My agent", "description": "Mine.", "command": "my-agent"})
    assert user.document("launch", "--list")[-1]["description"] == "Mine."
    assert "-m has no effect" in user.run("launch", "-m", "any", "mine").stderr
    assert agents.arguments("my-agent") == []


def test_an_own_agent_that_needs_a_model_says_so(user: Client, agents: FakeAgents) -> None:
    agents.install("my-agent")
    write_custom_agents(user.folder, {name: value for name, value in CUSTOM.items() if name != "defaultModel"})
    assert "My agent needs a model" in user.refused("launch", "mine")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"id": "claude"}, "its id must be"),
        ({"id": "claude-code"}, "its id must be"),
        ({"id": "Mine"}, "its id must be"),
        ({"label": " "}, "label must be a text"),
        ({"command": "my agent --now"}, "the name of a program"),
        ({"command": "-x"}, "the name of a program"),
        ({"args": ["${apiKey}"]}, "placeholder ${apiKey}"),
        ({"args": "one"}, "args must be a list"),
        ({"env": {"A B": "x"}}, "invalid name"),
        ({"env": []}, "env must be an object"),
        ({"env": {"A": "x\ny"}}, "control characters"),
        ({"shell": "x"}, "unknown member 'shell'"),
    ],
)
def test_a_damaged_own_agent_is_refused(change: dict[str, object], reason: str, user: Client) -> None:
    write_custom_agents(user.folder, CUSTOM | change)
    message = user.refused("launch", "--list")
    assert "Agent 1 in" in message and reason in message and "Repair" in message


@pytest.mark.parametrize("text", ["{", "{}", '["x"]'])
def test_a_damaged_file_of_agents_is_refused(text: str, user: Client) -> None:
    write_custom_agents(user.folder)
    (user.folder / "agents.json").write_text(text)
    assert "agents.json" in user.refused("launch", "claude")


def test_two_own_agents_with_one_id_are_refused(user: Client) -> None:
    write_custom_agents(user.folder, CUSTOM, CUSTOM)
    assert "several agents with the id mine" in user.refused("launch", "--list")


# Crush gets an entry in its settings file


def test_crush_gets_a_provider_and_keeps_its_settings(user: Client, agents: FakeAgents, account: Account) -> None:
    agents.install("crush")
    path = user.home / ".config" / "crush" / "crush.json"
    path.parent.mkdir(parents=True)
    path.write_text('{\n    "lsp": {"go": {"command": "gopls"}},\n    "providers": {"own": {"id": "own"}}\n}\n')
    user.run("launch", "crush")
    settings = json.loads(path.read_text())
    assert settings["lsp"] == {"go": {"command": "gopls"}} and "own" in settings["providers"]
    provider = settings["providers"]["llmgateway"]
    assert provider["base_url"] == f"{account.address}/v1" and provider["api_key"] == "$LLMGATEWAY_API_KEY"
    assert [model["id"] for model in provider["models"]] == ["auto"] and "models" not in settings
    user.run("launch", "-m", "sandbox-echo", "crush")
    settings = json.loads(path.read_text())
    assert [model["id"] for model in settings["providers"]["llmgateway"]["models"]] == ["auto", "sandbox-echo"]
    assert settings["models"]["large"] == {"provider": "llmgateway", "model": "sandbox-echo"}
    assert account.key not in path.read_text()
    before = path.stat().st_mtime_ns
    assert "Done:" not in user.run("launch", "-m", "sandbox-echo", "crush").stderr
    assert path.stat().st_mtime_ns == before


def test_crush_is_not_started_if_its_settings_are_damaged(user: Client, agents: FakeAgents) -> None:
    agents.install("crush")
    folder = user.home / "crush"
    folder.mkdir()
    (folder / "crush.json").write_text("{")
    message = user.refused("launch", "crush", CRUSH_GLOBAL_CONFIG=str(folder))
    assert "cannot be changed" in message and not agents.was_started("crush")


# Gemini CLI, which does not sign in by key unless its settings say so


@pytest.fixture
def gemini_service() -> Iterator[StubService]:
    """A service with the API of Gemini."""
    models = (200, {"data": [{"id": "gemini-2.5-pro"}]})
    with StubService({"GET /v1beta/models": (200, {}), "GET /v1/models": models}) as service:
        yield service


def test_gemini_gets_the_sign_in_by_key(user: Client, agents: FakeAgents, gemini_service: StubService) -> None:
    agents.install("gemini")
    path = user.home / ".gemini" / "settings.json"
    path.parent.mkdir()
    path.write_text('{ // mine\n  "ui": {"theme": "Dark"}\n}\n')
    address = {"LLMGATEWAY_API_URL": gemini_service.address}
    assert "choose the sign-in by key" in user.run("launch", "gemini", "-p", "hello", **address).stderr
    assert agents.arguments("gemini") == ["--model", "gemini-2.5-pro", "-p", "hello"]
    assert agents.environment("gemini")["GOOGLE_GEMINI_BASE_URL"] == gemini_service.address
    text = path.read_text()
    assert "// mine" in text and '"selectedType": "gemini-api-key"' in text and '{"theme": "Dark"}' in text
    assert "Done:" not in user.run("launch", "gemini", **address).stderr


def test_another_sign_in_of_gemini_stays(user: Client, agents: FakeAgents, gemini_service: StubService) -> None:
    agents.install("gemini")
    folder = user.home / "elsewhere"
    (folder / ".gemini").mkdir(parents=True)
    text = json.dumps({"security": {"auth": {"selectedType": "oauth-personal"}}})
    (folder / ".gemini" / "settings.json").write_text(text)
    environment = {"LLMGATEWAY_API_URL": gemini_service.address, "GEMINI_CLI_HOME": str(folder)}
    message = user.refused("launch", "gemini", **environment)
    assert "signs in with 'oauth-personal'" in message and "/auth" in message
    assert (folder / ".gemini" / "settings.json").read_text() == text and not agents.was_started("gemini")


# The list, and the choice at the terminal


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_the_list_fits_the_terminal(columns: int, plain: bool, user: Client, agents: FakeAgents) -> None:
    agents.install("codex")
    write_custom_agents(user.folder, CUSTOM)
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
