"""Converts a validated Responses body, with the conversation before it, into a neutral request."""

from collections.abc import Iterable
from typing import Any

import orjson
from msgspec import Struct, json, to_builtins
from msgspec.structs import replace

from gateway.dialects import responses_vocabulary as dialect
from gateway.dialects.hosted_tools import named_models, part_uses, tool_uses
from gateway.dialects.responses_vocabulary import LATER_TOOLS, NAME
from gateway.errors import InvalidRequest
from gateway.neutral.chat import ChatRequest, Native, Options, Requirements
from gateway.neutral.hosted_uses import HostedUse, collect
from gateway.neutral.parameters import capabilities_of, relayed_fields
from gateway.surfaces.bodies.chat_option_reader import gateway_options
from gateway.surfaces.bodies.lenient_parsing import OWN_TOOLS, read_choice, tool_type_of
from gateway.surfaces.bodies.preference_checks import read_preferences
from gateway.surfaces.bodies.unknown_parts import size_of
from gateway.surfaces.bodies.validation_errors import either, invalid
from gateway.surfaces.responses import caller_tools, own_items, schema
from gateway.surfaces.responses import items as shapes
from gateway.surfaces.responses.conversation import (
    PARAMETER_READER,
    SEARCH_CALL,
    SUMMED_UP,
    compacts,
    decode_conversation,
    flat_name,
    is_newer,
)
from gateway.surfaces.responses.opaque_tokens import open_summary
from gateway.surfaces.responses.response_answers import RequestEcho

# Lenient parsing of Responses bodies: spellings of chat completions and of other dialects, and common mistakes.
#
# Only a body that was rejected is parsed again here. Unknown spellings stay unchanged, and are rejected as before.

Json = dict[str, Any]

ASSISTANT = "assistant"


def tools(listed: list[Any]) -> list[Any]:
    """Correct tools with members one level too deep, or without a type."""
    return [_tool(tool) for tool in listed]


def choice(given: Any) -> Any:
    """Correct a tool_choice: a word within an object, in another case, or nested."""
    return read_choice(given, _name_tool)


def _name_tool(kind: str, named: Json) -> Json:
    inner = named.get(kind)
    return {"type": kind, "name": inner.get("name") if isinstance(inner, dict) else named.get("name")}


def items(listed: list[Any]) -> list[Any]:
    """Convert input items in the spelling of chat completions: messages and calls."""
    return [_item(item) if isinstance(item, dict) else item for item in listed]


def _tool(tool: Any) -> Any:
    if not isinstance(tool, dict):
        return tool
    kind = tool_type_of(tool)
    if kind not in OWN_TOOLS:
        return tool
    inner = tool.get(kind)
    flat = {name: value for name, value in tool.items() if name != kind} if isinstance(inner, dict) else dict(tool)
    flat |= inner if isinstance(inner, dict) else {}
    if "input_schema" in flat and "parameters" not in flat:
        flat["parameters"] = flat.pop("input_schema")
    return {**flat, "type": kind}


def _item(item: Json) -> Json:
    role = item.get("role")
    if isinstance(role, str):
        return _message({**item, "role": role.lower()})
    if item.get("type") == "function_call":
        item = dict(item)
        if isinstance(item.get("arguments"), dict):
            item["arguments"] = orjson.dumps(item["arguments"]).decode()
        if not item.get("call_id") and item.get("id"):
            item["call_id"] = item["id"]
    return item


def _message(message: Json) -> Json:
    content = message.get("content")
    if message["role"] == "tool" and message.get("tool_call_id"):
        output = _content(content, "input_text")
        return {"type": "function_call_output", "call_id": message["tool_call_id"], "output": output or ""}
    return {**message, "content": _content(content, "output_text" if message["role"] == ASSISTANT else "input_text")}


def _content(content: Any, text: str) -> Any:
    if isinstance(content, dict):
        content = [content]
    if isinstance(content, list):
        return [_part(part, text) for part in content]
    return content


