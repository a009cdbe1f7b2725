"""Decodes items, tools and settings of a request into the neutral form."""

from collections.abc import Iterable
from typing import Any, cast

from gateway.dialects import responses_vocabulary as dialect
from gateway.neutral.chat import (
    Conversation,
    CustomTool,
    FunctionTool,
    ReasoningOptions,
    ResponseFormat,
    Tool,
    ToolChoice,
    ToolMode,
    VendorTool,
    WebSearch,
)
from gateway.neutral.parts import (
    Audio,
    File,
    Image,
    Media,
    Message,
    Part,
    Reasoning,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
)
from gateway.surfaces.bodies.chat_option_reader import read_search
from gateway.surfaces.bodies.request_parameters import ParameterReader
from gateway.surfaces.bodies.validation_errors import invalid, read_media
from gateway.surfaces.responses import caller_tools, own_items, schema
from gateway.surfaces.responses import items as shapes
from gateway.surfaces.responses.opaque_tokens import SealedMarks, open_reasoning, open_summary

PARAMETER_READER = ParameterReader(dialect.NAME)
SUMMED_UP = "Summary of the conversation before this point, whose other messages were left out:\n\n"
SEARCH_CALL = "web_search_call"
CHOICES = ("function", "custom", "allowed_tools")  # types of a tool_choice
# Items that the user says.
USER_PARTS = {dialect.APPROVAL: own_items.user_parts, dialect.TRIGGER: own_items.trigger_parts}


def flat_name(namespace: str | None, name: str) -> str:
    """Return the single name of a namespaced tool for providers without namespaces."""
    if not namespace:
        return name
    if namespace.endswith("__"):
        return f"{namespace}{name}"
    return f"{namespace}__{name}"


def decode_conversation(
    body: schema.ResponsesBody,
    items: list[tuple[str, shapes.Item]],
    tools: list[shapes.Tool],
    later: list[shapes.Tool],
) -> Conversation:
    """Return everything that the model reads. `items` are the items with their dotted paths, `later` the tools that
    they add to `tools`. InvalidRequest names the invalid item."""
    named = caller_tools.names_by_kind(tools)
    choice, offered = _choice(
        body.tool_choice, tuple(tool for each in tools for tool in _tools(each, body.max_tool_calls, named)), named
    )
    if later:
        offered += _later(later, offered, body.max_tool_calls)
    if compacts(items):
        choice = ToolChoice("none")
    return Conversation(
        messages=_Messages(items, named).read(body.instructions),
        tools=offered,
        tool_choice=choice if offered else None,
        response_format=_format(body.text.format if body.text else None),
        reasoning=_reasoning(body),
        sampling=PARAMETER_READER.read(body),
    )


def compacts(items: list[tuple[str, shapes.Item]]) -> bool:
    """Return whether the request is for a compaction instead of an answer."""
    last = items[-1][1] if items else None
    return type(last) is schema.VendorItem and last.kind == dialect.TRIGGER


