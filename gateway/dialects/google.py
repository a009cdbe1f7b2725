"""Gemini's vocabulary: finish reasons, usage names, efforts, traffic types, error reasons."""

from typing import Any, NotRequired, TypedDict

from gateway.errors import GatewayError
from gateway.neutral.chat import FinishReason
from gateway.neutral.usage import Usage, read_count, with_shown

NAME = "google"

# Source: Gemini API reference, Candidate.FinishReason. Reasons that mean a failed response are in FINISH_FAILED.
FINISH_READ: dict[str, FinishReason] = {
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
}
FINISH_FAILED = {
    "MALFORMED_FUNCTION_CALL": "The model made an invalid tool call.",
    "UNEXPECTED_TOOL_CALL": "The model called a tool that it was not given.",
    "TOO_MANY_TOOL_CALLS": "The model called the provider's tools too often.",
    "MALFORMED_RESPONSE": "The model returned an invalid response.",
    "MISSING_THOUGHT_SIGNATURE": "The conversation lacks a thought signature that the provider requires.",
    "PUP_LIMITED_DISABLED": "The provider has limited the gateway's account.",
    "IMAGE_OTHER": "The model returned no image.",
    "NO_IMAGE": "The model returned no image.",
}

FINISH_WRITE: dict[FinishReason, str] = {
    "stop": "STOP",
    "length": "MAX_TOKENS",
    "tool_calls": "STOP",
    "content_filter": "SAFETY",
    "refusal": "SAFETY",
    "pause": "STOP",
    "stop_sequence": "STOP",
}

MODELS = "gemini"  # in the names of the vendor's models

# Key in `Options.extra` of body fields that only the vendor's own servers support.
OWN_FIELDS = "google_fields"

# Thinking budgets of Google's own OpenAI-compatible endpoint by effort (Gemini API guide, OpenAI compatibility).
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
LEVELS = ("minimal", "low", "medium", "high", "xhigh")  # ThinkingConfig.thinkingLevel, which is in capitals on the wire
LEVEL_WORDS = ("THINKING_LEVEL_UNSPECIFIED", *map(str.upper, LEVELS))  # all others are newer than the gateway

# usageMetadata.trafficType (Vertex) and serviceTier (AI Studio) → service tier.
TIERS_READ = {
    "ON_DEMAND": "default",
    "ON_DEMAND_PRIORITY": "priority",
    "ON_DEMAND_FLEX": "flex",
    "standard": "default",
    "priority": "priority",
    "flex": "flex",
}

# google.rpc.Code by HTTP status (AIP-193; google/rpc/code.proto); for others see `rpc_status`.
RPC_STATUSES = {
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
}
RPC_TYPES = "type.googleapis.com/google.rpc."
DOMAIN = "llmgateway"  # of ErrorInfo: who defines its `reason`

PRICED_MODALITIES = ("AUDIO", "IMAGE")
NO_TOKENS: dict[str, int] = {}


def read_usage(wire: Any, searches: int = 0, images: int = 0) -> Usage | None:
    """Parse a `usageMetadata` object into disjoint counts; None if it has no counts.

    `searches` and `images` are counted in the response itself; the images count if their tokens are not reported.
    promptTokenCount includes the cached tokens; tokens of tool use, candidates and thoughts are separate and add up to
    totalTokenCount (API reference, UsageMetadata). Details by modality are parts of their count.
    """
    if not isinstance(wire, dict) or ("promptTokenCount" not in wire and "totalTokenCount" not in wire):
        return with_shown(None, searches, images)
    prompt = read_count(wire.get("promptTokenCount"))
    cached = read_count(wire.get("cachedContentTokenCount"))
    cached = min(cached, prompt)
    answered = read_count(wire.get("candidatesTokenCount"))
    thoughts = read_count(wire.get("thoughtsTokenCount"))
    audio, audio_cached, image = _split_prompt(wire, prompt - cached, cached)
    audio_out, image_out = _split_answer(wire, answered)
    return Usage(
        input=prompt - cached - audio - image + read_count(wire.get("toolUsePromptTokenCount")),
        cache_read=cached - audio_cached,
        input_audio=audio,
        input_audio_cached=audio_cached,
        input_image=image,
        output=answered - audio_out - image_out + thoughts,
        reasoning=thoughts,
        output_audio=audio_out,
        output_image=image_out,
        searches=searches,
        images=0 if image_out else images,
    )


def _split_prompt(wire: dict[str, Any], uncached: int, cached: int) -> tuple[int, int, int]:
    """Return the tokens of uncached audio, cached audio and uncached images in a prompt."""
    prompt_counts = _by_modality(wire, "promptTokensDetails")
    cache_counts = _by_modality(wire, "cacheTokensDetails")
    if not prompt_counts and not cache_counts:
        return 0, 0, 0
    audio_cached = min(cache_counts.get("AUDIO", 0), cached)
    audio = min(max(prompt_counts.get("AUDIO", 0) - audio_cached, 0), uncached)
    image = min(max(prompt_counts.get("IMAGE", 0) - cache_counts.get("IMAGE", 0), 0), uncached - audio)
    return audio, audio_cached, image


def _split_answer(wire: dict[str, Any], answered: int) -> tuple[int, int]:
    """Return the tokens of audio and of images in a response."""
    answer_counts = _by_modality(wire, "candidatesTokensDetails")
    if not answer_counts:
        return 0, 0
    audio = min(answer_counts.get("AUDIO", 0), answered)
    return audio, min(answer_counts.get("IMAGE", 0), answered - audio)


