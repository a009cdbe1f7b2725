import anthropic
import pytest

from gateway.dialects import anthropic as dialect
from gateway.errors import InvalidRequest, Overloaded, SpendingLimitReached, UpstreamTimeout
from gateway.neutral.usage import Usage


def test_each_status_has_the_type_that_anthropic_documents():
    types = {
        "invalid_request_error": (400, 405, 409, 422),
        "authentication_error": (401,),
        "billing_error": (402,),
        "permission_error": (403,),
        "not_found_error": (404,),
        "request_too_large": (413,),
        "rate_limit_error": (429,),
        "api_error": (500, 502, 503),
        "timeout_error": (408, 504),
        "overloaded_error": (529,),
    }
    for kind, statuses in types.items():
        assert {dialect.error_type(status) for status in statuses} == {kind}


@pytest.mark.parametrize(
    "error", [InvalidRequest("x", param="a.b"), SpendingLimitReached("x"), UpstreamTimeout("x"), Overloaded("x")]
)
def test_the_envelope_has_type_message_param_and_code(error):
    body = dialect.error_body(error, "r1")
    assert (body["type"], body["request_id"]) == ("error", "r1")
    inner = body["error"]
    assert inner["message"] == "x" and inner["code"] == error.code and inner["param"] == error.param


def test_a_too_long_prompt_is_refused_in_words_that_agents_parse():
    said = "This model's maximum context length is 10 tokens."
    inner = dialect.error_body(InvalidRequest(said, code="context_length_exceeded"), "r1")["error"]
    assert inner["message"] == f"prompt is too long: {said}"
    for own in (
        "Prompt is too long: 11 tokens > 10 maximum",
        "input and `max_tokens` exceed context limit: 9 + 2 > 10",
    ):
        error = InvalidRequest(own, code="context_length_exceeded")
        assert dialect.error_body(error, "r1")["error"]["message"] == own


def test_details_never_replace_the_envelopes_own_members():
    error = InvalidRequest("x", details={"message": "y", "usedProvider": "p"})
    inner = dialect.error_body(error, "r1")["error"]
    assert (inner["message"], inner["usedProvider"]) == ("x", "p")


def test_usage_comes_back_as_it_went():
    usage = Usage(input=10, cache_read=20, cache_write=3, cache_write_1h=4, output=50, reasoning=30, searches=2)
    wire = dialect.write_usage(usage)
    anthropic.types.Usage.model_validate(wire)
    assert dialect.read_usage(wire) == usage


def test_written_tokens_without_a_lifetime_count_for_five_minutes():
    wire = {"input_tokens": 1, "output_tokens": 2, "cache_creation_input_tokens": 9}
    assert dialect.read_usage(wire) == Usage(input=1, output=2, cache_write=9)


@pytest.mark.parametrize("wire", [None, {}, [], {"service_tier": "standard"}])
def test_absent_usage_is_read_as_none(wire):
    assert dialect.read_usage(wire) is None


def test_odd_counts_are_nothing():
    wire = {"input_tokens": -5, "output_tokens": "many", "cache_read_input_tokens": True, "server_tool_use": []}
    assert dialect.read_usage(wire) == Usage()
