"""Converts a validated chat completions body into a neutral request."""

from collections import deque
from collections.abc import Iterator
from functools import partial
from operator import attrgetter
from typing import Any, Literal

from msgspec import to_builtins
from msgspec.json import encode
from msgspec.structs import replace

from gateway.dialects import google
from gateway.dialects import openai as dialect
from gateway.dialects.hosted_tools import part_uses
from gateway.dialects.openai import CHAT_LIMIT, is_name
from gateway.neutral.chat import NO_OPTIONS, ChatRequest, Conversation, Effort, Native, Requirements, Sampling
from gateway.neutral.hosted_uses import collect
from gateway.neutral.parameters import CAPABILITY_PARAMETERS, PARAMETERS, relayed_fields
from gateway.neutral.parts import (
    Audio,
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
    VendorPart,
)
from gateway.surfaces.bodies import chat_options as chat_options_module
from gateway.surfaces.bodies.chat_option_reader import (
    PromptSize,
    decode_options,
    effort_of,
    normalize,
    options_of,
    read_mark,
    requirements_of,
)
from gateway.surfaces.bodies.unknown_parts import size_of
from gateway.surfaces.bodies.validation_errors import PDF_NAME, invalid, is_document, read_media
from gateway.surfaces.openai import chat_schema as schema
from gateway.surfaces.openai.reasoning_details import ReasoningMarks, read_details

# Decodes the messages, tools and settings of a chat completions body.

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
    return decode_options(body, effort, messages)


def decode_texts(body: schema.ChatBody) -> Conversation:
    """Decode a body in which each message is one text, without tools, format or reasoning, as `decode_conversation`
    does."""
    messages: list[Any] = body.messages  # the caller has checked this
    return Conversation(
        tuple([Message(ROLES[type(message)], (Text(message.content),), message.name or "") for message in messages]),
        sampling=Sampling(body.max_completion_tokens or body.max_tokens, body.temperature),
    )


def _message(message: schema.AnyMessage, place: int, names: dict[str, str]) -> Message:
    """Return one message; `names` maps each call id to its tool, so that results can name their tool."""
    if isinstance(message, schema.ToolMessage):
        parts = _parts(message, place)
        mark = read_mark(message.tool_result_cache_control)
        name = names.get(message.tool_call_id, "")
        return Message("tool", (ToolResult(message.tool_call_id, parts, name=name, cache=mark),))
    if isinstance(message, schema.AssistantMessage):
        return _assistant(message, place, names)
    return Message(ROLES[type(message)], _parts(message, place), message.name or "")


def _assistant(message: schema.AssistantMessage, place: int, names: dict[str, str]) -> Message:
    """Return reasoning first, then text, then calls: the order in which every vendor accepts them."""
    thought = message.reasoning or message.reasoning_content or ""
    calls = message.tool_calls or []
    path = f"messages.{place}.reasoning_details"
    reasoning, marks = read_details(message.reasoning_details, thought, {call.id for call in calls}, path)
    parts: list[Part] = [*reasoning, *_signed(_parts(message, place), marks)]
    if message.refusal:
        parts.append(Refusal(message.refusal))
    for call in calls:
        custom = isinstance(call, schema.CustomCall)
        signature, vendor = marks.of_call(call.id)
        if isinstance(call, schema.CustomCall):
            name = call.custom.name
            text = call.custom.input
        else:
            name = call.function.name
            text = call.function.arguments
            if not signature and (signature := google.read_extra(call.extra_content)):
                vendor = google.NAME
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
            return Text(part.text, cache=read_mark(part.cache_control))
        case schema.RefusalPart():
            return Refusal(part.refusal)
        case schema.ImagePart():
            media = read_media(part.image_url.url, f"{path}.image_url.url")
            return Image(media, part.image_url.detail or "", read_mark(part.cache_control))
        case schema.AudioPart():
            sound = part.input_audio
            return Audio(Media(media_type=f"audio/{sound.format}", data=sound.data), sound.format)
        case schema.UnknownChatPart():
            return VendorPart(dialect.NAME, part.kind, part.body)
        case _:
            return _file(part, path)


