"""Writes message parts as content blocks, with a table of what each vendor's models support.

Wire facts: Amazon Bedrock API reference, ContentBlock, DocumentBlock, ToolUseBlock, ToolResultBlock,
ReasoningContentBlock, CachePointBlock. Bytes are sent as base64 text. The API refuses blank texts.
"""

import binascii
import re
from typing import Any, Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.errors import ContentNeeded, NotSupported
from gateway.neutral.parts import (
    Audio,
    CacheMark,
    File,
    Image,
    Media,
    Part,
    Reasoning,
    Refusal,
    Text,
    ToolCall,
    ToolResult,
    Video,
    sound_format,
)
from gateway.neutral.tool_arguments import read_arguments
from gateway.providers.protocol import Target

# A table of the abilities of each vendor's models behind the common format.
#
# Wire facts: Amazon Bedrock user guide, "Supported models and model features" (Converse), "Prompt caching", "Inference
# request parameters" of each vendor, Claude's "Extended thinking" and "Adaptive thinking"; API reference, ToolChoice,
# ToolResultBlock. Nova refuses cache points among tools.

Place = Literal["system", "messages", "tools"]


class Family(Struct, frozen=True):
    """The abilities of a family of models.

    `reasoning`: how reasoning is requested ("" = the format has no field for it). `cache`: where cache points are
    allowed; `long_cache`: cache points may last an hour. `choices`: the supported tool choices besides auto.
    `full_results`: a tool result may contain images and documents, and report failure. `signed`: past reasoning is
    sent back with its signature. `top_k`: path of the field in the additional request fields. `one_sampling`:
    temperature and top_p exclude each other. `stop_path`: path of the stop sequence in the additional response fields.
    `continues`: the conversation may end with an answer, which the model continues.
    """

    reasoning: Literal["", "budget", "adaptive", "levels", "effort"] = ""
    cache: frozenset[Place] = frozenset()
    long_cache: bool = False
    choices: frozenset[str] = frozenset()
    full_results: bool = False
    signed: bool = False
    top_k: tuple[str, ...] = ()
    one_sampling: bool = False
    stop_path: str = ""
    continues: bool = True


ALL_PLACES: frozenset[Place] = frozenset(("system", "messages", "tools"))
FORCED = frozenset(("required", "tool"))
CLAUDE_BUDGET = Family(
    "budget", ALL_PLACES, True, FORCED, True, True, ("top_k",), one_sampling=True, stop_path="/stop_sequence"
)
CLAUDE_ADAPTIVE = replace(CLAUDE_BUDGET, reasoning="adaptive", continues=False)
NOVA = Family(
    "", frozenset(("system", "messages")), choices=FORCED, full_results=True, top_k=("inferenceConfig", "topK")
)
NOVA_2 = replace(NOVA, reasoning="levels")
EFFORT = Family("effort")
ANY_TOOL = Family(choices=frozenset(("required",)))
OTHER_FAMILIES = Family()

# The first match wins. A pattern may match anywhere in the model's id, which begins with a region and a vendor.
FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    (re.compile(r"claude-(?:3-|(?:opus|sonnet|haiku)-4-(?:[0-5](?!\d)|20\d{6}))"), CLAUDE_BUDGET),
    (re.compile(r"claude-(?:opus|sonnet|haiku)-4(?!-)"), CLAUDE_BUDGET),
    (re.compile(r"claude-"), CLAUDE_ADAPTIVE),
    (re.compile(r"nova-2"), NOVA_2),
    (re.compile(r"nova-"), NOVA),
    (re.compile(r"gpt-oss|kimi-k2"), EFFORT),
    (re.compile(r"mistral-large|pixtral"), ANY_TOOL),
)


def family_of(target: Target) -> Family:
    """Return the family of the target's model, by its id at the provider or, for an ARN, by its catalogue id."""
    for name in (target.mapping.external_id, target.mapping.model):
        for pattern, family in FAMILIES:
            if pattern.search(name):
                return family
    return OTHER_FAMILIES


Block = dict[str, Any]

