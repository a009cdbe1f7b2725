"""Finish reasons in words that a format does not define: compatible servers pass on those of the engine behind them."""

from typing import Any

from gateway.neutral.chat import FinishReason

# The first entry with a piece that the word contains decides. A word that tells of a limit or of a filter must not
# become "stop": callers would take a cut answer for a whole one.
PIECES: tuple[tuple[FinishReason, tuple[str, ...]], ...] = (
    ("stop_sequence", ("stop_sequence", "stopsequence")),
    ("length", ("incomplete",)),
    ("stop", ("eos", "end_turn", "endturn", "complete", "stop_token")),
    ("refusal", ("refus",)),
    (
        "content_filter",
        (
            "filter", "safety", "sensitive", "block", "prohibit", "moderat", "guardrail", "recitation", "toxic", "spii",
            "policy",
        ),
    ),
    ("length", ("max", "length", "limit", "trunc", "exceed", "context", "budget", "abort", "cancel", "interrupt")),
    ("tool_calls", ("tool", "function")),
)  # fmt: skip


def read_unknown(word: Any) -> FinishReason:
    """Return the finish reason that a word of no known vocabulary most likely means; "stop" for all others."""
    if isinstance(word, str):
        lowered = word.lower()
        for reason, pieces in PIECES:
            if any(piece in lowered for piece in pieces):
                return reason
    return "stop"
