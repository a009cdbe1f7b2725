"""Converts a validated generateContent body into a neutral request."""

from collections.abc import Iterator
from typing import Any

from msgspec.json import encode

from gateway.dialects.google import NAME, OWN_FIELDS, TIERS_READ
from gateway.dialects.hosted_tools import part_uses, tool_uses
from gateway.neutral.chat import ChatRequest, Native, Options, Requirements
from gateway.neutral.hosted_uses import HostedUse, collect
from gateway.neutral.parameters import capabilities_of
from gateway.neutral.parts import NAME_LENGTH, NAMED
from gateway.surfaces.bodies.unknown_parts import size_of
from gateway.surfaces.google import schema
from gateway.surfaces.google.conversation import (
    FUNCTIONS,
    SEARCHES,
    SERVER_PARTS,
    TEXT_TYPES,
    decode_conversation,
    effort_of,
    forced_by,
    is_own_file,
    names_stored_file,
    read_format,
    read_sampling,
)
from gateway.surfaces.google.opaque_tokens import is_enveloped

# The contents of a body as the format's own vendor takes them, with only what it would refuse changed.
#
# Clients move between models and vendors within a session and send back what they got: signatures of other vendors,
# roles of older versions of the format, contents without parts. Members of parts that are not known here stay.

Json = dict[str, Any]
USER = "user"
NATIVE_ROLES = {"function": USER, "tool": USER}
INSTRUCTIONS = "system"


def mend(contents: list[Json]) -> list[Json]:
    """Return the contents; instructions stay among them, under the role system."""
    mended: list[Json] = []
    for content in contents:
        parts = [part for each in content.get("parts") or () if (part := _mend_part(each))]
        if parts:
            role = content.get("role") or USER
            mended.append({**content, "role": NATIVE_ROLES.get(role, role), "parts": parts})
    return mended


def is_instructed(contents: list[Json]) -> bool:
    """Return whether instructions are among the contents."""
    return any(content.get("role") == INSTRUCTIONS for content in contents)


def _mend_part(part: Json) -> Json | None:
    """Return a part without the opaque data of another vendor; None for another vendor's thought."""
    signature = part.get("thoughtSignature")
    if not signature or not is_enveloped(signature):
        return part
    if part.get("thought"):
        return None
    plain = {name: value for name, value in part.items() if name != "thoughtSignature"}
    return None if plain in ({}, {"text": ""}) else plain


# Members that are relayed. `serviceTier` is written from the neutral request instead.
NATIVE_FIELDS = tuple(name for name in schema.GenerateBody.__struct_fields__ if name != "serviceTier")
# Members of generationConfig that no other vendor has a counterpart for.
OWN_CONFIG = (
    *("seed", "responseLogprobs", "logprobs", "enableEnhancedCivicAnswers", "speechConfig", "mediaResolution"),
    *("audioTimestamp", "routingConfig", "modelSelectionConfig", "audioTranscriptionConfig", "enableAffectiveDialog"),
    *("responseFormat", "translationConfig"),
)
# All published members (reference, GenerationConfig). The vendor's servers refuse a body with any other.
CONFIG_FIELDS = frozenset((*schema.GenerationConfig.__struct_fields__, *OWN_CONFIG))
DIALECT_FIELDS = ("safetySettings", "cachedContent", "labels", "continuationToken", "store")
TEXT = "TEXT"
IMAGE = "IMAGE"
ROLES = (None, "", "user", "model")  # the roles that the vendor's own servers accept


