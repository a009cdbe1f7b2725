"""Decodes the contents, tools and settings of a generateContent body."""

from collections import OrderedDict
from typing import Any

import orjson
from msgspec import to_builtins
from msgspec.structs import replace

from gateway.dialects.google import NAME
from gateway.neutral import parameters
from gateway.neutral.chat import (
    Conversation,
    FunctionTool,
    ReasoningOptions,
    ResponseFormat,
    Sampling,
    Tool,
    ToolChoice,
    VendorTool,
    WebSearch,
)
from gateway.neutral.file_types import decode_base64, decode_pieces, normalize_base64
from gateway.neutral.hosted_uses import STORAGE_HOSTS, is_stored
from gateway.neutral.parts import (
    NAME_LENGTH,
    WEB,
    Audio,
    File,
    Image,
    Media,
    Message,
    Part,
    PartMembers,
    Reasoning,
    Role,
    Text,
    ToolCall,
    ToolResult,
    VendorPart,
    Video,
    sound_format,
)
from gateway.surfaces.bodies.request_parameters import ParameterReader
from gateway.surfaces.bodies.validation_errors import invalid
from gateway.surfaces.google import schema
from gateway.surfaces.google.opaque_tokens import SignedData, is_enveloped, read_signature
from gateway.surfaces.google.schema import json_schema_of

# Converts the parts of contents to neutral parts.

# Values that clients send in place of a signature that they do not have (guide, thought signatures).
NO_SIGNATURES = ("skip_thought_signature_validator", "context_engineering_is_the_way_to_go")
SERVER_PARTS = ("executableCode", "codeExecutionResult", "toolCall", "toolResponse")
TEXT_TYPES = ("text/", "application/json", "application/xml")
OWN_HOSTS = (*STORAGE_HOSTS, "www.youtube.com", "youtube.com", "youtu.be")


def signed_of(part: schema.WirePart) -> SignedData:
    """Return the opaque data of a part."""
    signature = part.thoughtSignature or ""
    if signature in NO_SIGNATURES:
        return SignedData()
    return read_signature(signature)


def read_text(part: schema.WirePart) -> Text | Reasoning | None:
    """Return a text or a thought; None for an empty one that no vendor needs back."""
    signed = signed_of(part)
    text = part.text or ""
    opaque = bool(signed.signature or signed.sealed or signed.ident)
    if part.thought:
        summary = signed.summary or signed.vendor == NAME
        if not text and not opaque:
            return None
        return Reasoning(text, signed.signature, signed.sealed, signed.vendor, signed.ident, summary)
    if not text and signed.vendor != NAME:
        return None
    return Text(text, signature=signed.signature, vendor=signed.vendor)


def read_call(part: schema.WirePart, call: schema.FunctionCall, ident: str) -> ToolCall:
    """Return a call; `ident` is its id, which the format may leave out."""
    signed = signed_of(part)
    arguments = orjson.dumps(call.args or {}).decode()
    return ToolCall(ident, call.name, arguments, signed.signature, signed.vendor)


def read_result(result: schema.FunctionResponse, ident: str, path: str) -> ToolResult:
    """Return a result. Its JSON is the text, except for an object with one text, as clients wrap them."""
    parts: list[Part] = []
    response = result.response or {}
    failed = "error" in response and len(response) == 1
    text = _text_of(response)
    if text or not result.parts:
        parts.append(Text(text))
    parts.extend(read_media(inner.inlineData, inner.fileData, path) for inner in result.parts or ())
    return ToolResult(ident, tuple(parts), result.name, failed)


def _text_of(response: dict[str, Any]) -> str:
    for name in ("output", "result", "error"):
        if response.keys() == {name}:
            value = response[name]
            return value if isinstance(value, str) else orjson.dumps(value).decode()
    return orjson.dumps(response).decode() if response else ""


def read_media(blob: schema.Blob | None, file: schema.FileAddress | None, path: str) -> Part:
    """Return inline media, or a file by its address. Raises InvalidRequest for neither."""
    if blob is not None:
        kind = blob.mimeType.partition(";")[0].strip().lower()
        if kind.startswith(TEXT_TYPES):
            return Text(_decoded(blob.data, path))
        return media_part(Media(kind, data=_checked(blob.data, path)), kind, blob.displayName or "")
    if file is None:
        raise invalid(path, "a part needs a text, media, a function call or a function response")
    kind = file.mimeType.lower()
    if file.fileUri.startswith(WEB):
        return media_part(Media(kind, url=file.fileUri), kind, file.displayName or "")
    return media_part(Media(kind, file_id=file.fileUri), kind, file.displayName or "")


