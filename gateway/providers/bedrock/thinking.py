"""Reasoning: how it is requested from each family, with which budget, and what is incompatible with it.

Wire facts: Amazon Bedrock user guide, Claude's "Extended thinking" and "Adaptive thinking" (a budget is 1024 tokens or
more and below maxTokens, temperature is 1, topK absent, no tool forced, the answer that called tools begins with its
reasoning); Amazon Nova 2 user guide, "Extended thinking" (three levels; the highest excludes an output limit and
sampling); API reference, OutputConfig.effort.
"""

from typing import Any

from gateway.neutral.chat import ReasoningOptions
from gateway.providers.bedrock.conversation import Turn
from gateway.providers.bedrock.families import Family
from gateway.providers.protocol import Target

LEAST_BUDGET = 1024
MOST_BUDGET = 64_000
BUDGETS = {"minimal": 1024, "low": 2048, "medium": 8192, "high": 16_384, "xhigh": 32_768, "max": 64_000}
RISING = tuple(BUDGETS)
USUAL = "medium"
LEVELS = ("low", "medium", "high")
DEFAULT_OUTPUT = 8192  # beside a budget, where neither the caller nor the entry sets a limit
EXTRA = "additionalModelRequestFields"
INFERENCE = "inferenceConfig"


def write_reasoning(
    body: dict[str, Any], ask: ReasoningOptions, target: Target, family: Family, warnings: list[str]
) -> None:
    """Put the wish into a body that has its messages, limits and tools already; take out what does not go with it."""
    wanted = _is_wanted(ask) and target.mapping.reasoning
    if wanted and not family.reasoning:
        if ask.effort or ask.budget:
            warnings.append(f"The reasoning effort cannot be told to {target.mapping.key} and was left out.")
    elif wanted and family.reasoning == "levels":
        _write_level(body, ask, warnings)
    elif wanted and family.reasoning == "effort":
        _extra(body)["reasoning_effort"] = nearest(_effort(ask), target.mapping.reasoning_efforts or LEVELS)
    elif wanted:
        _write_thinking(body, ask, target, family, warnings)
    elif family.signed and (family.reasoning == "budget" or ask.enabled is False or ask.effort == "none"):
        _forget(body["messages"])


def nearest(effort: str, known: tuple[str, ...]) -> str:
    """The highest of `known` that is not above `effort`, else its lowest."""
    levels = [name for name in RISING if name in known]
    if not levels or effort not in RISING:
        return effort
    return next((name for name in reversed(levels) if RISING.index(name) <= RISING.index(effort)), levels[0])


def _is_wanted(ask: ReasoningOptions) -> bool:
    if ask.effort == "none" or ask.enabled is False:
        return False
    return bool(ask.effort or ask.budget or ask.enabled or ask.adaptive)


def _effort(ask: ReasoningOptions) -> str:
    if ask.effort or not ask.budget:
        return ask.effort or USUAL
    return next((name for name in reversed(RISING) if ask.budget >= BUDGETS[name]), "low")


def _extra(body: dict[str, Any]) -> dict[str, Any]:
    return body.setdefault(EXTRA, {})


def _write_level(body: dict[str, Any], ask: ReasoningOptions, warnings: list[str]) -> None:
    level = nearest(_effort(ask), LEVELS)
    limits = body.get(INFERENCE, {})
    if level == "high" and "maxTokens" in limits:
        level = "medium"
        warnings.append("The highest reasoning level goes with no output limit here: the middle one is used.")
    elif level == "high" and (limits.pop("temperature", None), limits.pop("topP", None)) != (None, None):
        warnings.append("temperature and top_p do not go with the highest reasoning level and were left out.")
        if not limits:
            del body[INFERENCE]
    _extra(body)["reasoningConfig"] = {"type": "enabled", "maxReasoningEffort": level}


def _write_thinking(
    body: dict[str, Any], ask: ReasoningOptions, target: Target, family: Family, warnings: list[str]
) -> None:
    obstacle = _obstacle(body)
    if family.reasoning == "budget" and not obstacle:
        limits = body.setdefault(INFERENCE, {})
        limits.setdefault("maxTokens", target.mapping.max_output or DEFAULT_OUTPUT)
        obstacle = _gap(body["messages"], limits["maxTokens"])
        if not obstacle:
            _extra(body)["thinking"] = {"type": "enabled", "budget_tokens": _budget(ask, limits["maxTokens"])}
    elif not obstacle:
        # Newer models show no thinking unless requested; a caller who asks for reasoning wants to see it.
        if ask.show == "omitted":
            display = "omitted"
        else:
            display = "summarized"
        _extra(body)["thinking"] = {"type": "adaptive", "display": display}
        if ask.effort or ask.budget:
            known = target.mapping.reasoning_efforts or RISING[1:]
            body.setdefault("outputConfig", {})["effort"] = nearest(_effort(ask), known)
    if obstacle:
        warnings.append(f"This answer is made without extended thinking: {obstacle}.")
        _forget(body["messages"])
    else:
        _fix_sampling(body, warnings)


def _budget(ask: ReasoningOptions, limit: int) -> int:
    """Tokens for reasoning; at least a fifth of the limit stays for the answer itself where that fits."""
    if ask.budget:
        most = limit - 1
    else:
        most = max(LEAST_BUDGET, limit * 4 // 5)
    return max(LEAST_BUDGET, min(ask.budget or BUDGETS[_effort(ask)], most, limit - 1, MOST_BUDGET))


def _obstacle(body: dict[str, Any]) -> str:
    """Why this request cannot use any form of thinking; "" when it can."""
    if body.get("toolConfig", {}).get("toolChoice", {}).keys() & {"any", "tool"}:
        return "a tool call is forced"
    if body["messages"][-1]["role"] == "assistant":
        return "an answer is to be continued"
    return ""


def _gap(turns: list[Turn], limit: int) -> str:
    """Why this request cannot think with a budget; "" when it can."""
    if limit <= LEAST_BUDGET:
        return f"max_tokens is not above {LEAST_BUDGET}"
    answers = "toolResult" in turns[-1]["content"][0] and len(turns) > 1
    if answers and "reasoningContent" not in turns[-2]["content"][0]:
        return "the thinking that led to the tool calls did not come back with them"
    return ""


def _forget(turns: list[Turn]) -> None:
    """Take the reasoning out of the last answer: a request without thinking may not bring any."""
    place = next((n for n in range(len(turns) - 1, -1, -1) if turns[n]["role"] == "assistant"), None)
    if place is None:
        return
    kept = [block for block in turns[place]["content"] if "reasoningContent" not in block]
    if any("cachePoint" not in block for block in kept):
        turns[place]["content"] = kept
    elif place + 1 < len(turns):
        turns[place + 1]["content"] = turns[place - 1]["content"] + turns[place + 1]["content"]
        del turns[place - 1 : place + 1]
    else:
        del turns[place]


def _fix_sampling(body: dict[str, Any], warnings: list[str]) -> None:
    limits = body.get(INFERENCE, {})
    extra = _extra(body)
    if limits.pop("temperature", 1) != 1:
        warnings.append("temperature does not go with extended thinking and was left out.")
    if extra.pop("top_k", None) is not None:
        warnings.append("top_k does not go with extended thinking and was left out.")
    if limits.get("topP", 1) < 0.95:
        del limits["topP"]
        warnings.append("top_p below 0.95 does not go with extended thinking and was left out.")
    if INFERENCE in body and not limits:
        del body[INFERENCE]