def read_tier(wire: Any) -> str:
    """Return the service tier in a `usageMetadata` object; "" if there is none."""
    if not isinstance(wire, dict):
        return ""
    tier = wire.get("serviceTier") or wire.get("trafficType")
    if isinstance(tier, str):
        return TIERS_READ.get(tier, "")
    return ""


def _by_modality(wire: dict[str, Any], name: str) -> dict[str, int]:
    """Return the tokens of audio and images; most responses only have text."""
    entries = wire.get(name)
    if not isinstance(entries, list):
        return NO_TOKENS
    counts: dict[str, int] = {}
    for entry in entries:
        kind = entry.get("modality") if isinstance(entry, dict) else None
        if kind in PRICED_MODALITIES:
            counts[kind] = counts.get(kind, 0) + read_count(entry.get("tokenCount"))
    return counts


class ModalityCount(TypedDict):
    modality: str
    tokenCount: int


class GeminiTokens(TypedDict):
    """A `usageMetadata` object without its cost."""

    promptTokenCount: int
    candidatesTokenCount: int
    totalTokenCount: int
    promptTokensDetails: list[ModalityCount]
    candidatesTokensDetails: list[ModalityCount]
    cachedContentTokenCount: NotRequired[int]
    cacheTokensDetails: NotRequired[list[ModalityCount]]
    thoughtsTokenCount: NotRequired[int]


def write_usage(usage: Usage) -> GeminiTokens:
    """Return the `usageMetadata` object without its cost (API reference, UsageMetadata)."""
    cached = usage.cache_read + usage.input_audio_cached
    answered = usage.output_total - usage.reasoning
    body: GeminiTokens = {
        "promptTokenCount": usage.input_total,
        "candidatesTokenCount": answered,
        "totalTokenCount": usage.input_total + usage.output_total,
        "promptTokensDetails": _write_modalities(
            usage.input_total, usage.input_audio + usage.input_audio_cached, usage.input_image
        ),
        "candidatesTokensDetails": _write_modalities(answered, usage.output_audio, usage.output_image),
    }
    if cached:
        body["cachedContentTokenCount"] = cached
        body["cacheTokensDetails"] = _write_modalities(cached, usage.input_audio_cached, 0)
    if usage.reasoning:
        body["thoughtsTokenCount"] = usage.reasoning
    return body


def _write_modalities(total: int, audio: int, image: int) -> list[ModalityCount]:
    """Return the parts of a count by modality, those above zero."""
    counts = {"TEXT": total - audio - image, "AUDIO": audio, "IMAGE": image}
    return [{"modality": name, "tokenCount": count} for name, count in counts.items() if count > 0]


def rpc_status(status: int) -> str:
    """Return the google.rpc.Code of an HTTP status: other 5xx are UNAVAILABLE, other 4xx INVALID_ARGUMENT."""
    return RPC_STATUSES.get(status) or ("UNAVAILABLE" if status >= 500 else "INVALID_ARGUMENT")


class FieldViolation(TypedDict):
    field: str
    description: str


ErrorInfo = TypedDict("ErrorInfo", {"@type": str, "reason": str, "domain": str, "metadata": dict[str, str]})
RequestInfo = TypedDict("RequestInfo", {"@type": str, "requestId": str})
BadRequest = TypedDict("BadRequest", {"@type": str, "fieldViolations": list[FieldViolation]})
RetryInfo = TypedDict("RetryInfo", {"@type": str, "retryDelay": str})


class RpcStatus(TypedDict):
    """A status of Google's APIs; each detail names its type (AIP-193)."""

    code: int
    message: str
    status: str
    details: list[ErrorInfo | RequestInfo | BadRequest | RetryInfo]


class RpcError(TypedDict):
    error: RpcStatus


def error_body(error: GatewayError, request_id: str) -> RpcError:
    """Return `{error: {code, message, status, details}}` (AIP-193)."""
    known = {"code": error.code, "param": error.param, **(error.details or {})}
    metadata = {name: text for name, text in known.items() if isinstance(text, str) and text}
    details: list[ErrorInfo | RequestInfo | BadRequest | RetryInfo] = [
        {"@type": f"{RPC_TYPES}ErrorInfo", "reason": error.code.upper(), "domain": DOMAIN, "metadata": metadata},
        {"@type": f"{RPC_TYPES}RequestInfo", "requestId": request_id},
    ]
    if error.param and error.status < 500:
        violation: FieldViolation = {"field": error.param, "description": error.message}
        details.append({"@type": f"{RPC_TYPES}BadRequest", "fieldViolations": [violation]})
    if error.retry_after is not None:
        details.append({"@type": f"{RPC_TYPES}RetryInfo", "retryDelay": f"{max(1, round(error.retry_after))}s"})
    return {
        "error": {
            "code": error.status,
            "message": error.message,
            "status": rpc_status(error.status),
            "details": details,
        }
    }


class GoogleExtra(TypedDict):
    thought_signature: str


class ExtraContent(TypedDict):
    """The members of a tool call of a chat completion that OpenAI's format lacks (guide, thought signatures: OpenAI
    compatibility)."""

    google: GoogleExtra


def write_extra(signature: str) -> ExtraContent:
    """Return the extra content of a call with a thought signature."""
    return {"google": {"thought_signature": signature}}


def reads_extra(model: str) -> bool:
    """Return whether a server of OpenAI's format wants the extra content of calls back: one that serves the vendor's
    models, which refuse a call without its signature."""
    return MODELS in model


def read_extra(extra: Any) -> str:
    """Return the thought signature of a call's extra content; "" for none."""
    own = extra.get(NAME) if isinstance(extra, dict) else None
    signature = own.get("thought_signature") if isinstance(own, dict) else None
    return signature if isinstance(signature, str) else ""
