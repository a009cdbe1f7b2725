"""The vocabulary of the AI SDK: types of errors and reasons of the end of an answer."""

import pytest

from gateway.dialects import aisdk
from gateway.errors import (
    Forbidden,
    GatewayError,
    InvalidRequest,
    NoProviderLeft,
    NotFound,
    Overloaded,
    RateLimited,
    Unauthenticated,
    Unavailable,
    UpstreamFailed,
    UpstreamTimeout,
)


@pytest.mark.parametrize(
    "code", ["model_not_found", "model_not_served", "model_deactivated", "unknown_region", "dynamic_route_not_found"]
)
def test_the_sdk_raises_its_error_for_a_model_that_cannot_be_called(code: str) -> None:
    assert aisdk.error_type(NotFound("There is no such model.", code=code)) == "model_not_found"


@pytest.mark.parametrize(
    ("kind", "errors"),
    [
        ("authentication_error", [Unauthenticated]),
        ("forbidden", [Forbidden]),
        ("not_found", [NotFound]),
        ("rate_limit_exceeded", [RateLimited]),
        ("invalid_request_error", [InvalidRequest]),
        (
            "internal_server_error",
            [GatewayError, UpstreamFailed, UpstreamTimeout, NoProviderLeft, Unavailable, Overloaded],
        ),
    ],
)
def test_the_sdk_raises_its_error_for_each_kind_of_failure(kind: str, errors: list[type[GatewayError]]) -> None:
    assert {aisdk.error_type(error("No.")) for error in errors} == {kind}


@pytest.mark.parametrize(
    ("reason", "written"),
    [
        ("stop", "stop"),
        ("stop_sequence", "stop"),
        ("pause", "stop"),
        ("length", "length"),
        ("tool_calls", "tool-calls"),
        ("content_filter", "content-filter"),
        ("refusal", "content-filter"),
    ],
)
def test_an_answer_ends_with_a_reason_that_the_sdk_knows(reason: str, written: str) -> None:
    assert aisdk.FINISH_WRITE[reason] == written
