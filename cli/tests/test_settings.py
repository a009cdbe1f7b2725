"""The client's settings: precedence, the rule on base URLs, and the configuration file."""

import json
import stat
from pathlib import Path

import pytest

from llmgateway_cli.errors import CliError
from llmgateway_cli.settings import API_KEY, API_URL, DASHBOARD_URL, GATEWAY_URL, Settings, checked_url


def settings_in(folder: Path, *, flags: dict[str, str] | None = None, **environment: str) -> Settings:
    return Settings({"LLMGATEWAY_CONFIG_DIR": str(folder), **environment}, flags)


def write_config(folder: Path, text: str) -> None:
    folder.mkdir(exist_ok=True)
    (folder / "config.json").write_text(text)


@pytest.mark.parametrize(
    ("member", "variable"),
    [
        (API_URL, "LLMGATEWAY_API_URL"),
        (DASHBOARD_URL, "LLMGATEWAY_ORIGIN_URL"),
        (GATEWAY_URL, "LLMGATEWAY_GATEWAY_URL"),
    ],
)
def test_flag_beats_variable_beats_file_beats_default(member: str, variable: str, tmp_path: Path) -> None:
    assert settings_in(tmp_path).base_url(member) == "http://127.0.0.1:4001"
    write_config(tmp_path, json.dumps({member: "https://file.example/"}))
    assert settings_in(tmp_path).base_url(member) == "https://file.example"
    named = {variable: "https://variable.example"}
    assert settings_in(tmp_path, **named).base_url(member) == "https://variable.example"
    flags = {member: "https://flag.example"}
    assert settings_in(tmp_path, flags=flags, **named).base_url(member) == "https://flag.example"


def test_pages_and_models_are_at_the_management_api_unless_they_are_named(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, LLMGATEWAY_API_URL="https://gateway.example/team")
    assert settings.dashboard_url == settings.gateway_url == "https://gateway.example/team"


@pytest.mark.parametrize(
    "url", ["https://gateway.example", "http://localhost:1", "http://127.0.0.1:4001/a", "http://[::1]:80"]
)
def test_good_base_urls_lose_their_trailing_slashes(url: str) -> None:
    assert checked_url(f"{url}//", "--api-url") == url


@pytest.mark.parametrize(
    "url",
    [
        "http://gateway.example",
        "ftp://localhost",
        "localhost:4001",
        "https://user:word@gateway.example",
        "https://gateway.example?word=b",
        "https://gateway.example/#a",
        "https://gateway.example:port",
        "https://",
    ],
)
def test_bad_base_urls_are_refused_without_their_password(url: str) -> None:
    with pytest.raises(CliError) as raised:
        checked_url(url, "--api-url")
    assert "--api-url" in str(raised.value)
    assert "word" not in str(raised.value)
    assert raised.value.exit_code == 1


@pytest.mark.parametrize("content", [b"[]", b"{", b'{"apiKey": 1}', b'{"apiKey": null}', b'{"a": "\xe9"}', None])
def test_a_damaged_file_is_reported_with_its_path(content: bytes | None, tmp_path: Path) -> None:
    path = tmp_path / "config.json"
    if content is None:
        path.mkdir()
    else:
        path.write_bytes(content)
    with pytest.raises(CliError) as raised:
        _ = settings_in(tmp_path).stored
    assert str(tmp_path) in raised.value.message
    assert "Repair" in raised.value.remedy


def test_the_file_is_private_and_keeps_members_of_other_clients(tmp_path: Path) -> None:
    folder = tmp_path / "config"
    write_config(folder, '{"another": "member", "defaultOrgId": "organization"}')
    folder.chmod(0o755)
    settings_in(folder).save({API_KEY: "llmgtwy_1", "defaultOrgId": None})
    assert json.loads((folder / "config.json").read_text()) == {"another": "member", "apiKey": "llmgtwy_1"}
    assert stat.S_IMODE((folder / "config.json").stat().st_mode) == 0o600
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert [path.name for path in folder.iterdir()] == ["config.json"]


def test_an_interrupted_write_leaves_the_former_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settings_in(tmp_path).save({API_KEY: "former"})

    def interrupt(descriptor: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr("llmgateway_cli.file_replacement.os.fsync", interrupt)
    with pytest.raises(KeyboardInterrupt):
        settings_in(tmp_path).save({API_KEY: "next"})
    assert [path.name for path in tmp_path.iterdir()] == ["config.json"]
    assert settings_in(tmp_path).api_key == "former"


def test_the_key_of_the_environment_beats_the_stored_one(tmp_path: Path) -> None:
    write_config(tmp_path, '{"apiKey": "stored"}')
    assert settings_in(tmp_path).api_key == "stored"
    assert settings_in(tmp_path, LLMGATEWAY_API_KEY="named").api_key == "named"
