"""A provider's list of models, as each vendor sends it."""

import json
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import pytest

from gateway.catalogue.entries import Mapping, Provider
from gateway.catalogue.offered_models import OfferedModel
from gateway.errors import NotSupported, UpstreamFailed
from gateway.providers import model_lists
from gateway.providers.model_lists import fetch_models
from gateway.providers.protocol import Credential, Target

AUTH = {"anthropic": "x-api-key", "google": "x-goog-api-key", "bedrock": "sigv4"}


def target_of(protocol: str) -> Target:
    provider = Provider("acme", "Acme", protocol, auth=AUTH.get(protocol, "bearer"))
    mapping = Mapping("acme", "", "")
    credential = Credential("secret", "platform")
    return Target(provider=provider, mapping=mapping, credential=credential, address="https://acme.example/v1")


class Client:
    """Answers each request with the next of `pages`; `calls` are the URLs, headers and options."""

    def __init__(self, *pages: Any, status: int = 200) -> None:
        self.pages = list(pages)
        self.status = status
        self.calls: list[tuple[str, dict[str, str], dict[str, Any]]] = []

    def request(self, method, url, headers, body=b"", **options):
        self.calls.append((url, dict(headers), options))
        page = self.pages.pop(0)
        return SimpleNamespace(status=self.status, body=page if isinstance(page, bytes) else json.dumps(page).encode())


def test_a_list_in_the_format_of_openai_is_read_with_limits_and_prices():
    entry = {
        "id": "acme/big-2",
        "created": 1_780_000_000,
        "context_window": 131_072,
        "max_completion_tokens": 8192,
        "pricing": {"prompt": "0.0000008", "completion": "4e-6", "request": "0"},
        "capabilities": {"function_calling": True, "vision": False},
    }
    client = Client({"object": "list", "data": [entry, {"id": "off", "active": False}, "x", {"id": 3}]})
    (model,) = fetch_models(client, target_of("openai"))
    assert model == OfferedModel(
        "acme/big-2",
        released="2026-05-28",
        context_length=131_072,
        max_output=8192,
        prices={"prompt": "0.0000008", "completion": "0.000004"},
        abilities={"tools": True},
    )
    ((url, headers, _),) = client.calls
    assert (url, headers["authorization"]) == ("https://acme.example/v1/models", "Bearer secret")


@pytest.mark.parametrize("protocol", ["openai", "openai-responses", "deepinfra", "xai"])
def test_protocols_beside_openais_have_its_list(protocol):
    assert [model.external_id for model in fetch_models(Client([{"id": "m"}]), target_of(protocol))] == ["m"]


@pytest.mark.parametrize(
    "name", ["context_length", "context_window", "max_context_length", "context_size", "max_model_len"]
)
def test_the_context_has_different_names(name):
    (model,) = fetch_models(Client([{"id": "m", name: 4096}]), target_of("openai"))
    assert model.context_length == 4096


@pytest.mark.parametrize("name", ["max_output", "max_output_tokens", "max_completion_tokens", "max_output_length"])
def test_the_limit_of_the_output_has_different_names(name):
    (model,) = fetch_models(Client([{"id": "m", name: 512}]), target_of("openai"))
    assert model.max_output == 512


def test_prices_and_abilities_of_a_router_are_read():
    prices = {"prompt": "0.000001", "completion": "0.000002"}
    cached = {"input_cache_read": "0.0000001", "input_cache_write": "0.00000125"}
    abilities = {"function_calling": True, "vision": True, "reasoning": True, "audio": True}
    entry = {"id": "m", "pricing": prices | cached | {"request": "0"}, "capabilities": abilities}
    (model,) = fetch_models(Client([entry]), target_of("openai"))
    assert (model.prices, model.abilities) == (prices | cached, {"tools": True, "vision": True, "reasoning": True})


@pytest.mark.parametrize(
    ("method", "operations"),
    [
        ("generateContent", ("chat",)),
        ("embedContent", ("embeddings",)),
        ("batchEmbedContents", ("embeddings",)),
        ("predictLongRunning", ()),
    ],
)
def test_methods_of_gemini_are_operations(method, operations):
    page = {"models": [{"name": "models/m", "supportedGenerationMethods": [method]}]}
    (model,) = fetch_models(Client(page), target_of("google"))
    assert model.operations == operations


