"""The waterfall of a request: its calls stand on one scale that begins with the arrival of the request."""

from typing import Any

import pytest
from support.usage import usage_row

from gateway.routing.plan import SINGLE
from gateway.surfaces.console.request_details import draw_waterfall
from gateway.surfaces.console.routing_pages import describe_decision

ARRIVED = 1_800_000_000_000_000


def test_calls_stand_one_after_the_other() -> None:
    first = usage_row(ARRIVED, provider="a", served="m", duration_ms=250, ttft_ms=0, error="upstream_error", attempt=1)
    second = usage_row(ARRIVED + 250_000, provider="b", served="m", duration_ms=750, ttft_ms=250, error=None, attempt=2)
    drawn = draw_waterfall(ARRIVED, [first, second])
    assert drawn.total_ms == 1000
    assert [(bar.x, bar.waiting, bar.streaming, bar.failed) for bar in drawn.bars] == [
        (0, 250, 0, True),
        (250, 250, 500, False),
    ]


def test_a_request_without_calls_has_no_bars() -> None:
    assert draw_waterfall(ARRIVED, []).bars == ()


def score(provider: str, model: str = "gpt-5") -> dict[str, str]:
    return {"providerId": provider, "modelId": model}


def told(reason: str, order: list[str], **more: Any) -> str:
    scores = [score(*key.split("/", 1)) for key in order]
    decision = {
        "selectionReason": reason,
        "selectedProvider": "openai",
        "selectedModel": "gpt-5",
        "order": order,
        "providerScores": scores,
        "excluded": [],
        **more,
    }
    return describe_decision(decision, {"openai": "OpenAI"})


RESTING = [{"key": "azure/gpt-5", "reason": "429"}]


@pytest.mark.parametrize(
    ("text", "end"),
    [
        (told("weighted-score", ["openai/gpt-5", "azure/gpt-5"]), "best score. 1 further provider could serve it."),
        (told("weighted-score", ["openai/gpt-5"]), "best score. No further providers could serve it."),
        (told(SINGLE, ["openai/gpt-5"]), "ready to serve the request. Nothing else would have been tried."),
        (
            told(SINGLE, ["openai/gpt-5", "groq/small", "azure/tiny"]),
            "ready to serve the request. 2 further models would have been tried next.",
        ),
        (
            told(SINGLE, ["openai/gpt-5", "azure/gpt-5"], resting=RESTING),
            "ready to serve the request. 1 provider in cooldown would have been tried next. In cooldown: azure.",
        ),
        (
            told("weighted-score", ["openai/gpt-5", "groq/gpt-5", "azure/gpt-5", "x/small"], resting=RESTING),
            "1 further provider could serve it, then 1 provider in cooldown, then 1 further model. In cooldown: azure.",
        ),
        (
            told("weighted-score", ["openai/gpt-5"], excluded=[{"reason": "no key"}]),
            "No further providers could serve it, and 1 was excluded.",
        ),
        (told("weighted-score", ["openai/gpt-5"], noFallback=True), "Fallback was switched off."),
    ],
)
def test_a_decision_is_told_without_contradiction(text: str, end: str) -> None:
    assert text.startswith("OpenAI was chosen for gpt-5 because ") and text.endswith(end)
