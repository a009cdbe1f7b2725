"""The official client goes the whole OAuth way by itself, from a 401 to every tool."""

import asyncio
from typing import Any

import httpx2
import pytest
from fakes.openai import Answer, FakeOpenAI
from mcp import ClientSession
from mcp.client.auth import OAuthClientProvider
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata
from support.oauth import Person, owner_of, parameters
from support.shared import Tenant

MODEL = "openai/gpt-4o-mini"
CALLS: list[tuple[str, dict[str, Any]]] = [
    ("get-account", {}),
    ("get-usage", {}),
    ("get-usage-breakdown", {"group_by": "model"}),
    ("chat", {"model": MODEL, "messages": [{"role": "user", "content": "Hello"}]}),
    ("generate-image", {"prompt": "A lighthouse", "model": "sandbox/sandbox-image"}),
    ("generate-alt-image", {"prompt": "A boat", "aspect_ratio": "16:9"}),
    ("list-models", {"limit": 3}),
    ("list-image-models", {}),
]


class Storage:
    """What the client keeps."""

    def __init__(self) -> None:
        self.tokens: Any = None
        self.client: Any = None

    async def get_tokens(self) -> Any:
        return self.tokens

    async def set_tokens(self, tokens: Any) -> None:
        self.tokens = tokens

    async def get_client_info(self) -> Any:
        return self.client

    async def set_client_info(self, client_info: Any) -> None:
        self.client = client_info


@pytest.fixture
def person(gateway: Tenant) -> Person:
    return owner_of(gateway)


async def _visit(
    base: str, person: Person, storage: Storage, calls: list[Any]
) -> tuple[list[str], list[Any], list[str]]:
    asked: list[str] = []
    opened: list[str] = []

    async def open_browser(address: str) -> None:
        opened.append(address)

    async def come_back() -> AuthorizationCodeResult:
        told = parameters(person.decide(opened[-1]))
        return AuthorizationCodeResult(code=told["code"], state=told["state"], iss=told["iss"])

    async def note(request: httpx2.Request) -> None:
        asked.append(f"{request.method} {request.url.path}")

    metadata = OAuthClientMetadata(client_name="The official client", redirect_uris=["http://localhost:3030/callback"])
    provider = OAuthClientProvider(f"{base}/mcp", metadata, storage, open_browser, come_back)
    async with (
        httpx2.AsyncClient(auth=provider, trust_env=False, timeout=60, event_hooks={"request": [note]}) as http,
        streamable_http_client(f"{base}/mcp", http_client=http) as streams,
        ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        return names, [await session.call_tool(name, given) for name, given in calls], asked


def test_the_official_client_signs_in_by_itself_and_calls_every_tool(
    gateway: Tenant, person: Person, upstream: FakeOpenAI
) -> None:
    upstream.script(Answer("Good day.", prompt=7, completion=3))
    storage = Storage()
    names, results, _ = asyncio.run(_visit(gateway.address, person, storage, CALLS))
    assert sorted(names) == sorted(name for name, _ in CALLS)
    assert not any(result.is_error for result in results), results
    assert results[3].content[0].text.startswith("Good day.")
    # What it spent is the chosen key's.
    assert results[0].structured_content["role"] == "owner"
    assert storage.tokens.refresh_token and storage.client.client_id


def test_a_client_with_tokens_does_not_ask_its_person_again(gateway: Tenant, person: Person) -> None:
    storage = Storage()
    asyncio.run(_visit(gateway.address, person, storage, []))
    _, _, asked = asyncio.run(_visit(gateway.address, person, storage, [("get-account", {})]))
    assert "POST /oauth/register" not in asked and "POST /oauth/token" not in asked
    # One whose tokens were revoked asks once more, without a loop.
    grants = gateway.services.accounts.oauth.grants
    for grant in grants.list_grants(user_id=gateway.services.accounts.authentication.caller(gateway.key).user_id):
        grants.end(grant.id, "revoked", actor="test")
    _, results, asked = asyncio.run(_visit(gateway.address, person, storage, [("get-account", {})]))
    assert not results[0].is_error and asked.count("POST /oauth/token") == 1
