from inspect import signature

import pytest

from gateway import errors
from gateway.dialects import openai as dialect
from gateway.errors import GatewayError, Internal, InvalidRequest, UpstreamTimeout
from gateway.neutral.usage import MAX_UNITS, Usage
from gateway.surfaces.openai.reasoning_details import format_of, vendor_of


def every_error(kind: type = GatewayError) -> list[type]:
    """Return the kinds of errors that are made with a text; the others write it themselves."""
    kinds = [kind, *(deeper for below in kind.__subclasses__() for deeper in every_error(below))]
    return [one for one in kinds if "message" in signature(one).parameters]


@pytest.mark.parametrize("kind", every_error(), ids=lambda kind: kind.__name__)
def test_every_error_has_an_envelope_of_strings(kind):
    body = dialect.error_body(kind("Do this."))["error"]
    assert body.keys() == {"message", "type", "param", "code"}
    assert all(isinstance(text, str) for text in body.values())
    assert body["type"] and body["code"] and body["message"]


@pytest.mark.parametrize(
    ("error", "kind", "code"),
    [
        (errors.InvalidRequest("x"), "invalid_request_error", "invalid_parameters"),
        (errors.ContentRefused("x"), "guardrail_violation", "content_policy_violation"),
        (errors.SpendingLimitReached("x"), "invalid_request_error", "key_limit_reached"),
        (errors.RateLimited("x"), "rate_limit_error", "rate_limit_exceeded"),
        (UpstreamTimeout("x"), "upstream_timeout", "timeout"),
        (errors.StreamTruncated("x"), "upstream_error", "stream_truncated"),
        (errors.Overloaded("x"), "overloaded", "overloaded"),
        (errors.Unavailable("x"), "api_error", "service_unavailable"),
        (errors.NoProviderLeft("x"), "api_error", "no_available_provider"),
        (errors.Internal("x"), "api_error", "internal_error"),
        (InvalidRequest("x", code="client_error"), "client_error", "client_error"),
        (InvalidRequest("x", code="request_timeout", status=408), "timeout_error", "request_timeout"),
    ],
)
def test_error_has_the_type_and_code_of_the_reference(error, kind, code):
    body = dialect.error_body(error)["error"]
    assert (body["type"], body["code"]) == (kind, code)


def test_details_never_replace_the_four_members():
    error = InvalidRequest("x", details={"responseText": "y", "code": "z"})
    body = dialect.error_body(error)["error"]
    assert (body["code"], body["responseText"]) == ("invalid_parameters", "y")


def test_our_own_fault_can_be_quoted():
    assert "req-7" in dialect.error_body(Internal("Oops."), "req-7")["error"]["message"]


@pytest.mark.parametrize("wire", [None, 7, {}, {"cost": 1}])
def test_usage_without_counts_is_none(wire):
    assert dialect.read_usage(wire) is None


@pytest.mark.parametrize(
    ("wire", "usage"),
    [
        ({"prompt_tokens": 9, "completion_tokens": 4, "total_tokens": 13}, Usage(input=9, output=4)),
        ({"prompt_tokens": 9, "completion_tokens": 4, "prompt_cache_hit_tokens": 6}, Usage(3, 6, output=4)),
        ({"prompt_tokens": 9, "completion_tokens": None, "cached_tokens": 99}, Usage(0, 9)),
        ({"prompt_tokens": 9.0, "completion_tokens": -4, "num_search_queries": 2}, Usage(9, searches=2)),
    ],
)
def test_spellings_of_usage_are_understood(wire, usage):
    assert dialect.read_usage(wire) == usage


def test_reasoning_beside_the_completion_is_counted_once():
    wire = {"prompt_tokens": 10, "completion_tokens": 5, "completion_tokens_details": {"reasoning_tokens": 20}}
    assert dialect.read_usage(wire | {"total_tokens": 35}) == Usage(10, output=25, reasoning=20)
    inside = wire | {"completion_tokens": 25, "total_tokens": 35}
    assert dialect.read_usage(inside) == Usage(10, output=25, reasoning=20)


def test_reasoning_outside_the_details_is_counted():
    wire = {"prompt_tokens": 10, "completion_tokens": 5, "reasoning_tokens": 3}
    assert dialect.read_usage(wire) == Usage(10, output=5, reasoning=3)


def test_usage_survives_a_round_trip():
    usage = Usage(
        5, cache_read=4, cache_write=3, cache_write_1h=2, input_audio=1, output=9, reasoning=6, output_image=2
    )
    assert dialect.read_usage(dialect.write_usage(usage)) == usage


@pytest.mark.parametrize("told", [2**31, 2**40, 2**63, 2**70, 1e30, float("inf")])
def test_counts_that_cannot_be_are_cut_where_they_enter(told) -> None:
    usage = dialect.read_usage({"prompt_tokens": told, "completion_tokens": told, "total_tokens": told})
    assert (usage.input, usage.output) == (MAX_UNITS, MAX_UNITS)
    assert dialect.read_usage({"prompt_tokens": -5, "completion_tokens": float("nan")}).input == 0


def test_usage_of_plain_text_has_the_members_of_any_usage():
    plain, rare = dialect.write_usage(Usage(input=1, output=1)), dialect.write_usage(Usage(cache_read=1, reasoning=1))
    assert plain.keys() == rare.keys()
    for details in ("prompt_tokens_details", "completion_tokens_details"):
        assert plain[details].keys() == rare[details].keys()


def test_reasoning_has_the_formats_of_openrouter():
    # OpenRouter's guide, "Reasoning tokens", `format` of reasoning_details.
    formats = {
        "anthropic": "anthropic-claude-v1",
        "google": "google-gemini-v1",
        "responses": "openai-responses-v1",
        "acme": "acme",
        "": "unknown",
    }
    for vendor, name in formats.items():
        assert format_of(vendor) == name and vendor_of(name) == vendor
