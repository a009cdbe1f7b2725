"""Converts a validated chat completions body into a neutral request."""

from functools import partial
from operator import attrgetter
from typing import Any

from msgspec.json import encode

from gateway.dialects import openai as dialect
from gateway.neutral.chat import NO_OPTIONS, ChatRequest, Native, Options, Requirements
from gateway.surfaces.openai import chat_schema as schema
from gateway.surfaces.openai.chat_conversation import decode_conversation, decode_texts
from gateway.surfaces.preference_checks import TYPES, ImageConfig, read_preferences

HEALING = "response-healing"
PREFERENCES = TYPES | {"image_config": ImageConfig}
# Message members that only a gateway accepts begin or end like this: a body without these words needs no search for
# them.
REASONING_WORD = b'"reasoning'
CACHE_CONTROL_WORD = b'cache_control"'
MARK_WORD = b'cache_control":'  # within a text the quotation mark is escaped
BREAKPOINT = "prompt_cache_breakpoint"
BREAKPOINT_WORD = BREAKPOINT.encode()
NOTHING: frozenset[type] = frozenset()
# Outside of their content, these messages have no members that only a gateway accepts.
PLAIN_MESSAGES = frozenset((schema.SystemMessage, schema.DeveloperMessage, schema.UserMessage))
READ_ACTS = attrgetter("name", "refusal", "audio", "tool_calls", "reasoning", "reasoning_content", "reasoning_details")
NO_ACTS = (None,) * 7
READ_OPTIONS = attrgetter(
    "routing",
    "free_models_only",
    "no_reasoning",
    "service_tier",
    "prompt_cache_key",
    "prompt_cache_retention",
    "prompt_cache_options",
    "user",
    "plugins",
    "image_config",
    "sensitive_word_check",
)
# Most requests have none of these fields, and then neither special requirements nor anything that an
# OpenAI-compatible upstream would reject.
READ_SPECIAL = attrgetter(
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "reasoning_effort",
    "reasoning",
    "effort",
    "verbosity",
    "web_search",
    "web_search_options",
    "image_config",
    "n",
    "frequency_penalty",
    "presence_penalty",
)
NATIVE_FIELDS = (
    "tools",
    "tool_choice",
    "parallel_tool_calls",
    "response_format",
    "top_p",
    "frequency_penalty",
    "presence_penalty",
    "verbosity",
    "user",
)
READ_NATIVE = attrgetter(*NATIVE_FIELDS)
NO_FIELDS = (None,) * len(NATIVE_FIELDS)
# Fields that most requests lack, so that one check covers all of them.
USUAL = ("model", "messages", "stream", "temperature", "max_tokens", "max_completion_tokens")
RARE = tuple(name for name in schema.ChatBody.__struct_fields__ if name not in USUAL)
READ_RARE = attrgetter(*RARE)
NOTHING_RARE = (None,) * len(RARE)


def read(body: schema.ChatBody, raw: bytes) -> ChatRequest:
    """Return the neutral request of a validated body; `raw` is its JSON text. Messages are decoded on first use.

    Raises nothing here; `conversation()` raises InvalidRequest with the dotted path of an invalid value.
    """
    rare = READ_RARE(body) != NOTHING_RARE
    if not rare:
        plain = _read_plain(body)
        if plain is not None:
            return plain
    elif not body.tools and not body.web_search:
        # An empty list counts as absent.
        body.tools = body.tool_choice = body.parallel_tool_calls = None
    prompt = _summarize(body.messages)
    marks = (rare or not prompt.plain) and MARK_WORD in raw
    special = rare and any(READ_SPECIAL(body))
    if special:
        effort = body.reasoning_effort or (body.reasoning.effort if body.reasoning else None) or ""
    else:
        effort = ""
    options = _options(body, not prompt.plain and BREAKPOINT_WORD in raw)
    draws = options.image_config is not None
    return ChatRequest(
        body.model,
        _needs(body, prompt, effort, marks, draws)
        if special or prompt.media or marks
        else _plain_requirements(body, prompt),
        lambda: decode_conversation(body, effort),
        options,
        _native(body, raw, prompt, effort, special),
        body.user or "",
    )


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
    needs = Requirements(stream=bool(body.stream), max_tokens=limit, prompt_bytes=size, messages=len(messages))
    return ChatRequest(body.model, needs, partial(decode_texts, body), NO_OPTIONS, Native(dialect.NAME, native))


