"""Moderated images count as images, not as the bytes of their URLs."""

from msgspec import json

from gateway.neutral.operations import MEDIA_TOKENS, OPERATIONS
from gateway.neutral.request import Requirements
from gateway.neutral.structured import ModerationRequest
from gateway.surfaces.openai import moderations


def test_each_image_of_a_moderation_is_reserved_as_the_largest() -> None:
    image = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    parts = [image, {"type": "text", "text": "a"}, image]
    body = moderations.DECODER.decode(json.encode({"input": parts}))
    assert moderations.count_images(body) == 2
    needs = Requirements(max_tokens=0, prompt_bytes=100, messages=1, media=2)
    request = ModerationRequest("m", needs, lambda: {})
    assert OPERATIONS["moderations"].prompt_tokens(request) > 100 + 2 * MEDIA_TOKENS
    assert moderations.count_images(moderations.DECODER.decode(b'{"input": "text"}')) == 0
    assert moderations.count_images(moderations.DECODER.decode(b'{"input": ["a", "b"]}')) == 0
