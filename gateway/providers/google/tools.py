"""Writes the tools and the tool choice of a generateContent body."""

from typing import Any

from gateway.dialects.google import NAME
from gateway.errors import NotSupported
from gateway.neutral.chat import CustomTool, FunctionTool, Tool, ToolChoice, VendorTool, WebSearch
from gateway.providers.function_parameters import complete
from gateway.providers.google.traits import Traits
from gateway.providers.grammars import GOOGLE, GOOGLE_JSON, OUTPUTS
from gateway.providers.json_schema_subset import rewrite
from gateway.providers.protocol import Target

MODES = {"auto": "AUTO", "none": "NONE", "required": "ANY", "tool": "ANY"}


def write_tools(tools: tuple[Tool, ...], target: Target, traits: Traits, warnings: list[str]) -> list[dict[str, Any]]:
    """Return the `tools` list: all functions in one entry, then web search and the vendor's tools in their order."""
    functions: list[dict[str, Any]] = []
    others: list[dict[str, Any]] = []
    for tool in tools:
        match tool:
            case FunctionTool():
                functions.append(_write_function(tool, traits, warnings))
            case WebSearch() if target.mapping.web_search:
                others.append({"googleSearch": _write_search(tool, traits, warnings)})
            case WebSearch():
                raise NotSupported("This provider does not support web search for this model.", param="tools")
            case CustomTool():
                raise NotSupported("This provider has no tools with free-text input.", param="tools")
            case VendorTool(vendor=vendor, body=body) if vendor == NAME:
                others.append(body)
            case VendorTool(kind="tool_search"):
                pass  # needless, since deferred tools are sent like all others
            case _:
                raise NotSupported(f"This provider has no tool of type {tool.kind}.", param="tools")
    return ([{"functionDeclarations": functions}] if functions else []) + others


def _write_function(tool: FunctionTool, traits: Traits, warnings: list[str]) -> dict[str, Any]:
    """Return a FunctionDeclaration. A function without parameters has no schema."""
    declared: dict[str, Any] = {"name": tool.name}
    if tool.description:
        declared["description"] = tool.description
    if not tool.schema:
        return declared
    whole = complete(tool.schema)
    schema, dropped = write_schema(whole, traits, tool=True)
    if schema.get("properties") or whole.get("additionalProperties"):
        declared["parametersJsonSchema" if traits.json_schema else "parameters"] = schema
    if dropped:
        keywords = ", ".join(dropped)
        warnings.append(f"This provider does not support these keywords in the schema of tool {tool.name}: {keywords}.")
    return declared


def write_schema(schema: dict[str, Any], traits: Traits, *, tool: bool) -> tuple[dict[str, Any], tuple[str, ...]]:
    """Return a schema in the keywords that the model supports, and the dropped keywords.

    `tool`: the schema is that of a function, which must describe an object.
    """
    if traits.json_schema:
        grammar = GOOGLE_JSON
    else:
        grammar = GOOGLE
    written = rewrite(schema, grammar if tool else OUTPUTS[grammar.name])
    return written.schema, written.dropped


def _write_search(tool: WebSearch, traits: Traits, warnings: list[str]) -> dict[str, Any]:
    """Return a GoogleSearch; only Vertex AI supports excludeDomains (reference, GoogleSearch.excludeDomains)."""
    lost = [name for name in ("max_uses", "allowed_domains", "context_size") if getattr(tool, name)]
    if any((tool.city, tool.region, tool.country, tool.timezone)):
        lost.append("user_location")
    search: dict[str, Any] = {}
    if tool.blocked_domains and traits.enterprise:
        search["excludeDomains"] = list(tool.blocked_domains)
    elif tool.blocked_domains:
        lost.append("blocked_domains")
    if lost:
        warnings.append(f"Options of web_search have no counterpart at this provider: {', '.join(lost)}.")
    return search


def write_tool_config(
    choice: ToolChoice | None, tools: list[dict[str, Any]], traits: Traits, warnings: list[str]
) -> dict[str, Any]:
    """Return `toolConfig`: the calling mode, and the field that allows search beside functions."""
    config: dict[str, Any] = {}
    functions = any("functionDeclarations" in tool for tool in tools)
    if functions and len(tools) > 1 and not traits.enterprise:
        config["includeServerSideToolInvocations"] = True
    if choice is None:
        return config
    if choice.mode == "web_search" or not functions:
        if choice.mode not in ("auto", "web_search"):
            warnings.append(f"tool_choice {choice.mode} has no effect on this provider's own tools.")
        return config
    calling: dict[str, Any] = {"mode": MODES[choice.mode]}
    if choice.mode == "tool":
        calling["allowedFunctionNames"] = [choice.name]
    return {**config, "functionCallingConfig": calling}
