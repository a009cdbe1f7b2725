import orjson
import pytest
from support.replies import MemoryReply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import (
    ContentRefused,
    GatewayError,
    InvalidRequest,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.providers import failures
from gateway.providers.failures import LOOKED_AT, SECRETS, TEXT_LIMIT, scrub
from gateway.providers.protocol import Credential, Target

SECRET = "zq81-very-own-credential"
TARGET = Target(
    Provider("acme", "Acme", "openai"),
    Mapping("acme", "model-1", "model-1-0125"),
    Credential(SECRET),
    "https://api.acme.test/v1",
)


def failure(status: int, error=None, body: bytes | None = None, **headers: str) -> GatewayError:
    payload = body if body is not None else orjson.dumps({"error": error or {"message": "It went wrong."}})
    named = {name.replace("_", "-"): text for name, text in headers.items()}
    return failures.upstream_failure(MemoryReply(payload, headers=named, status=status), TARGET)


@pytest.mark.parametrize("status", [301, 401, 402, 403, 404, 405, 408, 421, 425, 429, 500, 502, 503, 504, 529])
def test_status_is_the_providers_fault(status):
    error = failure(status)
    assert (error.blame, error.upstream_status) == ("provider", status)


@pytest.mark.parametrize("status", [503, 529])
def test_an_overloaded_provider_is_reported_as_overloaded(status):
    assert isinstance(failure(status), UpstreamOverloaded)


@pytest.mark.parametrize("status", [400, 409, 410, 413, 415, 422])
def test_status_is_the_callers_fault_and_passes(status):
    error = failure(status, {"message": "Bad field.", "param": "messages[0]", "code": "bad"})
    assert (error.blame, error.status, error.message) == ("caller", status, "Bad field.")
    assert (error.param, error.code) == ("messages[0]", "bad")


@pytest.mark.parametrize(
    "message", ["No such File object: file-abc", "File not found: file_011", "The file x does not exist"]
)
def test_a_404_for_a_file_of_the_request_is_the_callers(message):
    error = failure(404, {"message": message, "type": "invalid_request_error", "param": "file_id"})
    assert (error.blame, error.status, error.message) == ("caller", 404, message)


@pytest.mark.parametrize(
    "body", [b"<html>404 file not found</html>", b'{"error": {"message": "model profile not found"}}']
)
def test_any_other_404_is_the_providers(body):
    assert failure(404, body=body).blame == "provider"


@pytest.mark.parametrize(
    "error",
    [
        {"message": "x", "code": "insufficient_quota"},
        {"message": "x", "code": "model_not_found"},
        {"message": "x", "type": "Arrearage"},
        {"message": "Your credit balance is too low to access the API."},
        {"message": "API key not valid. Please pass a valid API key."},
        {"message": "The model `gpt-9` does not exist or you do not have access to it."},
        {"message": "Invalid model: foo"},
    ],
)
def test_bad_request_about_our_account_is_the_providers_fault(error):
    assert isinstance(failure(400, error), UpstreamRefused)


@pytest.mark.parametrize(
    "code",
    [
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "account_deactivated",
        "invalid_api_key",
        "API_KEY_INVALID",
        "model_not_found",
        "model_not_available",
        "model_decommissioned",
        "DeploymentNotFound",
        "invalid_model",
        "Arrearage",
        "AccessDenied",
        "unsupported_country_region_territory",
    ],
)
def test_codes_about_our_account_or_the_model_let_another_provider_answer(code):
    assert isinstance(failure(400, {"message": "Refused.", "code": code}), UpstreamRefused)
    assert isinstance(failure(429, {"message": "Refused.", "code": code}), UpstreamRefused)


OVERFLOWS = (
    {"message": "This model's maximum context length is 10.", "code": "context_length_exceeded"},
    {"message": "prompt is too long: 208310 tokens > 200000 maximum", "type": "invalid_request_error"},
    {"message": "Your input exceeds the context window of this model.", "code": None},
    {"message": "The input token count (1196265) exceeds the maximum number of tokens allowed (1048575).", "code": 400},
    {"message": "This model's maximum prompt length is 131072 but the request contains 537812 tokens.", "code": "x"},
    {"message": "Please reduce the length of the messages or completion."},
    {
        "message": "the request exceeds the available context size. try increasing it",
        "type": "exceed_context_size_error",
    },
    {"message": "The model is loaded with context length of only 4096 tokens, which is not enough."},
    {"message": "The decoder prompt (length 9000) is longer than the maximum model length of 4096."},
    {"message": "The input (9000 tokens) is longer than the model's context length (4096 tokens)."},
    {"message": "input length and `max_tokens` exceed context limit: 188240 + 21333 > 200000, decrease either"},
    {"message": "Unable to submit request: the input token count is 1200000 but the model only supports 1048576."},
    {"message": "prompt token count of 140000 exceeds the limit of 128000", "code": "invalid_request_body"},
    {"message": "Total message token length exceed model limit (8192)", "code": "InvalidParameter"},
    {"message": "The sum of prompt length (35000.0), query length (0) should not exceed max_num_tokens (32768)"},
    {"message": "Context size has been exceeded."},
    {
        "message": "Request too large for model `m` on tokens per minute (TPM): Limit 6000.",
        "code": "rate_limit_exceeded",
    },
)


@pytest.mark.parametrize("error", OVERFLOWS)
def test_context_that_is_too_long_is_the_callers_fault_and_has_one_code(error):
    for status in (400, 413, 422):
        found = failure(status, error)
        assert (found.blame, found.code, found.message) == ("caller", "context_length_exceeded", error["message"])
    inside = failures.stream_failure({"error": error})
    assert (inside.blame, inside.code) == ("caller", "context_length_exceeded")


def test_a_prompt_that_a_service_without_error_objects_finds_too_long_has_the_code_too():
    found = failure(400, body=b'{"message": "Input is too long for requested model."}')
    assert (found.blame, found.code) == ("caller", "context_length_exceeded")


@pytest.mark.parametrize(
    "code",
    [
        "content_policy_violation",
        "content_filter",
        "ResponsibleAIPolicyViolation",
        "data_inspection_failed",
        "moderation_blocked",
    ],
)
def test_refused_content_tries_no_other_provider(code):
    assert isinstance(failure(400, {"code": code}), ContentRefused)
    assert isinstance(failure(400, {"code": "x", "type": code}), ContentRefused)
    assert isinstance(failures.stream_failure({"error": {"code": code, "message": "No."}}), ContentRefused)


@pytest.mark.parametrize(
    ("status", "kind"),
    [(429, UpstreamRateLimited), (504, UpstreamTimeout), (500, UpstreamFailed), (401, UpstreamRefused)],
)
def test_status_has_its_class(status, kind):
    assert type(failure(status)) is kind


def test_an_empty_account_is_distinguished_from_a_rate_limit():
    assert type(failure(429, {"message": "x", "code": "insufficient_quota"})) is UpstreamRefused


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"retry_after": "7"}, 7.0),
        ({"retry_after_ms": "250", "retry_after": "7"}, 0.25),
        ({"retry_after": "Thu, 01 Jan 2026 00:00:30 GMT", "date": "Thu, 01 Jan 2026 00:00:00 GMT"}, 30.0),
        ({"retry_after": "Thu, 01 Jan 2026 00:00:30 GMT"}, None),
        ({"retry_after": "soon"}, None),
        ({"retry_after": "nan"}, None),
        ({"retry_after": "99999999999"}, 86_400.0),
        ({}, None),
    ],
)
def test_time_to_wait_is_read(headers, seconds):
    assert failure(429, **headers).retry_after == seconds


