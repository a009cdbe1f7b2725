"""Converts a validated messages body into a neutral request."""

from collections.abc import Iterator
from typing import Any

import orjson
from msgspec import Struct
from msgspec.json import encode
from msgspec.structs import replace

from gateway.dialects.anthropic import ID_ALLOWED, NAME, OWN_FIELDS, TIER_FIELDS, tier_of
from gateway.dialects.anthropic_betas import BETAS, FAST_BETA
from gateway.dialects.hosted_tools import container_uses, part_uses, tool_uses
from gateway.neutral.chat import ChatRequest, Native, Options, Requirements
from gateway.neutral.hosted_uses import HostedUse, collect
from gateway.neutral.parameters import capabilities_of, relayed_fields
from gateway.surfaces.anthropic import blocks as wire
from gateway.surfaces.anthropic import native_messages, schema
from gateway.surfaces.anthropic.conversation import decode_conversation, read_sampling
from gateway.surfaces.anthropic.native_messages import OWN_CALL_PREFIX, is_foreign
from gateway.surfaces.anthropic.opaque_tokens import is_ours
from gateway.surfaces.model_options import read_choice
from gateway.surfaces.unknown_parts import size_of

NATIVE_FIELDS = (
    "messages",
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "metadata",
    "service_tier",
    "cache_control",
    "context_management",
    *relayed_fields(NAME),
)
DIALECT_FIELDS = ("container", "mcp_servers")
NO_CHOICE: dict[str, Any] = {}
# The last thing in a conversation: calls of the assistant, results, or anything else that the user says.
CALLING, ANSWERING, SAID = "calling", "answering", "said"
OWN_BLOCKS = (wire.McpToolUseBlock, wire.McpToolResultBlock, wire.McpToolListingBlock, wire.UnknownBlock)
# Explanations for values other than the default and the tiers.
UNKNOWN = {
    "speed": "it must be standard or fast.",
    "inference_geo": "it must be global or us; the model's name selects a region (provider/model:region).",
}
# Server tools that other vendors also have, or that are optional.
SHARED_TOOLS = ("web_search_", "tool_search_tool_")
MARK_WORD = b'"cache_control":'  # within a text the quotation marks are escaped


def read(body: schema.MessagesBody, betas: str = "", raw: bytes = b"") -> ChatRequest:
    """Return the neutral request of a validated body; `raw` is its JSON text, `betas` the header anthropic-beta.

    Messages are decoded on first use.
    """
    if not body.tools:
        body.tools = body.tool_choice = None
    prompt = PromptSummary()
    prompt.add_prompt(body)
    session = _session(body.metadata)
    names = tuple(name for text in betas.split(",") if (name := text.strip()))
    tier = ""
    if body.speed or body.inference_geo:
        tier = tier_of({"speed": body.speed, "inference_geo": body.inference_geo})
        names += (FAST_BETA,) if body.speed == TIER_FIELDS["speed"][0] else ()
    return ChatRequest(
        requested_model=body.model,
        requirements=_needs(body, prompt, MARK_WORD in raw),
        decode=lambda: decode_conversation(body),
        options=Options(
            **(read_choice(body, {}) if body.models or body.provider else NO_CHOICE),
            service_tier=tier,
            session=session,
            extra=_extra(body, names),
            hides_reasoning=not _asks_thinking(body.thinking),
        ),
        native=_native(body, prompt),
        user=(body.metadata.user_id if body.metadata else None) or "",
        warnings=tuple(_warn(body)) if body.speed or body.inference_geo else (),
    )


def _extra(body: schema.MessagesBody, betas: tuple[str, ...]) -> dict[str, Any]:
    """Return the caller's beta features, and fields that only servers of this format support."""
    extra: dict[str, Any] = {BETAS: betas} if betas else {}
    if own := {name: value for name in DIALECT_FIELDS if (value := getattr(body, name))}:
        extra[OWN_FIELDS] = own
    return extra


def _warn(body: schema.MessagesBody) -> Iterator[str]:
    for name, known in TIER_FIELDS.items():
        value = getattr(body, name)
        if value is not None and value not in known:
            yield f"{name} was left out: {UNKNOWN[name]}"


