"""`config check` reports every mistake, `config show` all settings in force, and neither shows a secret."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest

from gateway.operator import command

FILE = """
[server]
workers = 3
[database]
url = "postgresql://gateway:hidden@db.example/gateway"
[secrets]
metrics_token = "env:SCRAPE"
[providers.groq]
api_key = "file:key"
priority = 2.0
headers = { x-team-key = "hidden" }
[aliases]
fast = "gpt-4o-mini"
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Run a command with FILE named by --config and return its output; the status must be as given."""
    (tmp_path / "house.toml").write_text(FILE)
    (tmp_path / "key").write_text("hidden")
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("GATEWAY_CONFIG", "")
    monkeypatch.setenv("SCRAPE", "hidden")
    for name in ("GATEWAY_API_KEY_HASH_SECRET", "GATEWAY_ENCRYPTION_KEY"):
        monkeypatch.setenv(name, "hidden secret of the tests")

    def run_command(*arguments: str, status: int = 0) -> str:
        assert command.run(["--config", str(tmp_path / "house.toml"), *arguments]) == status
        output = capsys.readouterr()
        return output.out + output.err

    return run_command


MISTAKES = """
[server]
prot = 4001
[limts]
[secrets]
metrics_token = "plain"
[catalogue]
path = "own"
auto_models = ["gpt-4o-mimi"]
[providers.openai]
api_key = "env:NO_SUCH_KEY"
[aliases]
fast = "gpt-9o"
"""
OWN = "name = 'North'\nprotocol = 'opnai'\n"


def test_no_mistake_hides_another(run: Callable[..., str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "house.toml").write_text(MISTAKES)
    (tmp_path / "own" / "providers").mkdir(parents=True)
    (tmp_path / "own" / "providers" / "north.toml").write_text(OWN)
    for name, value in {
        "PORT": "abc",
        "GATEWAY_LOG_REQUEST": "json",
        "LLM_OPENAI_API_KEI": "x",
        "REDIS_URL": "reds://x",
        "DATABASE_URL": "postgres1://u:hidden@h/d",
        "GROQ_API_KEY_FILE": str(tmp_path / "absent"),
        "GATEWAY_SERVER_EXTENSIONS": "no_such_package",
    }.items():
        monkeypatch.setenv(name, value)
    output = run("config", "check", status=1)
    wanted = (
        "house.toml:3: [server] there is no setting prot; did you mean port?",
        "house.toml:4: there is no section [limts]; did you mean limits?",
        "house.toml:6: [secrets] metrics_token",
        "house.toml:11: [providers.openai] api_key: the variable NO_SUCH_KEY is not set",
        "house.toml:13: fast means an unknown model gpt-9o; did you mean gpt-4o",
        "there is no model gpt-4o-mimi; did you mean gpt-4o-mini",
        "(from house.toml:9)",
        "north.toml:2: protocol: unknown protocol 'opnai'",
        "(from PORT)",
        "GATEWAY_LOG_REQUEST: there is no such setting; did you mean GATEWAY_LOG_REQUESTS",
        "LLM_OPENAI_API_KEI: there is no such setting; did you mean LLM_OPENAI_API_KEY",
        "REDIS_URL: ",
        "DATABASE_URL: postgres1:// is not known",
        "GROQ_API_KEY_FILE: cannot read",
        "extension no_such_package: ",
    )
    assert [one for one in wanted if one not in output] == []
    assert len(output.splitlines()) == len(wanted) - 1 and "hidden" not in output, output
    # A start reports the same mistakes, except for the settings that only a server needs.
    assert "no_such_package" in run("serve", status=1) and "fast means" in run("serve", status=1)


def test_requirements_of_a_first_start_are_checked_before_it(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in {
        "DATABASE_URL": "postgresql://gateway@db.example/gateway",
        "GATEWAY_API_KEY_HASH_SECRET": "",
        "GATEWAY_ENCRYPTION_KEY": "short",
        "GATEWAY_BOOTSTRAP_API_KEY": "abc",
        "GATEWAY_BOOTSTRAP_PASSWORD": "short",
        "GATEWAY_BOOTSTRAP_EMAIL": "nobody",
        "GATEWAY_BOOTSTRAP_CREDITS_USD": "plenty",
        "OTEL_EXPORTER_OTLP_ENDPOINT": "collector:4318",
        "GATEWAY_OTEL_SAMPLE": "7",
        "CLIENT_IP_HEADER": "x forwarded for",
    }.items():
        monkeypatch.setenv(name, value)
    output = run("config", "check", status=1).splitlines()
    wanted = (
        "[otel] endpoint: this address is not known; use https:// or http:// (from OTEL_EXPORTER_OTLP_ENDPOINT)",
        "[otel] sample: must be at least 0 and at most 1, got 7 (from GATEWAY_OTEL_SAMPLE)",
        "[server] client_ip_header: 'x forwarded for' is not a header name",
        "GATEWAY_API_KEY_HASH_SECRET (or GATEWAY_API_KEY_HASH_SECRET_FILE) is required with PostgreSQL",
        "GATEWAY_ENCRYPTION_KEY must be at least",
        "GATEWAY_BOOTSTRAP_API_KEY needs 8 to 256",
        "GATEWAY_BOOTSTRAP_EMAIL: Not an e-mail address: 'nobody'",
        "GATEWAY_BOOTSTRAP_PASSWORD: a password needs 12",
        "GATEWAY_BOOTSTRAP_CREDITS_USD is neither an amount",
    )
    assert [one for one in wanted if not any(line.startswith(one) for line in output)] == []
    assert len(output) == len(wanted)


def test_only_files_of_environments_are_environments(run: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GATEWAY_ENV", "genai_names")
    assert "there is no 'genai_names', only development, production, test" in run("config", "check", status=1)
    monkeypatch.setenv("GATEWAY_ENV", "prod")
    assert "did you mean production?" in run("config", "check", status=1)


def test_the_whole_configuration_is_shown_with_origins_and_without_secrets(
    run: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PORT", "4009")
    monkeypatch.setenv("OPENAI_API_KEY", "hidden")
    monkeypatch.setenv("LLM_MISTRAL_API_KEY", "hidden")
    monkeypatch.setenv("LLM_MISTRAL_PROXY", "http://gateway:hidden@proxy.example:3128")
    output = run("config", "show")
    assert "LLM_MISTRAL_API_KEY" in output
    assert "hidden" not in output and "house.toml" in output
    for key, value, origin in (
        ("port", "4009", "PORT"),
        ("workers", "3", "gateway.toml"),
        ("url", '"postgresql://gateway:********@db.example/gateway"', "gateway.toml"),
        ("metrics_token", '"********"', "gateway.toml: env:SCRAPE"),
        ("proxy", '"http://gateway:********@proxy.example:3128"', "LLM_MISTRAL_PROXY"),
        ("keepalive_s", "650.0", "default"),
    ):
        assert any(
            line.startswith(f"{key} = {value} ") and line.endswith(f"# {origin}") for line in output.splitlines()
        )
    found = {(one["section"], one["key"]): one for one in json.loads(run("config", "show", "--json"))}
    assert found["providers.groq", "api_key"] | {"origin": ""} == {
        "section": "providers.groq",
        "key": "api_key",
        "value": "********",
        "origin": "",
    }
    assert found["providers.openai", "api_key"]["origin"] == "OPENAI_API_KEY"
    assert found["aliases", "fast"]["value"] == "gpt-4o-mini" and found["providers.groq", "priority"]["value"] == 2.0


def test_every_mistake_is_a_line(run: Callable[..., str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert run("config", "check") == "The configuration is valid.\n"
    monkeypatch.setenv("LLM_OPNAI_API_KEY", "hidden")
    monkeypatch.setenv("REDIS_URL", "http://localhost")
    output = run("config", "check", status=1)
    assert (
        "LLM_OPENAI_API_KEY" in output and "REDIS_URL" in output and "hidden" not in output and output.count("\n") == 2
    )
    monkeypatch.setenv("REDIS_URL", "")
    monkeypatch.delenv("LLM_OPNAI_API_KEY")
    monkeypatch.setenv("DATABASE_URL", "mysql://gateway:hidden@db.example/gateway")
    monkeypatch.setenv("GATEWAY_CATALOGUE_AUTO_MODELS", "gpt-4o-minni")
    output = run("config", "check", status=1)
    assert "DATABASE_URL: mysql://" in output and "did you mean gpt-4o-mini" in output and "hidden" not in output
    (tmp_path / "house.toml").write_text("[server]\nprot = 4001\n")
    assert "did you mean port?" in run("config", "check", status=1)


def test_a_file_that_is_not_there_is_reported(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    (tmp_path / "gateway.toml").touch()
    assert command.run(["--config", str(tmp_path / "gatewy.toml"), "config", "check"]) == 1
    assert "did you mean gateway.toml?" in capsys.readouterr().err