def _file(part: schema.FilePart, path: str) -> File:
    file = part.file
    mark = read_mark(part.cache_control)
    if file.file_id:
        return File(Media(file_id=file.file_id), file.filename or "", cache=mark)
    if not file.file_data:
        raise invalid(f"{path}.file", "give file_data (a data URL) or file_id")
    return File(read_media(file.file_data, f"{path}.file.file_data", bare=True), file.filename or "", cache=mark)


# The order of chat messages that servers of the format accept: results directly behind their calls.


def with_results_behind_calls(messages: schema.Messages) -> schema.Messages:
    """Return the messages with each result behind its call, and all others in their order; the same list if they
    already are."""
    if _is_ordered(messages):
        return messages
    results: dict[str, deque[schema.AnyMessage]] = {}
    calls = {call.id for message in messages for call in _calls_of(message)}
    for message in messages:
        if type(message) is schema.ToolMessage and message.tool_call_id in calls:
            results.setdefault(message.tool_call_id, deque()).append(message)
    ordered: schema.Messages = []
    for message in messages:
        if type(message) is schema.ToolMessage and message.tool_call_id in calls:
            continue
        ordered.append(message)
        for call in _calls_of(message):
            waiting = results.get(call.id)
            if waiting:
                ordered.append(waiting.popleft())
    return ordered


def _is_ordered(messages: schema.Messages) -> bool:
    known: set[str] = set()
    open_ids: set[str] = set()  # of the last message, if nothing but results followed it
    for message in messages:
        if type(message) is schema.ToolMessage:
            if message.tool_call_id in known and message.tool_call_id not in open_ids:
                return False
        else:
            open_ids = {call.id for call in _calls_of(message)}
            known |= open_ids
    return True


def _calls_of(message: schema.AnyMessage) -> list[schema.FunctionCall | schema.CustomCall]:
    return message.tool_calls or [] if type(message) is schema.AssistantMessage else []


# Message members that only a gateway accepts begin or end like this: a body without these words needs no search for
# them.
# In a body that may have members which only a gateway accepts.
GATEWAY_WORDS = (b'"reasoning', b'cache_control"', b'"extra_content"')
MESSAGE_BYTES = 1024  # of a message that is looked at in less time than its text
MARK_WORD = b'cache_control":'  # within a text the quotation mark is escaped
BREAKPOINT = "prompt_cache_breakpoint"
BREAKPOINT_WORD = BREAKPOINT.encode()
# Outside of their content, these messages have no members that only a gateway accepts.
PLAIN_MESSAGES = frozenset((schema.SystemMessage, schema.DeveloperMessage, schema.UserMessage))
ACTS = tuple(name for name in schema.AssistantMessage.__struct_fields__ if name != "content")
READ_ACTS = attrgetter(*ACTS)
NO_ACTS = (None,) * len(ACTS)
# Parameters that OpenAI's chat API does not have.
GATEWAY_FIELDS = tuple(
    row.field for row in PARAMETERS.values() if dialect.NAME in row.callers and dialect.NAME not in row.upstream
)
READ_GATEWAY_FIELDS = attrgetter("web_search", "image_config", *GATEWAY_FIELDS)
# Most requests have none of these fields, and then neither special requirements nor anything that an
# OpenAI-compatible upstream would reject.
READ_SPECIAL = attrgetter(
    *("tools", "response_format", "reasoning_effort", "reasoning", "web_search", "web_search_options"),
    *("image_config", "n", *GATEWAY_FIELDS, *(row.field for row in CAPABILITY_PARAMETERS)),
)
# `n` is written separately.
RELAYED = tuple(name for name in relayed_fields(dialect.NAME) if name != "n")
NATIVE_FIELDS = ("tools", "tool_choice", "response_format", "user", *RELAYED)
READ_NATIVE = attrgetter(*NATIVE_FIELDS)
NO_FIELDS = (None,) * len(NATIVE_FIELDS)
# Fields that most requests lack, so that one check covers all of them.
COMMON_FIELDS = ("model", "messages", "stream", "temperature", "max_tokens", "max_completion_tokens")
RARE = tuple(name for name in schema.ChatBody.__struct_fields__ if name not in COMMON_FIELDS)
READ_RARE = attrgetter(*RARE)
NOTHING_RARE = (None,) * len(RARE)