def _is_plain_assistant(message: schema.AnyMessage) -> bool:
    """Return whether the message is the assistant's and has no member besides its text."""
    return type(message) is schema.AssistantMessage and READ_ACTS(message) == NO_ACTS


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
    """Normalize equivalent spellings: an empty list counts as absent, a null content of plain text as empty."""
    if type(message) is schema.AssistantMessage:
        if not message.tool_calls:
            message.tool_calls = None
        if not message.content and not message.tool_calls and not message.refusal and not message.audio:
            message.content = ""
    elif not message.content:
        message.content = ""


class _PromptSummary:
    """Facts about the messages, found in one pass without decoding them."""

    __slots__ = ("text", "images", "audio", "files", "moved", "plain")

    def __init__(self) -> None:
        self.text = self.images = self.audio = self.files = 0
        self.plain = True  # every message is one text of the system, the developer or the user
        self.moved = False  # media where OpenAI accepts none: in a tool's result, a system or an assistant message

    @property
    def media(self) -> int:
        return self.images + self.audio + self.files

    def add(self, message: schema.AnyMessage) -> None:
        content = message.content
        if isinstance(content, str):
            self.text += len(content) if content.isascii() else len(content.encode("utf-8", "replace"))
        elif content:
            media = self.media
            for part in content:
                self._add_part(part)
            if self.media > media and type(message) is not schema.UserMessage:
                self.moved = True
        if type(message) is schema.AssistantMessage and READ_ACTS(message) != NO_ACTS:
            # Everything that the assistant produced except for its text: some models read their earlier reasoning.
            self.text += sum(len(encode(act)) for act in READ_ACTS(message) if act is not None)

    def _add_part(self, part: schema.AnyPart) -> None:
        if type(part) is schema.TextPart:
            self.text += len(part.text) if part.text.isascii() else len(part.text.encode("utf-8", "replace"))
        elif type(part) is schema.ImagePart:
            self.images += 1
        elif type(part) is schema.AudioPart:
            self.audio += 1
        elif type(part) is schema.FilePart:
            self.files += 1


def _plain_requirements(body: schema.ChatBody, prompt: _PromptSummary) -> Requirements:
    """Return the requirements of plain text input and output."""
    return Requirements(
        stream=bool(body.stream),
        max_tokens=body.max_completion_tokens or body.max_tokens,
        prompt_bytes=prompt.text,
        messages=len(body.messages),
    )


def _needs(body: schema.ChatBody, prompt: _PromptSummary, effort: str, marks: bool, draws: bool) -> Requirements:
    tools = body.tools
    budget = body.reasoning.max_tokens if body.reasoning else None
    kinds = {type(tool) for tool in tools} if tools else NOTHING
    searches = bool(body.web_search) or schema.WebSearchTool in kinds
    asks = body.web_search_options is not None
    return Requirements(
        stream=bool(body.stream),
        tools=schema.FunctionTool in kinds or schema.CustomTool in kinds,
        parallel_tools=body.parallel_tool_calls is not None,
        vision=prompt.images > 0,
        audio=prompt.audio > 0,
        documents=prompt.files > 0,
        json_object=type(body.response_format) is schema.JsonObjectFormat,
        json_schema=type(body.response_format) is schema.JsonSchemaFormat,
        reasoning=bool(budget) or effort not in ("", "none"),
        effort=effort,
        web_search=searches or asks,
        search_offered=asks and not searches and type(body.tool_choice) is not schema.WebSearchChoice,
        image_output=draws,
        n=body.n or 1,
        max_tokens=body.max_completion_tokens or body.max_tokens,
        prompt_bytes=prompt.text + sum([_size(tool) for tool in tools or ()]) + _shape_size(body.response_format),
        messages=len(body.messages),
        media=prompt.media,
        forced_tool=_forced(body.tool_choice),
        verbosity=body.verbosity is not None,
        penalties=bool(body.frequency_penalty or body.presence_penalty),
        cache_marks=marks,
    )


def _size(tool: object) -> int:
    """Return the bytes of text that a tool adds to the prompt."""
    if type(tool) is not schema.FunctionTool:
        return len(encode(tool))
    spec = tool.function
    if spec.parameters is schema.UNSET:
        parameters = 0
    else:
        parameters = len(memoryview(spec.parameters))
    return len(spec.name) + len(spec.description or "") + parameters


