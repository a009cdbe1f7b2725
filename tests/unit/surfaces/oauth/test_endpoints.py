"""Errors of the authorization server that the gateway itself raises, in the words of RFC 6749, section 5.2."""

import pytest

from gateway.errors import GatewayError, Internal, InvalidRequest, RateLimited, Unauthenticated, Unavailable
from gateway.surfaces.oauth.routes import error_body


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (Unauthenticated("The client is unknown."), "invalid_client"),
        (RateLimited("Too many requests."), "temporarily_unavailable"),
        (Unavailable("The database does not answer."), "temporarily_unavailable"),
        (Internal("The gateway has an error."), "server_error"),
        (InvalidRequest("A field is missing."), "invalid_request"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_client_learns_whether_to_try_again(error: GatewayError, code: str) -> None:
    body = error_body(error, "")
    assert (body["error"], body["error_description"]) == (code, error.message)
