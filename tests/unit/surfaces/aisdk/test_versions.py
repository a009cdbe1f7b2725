"""Steps from the newest version of a response to older ones, and frames that are written outside of a stream."""

import json
from typing import Any

import pytest
from contract import ai_parts

from gateway.dialects.aisdk import error_type, write_usage
from gateway.errors import (
    Forbidden,
    GatewayError,
    Internal,
    InvalidRequest,
    NotFound,
    OutOfCredits,
    RateLimited,
    SpendingLimitReached,
    Unauthenticated,
    Unavailable,
    UnknownModel,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamTimeout,
)
from gateway.neutral.parts import Media
from gateway.neutral.usage import Usage
from gateway.surfaces.aisdk import writer
from gateway.surfaces.aisdk.routes import ERRORS
from gateway.surfaces.aisdk.writer import FAILED, downgrade_body, downgrade_part, write_file
from gateway.surfaces.web.operation_guard import CapturedStream

USAGE: dict[str, Any] = {
    "inputTokens": {"total": 11, "noCache": 7, "cacheRead": 4, "cacheWrite": 0},
    "outputTokens": {"total": 7, "text": 4, "reasoning": 3},
    "raw": {"cost": 0.1},
}
PICTURE = {"type": "file", "mediaType": "image/png", "data": {"type": "data", "data": "AAAA"}}
BODY: dict[str, Any] = {
    "content": [{"type": "text", "text": "Hello"}, PICTURE],
    "finishReason": {"unified": "stop", "raw": "stop"},
    "usage": USAGE,
    "warnings": [{"type": "unsupported", "feature": "seed"}, {"type": "other", "message": "x"}],
    "response": {},
}


@pytest.mark.parametrize("version", [2, 3, 4])
def test_a_body_matches_the_clients_version(version: int) -> None:
    body = downgrade_body(json.loads(json.dumps(BODY)), version)
    ai_parts.check_body(body, version)
    if version == 2:
        assert body["usage"] == {
            "inputTokens": 11, "outputTokens": 7, "totalTokens": 18, "reasoningTokens": 3, "cachedInputTokens": 4
        }  # fmt: skip
    if version < 4:
        assert body["content"][1]["data"] == "AAAA"


@pytest.mark.parametrize("version", [2, 3, 4])
@pytest.mark.parametrize(
    "part",
    [
        PICTURE,
        writer.write_result("a", "finder", []),
        writer.write_search_call("a", "finder", "{"),
        {"type": "finish", "finishReason": FAILED, "usage": USAGE},
        {"type": "stream-start", "warnings": BODY["warnings"]},
    ],
    ids=lambda part: part["type"],
)
def test_a_part_matches_the_clients_version(part: dict[str, Any], version: int) -> None:
    ai_parts.check_part(downgrade_part(json.loads(json.dumps(part)), version), version)


@pytest.mark.parametrize("arguments", ["", "{", "[]", '{"query": 3}', '{"queries": ["news"]}', '{"query": "news"}'])
def test_a_search_always_has_a_query(arguments: str) -> None:
    given = json.loads(writer.write_search_call("a", "finder", arguments)["input"])
    assert given == {"query": "news" if "news" in arguments else ""}


@pytest.mark.parametrize(
    ("error", "kind"),
    [
        (Unauthenticated("x"), "authentication_error"),
        (InvalidRequest("x"), "invalid_request_error"),
        (UnknownModel("x"), "model_not_found"),
        (NotFound("x"), "not_found"),
        (Forbidden("x"), "forbidden"),
        (RateLimited("x"), "rate_limit_exceeded"),
        (UpstreamRateLimited("x"), "rate_limit_exceeded"),
        (OutOfCredits("x"), "invalid_request_error"),
        (SpendingLimitReached("x"), "invalid_request_error"),
        (InvalidRequest("x", status=424), "failed_dependency"),
        (UpstreamFailed("x"), "internal_server_error"),
        (UpstreamTimeout("x"), "internal_server_error"),
        (UpstreamOverloaded("x"), "internal_server_error"),
        (Unavailable(), "internal_server_error"),
        (Internal("x"), "internal_server_error"),
    ],
)
def test_errors_have_the_types_that_clients_show_apart(error: GatewayError, kind: str) -> None:
    assert error_type(error) == kind


class Unsettled:
    """A payload with a settlement that fails when the whole response has arrived."""

    held = True

    def add(self, piece: bytes) -> None:
        """Retain nothing."""

    def finish(self, status: int) -> None:
        raise Unavailable()

    def end(self, status: int) -> None:
        """Release nothing."""


def test_a_stream_with_failed_settlement_ends_with_a_part_that_every_client_knows() -> None:
    payload: Any = Unsettled()
    stream = CapturedStream(iter([b'data: {"type":"finish"}\n\n']), 200, payload, ERRORS, "id")
    (frame,) = list(stream)
    assert frame.startswith(b"data: {") and frame.endswith(b"\n\n")
    part = json.loads(frame[6:])
    for version in (2, 3, 4):
        ai_parts.check_part(part, version)
    assert part["error"]["statusCode"] == 503 and part["error"]["type"] == "internal_server_error"


def test_the_raw_usage_of_an_answer_without_tokens_agrees_with_the_rest() -> None:
    usage = write_usage(Usage(output=3), {"cost": 0})
    assert usage["inputTokens"]["total"] == usage["raw"]["prompt_tokens"] == 0
    assert usage["raw"]["total_tokens"] == 3


def test_an_image_whose_type_the_provider_does_not_name_is_called_png() -> None:
    assert write_file(Media(url="https://a.example/picture"))["mediaType"] == "image/png"
