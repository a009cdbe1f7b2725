"""The body of generateContent: its schema, its limits, and its error messages (API reference, GenerateContentRequest).

Names are in camelCase; bodies in the other spelling are converted first. Unknown members are dropped.
"""

import re
from typing import Annotated, Any

import msgspec
import orjson
from msgspec import Meta, Struct, ValidationError

from gateway.dialects import google as dialect
from gateway.errors import InvalidRequest
from gateway.neutral.json_weight import without_halves
from gateway.surfaces.bodies.lenient_parsing import correct_numbers
from gateway.surfaces.bodies.request_parameters import with_parameters
from gateway.surfaces.bodies.validation_errors import explain, invalid, unreadable, words_of

Json = dict[str, Any]
ROLES = ("user", "model", "function", "tool", "system")
# In the order of their numbers in the vendor's protocol buffers.
MODES = ("MODE_UNSPECIFIED", "AUTO", "ANY", "NONE", "VALIDATED")
TASK_TYPES = (
    *("TASK_TYPE_UNSPECIFIED", "RETRIEVAL_QUERY", "RETRIEVAL_DOCUMENT", "SEMANTIC_SIMILARITY", "CLASSIFICATION"),
    *("CLUSTERING", "QUESTION_ANSWERING", "FACT_VERIFICATION", "CODE_RETRIEVAL_QUERY"),
)


class GoogleObject(Struct, omit_defaults=True, gc=False):
    """An object of the format."""


class Blob(GoogleObject):
    data: str = ""
    mimeType: str = ""
    displayName: str | None = None


class FileAddress(GoogleObject):
    fileUri: str
    mimeType: str = ""
    displayName: str | None = None


class FunctionCall(GoogleObject):
    name: Annotated[str, Meta(min_length=1)]
    args: Json | None = None
    id: str | None = None


class ResponsePart(GoogleObject):
    inlineData: Blob | None = None
    fileData: FileAddress | None = None


class FunctionResponse(GoogleObject):
    name: Annotated[str, Meta(min_length=1)]
    response: Json | None = None
    id: str | None = None
    parts: list[ResponsePart] | None = None


class WirePart(GoogleObject):
    """A part of a content: one of these members is set, besides `thought` and the signature."""

    text: str | None = None
    thought: bool | None = None
    thoughtSignature: str | None = None
    inlineData: Blob | None = None
    fileData: FileAddress | None = None
    functionCall: FunctionCall | None = None
    functionResponse: FunctionResponse | None = None
    executableCode: Json | None = None
    codeExecutionResult: Json | None = None
    toolCall: Json | None = None
    toolResponse: Json | None = None
    videoMetadata: Any = None
    mediaResolution: Any = None
    partMetadata: Any = None
    unknown: Any = None  # the whole part, if it has members that are newer than this gateway: see find_unknown


# Members that say something about a part, which other formats have no field for.
NOTES = frozenset(("videoMetadata", "mediaResolution", "partMetadata"))
KNOWN_MEMBERS = frozenset(WirePart.__struct_fields__) - {"unknown"}


class WireContent(GoogleObject):
    parts: list[WirePart] | None = None
    role: str | None = None


class FunctionDeclaration(GoogleObject):
    name: Annotated[str, Meta(min_length=1)]
    description: str | None = None
    parameters: Json | None = None
    parametersJsonSchema: Any = None


class ThinkingConfig(GoogleObject):
    includeThoughts: bool | None = None
    thinkingBudget: int | None = None
    thinkingLevel: str | None = None

    @property
    def has_newer_level(self) -> bool:
        """Return whether the level is newer than this gateway."""
        return self.thinkingLevel is not None and self.thinkingLevel.upper() not in dialect.LEVEL_WORDS


class ImageOutput(GoogleObject):
    aspectRatio: str | None = None
    imageSize: str | None = None


@with_parameters("google", path="generationConfig")
class GenerationConfig(GoogleObject, kw_only=True):
    stopSequences: list[str] | None = None
    responseMimeType: str | None = None
    responseSchema: Any = None
    responseJsonSchema: Any = None
    responseModalities: list[str] | None = None
    thinkingConfig: ThinkingConfig | None = None
    imageConfig: ImageOutput | None = None


class CallingConfig(GoogleObject):
    mode: str | int | None = None
    allowedFunctionNames: list[str] | None = None

    @property
    def word(self) -> str | None:
        """Return the mode in capitals."""
        return None if self.mode is None else word_of(self.mode, MODES).upper()


