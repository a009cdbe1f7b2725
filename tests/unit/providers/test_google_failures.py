import orjson
import pytest
from support.replies import MemoryReply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import GatewayError, InvalidRequest, UpstreamFailed, UpstreamRateLimited, UpstreamRefused
from gateway.providers.google.generate import read_failure
from gateway.providers.protocol import Credential, Target

SECRET = "AIzaSyVeryOwnCredential0123456789"
TARGET = Target(
    Provider("acme", "Acme", "google"), Mapping("acme", "m", "gemini-3-flash"), Credential(SECRET), "https://acme.test"
)


def failure(code: int, status: str, message="It went wrong.", details=None, wrap=lambda body: body, **headers):
    error = {"code": code, "message": message, "status": status} | ({"details": details} if details else {})
    names = {name.replace("_", "-"): text for name, text in headers.items()}
    return read_failure(MemoryReply(orjson.dumps(wrap({"error": error})), headers=names, status=code), TARGET)


RETRY = [{"@type": "type.googleapis.com/google.rpc.RetryInfo", "retryDelay": "34.5s"}]


def test_bad_request_is_the_callers_with_the_words_of_the_provider():
    error = failure(400, "INVALID_ARGUMENT", "Unknown name \"foo\" at 'tools[0]': Cannot find field.")
    assert isinstance(error, InvalidRequest)
    assert (error.blame, error.code, error.message[:12]) == ("caller", "invalid_argument", "Unknown name")


def test_exhausted_resource_waits_as_long_as_the_body_says():
    error = failure(429, "RESOURCE_EXHAUSTED", "You exceeded your current quota", RETRY)
    assert isinstance(error, UpstreamRateLimited) and error.retry_after == 34.5


def test_the_header_wins_over_the_body():
    assert failure(429, "RESOURCE_EXHAUSTED", details=RETRY, retry_after="7").retry_after == 7


@pytest.mark.parametrize("delay", ["soon", "", "-1s", 34, "nans"])
def test_odd_delay_does_no_harm(delay):
    wait = failure(429, "RESOURCE_EXHAUSTED", details=[{"retryDelay": delay}]).retry_after
    assert wait is None or 0 <= wait <= 86400


@pytest.mark.parametrize(
    ("code", "status", "details"),
    [
        (400, "INVALID_ARGUMENT", [{"reason": "API_KEY_INVALID", "domain": "googleapis.com"}]),
        (400, "FAILED_PRECONDITION", None),
        (401, "UNAUTHENTICATED", None),
        (403, "PERMISSION_DENIED", None),
        (404, "NOT_FOUND", None),
    ],
)
def test_credential_account_and_model_are_the_providers_side(code, status, details):
    error = failure(code, status, details=details)
    assert isinstance(error, UpstreamRefused) and error.blame == "provider"


@pytest.mark.parametrize(
    ("code", "status"), [(500, "INTERNAL"), (503, "UNAVAILABLE"), (499, "CANCELLED"), (504, "DEADLINE_EXCEEDED")]
)
def test_failure_of_the_provider_is_its_own(code, status):
    error = failure(code, status)
    assert isinstance(error, UpstreamFailed) and error.blame == "provider"


def test_list_of_one_error_is_read_too():
    error = failure(429, "RESOURCE_EXHAUSTED", details=RETRY, wrap=lambda body: [body])
    assert error.retry_after == 34.5


def test_secrets_are_hidden():
    error = failure(400, "INVALID_ARGUMENT", f"key={SECRET} is odd")
    assert SECRET not in error.message + str(error.details)


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b"[7]", b'{"error":7}', b'{"error":{"details":{}}}'])
def test_any_body_gives_an_error(body):
    for status in (302, 400, 429, 503):
        assert isinstance(read_failure(MemoryReply(body, headers={}, status=status), TARGET), GatewayError)
