"""Helpers for flows of media operations: providers at a fake, and the usage rows of a request."""

from collections.abc import Mapping
from typing import Any

from fakes.server import FakeServer
from openai import OpenAI
from support.gateways import LocalGateway

from gateway.metering.usage_table import find


def providers_at(upstream: FakeServer, paths: Mapping[str, str]) -> dict[str, str]:
    """Return an environment in which each provider (as in LLM_<NAME>_…) has its path of the fake as base URL."""
    keys = {f"LLM_{name}_API_KEY": f"{name}-key" for name in paths}
    return keys | {f"LLM_{name}_BASE_URL": upstream.address + path for name, path in paths.items()}


def sdk_of(gateway: LocalGateway) -> OpenAI:
    return OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)


def row_of(gateway: LocalGateway, request_id: str) -> Any:
    """Return the only usage row of a request, by its public id or its logged id."""
    gateway.services.store.journal.flush(60)
    (row,) = find(gateway.services.store.database, request_id)
    return row