def read_chat(body: schema.ChatBody, raw: bytes) -> ChatRequest:
    """Return the neutral request of a validated body; `raw` is its JSON text. Messages are decoded on first use.

    Raises nothing here; `conversation()` raises InvalidRequest with the dotted path of an invalid value.
    """
    rare = READ_RARE(body) != NOTHING_RARE
    if not rare:
        plain = _read_plain(body)
        if plain is not None:
            return plain
    else:
        normalize(body)
    messages = body.messages
    prompt = _summarize(messages)
    marks = (rare or not prompt.plain) and MARK_WORD in raw
    special = rare and any(READ_SPECIAL(body))
    effort = effort_of(body) if special else ""
    # For targets that have to remove the breakpoints from the messages.
    extra = {BREAKPOINT: True} if prompt.parts and BREAKPOINT_WORD in raw else None
    options = options_of(body, extra)
    draws = options.image_config is not None
    request = ChatRequest(
        body.model,
        requirements_of(body, prompt.size(len(messages)), marks=marks, draws=draws)
        if special or prompt.media or marks
        else _plain_requirements(body, prompt),
        lambda: decode_conversation(body, effort),
        options,
        _native(body, raw, prompt, effort, special),
        body.user or body.safety_identifier or "",
    )
    return _with_unknown(request, prompt) if prompt.unknown else request


def _with_unknown(request: ChatRequest, prompt: "_PromptSummary") -> ChatRequest:
    """Return the request with what its parts of unknown types require. A relayed body has them as the caller wrote
    them."""
    needs = request.requirements
    uses = [use for part in prompt.unknown for use in part_uses(dialect.NAME, part.kind, part.body)]
    native = request.native
    if native is not None:
        messages = [_write_unknown(message) for message in native.body["messages"]]
        native = replace(native, body={**native.body, "messages": messages})
    needs = replace(
        needs,
        own_parts=dialect.NAME,
        hosted_uses=collect([*needs.hosted_uses, *uses]),
        media=needs.media + prompt.inline,
    )
    return replace(request, requirements=needs, native=native)


def _read_plain(body: schema.ChatBody) -> ChatRequest | None:
    """Return the request where each message is one text and no rare field is set: equal to that of the general path,
    with fewer checks. None when a message has more."""
    messages = body.messages
    size = 0
    for message in messages:
        content = message.content
        if type(content) is not str or not content:
            return None
        if type(message) not in PLAIN_MESSAGES:
            if not _is_plain_assistant(message):
                return None
        elif message.name:  # type: ignore[union-attr]  # results of tools have none, and are no plain messages
            return None
        size += len(content) if content.isascii() else len(content.encode("utf-8", "replace"))
    limit = body.max_completion_tokens or body.max_tokens
    native: dict[str, Any] = {"messages": messages}
    if body.temperature is not None:
        native["temperature"] = body.temperature
    if limit:
        native["max_completion_tokens"] = limit
    needs = Requirements(stream=body.stream or False, max_tokens=limit, prompt_bytes=size, messages=len(messages))
    return ChatRequest(
        body.model, needs, partial(decode_texts, body), NO_OPTIONS, Native(dialect.NAME, native), plain=True
    )


def _is_plain_assistant(message: schema.AnyMessage) -> bool:
    """Return whether the message is the assistant's and has no member besides its text."""
    return type(message) is schema.AssistantMessage and READ_ACTS(message) == NO_ACTS


def parts_of(messages: schema.Messages) -> Iterator[Any]:
    """Yield the content of each message, and the calls of the assistant."""
    for message in messages:
        yield message.content
        if type(message) is schema.AssistantMessage and message.tool_calls:
            yield message.tool_calls


def _summarize(messages: schema.Messages) -> "_PromptSummary":
    prompt = _PromptSummary()
    text = 0
    for message in messages:
        content = message.content
        if type(content) is str and content and type(message) in PLAIN_MESSAGES:
            text += len(content) if content.isascii() else len(content.encode("utf-8", "replace"))
        else:
            prompt.plain = False
            _normalize(message)
            prompt.add(message)
        name = getattr(message, "name", None)
        if name and type(message) is not schema.AssistantMessage:
            text += len(name.encode("utf-8", "replace"))
    prompt.text += text
    return prompt


