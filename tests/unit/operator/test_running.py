"""The operator's command works on the installation that runs, and says which database that is."""

import json
import os
import subprocess
import sys
from pathlib import Path

import click
import pytest
from support import warm

from gateway.configuration import settings
from gateway.configuration.settings import ROOT
from gateway.errors import InvalidRequest
from gateway.operator import command, running

CLEAN = ("DATABASE_URL", "DATABASE_URL_FILE", "GATEWAY_DATA_DIR", "GATEWAY_CONFIG", "GATEWAY_ENV")


@pytest.fixture
def proc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A /proc without processes, and a command that names no installation."""
    folder = tmp_path / "proc"
    folder.mkdir()
    for name in CLEAN:
        monkeypatch.setenv(name, "")  # so that what the command sets is undone
        monkeypatch.delenv(name)
    find = running.find_gateways
    monkeypatch.setattr(running, "find_gateways", lambda: find(folder))
    monkeypatch.chdir(tmp_path)
    return folder


def start(proc: Path, pid: int, place: Path, code: Path = ROOT, **environment: str) -> None:
    folder = proc / str(pid)
    folder.mkdir()
    words = [
        sys.executable,
        "-m",
        "gateway.server.launch",
        "-c",
        "gunicorn.conf.py",
        "--pythonpath",
        str(code),
        "wsgi:app",
    ]
    (folder / "cmdline").write_bytes(b"\0".join(word.encode() for word in words) + b"\0")
    (folder / "environ").write_bytes(b"\0".join(f"{k}={v}".encode() for k, v in environment.items()) + b"\0")
    (folder / "cwd").symlink_to(place)


def test_the_gateway_that_runs_is_found_with_its_folder(proc: Path, tmp_path: Path) -> None:
    environment = {"GATEWAY_ENV": "test", "GATEWAY_API_KEY_HASH_SECRET_FILE": "secrets/hash"}
    start(proc, 7, tmp_path / "elsewhere", **environment)
    start(proc, 9, tmp_path / "elsewhere", **environment)  # its worker
    start(proc, 8, tmp_path / "other", code=tmp_path)  # of another checkout
    running.adopt()
    assert os.environ["GATEWAY_DATA_DIR"] == str(tmp_path / "elsewhere" / "data")
    assert running._origin == ["of the running gateway (process 7)"]
    assert os.environ["GATEWAY_API_KEY_HASH_SECRET_FILE"] == str(tmp_path / "elsewhere" / "secrets" / "hash")
    os.environ.pop("GATEWAY_API_KEY_HASH_SECRET_FILE")


def test_a_command_says_which_gateway_it_has_found(proc: Path, tmp_path: Path, capsys) -> None:
    start(proc, 7, tmp_path / "elsewhere", GATEWAY_ENV="test")
    running.adopt()
    with click.Context(click.Command("keys"), obj=command.FIND_GATEWAY):
        running.announce(settings.load().database)
    told = f"Database: {tmp_path}/elsewhere/data/gateway.db (does not exist yet) of the running gateway (process 7)\n"
    assert capsys.readouterr().err == told


def test_data_of_the_checkout_is_used_where_no_gateway_runs(proc: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(running, "ROOT", tmp_path / "checkout")
    (tmp_path / "checkout" / "data").mkdir(parents=True)
    running.adopt()
    assert "GATEWAY_DATA_DIR" not in os.environ
    (tmp_path / "checkout" / "data" / "gateway.db").touch()
    running.adopt()
    assert os.environ["GATEWAY_DATA_DIR"] == str(tmp_path / "checkout" / "data")


@pytest.mark.parametrize("choice", ["GATEWAY_DATA_DIR", "GATEWAY_CONFIG", "DATABASE_URL", "DATABASE_URL_FILE"])
def test_a_choice_of_the_caller_counts_before_what_runs(proc: Path, tmp_path: Path, monkeypatch, choice: str) -> None:
    start(proc, 7, tmp_path, LLM_GROQ_API_KEY="of-another")
    monkeypatch.delenv("LLM_GROQ_API_KEY", raising=False)
    monkeypatch.setenv(choice, "mine")
    running.adopt()
    assert os.environ[choice] == "mine" and "LLM_GROQ_API_KEY" not in os.environ


@pytest.mark.parametrize("name", ["serve", "serve-info"])
def test_a_start_takes_nothing_from_the_gateway_that_runs(proc: Path, tmp_path: Path, name: str) -> None:
    start(proc, 7, tmp_path / "elsewhere")
    command.main([name, "--help"], obj=command.FIND_GATEWAY, standalone_mode=False)
    assert "GATEWAY_DATA_DIR" not in os.environ


@pytest.mark.parametrize("name", ["GATEWAY_CONFIG", "GATEWAY_CATALOGUE_PATH", "UPLOAD_DIR"])
def test_a_relative_path_of_the_gateway_that_runs_is_in_its_folder(name: str, tmp_path: Path) -> None:
    assert running.absolute({name: "own"}, tmp_path)[name] == str(tmp_path / "own")


def test_commands_use_the_variables_of_the_running_gateway(proc: Path, tmp_path: Path, monkeypatch) -> None:
    """`status` then shows the providers for which the gateway has keys, not those of this shell."""
    start(proc, 7, tmp_path / "one", LLM_GROQ_API_KEY="of-one")
    start(proc, 9, tmp_path / "two", LLM_GROQ_API_KEY="of-two")
    monkeypatch.setenv("LLM_GROQ_API_KEY", "")
    monkeypatch.delenv("LLM_GROQ_API_KEY")
    monkeypatch.setenv("GATEWAY_DATA_DIR", "two/data")
    running.adopt()
    assert os.environ["LLM_GROQ_API_KEY"] == "of-two" and os.environ["GATEWAY_DATA_DIR"] == "two/data"


def test_several_running_gateways_require_a_choice(proc: Path, tmp_path: Path) -> None:
    start(proc, 7, tmp_path / "one")
    start(proc, 9, tmp_path / "one")  # a second master of the same
    start(proc, 8, tmp_path / "two")
    with pytest.raises(InvalidRequest, match=r"Several gateways are running.*one/data.*two/data"):
        running.adopt()


def test_nothing_is_reported_of_passwords(tmp_path: Path) -> None:
    found = running.absolute({"DATABASE_URL": "sqlite:///a/b.db"}, tmp_path)
    assert found["DATABASE_URL"] == f"sqlite:///{tmp_path}/a/b.db"
    chosen = type("Chosen", (), {"scheme": "postgresql", "url": "postgresql://me:secret@db/x"})
    assert "secret" not in running.describe(chosen)  # type: ignore[arg-type]


@pytest.mark.slow
def test_the_command_says_its_database_on_standard_error_but_not_beside_json(tmp_path: Path) -> None:
    environment = {**os.environ, "GATEWAY_DATA_DIR": str(tmp_path / "data"), "GATEWAY_ENV": "test"}
    environment.pop("DATABASE_URL", None)

    def call(*arguments: str) -> subprocess.CompletedProcess[str]:
        return warm.run(["llmgateway-manage", *arguments], environment)

    told = f"Database: {tmp_path}/data/gateway.db"
    assert call("seed").returncode == 1  # not migrated
    assert call("migrate").stderr.startswith(told)
    listed = call("keys", "list", "--json")
    assert (listed.returncode, listed.stderr, json.loads(listed.stdout)) == (0, "", [])


def test_the_script_and_the_console_command_exist() -> None:
    script = ROOT / "manage"
    assert os.access(script, os.X_OK) and script.read_text().startswith("#!/bin/sh")
    assert 'llmgateway-manage = "gateway.operator.command:command"' in (ROOT / "pyproject.toml").read_text()
    assert callable(command.command)
