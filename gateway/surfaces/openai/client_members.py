"""Members of chat completions that differ for the clients of some vendors, which are recognized by their headers.

Wire facts: the types of the packages `openai` 3.57, `groq` 1.7, `@ai-sdk/groq` 4.0 and `perplexityai` 0.46.
"""

import re
from collections.abc import Mapping
from typing import Any

from gateway.billing.context import Adapt

# "AsyncGroq/Python 1.7.0", "Perplexity/JS 0.46.1", "mistral-client-python/3.7.0", "ai-sdk/groq/3.0.71 …",
# "ai-sdk-groq/4.0.84 …". The AI SDK names the provider for streams only.
find_agent = re.compile(
    r"(?P<groq>Groq/|ai-sdk[-/]groq/)"
    r"|(?P<perplexity>Perplexity/|ai-sdk[-/]perplexity/)"
    r"|(?P<whole>mistral-client-|ai-sdk[-/]xai/)"
    r"|(?P<texts>^pydantic-ai/)"
).search
# OpenAI's SDK for Python in `parse`, and frameworks that read its raw response (LangChain, LiteLLM), serialize a
# complete answer by its types. A plain call does not, and its callers read the routing in `metadata`.
LANGUAGE = "x-stainless-lang"
PYTHON = "python"
SERIALIZED = ("x-stainless-helper-method", "chat.completions.parse"), ("x-stainless-raw-response", "true")


def find_adapt(headers: Mapping[str, str]) -> Adapt | None:
    """Return the function that adapts an answer, or the last chunk of a stream, to the client; None for most."""
    match = find_agent(headers.get("user-agent", ""))
    if match is not None:
        return ADAPTS[match.lastgroup or ""]
    if headers.get(LANGUAGE) == PYTHON and any(headers.get(name) == text for name, text in SERIALIZED):
        return _write_texts
    return None


def _write_texts(body: dict[str, Any]) -> None:
    """Leave only texts in `metadata`, as the type of a complete answer has it: the SDK warns of other values when it
    serializes an answer, and PydanticAI refuses them."""
    if "object" in body:
        metadata = body["llmgateway"] = body["metadata"]
        body["metadata"] = {name: text for name, text in metadata.items() if type(text) is str}


def _write_nested_usage(body: dict[str, Any]) -> None:
    """Repeat the usage in the member in which these clients read that of a stream."""
    if "object" not in body:
        body["x_groq"] = {"id": body["metadata"]["request_id"], "usage": body["usage"]}


def _write_costs(body: dict[str, Any]) -> None:
    """Write the cost as the object that these clients expect."""
    usage = body["usage"]
    details = usage["cost_details"]
    input_cost = details["upstream_inference_prompt_cost"]
    output_cost = details["output_cost"]
    usage["cost"] = {
        "input_tokens_cost": input_cost,
        "output_tokens_cost": output_cost,
        "request_cost": round(details["total_cost"] - input_cost - output_cost, 12),
        "total_cost": details["total_cost"],
    }


def join_calls(body: dict[str, Any]) -> None:
    """Leave an answer unchanged. Mistral's SDKs and the AI SDK's provider of xAI read only whole calls in a stream
    (whole_calls.py), since the APIs of both vendors send no others."""


ADAPTS: dict[str, Adapt] = {
    "groq": _write_nested_usage,
    "perplexity": _write_costs,
    "whole": join_calls,
    "texts": _write_texts,
}
