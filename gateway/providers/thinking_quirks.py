"""Quirks (see quirks.py) for the ways in which OpenAI-format providers switch, limit and report reasoning."""

from collections.abc import Callable
from typing import Any

from gateway.neutral.chat import ChatRequest

Body = dict[str, Any]
BASIC_EFFORTS = {"minimal": "low", "xhigh": "high", "max": "high"}
THREE_EFFORTS = {"minimal": "low", "low": "low", "medium": "high", "high": "high", "xhigh": "max", "max": "max"}


def no_reasoning_effort(body: Body, request: ChatRequest) -> None:
    body.pop("reasoning_effort", None)


def basic_reasoning_effort(body: Body, request: ChatRequest) -> None:
    """Servers that only know low, medium and high: the nearest of them; "none" is left out."""
    effort = body.get("reasoning_effort")
    if effort == "none":
        del body["reasoning_effort"]
    elif effort in BASIC_EFFORTS:
        body["reasoning_effort"] = BASIC_EFFORTS[effort]


def thinking_switch(body: Body, request: ChatRequest) -> None:
    """Reasoning is switched by `thinking: {type}` instead of an effort."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}


def enable_thinking(body: Body, request: ChatRequest) -> None:
    """Reasoning is switched by `enable_thinking` and limited by `thinking_budget` instead of an effort."""
    effort = body.pop("reasoning_effort", None)
    if effort is None and not request.requirements.reasoning:
        return
    body["enable_thinking"] = effort != "none"
    budget = request.conversation().reasoning.budget
    if budget and effort != "none":
        body["thinking_budget"] = budget


def thinking_and_effort(body: Body, request: ChatRequest) -> None:
    """Reasoning is switched by `thinking: {type}`, with a depth of low, high or max."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "enabled"}
    if effort in THREE_EFFORTS:
        body["reasoning_effort"] = THREE_EFFORTS[effort]


def effort_alone(body: Body, request: ChatRequest) -> None:
    """A model that always reasons, at a provider whose others have a switch: low, high or max, without the switch."""
    body.pop("thinking", None)
    effort = request.requirements.effort
    if effort in THREE_EFFORTS:
        body["reasoning_effort"] = THREE_EFFORTS[effort]


def adaptive_thinking(body: Body, request: ChatRequest) -> None:
    """Reasoning is left to the model by `thinking: {type: adaptive}`, or switched off."""
    effort = body.pop("reasoning_effort", None)
    if effort is not None:
        body["thinking"] = {"type": "disabled" if effort == "none" else "adaptive"}


def template_thinking(body: Body, request: ChatRequest) -> None:
    """Engines that pass a switch on to the model's chat template."""
    effort = body.get("reasoning_effort")
    if effort is not None:
        body["chat_template_kwargs"] = {"enable_thinking": effort != "none"}


def thinking_needs_stream(body: Body, request: ChatRequest) -> None:
    """Models that reason only in streams, and refuse a non-streamed request unless reasoning is switched off."""
    if not body.get("stream"):
        body["enable_thinking"] = False
        body.pop("thinking_budget", None)


def none_or_high_effort(body: Body, request: ChatRequest) -> None:
    """Servers whose only efforts are none and high."""
    if body.get("reasoning_effort") not in (None, "none"):
        body["reasoning_effort"] = "high"


def none_or_default_effort(body: Body, request: ChatRequest) -> None:
    """Models whose reasoning is on ("default") or off."""
    if body.get("reasoning_effort") not in (None, "none"):
        body["reasoning_effort"] = "default"


def parsed_reasoning(body: Body, request: ChatRequest) -> None:
    """Servers that mix reasoning into the text unless asked to keep it apart."""
    body["reasoning_format"] = "parsed"


def split_reasoning(body: Body, request: ChatRequest) -> None:
    """Servers that write reasoning as tagged text unless asked for `reasoning_details`."""
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