def _part(part: Any, text: str) -> Any:
    """Correct a content part: a bare text, a part of chat completions, an image with its URL in an object."""
    if isinstance(part, str):
        return {"type": text, "text": part}
    if not isinstance(part, dict):
        return part
    kind = part.get("type")
    image = part.get("image_url")
    if kind in ("text", None) and isinstance(part.get("text"), str):
        return {**part, "type": text}
    if image is not None and kind in ("image_url", "image", "input_image", None):
        value = image if isinstance(image, dict) else {"url": image}
        detail = part.get("detail") or value.get("detail")
        return {"type": "input_image", "image_url": value.get("url"), **({"detail": detail} if detail else {})}
    return part


# The uses of a Responses request at its provider beside its model.

KNOWN_ITEMS = shapes.FOREIGN_WITH_ID | shapes.FOREIGN_WITHOUT_ID


def uses_of(body: schema.ResponsesBody, items: Iterable[tuple[str, shapes.Item]]) -> tuple[HostedUse, ...]:
    """Return the tools of the provider, further models and stored objects of a request; stored media are found where
    media are counted."""
    tools = list(body.tools or ())
    unknown: list[HostedUse] = []
    for _, item in items:
        if type(item) is not schema.VendorItem:
            unknown += [use for part in shapes.unknown_parts(item) for use in part_uses(NAME, part.kind, part.body)]
            continue
        if item.kind == LATER_TOOLS and isinstance(item.body.get("tools"), list):
            tools += [tool for tool in item.body["tools"] if isinstance(tool, dict)]
        elif item.kind not in KNOWN_ITEMS:
            unknown += part_uses(NAME, item.kind, item.body)
    found = unknown + [use for tool in tools for use in tool_uses(NAME, _kind_of(tool), tool)]
    if body.moderation:
        found += [use._replace(billed=()) for use in named_models(NAME, "moderation", (body.moderation.get("model"),))]
    most = body.max_tool_calls
    if most:
        found = [use._replace(most=min(use.most, most)) for use in found]
    return collect(found)


def _kind_of(tool: dict[str, Any]) -> str:
    kind = tool.get("type")
    if isinstance(kind, str):
        return kind
    return ""


CHOICES = ("auto", "none", "required")
NAMED_TOOL_TYPES = ("function", "custom")
FUNCTIONS = (schema.FunctionTool, schema.CustomTool, schema.NamespaceTool)
# Fields that are sent unchanged to a server of this dialect.
NATIVE_FIELDS = (
    "access_programs",
    "context_management",
    "image",
    "instructions",
    "max_tool_calls",
    "moderation",
    "safety_identifier",
    "stream_options",
    "top_logprobs",
    "truncation",
    "user",
    *relayed_fields(dialect.NAME),
)
# Fields that a response repeats from its request, null when they were absent.
ECHOED_FIELDS = (
    "instructions",
    "max_tool_calls",
    "previous_response_id",
    "prompt_cache_key",
    "prompt_cache_retention",
    "safety_identifier",
    "top_logprobs",
    "user",
    *relayed_fields(dialect.NAME),
)
PlacedItems = list[tuple[str, shapes.Item]]


class ResponseTurn(Struct, frozen=True):
    """A request with the facts that its response needs.

    `history` and `items` are JSON items: the earlier conversation, and this turn's own input as it is stored. `names`
    maps flat names to the namespace and name of a tool, `own` the names of functions to the kinds of the caller's tools
    that they stand for. `sealed`: the caller wants encrypted reasoning in the response,
    `reasoned`: any reasoning, `compacts`: a compaction instead of an answer.
    """

    request: ChatRequest
    history: list[Json]
    items: list[Json]
    echo: RequestEcho
    names: dict[str, tuple[str, str]]
    own: dict[str, str]
    sealed: bool
    reasoned: bool
    store: bool
    compacts: bool = False


def read_response(body: schema.ResponsesBody, history: list[Json], own: list[Json]) -> ResponseTurn:
    """Return the turn of a validated body. `history` are the items of the conversation that it continues, `own` its
    input.

    Raises InvalidRequest with the dotted path of an invalid value, after other spellings were corrected. Items are
    decoded into messages on first use only.
    """
    try:
        return _read(body, history, own)
    except InvalidRequest:
        if body.tools:
            body.tools = tools(body.tools)
        body.tool_choice = choice(body.tool_choice)
        return _read(body, history, items(own), newer=True)


