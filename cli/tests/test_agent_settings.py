"""The settings files that `launch` changes before an agent starts: those of Crush and Gemini CLI."""

import json
from collections.abc import Iterator

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_agents import FakeAgents
from harness.stub_service import StubService


@pytest.fixture
def user(user: Client, agents: FakeAgents) -> Client:
    """A user with an API key in the environment and only the fake agents."""
    user.environment["PATH"] = agents.path
    return user


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


def test_crush_without_settings_gets_a_file(user: Client, agents: FakeAgents) -> None:
    agents.install("crush")
    user.run("launch", "-m", "sandbox-echo", "crush")
    settings = json.loads((user.home / ".config" / "crush" / "crush.json").read_text())
    provider = settings["providers"]["llmgateway"]
    (entry,) = user.document("models", "-s", "sandbox-echo")
    assert settings["$schema"].endswith("/crush.json")
    assert (provider["name"], provider["type"]) == ("LLM Gateway", "openai-compat")
    (model,) = provider["models"]
    assert (model["name"], model["context_window"]) == (entry["name"], entry["context_length"])
    assert settings["models"]["small"] == settings["models"]["large"]


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
