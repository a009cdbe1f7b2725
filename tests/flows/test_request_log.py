"""The request log through the whole gateway: every paid route, both lanes, whatever became of the request."""

import http.client
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import LocalGateway, local_gateway
from support.spending import ALIKE, BODIES, STREAMED, say_in_headers, until, with_model, write_mint

from gateway.accounts.members import list_members
from gateway.configuration import settings as settings_module
from gateway.configuration.settings import Settings

PATHS = [path for path in BODIES if path not in ALIKE]
CHAT = "/v1/chat/completions"
JSON = {"Content-Type": "application/json"}


@pytest.fixture(scope="module")
def mint() -> Iterator[FakeUpstream]:
    with FakeUpstream() as fake:
        yield fake


@pytest.fixture(scope="module")
def make_settings(tmp_path_factory) -> Callable[..., Settings]:
    data = tmp_path_factory.mktemp("data")
    return lambda **more: settings_module.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(data)} | more)


@pytest.fixture(scope="module")
def module_gateway(
    make_settings: Callable[..., Settings], tmp_path_factory, mint: FakeUpstream
) -> Iterator[LocalGateway]:
    folder: Path = tmp_path_factory.mktemp("catalogue")
    with local_gateway(make_settings, **write_mint(folder, mint.url)) as running:
        yield running


@pytest.fixture
def gateway(module_gateway: LocalGateway) -> LocalGateway:
    # Tables belong to the store that was opened last, which may be another test's.
    module_gateway.services.store.database.bind()
    return module_gateway


def send(gateway: LocalGateway, path: str, text: str, label: str, **more: Any) -> httpx.Response:
    own = {"Authorization": f"Bearer {gateway.key}", "x-request-id": label} | JSON | more.pop("headers", {})
    body = {"model": "mint/coin"} | BODIES[path](text) | more
    headers = own | say_in_headers(path, body)
    body = with_model(path, body, body["model"]) if "model" in more else body
    with httpx.Client(timeout=20) as client:
        return client.post(gateway.address + path, content=json.dumps(body), headers=headers)


def look_up(gateway: LocalGateway, label: str) -> dict[str, Any]:
    services = gateway.services
    services.store.journal.flush(60)
    owner = list_members(services.store.database)[0]
    token = services.management.sessions.open(owner.user_id).token
    with httpx.Client(timeout=20) as client:
        answer = client.get(f"{gateway.address}/logs/{label}", headers={"Authorization": f"Bearer {token}"})
    return answer.json()


@pytest.mark.parametrize("path", PATHS)
def test_a_paid_request_is_in_the_log_with_what_its_caller_said(gateway: LocalGateway, path: str) -> None:
    label = f"said-{list(BODIES).index(path)}"
    assert send(gateway, path, "Hello", label, headers={"X-LLMGateway-Team": "search"}).status_code == 200
    found = look_up(gateway, label)
    assert found["log"]["metadata"] == {"team": "search"} and found["log"]["status"] == 200
    assert [attempt["provider"] for attempt in found["attempts"]] == [found["log"]["provider"]]
    assert found["log"]["cost"] == found["attempts"][0]["cost"] and found["routing"]["selectionReason"]


OPENAI_USERS = (CHAT, "/v1/completions", "/v1/embeddings", "/v1/images/generations", "/v1/responses")


@pytest.mark.parametrize("path", OPENAI_USERS)
def test_the_user_of_a_body_is_its_metadata_where_no_header_says_otherwise(gateway: LocalGateway, path: str) -> None:
    label = f"user-{OPENAI_USERS.index(path)}"
    assert send(gateway, path, "Hello", label, user="customer-17").status_code == 200
    assert look_up(gateway, label)["log"]["metadata"] == {"user": "customer-17"}
    headers = {"X-LLMGateway-User": "from-header"}
    assert send(gateway, path, "Hello", f"{label}-header", user="customer-17", headers=headers).status_code == 200
    assert look_up(gateway, f"{label}-header")["log"]["metadata"] == {"user": "from-header"}


