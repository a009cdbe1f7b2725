"""The numbers of errors in JSON-RPC: clients tell a broken message from a refusal by them."""

import pytest

from gateway.errors import Forbidden, GatewayError, Gone, InvalidRequest, NotFound, Unauthenticated
from gateway.surfaces.mcp.json_rpc import refusal_of


@pytest.mark.parametrize(
    ("error", "number"),
    [
        (InvalidRequest("x", code="invalid_json"), -32700),
        (InvalidRequest("x", code="invalid_message"), -32600),
        (InvalidRequest("x", code="request_too_complex"), -32600),
        (InvalidRequest("x", code="unsupported_protocol_version"), -32600),
        (Unauthenticated("x"), -32001),
        (Forbidden("x"), -32001),
        (Gone("x"), -32001),
        (Forbidden("x", code="origin_not_allowed"), -32000),
        (NotFound("x"), -32000),
    ],
)
def test_a_refused_message_has_the_number_of_its_fault(error: GatewayError, number: int) -> None:
    assert refusal_of(None, error).error.code == number
