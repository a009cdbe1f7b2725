"""Gemini's vocabulary: finish reasons, usage names, efforts, traffic types, error reasons."""

from typing import Any

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

# Thinking budgets of Google's own OpenAI-compatible endpoint by effort (Gemini API guide, OpenAI compatibility).
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
LEVELS = ("minimal", "low", "medium", "high", "xhigh")  # ThinkingConfig.thinkingLevel, which is in capitals on the wire

# usageMetadata.trafficType (Vertex) and serviceTier (AI Studio) → service tier.
TIERS_READ = {
    "ON_DEMAND": "default",
    "ON_DEMAND_PRIORITY": "priority",
    "ON_DEMAND_FLEX": "flex",
    "standard": "default",
    "priority": "priority",
    "flex": "flex",
}

PRICED_MODALITIES = ("AUDIO", "IMAGE")  # modalities with separate prices
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
        if isinstance(entry, dict):
            kind = entry.get("modality")
        else:
            kind = None
        if kind in PRICED_MODALITIES:
            counts[kind] = counts.get(kind, 0) + read_count(entry.get("tokenCount"))
    return counts
