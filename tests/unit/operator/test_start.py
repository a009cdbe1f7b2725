"""A start that fails prints one line with the remedy, before anything is created or shown."""

import errno
import json
import os
import shutil
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.commands import SECRETS
from support.gateways import free_port

from gateway.catalogue import last_good
from gateway.configuration.settings import MIGRATE_LATE
from gateway.operator import command, running
from gateway.operator.start import examine
from gateway.server.ports import problem_of
from gateway.store import disk

ROOT = Path(__file__).resolve().parents[3]


@pytest.fixture
def refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., str]:
    """Return the message of `serve` when it gives up: one line, with nothing created."""
    # A server would take the place of the test process, which then never ends.
    monkeypatch.setattr(os, "execve", lambda *_: pytest.fail("The server was started."))

    def start(**environment: str) -> str:
        usual = {"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(tmp_path / "data"), "PORT": str(free_port())}
        for name, value in (usual | environment).items():
            monkeypatch.setenv(name, value)
        assert command.run(["serve"]) == 1
        output = capsys.readouterr()
        assert output.out == "" and output.err.startswith("error: ") and output.err.count("\n") == 1
        assert not (tmp_path / "data" / "gateway.db").exists()
        return output.err

    return start


@pytest.mark.parametrize("url", ["localhost:6379", "http://localhost", "redis://localhost:port/0"])
def test_a_redis_url_that_means_nothing_is_reported_with_the_forms_that_do(
    refused: Callable[..., str], url: str
) -> None:
    output = refused(REDIS_URL=url)
    assert "REDIS_URL" in output and "redis://host:6379/0" in output


@pytest.mark.parametrize(
    ("url", "named"), [("mysql://db/x", "mysql:// is not known"), ("postgresql://db/x", "GATEWAY_ENCRYPTION_KEY")]
)
def test_all_mistakes_are_reported_at_once(
    url: str, named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    mistakes = {"DATABASE_URL": url, "REDIS_URL": "localhost:6379", "HOST": "203.0.113.7"}
    for name, value in {"GATEWAY_DATA_DIR": str(tmp_path / "data"), "GATEWAY_ENCRYPTION_KEY": "", **mistakes}.items():
        monkeypatch.setenv(name, value)
    assert command.run(["serve"]) == 1
    output = capsys.readouterr().err
    assert named in output and "REDIS_URL: " in output and "set HOST to one of its addresses" in output


def test_a_redis_that_is_away_is_a_warning(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("REDIS_URL", f"redis://:secret@127.0.0.1:{free_port()}/0")
    monkeypatch.setenv("PORT", str(free_port()))
    (warning,), *_ = examine()
    assert warning.startswith("Warning: Redis does not respond") and "secret" not in warning


@pytest.mark.parametrize(
    ("version", "enabled", "warned"),
    [((3, 15, 0), True, True), ((3, 15, 0), False, False), ((3, 14, 8), True, True), ((3, 15, 2), True, False)],
)
def test_an_early_compiler_of_python_is_a_warning(
    version: tuple[int, ...], enabled: bool, warned: bool, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path))
    monkeypatch.setenv("PORT", str(free_port()))
    monkeypatch.setattr(sys, "version_info", version)
    monkeypatch.setattr(sys, "_jit", SimpleNamespace(is_enabled=lambda: enabled), raising=False)
    text = "".join(examine()[0])
    assert (f"Python {'.'.join(map(str, version))} is not supported" in text and "3.15.2 or later" in text) is warned
    assert ("PYTHON_JIT" in text) is warned


def test_a_folder_that_cannot_be_written_is_named(refused: Callable[..., str], tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    output = refused(GATEWAY_DATA_DIR=str(tmp_path / "file" / "data"))
    assert "GATEWAY_DATA_DIR" in output and "writable" in output


def test_a_first_start_on_a_full_disk_says_so(refused: Callable[..., str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MIN_FREE_BYTES", 1 << 62)
    output = refused()
    assert "GATEWAY_DATA_DIR: the disk of" in output and "make room" in output


def test_a_first_start_with_a_setting_that_it_cannot_use_is_refused(refused: Callable[..., str]) -> None:
    output = refused(GATEWAY_BOOTSTRAP_CREDITS_USD="much")
    assert "GATEWAY_BOOTSTRAP_CREDITS_USD" in output


def test_an_address_of_another_machine_is_reported(refused: Callable[..., str]) -> None:
    assert "set HOST to one of its addresses" in refused(HOST="203.0.113.7")


def test_a_port_that_is_in_use_or_needs_more_rights_is_reported_with_the_remedy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with socket.socket() as used:
        used.bind(("127.0.0.1", 0))
        used.listen()
        assert "end that program" in problem_of("127.0.0.1", used.getsockname()[1])

    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied")

    monkeypatch.setattr(socket.socket, "bind", refuse)  # root may bind any port
    assert problem_of("127.0.0.1", 80).endswith("needs more rights than this user has; set PORT to 1024 or more")


def test_a_free_port_is_no_problem_and_stays_free() -> None:
    port = free_port()
    assert problem_of("127.0.0.1", port) == problem_of("127.0.0.1", port) == problem_of("::1", port) == ""


def test_an_old_python_is_one_line(tmp_path: Path) -> None:
    (tmp_path / "gateway").mkdir()
    shutil.copy(ROOT / "gateway" / "__init__.py", tmp_path / "gateway")
    code = "import sys; sys.version_info = (3, 10, 2, 'final', 0); import gateway"
    done = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 1 and done.stderr.count("\n") == 1
    assert done.stderr.startswith("error: llmgateway needs Python 3.11") and "3.10.2" in done.stderr


@pytest.fixture
def started(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[tuple[list[str], dict[str, str]]]:
    """The command lines and environments of the servers that took the place of this process."""
    calls: list[tuple[list[str], dict[str, str]]] = []
    monkeypatch.setattr(os, "execve", lambda program, words, environment: calls.append((words, environment)))
    for name, value in {"ENV": "test", "DATA_DIR": str(tmp_path / "data")}.items():
        monkeypatch.setenv(f"GATEWAY_{name}", value)
    monkeypatch.setenv("PORT", str(free_port()))
    return calls


def test_the_server_gets_the_arguments_and_the_environment(
    started: list, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("REDIS_URL", f"redis://127.0.0.1:{free_port()}/0")
    monkeypatch.setattr(running, "adopt", lambda: pytest.fail("A start must not use the settings of another gateway."))
    assert command.run(["serve", "--", "--workers", "2"], find=True) == 0
    assert capsys.readouterr().out.startswith("Warning: Redis does not respond")
    ((words, environment),) = started
    assert words[1:3] == ["-m", "gateway.server.launch"] and words[-3:] == ["wsgi:app", "--workers", "2"]
    assert Path(words[0]).samefile(sys.executable) and Path(words[words.index("-c") + 1]).is_file()
    assert environment["PORT"] == os.environ["PORT"] and MIGRATE_LATE not in environment


def test_the_server_migrates_a_database_that_is_away_later(
    started: list, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    (tmp_path / "data" / last_good.FOLDER).mkdir(parents=True)
    for name, value in SECRETS.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DATABASE_URL", f"postgresql://nobody@127.0.0.1:{free_port()}/none")
    assert command.run(["serve"]) == 0
    assert "Warning: the database is unavailable" in capsys.readouterr().out
    ((_, environment),) = started
    assert environment[MIGRATE_LATE] == "1" and environment["PORT"] == os.environ["PORT"]


def test_the_start_names_the_providers_that_have_keys_and_how_to_add_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GATEWAY_ENV", "test")
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path / "data"))
    assert command.run(["serve-info"]) == 0
    output = capsys.readouterr().out
    assert "The sandbox answers; it repeats your messages and runs no model. To add one, open Provider keys" in output
    monkeypatch.setenv("LLM_OPENAI_API_KEY", "sk-secret")
    monkeypatch.setenv("LLM_MISTRAL_API_KEY", "sk-secret")
    assert command.run(["serve-info"]) == 0
    output = capsys.readouterr().out
    (line,) = [line for line in output.splitlines() if line.startswith("Providers with a key: ")]
    assert "openai" in line and "mistral" in line and "anthropic" not in line and "sk-secret" not in output


def test_the_first_start_has_its_key_and_credits_as_json(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GATEWAY_ENV", "test")
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("LLM_OPENAI_API_KEY", "sk-secret")
    monkeypatch.setattr(running, "adopt", lambda: pytest.fail("A start must not use the settings of another gateway."))
    assert command.run(["serve-info", "--json"], find=True) == 0
    first = json.loads(capsys.readouterr().out)
    assert first.pop("token").startswith("llmgtwy_") and first.pop("credits_usd") == "100"
    assert first["key"].startswith("key_") and first["address"].startswith("http") and "openai" in first["providers"]
    assert first["warnings"] == []
    assert command.run(["serve-info", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == {**first, "token": None}


def test_the_banner_sets_the_variable_that_its_request_and_the_readme_use(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GATEWAY_ENV", "test")
    monkeypatch.setenv("GATEWAY_DATA_DIR", str(tmp_path / "data"))
    assert command.run(["serve-info"]) == 0
    output = capsys.readouterr().out
    (address,) = [line.removeprefix("Gateway: ") for line in output.splitlines() if line.startswith("Gateway: ")]
    assert f"curl -N {address}/v1/chat/completions" in output and '"Content-Type: application/json"' in output
    (export,) = [line.strip() for line in output.splitlines() if line.strip().startswith("export ")]
    variable, _, value = export.removeprefix("export ").partition("=")
    assert f"API key: {value.strip(chr(39))}" in output.splitlines()
    assert f"Bearer ${variable}" in output and f"Bearer ${variable}" in (ROOT / "README.md").read_text()
    assert command.run(["serve-info"]) == 0
    assert f"export {variable}='<your API key>'" in capsys.readouterr().out
