"""Repeated requests: which are the same, and what their answers say."""

import pytest

from gateway.engine.idempotency import StoredReply
from gateway.surfaces.web.http import Inbound
from gateway.surfaces.web.operation_guard import _replayed_headers, _request_content


@pytest.mark.parametrize(
    "header",
    [
        *("ai-language-model-id", "ai-language-model-streaming", "ai-language-model-specification-version"),
        *("x-llmgateway-models", "x-llmgateway-provider"),
    ],
)
def test_a_repeated_request_with_another_choice_in_its_headers_is_another_request(header: str) -> None:
    first, other = (_request_content(Inbound("POST", "/v1/x", {header: value})) for value in "ab")
    assert first != other
    retried = Inbound("POST", "/v1/x", {header: "a", "x-stainless-retry-count": "1"})
    assert _request_content(retried) == first


@pytest.mark.parametrize(
    "header",
    [
        *("X-Request-Id", "Request-Id", "X-LLMGateway-Cost", "X-LLMGateway-Overhead-Ms"),
        *("RateLimit", "RateLimit-Policy", "X-RateLimit-Limit-Requests", "anthropic-ratelimit-tokens-remaining"),
    ],
)
def test_a_replayed_answer_has_no_header_that_was_true_of_the_first_alone(header: str) -> None:
    replayed = dict(_replayed_headers(StoredReply(200, [(header, "first"), ("Content-Type", "text/plain")], b""), "id"))
    assert "first" not in replayed.values() and replayed["Content-Type"] == "text/plain"
    assert (replayed["x-request-id"], replayed["x-llmgateway-cost"]) == ("id", "0")