class PromptFacts:
    """Facts about a prompt, found in one pass without decoding it. `text` is bytes."""

    __slots__ = (
        "audio",
        "earlier_images",
        "files",
        "images",
        "inline",
        "mixed",
        "noted",
        "own_parts",
        "ran",
        "stored",
        "text",
        "unknown",
    )

    def __init__(self, body: schema.GenerateBody, wire: Json) -> None:
        self.text = self.images = self.earlier_images = self.audio = self.files = 0
        self.ran = False  # has calls and results of the vendor's own tools
        self.stored = False  # has files that the vendor stores
        self.mixed = False  # has content that the format's own vendor would reject: the contents must be changed
        # Has content that the format's own vendor alone can read.
        self.own_parts = body.cachedContent is not None or body.continuationToken is not None
        # `noted`: has members beside parts that only the format's own vendor reads.
        self.unknown, self.noted = schema.find_unknown(body, wire)
        sizes = [size_of(schema.unknown_members(part)) for part in self.unknown]
        self.text += sum(size.text for size in sizes)
        self.inline = sum(size.media for size in sizes)
        if body.systemInstruction is not None:
            self._add(body.systemInstruction)
        for content in body.contents:
            self.mixed = self.mixed or content.role not in ROLES or not content.parts
            self._add(content)
        if body.tools:
            self.text += len(encode(body.tools))

    @property
    def media(self) -> int:
        return self.images + self.earlier_images + self.audio + self.files + self.inline

    def _add(self, content: schema.WireContent) -> None:
        before = self.images
        for part in content.parts or ():
            if part.thoughtSignature and is_enveloped(part.thoughtSignature):
                self.mixed = True
            if part.text is not None:
                self.text += len(part.text) if part.text.isascii() else len(part.text.encode("utf-8", "replace"))
            else:
                self._add_other(part)
        if content.role == "model":
            self.earlier_images += self.images - before
            self.images = before

    def _add_other(self, part: schema.WirePart) -> None:
        if part.functionCall is not None:
            self.text += len(encode(part.functionCall))
        elif part.functionResponse is not None:
            result = part.functionResponse
            self.text += len(result.name) + len(encode(result.response))
            for inner in result.parts or ():
                self._add_media(inner.inlineData, inner.fileData)
        elif part.inlineData is not None or part.fileData is not None:
            self._add_media(part.inlineData, part.fileData)
        else:
            server = any(getattr(part, name) is not None for name in SERVER_PARTS)
            self.ran = self.ran or server
            self.text += len(encode(part)) if server else 0

    def _add_media(self, blob: schema.Blob | None, file: schema.FileAddress | None) -> None:
        media = blob or file
        kind = media.mimeType if media is not None else ""
        family = kind.partition("/")[0].lower()
        if file is not None and is_own_file(file):
            self.own_parts = True
            self.stored = self.stored or names_stored_file(file)
        if blob is not None and kind.lower().startswith(TEXT_TYPES):
            self.text += len(blob.data) * 3 // 4
        elif family in ("image", "video"):
            self.images += 1
        elif family == "audio":
            self.audio += 1
        else:
            self.files += 1


def read_generation(model: str, body: schema.GenerateBody, wire: Json, *, stream: bool) -> ChatRequest:
    """Return the neutral request of a validated body; `wire` is the same body as the caller wrote it. Contents are
    decoded on first use."""
    facts = PromptFacts(body, wire)
    extra = _own_fields(wire)
    return ChatRequest(
        model,
        requirements_of(body, facts, wire, stream=stream),
        lambda: decode_conversation(body),
        Options(
            service_tier=_tier(body),
            hides_reasoning=not _shows_thoughts(body.generationConfig),
            image_config=_image_config(body.generationConfig),
            extra={OWN_FIELDS: extra} if extra else {},
        ),
        _native(wire, facts.mixed),
        warnings=tuple(_warn(body, wire)),
    )


def _native(wire: Json, mixed: bool) -> Native | None:
    """Return the body for the vendor's servers. Only some of them accept a content without a role. `mixed`: with only
    what they would reject changed."""
    body = {name: value for name in NATIVE_FIELDS if (value := wire.get(name)) is not None}
    config = body.get("generationConfig")
    if config and not CONFIG_FIELDS.issuperset(config):
        body["generationConfig"] = {name: value for name, value in config.items() if name in CONFIG_FIELDS}
    if mixed:
        contents = body["contents"] = mend(body["contents"])
        instructed = is_instructed(contents)
        return Native(NAME, body, whole=True, instructed=instructed) if contents else None
    if any(not content.get("role") for content in body["contents"]):
        body["contents"] = [
            content if content.get("role") else content | {"role": "user"} for content in body["contents"]
        ]
    return Native(NAME, body, whole=True)


def _own_fields(wire: Json) -> Json:
    """Return the members that only servers of this format have a field for, as a body with nothing else."""
    own = {name: value for name in DIALECT_FIELDS if (value := wire.get(name)) is not None}
    config = wire.get("generationConfig") or {}
    kept = {name: value for name in OWN_CONFIG if (value := config.get(name)) is not None}
    modalities = config.get("responseModalities")
    if modalities and not set(_words(modalities)) <= {TEXT, IMAGE}:
        kept["responseModalities"] = modalities
    if kept:
        own["generationConfig"] = kept
    return own


def _words(modalities: list[str]) -> list[str]:
    return [word.upper() for word in modalities]


