"""Bodies of callers who speak this format themselves, with what the model would refuse changed in place. Members that
the neutral form lacks stay.

The values of a native body are shared with the parsed request, so every changed object is a copy.
"""

from collections.abc import Callable
from typing import Any

from gateway.dialects.google import NAME
from gateway.neutral.chat import ChatRequest, Conversation, WebSearch
from gateway.neutral.parameters import fields_of
from gateway.neutral.request import Native
from gateway.providers.google.contents import NO_SIGNATURE
from gateway.providers.google.relayed_bodies import capped
from gateway.providers.google.request import write_generation
from gateway.providers.google.tools import write_schema
from gateway.providers.google.traits import Traits
from gateway.providers.protocol import Target
from gateway.providers.unsupported_parts import mark_instruction

Body = dict[str, Any]
SEARCHES = ("googleSearch", "googleSearchRetrieval")
DECLARATIONS = "functionDeclarations"
JSON_TYPE = "application/json"
INSTRUCTIONS = "system"
# Members of generationConfig that the neutral form has, and that are written from it; the format of the answer and the
# options of images stay as the caller wrote them.
THINKING = "thinkingConfig"
REWRITTEN = frozenset((*(path.rpartition(".")[2] for path in fields_of(NAME)), "stopSequences", THINKING))
UNTOUCHED = ("responseMimeType", "responseModalities", "imageConfig", "responseJsonSchema", "responseSchema")


def mend(native: Native, request: ChatRequest, target: Target, traits: Traits, warnings: list[str]) -> Body:
    """Return the body as the model takes it. NotSupported for combinations that it lacks."""
    body = capped(native.body, target.output_cap)
    conversation = request.conversation()
    if native.instructed:
        _place_instructions(body)
    if traits.signed:
        body["contents"] = [_signed(content) for content in body["contents"]]
    _fit_tools(body, conversation, target, traits, warnings)
    _fit_generation(body, request, target, traits, warnings)
    return body


def mixes_tools(body: Body, traits: Traits) -> bool:
    """Return whether a body still combines what the model does not: functions with its own tools, or JSON output."""
    kinds = {name for tool in body.get("tools") or () for name in tool}
    structured = (body.get("generationConfig") or {}).get("responseMimeType") == JSON_TYPE
    return not traits.mixed_tools and bool(kinds) and (len(kinds) > 1 or structured)


def _place_instructions(body: Body) -> None:
    """Move instructions at the beginning to their member; later ones become marked texts of the user."""
    contents = body["contents"]
    begun = next((place for place, one in enumerate(contents) if one["role"] != INSTRUCTIONS), len(contents))
    front = [part for content in contents[:begun] for part in content["parts"]]
    later = [_reminder(content) if content["role"] == INSTRUCTIONS else content for content in contents[begun:]]
    if not later:
        later = [{"role": "user", "parts": front}]
        front = []
    if front:
        system = body.get("systemInstruction") or {}
        body["systemInstruction"] = {**system, "parts": [*(system.get("parts") or ()), *front]}
    body["contents"] = later


def _reminder(content: Body) -> Body:
    parts = [part | {"text": mark_instruction(part["text"])} if part.get("text") else part for part in content["parts"]]
    return {**content, "role": "user", "parts": parts}


def _signed(content: Body) -> Body:
    """Return a content with a signature at its first call: calls of another vendor's model have none."""
    parts = content.get("parts") or ()
    first = next((place for place, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or parts[first].get("thoughtSignature"):
        return content
    signed = parts[first] | {"thoughtSignature": NO_SIGNATURE}
    return {**content, "parts": [*parts[:first], signed, *parts[first + 1 :]]}


def _fit_tools(body: Body, conversation: Conversation, target: Target, traits: Traits, warnings: list[str]) -> None:
    """Remove a search that is only offered where the model lacks it or does not combine it, and write JSON Schemas for
    models that have another form of schemas."""
    if not body.get("tools"):
        return
    searches = any(isinstance(tool, WebSearch) for tool in conversation.tools)
    if searches and (not target.mapping.web_search or mixes_tools(body, traits)):
        warnings.append(f"tools: web_search was left out: {target.mapping.key} has no such tool.")
        searches = False
    tools = body["tools"]
    if not searches:
        tools = _without(tools, lambda name: name in SEARCHES)
    if not traits.json_schema:
        tools = [_with_older_schemas(tool, traits) for tool in tools]
    body["tools"] = tools
    if not tools:
        del body["tools"]
        body.pop("toolConfig", None)


def _without(tools: list[Body], drops: Callable[[str], bool]) -> list[Body]:
    kept = ({name: value for name, value in tool.items() if not drops(name)} for tool in tools)
    return [tool for tool in kept if tool]


def _with_older_schemas(tool: Body, traits: Traits) -> Body:
    if not tool.get(DECLARATIONS):
        return tool
    return {**tool, DECLARATIONS: [_with_older_schema(declared, traits) for declared in tool[DECLARATIONS]]}


def _with_older_schema(declared: Body, traits: Traits) -> Body:
    schema = declared.get("parametersJsonSchema")
    if not isinstance(schema, dict):
        return declared
    plain = {name: value for name, value in declared.items() if name != "parametersJsonSchema"}
    written, _ = write_schema(schema, traits, tool=True)
    return {**plain, "parameters": written} if written.get("properties") else plain


def _fit_generation(body: Body, request: ChatRequest, target: Target, traits: Traits, warnings: list[str]) -> None:
    """Write the parameters and the thinking that the model takes."""
    config: Body = body.get("generationConfig") or {}
    written = write_generation(request, request.conversation(), target, traits, warnings)
    kept = {name: value for name, value in config.items() if name not in REWRITTEN}
    older = not traits.json_schema and "responseJsonSchema" in kept
    if older:
        del kept["responseJsonSchema"]
    new = {name: value for name, value in written.items() if name not in UNTOUCHED or (older and name in written)}
    thinking = config.get(THINKING)
    if thinking and THINKING in new:
        known = ("includeThoughts", "thinkingBudget", "thinkingLevel")
        new[THINKING] = {**{name: thinking[name] for name in thinking if name not in known}, **new[THINKING]}
    config = kept | new
    if config:
        body["generationConfig"] = config
    else:
        body.pop("generationConfig", None)