@pytest.mark.parametrize(
    "pricing",
    [
        {"prompt": "0.5", "completion": "1"},
        {"prompt": "0.1e-6"},
        {"prompt": 1, "completion": 2},
        "free",
        {"prompt": "NaN", "completion": "-1"},
    ],
)
def test_prices_that_are_not_per_token_are_ignored(pricing):
    (model,) = fetch_models(Client([{"id": "m", "pricing": pricing}]), target_of("openai"))
    assert model.prices == {}


def test_the_pages_of_anthropic_are_followed_and_its_dates_read():
    first = {
        "data": [
            {
                "id": "claude-next",
                "display_name": "Claude Next",
                "created_at": "2026-11-20T00:00:00Z",
                "lifecycle": "active",
                "max_input_tokens": 1_000_000,
                "max_tokens": 128_000,
            }
        ],
        "has_more": True,
        "last_id": "claude next",
    }
    second = {
        "data": [
            {
                "id": "claude-old",
                "lifecycle": "deprecated",
                "deprecated_at": "2026-06-01T00:00:00Z",
                "retires_at": "2027-01-05T00:00:00Z",
                "created_at": "1970-01-01T00:00:00Z",
            },
            {"id": "claude-gone", "lifecycle": "retired"},
        ],
        "has_more": False,
    }
    client = Client(first, second)
    new, old = fetch_models(client, target_of("anthropic"))
    assert (new.name, new.released, new.context_length, new.max_output) == ("Claude Next", "2026-11-20", 10**6, 128_000)
    assert (old.deprecated, old.deactivated, old.released) == ("2026-06-01", "2027-01-05", "")
    assert parse_qs(urlsplit(client.calls[1][0]).query) == {"limit": ["1000"], "after_id": ["claude next"]}
    assert client.calls[0][1]["x-api-key"] == "secret"


def test_the_pages_of_google_are_followed_and_its_methods_are_operations():
    entry = {
        "name": "models/gemini-9",
        "displayName": "Gemini 9",
        "inputTokenLimit": 2_000_000,
        "outputTokenLimit": 65_536,
        "supportedGenerationMethods": ["generateContent", "countTokens"],
        "thinking": True,
    }
    vectors = {"name": "models/embed-9", "supportedGenerationMethods": ["embedContent"], "outputTokenLimit": 1}
    client = Client({"models": [entry], "nextPageToken": "a/b"}, {"models": [vectors]})
    chat, embed = fetch_models(client, target_of("google"))
    assert (chat.external_id, chat.operations, chat.abilities) == ("gemini-9", ("chat",), {"reasoning": True})
    assert (embed.operations, embed.max_output) == (("embeddings",), 0)
    assert client.calls[1][0].endswith("?pageSize=1000&pageToken=a%2Fb")


def test_the_call_is_as_guarded_as_calls_of_models():
    client = Client({"data": []})
    target = target_of("openai")
    fetch_models(client, target)
    assert client.calls[0][2]["trusted"] is target.trusted


@pytest.mark.parametrize("page", [b"<html>", {"error": "no"}, {"data": {}}, b"3"])
def test_an_answer_that_is_no_list_is_an_error(page):
    with pytest.raises(UpstreamFailed, match="Acme does not list its models"):
        fetch_models(Client(page), target_of("openai"))


def test_an_error_of_the_provider_shows_its_status_but_no_text():
    with pytest.raises(UpstreamFailed) as caught:
        fetch_models(Client({"error": "bad key secret"}, status=401), target_of("openai"))
    assert "status 401" in caught.value.message and "secret" not in caught.value.message


def test_an_endless_list_ends():
    pages = [{"models": [{"name": f"models/{n}"}], "nextPageToken": "next"} for n in range(model_lists.PAGES + 1)]
    with pytest.raises(UpstreamFailed, match="lists more than"):
        fetch_models(Client(*pages), target_of("google"))


def test_a_protocol_without_a_list_is_refused():
    with pytest.raises(NotSupported):
        fetch_models(Client(), target_of("bedrock"))


def test_names_that_cannot_be_shown_are_left_out():
    entries = [{"id": "a\nb"}, {"id": "x" * 201}, {"id": "good", "name": "\x1b[2J"}]
    (model,) = fetch_models(Client({"data": entries}), target_of("openai"))
    assert (model.external_id, model.name) == ("good", "")