class ToolConfig(GoogleObject):
    functionCallingConfig: CallingConfig | None = None


class GenerateBody(GoogleObject, kw_only=True):
    """Every member that has an effect. The rest of `tools`, and members such as the safety settings, are read by their
    vendor alone."""

    contents: list[WireContent] = []
    systemInstruction: WireContent | None = None
    tools: list[Json] | None = None
    toolConfig: ToolConfig | None = None
    generationConfig: GenerationConfig | None = None
    safetySettings: list[Json] | None = None
    cachedContent: str | None = None
    labels: dict[str, str] | None = None
    continuationToken: str | None = None  # of an answer that ended with CONTINUATION, which clients ask to go on
    store: bool | None = None
    serviceTier: str | None = None


class EmbedBody(GoogleObject, kw_only=True):
    """The body of embedContent."""

    content: WireContent
    model: str | None = None
    taskType: str | int | None = None
    title: str | None = None
    outputDimensionality: Annotated[int, Meta(ge=1)] | None = None

    @property
    def task(self) -> dict[str, str]:
        """Return the task type and the title, if they are given."""
        named = {"taskType": word_of(self.taskType or "", TASK_TYPES), "title": self.title or ""}
        return {name: value for name, value in named.items() if value}


class BatchEmbedBody(GoogleObject, kw_only=True):
    """The body of batchEmbedContents."""

    requests: Annotated[list[EmbedBody], Meta(min_length=1)]


class CountTokensBody(GenerateBody, kw_only=True):
    """The body of countTokens: contents, or a whole request."""

    generateContentRequest: GenerateBody | None = None


def decode(raw: bytes) -> tuple[GenerateBody, Json]:
    """Return the validated body of a request, and the same as the caller wrote it, in camelCase. Raises InvalidRequest
    `invalid_json` or `invalid_parameters` with `param` set."""
    wire = decode_names(raw)
    body: GenerateBody = convert(wire, GenerateBody)
    if not body.contents:
        raise InvalidRequest("The required field 'contents' is missing or empty; add it.", param="contents")
    if not any(content.parts for content in body.contents):
        raise InvalidRequest(
            "The required field 'contents.0.parts' is missing or empty; add it.", param="contents.0.parts"
        )
    check(body)
    return body, wire


def find_unknown(body: GenerateBody, wire: Json) -> tuple[list[Json], bool]:
    """Note in the parts of a body which of them have unknown members, and return these as the caller wrote them, and
    whether any part has notes for its own vendor."""
    found: list[Json] = []
    noted = False
    contents = [*zip(body.contents, wire.get("contents") or (), strict=False)]
    if body.systemInstruction is not None:
        contents.append((body.systemInstruction, wire["systemInstruction"]))
    for content, written in contents:
        for part, whole in zip(content.parts or (), written.get("parts") or (), strict=False):
            part.unknown = None  # it is no member of the format
            if len(whole) == 1 and part.text is not None:
                continue
            noted = noted or not NOTES.isdisjoint(whole)
            if not KNOWN_MEMBERS.issuperset(whole):
                part.unknown = whole
                found.append(whole)
    return found, noted


def unknown_members(part: Json) -> Json:
    """Return the members of a part that are newer than this gateway."""
    return {name: value for name, value in part.items() if name not in KNOWN_MEMBERS}


def check(body: GenerateBody) -> None:
    """Check words and declarations. Raises InvalidRequest."""
    for place, content in enumerate(body.contents):
        if content.role and content.role not in ROLES:
            raise invalid(f"contents.{place}.role", "it must be user or model")
    for place, tool in enumerate(body.tools or ()):
        declarations_of(tool, place)


def declarations_of(tool: Json, place: int) -> list[FunctionDeclaration]:
    """Return the functions that an entry of `tools` declares. Raises InvalidRequest."""
    declared = tool.get("functionDeclarations")
    if declared is None:
        return []
    try:
        return msgspec.convert(declared, list[FunctionDeclaration])
    except ValidationError as error:
        text = str(error).replace("`$[", f"`$.tools[{place}].functionDeclarations[")
        raise explain(text, {}) from None


def decode_names(raw: bytes) -> Json:
    """Return the JSON object of a body, with its names in camelCase."""
    try:
        wire = orjson.loads(raw)
    except (orjson.JSONDecodeError, RecursionError) as error:
        wire = _decode_corrected(raw, error)
    if not isinstance(wire, dict):
        raise InvalidRequest("The body must be a JSON object.")
    renamed: Json = with_camel_names(wire, raw)
    return renamed


