"""`models`: the catalogue as a key sees it, and its filters."""

import re

import pytest
from harness.accounts import Account
from harness.client_runs import Client
from harness.stub_service import StubService

from llmgateway_cli.catalogue import capabilities_of


def ids(client: Client, *arguments: str) -> list[str]:
    return [entry["id"] for entry in client.document("models", *arguments)]


def test_a_model_can_do_what_its_entry_or_one_of_its_providers_says() -> None:
    for name in ("tools", "reasoning", "vision", "streaming", "realtime"):
        assert capabilities_of({"providers": [{}, {name: True}]}) == {"text", name}
    for name, member in (("json", "json_output"), ("structured", "structured_outputs"), ("free", "free")):
        assert capabilities_of({member: True}) == {"text", name}


def test_the_public_catalogue_needs_no_key(signed_out: Client) -> None:
    listed = ids(signed_out)
    assert {"auto", "gpt-5.4", "sandbox-echo"} <= set(listed)


def test_a_key_shows_only_the_models_that_it_may_call(user: Client, account: Account) -> None:
    key = account.make_key("restricted")
    rule = {"ruleType": "allow_models", "ruleValue": {"models": ["sandbox-echo"]}}
    account("POST", f"/keys/api/{key['id']}/iam", rule)
    user.environment["LLMGATEWAY_API_KEY"] = key["token"]
    allowed = ids(user)
    assert "sandbox-echo" in allowed and "gpt-5.4" not in allowed


def test_filters_combine(user: Client) -> None:
    assert "sandbox-image" in ids(user, "-c", "image") and "sandbox-echo" not in ids(user, "-c", "IMAGE")
    assert set(ids(user, "-c", "tools", "-p", "Sandbox", "-s", "ECHO")) == {"sandbox-echo"}
    # The search also finds names and aliases.
    assert "sandbox-echo" in ids(user, "-s", "Sandbox Echo")
    assert "gpt-5.4" in ids(user, "-s", "gpt-5.4-2026")
    assert all("vision" in entry for entry in ids(user, "-s", "vision"))


@pytest.mark.parametrize(
    "capability",
    ["text", "image", "audio", "video", "embedding", "rerank", "transcription", "ocr", "tools", "vision", "reasoning"],
)
def test_every_capability_selects_some_models(capability: str, user: Client) -> None:
    chosen = ids(user, "--capability", capability)
    assert 0 < len(chosen) < len(ids(user))


def test_models_that_can_be_called_now(user: Client) -> None:
    available = ids(user, "--available")
    assert "sandbox-echo" in available and "gpt-5.4" not in available


def test_an_unknown_capability_is_refused_with_the_known_ones(user: Client) -> None:
    message = user.refused("models", "-c", "flying")
    assert "No model has the capability 'flying'" in message and "embedding" in message


def test_every_filter_counts(user: Client) -> None:
    both = ids(user, "-c", "image", "-c", "vision")
    assert set(both) == set(ids(user, "-c", "image")) & set(ids(user, "-c", "vision")) and both
    assert set(ids(user, "-p", "openai", "-p", "anthropic")) > set(ids(user, "-p", "anthropic"))
    assert ids(user, "-s", "sandbox", "-s", "echo") == ["sandbox-echo"]


def test_an_unknown_provider_is_refused(user: Client) -> None:
    message = user.refused("models", "-p", "opnai")
    assert "No model has a provider 'opnai'" in message and "openai" in message


def test_no_match_is_no_error(user: Client) -> None:
    finished = user.run("models", "-s", "no such model")
    assert finished.stdout == "" and "No model matches" in finished.stderr
    assert ids(user, "-s", "no such model") == []


def test_a_refused_key_is_an_error_with_a_remedy(user: Client) -> None:
    message = user.refused("models", LLMGATEWAY_API_KEY="llmgtwy_" + "w" * 40)
    assert "LLMGATEWAY_API_KEY" in message and "Request id:" in message


@pytest.mark.parametrize("columns", [40, 80, 200])
@pytest.mark.parametrize("plain", [False, True])
def test_the_table_fits_the_terminal(columns: int, plain: bool, user: Client) -> None:
    environment = {"NO_COLOR": "1"} if plain else {}
    with user.terminal("models", "-s", "sandbox-e", columns=columns, **environment) as terminal:
        text = terminal.end()
    assert all(len(line) <= columns for line in text.splitlines() if not line.startswith("info: "))
    assert not re.search(r"[\d.]…", text) and "$/M OUT" in text
    assert ("\x1b[" in terminal.output) is not plain
    assert "sandbox-echo" in text and "sandbox-embed" in text and "0.50" in text


def test_a_table_in_a_pipe_is_plain_and_complete(user: Client) -> None:
    text = user.run("models", "-s", "sandbox-echo").stdout
    assert "json, reasoning, structured, text, tools, vision" in text and "\x1b" not in text and "128,000" in text


def test_entries_of_other_services_may_lack_members(signed_out: Client) -> None:
    entries = [
        {"id": "bare"},
        {"id": "odd", "providers": [None], "pricing": {"prompt": "much", "completion": [1]}},
        {"name": "no id"},
        7,
    ]
    with StubService({"GET /v1/models": (200, {"data": entries})}) as service:
        text = signed_out.run("models", LLMGATEWAY_API_URL=service.address).stdout
    assert "bare" in text and "odd" in text and "no id" not in text


def test_an_answer_without_a_list_is_reported(signed_out: Client) -> None:
    with StubService({"GET /v1/models": (200, {"models": []})}) as service:
        assert "without a list of models" in signed_out.refused("models", LLMGATEWAY_API_URL=service.address)
