"""Gemini's vocabulary: finish reasons, usage names, efforts, traffic types, reasons of errors."""

from typing import Any

from gateway.neutral.chat import FinishReason
from gateway.neutral.usage import Usage, read_count, with_shown

NAME = "google"

# Gemini API reference, Candidate.FinishReason. Reasons that are a failure of the answer are in FINISH_FAILED.
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
    "MALFORMED_FUNCTION_CALL": "The model made a tool call that cannot be read.",
    "UNEXPECTED_TOOL_CALL": "The model called a tool that it was not given.",
    "TOO_MANY_TOOL_CALLS": "The model called the provider's tools too often.",
    "MALFORMED_RESPONSE": "The model made an answer that cannot be read.",
    "MISSING_THOUGHT_SIGNATURE": "The provider misses a thought signature in the conversation.",
    "PUP_LIMITED_DISABLED": "The provider has limited the gateway's account.",
    "IMAGE_OTHER": "The model made no image.",
    "NO_IMAGE": "The model made no image.",
}

# Budgets that Google's own OpenAI-compatible endpoint uses for efforts (Gemini API guide, OpenAI compatibility).
BUDGETS = {"minimal": 1024, "low": 1024, "medium": 8192, "high": 24576, "xhigh": 24576, "max": 24576}
LEVELS = ("minimal", "low", "medium", "high", "xhigh")  # ThinkingConfig.thinkingLevel, in capitals there

# usageMetadata.trafficType (Vertex) and serviceTier (AI Studio) as service tiers.
TIERS_READ = {
    "ON_DEMAND": "default",
    "ON_DEMAND_PRIORITY": "priority",
    "ON_DEMAND_FLEX": "flex",
    "standard": "default",
    "priority": "priority",
    "flex": "flex",
}

APART = ("AUDIO", "IMAGE")  # modalities that have prices of their own
NO_TOKENS: dict[str, int] = {}


def read_usage(wire: Any, searches: int = 0, images: int = 0) -> Usage | None:
    """A `usageMetadata` object as disjoint counts; None when it reports none. `searches` and `images` are those of the
    answer itself; the images count where their tokens are not reported.

    promptTokenCount includes the cached tokens; tokens of tool use, of candidates and of thoughts are counted apart
    and add up to totalTokenCount (API reference, UsageMetadata). Details by modality are parts of their count.
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
    """Tokens of uncached sound, cached sound and uncached images in a prompt."""
    asked = _by_modality(wire, "promptTokensDetails")
    kept = _by_modality(wire, "cacheTokensDetails")
    if not asked and not kept:
        return 0, 0, 0
    audio_cached = min(kept.get("AUDIO", 0), cached)
    audio = min(max(asked.get("AUDIO", 0) - audio_cached, 0), uncached)
    image = min(max(asked.get("IMAGE", 0) - kept.get("IMAGE", 0), 0), uncached - audio)
    return audio, audio_cached, image


def _split_answer(wire: dict[str, Any], answered: int) -> tuple[int, int]:
    """Tokens of sound and of images in an answer."""
    made = _by_modality(wire, "candidatesTokensDetails")
    if not made:
        return 0, 0
    audio = min(made.get("AUDIO", 0), answered)
    return audio, min(made.get("IMAGE", 0), answered - audio)


def read_tier(wire: Any) -> str:
    """The service tier that a `usageMetadata` object tells; "" when none."""
    if not isinstance(wire, dict):
        return ""
    named = wire.get("serviceTier") or wire.get("trafficType")
    if isinstance(named, str):
        return TIERS_READ.get(named, "")
    return ""


def _by_modality(wire: dict[str, Any], name: str) -> dict[str, int]:
    """Tokens of sound and of images; most answers have text alone."""
    entries = wire.get(name)
    if not isinstance(entries, list):
        return NO_TOKENS
    counts: dict[str, int] = {}
    for entry in entries:
        if isinstance(entry, dict):
            kind = entry.get("modality")
        else:
            kind = None
        if kind in APART:
            counts[kind] = counts.get(kind, 0) + read_count(entry.get("tokenCount"))
    return counts
