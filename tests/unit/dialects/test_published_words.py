"""Words in the types that vendors publish: each of them is read, and answers end with one of them."""

from typing import Any, Literal, get_args, get_origin

import openai as openai_sdk
import pytest
from google import genai
from openai.types.responses.response_error import ResponseError

from gateway.dialects import anthropic, google, openai, responses_vocabulary
from gateway.errors import InvalidRequest, RateLimited, UpstreamFailed
from gateway.neutral.chat import FinishReason
from gateway.providers.openai.responses_reply import read_failure

FINISH_REASONS = get_args(FinishReason)
PROVIDERS_FAULT = {"server_error", "rate_limit_exceeded", "vector_store_timeout", "data_residency_mismatch"}


def words_of(shape: Any, field: str) -> set[str]:
    """Return the values that a field of a published type may have."""
    waiting, words = [shape.model_fields[field].annotation], set()
    while waiting:
        kind = waiting.pop()
        if get_origin(kind) is Literal:
            words |= set(get_args(kind))
        else:
            waiting.extend(get_args(kind))
    return words


def test_each_finish_reason_of_gemini_ends_an_answer_or_is_a_failure() -> None:
    assert {reason.value for reason in genai.types.FinishReason} == set(google.FINISH_READ) | set(google.FINISH_FAILED)


@pytest.mark.parametrize("reason", FINISH_REASONS)
def test_each_end_of_an_answer_has_a_word_that_clients_know(reason: FinishReason) -> None:
    choice = openai_sdk.types.chat.chat_completion.Choice
    assert openai.FINISH_WRITE[reason] in words_of(choice, "finish_reason")
    assert google.FINISH_WRITE[reason] in genai.types.FinishReason.__members__


def test_levels_of_thinking_are_those_of_gemini() -> None:
    levels = {level.value for level in genai.types.ThinkingLevel} - {"THINKING_LEVEL_UNSPECIFIED"}
    assert {level.upper() for level in google.LEVELS} == levels


@pytest.mark.parametrize(
    ("usage", "tier"),
    [
        ({"trafficType": "ON_DEMAND"}, "default"),
        ({"trafficType": "ON_DEMAND_PRIORITY"}, "priority"),
        ({"trafficType": "ON_DEMAND_FLEX"}, "flex"),
        ({"serviceTier": "standard"}, "default"),
        ({"serviceTier": "priority"}, "priority"),
        ({"serviceTier": "flex"}, "flex"),
        ({"trafficType": "PROVISIONED_THROUGHPUT"}, ""),
    ],
)
def test_gemini_reports_the_tier_that_is_billed(usage: dict[str, str], tier: str) -> None:
    assert google.read_tier(usage) == tier


@pytest.mark.parametrize("tier", ["fast", "us", "fast+us"])
def test_claude_reports_the_tier_that_was_requested(tier: str) -> None:
    fields = anthropic.fields_of_tier(tier)
    assert anthropic.tier_of(fields) == tier and len(fields) == len(tier.split("+"))


def test_gemini_reports_each_status_by_a_code_of_google() -> None:
    # Source: google/rpc/code.proto, which names the HTTP status of each code.
    documented = {
        400: "INVALID_ARGUMENT",
        401: "UNAUTHENTICATED",
        403: "PERMISSION_DENIED",
        404: "NOT_FOUND",
        409: "ABORTED",
        429: "RESOURCE_EXHAUSTED",
        499: "CANCELLED",
        500: "INTERNAL",
        501: "UNIMPLEMENTED",
        503: "UNAVAILABLE",
        504: "DEADLINE_EXCEEDED",
    }
    # Statuses that no code names are those of their nearest one.
    nearest = {402: "FAILED_PRECONDITION", 405: "UNIMPLEMENTED", 408: "DEADLINE_EXCEEDED", 410: "NOT_FOUND"}
    nearest |= {413: "INVALID_ARGUMENT", 502: "UNAVAILABLE", 529: "UNAVAILABLE"}
    for status, code in (documented | nearest).items():
        assert google.rpc_status(status) == code


@pytest.mark.parametrize("code", sorted(words_of(ResponseError, "code") | {"context_length_exceeded"}))
def test_a_failed_response_is_the_callers_fault_unless_the_provider_had_trouble(code: str) -> None:
    error = read_failure({"status": "failed", "error": {"code": code, "message": "No."}})
    assert (error.blame != "caller") == (code in PROVIDERS_FAULT)
    if code.endswith(("policy", "policy_violation")):
        assert error.code == "content_filter"
    elif error.blame == "caller":
        assert responses_vocabulary.error_code(error) == code


def test_an_exhausted_quota_of_the_provider_keeps_its_code() -> None:
    error = UpstreamFailed("x", code="insufficient_quota")
    assert responses_vocabulary.error_code(error) == "insufficient_quota"


def test_other_failed_responses_have_a_published_code() -> None:
    written = [responses_vocabulary.error_code(error) for error in (RateLimited("x"), InvalidRequest("x"))]
    assert written == ["rate_limit_exceeded", "invalid_prompt"]
    assert {*written, responses_vocabulary.error_code(UpstreamFailed("x"))} <= words_of(ResponseError, "code")
