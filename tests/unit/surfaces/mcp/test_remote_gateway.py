"""Which addresses in MCP_GATEWAY_URL are this gateway's own, to which it sends no request."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from gateway.configuration import settings
from gateway.errors import NotSupported
from gateway.surfaces.mcp.generation import address_of

SETTINGS = settings.load({"GATEWAY_ENV": "test"})


def address(named: str, **server: Any) -> str:
    changed = replace(SETTINGS, server=replace(SETTINGS.server, **server), mcp=replace(SETTINGS.mcp, gateway_url=named))
    ctx: Any = SimpleNamespace(services=SimpleNamespace(settings=changed), caller=SimpleNamespace(by_token=False))
    return address_of(ctx)


def test_a_gateway_that_listens_on_all_interfaces_is_found_under_each_name_of_its_computer() -> None:
    for host in ("", "0.0.0.0", "::", "[::]", "localhost"):
        for named in ("localhost", "127.0.0.1", "[::1]"):
            assert address(f"http://{named}:4001", host=host, port=4001) == "", (host, named)
    with pytest.raises(NotSupported, match="without https"):
        address("http://localhost:4001", host="10.0.0.5", port=4001)


def test_the_usual_port_of_a_public_url_may_be_written_or_left_out() -> None:
    for scheme, port in (("https", 443), ("http", 80)):
        bare = f"{scheme}://llm.example.com"
        assert address(f"{bare}:{port}", public_url=bare) == "" == address(bare, public_url=f"{bare}:{port}")
    assert address("https://llm.example.com:8443", public_url="https://llm.example.com") != ""
