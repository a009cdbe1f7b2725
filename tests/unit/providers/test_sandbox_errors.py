"""The sandbox's simulated failures have the words of real ones."""

import orjson

from gateway.providers.sandbox.response import write_fault


def test_each_status_has_its_code_and_an_own_message() -> None:
    codes = {
        400: None,
        401: "invalid_api_key",
        402: "insufficient_quota",
        403: "permission_denied",
        404: "model_not_found",
        408: "request_timeout",
        413: "request_too_large",
        422: None,
        429: "rate_limit_exceeded",
        500: None,
        502: "bad_gateway",
        503: "service_unavailable",
        504: "timeout",
        529: "overloaded",
    }
    errors = {status: orjson.loads(write_fault(status))["error"] for status in codes}
    assert {status: error["code"] for status, error in errors.items()} == codes
    assert len({error["message"] for error in errors.values()}) == len(codes)
    # Other statuses have the words of their class.
    for other, usual in ((418, 400), (507, 500)):
        assert orjson.loads(write_fault(other))["error"] == errors[usual]


def test_a_code_of_a_directive_has_its_message() -> None:
    for code, word in (
        ("context_length_exceeded", "maximum context length"),
        ("content_filter", "content policy"),
        ("content_policy_violation", "content policy"),
        ("insufficient_quota", "quota"),
    ):
        error = orjson.loads(write_fault(400, code))["error"]
        assert error["code"] == code and word in error["message"]
