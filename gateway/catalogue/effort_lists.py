"""Reasoning efforts of mappings that do not state any, as model lists show them.

A catalogue entry may state the efforts that its provider accepts. Otherwise the levels follow from how the wire format
requests reasoning: as a token budget, which has a size for every level, as a switch, or as levels. If the effort is
passed on and the provider documents no levels, none are shown.
"""

import re

from gateway.catalogue.entries import Mapping, Provider
from gateway.neutral.parameters import RISING

NONE = "none"
ALL_LEVELS = (NONE, *RISING)
ON_OFF_LEVELS = (NONE, "high")
DEPTHS = ("low", "high", "max")
BASIC = ("low", "medium", "high")
# Quirk → effective levels; the first match applies (gateway/providers/quirks.py).
BY_QUIRK: dict[str, tuple[str, ...]] = {
    "no_reasoning_effort": (),
    "effort_alone": DEPTHS,
    "thinking_and_effort": (NONE, *DEPTHS),
    "thinking_switch": ON_OFF_LEVELS,
    "enable_thinking": ON_OFF_LEVELS,
    "adaptive_thinking": ON_OFF_LEVELS,
    "template_thinking": ON_OFF_LEVELS,
    "none_or_high_effort": ON_OFF_LEVELS,
    "none_or_default_effort": ON_OFF_LEVELS,
    "basic_reasoning_effort": BASIC,
}
# Protocol, pattern of the provider's model id → levels; the first match applies. Sources: Google's guide, "Thinking":
# models of generation 2.5 have budgets, later ones levels, and the large ones cannot be switched off; Anthropic's and
# Amazon's guides, "Extended thinking"; OpenAI's model card of gpt-oss. A pattern with two parts begins at the first
# place of its first part, so that it takes linear time.
BY_FORMAT: tuple[tuple[str, re.Pattern[str], tuple[str, ...]], ...] = (
    ("google", re.compile(r"^(?:(?!gemini-2\.5).)*+gemini-2\.5.*-pro"), RISING),
    ("google", re.compile(r"gemini-2\."), ALL_LEVELS),
    ("google", re.compile(r"gemini-3-pro"), ("low", "high")),
    ("google", re.compile(r"^(?:(?!gemini-).)*+gemini-.*-pro"), BASIC),
    ("google", re.compile(r"gemini"), ("minimal", *BASIC)),
    ("google", re.compile(r"gemma"), ("minimal", "high")),
    ("anthropic", re.compile(r"claude"), ALL_LEVELS),
    ("bedrock", re.compile(r"claude"), ALL_LEVELS),
    ("bedrock", re.compile(r"kimi-k2"), BASIC),
    ("", re.compile(r"gpt-oss"), BASIC),
)


def shown_efforts(mapping: Mapping, provider: Provider) -> tuple[str, ...]:
    """Return the levels of a mapping; () if it does not reason, has no levels, or they are unknown."""
    if mapping.reasoning_efforts or not mapping.reasoning:
        return mapping.reasoning_efforts
    quirks = {*provider.quirks, *mapping.quirks}
    for quirk, levels in BY_QUIRK.items():
        if quirk in quirks:
            return levels
    protocol = mapping.protocol or provider.protocol
    for format_name, pattern, levels in BY_FORMAT:
        if format_name in ("", protocol) and pattern.search(mapping.external_id.lower()):
            return levels
    return ()