def _shape_size(format: object) -> int:
    """Return the bytes of the response schema, which the model reads."""
    if type(format) is schema.JsonSchemaFormat:
        return len(encode(format.json_schema))
    return 0


def _forced(choice: object) -> str:
    if choice is None or choice in ("auto", "none"):
        return ""
    if isinstance(choice, schema.AllowedChoice):
        if choice.allowed_tools.mode == "required":
            return "required"
        return ""
    if isinstance(choice, schema.WebSearchChoice):
        return "web_search"
    if choice == "required":
        return "required"
    return "tool"


def _options(body: schema.ChatBody, breakpoints: bool) -> Options:
    if not breakpoints and not any(READ_OPTIONS(body)):
        return NO_OPTIONS
    extra: dict[str, Any] = {}
    if breakpoints:
        extra[BREAKPOINT] = True  # for targets that have to remove them from the messages
    if body.prompt_cache_options is not None:
        options = body.prompt_cache_options
        extra["prompt_cache_options"] = {key: getattr(options, key) for key in ("mode", "ttl") if getattr(options, key)}
    if body.sensitive_word_check is not None:
        extra["sensitive_word_check"] = {"status": body.sensitive_word_check.status}
    return Options(
        **_preferences(body),
        free_models_only=bool(body.free_models_only),
        service_tier=dialect.tier_of(body.service_tier),
        session=body.prompt_cache_key or body.user or "",
        prompt_cache_key=body.prompt_cache_key or "",
        prompt_cache_retention=dialect.retention_of(body.prompt_cache_retention),
        heal=any(plugin.id == HEALING for plugin in body.plugins or ()),
        extra=extra,
    )


def _preferences(body: schema.ChatBody) -> dict[str, Any]:
    members = read_preferences(
        PREFERENCES, routing=body.routing, no_reasoning=body.no_reasoning, image_config=body.image_config
    )
    config = members.get("image_config")
    if config is not None:
        members["image_config"] = {
            key: value for key in config.__struct_fields__ if (value := getattr(config, key)) is not None
        }
    return members


def _native(body: schema.ChatBody, raw: bytes, prompt: _PromptSummary, effort: str, special: bool) -> Native | None:
    """Return the body for an OpenAI-compatible upstream, or None when such an upstream would reject it."""
    if prompt.moved or (special and _has_gateway_fields(body)):
        return None
    words = not prompt.plain and (REASONING_WORD in raw or CACHE_CONTROL_WORD in raw)
    if words and any(_has_gateway_members(message) for message in body.messages):
        return None
    native: dict[str, Any] = {"messages": body.messages}
    if body.temperature is not None:
        native["temperature"] = body.temperature
    fields = READ_NATIVE(body)
    if fields != NO_FIELDS:
        for name, value in zip(NATIVE_FIELDS, fields, strict=True):
            if value is not None:
                native[name] = value
    limit = body.max_completion_tokens or body.max_tokens
    if limit:
        native["max_completion_tokens"] = limit
    if body.n and body.n > 1:
        native["n"] = body.n
    if effort:
        native["reasoning_effort"] = effort
    return Native(dialect.NAME, native)


def _has_gateway_fields(body: schema.ChatBody) -> bool:
    """Return whether a top-level field requests a feature that OpenAI's chat API does not have."""
    reasoning = body.reasoning
    if type(body.tool_choice) is schema.AllowedChoice:
        return True  # few vendors support it: the list of tools is shortened instead
    if body.web_search or body.web_search_options is not None or body.effort or body.image_config:
        return True
    if reasoning and (reasoning.max_tokens or reasoning.mode):
        return True
    return not all(_plain_tool(tool) for tool in body.tools or ())


def _plain_tool(tool: object) -> bool:
    """Return whether OpenAI's chat API accepts the tool as written."""
    if type(tool) is schema.FunctionTool:
        return tool.cache_control is None and tool.defer_loading is None
    return False  # few vendors support free-text tools: rebuilt for those, never sent to others


def _has_gateway_members(message: schema.AnyMessage) -> bool:
    """Return whether a message has a member that only a gateway accepts."""
    if type(message) is schema.AssistantMessage and (
        message.reasoning or message.reasoning_content or message.reasoning_details
    ):
        return True
    if type(message) is schema.ToolMessage and message.tool_result_cache_control:
        return True
    content = message.content
    return type(content) is list and any(getattr(part, "cache_control", None) for part in content)