def test_foreign_shape_is_wrapped_with_diagnostics():
    error = failure(422, body=b'{"detail":"Extra inputs are not permitted"}')
    assert (error.code, error.status, error.message) == ("client_error", 422, "Extra inputs are not permitted")
    assert error.details["usedProvider"] == "acme" and error.details["usedInternalModel"] == "model-1-0125"
    assert "Extra inputs" in error.details["responseText"]


def test_page_of_a_proxy_is_capped():
    error = failure(502, body=b"<html>" + b"x" * 100_000)
    assert isinstance(error, UpstreamFailed)
    assert len(error.details["responseText"]) <= failures.TEXT_LIMIT


@pytest.mark.parametrize(
    "secret",
    [
        SECRET,
        "sk-proj-abcdef1234567890",
        "Bearer abcdefghijkl",
        "AIzaSyA1234567890abcdefghij",
        "AKIAABCDEFGHIJKLMNOP",
        "eyJhbGciOi.eyJzdWIiOi.abcdef",
        "https://x.test/?key=abcdefgh12345",
        '"api_key": "0123456789abc"',
    ],
)
@pytest.mark.parametrize("status", [400, 422, 500])
def test_no_secret_survives_in_an_error(secret, status):
    error = failure(status, {"message": f"Bad: {secret} here"})
    told = f"{error.message} {error.details}"
    for word in ("abcdef", "0123456789", "ABCDEF", SECRET, "1234567890"):
        assert word not in told


