import pytest

from gateway.errors import InvalidRequest
from gateway.metering.sources import known_clients, read_clients, read_source


@pytest.mark.parametrize(
    ("headers", "source"),
    [
        ({}, ""),
        ({"x-source": "my-app.example"}, "my-app.example"),
        ({"x-source": "https://www.example.com/app/"}, "example.com/app"),
        ({"x-source": "Roo-Cline", "user-agent": "claude-cli/2"}, "roo-code"),
        ({"x-source": "my-app", "user-agent": "claude-cli/2"}, "my-app"),
        ({"user-agent": "claude-cli/2.0.1 (external, cli)"}, "claude.com/claude-code"),
        ({"user-agent": "codex_cli_rs/0.50 (Linux)"}, "codex"),
        ({"user-agent": "Mozilla/5.0 Cursor-LLM"}, "cursor"),
        ({"user-agent": "n8n"}, "n8n"),
        ({"user-agent": "not-n8n"}, ""),
        ({"user-agent": "Mozilla/5.0 MegaClaw-Bot/1"}, "megaclaw-bot"),
        ({"user-agent": "OpenAI/Python 3.51.0"}, ""),
        ({"user-agent": "python-requests/2.34"}, ""),
        ({"http-referer": "https://chat.example.com/", "user-agent": "cline/3"}, "cline"),
        ({"http-referer": "https://chat.example.com/"}, "chat.example.com"),
        ({"http-referer": "https://bad.example/?q=ü"}, ""),
        ({"http-referer": "https://x.example", "x-title": "Hermes Agent"}, "hermes-agent"),
        ({"http-referer": "openclaw"}, "openclaw"),
    ],
)
def test_the_source_of_a_request(headers, source):
    assert read_source(headers) == source


@pytest.mark.parametrize("value", ["a b", "ü", "app?x=1", "a" * 300])
def test_an_invalid_x_source_is_refused(value):
    with pytest.raises(InvalidRequest) as caught:
        read_source({"x-source": value})
    assert caught.value.param == "x-source"


def test_every_alias_stands_for_one_client_and_has_a_label():
    table = known_clients()
    assert table.canonical("codeium") == "windsurf"
    assert table.labels["claude.com/claude-code"] == "Claude Code"


def test_a_broken_table_is_named(tmp_path):
    path = tmp_path / "clients.toml"
    path.write_text("[[client]]\nid = 'x'\n")
    with pytest.raises(ValueError, match="clients.toml"):
        read_clients(path)