@pytest.mark.parametrize("path", (CHAT, "/v1/responses"))
def test_the_metadata_of_a_body_joins_that_of_headers(gateway: LocalGateway, path: str) -> None:
    label = f"joined-{path[4:8]}"
    more = {"metadata": {"Team": "body", "Feature": "f" * 300}, "headers": {"X-LLMGateway-Team": "search"}}
    assert send(gateway, path, "Hello", label, **more).status_code == 200
    assert look_up(gateway, label)["log"]["metadata"] == {"team": "search", "feature": "f" * 256}


@pytest.mark.parametrize("metadata", (None, [], "text", 3, {"deep": {"er": 1}, "list": []}, {}))
def test_metadata_of_another_type_has_no_effect(gateway: LocalGateway, metadata: Any) -> None:
    label = f"typed-{type(metadata).__name__}-{len(str(metadata))}"
    assert send(gateway, CHAT, "Hello", label, metadata=metadata).status_code == 200
    assert look_up(gateway, label)["log"]["metadata"] == {}


@pytest.mark.parametrize("path", PATHS)
def test_a_refused_request_is_in_the_log_with_its_code(gateway: LocalGateway, path: str) -> None:
    label = f"refused-{list(BODIES).index(path)}"
    status = send(gateway, path, "Hello", label, model="no/such").status_code
    found = look_up(gateway, label)["log"]
    assert (found["status"], found["path"], found["model"], found["attempts"]) == (status, path, "no/such", 0)
    assert found["error"] == "model_not_found"


@pytest.mark.parametrize("path", STREAMED)
def test_a_stream_is_in_the_log_once_it_has_ended(gateway: LocalGateway, path: str) -> None:
    label = f"streamed-{list(BODIES).index(path)}"
    headers = {"X-LLMGateway-Team": "streams"}
    assert send(gateway, path, "Hello", label, stream=True, headers=headers).status_code == 200
    assert until(lambda: look_up(gateway, label).get("log", {}).get("metadata") == {"team": "streams"})
    assert look_up(gateway, label)["log"]["streamed"] is True


def test_a_caller_who_hangs_up_is_distinguished(gateway: LocalGateway) -> None:
    connection = http.client.HTTPConnection(gateway.address.removeprefix("http://"), timeout=20)
    body = {"model": "mint/coin", "stream": True, "max_tokens": 400} | BODIES[CHAT]("tokens:400 gap:0.02")
    headers = {"Authorization": f"Bearer {gateway.key}", "x-request-id": "left"} | JSON
    connection.request("POST", CHAT, json.dumps(body | {"model": "mint/coin"}), headers)
    connection.getresponse().read(700)
    connection.close()
    assert until(lambda: look_up(gateway, "left").get("log", {}).get("finish") == "client_disconnect")
    found = look_up(gateway, "left")["log"]
    assert (found["status"], found["error"]) == (200, "request_cancelled")


def test_a_request_that_failed_everywhere_shows_the_error_of_its_caller(settings, tmp_path: Path) -> None:
    with local_gateway(settings, **write_mint(tmp_path / "catalogue", "http://127.0.0.1:9/v1")) as gateway:
        answer = send(gateway, CHAT, "Hello", "failed")
        found = look_up(gateway, "failed")
    assert (found["log"]["status"], found["log"]["error"]) == (answer.status_code, answer.json()["error"]["code"])
    assert (
        found["attempts"] and all(attempt["error"] for attempt in found["attempts"]) and found["log"]["served"] is None
    )


def test_a_request_that_got_an_earlier_answer_again_is_in_the_log_too(gateway: LocalGateway) -> None:
    answers = [send(gateway, CHAT, "Hello", label, headers={"Idempotency-Key": "k"}) for label in ("made", "again")]
    assert answers[1].headers["idempotent-replayed"] == "true"
    original, again = look_up(gateway, "made"), look_up(gateway, "again")
    assert len(original["attempts"]) == 1 and again["attempts"] == [] and again["log"]["status"] == 200
    assert (again["log"]["cost"], again["log"]["model"], again["log"]["error"]) == ("0", "mint/coin", None)
