"""Classifies an upstream's error: which side caused it, which of its text may be shown, and when to retry."""

import re
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from string import ascii_letters, digits
from typing import Any

import orjson
from msgspec import Struct

from gateway.errors import (
    ContentRefused,
    GatewayError,
    InvalidRequest,
    StreamTruncated,
    UpstreamFailed,
    UpstreamOverloaded,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.providers.protocol import Target, UpstreamReply

# Recognizes a provider's error for a prompt that exceeds the model's context.
#
# Agents compact the conversation when they see the code for it, so every provider's error gets the same code. Sources
# of the messages: the error pages of the providers' documentation, and the servers' own source (vLLM, SGLang, TGI,
# llama.cpp, Ollama, TensorRT-LLM).

TOO_LONG = "context_length_exceeded"
CODES = frozenset(
    (
        TOO_LONG,
        "context_window_exceeded",
        "model_context_window_exceeded",
        "prompt_too_long",
        "tokens_too_long",
        "input_too_long",
        "token_limit_exceeded",
        "exceed_context_size_error",
        "1261",  # Z.ai
        "336103",  # Baidu
    )
)
WORDS = re.compile(
    r"prompt(?: is)? too long|maximum (?:context|prompt|input) length|context[ _](?:length|window)[ _]exceeded"
    r"|context window|input is too long|input token count.{0,40}exceeds|reduce the length of the messages"
    r"|greater than the context length|exceeds? the (?:maximum |model's )?context length|exceeded model token limit"
    r"|exceeds the available context size|loaded with context length of only|exceeds the configured context size"
    r"|longer than the (?:maximum model length|model's context length)|prompt exceeds max length"
    r"|range of input length should be|`?inputs`? tokens \+ `?max_new_tokens`? must be"
    r"|`?inputs`? must have less than \d+ tokens|max_prompt_tokens|max input (?:characters|tokens|length)"
    r"|input tokens exceed|too many tokens: |exceed max message tokens|max size: \d+ tokens|exceeds? context limit"
    r"|(?:input|prompt) token count (?:is \d+ but|of \d+ exceeds)|token length exceeds? model limit"
    r"|sum of prompt length|context size has been exceeded|request too large for model"
    r"|\b(?:input|prompt)(?: text| messages?)?(?: tokens?)?(?: length| count| size)? ?(?:\([^)]{0,40}\) ?)?"
    r"(?:is |are |has |have )?(?:too long|exceed)"
    r"|(?:输入|上下文|prompt|tokens?).{0,12}(?:超长|过长|超过|超出)",
    re.IGNORECASE | re.DOTALL,
)


def is_too_long(code: str, message: str) -> bool:
    """Whether an error with this code and message means that the prompt exceeds the model's context."""
    return code.lower() in CODES or bool(WORDS.search(message))


# Recognizes an error for encrypted or signed reasoning that another account or platform made: the conversation
# can continue without it.
UNREADABLE = "invalid_encrypted_content"
UNREADABLE_WORDS = re.compile(
    r"invalid [`'\"]?(?:signature|data)[`'\"]? in [`'\"]?(?:redacted_)?thinking|thinking\.signature[.\w]{0,20}:"
    r"|(?:corrupted|invalid) thought[ _]signature|thought[ _]signature is (?:not valid|invalid)",
    re.IGNORECASE,
)

TEXT_LIMIT = 2048
RETRY_LIMIT_S = 86_400.0
OVERLOADED_STATUSES = (503, 529)
OVERLOADED = "The provider is overloaded."
BROKEN_OFF = "The provider broke off its answer with an error."
ERROR = "error"  # the name of an error event in a stream

# Providers also answer 400 when the gateway's account, credential or catalogue entry is wrong. Another provider can
# then serve the request.
PROVIDER_CODES = frozenset(
    (
        "insufficient_quota",
        "billing_hard_limit_reached",
        "billing_not_active",
        "account_deactivated",
        "invalid_api_key",
        "api_key_invalid",
        "model_not_found",
        "model_not_available",
        "model_decommissioned",
        "deploymentnotfound",
        "invalid_model",
        "arrearage",
        "accessdenied",
        "unsupported_country_region_territory",
    )
)
PROVIDER_WORDS = re.compile(
    r"credit balance is too low|insufficient (?:balance|credits?|funds|quota)|exceeded your current quota"
    r"|api[ _-]?key (?:not valid|is invalid|expired)|(?:invalid|incorrect|expired) api[ _-]?key"
    r"|account (?:is )?(?:suspended|deactivated|not active|overdue)"
    r"|model\b.{0,120}?(?:does not exist|not found|is not available|has been (?:deprecated|decommissioned|retired))"
    r"|invalid model\b|provided model identifier is invalid|user location is not supported",
    re.IGNORECASE | re.DOTALL,
)
# A 404 for a file of the request, not for the model or the address. No other provider has the file either.
LOST_FILE = re.compile(r"no such file|\bfiles?\b.{0,80}(?:not (?:be )?found|does not exist)", re.IGNORECASE | re.DOTALL)
TOO_LONG_STATUSES = (400, 413, 422)
REFUSED_CONTENT_CODES = frozenset(
    (
        "content_policy_violation",
        "content_filter",
        "responsibleaipolicyviolation",
        "data_inspection_failed",
        "moderation_blocked",
    )
)
SECRETS = re.compile(
    r"(?i:bearer|basic)\s+[\w.~+/=-]{8,}"
    r"|\b(?:sk|pk|rk|gsk|xai|key|api|tok|hf|nvapi|r8|pplx|csk|fw|llmg[a-z]{2,4})[-_][\w*.-]{8,}"
    r"|\bAIza[\w-]{20,}|\bya29\.[\w.-]{20,}|\b(?:AKIA|ASIA)[A-Z0-9]{12,}"
    r"|\beyJ[\w-]{5,}\.[\w-]{5,}\.[\w-]{4,}"
    r"|(?i:\b(?:api[_-]?key|x-api-key|access[_-]?token|secret|password|key|token))"
    r"[\\\"']*\s*[=:]\s*[\\\"']*[^\s\\\"'&,}]{8,}"
)
REDACTED = "[hidden]"
# Characters that are searched for keys (the search takes quadratic time for a malicious text), and the longest key.
LOOKED_AT = 4096
KEY_LIMIT = 512
OF_KEYS = f"{ascii_letters}{digits}_.~+/=*-"
MAX_ERROR_BYTES = 1 << 18  # bytes of an error body that are read


class Explanation(Struct, frozen=True):
    """The fields of an error body in any dialect; each may be "". `shaped`: the body is {error: {message, …}}."""

    message: str = ""
    code: str = ""
    kind: str = ""
    param: str = ""
    text: str = ""
    shaped: bool = False


def read_refusal(reply: UpstreamReply) -> bytes:
    """Return the first MAX_ERROR_BYTES of the body of a response other than 2xx. The body is b"" when the connection
    broke, since the status still counts. The rest is not read, because a server could send an endless body."""
    body = bytearray()
    try:
        for piece in reply.chunks():
            body += piece
            if len(body) >= MAX_ERROR_BYTES:
                break
    except GatewayError:
        return b""
    return bytes(body[:MAX_ERROR_BYTES])


def upstream_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """Return the error for a response other than 2xx. Reads the body; never raises.

    The provider is at fault for 401, 402, 403, 404, 405, 408, 421, 425, 429, 3xx, 5xx, and a 400 about the account, the
    credential or an unknown model. The caller is at fault, with the original status, for every other 4xx and for a 404
    about the caller's file. `retry_after` (seconds) is for health and pacing, and for callers when every attempt failed
    that way.
    """
    cause = explain(read_refusal(reply), (target.credential.secret,))
    return classify(reply.status, cause, target, retry_after(reply.headers))


def classify(status: int, cause: Explanation, target: Target | None, wait: float | None = None) -> GatewayError:
    """Return the error for a status and an explanation. `target` is None when it is unknown (inside a stream)."""
    return _with_text(_classify(status, cause, target, wait), cause)


def _with_text(error: GatewayError, cause: Explanation) -> GatewayError:
    error.upstream_text = cause.message or cause.text
    return error


def _classify(status: int, cause: Explanation, target: Target | None, wait: float | None) -> GatewayError:
    code = cause.code.lower()
    if status in (400, 403) and (code in REFUSED_CONTENT_CODES or cause.kind.lower() in REFUSED_CONTENT_CODES):
        return ContentRefused(
            cause.message or "The provider refused the content.", code="content_filter", upstream_status=status
        )
    details = diagnose(cause, target)
    if status == 429:
        return _too_many(cause, details, wait)
    if status in (408, 504):
        return UpstreamTimeout("The provider did not answer in time.", details=details, upstream_status=status)
    if status == 404 and cause.shaped and LOST_FILE.search(cause.message) and not _is_providers(cause):
        return _callers(status, cause, details)
    if status in (401, 402, 403, 404, 405) or (status == 400 and _is_providers(cause)):
        return _refused(status, cause, details)
    if status in OVERLOADED_STATUSES:
        return UpstreamOverloaded(OVERLOADED, details=details, upstream_status=status, retry_after=wait)
    if status in (421, 425) or not 400 <= status < 500:
        message = f"The provider failed with status {status}."
        return UpstreamFailed(message, details=details, upstream_status=status, retry_after=wait)
    return _callers(status, cause, details)


def _is_providers(cause: Explanation) -> bool:
    named = {cause.code.lower(), cause.kind.lower()}
    return bool(named & PROVIDER_CODES) or bool(PROVIDER_WORDS.search(cause.message or cause.text))


def _too_many(cause: Explanation, details: dict[str, str], wait: float | None) -> GatewayError:
    """Distinguish a rate limit, which can be retried later, from an account without funds."""
    if cause.code.lower() in PROVIDER_CODES:
        return UpstreamRefused("The provider refused the gateway's account.", details=details, upstream_status=429)
    message = "The provider limits the rate of requests."
    return UpstreamRateLimited(message, details=details, upstream_status=429, retry_after=wait)


def _refused(status: int, cause: Explanation, details: dict[str, str]) -> GatewayError:
    """Return the error for a wrong credential, account or model. A provider's message about a credential is never shown
    because it may quote the credential."""
    if status in (401, 403):
        details = {name: text for name, text in details.items() if name != "responseText"}
        message = "The provider refused the gateway's credential."
    elif status in (404, 405) or "model" in f"{cause.code} {cause.message}".lower():
        message = "The provider does not serve this model at this address."
    else:
        message = "The provider refused the gateway's account."
    return UpstreamRefused(message, details=details, upstream_status=status)


def _callers(status: int, cause: Explanation, details: dict[str, str]) -> GatewayError:
    """Return the error for an invalid request, with the provider's message."""
    known = TOO_LONG if status in TOO_LONG_STATUSES and is_too_long(cause.code, cause.message) else ""
    if status == 400 and UNREADABLE_WORDS.search(cause.message):
        known = UNREADABLE
    if cause.shaped and cause.message:
        code = known or cause.code or ("request_too_large" if status == 413 else "invalid_request")
        return InvalidRequest(cause.message, status=status, code=code, param=cause.param, upstream_status=status)
    message = cause.message or f"The provider refused the request with status {status}."
    return InvalidRequest(message, status=status, code=known or "client_error", details=details, upstream_status=status)


def diagnose(cause: Explanation, target: Target | None) -> dict[str, str]:
    """Return fields that help to find the cause. The engine adds and corrects the fields about the request."""
    details = {}
    if target is not None:
        details = {
            "requestedProvider": target.provider.id,
            "usedProvider": target.provider.id,
            "requestedModel": target.mapping.model,
            "usedInternalModel": target.mapping.external_id,
        }
    details["responseText"] = cause.text
    return details


def stream_failure(data: Any) -> GatewayError:
    """Return the error for an error object inside a 200 response. The provider is at fault, except for refused content
    and for a prompt that is too long."""
    cause = explain_object(data, orjson.dumps(data)[: TEXT_LIMIT * 2])
    return _with_text(_classify_event(cause), cause)


def _classify_event(cause: Explanation) -> GatewayError:
    words = f"{cause.code} {cause.kind}".lower()
    details = diagnose(cause, None)
    if cause.code.lower() in REFUSED_CONTENT_CODES:
        return ContentRefused(cause.message or "The provider refused the content.", code="content_filter")
    if is_too_long(cause.code, cause.message):
        return InvalidRequest(cause.message or "The prompt is too long.", code=TOO_LONG, param=cause.param)
    if "429" in words or "rate_limit" in words:
        return UpstreamRateLimited("The provider limits the rate of requests.", details=details)
    if "overloaded" in words:
        return UpstreamOverloaded(OVERLOADED, details=details)
    if "timeout" in words or "408" in words or "504" in words:
        return UpstreamTimeout("The provider did not answer in time.", details=details)
    return UpstreamFailed(BROKEN_OFF, details=details)


def text_failure(data: bytes) -> GatewayError:
    """Return the error for an "error" event with data that is not JSON, with the provider's text, scrubbed."""
    return UpstreamFailed(BROKEN_OFF, details=diagnose(explain_object(None, data), None))


def truncated() -> GatewayError:
    return StreamTruncated("The provider's answer ended before it was complete.")


def explain(body: bytes, secrets: tuple[str, ...] = ()) -> Explanation:
    """Return the fields of an error body in any dialect, scrubbed and capped."""
    try:
        parsed = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        parsed = None
    return explain_object(parsed, body, secrets)


def explain_object(parsed: Any, body: bytes, secrets: tuple[str, ...] = ()) -> Explanation:
    """Read message, detail, code, status, type and param from `error` (object or string), otherwise from the top level.

    A list of validation errors, {detail: [{loc, msg}]} at the top or within `message`, becomes one sentence.
    """
    if isinstance(parsed, list) and parsed:
        parsed = parsed[0]
    holder = parsed if isinstance(parsed, dict) else {}
    inner = holder.get("error")
    shaped = isinstance(inner, dict) and isinstance(inner.get("message"), str)
    fields = inner if isinstance(inner, dict) else holder
    mistakes = _mistakes(fields)
    message = "; ".join(f"{place}: {text}" if place else text for place, text in mistakes)
    message = (
        message
        or _first(fields, "message", "detail", "error_description", "error_msg")
        or (inner if isinstance(inner, str) else "")
    )
    return Explanation(
        message=scrub(message, secrets),
        code=scrub(_first(fields, "code", "status", "error_code"), secrets),
        kind=scrub(_first(fields, "type", "__type"), secrets),
        param=scrub(_first(fields, "param") or (mistakes[0][0] if mistakes else ""), secrets),
        text=scrub(body[: TEXT_LIMIT * 4].decode("utf-8", "replace"), secrets),
        shaped=shaped or bool(mistakes),
    )


def _mistakes(fields: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return (location, text) of each validation error in the format of pydantic; [] for other formats."""
    inner = fields.get("message")
    listed = (inner if isinstance(inner, dict) else fields).get("detail")
    mistakes = []
    for entry in listed if isinstance(listed, list) else ():
        if isinstance(entry, dict) and isinstance(entry.get("msg"), str):
            place = entry.get("loc")
            steps = [str(step) for step in place if step != "body"] if isinstance(place, list) else []
            mistakes.append((".".join(steps), entry["msg"]))
    return mistakes


def _first(fields: Mapping[str, Any], *names: str) -> str:
    for name in names:
        value = fields.get(name)
        if isinstance(value, str) and value:
            return value
        if isinstance(value, int) and not isinstance(value, bool):
            return str(value)
    return ""


def scrub(text: str, secrets: tuple[str, ...] = ()) -> str:
    """Return the text, at most 2 KB long, without `secrets` and anything else that looks like a key."""
    if len(text) > LOOKED_AT:
        # A truncated key would no longer match SECRETS, so characters that may belong to one are removed at the cut.
        text = text[: LOOKED_AT - KEY_LIMIT] + text[LOOKED_AT - KEY_LIMIT : LOOKED_AT].rstrip(OF_KEYS)
    for secret in secrets:
        if len(secret) >= 4:
            text = text.replace(secret, REDACTED)
    text = SECRETS.sub(REDACTED, text)
    if len(text) <= TEXT_LIMIT and text.isascii():
        return text
    return text.encode("utf-8", "replace")[:TEXT_LIMIT].decode("utf-8", "ignore")


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds to wait (RFC 9110, Retry-After; Retry-After-Ms wins), at most a day; None without the header.

    A date is compared with the response's Date header, so that clock skew does not matter.
    """
    seconds = _number(headers.get("retry-after-ms"))
    if seconds is not None:
        return min(seconds / 1000, RETRY_LIMIT_S)
    text = headers.get("retry-after", "")
    seconds = _number(text)
    if seconds is None and text:
        try:
            seconds = (parsedate_to_datetime(text) - parsedate_to_datetime(headers.get("date", ""))).total_seconds()
        except (TypeError, ValueError):
            return None
    if seconds is None:
        return None
    return min(max(seconds, 0.0), RETRY_LIMIT_S)


def _number(text: str | None) -> float | None:
    try:
        value = float(text or "")
    except ValueError:
        return None
    if 0 <= value < float("inf"):
        return value
    return None