class _Messages:
    """Collects items into messages: consecutive output of the model is one assistant message."""

    def __init__(self, items: list[tuple[str, shapes.Item]], named: dict[str, str]) -> None:
        self._items = items
        self._own = own_items.OwnItems((item for _, item in items), named)
        self._messages: list[Message] = []
        self._made: list[Part] = []
        self._names: dict[str, str] = {}
        self._marks = _call_marks(items)

    def read(self, instructions: str | None) -> tuple[Message, ...]:
        if instructions:
            self._messages.append(Message("system", (Text(instructions),)))
        for path, item in self._items:
            self._add(item, path)
        self._flush()
        return tuple(self._messages)

    def _add(self, item: shapes.Item, path: str) -> None:
        match item:
            case schema.Message(role="assistant"):
                self._made += read_content(item.content, f"{path}.content")
            case schema.Message():
                self._add_text(item.role, read_content(item.content, f"{path}.content"))
            case schema.FunctionCall() | schema.CustomCall():
                self._made.append(self._call(item))
            case schema.FunctionOutput() | schema.CustomOutput():
                self._add_text("tool", (self._result(item, path),))
            case schema.Reasoning():
                self._add_reasoning(open_reasoning(item, path))
            case schema.Compaction():
                self._add_compaction(item, path)
            case _:
                self._add_foreign(item)

    def _add_text(self, role: Role, parts: tuple[Part, ...]) -> None:
        self._flush()
        self._messages.append(Message(role, parts))

    def _flush(self) -> None:
        if self._made:
            self._messages.append(Message("assistant", tuple(self._made)))
            self._made = []

    def _call(self, item: schema.FunctionCall | schema.CustomCall) -> ToolCall:
        custom = isinstance(item, schema.CustomCall)
        name = self._names[item.call_id] = flat_name(item.namespace, item.name)
        signature, vendor = self._marks.get(item.call_id, ("", ""))
        text = item.input if isinstance(item, schema.CustomCall) else item.arguments
        return ToolCall(item.call_id, name, text, signature=signature, vendor=vendor, custom=custom)

    def _result(self, item: schema.FunctionOutput | schema.CustomOutput, path: str) -> ToolResult:
        name = self._names.get(item.call_id)
        if name is None:
            raise invalid(f"{path}.call_id", f"no tool call with the id {item.call_id!r} comes before it")
        return ToolResult(item.call_id, read_content(item.output, f"{path}.output"), name=name)

    def _add_reasoning(self, opened: Reasoning | SealedMarks) -> None:
        if isinstance(opened, Reasoning):
            self._made.append(opened)
            return
        for place in range(len(self._made) - 1, -1, -1):
            part = self._made[place]
            if opened.text and isinstance(part, Text):
                self._made[place] = Text(part.text, part.cache, part.sources, opened.text, opened.vendor)
                return

    def _add_compaction(self, item: schema.Compaction, path: str) -> None:
        summary = open_summary(item, path)
        if summary is not None:
            self._add_text("developer", (Text(SUMMED_UP + summary),))
        else:
            body = {"type": "compaction", "encrypted_content": item.encrypted_content}
            self._made.append(VendorPart(dialect.NAME, "compaction", body))

    def _add_foreign(self, item: schema.VendorItem) -> None:
        if item.kind == SEARCH_CALL:
            return  # the results are in the text that follows
        if item.kind in USER_PARTS:
            self._add_text("user", USER_PARTS[item.kind](item))
            return
        ident = own_items.call_id_of(item)
        self._made.append(self._own.part(item, self._marks.get(ident, ("", ""))))
        if ident:
            self._names.setdefault(ident, self._own.names.get(ident, item.kind))


def _call_marks(items: Iterable[tuple[str, shapes.Item]]) -> dict[str, tuple[str, str]]:
    """Return (token, vendor) by call id, wherever among the items the tokens are."""
    marks: dict[str, tuple[str, str]] = {}
    for path, item in items:
        if type(item) is schema.Reasoning:
            opened = open_reasoning(item, path)
            if isinstance(opened, SealedMarks):
                marks |= {call: (mark, opened.vendor) for call, mark in opened.calls.items()}
    return marks


def read_content(content: str | list[Any], path: str) -> tuple[Part, ...]:
    """Return the parts of a message or of a tool's output."""
    if isinstance(content, str):
        if content:
            return (Text(content),)
        return ()
    return tuple(_part(part, f"{path}.{number}") for number, part in enumerate(content))


def _part(part: Any, path: str) -> Part:
    match part:
        case schema.TextPart() | schema.OutputText():
            return Text(part.text)
        case schema.RefusalPart():
            return Refusal(part.refusal)
        case schema.ImagePart():
            return Image(_image(part, path), part.detail or "")
        case schema.AudioPart(input_audio=sound):
            return Audio(Media(media_type=f"audio/{sound.format}", data=sound.data), sound.format)
        case schema.UnknownPart():
            return VendorPart(dialect.NAME, part.kind, part.body)
        case _:
            return File(_file(part, path), part.filename or "")


def _image(part: schema.ImagePart, path: str) -> Media:
    if part.file_id:
        return Media(file_id=part.file_id)
    if not part.image_url:
        raise invalid(path, "give image_url (an https URL or a data URL) or file_id")
    return read_media(part.image_url, f"{path}.image_url")


def _file(part: schema.FilePart, path: str) -> Media:
    if part.file_id:
        return Media(file_id=part.file_id)
    if part.file_url:
        return read_media(part.file_url, f"{path}.file_url")
    if not part.file_data:
        raise invalid(path, "give file_data (a data URL), file_url or file_id")
    return read_media(part.file_data, f"{path}.file_data", bare=True)


def _tools(tool: shapes.Tool, maximum: int | None, named: dict[str, str]) -> tuple[Tool, ...]:
    """Return the neutral tools of an entry. `maximum` limits the calls of server tools (max_tool_calls), `named` has
    the functions for tools that the caller runs."""
    match tool:
        case schema.FunctionTool() | schema.CustomTool():
            return (_named(tool, None),)
        case schema.NamespaceTool():
            return tuple(_named(inner, tool.name) for inner in tool.tools)
        case schema.WebSearchTool():
            # A search of stored pages only is optional: most models work without it.
            if tool.external_web_access is False:
                return ()
            return (_search(tool, maximum),)
        case _:
            function = (caller_tools.as_function(tool, named[tool.kind]),) if caller_tools.is_callers(tool) else ()
            return (VendorTool(dialect.NAME, tool.kind, tool.body, function),)


