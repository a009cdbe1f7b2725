"""A model that has retired names its successor, and is answered by it where the project allows it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.openai import FakeOpenAI
from support.gateways import LocalGateway, local_gateway

from gateway.accounts.projects import ProjectChange, update_project

OLD, NEW = "acme-swift-1", "acme-swift-2"
MODELS = """
[[models]]
id = "acme-swift-1"
name = "Acme Swift 1"
family = "acme"
released = "2025-01-01"
deactivated = "2026-01-01"

[[models]]
id = "acme-swift-2"
name = "Acme Swift 2"
family = "acme"
released = "2026-01-01"
"""
PROVIDER = """
name = "Acme"
protocol = "openai"
address = "{url}"
credential = ["ACME_API_KEY"]
quirks = ["compatible"]
"""
MAPPING = """
[[mappings]]
model = "{model}"
external_id = "{model}"
context_length = 131072
max_output = 8192
prices = {{ prompt = "0.000001", completion = "0.000002" }}
"""


@pytest.fixture
def upstream() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as server:
        yield server


@pytest.fixture
def gateway(settings: Callable[..., Any], tmp_path: Path, upstream: FakeOpenAI) -> Iterator[LocalGateway]:
    folder = tmp_path / "catalogue"
    for name in ("models", "providers"):
        (folder / name).mkdir(parents=True)
    (folder / "models/acme.toml").write_text(MODELS)
    mappings = "".join(MAPPING.format(model=name) for name in (OLD, NEW))
    (folder / "providers/acme.toml").write_text(PROVIDER.format(url=upstream.url) + mappings)
    with local_gateway(settings, GATEWAY_CATALOGUE_PATH=str(folder), ACME_API_KEY="acme-key") as one:
        yield one


def ask(gateway: LocalGateway, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    return httpx.post(f"{gateway.url}/chat/completions", json=body, headers=headers)


def test_the_error_and_the_list_name_the_successor(gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    refused = ask(gateway, OLD)
    assert (refused.status_code, refused.json()["error"]["code"]) == (400, "model_deactivated")
    assert f"its successor is {NEW}" in refused.json()["error"]["message"]
    assert upstream.calls == []
    headers = {"Authorization": f"Bearer {gateway.key}"}
    listed = httpx.get(f"{gateway.url}/models?include_deactivated=true", headers=headers).json()["data"]
    assert {one["id"]: one["successor"] for one in listed if one["id"] in (OLD, NEW)} == {OLD: NEW, NEW: ""}


@pytest.mark.parametrize("prefix", ["", "acme/"], ids=["any provider", "a named provider"])
def test_the_successor_answers_with_a_warning_where_the_project_allows_it(
    gateway: LocalGateway, upstream: FakeOpenAI, prefix: str
) -> None:
    store = gateway.services.store
    change = ProjectChange(settings={"useSuccessors": True})
    update_project(store.database, store.control, gateway.project_id, change, actor="test")
    for _ in range(2):
        answer = ask(gateway, prefix + OLD)
        assert answer.status_code == 200, answer.text
        (warning,) = answer.json()["metadata"]["warnings"]
        assert OLD in warning and NEW in warning
    assert [call.body["model"] for call in upstream.calls] == [NEW, NEW]
    assert set(store.database.query_rows("SELECT asked, served FROM usage")) == {(prefix + OLD, NEW)}