class PromptSummary:
    """Facts about a prompt, found in one pass without decoding it. `text` is bytes."""

    __slots__ = (
        "text",
        "images",
        "files",
        "inline",
        "mixed",
        "instructed",
        "own_files",
        "own_parts",
        "unknown",
        "_ids",
        "_open",
        "_order",
    )

    def __init__(self) -> None:
        self.text = self.images = self.files = self.inline = 0
        self.mixed = False  # has content that the format's own vendors would reject: the messages must be changed
        self.instructed = False  # has instructions among the messages
        self.own_files = False  # has files that one vendor alone can read
        self.own_parts = False  # has other content that one vendor alone can read, such as calls of its own tools
        self.unknown: list[wire.UnknownBlock] = []
        self._ids: set[str] = set()
        self._open: set[str] = set()  # calls of the last turn of the assistant
        self._order = CALLING

    def add_prompt(self, body: schema.Prompt) -> None:
        """Add instructions, messages and tools."""
        if isinstance(body.system, str):
            self._add_text(body.system)
        else:
            self._add_blocks(body.system or ())
        for message in body.messages:
            if type(message) is schema.AssistantMessage:
                self._begin_turn()
            elif type(message) is schema.UserMessage:
                self._check_results(message.content)
            else:
                self._add_role(message)
            if isinstance(message.content, str):
                self._add_text(message.content)
                self.mixed = self.mixed or not message.content.strip()
            else:
                media = self.images + self.files
                self._add_blocks(message.content)
                if self.images + self.files > media and type(message) is schema.AssistantMessage:
                    self.mixed = True  # the format has media in turns of the user only
        if body.tools:
            self.text += len(orjson.dumps(body.tools))

    def _begin_turn(self) -> None:
        """Begin or continue a turn of the assistant."""
        if self._order != CALLING:
            self._open = set()
            self._order = CALLING

    def _check_results(self, content: str | list[Any]) -> None:
        """Detect results that do not come directly behind their calls, which vendors of this format reject."""
        for block in content if type(content) is list else (content,):
            if type(block) is not wire.ToolResultBlock:
                self._order = SAID
            elif (self._order == SAID or block.tool_use_id not in self._open) and block.tool_use_id in self._ids:
                self.mixed = True
            elif self._order == CALLING:
                self._order = ANSWERING

    def _add_role(self, message: Struct) -> None:
        """Note a role that the format does not have, or only within its newer models."""
        self.mixed = True
        if isinstance(message, schema.SystemMessage | schema.DeveloperMessage):
            self.instructed = True

    def _add_text(self, text: str) -> None:
        self.text += len(text) if text.isascii() else len(text.encode("utf-8", "replace"))

    def _add_blocks(self, content: Any) -> None:
        for block in content:
            kind = type(block)
            if kind is wire.TextBlock:
                self._add_text(block.text)
                self._check_text(block)
            elif kind is wire.ToolUseBlock:
                self.text += len(memoryview(block.input)) + len(block.name)
                if block.signature or block.id in self._ids or not ID_ALLOWED.fullmatch(block.id):
                    self.mixed = True
                self._ids.add(block.id)
                self._open.add(block.id)
            elif kind is wire.ToolResultBlock:
                if isinstance(block.content, str):
                    self._add_text(block.content)
                else:
                    self._add_blocks(block.content or ())
            elif kind is wire.ThinkingBlock:
                self._add_thinking(block)
            else:
                self._add_other(block)

    def _check_text(self, block: wire.TextBlock) -> None:
        """Detect blank text, and citations from other vendors (without an index), which vendors of this format
        reject."""
        if not block.text.strip() or (block.citations and any(map(is_foreign, block.citations))):
            self.mixed = True

    def _add_thinking(self, block: wire.ThinkingBlock) -> None:
        self._add_text(block.thinking)
        if not block.signature or is_ours(block.signature):
            self.mixed = True

    def _add_other(self, block: Struct) -> None:
        if isinstance(block, wire.ImageBlock):
            self.images += 1
            self.own_files = self.own_files or isinstance(block.source, wire.FileSource)
        elif isinstance(block, wire.DocumentBlock):
            self._add_document(block)
        elif isinstance(block, wire.SearchResultBlock):
            self._add_text(block.source)
            self._add_text(block.title)
            self._add_blocks(block.content)
        elif isinstance(block, wire.ServerToolUseBlock):
            self.mixed = self.mixed or not block.id.startswith(OWN_CALL_PREFIX)
        elif isinstance(block, wire.ContainerUploadBlock):
            self.own_files = True
        elif isinstance(block, wire.CompactionBlock):
            self._add_text(block.content or block.encrypted_content or "")
            self.own_parts = self.own_parts or (block.encrypted_content is not None and not block.content)
        else:
            self.own_parts = self.own_parts or isinstance(block, OWN_BLOCKS)
            if isinstance(block, wire.UnknownBlock):
                self.mixed = True
                self.unknown.append(block)
                size = size_of(block.body)
                self.text += size.text
                self.inline += size.media
            else:
                self.text += len(encode(block))

    def _add_document(self, block: wire.DocumentBlock) -> None:
        self._add_text(block.title or "")
        self._add_text(block.context or "")
        if isinstance(block.source, wire.TextSource):
            self._add_text(block.source.data)
        elif isinstance(block.source, wire.ContentSource):
            inner = block.source.content
            self._add_blocks([wire.TextBlock(inner)] if isinstance(inner, str) else inner)
        else:
            self.files += 1
            self.own_files = self.own_files or isinstance(block.source, wire.FileSource)