def _normalize(message: schema.AnyMessage) -> None:
    """Normalize equivalent spellings: an empty list counts as absent, a null content of the assistant as empty, its
    images belong to its content, and a PDF among images is a file."""
    if type(message.content) is list:
        message.content = [_as_file(part) for part in message.content]
    if type(message) is schema.AssistantMessage:
        if message.images:
            text = [schema.TextPart(message.content)] if isinstance(message.content, str) else message.content
            message.content = [*(text or ()), *message.images]
        message.images = None
        if not message.tool_calls:
            message.tool_calls = None
        if message.reasoning:
            message.reasoning_content = None  # answers have the same text under both names
        if not message.content and not message.tool_calls and not message.refusal and not message.audio:
            message.content = ""
    elif not message.content:
        message.content = ""


def _as_file(part: schema.AnyPart) -> schema.AnyPart:
    """Return a part; for an image that is a PDF, a file."""
    if type(part) is schema.ImagePart and is_document(part.image_url.url):
        file = schema.FileData(PDF_NAME, part.image_url.url)
        return schema.FilePart(file, part.cache_control, part.prompt_cache_breakpoint)
    return part


class _PromptSummary:
    """Facts about the messages, found in one pass without decoding them."""

    __slots__ = (
        "answers",
        "audio",
        "earlier_images",
        "files",
        "images",
        "inline",
        "moved",
        "parts",
        "plain",
        "refused",
        "text",
        "unknown",
    )

    def __init__(self) -> None:
        self.text = self.images = self.earlier_images = self.audio = self.files = self.inline = 0
        self.plain = True  # every message is one text of the system, the developer or the user
        self.parts = self.answers = False  # has messages of several parts, and results of tools
        self.unknown: list[schema.UnknownChatPart] = []
        self.refused = False  # calls with an id or a name that OpenAI refuses
        self.moved = False  # media where OpenAI accepts none: in a tool's result, a system or an assistant message

    @property
    def media(self) -> int:
        return self.images + self.earlier_images + self.audio + self.files

    def size(self, messages: int) -> PromptSize:
        """Return the facts that requirements need."""
        return PromptSize(self.text, self.images, self.audio, self.files, messages, self.earlier_images)

    def add(self, message: schema.AnyMessage) -> None:
        content = message.content
        if isinstance(content, str):
            self.text += len(content) if content.isascii() else len(content.encode("utf-8", "replace"))
        elif content:
            self.parts = True
            media = self.media
            images = self.images
            for part in content:
                self._add_part(part)
            if type(message) is schema.AssistantMessage:
                self.earlier_images += self.images - images
                self.images = images
            if self.media > media and type(message) is not schema.UserMessage:
                self.moved = True
        if type(message) is schema.AssistantMessage and READ_ACTS(message) != NO_ACTS:
            if message.tool_calls and any(map(_is_refused, message.tool_calls)):
                self.refused = True
            # Everything that the assistant produced except for its text: some models read their earlier reasoning.
            self.text += sum(len(encode(act)) for act in READ_ACTS(message) if act is not None)
        elif type(message) is schema.ToolMessage:
            self.answers = True

    def _add_part(self, part: schema.AnyPart) -> None:
        if type(part) is schema.TextPart:
            self.text += len(part.text) if part.text.isascii() else len(part.text.encode("utf-8", "replace"))
        elif type(part) is schema.ImagePart:
            self.images += 1
        elif type(part) is schema.AudioPart:
            self.audio += 1
        elif type(part) is schema.FilePart:
            self.files += 1
        elif type(part) is schema.UnknownChatPart:
            size = size_of(part.body)
            self.text += size.text
            self.inline += size.media
            self.unknown.append(part)


def _plain_requirements(body: schema.ChatBody, prompt: _PromptSummary) -> Requirements:
    """Return the requirements of plain text input and output."""
    return Requirements(
        stream=bool(body.stream),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        prompt_bytes=prompt.text,
        messages=len(body.messages),
    )