def _warn(body: schema.GenerateBody, wire: Json) -> Iterator[str]:
    config = wire.get("generationConfig") or {}
    if not CONFIG_FIELDS.issuperset(config):
        unknown = [name[:NAME_LENGTH] for name in config if name not in CONFIG_FIELDS][:NAMED]
        yield f"generationConfig: {', '.join(unknown)} was left out: Gemini's API has no such field."
    thinking = body.generationConfig.thinkingConfig if body.generationConfig else None
    if thinking is not None and thinking.has_newer_level:
        yield "thinkingConfig.thinkingLevel: only Google's own servers get this value, which is unknown to the gateway."
    if body.serviceTier and body.serviceTier.lower() not in TIERS_READ:
        yield "serviceTier was left out: it must be standard, flex or priority."


def _chosen_models(config: Json) -> list[HostedUse]:
    """Return the use of models that answer instead of the request's: by name, or by the vendor's choice."""
    routing = config.get("routingConfig")
    if not isinstance(routing, dict):
        return []
    manual = routing.get("manualMode")
    name = manual.get("modelName") if isinstance(manual, dict) else None
    models = (name,) if isinstance(name, str) else ()
    return [HostedUse(NAME, "generationConfig.routingConfig", "unknown", models=models)]


def _uses(body: schema.GenerateBody, facts: PromptFacts, wire: Json) -> tuple[HostedUse, ...]:
    """Return what the request uses beside its model: tools of the provider, further models and stored objects."""
    found = [
        use
        for tool in body.tools or ()
        for name, options in tool.items()
        if options is not None
        for use in tool_uses(NAME, name, options if isinstance(options, dict) else {})
    ]
    found += _chosen_models(wire.get("generationConfig") or {})
    if body.cachedContent is not None:
        found.append(HostedUse(NAME, "cachedContent", "object"))
    for part in facts.unknown:
        members = schema.unknown_members(part)
        found += part_uses(NAME, next(iter(members)), members)
    if facts.stored:
        found.append(HostedUse(NAME, "fileData.fileUri", "object"))
    return collect(found)


def _tier(body: schema.GenerateBody) -> str:
    tier = TIERS_READ.get((body.serviceTier or "").lower(), "")
    return "" if tier == "default" else tier


def _shows_thoughts(config: schema.GenerationConfig | None) -> bool:
    return bool(config and config.thinkingConfig and config.thinkingConfig.includeThoughts)


def _makes_images(config: schema.GenerationConfig | None) -> bool:
    return bool(config and config.responseModalities and IMAGE in _words(config.responseModalities))


def _image_config(config: schema.GenerationConfig | None) -> Json | None:
    """Return the image options in the gateway's names; None unless images are requested."""
    if config is None or not (_makes_images(config) or config.imageConfig):
        return None
    image = config.imageConfig or schema.ImageOutput()
    named = {"aspect_ratio": image.aspectRatio, "image_size": image.imageSize}
    return {name: value for name, value in named.items() if value}


def requirements_of(body: schema.GenerateBody, facts: PromptFacts, wire: Json, *, stream: bool) -> Requirements:
    """Return the requirements of a request."""
    config = body.generationConfig or schema.GenerationConfig()
    kinds = {name for tool in body.tools or () for name in tool}
    searches = not kinds.isdisjoint(SEARCHES)
    own_tools = bool(kinds - {FUNCTIONS, *SEARCHES})
    shape = read_format(body.generationConfig)
    thinking = config.thinkingConfig or schema.ThinkingConfig()
    effort = effort_of(thinking)
    budget = thinking.thinkingBudget or 0
    speaks = "responseModalities" in (_own_fields(wire).get("generationConfig") or {})
    return Requirements(
        stream=stream,
        tools=FUNCTIONS in kinds,
        vision=facts.images > 0,
        earlier_images=facts.earlier_images > 0,
        audio=facts.audio > 0,
        documents=facts.files > 0,
        json_object=shape is not None and shape.kind == "json_object",
        json_schema=shape is not None and shape.kind == "json_schema",
        parameters=capabilities_of(read_sampling(body)),
        reasoning=budget > 0 or bool(effort),
        effort=effort,
        web_search=searches,
        search_offered=searches,
        image_output=_makes_images(body.generationConfig),
        n=config.candidateCount or 1,  # type: ignore[attr-defined]  # added by with_parameters
        max_tokens=config.maxOutputTokens,  # type: ignore[attr-defined]
        prompt_bytes=facts.text + (len(encode(shape.schema)) if shape and shape.schema else 0),
        messages=len(body.contents) + 1,
        media=facts.media,
        forced_tool=forced_by(body),
        vendor_only=NAME if facts.own_parts or speaks else "",
        own_parts=NAME if facts.unknown or facts.ran else "",
        own_members=NAME if facts.noted else "",
        hosted=NAME if own_tools else "",
        hosted_uses=_uses(body, facts, wire),
        keeps_reasoning=_shows_thoughts(body.generationConfig),
    )