# Signed reasoning is valid on every platform of its vendor; redacted reasoning only on this platform.
SIGNER = "anthropic"
SEALER = "bedrock"
IMAGE_STARTS = (("/9j/", "jpeg"), ("iVBORw0KGgo", "png"), ("R0lGOD", "gif"), ("UklGR", "webp"))
IMAGE_FORMATS = ("png", "jpeg", "gif", "webp")
DOCUMENTS = {
    "application/pdf": "pdf",
    "text/csv": "csv",
    "application/msword": "doc",
    "application/vnd.openxmlformats-officedocument.wordprocessingml.document": "docx",
    "application/vnd.ms-excel": "xls",
    "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet": "xlsx",
    "text/html": "html",
    "text/plain": "txt",
    "text/markdown": "md",
}
SOUND_FORMATS = frozenset(
    ("mp3", "opus", "wav", "aac", "flac", "mp4", "ogg", "mkv", "mka", "x-aac", "m4a", "mpeg", "mpga", "pcm", "webm")
)
FILMS = {"quicktime": "mov", "x-matroska": "mkv", "x-flv": "flv", "x-ms-wmv": "wmv", "3gpp": "three_gp"}
FILM_FORMATS = frozenset(("mkv", "mov", "mp4", "webm", "flv", "mpeg", "mpg", "wmv", "three_gp"))
ID_FORBIDDEN = re.compile(r"[^a-zA-Z0-9_.:-]")
NAME_FORBIDDEN = re.compile(r"[^a-zA-Z0-9 ()\[\]-]+")
SPACES = re.compile(r"\s+")
ID_LENGTH = 64
NAME_LENGTH = 200
NO_OUTPUT = "(no output)"
MOVED_NOTE = "(shown behind this result)"


class PartWriter:
    """Writes the parts of one request, and keeps the names of its documents distinct.

    `replay`: the model gets past reasoning back without a signature.
    """

    def __init__(self, family: Family, replay: bool, warnings: list[str]) -> None:
        self._family = family
        self._replay = replay
        self._warnings = warnings
        self._names: set[str] = set()

    def write(self, part: Part) -> list[Block]:
        """Return the block of a part with its cache point; empty for blank text and for unusable reasoning.

        NotSupported for parts that the format or the model does not support.
        """
        match part:
            case Text() | Refusal():
                blocks: list[Block] = [{"text": part.text}] if part.text.strip() else []
            case Reasoning():
                blocks = self._write_reasoning(part)
            case ToolCall():
                blocks = [_write_call(part)]
            case ToolResult():
                blocks = self._write_result(part)
            case Image():
                blocks = [_write_image(part.media)]
            case File():
                blocks = [self._write_file(part)]
            case Audio():
                blocks = [_write_sound(part)]
            case Video():
                blocks = [_write_film(part.media)]
            case _:
                raise NotSupported(f"This provider does not take a part of type {part.kind}.", param="messages")
        mark = getattr(part, "cache", None)
        if blocks and mark is not None and "messages" in self._family.cache:
            blocks.append(cache_point(mark, self._family))
        return blocks

    def _write_reasoning(self, part: Reasoning) -> list[Block]:
        if part.sealed and part.vendor == SEALER:
            return [{"reasoningContent": {"redactedContent": part.sealed}}]
        if self._family.signed:
            if part.vendor != SIGNER or not part.signature:
                return []
            return [_reasoning({"text": part.text, "signature": part.signature})]
        if self._replay and part.text:
            return [_reasoning({"text": part.text})]
        return []

    def _write_result(self, part: ToolResult) -> list[Block]:
        """Return the result block, followed by the media that the model does not accept inside it."""
        written = [block for content in part.parts for block in self.write(content)]
        inner = [block for block in written if "cachePoint" not in block]
        points = [block for block in written if "cachePoint" in block][-1:] if part.cache is None else []
        accepted = inner
        moved = []
        if not self._family.full_results:
            accepted = [block for block in inner if "text" in block]
            moved = [block for block in inner if "text" not in block]
        if not accepted:
            accepted = [{"text": MOVED_NOTE if moved else NO_OUTPUT}]
        result: Block = {"toolUseId": call_id(part.call_id), "content": accepted}
        if part.is_error:
            self._mark_error(result)
        return [{"toolResult": result}, *moved, *points]  # the format allows no cache points inside a result

    def _mark_error(self, result: Block) -> None:
        if self._family.full_results:
            result["status"] = "error"
        elif "text" in result["content"][0]:
            result["content"][0] = {"text": f"Error: {result['content'][0]['text']}"}

    def _write_file(self, part: File) -> Block:
        media = part.media
        kind = _document_format(media, part.filename)
        document: Block = {"format": kind, "name": self._name(part), "source": _source(media)}
        if part.context:
            document["context"] = part.context
        if part.citations:
            document["citations"] = {"enabled": True}
        return {"document": document}

    def _name(self, part: File) -> str:
        """Return a distinct document name in the letters that the API allows."""
        raw = part.title or part.filename.rpartition(".")[0] or part.filename
        plain = SPACES.sub(" ", NAME_FORBIDDEN.sub(" ", raw)).strip()[: NAME_LENGTH - 8] or "Document"
        name = plain
        number = 1
        while name in self._names:
            number += 1
            name = f"{plain} {number}"
        self._names.add(name)
        return name