def _later(later: list[shapes.Tool], offered: tuple[Tool, ...], maximum: int | None) -> tuple[Tool, ...]:
    """Return the tools that items add. A server of this dialect reads them in their items."""
    taken = {tool.name for tool in offered if isinstance(tool, FunctionTool | CustomTool)}
    added: dict[str, Tool] = {}
    for each in later:
        if isinstance(each, schema.FunctionTool | schema.CustomTool | schema.NamespaceTool):
            for tool in _tools(each, maximum, {}):
                if isinstance(tool, FunctionTool | CustomTool) and tool.name not in taken:
                    added.setdefault(tool.name, tool)
    return (VendorTool(dialect.NAME, dialect.LATER_TOOLS, {}, tuple(added.values())),) if added else ()


def _named(tool: schema.FunctionTool | schema.CustomTool, namespace: str | None) -> Tool:
    name = flat_name(namespace, tool.name)
    if isinstance(tool, schema.CustomTool):
        return CustomTool(name, tool.description or "", _nest_grammar(tool.format))
    deferred = bool(tool.defer_loading)
    return FunctionTool(name, tool.description or "", tool.parameters, tool.strict, deferred=deferred, newer=tool.newer)


def _nest_grammar(format: dict[str, Any] | None) -> dict[str, Any] | None:
    """Move the members of a grammar under `grammar`, as in chat completions, which the neutral form follows."""
    if not format or format.get("type") != "grammar" or "grammar" in format:
        return format
    return {"type": "grammar", "grammar": {key: value for key, value in format.items() if key != "type"}}


def _search(tool: schema.WebSearchTool, maximum: int | None) -> WebSearch:
    filters = tool.filters or schema.Filters()
    domains = (filters.allowed_domains, filters.blocked_domains)
    return read_search(tool.user_location, tool.search_context_size, domains, maximum)


def _choice(
    choice: str | dict[str, Any] | None, tools: tuple[Tool, ...], named: dict[str, str]
) -> tuple[ToolChoice | None, tuple[Tool, ...]]:
    """Return the choice, and the tools that remain available to the model (reader.check_choice validated its shape)."""
    if choice is None:
        return None, tools
    if isinstance(choice, str):
        return ToolChoice(cast("ToolMode", choice)), tools
    kind = choice["type"]
    if kind == "allowed_tools":
        allowed = [entry for entry in choice["tools"] if isinstance(entry, dict)]
        names = {flat_name(entry.get("namespace"), entry.get("name") or "") for entry in allowed}
        kinds = {entry.get("type") for entry in allowed}
        return ToolChoice(choice["mode"]), tuple(
            tool
            for tool in tools
            if (tool.kind in kinds if isinstance(tool, VendorTool) else getattr(tool, "name", "") in names)
        )
    if kind in ("function", "custom"):
        return ToolChoice("tool", flat_name(choice.get("namespace"), choice["name"])), tools
    if kind in named:
        return ToolChoice("tool", named[kind]), tools
    if is_newer(choice, tools):
        return ToolChoice("auto", kind, dialect.NAME, choice), tools
    return (ToolChoice("web_search") if kind.startswith("web_search") else ToolChoice("required")), tools


def is_newer(choice: str | dict[str, Any] | None, tools: Iterable[Any]) -> bool:
    """Return whether a choice has a type that is newer than this gateway: none of a word, a tool or a hosted tool of
    the request."""
    if choice is None or isinstance(choice, str):
        return False
    kind = choice["type"]
    if kind in CHOICES or kind in shapes.TOOLS or kind in shapes.FOREIGN_TOOLS:
        return False
    return kind not in {getattr(tool, "kind", "") for tool in tools}


def _format(chosen: Any) -> ResponseFormat | None:
    match chosen:
        case schema.JsonSchemaFormat():
            return ResponseFormat("json_schema", chosen.name, chosen.description or "", chosen.schema, chosen.strict)
        case schema.JsonObjectFormat():
            return ResponseFormat("json_object")
        case schema.TextFormat():
            return ResponseFormat("text")
        case _:
            return None


def _reasoning(body: schema.ResponsesBody) -> ReasoningOptions:
    options = body.reasoning or schema.ReasoningRequest()
    return ReasoningOptions(
        effort=options.effort or "",
        enabled=None if not options.effort else options.effort != "none",
        mode=options.mode or "",
        show="summary" if options.summary or options.generate_summary else "",
        encrypted=True,
    )