def _read(body: schema.ResponsesBody, history: list[Json], own: list[Json], *, newer: bool = False) -> ResponseTurn:
    before = [("previous_response_id", shapes.read_item(item, "previous_response_id", newer=True)) for item in history]
    mine = [(f"input.{place}", shapes.read_item(item, f"input.{place}", newer=newer)) for place, item in enumerate(own)]
    tools = [shapes.read_tool(tool, f"tools.{place}") for place, tool in enumerate(body.tools or ())]
    check_choice(body.tool_choice)
    items = before + mine
    if not items:
        raise invalid("input", "it is empty, and previous_response_id is not set")
    later = _later_tools(items)
    survey = _Survey(body, items, tools, later)
    request = ChatRequest(
        requested_model=body.model,
        requirements=survey.requirements(),
        decode=lambda: decode_conversation(body, items, tools, later),
        options=_options(body),
        native=None if survey.audio else _native(body, items),
        user=body.safety_identifier or body.user or "",
    )
    return ResponseTurn(
        request=request,
        history=history,
        items=[shapes.write_item(item) for _, item in mine],
        echo=_echo(body),
        names=_names(tools + later),
        own={name: kind for kind, name in caller_tools.names_by_kind(tools).items()},
        sealed=dialect.ENCRYPTED in (body.include or ()),
        reasoned=_asks_reasoning(body),
        store=body.store is not False,
        compacts=compacts(items),
    )


def _later_tools(items: PlacedItems) -> list[shapes.Tool]:
    """Return the tools that items add. One that cannot be read is for its server alone."""
    later: list[shapes.Tool] = []
    for path, item in items:
        if type(item) is schema.VendorItem:
            for place, tool in enumerate(own_items.later_tools(item)):
                try:
                    later.append(shapes.read_tool(tool, f"{path}.tools.{place}"))
                except InvalidRequest:
                    continue
    return later


def _asks_reasoning(body: schema.ResponsesBody) -> bool:
    return body.reasoning is not None or any(name.startswith("reasoning") for name in body.include or ())


def check_choice(choice: str | Json | None) -> None:
    """Raise InvalidRequest unless it is one of the words or objects of tool_choice (tool_choice_*.py of the OpenAI
    SDK), or an object of a newer type."""
    if choice is None or choice in CHOICES:
        return
    if isinstance(choice, str):
        raise invalid("tool_choice", f"{choice!r} is not one of {either((*CHOICES, 'an object'))}")
    kind = choice.get("type")
    if kind in NAMED_TOOL_TYPES and not isinstance(choice.get("name"), str):
        raise invalid("tool_choice.name", "name the tool that must be called")
    if kind == "allowed_tools":
        if choice.get("mode") not in ("auto", "required") or not isinstance(choice.get("tools"), list):
            raise invalid("tool_choice", "allowed_tools needs mode (auto or required) and tools")
    elif not isinstance(kind, str) or not kind:
        raise invalid("tool_choice.type", f"{kind!r} is not a type of tool")


