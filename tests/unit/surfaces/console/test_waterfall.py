"""The waterfall of a request: its calls stand on one scale that begins with the arrival of the request."""

from support.usage import usage_row

from gateway.surfaces.console.requests.routing_text import describe_decision
from gateway.surfaces.console.requests.waterfall import draw_waterfall

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


def test_a_decision_is_described_in_sentences() -> None:
    decision = {
        "selectionReason": "single-provider",
        "selectedProvider": "openai",
        "selectedModel": "gpt-5",
        "order": ["openai/gpt-5"],
        "excluded": [{"reason": "no key"}],
    }
    text = describe_decision(decision, {"openai": "OpenAI"})
    assert text.startswith("OpenAI was chosen for gpt-5 because ")
    assert text.endswith(". No further providers could serve it, and 1 was excluded.")
