"""A model that has retired names its successor, and is answered by it where the project allows it."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.openai import FakeOpenAI
from support.chat_paths import CHAT_PATHS, GEMINI_BODY
from support.gateways import LocalGateway, local_gateway
from support.mcp_visitor import Visitor
from support.spending import BODIES

from gateway.accounts import route_changes
from gateway.accounts.projects import ProjectChange, update_project
from gateway.routes.route_document import read_document

OLD, LATER, NEW = "acme-swift-1", "acme-swift-1-5", "acme-swift-2"
MODELS = """
[[models]]
id = "acme-swift-1"
name = "Acme Swift 1"
family = "acme"
released = "2025-01-01"
deactivated = "2026-01-01"

[[models]]
id = "acme-swift-1-5"
name = "Acme Swift 1.5"
family = "acme"
released = "2025-06-01"

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
"""
MAPPING = """
[[mappings]]
model = "{model}"
external_id = "{model}"
{ended}context_length = 131072
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
    ends = {OLD: "", LATER: 'deactivated = "2026-02-01"\n', NEW: ""}
    mappings = "".join(MAPPING.format(model=name, ended=ended) for name, ended in ends.items())
    (folder / "providers/acme.toml").write_text(PROVIDER.format(url=upstream.url) + mappings)
    elsewhere = PROVIDER.replace("ACME", "OTHER").replace("Acme", "Other").format(url=upstream.url)
    (folder / "providers/other.toml").write_text(elsewhere + MAPPING.format(model=LATER, ended=""))
    with local_gateway(settings, GATEWAY_CATALOGUE_PATH=str(folder), ACME_API_KEY="acme-key") as one:
        yield one


def ask(gateway: LocalGateway, model: str) -> httpx.Response:
    body = {"model": model, "messages": [{"role": "user", "content": "Hello?"}]}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    return httpx.post(f"{gateway.url}/chat/completions", json=body, headers=headers)


def allow_successors(gateway: LocalGateway) -> None:
    store = gateway.services.store
    change = ProjectChange(settings={"useSuccessors": True})
    update_project(store.database, store.control, gateway.project_id, change, actor="test")


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
    allow_successors(gateway)
    for _ in range(2):
        answer = ask(gateway, prefix + OLD)
        assert answer.status_code == 200, answer.text
        (warning,) = answer.json()["metadata"]["warnings"]
        assert OLD in warning and NEW in warning
    assert [call.body["model"] for call in upstream.calls] == [NEW, NEW]
    assert set(store.database.query_rows("SELECT asked, served FROM usage")) == {(prefix + OLD, NEW)}


@pytest.mark.parametrize("name", [LATER, f"acme/{LATER}"], ids=["any provider", "a named provider"])
def test_a_model_that_ended_at_the_only_usable_provider_has_a_successor(
    gateway: LocalGateway, upstream: FakeOpenAI, name: str
) -> None:
    refused = ask(gateway, name)
    assert refused.status_code == 400 and f"its successor is {NEW}" in refused.json()["error"]["message"]
    assert upstream.calls == []
    allow_successors(gateway)
    answer = ask(gateway, name)
    assert answer.status_code == 200, answer.text
    (warning,) = answer.json()["metadata"]["warnings"]
    assert name in warning and NEW in warning


def warn(gateway: LocalGateway, path: str, stream: bool) -> bool:
    """Return whether an answer has the warning in its body."""
    body = GEMINI_BODY
    if path.startswith("/v1beta"):
        path = path.replace("dynamic/house", OLD)
        path = path.replace(":generateContent", ":streamGenerateContent?alt=sse") if stream else path
    else:
        body = {**BODIES[path]("Hello."), "model": OLD, **({"stream": True} if stream else {})}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    answer = httpx.post(gateway.address + path, json=body, headers=headers, timeout=30)
    assert answer.status_code == 200, answer.text
    assert "has retired" in answer.headers["x-llmgateway-warnings"]
    return f"its successor {NEW} answered" in answer.text


def test_every_chat_surface_warns_in_its_answer(gateway: LocalGateway) -> None:
    allow_successors(gateway)
    silent = {path for path in CHAT_PATHS for stream in (False, True) if not warn(gateway, path, stream)}
    assert silent == set()
    said = Visitor(gateway).call("chat", model=OLD, messages=[{"role": "user", "content": "Hello."}])
    assert f"its successor {NEW} answered" in str(said["content"])


def test_explanation_names_the_requested_model_and_the_successor(gateway: LocalGateway) -> None:
    allow_successors(gateway)
    body = {"model": OLD, "messages": [{"role": "user", "content": "Hello?"}]}
    headers = {"Authorization": f"Bearer {gateway.key}"}
    shown = httpx.post(f"{gateway.url}/route/explain", json=body, headers=headers).json()
    assert (shown["requestedModel"], shown["selectedModel"]) == (OLD, NEW)


def test_a_route_with_a_retired_model_is_served_by_its_successor(gateway: LocalGateway) -> None:
    allow_successors(gateway)
    store = gateway.services.store
    place = (store.database, store.control, gateway.organization_id, "house")
    route_changes.put_route(*place, read_document({"otherwise": OLD}), (), "", actor="test")
    route_changes.publish_route(*place, None, actor="test")
    answer = ask(gateway, "dynamic/house")
    assert answer.status_code == 200, answer.text
    assert any(NEW in warning for warning in answer.json()["metadata"]["warnings"])
