"""Reasoning: the form that each family supports, its budget, and the parameters that are incompatible with it.

Wire facts: Amazon Bedrock user guide, Claude's "Extended thinking" and "Adaptive thinking" (a budget is at least 1024
tokens and below maxTokens, temperature is 1, topK absent, no tool forced, and a turn with tool calls begins with its
reasoning); Amazon Nova 2 user guide, "Extended thinking" (three levels; the highest excludes an output limit and
sampling); API reference, OutputConfig.effort.
"""

from typing import Any

from gateway.neutral.chat import ReasoningOptions
from gateway.neutral.efforts import RISING, nearest
from gateway.providers.bedrock.conversation import Turn
from gateway.providers.bedrock.families import Family
from gateway.providers.protocol import Target

MIN_BUDGET = 1024
MAX_BUDGET = 64_000
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 64_000}
DEFAULT_EFFORT = "medium"
LEVELS = ("low", "medium", "high")
DEFAULT_OUTPUT = 8192  # maxTokens with a thinking budget when neither the caller nor the catalogue entry sets a limit
EXTRA = "additionalModelRequestFields"
INFERENCE = "inferenceConfig"


def write_reasoning(
    body: dict[str, Any], reasoning: ReasoningOptions, target: Target, family: Family, warnings: list[str]
) -> None:
    """Add the reasoning options to a body, and remove the parameters that are incompatible with them.

    The body must already have its messages, limits and tools.
    """
    requested = _is_requested(reasoning) and target.mapping.reasoning
    if requested and not family.reasoning:
        if reasoning.effort or reasoning.budget:
            warnings.append(f"The reasoning effort is not supported by {target.mapping.key} and was left out.")
    elif requested and family.reasoning == "levels":
        _write_level(body, reasoning, warnings)
    elif requested and family.reasoning == "effort":
        _extra(body)["reasoning_effort"] = nearest(_effort(reasoning), target.mapping.reasoning_efforts or LEVELS)
    elif requested:
        _write_thinking(body, reasoning, target, family, warnings)
    elif family.signed and (family.reasoning == "budget" or reasoning.enabled is False or reasoning.effort == "none"):
        _remove_last_reasoning(body["messages"])


def _is_requested(reasoning: ReasoningOptions) -> bool:
    if reasoning.effort == "none" or reasoning.enabled is False:
        return False
    return bool(reasoning.effort or reasoning.budget or reasoning.enabled or reasoning.adaptive)


def _effort(reasoning: ReasoningOptions) -> str:
    if reasoning.effort or not reasoning.budget:
        return reasoning.effort or DEFAULT_EFFORT
    return next((name for name in reversed(RISING) if reasoning.budget >= BUDGETS[name]), "low")


def _extra(body: dict[str, Any]) -> dict[str, Any]:
    return body.setdefault(EXTRA, {})


def _write_level(body: dict[str, Any], reasoning: ReasoningOptions, warnings: list[str]) -> None:
    level = nearest(_effort(reasoning), LEVELS)
    limits = body.get(INFERENCE, {})
    if level == "high" and "maxTokens" in limits:
        level = "medium"
        warnings.append("The highest reasoning level is incompatible with an output limit: medium is used.")
    elif level == "high" and (limits.pop("temperature", None), limits.pop("topP", None)) != (None, None):
        warnings.append("temperature and top_p are incompatible with the highest reasoning level and were left out.")
        if not limits:
            del body[INFERENCE]
    _extra(body)["reasoningConfig"] = {"type": "enabled", "maxReasoningEffort": level}


def _write_thinking(
    body: dict[str, Any], reasoning: ReasoningOptions, target: Target, family: Family, warnings: list[str]
) -> None:
    obstacle = _obstacle(body)
    if family.reasoning == "budget" and not obstacle:
        limits = body.setdefault(INFERENCE, {})
        limits.setdefault("maxTokens", target.mapping.max_output or DEFAULT_OUTPUT)
        obstacle = _budget_obstacle(body["messages"], limits["maxTokens"])
        if not obstacle:
            _extra(body)["thinking"] = {"type": "enabled", "budget_tokens": _budget(reasoning, limits["maxTokens"])}
    elif not obstacle:
        # Newer models omit their thinking unless the request selects summaries.
        if reasoning.show == "omitted":
            display = "omitted"
        else:
            display = "summarized"
        _extra(body)["thinking"] = {"type": "adaptive", "display": display}
        if reasoning.effort or reasoning.budget:
            known = target.mapping.reasoning_efforts or RISING[1:]
            body.setdefault("outputConfig", {})["effort"] = nearest(_effort(reasoning), known)
    if obstacle:
        warnings.append(f"Extended thinking was disabled for this request: {obstacle}.")
        _remove_last_reasoning(body["messages"])
    else:
        _fix_sampling(body, warnings)


def _budget(reasoning: ReasoningOptions, max_tokens: int) -> int:
    """Return the thinking budget in tokens.

    A budget derived from an effort leaves at least a fifth of maxTokens for the answer where possible.
    """
    if reasoning.budget:
        limit = max_tokens - 1
    else:
        limit = max(MIN_BUDGET, max_tokens * 4 // 5)
    budget = reasoning.budget or BUDGETS[_effort(reasoning)]
    return max(MIN_BUDGET, min(budget, limit, max_tokens - 1, MAX_BUDGET))


def _obstacle(body: dict[str, Any]) -> str:
    """Return why this request cannot use any form of thinking, or "" if it can."""
    if body.get("toolConfig", {}).get("toolChoice", {}).keys() & {"any", "tool"}:
        return "a tool call is forced"
    if body["messages"][-1]["role"] == "assistant":
        return "the conversation ends with an answer to be continued"
    return ""


def _budget_obstacle(turns: list[Turn], max_tokens: int) -> str:
    """Return why this request cannot use a thinking budget, or "" if it can."""
    if max_tokens <= MIN_BUDGET:
        return f"max_tokens is not above {MIN_BUDGET}"
    answers = "toolResult" in turns[-1]["content"][0] and len(turns) > 1
    if answers and "reasoningContent" not in turns[-2]["content"][0]:
        return "the tool calls were sent back without the thinking that precedes them"
    return ""


def _remove_last_reasoning(turns: list[Turn]) -> None:
    """Remove the reasoning from the last assistant turn; a request without thinking must not contain any there."""
    index = next((n for n in range(len(turns) - 1, -1, -1) if turns[n]["role"] == "assistant"), None)
    if index is None:
        return
    remaining = [block for block in turns[index]["content"] if "reasoningContent" not in block]
    if any("cachePoint" not in block for block in remaining):
        turns[index]["content"] = remaining
    elif index + 1 < len(turns):
        turns[index + 1]["content"] = turns[index - 1]["content"] + turns[index + 1]["content"]
        del turns[index - 1 : index + 1]
    else:
        del turns[index]


def _fix_sampling(body: dict[str, Any], warnings: list[str]) -> None:
    limits = body.get(INFERENCE, {})
    extra = _extra(body)
    if limits.pop("temperature", 1) != 1:
        warnings.append("temperature is incompatible with extended thinking and was left out.")
    if extra.pop("top_k", None) is not None:
        warnings.append("top_k is incompatible with extended thinking and was left out.")
    if limits.get("topP", 1) < 0.95:
        del limits["topP"]
        warnings.append("top_p below 0.95 is incompatible with extended thinking and was left out.")
    if INFERENCE in body and not limits:
        del body[INFERENCE]
