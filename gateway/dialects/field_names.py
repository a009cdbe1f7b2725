"""What fields of a request are called in each dialect or operation: errors and warnings speak of those that the caller
wrote.

Within the gateway a field has the name that chat completions give it.
"""

from gateway.dialects import anthropic
from gateway.errors import GatewayError

NAMES: dict[str, dict[str, str]] = {
    "aisdk": {
        "messages": "prompt",
        "max_tokens": "maxOutputTokens",
        "top_p": "topP",
        "frequency_penalty": "frequencyPenalty",
        "presence_penalty": "presencePenalty",
        "response_format": "responseFormat",
        "tool_choice": "toolChoice",
    },
    "anthropic": {
        "response_format": "output_config.format",
        "reasoning": "thinking",
        "reasoning_effort": "output_config.effort",
        "parallel_tool_calls": "tool_choice.disable_parallel_tool_use",
        "stop": "stop_sequences",
    },
    "completions": {"messages": "prompt"},
    "embeddings": {"messages": "input"},
    "rerank": {"messages": "documents"},
    "responses": {
        "messages": "input",
        "response_format": "text.format",
        "max_tokens": "max_output_tokens",
        "reasoning_effort": "reasoning.effort",
        "verbosity": "text.verbosity",
    },
}


# Service tiers that a dialect asks for by another field.
TIER_FIELDS = {"anthropic": {tier: name for name, (tier, _) in anthropic.TIER_FIELDS.items()}}


def restate(error: GatewayError, surface: str) -> GatewayError:
    """`error` with its field in the words of a surface's callers, in the text too where it stands there in
    backticks."""
    name = NAMES[surface].get(error.param)
    if name:
        error.message = error.message.replace(f"`{error.param}`", f"`{name}`")
        error.param = name
    return error


def reword(surface: str, warning: str) -> str:
    """A warning whose first word is a field, if it is one, in the words of a surface's callers."""
    first, space, rest = warning.partition(" ")
    if first == "service_tier":
        first = TIER_FIELDS.get(surface, {}).get(rest.partition(" ")[0], first)
    return NAMES.get(surface, {}).get(first, first) + space + rest