def _checked(data: str, path: str) -> str:
    """Return base64 in the standard alphabet. Raises InvalidRequest for anything else."""
    standard = normalize_base64(data)
    try:
        for _ in decode_pieces(standard):
            continue
    except ValueError:
        raise invalid(f"{path}.inlineData.data", "expected base64") from None
    return standard


def _decoded(data: str, path: str) -> str:
    try:
        return decode_base64(normalize_base64(data)).decode("utf-8", "replace")
    except ValueError:
        raise invalid(f"{path}.inlineData.data", "expected base64") from None


def media_part(media: Media, kind: str, name: str) -> Part:
    """Return media by their type."""
    family = kind.partition("/")[0]
    if family == "image":
        return Image(media)
    if family == "audio":
        return Audio(media, sound_format(kind))
    if family == "video":
        return Video(media)
    return File(media, filename=name)


def is_own_file(file: schema.FileAddress) -> bool:
    """Return whether only the format's own vendor can read a file: one of its storage, or a video of its site."""
    if not file.fileUri.startswith(WEB):
        return True
    host = file.fileUri.split("/", 3)[2].lower()
    return host in OWN_HOSTS


def names_stored_file(file: schema.FileAddress) -> bool:
    """Return whether a file is an object of the vendor's storage, which belongs to the account that called."""
    return not file.fileUri.startswith(WEB) or is_stored(file.fileUri)


def with_beside(part: schema.WirePart, read: Part) -> Part:
    """Return a part with the members beside it that only the format's own vendor reads: its notes, and those that are
    newer than this gateway. The vendor gets them also in a body that is rebuilt."""
    members = schema.unknown_members(part.unknown) if part.unknown is not None else {}
    for name in sorted(schema.NOTES):
        if (value := getattr(part, name)) is not None:
            members[name] = value
    if not members:
        return read
    if isinstance(read, Reasoning):
        if part.unknown is None or is_enveloped(part.thoughtSignature or ""):
            return read
        return VendorPart(NAME, next(iter(members))[:NAME_LENGTH], part.unknown, (read,))
    return replace(read, beside=PartMembers(NAME, members))


def read_server_part(part: schema.WirePart) -> VendorPart | None:
    """Return a part that the vendor's own tools wrote, or one of a type that is newer than this gateway; None for any
    other."""
    for kind in SERVER_PARTS:
        if getattr(part, kind) is not None:
            return VendorPart(NAME, kind, part.unknown or to_builtins(part), _shown_code(part))
    if part.unknown is not None and part.inlineData is None and part.fileData is None:
        return VendorPart(NAME, next(iter(schema.unknown_members(part.unknown)))[:NAME_LENGTH], part.unknown)
    return None


def _shown_code(part: schema.WirePart) -> tuple[Text, ...]:
    """Return the text that other vendors get for code of the vendor's own tool and for its output; none for others."""
    if part.executableCode is not None:
        return _fenced("", str(part.executableCode.get("language") or "").lower(), part.executableCode.get("code"))
    if part.codeExecutionResult is not None:
        return _fenced("Output:\n", "", part.codeExecutionResult.get("output"))
    return ()


def _fenced(title: str, language: str, text: Any) -> tuple[Text, ...]:
    return (Text(f"{title}```{language}\n{text}\n```"),) if isinstance(text, str) and text else ()


SEARCHES = ("googleSearch", "googleSearchRetrieval")
FUNCTIONS = "functionDeclarations"
JSON = "application/json"
ENUM_TYPE = "text/x.enum"
DYNAMIC = -1  # the model chooses its budget
PARAMETER_READER = ParameterReader(NAME, apart=("stop",))


def decode_conversation(body: schema.GenerateBody) -> Conversation:
    """Return everything that the model reads."""
    turns = _Turns()
    if body.systemInstruction is not None:
        turns.add_instruction(body.systemInstruction)
    for place, content in enumerate(body.contents):
        turns.add(content, f"contents.{place}")
    choice, allowed = _read_choice(body)
    tools = read_tools(body)
    if allowed:
        tools = tuple(tool for tool in tools if not isinstance(tool, FunctionTool) or tool.name in allowed)
    return Conversation(
        messages=turns.messages(),
        tools=tools,
        tool_choice=choice,
        response_format=read_format(body.generationConfig),
        reasoning=_read_reasoning(body.generationConfig),
        sampling=read_sampling(body),
    )


