"""Writes a neutral conversation as an OpenAI chat completions body."""

import hashlib
from typing import Any

from gateway.dialects import google
from gateway.dialects.openai import CHAT_LIMIT, NAME, shorten
from gateway.errors import ContentNeeded, NotSupported
from gateway.neutral.chat import (
    ChatRequest,
    Conversation,
    CustomTool,
    FunctionTool,
    ReasoningOptions,
    ResponseFormat,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.parts import (
    Audio,
    File,
    Image,
    Message,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
)
from gateway.providers.media_fetching import is_addressed
from gateway.providers.parameter_writer import ParameterWriter
from gateway.providers.protocol import Target
from gateway.providers.unsupported_parts import GENERATED, spell_out, warn_of_mode

PARAMETER_WRITER = ParameterWriter(NAME, apart=("stop", "parallel_tool_calls", "output_effort"))
USER_LIMIT = 64  # characters that OpenAI accepts
STOP_LIMIT = 4  # API reference: up to four stop sequences
MOVED_NOTE = "(shown in the next user message)"
COMMON_TIERS = ("auto", "default")  # of every provider with service tiers
# The effort for a budget in tokens: this format has no field for a budget.
EFFORT_BY_BUDGET = ((4096, "low"), (16384, "medium"))


def write_body(
    request: ChatRequest, replay_reasoning: bool, warnings: list[str], *, extra: bool = False
) -> dict[str, Any]:
    """Return the body without model, stream and the provider's adjustments. Adds a warning for each dropped field.
    `extra`: the server wants the extra content of calls back.

    NotSupported for content that this format cannot carry.
    """
    conversation = request.conversation()
    body: dict[str, Any] = {
        "messages": _Messages(replay_reasoning, warnings, extra).write(spell_out(conversation.messages, warnings))
    }
    warn_of_mode(conversation.reasoning, warnings)
    tools = _write_tools(conversation.tools, body, warnings)
    if tools:
        body["tools"] = tools
        if conversation.tool_choice is not None and conversation.tool_choice.mode != "web_search":
            body["tool_choice"] = _write_choice(conversation.tool_choice, conversation.tools)
        if conversation.sampling.parallel_tool_calls is not None:
            body["parallel_tool_calls"] = conversation.sampling.parallel_tool_calls
    if conversation.response_format is not None:
        body["response_format"] = _write_format(conversation.response_format)
    effort = effort_of(conversation.reasoning)
    if effort:
        body["reasoning_effort"] = effort
    _write_sampling(conversation, body, warnings)
    if request.user:
        body["user"] = shorten_user(request.user)
    return body


def shorten_user(user: str) -> str:
    """Return the user, or its hash if it is too long. Agents combine device and session to long user names."""
    if len(user) <= USER_LIMIT:
        return user
    return hashlib.sha256(user.encode(errors="replace")).hexdigest()


def _write_sampling(conversation: Conversation, body: dict[str, Any], warnings: list[str]) -> None:
    sampling = conversation.sampling
    if sampling.stop:
        body["stop"] = list(sampling.stop[:STOP_LIMIT])
        if len(sampling.stop) > STOP_LIMIT:
            warnings.append(f"Only the first {STOP_LIMIT} stop sequences are used.")
    PARAMETER_WRITER.write(sampling, body, warnings)
    if sampling.output_effort and not body.get("verbosity"):
        warnings.append("The output effort has no counterpart at this provider and was left out.")


def write_tier(body: dict[str, Any], tier: str, target: Target) -> None:
    """Request a service tier where it is offered."""
    mapping = target.mapping
    offered = target.provider.service_tiers or mapping.service_tiers
    if offered and (tier in COMMON_TIERS or tier in offered or tier in mapping.service_tiers):
        body["service_tier"] = tier


def effort_of(reasoning: ReasoningOptions) -> str:
    """Return the requested reasoning effort, "" without one."""
    if reasoning.budget:
        return next((effort for limit, effort in EFFORT_BY_BUDGET if reasoning.budget <= limit), "high")
    if reasoning.effort:
        return reasoning.effort
    if reasoning.enabled is False:
        return "none"
    return ""


def _write_tools(tools: tuple[Tool, ...], body: dict[str, Any], warnings: list[str]) -> list[dict[str, Any]]:
    """Return the `tools` list. A web search becomes the body's web_search_options."""
    written = []
    for tool in tools:
        match tool:
            case FunctionTool():
                written.append(_write_function(tool))
            case CustomTool():
                custom = {"name": tool.name, "description": tool.description, "format": tool.format}
                written.append(_write_tool(tool, "custom", {key: value for key, value in custom.items() if value}))
            case WebSearch():
                body["web_search_options"] = _write_search(tool, warnings)
            case VendorTool(vendor=vendor) if vendor == NAME:
                written.append(tool.body)
            case VendorTool(kind="tool_search"):
                pass  # deferred tools are sent like all others
            case _:
                raise NotSupported(f"This provider has no tool of type {tool.kind}.", param="tools")
    return written


def _write_function(tool: FunctionTool) -> dict[str, Any]:
    function: dict[str, Any] = {"name": tool.name}
    if tool.description:
        function["description"] = tool.description
    if tool.schema is not None:
        function["parameters"] = tool.schema
    if tool.strict is not None:
        function["strict"] = tool.strict
    return _write_tool(tool, "function", function)


def _write_tool(tool: FunctionTool | CustomTool, kind: str, named: dict[str, Any]) -> dict[str, Any]:
    """Return a tool with its members that are newer than the gateway, if they are for this format."""
    if tool.body is None or tool.vendor != NAME:
        return {"type": kind, kind: named}
    return {**tool.body, "type": kind, kind: {**tool.body.get(kind, {}), **named}}


def _write_search(tool: WebSearch, warnings: list[str]) -> dict[str, Any]:
    options: dict[str, Any] = {}
    if tool.context_size:
        options["search_context_size"] = tool.context_size
    names = ("city", "region", "country", "timezone")
    place = {name: getattr(tool, name) for name in names if getattr(tool, name)}
    if place:
        options["user_location"] = {"type": "approximate", "approximate": place}
    if tool.allowed_domains or tool.blocked_domains or tool.max_uses:
        warnings.append("Domain lists and max_uses of web_search have no counterpart at this provider.")
    return options


def _write_choice(choice: ToolChoice, tools: tuple[Tool, ...]) -> Any:
    if choice.body is not None:
        return choice.body
    if choice.mode != "tool":
        return choice.mode
    kind = "custom" if any(isinstance(t, CustomTool) and t.name == choice.name for t in tools) else "function"
    return {"type": kind, kind: {"name": choice.name}}


def _write_format(response_format: ResponseFormat) -> dict[str, Any]:
    if response_format.kind != "json_schema":
        return {"type": response_format.kind}
    schema: dict[str, Any] = {"name": response_format.name or "response", "schema": response_format.schema or {}}
    if response_format.description:
        schema["description"] = response_format.description
    if response_format.strict is not None:
        schema["strict"] = response_format.strict
    return {"type": "json_schema", "json_schema": schema}


class _Messages:
    """Writes messages in order. Media in places where the format allows none (tool results, assistant and system
    messages) follow in a user message after the tool messages."""

    def __init__(self, replay_reasoning: bool, warnings: list[str], extra: bool) -> None:
        self._replay = replay_reasoning
        self._extra = extra
        self._warnings = warnings
        self._written: list[dict[str, Any]] = []
        self._waiting: list[dict[str, Any]] = []

    def write(self, messages: tuple[Message, ...]) -> list[dict[str, Any]]:
        for message in messages:
            if message.role == "tool":
                self._add_results(message)
                continue
            self._flush()
            if message.role == "assistant":
                self._add_assistant(message)
            elif message.role == "user":
                self._add(message, [write_part(part) for part in message.parts])
            else:
                self._add(message, self._text_only(message.parts, "Shown with the instructions:"))
        self._flush()
        return self._written

    def _add(self, message: Message, parts: list[dict[str, Any]]) -> None:
        written = {"role": message.role, "content": _shorten(parts)}
        if message.name:
            written["name"] = message.name
        self._written.append(written)

    def _flush(self) -> None:
        if self._waiting:
            self._written.append({"role": "user", "content": self._waiting})
            self._waiting = []

    def _text_only(self, parts: tuple[Part, ...], caption: str) -> list[dict[str, Any]]:
        """Return the text parts, and keep media for the next user message under `caption`."""
        written = [write_part(part) for part in parts]
        media = [part for part in written if part["type"] != "text"]
        if media:
            self._waiting += [{"type": "text", "text": caption}, *media]
        return [part for part in written if part["type"] == "text"]

    def _add_results(self, message: Message) -> None:
        for part in message.parts:
            if not isinstance(part, ToolResult):
                self._waiting.append(write_part(part))
                continue
            caption = f"Output of {part.name or 'the tool'} (call {part.call_id}):"
            texts = self._text_only(part.parts, caption)
            content = "\n".join(text["text"] for text in texts)
            if not content and part.parts and not texts:
                content = MOVED_NOTE
            if part.is_error and not content.lower().startswith("error"):
                content = f"Error: {content}"
            self._written.append(
                {"role": "tool", "tool_call_id": shorten(part.call_id, CHAT_LIMIT), "content": content}
            )

    def _add_assistant(self, message: Message) -> None:
        calls = [part for part in message.parts if isinstance(part, ToolCall)]
        parts = tuple(part for part in message.parts if not isinstance(part, Reasoning | Refusal | ToolCall))
        refusal = "".join(part.text for part in message.parts if isinstance(part, Refusal))
        if any(part.executed for part in calls):
            self._warnings.append("Calls of another provider's server tools in past turns were left out.")
            parts = tuple(part for part in parts if not isinstance(part, ToolResult))
        texts = self._text_only(parts, GENERATED)
        own = [_write_call(part, self._extra) for part in calls if not part.executed]
        written: dict[str, Any] = {"role": "assistant", "content": _shorten(texts) if texts or not own else None}
        if refusal:
            written["refusal"] = refusal
            written["content"] = written["content"] or None
        if message.name:
            written["name"] = message.name
        if own:
            written["tool_calls"] = own
        thoughts = "\n\n".join(part.text for part in message.parts if isinstance(part, Reasoning) and part.text)
        if thoughts and self._replay:
            written["reasoning_content"] = thoughts
        self._written.append(written)


def _shorten(parts: list[dict[str, Any]]) -> Any:
    """Return a single text as a string, which every server of this format accepts; otherwise the parts."""
    if not parts:
        return ""
    if len(parts) == 1 and parts[0]["type"] == "text":
        return parts[0]["text"]
    return parts


def _write_call(call: ToolCall, extra: bool) -> dict[str, Any]:
    ident = shorten(call.id, CHAT_LIMIT)
    if call.custom:
        return {"id": ident, "type": "custom", "custom": {"name": call.name, "input": call.arguments}}
    function = {"name": call.name, "arguments": call.arguments or "{}"}
    written = {"id": ident, "type": "function", "function": function}
    if extra and call.signature and call.vendor == google.NAME:
        written["extra_content"] = google.write_extra(call.signature)
    return written


def write_image(image: Image) -> dict[str, Any]:
    """Return the content part of an image with a URL or data."""
    body = {"url": image.media.url or image.media.inline("image/png")}
    if image.detail:
        body["detail"] = image.detail
    return {"type": "image_url", "image_url": body}


def write_part(part: Part) -> dict[str, Any]:
    """Return a content part. NotSupported for a part that the format has no field for. Cache marks are hints and are
    dropped."""
    match part:
        case Text() | Refusal():
            return {"type": "text", "text": part.text}
        case VendorPart(vendor=vendor) if vendor == NAME:
            return part.body
        case Image(media=media) if media.url or media.data:
            return write_image(part)
        case Audio(media=media) if media.data:
            sound = part.format or media.media_type.rpartition("/")[2] or "wav"
            return {"type": "input_audio", "input_audio": {"data": media.data, "format": sound}}
        case File(media=media) if media.file_id:
            return {"type": "file", "file": {"file_id": media.file_id}}
        case File(media=media) | Audio(media=media) if is_addressed(media):
            raise ContentNeeded("This provider does not load files by URL; send the content.", param="messages")
        case File(media=media) if media.data:
            name = part.filename or part.title or "file"
            return {"type": "file", "file": {"filename": name, "file_data": media.inline("application/pdf")}}
        case _:
            name = type(part).__name__.lower()
            raise NotSupported(f"This provider does not support a part of type {name} in this form.", param="messages")
