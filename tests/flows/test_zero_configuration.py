"""A gateway without any configuration: the view of its callers and the messages that they get."""

from collections.abc import Callable

import httpx
import pytest
from support.gateways import LocalGateway, local_gateway
from support.two_providers import write_twins

from gateway.configuration.settings import Settings

HELLO = [{"role": "user", "content": "Hello"}]


def listed(gateway: LocalGateway, query: str = "", key: str = "") -> list[str]:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    with httpx.Client(headers=headers, timeout=60) as http:
        return [entry["id"] for entry in http.get(f"{gateway.url}/models{query}").json()["data"]]


def post_chat(gateway: LocalGateway, model: str, **more: object) -> httpx.Response:
    headers = {"authorization": f"Bearer {gateway.key}"}
    with httpx.Client(headers=headers, timeout=60) as http:
        return http.post(f"{gateway.url}/chat/completions", json={"model": model, "messages": HELLO, **more})


@pytest.fixture
def bare(settings: Callable[..., Settings]):
    with local_gateway(settings) as gateway:
        yield gateway


def test_auto_and_the_sandbox_can_be_called_without_provider_keys(bare):
    found = listed(bare, "?available=true", bare.key)
    assert found == listed(bare, "?available=true")
    assert "auto" in found and {one.partition("-")[0] for one in found} == {"auto", "claude", "smart", "sandbox"}
    assert len(listed(bare, "", bare.key)) > 10 * len(found)


def test_all_that_is_available_to_a_caller_can_be_called(bare):
    for model in ("auto", "sandbox-echo"):
        assert model in listed(bare, "?available=true", bare.key)
        assert post_chat(bare, model).status_code == 200


def test_a_refusal_for_want_of_a_credential_names_the_variable_to_set(bare):
    error = post_chat(bare, "openai/gpt-4o").json()["error"]
    assert error["code"] == "no_provider_credential" and "OPENAI_API_KEY" in error["message"]
    assert "available=true" in error["message"]
    assert "ANTHROPIC_API_KEY" in post_chat(bare, "claude-haiku-4-5").json()["error"]["message"]


@pytest.mark.parametrize(
    ("model", "more"),
    [("no-such-model", {}), ("sandbox-embed", {}), ("sandbox-fail-503", {})],
)
def test_other_refusals_name_no_variable(bare, model, more):
    answer = post_chat(bare, model, **more)
    assert answer.status_code >= 400 and "API_KEY" not in answer.text


def test_a_key_without_the_setting_that_its_provider_needs_counts_as_none(settings):
    with local_gateway(settings, AZURE_API_KEY="k") as gateway:
        assert not [one for one in listed(gateway, "?available=true&mapped=true") if one.startswith("azure/")]
        message = post_chat(gateway, "azure/gpt-4o").json()["error"]["message"]
    assert "LLM_AZURE_RESOURCE" in message and "AZURE_API_KEY" not in message


def test_a_variable_that_is_set_makes_its_models_available(settings):
    with local_gateway(settings, OPENAI_API_KEY="k") as gateway:
        found = listed(gateway, "?available=true&mapped=true")
    assert "openai/gpt-4o" in found and not [one for one in found if one.startswith("azure/")]


def test_a_model_is_as_large_as_at_the_providers_that_can_be_called(settings, tmp_path):
    """The cheap provider has no key and takes more than the one that serves."""
    environment = write_twins(tmp_path / "own", "http://127.0.0.1:9/v1", "http://127.0.0.1:9/v1") | {"NORTH_KEYS": ""}
    file = tmp_path / "own" / "providers" / "north.toml"
    file.write_text(file.read_text().replace("100000", "900000"))
    with local_gateway(settings, **environment) as gateway, httpx.Client(timeout=60) as http:
        key = {"authorization": f"Bearer {gateway.key}"}

        def sizes(path: str, **headers: str) -> dict:
            answer = http.get(gateway.address + path, headers=headers).json()
            return next((one for one in answer["data"] if one["id"] == "twin"), {}) if "data" in answer else answer

        for path in ("/v1/models", "/v1/models?available=true", "/v1/models/twin"):
            entry = sizes(path, **key)
            assert entry["context_length"] == 100_000 and entry["pricing"]["prompt"] == "0.000002"
        assert sizes("/v1beta/models/twin", **key)["inputTokenLimit"] == 100_000
        assert sizes("/v1/models")["context_length"] == 900_000, "the public catalogue has every provider"