def _needs(body: schema.MessagesBody, prompt: PromptSummary, marks: bool) -> Requirements:
    kinds = [tool.get("type") or "custom" for tool in body.tools or ()]
    own = any(kind != "custom" and not kind.startswith(SHARED_TOOLS) for kind in kinds)
    searches = any(kind.startswith(schema.SEARCH) for kind in kinds)
    uses = _uses(body, prompt, kinds)
    forced = _forced(body.tool_choice)
    named = getattr(body.tool_choice, "name", "")
    effort = (body.output_config.effort if body.output_config else None) or ""
    # A server tool beside the caller's functions can be left out; if it is forced or the only tool, it cannot.
    own_forced = forced == "tool" and any(tool.get("name") == named and _is_server(tool) for tool in body.tools or ())
    alone = forced == "required" and "custom" not in kinds
    needed = own_forced or alone
    shaped = body.output_format is not None or (
        body.output_config is not None and body.output_config.format is not None
    )
    return Requirements(
        stream=bool(body.stream),
        tools="custom" in kinds or (own and needed),
        vision=prompt.images > 0,
        documents=prompt.files > 0,
        json_schema=shaped,
        parameters=capabilities_of(read_sampling(body)),
        reasoning=isinstance(body.thinking, schema.EnabledThinking | schema.AdaptiveThinking) or bool(effort),
        effort=effort,
        web_search=searches,
        max_tokens=body.max_tokens,
        prompt_bytes=prompt.text + (len(encode((body.output_config, body.output_format))) if shaped else 0),
        messages=len(body.messages) + 1,
        media=prompt.images + prompt.files + prompt.inline,
        forced_tool=forced,
        vendor_only=NAME if (own and needed) or prompt.own_files else "",
        own_parts=NAME if prompt.own_parts else "",
        cache_marks=marks,
        search_offered=searches and not needed,
        hosted=NAME if own and not needed else "",
        hosted_uses=uses,
        keeps_reasoning=isinstance(body.thinking, schema.EnabledThinking | schema.AdaptiveThinking),
    )


def _uses(body: schema.MessagesBody, prompt: PromptSummary, kinds: list[str]) -> tuple[HostedUse, ...]:
    """Return what the request uses beside its model: tools of the provider, further models and stored objects."""
    found = [
        use for kind, tool in zip(kinds, body.tools or (), strict=True) for use in tool_uses(NAME, kind, tool, kinds)
    ]
    if body.container:
        found += container_uses(NAME, body.container)
    for block in prompt.unknown:
        found += part_uses(NAME, block.kind, block.body)
    if body.mcp_servers:
        found.append(HostedUse(NAME, "mcp_servers", "tokens"))
    if prompt.own_files:
        found.append(HostedUse(NAME, "file_id", "object"))
    return collect(found)


def _is_server(tool: dict[str, Any]) -> bool:
    return (tool.get("type") or "custom") != "custom"


def _asks_thinking(thinking: schema.Thinking | None) -> bool:
    return thinking is not None and not isinstance(thinking, schema.DisabledThinking)


def _forced(choice: schema.ToolChoice | None) -> str:
    if isinstance(choice, schema.AnyChoice):
        return "required"
    if isinstance(choice, schema.NamedChoice):
        return "tool"
    return ""


def _session(metadata: schema.Metadata | None) -> str:
    """Return the caller's session: `user_id`, or its session_id where it is a JSON object."""
    user = (metadata.user_id if metadata else None) or ""
    if not user.startswith("{"):
        return user
    try:
        inner = orjson.loads(user)
    except orjson.JSONDecodeError:
        return user
    if isinstance(inner, dict):
        session = inner.get("session_id")
    else:
        session = None
    if isinstance(session, str) and session:
        return session
    return user


def _native(body: schema.MessagesBody, prompt: PromptSummary) -> Native:
    """Return the body for an upstream of this format, with only what such an upstream would reject changed."""
    body_fields = {name: value for name in NATIVE_FIELDS if (value := getattr(body, name)) is not None}
    if isinstance(body.tool_choice, schema.NewerChoice):
        body_fields["tool_choice"] = body.tool_choice.body
    if prompt.mixed:
        body_fields["messages"] = native_messages.mend(body.messages)
    if body.output_format is not None:
        config = body.output_config or schema.OutputConfig()
        body_fields["output_config"] = replace(config, format=config.format or body.output_format)
    return Native(NAME, body_fields, whole=True, instructed=prompt.instructed)