def _decode_corrected(raw: bytes, error: Exception) -> Any:
    """Decode a body after removing lone surrogates, of which clients make some when they cut a text."""
    try:
        return orjson.loads(without_halves(raw))
    except (orjson.JSONDecodeError, RecursionError):
        raise unreadable(error) from None


def convert(wire: Json, kind: Any) -> Any:
    """Return the validated struct of a decoded body. Numbers may be texts, and whole ones may have a fraction of zero
    (proto3 JSON mapping)."""
    try:
        return msgspec.convert(wire, kind)
    except ValidationError:
        pass
    config = wire.get("generationConfig")
    if isinstance(config, dict):
        correct_numbers(config)
    try:
        return msgspec.convert(wire, kind, strict=False)
    except ValidationError as error:
        raise explain(str(error), words_of(kind)) from None


# Converts the format's own schemas, a subset of OpenAPI 3.0, into JSON Schema (API reference, Schema).

# Names of the members of a body: each has two spellings, camelCase and snake_case (proto3 JSON mapping).

# A member name with an underscore; within a text the quotation marks are escaped.
SNAKE_CASE_NAME = re.compile(rb'"[a-z0-9]+_[a-z0-9_]*"\s*:')
# Members with content that is not the format's own: arguments, results, JSON Schemas, labels.
OPAQUE_MEMBERS = frozenset(
    (
        "args",
        "response",
        "parameters",
        "parametersJsonSchema",
        "responseSchema",
        "responseJsonSchema",
        "labels",
        "partMetadata",
    )
)


def with_camel_names(wire: Any, raw: bytes) -> Any:
    """Return a decoded body with all names in camelCase. `raw` is its JSON text, which nearly always has no other."""
    if SNAKE_CASE_NAME.search(raw) is None:
        return wire
    return _rename(wire)


def camel(name: str) -> str:
    """Return a name in camelCase."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def _rename(value: Any) -> Any:
    if isinstance(value, list):
        return [_rename(item) for item in value]
    if not isinstance(value, dict):
        return value
    renamed: dict[str, Any] = {}
    for name, inner in value.items():
        known = camel(name) if "_" in name else name
        renamed[known] = inner if known in OPAQUE_MEMBERS else _rename(inner)
    return renamed


LISTS = ("anyOf",)
COUNTS = ("minItems", "maxItems", "minProperties", "maxProperties", "minLength", "maxLength")  # int64: may be texts
DROPPED = frozenset(("nullable", "propertyOrdering", "example"))
NULL = "null"
# In the order of their numbers in the vendor's protocol buffers, which older clients send.
TYPES = ("type_unspecified", "string", "number", "integer", "boolean", "array", "object", NULL)
MAX_DEPTH = 200


def json_schema_of(schema: Any, depth: int = 0) -> Json:
    """Return the JSON Schema of a Schema: lower-case types, `nullable` as a type. An empty one for anything else."""
    if not isinstance(schema, dict) or depth > MAX_DEPTH:
        return {}
    written: Json = {}
    for given, value in schema.items():
        name = camel(given)
        if name not in DROPPED:
            written[name] = _member(name, value, depth)
    if written.get("type") == "type_unspecified":
        del written["type"]
    if schema.get("nullable") is True:
        _allow_null(written)
    return written


def word_of(value: str | int, words: tuple[str, ...]) -> str:
    """Return the word of an enumeration, which JSON may name by its number (proto3 JSON mapping)."""
    if isinstance(value, int) and 0 <= value < len(words):
        return words[value]
    return str(value)


def _member(name: str, value: Any, depth: int) -> Any:
    """Return the value of a member in JSON Schema."""
    if name == "type" and isinstance(value, str | int):
        return word_of(value, TYPES).lower()
    if name == "items":
        return json_schema_of(value, depth + 1)
    if name == "properties" and isinstance(value, dict):
        return {key: json_schema_of(inner, depth + 1) for key, inner in value.items()}
    if name in LISTS and isinstance(value, list):
        return [json_schema_of(inner, depth + 1) for inner in value]
    if name in COUNTS and isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    return value


def _allow_null(written: Json) -> None:
    kind = written.get("type")
    if isinstance(kind, str) and kind != NULL:
        written["type"] = [kind, NULL]
        if isinstance(written.get("enum"), list):
            written["enum"] = [*written["enum"], None]
    elif "anyOf" in written:
        written["anyOf"] = [*written["anyOf"], {"type": NULL}]
