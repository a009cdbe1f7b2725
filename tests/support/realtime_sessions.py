"""Realtime sessions by the official SDK, as several tests open them."""

import contextlib
from collections.abc import Iterator
from typing import Any

import openai
from support.gateways import LocalGateway

MODEL = "gpt-realtime"


@contextlib.contextmanager
def session(gateway: LocalGateway, key: str = "", **query: Any) -> Iterator[Any]:
    """Yield a session after its first event; with the gateway's own key unless another is given."""
    client = openai.OpenAI(base_url=gateway.url, api_key=key or gateway.key, max_retries=0)
    with client.realtime.connect(**{"model": MODEL} | query) as connection:
        assert connection.recv().type == "session.created"
        yield connection


def respond(connection: Any) -> Any:
    """Create a response and return its last event, or an error."""
    connection.response.create()
    while (event := connection.recv()).type not in ("response.done", "error"):
        continue
    return event


def upstream_settings(url: str) -> dict[str, str]:
    """Return the settings of a gateway that calls a fake of OpenAI's realtime API."""
    return {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": url}
