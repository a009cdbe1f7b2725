"""The session's digest as the prompt cache key of providers that take one, where the caller sends none."""

from typing import Any

import httpx
import pytest
from fakes.openai import FakeOpenAI
from support.gateways import LocalGateway
from support.shared import Share

from gateway.accounts.keys import Draft, create
from gateway.accounts.projects import ProjectChange, create_project, update_project

SESSION = "57a121ec-f78c-48c3-a745-e3036a3ecc33"
HELLO = [{"role": "user", "content": "Hello"}]
CHAT, MESSAGES, RESPONSES = "/v1/chat/completions", "/v1/messages", "/v1/responses"
BODIES: dict[str, dict[str, Any]] = {
    CHAT: {"messages": HELLO},
    MESSAGES: {"messages": HELLO, "max_tokens": 20},
    RESPONSES: {"input": "Hello", "store": False},
}
OPENAI, GROK, GROQ = "openai/gpt-4o-mini", "xai/grok-4.5", "groq/llama-3.3-70b-versatile"


@pytest.fixture
def vendor(share: Share) -> FakeOpenAI:
    return share.fake(FakeOpenAI)


@pytest.fixture
def gateway(share: Share, vendor: FakeOpenAI) -> LocalGateway:
    names = ("OPENAI", "X_AI", "GROQ")
    return share.gateway(
        {f"LLM_{name}_API_KEY": "sk-up" for name in names}
        | {f"LLM_{name}_BASE_URL": vendor.url for name in ("OPENAI", "XAI", "GROQ")}
    )


def send(gateway: LocalGateway, path: str = CHAT, *, key: str = "", session: str = SESSION, **body: Any) -> None:
    headers = {"Authorization": f"Bearer {key or gateway.key}", **({"X-Session-Id": session} if session else {})}
    with httpx.Client(timeout=60) as http:
        answer = http.post(gateway.address + path, headers=headers, json={"model": OPENAI, **BODIES[path], **body})
    assert answer.status_code == 200, answer.text


def key_of(vendor: FakeOpenAI) -> str | None:
    return vendor.calls[-1].body.get("prompt_cache_key")


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize("path", BODIES)
def test_a_session_has_one_key_on_every_surface(
    gateway: LocalGateway, vendor: FakeOpenAI, path: str, stream: bool
) -> None:
    send(gateway, path, stream=stream)
    first = key_of(vendor)
    send(gateway, path, stream=stream)
    assert first is not None and len(first) == 64 and key_of(vendor) == first
    send(gateway, path, session="another")
    assert key_of(vendor) not in (None, first)


def test_a_request_without_a_session_has_no_key(gateway: LocalGateway, vendor: FakeOpenAI) -> None:
    send(gateway, session="")
    assert key_of(vendor) is None


def test_the_callers_own_key_comes_first(gateway: LocalGateway, vendor: FakeOpenAI) -> None:
    send(gateway, prompt_cache_key="mine")
    own = key_of(vendor)
    send(gateway, prompt_cache_key="mine", session="another")
    assert own is not None and own == key_of(vendor) != "mine"


def test_no_name_of_a_session_reaches_a_provider(gateway: LocalGateway, vendor: FakeOpenAI) -> None:
    for model in (OPENAI, GROK, GROQ):
        send(gateway, model=model)
        call = vendor.calls[-1]
        assert SESSION not in str((call.body, call.headers))


def test_projects_share_no_key_for_sessions_of_one_name(gateway: LocalGateway, vendor: FakeOpenAI) -> None:
    store = gateway.services.store
    project = create_project(store.database, store.control, gateway.organization_id, "Other", actor="test")
    member = gateway.services.accounts.authentication.caller(gateway.key).member_id
    draft = Draft(project.id, member, "Second")
    token = create(store.database, store.control, store.secrets.hash_keys, draft, actor="test").token
    send(gateway)
    first = key_of(vendor)
    send(gateway, key=token)
    assert key_of(vendor) not in (None, first)


@pytest.mark.parametrize("policy", ["client", "disabled"])
def test_a_project_that_manages_its_cache_gets_no_key(gateway: LocalGateway, vendor: FakeOpenAI, policy: str) -> None:
    store = gateway.services.store
    change = ProjectChange(cache_markers=policy)
    update_project(store.database, store.control, gateway.project_id, change, actor="test")
    send(gateway)
    assert key_of(vendor) is None


def test_a_provider_with_a_header_for_sessions_gets_the_digest_there(gateway: LocalGateway, vendor: FakeOpenAI) -> None:
    send(gateway, model=GROK)
    call = vendor.calls[-1]
    digest = call.headers["x-grok-conv-id"]
    assert len(digest) == 64 and key_of(vendor) is None
    send(gateway, model=GROK, session="")
    assert "x-grok-conv-id" not in vendor.calls[-1].headers
    send(gateway, model=GROQ)
    assert key_of(vendor) is None and "x-grok-conv-id" not in vendor.calls[-1].headers


def test_sessions_share_the_answers_of_the_response_cache(gateway: LocalGateway, vendor: FakeOpenAI) -> None:
    store = gateway.services.store
    change = ProjectChange(cache_enabled=True, cache_ttl_s=60)
    update_project(store.database, store.control, gateway.project_id, change, actor="test")
    send(gateway)
    send(gateway, session="another")
    assert len(vendor.calls) == 1
