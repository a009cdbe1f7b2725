import pytest
from hypothesis import given
from hypothesis.strategies import text

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


# Each client with the names that x-source may give it, and user agents that it sends.
CLIENTS = """
devpass-code: devpass-code; x devpass-code/1
claude.com/claude-code: claude.com/claude-code; claude-cli/2, x claude-code/1
codex: codex; codex-cli/1, codex_cli_rs/1, codex_tui/1, codex-tui/1, codex_vscode/1, codex_exec/1, Codex/1
opencode: opencode, open-code; opencode/1, x opencode-cli/1
roo-code: roo-code, roo-cline; x Roo-Code/1, roo_code, RooCode/1, roo-cline/1
cline: cline; x Cline/1
kilo-code: kilo-code, kilo; kilo/1, x Kilo-Code/1
cursor: cursor; Cursor/1, x cursor-llm
autohand: autohand; autohand/1, x autohand-code
empryo: empryo; x empryo/1
soulforge: soulforge; SoulForge/1
n8n: n8n; n8n, n8n/1, x n8n-workflow
openclaw: openclaw; openclaw/1
aider: aider; x aider/1
continue: continue; continue/1, x continue-dev
zed: zed; Zed/1, x zed-editor
windsurf: windsurf, codeium; x windsurf/1, codeium/1
github-copilot: github-copilot, copilot; github-copilot/1, x GitHubCopilotChat/1, xcopilot-cli/1, x copilot/1
pi-agent: pi-agent, pi-coding-agent; x pi-agent/1, x pi-coding-agent/1
hermes-agent: hermes-agent, hermes, hermes-agent.nousresearch.com; HermesAgent/1, x hermes-agent/1
crush: crush, charm-crush; crush/1, xcharm-crush/1, x (charm.land/crush)
kimi-code: kimi-code, kimi-cli; kimi-code-1, kimi-cli/1
qwen-code: qwen-code, qwencode; QwenCode/1, x qwen-code/1
factory-droid: factory-droid, factory, droid; factory-cli/1, droid/1, x factory-droid/1
mimo-code: mimo-code, mimocode; x mimocode/1, x mimo-code/1
traycer: traycer, traycer-agents; x traycer/1
foundry-toolkit: foundry-toolkit, ai-toolkit, windows-ai-studio; windows-ai-studio-1, foundry-toolkit-1
openai-sdk: openai-sdk;
"""


def test_each_known_client_has_one_name_whatever_it_says() -> None:
    for row in CLIENTS.strip().splitlines():
        client, _, cues = row.partition(": ")
        names, _, agents = cues.partition(";")
        for name in names.split(", "):
            assert read_source({"x-source": name.upper()}) == client
        assert read_source({"x-title": known_clients().labels[client]}) == client
        for agent in filter(None, agents.strip().split(", ")):
            assert read_source({"user-agent": agent}) == client, agent
    for name in ("x-title", "x-openrouter-title"):
        assert read_source({name: "Hermes Agent"}) == "hermes-agent"
    assert read_source({"http-referer": "https://hermes-agent.nousresearch.com/x"}) == "hermes-agent"


@pytest.mark.parametrize(
    ("value", "source"),
    [
        ("My App", "My App"),
        ("my_app:beta", "my_app:beta"),
        ("app?x=1", "app?x=1"),
        ("Gr\u00fcn", "Gr\u00fcn"),
        ("Grün".encode().decode("latin-1"), "Grün"),
        ("https://me:secret@www.example.com/app/?token=secret#top", "example.com/app"),
        ("www.example.com", "example.com"),
        ("two\tlines\x00 \x7f here", "two lines here"),
        ("a" * 300, "a" * 255),
        ("Claude Code", "claude.com/claude-code"),
        ("https://", ""),
        ("   ", ""),
        ("=HYPERLINK(1)", "=HYPERLINK(1)"),
    ],
)
def test_any_name_of_an_app_is_kept_clean_and_bounded(value, source):
    assert read_source({"x-source": value}) == source


def test_a_name_of_nothing_leaves_the_other_headers_to_name_the_app():
    assert read_source({"x-source": " / ", "user-agent": "cline/3"}) == "cline"


@given(text())
def test_no_x_source_refuses_a_request(value):
    name = read_source({"x-source": value})
    assert len(name) <= 255
    assert "\n" not in name and "\x00" not in name and name == name.strip()
    name.encode()


def test_every_alias_stands_for_one_client_and_has_a_label():
    table = known_clients()
    assert table.canonical("codeium") == "windsurf"
    assert table.labels["claude.com/claude-code"] == "Claude Code"


def test_a_broken_table_is_named(tmp_path):
    path = tmp_path / "clients.toml"
    path.write_text("[[client]]\nid = 'x'\n")
    with pytest.raises(ValueError, match=r"clients.toml"):
        read_clients(path)
