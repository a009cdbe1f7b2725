"""Quirks (see quirks.py) for the options of OpenAI-format providers that switch, limit and report reasoning."""

from collections.abc import Callable
from typing import Any

from gateway.neutral.chat import ChatRequest

Body = dict[str, Any]
BASIC_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}
THREE_EFFORTS = {"minimal": "low", "low": "low", "medium": "high", "high": "high", "xhigh": "max", "max": "max"}


def no_reasoning_effort(body: Body, request: ChatRequest) -> None:
    body.pop("reasoning_effort", None)


def basic_reasoning_effort(body: Body, request: ChatRequest) -> None:
    """Send the nearest of low, medium and high to servers that accept only these; "none" is left out."""
    effort = body.get("reasoning_effort")
    if effort == "none":
        del body["reasoning_effort"]
    elif effort in BASIC_EFFORTS:
        body["reasoning_effort"] = BASIC_EFFORTS[effort]


def thinking_switch(body: Body, request: ChatRequest) -> None:
    """Switch reasoning by `thinking: {type}` instead of an effort."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}


def enable_thinking(body: Body, request: ChatRequest) -> None:
    """Switch reasoning by `enable_thinking` and limit it by `thinking_budget` instead of an effort."""
    effort = body.pop("reasoning_effort", None)
    if effort is None and not request.requirements.reasoning:
        return
    body["enable_thinking"] = effort != "none"
    budget = request.conversation().reasoning.budget
    if budget and effort != "none":
        body["thinking_budget"] = budget


def thinking_and_effort(body: Body, request: ChatRequest) -> None:
    """Switch reasoning by `thinking: {type}`, with an effort of low, high or max."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}
    if effort in THREE_EFFORTS:
        body["reasoning_effort"] = THREE_EFFORTS[effort]


def effort_alone(body: Body, request: ChatRequest) -> None:
    """Send only the effort (low, high or max) to a model that always reasons and lacks its provider's switch."""
    body.pop("thinking", None)
    effort = request.requirements.effort
    if effort in THREE_EFFORTS:
        body["reasoning_effort"] = THREE_EFFORTS[effort]


def adaptive_thinking(body: Body, request: ChatRequest) -> None:
    """Let the model decide on reasoning by `thinking: {type: adaptive}`, or switch it off."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "adaptive"}


def template_thinking(body: Body, request: ChatRequest) -> None:
    """Switch reasoning by an argument of the model's chat template, for engines that pass it on."""
    effort = body.get("reasoning_effort")
    if effort is not None:
        body["chat_template_kwargs"] = {"enable_thinking": effort != "none"}


def thinking_needs_stream(body: Body, request: ChatRequest) -> None:
    """Switch reasoning off in non-streamed requests, for models that otherwise refuse these."""
    if not body.get("stream"):
        body["enable_thinking"] = False
        body.pop("thinking_budget", None)


def none_or_high_effort(body: Body, request: ChatRequest) -> None:
    """Replace efforts by "high" for servers that accept only none and high."""
    if body.get("reasoning_effort") not in (None, "none"):
        body["reasoning_effort"] = "high"


def none_or_default_effort(body: Body, request: ChatRequest) -> None:
    """Replace efforts by "default" for models that accept only none and default."""
    if body.get("reasoning_effort") not in (None, "none"):
        body["reasoning_effort"] = "default"


def parsed_reasoning(body: Body, request: ChatRequest) -> None:
    """Request reasoning in a separate field from servers that otherwise mix it into the text."""
    body["reasoning_format"] = "parsed"


def split_reasoning(body: Body, request: ChatRequest) -> None:
    """Request `reasoning_details` from servers that otherwise write reasoning as tagged text."""
    body["reasoning_split"] = True


THINKING_QUIRKS: dict[str, Callable[[Body, ChatRequest], None]] = {
    function.__name__: function
    for function in (
        no_reasoning_effort,
        basic_reasoning_effort,
        thinking_switch,
        enable_thinking,
        thinking_and_effort,
        effort_alone,
        adaptive_thinking,
        template_thinking,
        thinking_needs_stream,
        none_or_high_effort,
        none_or_default_effort,
        parsed_reasoning,
        split_reasoning,
    )
}