def cache_point(mark: CacheMark, family: Family) -> Block:
    """Return a cache point, without the default lifetime of five minutes."""
    if mark.ttl == "1h" and family.long_cache:
        return {"cachePoint": {"type": "default", "ttl": "1h"}}
    return {"cachePoint": {"type": "default"}}


def call_id(ident: str) -> str:
    """Return a tool call id in the letters that the format allows; the same id always gives the same result."""
    clean = ID_FORBIDDEN.sub("_", ident)
    if clean == ident and 0 < len(ident) <= ID_LENGTH:
        return ident
    # The checksum keeps two ids distinct that differ only in replaced or cut letters.
    return f"{clean[: ID_LENGTH - 9]}_{binascii.crc32(ident.encode()):08x}"


def _reasoning(text: Block) -> Block:
    return {"reasoningContent": {"reasoningText": text}}


def _write_call(part: ToolCall) -> Block:
    if part.executed:
        raise NotSupported("This provider does not accept calls of another provider's server tools.", param="messages")
    return {"toolUse": {"toolUseId": call_id(part.id), "name": part.name, "input": read_arguments(part)}}


def _source(media: Media) -> Block:
    if media.data:
        return {"bytes": media.data}
    if media.url.startswith("s3://"):
        return {"s3Location": {"uri": media.url}}
    error_type = ContentNeeded if media.url else NotSupported
    raise error_type("This provider does not load URLs; send the content as base64.", param="messages")


def _write_image(media: Media) -> Block:
    detected = next((kind for start, kind in IMAGE_STARTS if media.data.startswith(start)), "")
    kind = detected or media.media_type.rpartition("/")[2] or media.url.rpartition(".")[2].lower()
    kind = "jpeg" if kind == "jpg" else kind or "png"
    source = _source(media)
    if kind not in IMAGE_FORMATS:
        raise NotSupported(f"This provider does not support images of type {kind}.", param="messages")
    return {"image": {"format": kind, "source": source}}


def _document_format(media: Media, filename: str) -> str:
    kind = DOCUMENTS.get(media.media_type.partition(";")[0].strip().lower(), "")
    ending = (filename or media.url).rpartition(".")[2].lower()
    if not kind and ending in DOCUMENTS.values():
        kind = ending
    if not kind and (media.data.startswith("JVBERi0") or not (media.media_type or filename)):
        kind = "pdf"
    if not kind and media.media_type.startswith("text/"):
        kind = "txt"
    if not kind:
        raise NotSupported(
            f"This provider does not support files of type {media.media_type or ending}.", param="messages"
        )
    return kind


def _write_sound(part: Audio) -> Block:
    kind = part.format or sound_format(part.media.media_type) or "wav"
    source = _source(part.media)
    if kind not in SOUND_FORMATS:
        raise NotSupported(f"This provider does not support audio of type {kind}.", param="messages")
    return {"audio": {"format": kind, "source": source}}


def _write_film(media: Media) -> Block:
    ending = media.media_type.rpartition("/")[2] or media.url.rpartition(".")[2].lower()
    kind = FILMS.get(ending, ending) or "mp4"
    source = _source(media)
    if kind not in FILM_FORMATS:
        raise NotSupported(f"This provider does not support video of type {kind}.", param="messages")
    return {"video": {"format": kind, "source": source}}