class _Survey:
    """Facts about the items, found in one pass without decoding them."""

    def __init__(
        self, body: schema.ResponsesBody, items: PlacedItems, tools: list[shapes.Tool], later: list[shapes.Tool]
    ) -> None:
        self._body = body
        self._tools = tools
        self._later = later
        self._messages = len(items)
        self.text = _size(body.instructions or "")
        self.images = self.earlier_images = self.files = self.audio = self.inline = 0
        self.foreign = False
        self._items = items
        for _, item in items:
            self._add(item)

    def _add(self, item: shapes.Item) -> None:
        match item:
            case schema.Message():
                before = self.images
                self._add_content(item.content)
                if item.role == "assistant":
                    self.earlier_images += self.images - before
                    self.images = before
            case schema.FunctionOutput() | schema.CustomOutput():
                self._add_content(item.output)
            case schema.FunctionCall() | schema.CustomCall() | schema.Reasoning():
                self.text += len(json.encode(item))
            case schema.Compaction():
                self.text += _size(item.encrypted_content)
                self.foreign = self.foreign or open_summary(item, "input") is None
            case _:
                self._add_foreign(item)

    def _add_foreign(self, item: schema.VendorItem) -> None:
        if item.kind == dialect.IMAGE_CALL and isinstance(item.body.get("result"), str):
            self.earlier_images += 1
        elif item.kind != SEARCH_CALL:
            self._add_body(item.body)

    def _add_body(self, body: Json) -> None:
        size = size_of(body)
        self.text += size.text
        self.inline += size.media
        self.foreign = True

    def _add_content(self, content: str | list[Any]) -> None:
        if isinstance(content, str):
            self.text += _size(content)
            return
        for part in content:
            match part:
                case schema.ImagePart():
                    self.images += 1
                case schema.FilePart():
                    self.files += 1
                case schema.AudioPart():
                    self.audio += 1
                case schema.RefusalPart():
                    self.text += _size(part.refusal)
                case schema.UnknownPart():
                    self._add_body(part.body)
                case _:
                    self.text += _size(part.text)

    def requirements(self) -> Requirements:
        body = self._body
        tools = self._tools
        format = body.text.format if body.text else None
        shape = len(json.encode(format)) if type(format) is schema.JsonSchemaFormat else 0  # the model reads it
        effort = (body.reasoning and body.reasoning.effort) or ""
        choice = None if is_newer(body.tool_choice, tools) else body.tool_choice
        forced = _forced(choice if tools else None)
        searches = forced == "web_search" or any(_searches(tool) for tool in tools)
        callers = any(caller_tools.is_callers(tool) for tool in tools)
        functions = callers or any(type(tool) in FUNCTIONS for tool in (*tools, *self._later))
        hosted = any(_is_foreign(tool) for tool in tools)
        # A hosted tool beside functions can be left out. If it is forced, or if a tool must be called and only hosted
        # tools are offered, it cannot.
        needed = forced == "required" and not functions
        named = _names_hosted(choice, tools) if tools else ""
        return Requirements(
            stream=bool(body.stream),
            tools=functions,
            vision=self.images > 0,
            earlier_images=self.earlier_images > 0,
            audio=self.audio > 0,
            documents=self.files > 0,
            json_object=type(format) is schema.JsonObjectFormat,
            json_schema=type(format) is schema.JsonSchemaFormat,
            reasoning=effort not in ("", "none"),
            effort=effort,
            web_search=searches,
            max_tokens=body.max_output_tokens,
            prompt_bytes=self.text + sum(len(json.encode(tool)) for tool in tools) + shape,
            messages=self._messages,
            media=self.images + self.earlier_images + self.files + self.audio + self.inline,
            forced_tool=forced,
            parameters=self._capabilities(),
            keeps_reasoning=True,
            vendor_only=dialect.NAME if hosted and (needed or named) else "",
            own_parts=dialect.NAME if self.foreign or callers else "",
            search_offered=searches and not needed and forced != "web_search",
            hosted=dialect.NAME if hosted and not (needed or named) else "",
            hosted_uses=uses_of(body, self._items),
        )

    def _capabilities(self) -> frozenset[str]:
        """Return the capabilities that the parameters need. Without tools, parallel_tool_calls has no effect."""
        sampling = PARAMETER_READER.read(self._body)
        if not self._tools:
            sampling = replace(sampling, parallel_tool_calls=None)
        return capabilities_of(sampling)


def _searches(tool: shapes.Tool) -> bool:
    """Return whether the tool requires a model with search; a search of stored pages only is optional."""
    return type(tool) is schema.WebSearchTool and tool.external_web_access is not False


def _is_foreign(tool: shapes.Tool) -> bool:
    """Return whether only servers of this dialect have the tool; without a search over deferred tools, all tools are
    sent directly."""
    return type(tool) is schema.VendorItem and tool.kind != "tool_search" and not caller_tools.is_callers(tool)


