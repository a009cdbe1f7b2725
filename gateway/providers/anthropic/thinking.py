"""Extended thinking: the form that a model supports, its budget, and the parameters that are incompatible with it.

Wire facts: Anthropic documentation, "Extended thinking" and "Adaptive thinking". A budget is at least 1024 tokens and
below max_tokens; temperature is 1 and top_k absent; no tool may be forced. With a budget, the last assistant turn must
begin with its thinking when tool results are sent back; with thinking disabled, it must not contain any. Models with
effort levels think adaptively and refuse a budget unless their catalogue entry says otherwise.
"""

from typing import Any

from gateway.dialects.anthropic import THINKING
from gateway.neutral.chat import ReasoningOptions
from gateway.neutral.parameters import RISING, nearest
from gateway.providers.anthropic.conversation import ASSISTANT, SYSTEM, Turn, TurnList, blocks_of
from gateway.providers.protocol import Target
from gateway.providers.unsupported_parts import UNREADABLE

MIN_BUDGET = 1024
MAX_BUDGET = 128_000
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 65_536}
DEFAULT_BUDGET = BUDGETS["medium"]
# Values of `extra.thinking` in a mapping: the forms of thinking that the model supports.
ADAPTIVE = "adaptive"
BUDGET = "budget"
BOTH_FORMS = "both"
ALWAYS = "always"  # adaptive thinking that cannot be disabled


def forms_of(target: Target) -> str:
    """Return ADAPTIVE, BUDGET or BOTH_FORMS, from the catalogue entry or from whether the model has effort levels."""
    chosen = target.mapping.extra.get("thinking", "")
    if chosen == ALWAYS:
        return ADAPTIVE
    return chosen or (ADAPTIVE if target.mapping.reasoning_efforts else BUDGET)


def write_thinking(body: dict[str, Any], reasoning: ReasoningOptions, target: Target, warnings: list[str]) -> None:
    """Add `thinking` and the effort to a body, and remove the parameters that are incompatible with them.

    The body must already have its messages, max_tokens and tool_choice.
    """
    if not target.mapping.reasoning:
        return
    if not _is_requested(reasoning):
        if reasoning.enabled is False or reasoning.effort == "none":
            _disable(body, target)
        elif forms_of(target) == BUDGET:
            _remove_last_thinking(body["messages"])
        return
    obstacle = _obstacle(body)
    forms = forms_of(target)
    if forms == BUDGET or (forms == BOTH_FORMS and reasoning.budget):
        obstacle = obstacle or _budget_obstacle(body)
        if not obstacle:
            body["thinking"] = {"type": "enabled", "budget_tokens": _budget(reasoning, body["max_tokens"])}
    elif not obstacle:
        body["thinking"] = _adaptive(reasoning)
        _write_effort(body, reasoning, target)
    if obstacle:
        warnings.append(f"Extended thinking was disabled for this request: {obstacle}.")
        _disable(body, target)
    else:
        _fix_sampling(body, warnings)


def _disable(body: dict[str, Any], target: Target) -> None:
    """Disable thinking. Models that always think refuse that: they get no form of thinking, and the lowest effort."""
    if target.mapping.extra.get("thinking") == ALWAYS:
        level = nearest_effort("low", target.mapping.reasoning_efforts)
        body["output_config"] = {**body.get("output_config", {}), "effort": level}
        return
    body["thinking"] = {"type": "disabled"}
    _remove_last_thinking(body["messages"])


def _is_requested(reasoning: ReasoningOptions) -> bool:
    if reasoning.effort == "none" or reasoning.enabled is False:
        return False
    return bool(reasoning.effort or reasoning.budget or reasoning.enabled or reasoning.adaptive)


def _adaptive(reasoning: ReasoningOptions) -> dict[str, str]:
    """Return adaptive thinking with summaries, which newer models omit unless requested."""
    display = "omitted" if reasoning.show == "omitted" else "summarized"
    return {"type": "adaptive", "display": display}