class _Turns:
    """Collects messages. Adjacent contents of one role are one message: clients send each chunk of a streamed turn as a
    separate content."""

    def __init__(self) -> None:
        self._turns: list[tuple[Role, list[Part]]] = []
        self._pieces: list[Text | Reasoning] = []  # of the last part
        self._calls = 0
        # The ids of the calls without a result, by function, with the number of calls of each id.
        self._open: dict[str, OrderedDict[str, int]] = {}

    def messages(self) -> tuple[Message, ...]:
        self._end_part()
        return tuple(Message(role, tuple(parts)) for role, parts in self._turns if parts)

    def add_instruction(self, content: schema.WireContent) -> None:
        texts = [Text(part.text) for part in content.parts or () if part.text]
        if texts:
            self._end_part()
            self._turns.append(("system", list(texts)))
        # Other formats have no media in instructions: they come first in the conversation.
        for place, part in enumerate(content.parts or ()):
            if part.inlineData is not None or part.fileData is not None:
                self._append("user", read_media(part.inlineData, part.fileData, f"systemInstruction.parts.{place}"))

    def add(self, content: schema.WireContent, path: str) -> None:
        """Add a content. Raises InvalidRequest."""
        role: Role = "user"
        if content.role == "model":
            role = "assistant"
        elif content.role == "system":
            role = "system"
        for place, part in enumerate(content.parts or ()):
            self._add_part(role, part, f"{path}.parts.{place}")

    def _add_part(self, role: Role, part: schema.WirePart, path: str) -> None:
        if part.functionCall is not None:
            call = read_call(part, part.functionCall, self._ident_of(part.functionCall))
            self._append("assistant", with_beside(part, call))
        elif part.functionResponse is not None:
            result = part.functionResponse
            self._append("tool", with_beside(part, read_result(result, self._answered(result), path)))
        elif part.text is not None or (part.thoughtSignature and part.inlineData is None and part.fileData is None):
            text = read_text(part)
            if text is not None:
                self._append(role, with_beside(part, text))
        elif (own := read_server_part(part)) is not None:
            self._append(role, own)
        else:
            self._append(role, with_beside(part, read_media(part.inlineData, part.fileData, path)))

    def _append(self, role: Role, part: Part) -> None:
        if not self._turns or self._turns[-1][0] != role:
            self._end_part()
            self._turns.append((role, []))
        if not (self._pieces and _is_continued(self._pieces[-1], part, role)):
            self._end_part()
        if isinstance(part, Text | Reasoning):
            self._pieces.append(part)
        else:
            self._turns[-1][1].append(part)

    def _end_part(self) -> None:
        """Add the part that the pieces are; its signature is that of the last one."""
        if self._pieces:
            whole: Part = self._pieces[-1]
            if len(self._pieces) > 1:
                text = "".join([piece.text for piece in self._pieces])
                last = self._pieces[-1]
                if isinstance(last, Text):
                    whole = Text(text, signature=last.signature, vendor=last.vendor)
                else:
                    whole = replace(last, text=text)
            self._turns[-1][1].append(whole)
            self._pieces = []

    def _ident_of(self, call: schema.FunctionCall) -> str:
        """Return the id of a call, a new one where it has none."""
        self._calls += 1
        ident = call.id or f"call_{self._calls}"
        waiting = self._open.setdefault(call.name, OrderedDict())
        waiting[ident] = waiting.get(ident, 0) + 1
        return ident

    def _answered(self, result: schema.FunctionResponse) -> str:
        """Return the id of the call that a result belongs to; without an id it is the function's first open call."""
        waiting = self._open.get(result.name)
        if not waiting:
            return result.id or ""
        ident = result.id if result.id and result.id in waiting else next(iter(waiting))
        waiting[ident] -= 1
        if not waiting[ident]:
            del waiting[ident]
        return ident


def _is_continued(last: Part, part: Part, role: Role) -> bool:
    """Return whether two parts are pieces of one: texts of the model and thoughts, unless a signature ends the first,
    or a text has further members."""
    if isinstance(last, Text) and isinstance(part, Text):
        return role == "assistant" and not last.signature and last.beside is None and part.beside is None
    return isinstance(last, Reasoning) and isinstance(part, Reasoning) and not (last.signature or last.sealed)


