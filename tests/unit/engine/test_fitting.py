"""Requests without the options that their target lacks."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.engine.fitting import Fitting
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    Native,
    Options,
    Requirements,
    Sampling,
    VendorTool,
    WebSearch,
)
from gateway.neutral.parameters import PENALTIES
from gateway.neutral.parts import Image, Media, Message, Text
from gateway.routing.capabilities import (
    EARLIER_IMAGES,
    FULL,
    HOSTED,
    IMAGE_OUTPUT,
    MARKS,
    OFFERED_SEARCH,
    OUTPUT,
    REASONING,
    ROOM,
    SPLIT,
)

ANSWER = Message("assistant", (Text("A cat."), Image(Media("image/png", data="AAAA"))))
TALK = Conversation(
    (Message("user", (Text("Draw."),)), ANSWER, Message("user", (Text("And a dog."),))),
    tools=(WebSearch(), VendorTool("openai", "code_interpreter", {})),
    sampling=Sampling(frequency_penalty=1),
)
REQUIREMENTS = Requirements(
    web_search=True,
    search_offered=True,
    earlier_images=True,
    image_output=True,
    hosted="openai",
    parameters=frozenset((PENALTIES.name,)),
    max_tokens=64_000,
    messages=3,
)
OPTIONS = Options(image_config={"image_size": "1K"})
REQUEST = ChatRequest("m", REQUIREMENTS, lambda: TALK, OPTIONS, Native("openai", {"model": "m"}))
ABILITY = SimpleNamespace(max_output=8192, context=128_000, dialect="anthropic", second="")
CANDIDATE: Any = SimpleNamespace(ability=ABILITY, key="acme/m", mapping=SimpleNamespace(reasoning_efforts=()))


def fit(*lacking: str) -> ChatRequest:
    fitted = Fitting(CANDIDATE, lacking, "").fit(REQUEST)
    assert isinstance(fitted, ChatRequest)
    return fitted


def test_a_target_with_lower_limits_gets_the_request_as_the_caller_wrote_it() -> None:
    """A limit is sent beside the request, and marks and choices change nothing in it."""
    for reason in (OUTPUT, ROOM, FULL, MARKS, SPLIT):
        fitted = fit(reason)
        assert fitted.native is REQUEST.native and fitted.conversation() is TALK, reason
    assert fit(OUTPUT).warnings == ("max_tokens was lowered to 8192 for acme/m: its highest limit.",)


def test_a_feature_that_is_left_out_is_required_no_longer() -> None:
    required = {
        EARLIER_IMAGES: ("earlier_images",),
        HOSTED: ("hosted",),
        IMAGE_OUTPUT: ("image_output",),
        OFFERED_SEARCH: ("web_search", "search_offered"),
        PENALTIES.name: ("parameters",),
    }
    for reason, names in required.items():
        fitted = fit(reason)
        left = {name for name in Requirements.__struct_fields__ if getattr(fitted.requirements, name)}
        assert {name for name in Requirements.__struct_fields__ if getattr(REQUIREMENTS, name)} - left == set(names)
        images = reason in (EARLIER_IMAGES, IMAGE_OUTPUT)
        assert fitted.native is None if images else fitted.native.adapted
    assert fit(IMAGE_OUTPUT).options.image_config is None
    assert all(type(part) is Text for message in fit(EARLIER_IMAGES).conversation().messages for part in message.parts)


def test_each_tool_and_parameter_that_is_left_out_is_named() -> None:
    assert fit(HOSTED).warnings == ("tools: code_interpreter was left out: acme/m has no such tool.",)
    assert fit(HOSTED).conversation().tools == (WebSearch(),)
    assert fit(OFFERED_SEARCH).warnings == ("tools: web_search was left out: acme/m has no such tool.",)
    assert fit(PENALTIES.name).warnings == ("frequency_penalty was left out: acme/m does not support it.",)
    assert fit(PENALTIES.name).conversation().sampling == Sampling()


@pytest.mark.parametrize(("effort", "field"), [("high", "reasoning_effort"), ("", "reasoning")])
def test_reasoning_that_is_left_out_is_named_as_it_was_requested(effort: str, field: str) -> None:
    request = ChatRequest("m", Requirements(reasoning=True, effort=effort), lambda: TALK)
    fitted = Fitting(CANDIDATE, (REASONING,), "").fit(request)
    assert fitted.warnings == (f"{field} was left out: acme/m does not reason.",)