def _native(body: schema.ChatBody, raw: bytes, prompt: _PromptSummary, effort: str, special: bool) -> Native | None:
    """Return the body for an OpenAI-compatible upstream, or None when such an upstream would reject it."""
    if prompt.moved or prompt.refused or (special and _has_gateway_fields(body)):
        return None
    if body.tools and not all(map(_has_plain_name, body.tools)):
        return None
    if not prompt.plain and _may_have_gateway_members(body, raw) and any(map(_has_gateway_members, body.messages)):
        return None
    native: dict[str, Any] = {"messages": with_results_behind_calls(body.messages) if prompt.answers else body.messages}
    fields = READ_NATIVE(body)
    if fields != NO_FIELDS:
        for name, value in zip(NATIVE_FIELDS, fields, strict=True):
            if value is not None:
                native[name] = value.body if type(value) is chat_options_module.UnknownChoice else value
    limit = body.max_completion_tokens or body.max_tokens
    if limit:
        native["max_completion_tokens"] = limit
    if body.n and body.n > 1:
        native["n"] = body.n
    if effort:
        native["reasoning_effort"] = effort
    return Native(dialect.NAME, native)


def _may_have_gateway_members(body: schema.ChatBody, raw: bytes) -> bool:
    """Return whether a look at each message is necessary. Where messages are long, it costs less than a search in the
    text."""
    return len(raw) > MESSAGE_BYTES * len(body.messages) or any(word in raw for word in GATEWAY_WORDS)


def _write_unknown(message: schema.AnyMessage) -> Any:
    """Return a message with its parts of unknown types as the caller wrote them."""
    content = message.content
    if type(content) is not list or not any(type(part) is schema.UnknownChatPart for part in content):
        return message
    parts = [part.body if type(part) is schema.UnknownChatPart else to_builtins(part) for part in content]
    return {**to_builtins(message), "content": parts}


def _has_plain_name(tool: Any) -> bool:
    """Return whether OpenAI takes the name of a tool; server tools have none."""
    match tool:
        case chat_options_module.FunctionTool():
            return is_name(tool.function.name)
        case chat_options_module.CustomTool():
            return is_name(tool.custom.name)
    return True


def _is_refused(call: schema.FunctionCall | schema.CustomCall) -> bool:
    """Return whether OpenAI refuses the id or the name of a call, both of which another vendor may have allowed."""
    name = call.function.name if type(call) is schema.FunctionCall else call.custom.name  # type: ignore[union-attr]
    return len(call.id) > CHAT_LIMIT or not is_name(name)


def _has_gateway_fields(body: schema.ChatBody) -> bool:
    """Return whether a top-level field requests a feature that OpenAI's chat API does not have."""
    reasoning = body.reasoning
    if type(body.tool_choice) is chat_options_module.AllowedChoice:
        return True  # few vendors support it: the list of tools is shortened instead
    if body.web_search_options is not None or any(READ_GATEWAY_FIELDS(body)):
        return True
    if reasoning and (reasoning.max_tokens or reasoning.mode):
        return True
    return not all(_plain_tool(tool) for tool in body.tools or ())


def _plain_tool(tool: object) -> bool:
    """Return whether OpenAI's chat API accepts the tool as written."""
    if type(tool) is chat_options_module.FunctionTool:
        return tool.cache_control is None and tool.defer_loading is None and tool.newer is None
    return False  # few vendors support free-text tools: rebuilt for those, never sent to others


def _has_extra(message: schema.AssistantMessage) -> bool:
    calls = message.tool_calls or ()
    return any(type(call) is schema.FunctionCall and call.extra_content for call in calls)


def _has_gateway_members(message: schema.AnyMessage) -> bool:
    """Return whether a message has a member that only a gateway accepts."""
    if type(message) is schema.AssistantMessage and (
        message.reasoning or message.reasoning_content or message.reasoning_details or _has_extra(message)
    ):
        return True
    if type(message) is schema.ToolMessage and message.tool_result_cache_control:
        return True
    content = message.content
    return type(content) is list and any(getattr(part, "cache_control", None) for part in content)