def test_words_on_a_credential_are_never_shown():
    error = failure(401, {"message": "Incorrect API key provided: my-odd-key."})
    assert "my-odd-key" not in f"{error.message} {error.details}"


def test_error_inside_a_stream_is_the_providers():
    assert type(failures.stream_failure({"error": {"message": "x", "code": 429}})) is UpstreamRateLimited
    assert type(failures.stream_failure({"error": "overloaded"})) is UpstreamFailed
    assert isinstance(failures.stream_failure({"error": {"code": "content_filter", "message": "x"}}), InvalidRequest)


@pytest.mark.parametrize(
    "body",
    [
        {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "Field required", "type": "missing"}]},
        {"object": "error", "message": {"detail": [{"loc": ["body", "messages", 0, "role"], "msg": "Field required"}]}},
    ],
)
def test_list_of_shape_errors_is_reported_with_its_place(body):
    error = failure(422, body=orjson.dumps(body))
    assert (error.message, error.param) == ("messages.0.role: Field required", "messages.0.role")


@pytest.mark.parametrize("detail", [[], ["x"], [{"msg": 1}], [{"loc": "x", "msg": "No."}], {"a": 1}])
def test_odd_list_of_errors_breaks_nothing(detail):
    assert failure(422, body=orjson.dumps({"detail": detail})).status == 422


@pytest.mark.parametrize("tail", ["", "sk-" + "k" * 40])
def test_the_read_part_of_a_long_text_is_bounded(monkeypatch, tail):
    """One that is made for it would take time by its square, and who makes it may be a caller's own provider."""
    looked = []

    class Spy:
        def sub(self, hidden, text):
            looked.append(len(text))
            return SECRETS.sub(hidden, text)

    monkeypatch.setattr(failures, "SECRETS", Spy())
    text = scrub("word " * 818 + tail + "eyJaaaaa-" * 200_000)
    assert looked[0] <= LOOKED_AT and len(text) <= TEXT_LIMIT and text.startswith("word word")


def test_a_key_that_the_cut_goes_through_is_not_shown():
    """The text before the key may be masked, which moves the key into the part that is shown."""
    key = "sk-" + "k" * 40
    text = scrub(f"{key} " * 92 + "sk-" + "q" * 400)
    assert "q" not in text and "k" * 9 not in text


@pytest.mark.parametrize(
    "message",
    [
        "messages.1.content.0: Invalid `signature` in `thinking` block",
        "messages.1.content.0: Invalid signature in thinking block (Service: BedrockRuntime, Status Code: 400)",
        "messages.3.content.0: Invalid `data` in `redacted_thinking` block",
        "messages.369.content.0.thinking.signature: Field required",
        "messages.1.content.0.thinking.signature.str: Input should be a valid string",
        "Corrupted thought signature.",
        "Unable to submit request because Thought signature is not valid.",
        "Invalid thought signature.",
    ],
)
def test_a_refused_signature_has_the_code_of_an_encrypted_part(message):
    assert failure(400, {"message": message, "type": "invalid_request_error"}).code == "invalid_encrypted_content"


def test_a_missing_signature_of_a_call_is_another_error():
    error = failure(400, {"message": "Function call is missing a thought_signature in functionCall parts."})
    assert error.code == "invalid_request"