def _forced(choice: str | Json | None) -> str:
    if choice is None or choice in ("auto", "none"):
        return ""
    if isinstance(choice, str):
        return "required"
    if choice["type"] == "allowed_tools":
        if choice["mode"] == "required":
            return "required"
        return ""
    if choice["type"].startswith("web_search"):
        return "web_search"
    return "tool"


def _names_hosted(choice: str | Json | None, tools: list[shapes.Tool]) -> str:
    """Return the hosted tool that must be called, if the choice names one."""
    kind = choice["type"] if isinstance(choice, dict) else ""
    if kind in shapes.TOOLS or kind in ("", "allowed_tools") or kind in caller_tools.names_by_kind(tools):
        return ""
    return str(kind)


def _size(text: str) -> int:
    if text.isascii():
        return len(text)
    return len(text.encode("utf-8", "replace"))


def _options(body: schema.ResponsesBody) -> Options:
    return gateway_options(
        body,
        read_preferences(routing=body.routing, no_reasoning=body.no_reasoning),
        {},
        session=body.safety_identifier or body.user or "",
        hides_reasoning=not _asks_reasoning(body),
    )


def _native(body: schema.ResponsesBody, items: PlacedItems) -> Native:
    """Return the body for a server of this dialect: items without ids, and only reasoning that such a server
    encrypted."""
    native: Json = {"input": [written for path, item in items for written in _native_item(item, path)]}
    for name in NATIVE_FIELDS:
        value = getattr(body, name)
        if value is not None:
            native[name] = value
    if body.reasoning is not None:
        native["reasoning"] = to_builtins(body.reasoning)
    if body.text is not None:
        native["text"] = to_builtins(body.text)
    if body.include:
        native["include"] = body.include
    if body.tools:
        native["tools"] = [_native_tool(tool) for tool in body.tools]
        if body.tool_choice is not None:
            native["tool_choice"] = body.tool_choice
    else:
        native.pop("parallel_tool_calls", None)
    return Native(dialect.NAME, native, whole=True)


def _native_item(item: shapes.Item, path: str) -> list[Any]:
    match item:
        case schema.Reasoning():
            token = dialect.read_token(item.encrypted_content)
            if not item.encrypted_content or (token is not None and token.vendor != dialect.NAME):
                return []
            return [{"summary": [], **to_builtins(item)}]
        case schema.Compaction():
            summary = open_summary(item, path)
            if summary is not None:
                return [schema.Message(role="developer", content=SUMMED_UP + summary)]
            return [to_builtins(item)]
        case schema.VendorItem():
            return [item.body]
        case _:
            return [shapes.write_item(item) if shapes.unknown_parts(item) else item]


def _native_tool(tool: Json) -> Json:
    """Return a function without members of other formats; a server tool stays unchanged."""
    if tool.get("type", "") not in shapes.MEMBERS:
        return tool
    kept = {name: value for name, value in tool.items() if name not in shapes.OTHER_MEMBERS}
    if tool["type"] == "function":
        return {"parameters": None, "strict": None, **kept}
    return kept


def _names(tools: list[shapes.Tool]) -> dict[str, tuple[str, str]]:
    return {
        flat_name(tool.name, inner.name): (tool.name, inner.name)
        for tool in tools
        if type(tool) is schema.NamespaceTool
        for inner in tool.tools
    }


def _echo(body: schema.ResponsesBody) -> RequestEcho:
    """Return the fields that a response repeats from its request (response.py of the OpenAI SDK)."""
    reasoning = body.reasoning or schema.ReasoningRequest()
    echo: Any = {name: getattr(body, name) for name in ECHOED_FIELDS}
    text = to_builtins(body.text) if body.text else {}
    return {
        **echo,
        "background": bool(body.background),
        "metadata": body.metadata or {},
        "parallel_tool_calls": body.parallel_tool_calls is not False,
        "reasoning": {"effort": reasoning.effort, "summary": reasoning.summary or reasoning.generate_summary},
        "text": {"format": {"type": "text"}, **text},
        "tool_choice": body.tool_choice or "auto",
        "tools": [_native_tool(tool) for tool in body.tools or ()],
        "truncation": body.truncation or "disabled",
    }
