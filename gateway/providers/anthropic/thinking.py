"""Extended thinking: which form a model supports, with which budget, and what is incompatible with it.

Wire facts: Anthropic documentation, "Extended thinking" and "Adaptive thinking": a budget is 1024 tokens or more and
below max_tokens; temperature is 1 and top_k absent; no tool may be forced; with a budget the last answer must begin
with its thinking while its tools' results are sent back; without thinking it must not contain any. Models with effort
levels think adaptively and refuse a budget unless their entry says otherwise.
"""

from typing import Any

from gateway.neutral.chat import Effort, ReasoningOptions
from gateway.providers.anthropic.conversation import Turn
from gateway.providers.protocol import Target

LEAST_BUDGET = 1024
MOST_BUDGET = 128_000
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 65_536}
USUAL_BUDGET = BUDGETS["medium"]
RISING: tuple[Effort, ...] = ("minimal", "low", "medium", "high", "xhigh", "max")
THOUGHTS = ("thinking", "redacted_thinking")
# `extra.thinking` of a mapping: the forms that its model takes.
ADAPTIVE = "adaptive"
BUDGET = "budget"
BOTH = "both"
SHOWN = {"omitted": "omitted", "summary": "summarized", "full": "summarized"}


def forms_of(target: Target) -> str:
    """ADAPTIVE, BUDGET or BOTH: as the entry says, else by whether the model has effort levels."""
    chosen = target.mapping.extra.get("thinking", "")
    return chosen or (ADAPTIVE if target.mapping.reasoning_efforts else BUDGET)


def write_thinking(body: dict[str, Any], ask: ReasoningOptions, target: Target, warnings: list[str]) -> None:
    """Put `thinking` (and the effort) into a body that has its messages, max_tokens and tool_choice already, and take
    out of the body what does not go with it."""
    if not target.mapping.reasoning:
        return
    if not _wanted(ask):
        if ask.enabled is False or ask.effort == "none":
            body["thinking"] = {"type": "disabled"}
            _forget(body["messages"])
        elif forms_of(target) == BUDGET:
            _forget(body["messages"])
        return
    obstacle = _obstacle(body)
    forms = forms_of(target)
    if forms == BUDGET or (forms == BOTH and ask.budget):
        obstacle = obstacle or _gap(body)
        if not obstacle:
            body["thinking"] = {"type": "enabled", "budget_tokens": _budget(ask, body["max_tokens"])}
    elif not obstacle:
        body["thinking"] = _adaptive(ask)
        _write_effort(body, ask, target)
    if obstacle:
        warnings.append(f"This answer is made without extended thinking: {obstacle}.")
        body["thinking"] = {"type": "disabled"}
        _forget(body["messages"])
    else:
        _fix_sampling(body, warnings)


def _wanted(ask: ReasoningOptions) -> bool:
    if ask.effort == "none" or ask.enabled is False:
        return False
    return bool(ask.effort or ask.budget or ask.enabled or ask.adaptive)


def _adaptive(ask: ReasoningOptions) -> dict[str, str]:
    """Newer models show no thinking unless requested; a caller who asks for reasoning wants to see it."""
    return {"type": "adaptive", "display": SHOWN.get(ask.show, "summarized")}


def _budget(ask: ReasoningOptions, max_tokens: int) -> int:
    """The thinking budget in tokens; at least a fifth of the output limit is left for the answer where possible."""
    wanted = ask.budget or BUDGETS.get(ask.effort, USUAL_BUDGET)
    if ask.budget:
        most = max_tokens - 1
    else:
        most = max(LEAST_BUDGET, max_tokens * 4 // 5)
    return max(LEAST_BUDGET, min(wanted, most, max_tokens - 1, MOST_BUDGET))


def _write_effort(body: dict[str, Any], ask: ReasoningOptions, target: Target) -> None:
    """The nearest effort level of the model, at or below the requested one."""
    effort = ask.effort
    if not effort and ask.budget:
        effort = next((name for name in reversed(RISING) if ask.budget >= BUDGETS[name]), "low")
    if effort:
        level = nearest_effort(effort, target.mapping.reasoning_efforts)
        body["output_config"] = {**body.get("output_config", {}), "effort": level}


def nearest_effort(effort: str, known: tuple[str, ...]) -> str:
    """The highest of `known` that is not above `effort`, else its lowest; without any known, within the usual five."""
    levels = [name for name in RISING if name in (known or RISING[1:])]
    if not levels or effort not in RISING:
        return effort
    return next((name for name in reversed(levels) if RISING.index(name) <= RISING.index(effort)), levels[0])


def _obstacle(body: dict[str, Any]) -> str:
    """Why this request cannot use any form of thinking; "" when it can."""
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        return "a tool call is forced"
    if body["messages"][-1]["role"] == "assistant":
        return "an answer is to be continued"
    return ""


def _gap(body: dict[str, Any]) -> str:
    """Why this request cannot think with a budget; "" when it can."""
    if body["max_tokens"] <= LEAST_BUDGET:
        return f"max_tokens is not above {LEAST_BUDGET}"
    turns: list[Turn] = body["messages"]
    if turns[-1]["content"][0]["type"] != "tool_result" or len(turns) < 2:
        return ""
    if turns[-2]["content"][0]["type"] not in THOUGHTS:
        return "the thinking that led to the tool calls did not come back with them"
    return ""


def _forget(turns: list[Turn]) -> None:
    """Remove the thinking from the last answer."""
    place = next((n for n in range(len(turns) - 1, -1, -1) if turns[n]["role"] == "assistant"), None)
    if place is None:
        return
    kept = [block for block in turns[place]["content"] if block["type"] not in THOUGHTS]
    if kept:
        turns[place]["content"] = kept
    else:
        del turns[place]


def _fix_sampling(body: dict[str, Any], warnings: list[str]) -> None:
    """Thinking has its own temperature, and top_p between 0.95 and 1."""
    if body.pop("temperature", 1) != 1:
        warnings.append("temperature does not go with extended thinking and was left out.")
    if "top_k" in body:
        del body["top_k"]
        warnings.append("top_k does not go with extended thinking and was left out.")
    if "top_p" in body and body["top_p"] < 0.95:
        del body["top_p"]
        warnings.append("top_p below 0.95 does not go with extended thinking and was left out.")
