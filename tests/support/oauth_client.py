"""The official MCP client, which gets its token by OAuth and only knows the URL."""

import asyncio
from collections.abc import Callable
from typing import Any

import httpx2
import mcp
from support.oauth import parameters

# A function that gets the authorization URL and returns the final redirect URL of the browser.
Decide = Callable[[str], str]
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
    """The storage of the client."""

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


async def _visit(
    base: str, decide: Decide, storage: Storage, calls: list[Any], back: str
) -> tuple[list[str], list[Any], list[str]]:
    from mcp.client.auth import OAuthClientProvider
    from mcp.client.streamable_http import streamable_http_client
    from mcp.shared.auth import AuthorizationCodeResult, OAuthClientMetadata

    addresses: list[str] = []
    opened: list[str] = []

    async def open_browser(address: str) -> None:
        opened.append(address)

    async def come_back() -> AuthorizationCodeResult:
        query = parameters(decide(opened[-1]))
        return AuthorizationCodeResult(code=query["code"], state=query["state"], iss=query["iss"])

    async def note(request: httpx2.Request) -> None:
        addresses.append(f"{request.method} {request.url.path}")

    metadata = OAuthClientMetadata(client_name="The official client", redirect_uris=[back])
    provider = OAuthClientProvider(f"{base}/mcp", metadata, storage, open_browser, come_back)
    async with (
        httpx2.AsyncClient(auth=provider, timeout=60, event_hooks={"request": [note]}) as http,
        streamable_http_client(f"{base}/mcp", http_client=http) as streams,
        mcp.ClientSession(*streams[:2]) as session,
    ):
        await session.initialize()
        names = [tool.name for tool in (await session.list_tools()).tools]
        return names, [await session.call_tool(name, arguments) for name, arguments in calls], addresses


def visit(
    base: str, decide: Decide, storage: Storage, calls: list[Any], back: str = "http://localhost:3030/callback"
) -> tuple[list[str], list[Any], list[str]]:
    """Return the names of the tools, the result of each call, and all requests; `back` is the redirect URI."""
    return asyncio.run(_visit(base, decide, storage, calls, back))
