"""Bodies of chat completions in another spelling than the documented one."""

from typing import Any

import pytest

from gateway.surfaces.bodies.lenient_chat import correct_spelling

IMAGE = {"url": "https://example.com/cat.png"}


@pytest.mark.parametrize(
    ("given", "part"),
    [
        ({"type": "input_text", "text": "Hello"}, {"type": "text", "text": "Hello"}),
        ({"type": "output_text", "text": "Hello"}, {"type": "text", "text": "Hello"}),
        ({"type": "input_image", "image_url": IMAGE["url"]}, {"type": "image_url", "image_url": IMAGE}),
        ({"type": "image", "image_url": IMAGE}, {"type": "image_url", "image_url": IMAGE}),
    ],
)
def test_content_parts_of_other_formats_are_understood(given: dict[str, Any], part: dict[str, Any]) -> None:
    wire: dict[str, Any] = {"messages": [{"role": "user", "content": [given]}]}
    correct_spelling(wire)
    assert wire["messages"] == [{"role": "user", "content": [part]}]


def test_words_are_understood_in_any_case() -> None:
    wire: dict[str, Any] = {"tool_choice": "Required", "reasoning_effort": "HIGH"}
    correct_spelling(wire)
    assert wire == {"tool_choice": "required", "reasoning_effort": "high"}