def _budget(reasoning: ReasoningOptions, max_tokens: int) -> int:
    """Return the thinking budget in tokens.

    A budget derived from an effort leaves at least a fifth of max_tokens for the answer where possible.
    """
    budget = reasoning.budget or BUDGETS.get(reasoning.effort, DEFAULT_BUDGET)
    limit = max_tokens - 1 if reasoning.budget else max(MIN_BUDGET, max_tokens * 4 // 5)
    return max(MIN_BUDGET, min(budget, limit, max_tokens - 1, MAX_BUDGET))


def _write_effort(body: dict[str, Any], reasoning: ReasoningOptions, target: Target) -> None:
    """Write the nearest effort level of the model, at or below the requested one."""
    effort = reasoning.effort
    if not effort and reasoning.budget:
        effort = next((name for name in reversed(RISING) if reasoning.budget >= BUDGETS[name]), "low")
    if effort:
        level = nearest_effort(effort, target.mapping.reasoning_efforts)
        body["output_config"] = {**body.get("output_config", {}), "effort": level}


def nearest_effort(effort: str, known: tuple[str, ...]) -> str:
    """Return the highest level of `known` that is not above `effort`, or else the lowest.

    An empty `known` stands for the five levels from low to max.
    """
    return nearest(effort, known or RISING[1:])


def _obstacle(body: dict[str, Any]) -> str:
    """Return why this request cannot use any form of thinking, or "" if it can."""
    if body.get("tool_choice", {}).get("type") in ("any", "tool"):
        return "a tool call is forced"
    if body["messages"][-1]["role"] == ASSISTANT:
        return "the conversation ends with an answer to be continued"
    return ""


def _budget_obstacle(body: dict[str, Any]) -> str:
    """Return why this request cannot use a thinking budget, or "" if it can."""
    if body["max_tokens"] <= MIN_BUDGET:
        return f"max_tokens is not above {MIN_BUDGET}"
    if lacks_thinking(body["messages"]):
        return "the tool calls were sent back without the thinking that precedes them"
    return ""


def lacks_thinking(turns: list[Turn]) -> bool:
    """Return whether results answer calls of a turn that does not begin with thinking, as that of another model."""
    spoken = [turn for turn in turns[-3:] if turn["role"] != SYSTEM]
    if len(spoken) < 2:
        return False
    results = blocks_of(spoken[-1])
    calls = blocks_of(spoken[-2])
    return bool(results and calls) and results[0]["type"] == "tool_result" and calls[0]["type"] not in THINKING


def _remove_last_thinking(turns: list[Turn]) -> None:
    """Remove the thinking from the last assistant turn, and the turn if nothing else is left of it."""
    for index in range(len(turns) - 1, -1, -1):
        if turns[index]["role"] == ASSISTANT:
            break
    else:
        return
    remaining = [block for block in blocks_of(turns[index]) if block["type"] not in THINKING]
    if len(remaining) == len(blocks_of(turns[index])):
        return
    if remaining:
        turns[index]["content"] = remaining
    else:
        del turns[index]


def without_thinking(turns: list[Turn], warnings: list[str]) -> list[Turn]:
    """Return the turns without thinking, for an account that refused its signatures. Adds a warning."""
    kept = TurnList()
    left_out = False
    for turn in turns:
        blocks = blocks_of(turn)
        remaining = [block for block in blocks if block["type"] not in THINKING]
        if len(remaining) == len(blocks):
            kept.keep(turn)
        else:
            left_out = True
            kept.add(turn["role"], remaining)
    if left_out:
        warnings.append(UNREADABLE)
    return kept.turns


def _fix_sampling(body: dict[str, Any], warnings: list[str]) -> None:
    """Drop sampling parameters that thinking forbids: any temperature but 1, top_k, and top_p below 0.95."""
    if body.pop("temperature", 1) != 1:
        warnings.append("temperature is incompatible with extended thinking and was left out.")
    if "top_k" in body:
        del body["top_k"]
        warnings.append("top_k is incompatible with extended thinking and was left out.")
    if "top_p" in body and body["top_p"] < 0.95:
        del body["top_p"]
        warnings.append("top_p below 0.95 is incompatible with extended thinking and was left out.")