def read_tools(body: schema.GenerateBody) -> tuple[Tool, ...]:
    """Return the functions, web search, and the tools that only their vendor has. Raises InvalidRequest."""
    tools: list[Tool] = []
    for place, tool in enumerate(body.tools or ()):
        tools.extend(
            FunctionTool(declared.name, declared.description or "", _schema_of(declared))
            for declared in schema.declarations_of(tool, place)
        )
        for name, options in tool.items():
            if name in SEARCHES:
                tools.append(_read_search(options))
            elif name != FUNCTIONS:
                tools.append(VendorTool(NAME, name, {name: options}))
    return tuple(tools)


def _schema_of(declared: schema.FunctionDeclaration) -> dict[str, Any] | None:
    if isinstance(declared.parametersJsonSchema, dict):
        return declared.parametersJsonSchema
    if declared.parameters:
        return json_schema_of(declared.parameters)
    return None


def _read_search(options: Any) -> WebSearch:
    excluded = options.get("excludeDomains") if isinstance(options, dict) else None
    if isinstance(excluded, list):
        return WebSearch(blocked_domains=tuple(word for word in excluded if isinstance(word, str)))
    return WebSearch()


def _read_choice(body: schema.GenerateBody) -> tuple[ToolChoice | None, frozenset[str]]:
    """Return the tool choice, and the functions that it allows (none: all)."""
    calling = body.toolConfig.functionCallingConfig if body.toolConfig else None
    mode = calling.word if calling else None
    if calling is None or not mode or not body.tools:
        return None, frozenset()
    if mode not in schema.MODES:
        own = {"mode": calling.mode, "allowedFunctionNames": calling.allowedFunctionNames}
        given = {name: value for name, value in own.items() if value is not None}
        return ToolChoice("auto", mode[:NAME_LENGTH], NAME, given), frozenset()
    names = tuple(calling.allowedFunctionNames or ())
    if mode == "NONE":
        return ToolChoice("none"), frozenset()
    if mode != "ANY":
        return ToolChoice("auto"), frozenset(names if mode == "VALIDATED" else ())
    if len(names) == 1:
        return ToolChoice("tool", names[0]), frozenset()
    return ToolChoice("required"), frozenset(names)


def forced_by(body: schema.GenerateBody) -> str:
    """Return the mode of a tool choice that forces a call, else ""."""
    choice, _ = _read_choice(body)
    if choice is None or choice.mode in ("auto", "none"):
        return ""
    return choice.mode


def read_format(config: schema.GenerationConfig | None) -> ResponseFormat | None:
    """Return the format of the answer: JSON, with a schema or without."""
    if config is None:
        return None
    if config.responseMimeType == ENUM_TYPE or config.responseMimeType == JSON:
        if isinstance(config.responseJsonSchema, dict):
            return ResponseFormat("json_schema", "response", schema=config.responseJsonSchema)
        if isinstance(config.responseSchema, dict):
            return ResponseFormat("json_schema", "response", schema=json_schema_of(config.responseSchema))
        return ResponseFormat("json_object")
    return None


def _read_reasoning(config: schema.GenerationConfig | None) -> ReasoningOptions:
    """Return the reasoning settings. Clients ask every model for its thoughts, so that alone requires no reasoning."""
    thinking = config.thinkingConfig if config else None
    if thinking is None:
        return ReasoningOptions()
    effort = effort_of(thinking)
    budget = thinking.thinkingBudget
    if budget == 0:
        return ReasoningOptions(enabled=False)
    if budget == DYNAMIC:
        return ReasoningOptions(effort=effort, adaptive=not effort)
    if budget is not None and budget > 0:
        return ReasoningOptions(budget=budget, enabled=True)
    return ReasoningOptions(effort=effort, enabled=True if effort else None)


def effort_of(thinking: schema.ThinkingConfig) -> Any:
    """Return the reasoning effort of a thinking level; "" for none."""
    word = (thinking.thinkingLevel or "").lower()
    return word if word in parameters.ALL_EFFORTS else ""


def read_sampling(body: schema.GenerateBody) -> Sampling:
    """Return the parameters of a body."""
    config = body.generationConfig
    return PARAMETER_READER.read(body, stop=tuple(config.stopSequences or ()) if config else ())
