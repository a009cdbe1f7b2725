"""Decodes the messages, tools and settings of a chat completions body."""

from typing import Any, Literal

import orjson
from msgspec import Raw, UnsetType

from gateway.neutral.chat import (
    Conversation,
    CustomTool,
    Effort,
    FunctionTool,
    ReasoningOptions,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.cut_pairs import without_halves
from gateway.neutral.parts import (
    Audio,
    CacheMark,
    File,
    Image,
    Media,
    Message,
    Part,
    Refusal,
    Role,
    Text,
    ToolCall,
    ToolResult,
)
from gateway.surfaces.openai import chat_schema as schema
from gateway.surfaces.openai.reasoning_details import ReasoningMarks, read_details

ROLES: dict[type[schema.AnyMessage], Role] = {
    schema.SystemMessage: "system",
    schema.DeveloperMessage: "developer",
    schema.UserMessage: "user",
    schema.AssistantMessage: "assistant",
}


def decode_conversation(body: schema.ChatBody, effort: Effort | Literal[""]) -> Conversation:
    """Return everything that the model reads. Raises InvalidRequest with the dotted path of an invalid value."""
    names: dict[str, str] = {}
    messages = tuple(_message(message, place, names) for place, message in enumerate(body.messages))
    tools = tuple(_tool(tool, place) for place, tool in enumerate(body.tools or ()))
    if not any(isinstance(tool, WebSearch) for tool in tools):
        tools += _requested_search(body)
    if isinstance(body.tool_choice, schema.AllowedChoice):
        tools = _allowed(tools, body.tool_choice.allowed_tools)
    return Conversation(
        messages=messages,
        tools=tools,
        tool_choice=_choice(body.tool_choice),
        response_format=_format(body.response_format),
        reasoning=_reasoning(body, effort),
        sampling=_sampling(body),
    )


def decode_texts(body: schema.ChatBody) -> Conversation:
    """Decode a body in which each message is one text, without tools, format or reasoning, as `decode_conversation`
    does."""
    messages: list[Any] = body.messages  # the caller has checked this
    return Conversation(
        tuple([Message(ROLES[type(one)], (Text(one.content),), one.name or "") for one in messages]),
        sampling=Sampling(body.max_completion_tokens or body.max_tokens, body.temperature),
    )


def _message(message: schema.AnyMessage, place: int, names: dict[str, str]) -> Message:
    """Return one message; `names` maps each call id to its tool, so that results can name their tool."""
    if isinstance(message, schema.ToolMessage):
        parts = _parts(message, place)
        mark = _mark(message.tool_result_cache_control)
        name = names.get(message.tool_call_id, "")
        return Message("tool", (ToolResult(message.tool_call_id, parts, name=name, cache=mark),))
    if isinstance(message, schema.AssistantMessage):
        return _assistant(message, place, names)
    return Message(ROLES[type(message)], _parts(message, place), message.name or "")


def _assistant(message: schema.AssistantMessage, place: int, names: dict[str, str]) -> Message:
    """Return reasoning first, then text, then calls: the order in which every vendor accepts them."""
    said = message.reasoning or message.reasoning_content or ""
    calls = message.tool_calls or []
    path = f"messages.{place}.reasoning_details"
    reasoning, marks = read_details(message.reasoning_details, said, {call.id for call in calls}, path)
    parts: list[Part] = [*reasoning, *_signed(_parts(message, place), marks)]
    if message.refusal:
        parts.append(Refusal(message.refusal))
    for call in calls:
        custom = isinstance(call, schema.CustomCall)
        if isinstance(call, schema.CustomCall):
            name = call.custom.name
            text = call.custom.input
        else:
            name = call.function.name
            text = call.function.arguments
        signature, vendor = marks.of_call(call.id)
        parts.append(ToolCall(call.id, name, text, signature=signature, vendor=vendor, custom=custom))
        names[call.id] = name
    return Message("assistant", tuple(parts), message.name or "")


def _signed(parts: tuple[Part, ...], marks: ReasoningMarks) -> tuple[Part, ...]:
    """Return the parts with the signature of the text, if there is one, on the last text."""
    if not marks.text[0] or not parts or not isinstance(parts[-1], Text):
        return parts
    last = parts[-1]
    return (*parts[:-1], Text(last.text, last.cache, last.sources, *marks.text))


def _parts(message: schema.AnyMessage, place: int) -> tuple[Part, ...]:
    content = message.content
    if isinstance(content, str):
        if content:
            return (Text(content),)
        return ()
    if not content:
        return ()
    return tuple(_part(part, f"messages.{place}.content.{number}") for number, part in enumerate(content))


def _part(part: schema.AnyPart, path: str) -> Part:
    match part:
        case schema.TextPart():
            return Text(part.text, cache=_mark(part.cache_control))
        case schema.RefusalPart():
            return Refusal(part.refusal)
        case schema.ImagePart():
            media = _media(part.image_url.url, f"{path}.image_url.url")
            return Image(media, part.image_url.detail or "", _mark(part.cache_control))
        case schema.AudioPart():
            sound = part.input_audio
            return Audio(Media(media_type=f"audio/{sound.format}", data=sound.data), sound.format)
        case _:
            return _file(part, path)


def _file(part: schema.FilePart, path: str) -> File:
    file = part.file
    mark = _mark(part.cache_control)
    if file.file_id:
        return File(Media(file_id=file.file_id), file.filename or "", cache=mark)
    if not file.file_data:
        raise schema.invalid(f"{path}.file", "give file_data (a data URL) or file_id")
    return File(_media(file.file_data, f"{path}.file.file_data", bare=True), file.filename or "", cache=mark)


def _media(text: str, path: str, *, bare: bool = False) -> Media:
    """Return an https or data URL, or (`bare`) base64 alone, as media."""
    if text[:5].lower() == "data:":
        head, comma, data = text[5:].partition(",")
        kind, *flags = head.split(";")
        if not comma or "base64" not in [flag.strip().lower() for flag in flags]:
            raise schema.invalid(path, "a data URL must look like data:<media type>;base64,<data>")
        return Media(media_type=kind.strip().lower(), data=data)
    if text[:8].lower() == "https://" or text[:7].lower() == "http://":
        return Media(url=text)
    if bare:
        return Media(data=text)
    raise schema.invalid(path, "expected an https URL or a data URL")


def _mark(control: schema.CacheControl | None) -> CacheMark | None:
    if control is None:
        return None
    return CacheMark(control.ttl or "")


def _tool(tool: object, place: int) -> Tool:
    match tool:
        case schema.FunctionTool(function=spec):
            return FunctionTool(
                name=spec.name,
                description=spec.description or "",
                schema=_object(spec.parameters, f"tools.{place}.function.parameters"),
                strict=spec.strict,
                cache=_mark(tool.cache_control),
                deferred=bool(tool.defer_loading),
            )
        case schema.CustomTool(custom=spec):
            return CustomTool(spec.name, spec.description or "", spec.format)
        case schema.WebSearchTool():
            return _web_search(tool)
        case _:
            return VendorTool(vendor="responses", kind="tool_search", body={"type": "tool_search"})


def _requested_search(body: schema.ChatBody) -> tuple[WebSearch, ...]:
    """Return the web search that a field beside the tools requests, if any."""
    wanted = body.web_search_options
    if wanted is None:
        if body.web_search:
            return (WebSearch(),)
        return ()
    if wanted.user_location:
        where = wanted.user_location.approximate
    else:
        where = None
    tool = schema.WebSearchTool(user_location=where, search_context_size=wanted.search_context_size)
    return (_web_search(tool),)


def _web_search(tool: schema.WebSearchTool) -> WebSearch:
    where = tool.user_location or schema.Location()
    return WebSearch(
        max_uses=tool.max_uses,
        allowed_domains=tuple(tool.allowed_domains or ()),
        blocked_domains=tuple(tool.blocked_domains or ()),
        context_size=tool.search_context_size or "",
        city=where.city or "",
        region=where.region or "",
        country=where.country or "",
        timezone=where.timezone or "",
    )


def _object(raw: Raw | UnsetType, path: str) -> dict[str, Any] | None:
    """Return the JSON object of a schema; None when it is absent or null."""
    if raw is schema.UNSET:
        return None
    try:
        return orjson.loads(memoryview(raw))
    except orjson.JSONDecodeError:
        pass
    try:
        return orjson.loads(without_halves(bytes(raw)))
    except orjson.JSONDecodeError as error:
        raise schema.invalid(path, f"not valid JSON ({error})") from None


def _choice(choice: Literal["auto", "none", "required"] | schema.ChoiceObject | None) -> ToolChoice | None:
    match choice:
        case None:
            return None
        case str():
            return ToolChoice(choice)
        case schema.FunctionChoice():
            return ToolChoice("tool", choice.function.name)
        case schema.CustomChoice():
            return ToolChoice("tool", choice.custom.name)
        case schema.AllowedChoice():
            return ToolChoice(choice.allowed_tools.mode)
        case _:
            return ToolChoice("web_search")


def _allowed(tools: tuple[Tool, ...], allowed: schema.AllowedTools) -> tuple[Tool, ...]:
    """Return only the tools that the choice lists ({type, function|custom: {name}}); the others are hidden from the
    model."""
    names = set()
    for entry in allowed.tools:
        named = entry.get("function") or entry.get("custom")
        names.add(named.get("name") if isinstance(named, dict) else None)
    return tuple(tool for tool in tools if getattr(tool, "name", "") in names)


def _format(chosen: object) -> ResponseFormat | None:
    match chosen:
        case schema.JsonSchemaFormat(json_schema=wanted):
            body = _object(wanted.schema, "response_format.json_schema.schema")
            return ResponseFormat("json_schema", wanted.name, wanted.description or "", body, wanted.strict)
        case schema.JsonObjectFormat():
            return ResponseFormat("json_object")
        case schema.TextFormat():
            return ResponseFormat("text")
        case _:
            return None


def _reasoning(body: schema.ChatBody, effort: Effort | Literal[""]) -> ReasoningOptions:
    options = body.reasoning or schema.Reasoning()
    if not effort and not options.max_tokens:
        enabled = None
    else:
        enabled = effort != "none" or bool(options.max_tokens)
    return ReasoningOptions(effort=effort, budget=options.max_tokens, enabled=enabled, mode=options.mode or "")


def _sampling(body: schema.ChatBody) -> Sampling:
    return Sampling(
        max_tokens=body.max_completion_tokens or body.max_tokens,
        temperature=body.temperature,
        top_p=body.top_p,
        frequency_penalty=body.frequency_penalty,
        presence_penalty=body.presence_penalty,
        n=body.n or 1,
        parallel_tool_calls=body.parallel_tool_calls,
        verbosity=body.verbosity or "",
        output_effort=body.effort or "",
    )
