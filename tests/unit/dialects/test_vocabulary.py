"""The words of each dialect, as its vendor documents them: a word that a table loses changes answers."""

import pytest

from gateway.dialects import aisdk, anthropic, cohere, google, openai, responses_vocabulary


@pytest.mark.parametrize(
    ("table", "rows"),
    [
        (
            openai.FINISH_READ,
            {
                "stop": "stop",
                "length": "length",
                "tool_calls": "tool_calls",
                "content_filter": "content_filter",
                "function_call": "tool_calls",
                "eos": "stop",
                "eos_token": "stop",
                "end_turn": "stop",
                "stop_sequence": "stop",
                "max_tokens": "length",
                "model_length": "length",
                "tool_use": "tool_calls",
                "sensitive": "content_filter",
                "safety": "content_filter",
                "refusal": "refusal",
            },
        ),
        (
            openai.ERROR_TYPES,
            {
                "rate_limited": "rate_limit_error",
                "upstream_failed": "upstream_error",
                "upstream_timeout": "upstream_timeout",
                "no_provider": "api_error",
                "unavailable": "api_error",
                "overloaded": "overloaded",
                "internal": "api_error",
            },
        ),
        (
            anthropic.STOP_READ,
            {
                "end_turn": "stop",
                "max_tokens": "length",
                "model_context_window_exceeded": "length",
                "stop_sequence": "stop_sequence",
                "tool_use": "tool_calls",
                "pause_turn": "pause",
                "refusal": "refusal",
            },
        ),
        (
            anthropic.ERROR_TYPES,
            {
                400: "invalid_request_error",
                401: "authentication_error",
                402: "billing_error",
                403: "permission_error",
                404: "not_found_error",
                408: "timeout_error",
                413: "request_too_large",
                429: "rate_limit_error",
                504: "timeout_error",
                529: "overloaded_error",
            },
        ),
        (
            google.FINISH_READ,
            {
                "STOP": "stop",
                "FINISH_REASON_UNSPECIFIED": "stop",
                "OTHER": "stop",
                "MAX_TOKENS": "length",
                "CONTINUATION": "length",
                "SAFETY": "content_filter",
                "RECITATION": "content_filter",
                "LANGUAGE": "content_filter",
                "BLOCKLIST": "content_filter",
                "PROHIBITED_CONTENT": "content_filter",
                "SPII": "content_filter",
                "MODEL_ARMOR": "content_filter",
                "ESCALATION": "content_filter",
                "IMAGE_SAFETY": "content_filter",
                "IMAGE_PROHIBITED_CONTENT": "content_filter",
                "IMAGE_RECITATION": "content_filter",
            },
        ),
        (
            google.RPC_STATUSES,
            {
                401: "UNAUTHENTICATED",
                402: "FAILED_PRECONDITION",
                403: "PERMISSION_DENIED",
                404: "NOT_FOUND",
                405: "UNIMPLEMENTED",
                408: "DEADLINE_EXCEEDED",
                409: "ABORTED",
                410: "NOT_FOUND",
                429: "RESOURCE_EXHAUSTED",
                499: "CANCELLED",
                500: "INTERNAL",
                501: "UNIMPLEMENTED",
                504: "DEADLINE_EXCEEDED",
            },
        ),
        (
            cohere.FINISH_READ,
            {
                "COMPLETE": "stop",
                "STOP_SEQUENCE": "stop_sequence",
                "MAX_TOKENS": "length",
                "TOOL_CALL": "tool_calls",
                "ERROR_TOXIC": "content_filter",
            },
        ),
        (
            aisdk.ERROR_TYPES,
            {
                "unauthenticated": "authentication_error",
                "forbidden": "forbidden",
                "not_found": "not_found",
                "rate_limited": "rate_limit_exceeded",
                "upstream_failed": "internal_server_error",
                "upstream_timeout": "internal_server_error",
                "no_provider": "internal_server_error",
                "unavailable": "internal_server_error",
                "overloaded": "internal_server_error",
                "internal": "internal_server_error",
            },
        ),
        (
            responses_vocabulary.INCOMPLETE_READ,
            {
                "max_output_tokens": "length",
                "max_messages": "length",
                "content_filter": "content_filter",
                "steered": "stop",
            },
        ),
    ],
)
def test_a_dialect_has_the_words_of_its_vendor(table: dict[object, str], rows: dict[object, str]) -> None:
    assert dict(table) == rows
