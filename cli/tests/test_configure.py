"""`configure`: the settings files of Claude Code and opencode, in which everything else stays."""

import json
import stat
import subprocess
from pathlib import Path

import pytest
import requests
from harness.accounts import Account
from harness.client_runs import Client, working_in
from harness.fake_service import Answer, FakeService
from support.shared import Share

from llmgateway_cli.commands.configure import is_for_coding

CLAUDE = """\
{
    "model": "opus",
    "env": {
        "FOO": "bar",
        "ANTHROPIC_BASE_URL": "https://old.example"
    },
    "permissions": {"allow": ["Bash(ls:*)"], "deny": []}
}
"""
OPENCODE = """\
{
  // my theme
  "theme": "tokyonight",
  "provider": {
    "own": { "npm": "@ai-sdk/openai" }, /* keep */
    "llmgateway": {
      "options": { "apiKey": "{file:~/.key}", "timeout": 5000 },
      "models": { "my-model": { "name": "Mine" } },
    },
  },
}
"""


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def mode_of(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


def test_claude_gets_address_and_key_and_keeps_the_rest(user: Client, account: Account) -> None:
    path = write(user.home / ".claude" / "settings.json", CLAUDE)
    finished = user.run("configure", "claude")
    changed = CLAUDE.replace("https://old.example", account.address).replace(
        f'"{account.address}"\n',
        f'"{account.address}",\n        "ANTHROPIC_AUTH_TOKEN": "{account.key}",\n'
        '        "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",\n'
        '        "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1"\n',
    )
    assert path.read_text() == changed
    assert mode_of(path) == 0o600
    assert account.key not in finished.stdout + finished.stderr
    assert str(path) in finished.stdout and "now uses" in finished.stderr
    assert all(f"env.{name}" in finished.stdout for name in json.loads(changed)["env"] if name != "FOO")


def test_a_second_time_changes_nothing(user: Client) -> None:
    path = user.home / ".claude" / "settings.json"
    user.run("configure", "claude")
    before = path.stat().st_mtime_ns
    assert "nothing was changed" in user.run("configure", "claude-code").stderr
    assert path.stat().st_mtime_ns == before
    assert user.document("configure", "claude") == {
        "file": str(path),
        "members": [
            "env.ANTHROPIC_BASE_URL",
            "env.ANTHROPIC_AUTH_TOKEN",
            "env.CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY",
            "env.CLAUDE_CODE_GATEWAY_HINT_HEADERS",
        ],
        "changed": False,
        "dryRun": False,
    }


def test_a_file_with_a_key_that_others_can_read_is_closed(user: Client) -> None:
    path = user.home / ".claude" / "settings.json"
    user.run("configure", "claude")
    path.chmod(0o644)
    user.run("configure", "claude")
    assert mode_of(path) == 0o600


def test_the_settings_of_a_project_are_separate(user: Client) -> None:
    user.run("configure", "--project", "claude")
    assert (user.home / ".claude" / "settings.local.json").exists()
    assert not (user.home / ".claude" / "settings.json").exists()


def test_the_folder_of_claude_can_be_elsewhere(user: Client, tmp_path: Path) -> None:
    user.run("configure", "claude", CLAUDE_CONFIG_DIR=str(tmp_path / "elsewhere"))
    assert (tmp_path / "elsewhere" / "settings.json").exists()


def test_a_link_to_the_settings_stays_a_link(user: Client, tmp_path: Path) -> None:
    real = write(tmp_path / "dotfiles" / "claude.json", "{}")
    link = user.home / ".claude" / "settings.json"
    link.parent.mkdir()
    link.symlink_to(real)
    user.run("configure", "claude")
    assert link.is_symlink() and "ANTHROPIC_BASE_URL" in real.read_text()


def test_claude_needs_a_key(user: Client) -> None:
    assert "There is no API key" in user.refused("configure", "claude", LLMGATEWAY_API_KEY="")
    user.run("configure", "-k", "llmgtwy_of_the_option", "claude", LLMGATEWAY_API_KEY="")
    assert "llmgtwy_of_the_option" in (user.home / ".claude" / "settings.json").read_text()


@pytest.mark.parametrize("text", ["{", "[]", '{"a": 1,}', "// no\n{}", '{"env": {"A": }}'])
def test_damaged_settings_of_claude_are_refused_and_kept(text: str, user: Client) -> None:
    path = write(user.home / ".claude" / "settings.json", text)
    message = user.refused("configure", "claude")
    assert "cannot be changed" in message and "line 1" in message and "Nothing was changed" in message
    assert path.read_text() == text


@pytest.mark.parametrize("content", [None, b'{"a": "\xe9"}'], ids=["folder", "other encoding"])
def test_settings_that_cannot_be_read_are_refused(content: bytes | None, user: Client) -> None:
    path = user.home / ".claude" / "settings.json"
    path.parent.mkdir()
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    message = user.refused("configure", "claude")
    assert f"{path} cannot be read" in message and "Nothing was changed" in message


def test_settings_in_a_folder_that_cannot_be_written_are_an_error(user: Client) -> None:
    (user.home / ".claude").write_text("a file where the folder should be")
    assert "cannot be" in user.refused("configure", "claude")


def test_opencode_keeps_comments_and_its_own_key(user: Client, account: Account) -> None:
    path = write(user.home / ".config" / "opencode" / "opencode.json", OPENCODE)
    assert "now uses" in user.run("configure", "opencode").stderr
    text = path.read_text()
    for line in ("// my theme", "/* keep */", '"own": { "npm": "@ai-sdk/openai" }', '"apiKey": "{file:~/.key}"'):
        assert line in text
    assert '"my-model": { "name": "Mine" }' in text
    assert f'"baseURL": "{account.address}/v1"' in text
    assert '"sandbox/sandbox-echo"' in text and account.key not in text
    assert mode_of(path) == 0o644
    assert "nothing was changed" in user.run("configure", "opencode").stderr


@pytest.fixture
def provided(share: Share, tmp_path: Path) -> tuple[Client, Account]:
    """A client of a gateway that has the key of one provider."""
    account = Account(share.gateway({"LLM_OPENAI_API_KEY": "sk-test", "GATEWAY_BOOTSTRAP_PASSWORD": "correct horse"}))
    variables = {"LLMGATEWAY_API_URL": account.address, "LLMGATEWAY_API_KEY": account.key}
    return Client(tmp_path / "home", variables), account


def test_opencode_gets_the_models_that_the_key_can_call(provided: tuple[Client, Account]) -> None:
    user, account = provided
    user.run("configure", "opencode")
    settings = json.loads((user.home / ".config" / "opencode" / "opencode.json").read_text())
    models = settings["provider"]["llmgateway"]["models"]
    answered = requests.get(
        f"{account.address}/v1/models?mapped=true&available=true",
        headers={"Authorization": f"Bearer {account.key}"},
        timeout=20,
    )
    callable_ids = {entry["id"] for entry in answered.json()["data"]}
    assert models and set(models) <= callable_ids
    assert {name.partition("/")[0] for name in models} == {"openai", "sandbox", "llmgateway"}


def test_opencode_without_a_model_stays_as_it_is(service: FakeService, service_client: Client) -> None:
    service.script(Answer(200, {"data": []}))
    assert "can call no model" in service_client.refused("configure", "opencode", "-k", "llmgtwy_x")
    assert not (service_client.home / ".config").exists()
    assert service.calls[0].headers["authorization"] == "Bearer llmgtwy_x"


def git(folder: Path, *arguments: str) -> str:
    command = ["git", "-C", str(folder), *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout


def status_of(folder: Path) -> str:
    return git(folder, "status", "--short", "--untracked-files=all")


@pytest.mark.parametrize("place", ["", "apps/a [1]!"])
def test_the_key_of_a_project_is_ignored_by_git(user: Client, tmp_path: Path, place: str) -> None:
    top = tmp_path / "repository"
    folder = top / place
    folder.mkdir(parents=True)
    git(top, "init", "--quiet")
    there = working_in(user, folder)
    assert "does not ignore" in there.run("configure", "claude", "--project", "--dry-run").stderr
    message = there.run("configure", "claude", "--project").stderr
    assert "contains the API key" in message and str(top / ".git/info/exclude") in message
    assert user.environment["LLMGATEWAY_API_KEY"] in (folder / ".claude/settings.local.json").read_text()
    assert status_of(top) == ""
    again = (top / ".git/info/exclude").read_text()
    there.run("configure", "claude", "--project")
    assert (top / ".git/info/exclude").read_text() == again


def test_a_project_that_ignores_the_file_stays_as_it_is(user: Client, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    (tmp_path / ".gitignore").write_text("settings.local.json\n")
    before = (tmp_path / ".git/info/exclude").read_text()
    assert "git" not in working_in(user, tmp_path).run("configure", "claude", "--project").stderr
    assert (tmp_path / ".git/info/exclude").read_text() == before


def test_a_file_that_git_tracks_does_not_get_the_key(user: Client, tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    path = tmp_path / ".claude/settings.local.json"
    write(path, "{}")
    git(tmp_path, "add", "-f", ".claude")
    assert "git tracks" in working_in(user, tmp_path).refused("configure", "claude", "--project")
    assert path.read_text() == "{}"


def test_own_settings_in_a_repository_are_changed_with_a_warning(user: Client) -> None:
    git(user.home, "init", "--quiet")
    write(user.home / ".claude/settings.json", "{}")
    git(user.home, "add", "-f", ".claude")
    assert "git tracks" in user.run("configure", "claude").stderr


def test_a_repository_without_git_is_refused(user: Client, tmp_path: Path) -> None:
    (tmp_path / ".git").mkdir()
    programs = tmp_path / "programs"
    programs.mkdir()
    message = working_in(user, tmp_path).refused("configure", "claude", "--project", PATH=str(programs))
    assert "Install git" in message
    assert not (tmp_path / ".claude").exists()


def test_opencode_gets_a_file_with_its_models(provided: tuple[Client, Account]) -> None:
    user, account = provided
    document = user.document("configure", "opencode")
    settings = json.loads((user.home / ".config" / "opencode" / "opencode.json").read_text())
    provider = settings["provider"]["llmgateway"]
    assert settings["$schema"] == "https://opencode.ai/config.json"
    assert provider["options"] == {"baseURL": f"{account.address}/v1", "apiKey": "{env:LLMGATEWAY_API_KEY}"}
    assert provider["npm"] and provider["name"] == "LLM Gateway"
    assert document["members"] == [f"provider.llmgateway.{name}" for name in provider]
    assert len(provider["models"]) == document["models"] > 20
    model = provider["models"]["openai/gpt-5.4"]
    assert model["limit"] == {"context": 1050000, "output": 128000}
    assert model["cost"] == {"input": 2.5, "output": 15.0, "cache_read": 0.25}
    assert model["name"] == "GPT-5.4 (OpenAI)"
    assert model["tool_call"] and model["reasoning"] and model["attachment"]
    assert "sandbox/sandbox-embed" not in provider["models"]


def test_the_spelling_with_comments_wins_if_it_exists(user: Client, tmp_path: Path) -> None:
    folder = tmp_path / "xdg" / "opencode"
    write(folder / "opencode.json", "{}")
    write(folder / "opencode.jsonc", "{} // mine\n")
    user.run("configure", "opencode", XDG_CONFIG_HOME=str(tmp_path / "xdg"))
    assert (folder / "opencode.json").read_text() == "{}"
    assert "llmgateway" in (folder / "opencode.jsonc").read_text()


def test_opencode_of_a_project(user: Client) -> None:
    user.run("configure", "--project", "opencode")
    assert (user.home / "opencode.json").exists() and not (user.home / ".config").exists()


def test_damaged_settings_of_opencode_are_refused_and_kept(user: Client) -> None:
    path = write(user.home / ".config" / "opencode" / "opencode.json", '{\n  "a": 1\n  "b": 2\n}')
    message = user.refused("configure", "opencode")
    assert "A comma is missing (line 3)" in message
    assert path.read_text() == '{\n  "a": 1\n  "b": 2\n}'


@pytest.mark.parametrize("agent", ["claude", "opencode"])
def test_a_dry_run_writes_nothing(agent: str, user: Client) -> None:
    before = sorted(user.home.rglob("*"))
    finished = user.run("configure", "--dry-run", agent)
    assert "Nothing was written" in finished.stderr and agent in finished.stdout
    assert user.run("configure", "--dry-run", "--json", agent).document["dryRun"] is True
    assert sorted(user.home.rglob("*")) == before


def test_another_agent_is_configured_by_launch(user: Client) -> None:
    message = user.refused("configure", "codex")
    assert "There are no settings to write for 'codex'" in message and "llmgateway launch codex" in message


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_the_agent_is_chosen_at_the_terminal(columns: int, plain: bool, user: Client) -> None:
    environment = {"NO_COLOR": "1"} if plain else {}
    with user.terminal("configure", columns=columns, **environment) as terminal:
        terminal.answer("opencode", "1")
        text = terminal.end()
    assert "Claude Code now uses" in text
    assert ("\x1b[" in terminal.output) is not plain


def test_without_a_terminal_the_agent_must_be_named(user: Client) -> None:
    assert "claude or opencode" in user.refused("configure")


def test_the_address_of_the_option_is_written(user: Client) -> None:
    user.run("configure", "--gateway-url", "https://llm.example/", "claude")
    settings = json.loads((user.home / ".claude" / "settings.json").read_text())
    assert settings["env"]["ANTHROPIC_BASE_URL"] == "https://llm.example"


@pytest.mark.parametrize(
    ("change", "offered"),
    [
        ({}, True),
        ({"deactivated_at": "2099-01-01T00:00:00.000Z"}, True),  # it can be used until then
        ({"stability": "unstable"}, False),
        ({"stability": "experimental"}, False),
        ({"architecture": {"output_modalities": ["image"]}}, False),
        ({"providers": [{"providerId": "a", "tools": False, "streaming": True}]}, False),
        ({"providers": []}, False),
    ],
)
def test_models_that_can_code_are_offered(change: dict[str, object], offered: bool) -> None:
    entry = {"id": "a/b", "providers": [{"providerId": "a", "tools": True, "streaming": True}], "stability": "stable"}
    assert is_for_coding(entry | change) is offered
