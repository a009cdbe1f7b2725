"""The user's own agents, which `agents.json` describes and `launch` starts."""

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.fake_agents import FakeAgents, write_custom_agents

CUSTOM = {
    "id": "mine",
    "label": "My agent",
    "command": "my-agent",
    "args": ["--with", "${model}"],
    "env": {"MY_KEY": "${apiKey}", "MY_URL": "${gatewayUrl}"},
    "defaultModel": "sandbox-echo",
}


@pytest.fixture
def user(user: Client, agents: FakeAgents) -> Client:
    """A user with an API key in the environment and only the fake agents."""
    user.environment["PATH"] = agents.path
    return user


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


def test_an_own_agent_gets_its_model_in_a_variable(user: Client, agents: FakeAgents, account: Account) -> None:
    agents.install("my-agent")
    write_custom_agents(user.folder, CUSTOM | {"args": [], "env": {"MY_MODEL": "${model}"}})
    user.configure(apiKey=account.key)
    user.run("launch", "-m", "sandbox-tools", "mine", LLMGATEWAY_API_KEY="")
    environment = agents.environment("my-agent")
    assert environment["MY_MODEL"] == "sandbox-tools"
    assert environment["LLMGATEWAY_API_KEY"] == account.key
    assert environment["LLMGATEWAY_GATEWAY_URL"] == account.address


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


@pytest.mark.parametrize("text", ["{", "{}", '["x"]', None], ids=["cut", "object", "text", "folder"])
def test_a_damaged_file_of_agents_is_refused(text: str | None, user: Client) -> None:
    path = user.folder / "agents.json"
    user.folder.mkdir()
    if text is None:
        path.mkdir()
    else:
        path.write_text(text)
    message = user.refused("launch", "claude")
    assert str(path) in message and "Repair" in message


def test_two_own_agents_with_one_id_are_refused(user: Client) -> None:
    write_custom_agents(user.folder, CUSTOM, CUSTOM)
    assert "several agents with the id mine" in user.refused("launch", "--list")
