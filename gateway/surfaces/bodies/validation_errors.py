"""JSON bodies, decoded and validated, with the dotted path of the field in errors, and URLs of images and files in
them: shared by the surfaces of the hot operations."""

import re
from collections.abc import Hashable, Iterable, Mapping
from functools import cache
from typing import Any, TypeVar, cast, get_args

import msgspec
from msgspec import DecodeError, ValidationError, inspect
from msgspec.json import Decoder

from gateway.configuration.settings import LimitSettings
from gateway.errors import InvalidRequest
from gateway.neutral.json_weight import without_halves
from gateway.neutral.parts import Media
from gateway.surfaces.bodies.lenient_parsing import decode_again
from gateway.surfaces.bodies.unknown_parts import UNKNOWN
from gateway.surfaces.web import caps as caps_module

FIELD_PATH = re.compile(r" - at `\$?([^`]*)`$")
MISSING = re.compile(r"^Object missing required field `([^`]+)`$")
INDEX = re.compile(r"\[(\d+)\]")
ENUM = re.compile(r"^Invalid (?:enum )?value ")
NUMBERS = re.compile(r"\.\d+")
TYPES = re.compile(r"`([^`]+)`")
DECODER_ERRORS = {"Input data was truncated": "it is empty or incomplete"}
JSON_WORDS = {"str": "string", "int": "integer", "float": "number", "bool": "boolean"}

Choices = Mapping[str, tuple[str, ...]]


def readable(body: bytes, error: Exception) -> bytes:
    """Return the body without lone surrogates, which clients produce when they cut a text inside a character; one in a
    conversation would make every request of it fail. Raises InvalidRequest if the body, rejected with `error`, has
    none."""
    repaired = without_halves(body)
    if isinstance(error, RecursionError) or repaired == body:
        raise unreadable(error) from None
    return repaired


def invalid(param: str, reason: str) -> InvalidRequest:
    """Return the error for a field with an invalid value; `param` is its dotted path."""
    return InvalidRequest(f"Invalid value for '{param}': {reason}.", param=param)


def missing(param: str) -> InvalidRequest:
    """Return the error for a required field that is absent."""
    return InvalidRequest(f"The required field '{param}' is missing; add it.", param=param)


def path_of(text: str) -> str:
    """Return the dotted path in a validation message; "" when it is about the whole body."""
    match = FIELD_PATH.search(text)
    if match:
        return INDEX.sub(r".\1", match[1]).strip(".")
    return ""


def unreadable(error: Exception) -> InvalidRequest:
    """Return the error for a body that is not valid JSON; `error` is the decoder's own."""
    reason = "nested too deeply" if isinstance(error, RecursionError) else DECODER_ERRORS.get(str(error), str(error))
    return InvalidRequest(f"The body is not valid JSON: {reason}.", code="invalid_json")


def read_part(param: str, value: Any, kind: Any) -> Any:
    """Return a part of a body as one of the structs of a union, which differ by their tags; `param` is the path of the
    part. Raises InvalidRequest."""
    try:
        return msgspec.convert(value, kind)
    except msgspec.ValidationError as error:
        text = str(error)
        inner = FIELD_PATH.search(text)
        reason = FIELD_PATH.sub("", text)
        choices = {f"{param}.{get_args(kind)[0].__struct_config__.tag_field}": tags_of(kind)}
        raise explain(f"{reason} - at `$.{param}{inner[1] if inner else ''}`", choices) from None


def tags_of(union: Any) -> tuple[str, ...]:
    """Return the values of the tag by which the structs of a union differ."""
    return tuple(kind.__struct_config__.tag for kind in get_args(union))


@cache
def words_of(kind: Any) -> Choices:
    """Return the words that the fields of a type accept, by path without list indexes: those of its literals, the tags
    of its structs, and the enumerations of its JSON Schema."""
    found: dict[str, dict[str, None]] = {}
    _collect_words(inspect.type_info(kind), "", found, ())
    return {path: tuple(words) for path, words in found.items()}


def _collect_words(info: inspect.Type, path: str, found: dict[str, dict[str, None]], within: tuple[type, ...]) -> None:
    """Add the words of a type. `within` are the structs around it, which it may contain again."""
    match info:
        case inspect.LiteralType(values=values):
            _add_words(found, path, values)
        case inspect.UnionType(types=types):
            for choice in types:
                _collect_words(choice, path, found, within)
        case inspect.ListType(item_type=item):
            _collect_words(item, path, found, within)
        case inspect.Metadata(type=inner, extra_json_schema=schema):
            for choice in (schema or {}, *(schema or {}).get("anyOf", ())):
                _add_words(found, path, choice.get("enum", ()))
            _collect_words(inner, path, found, within)
        case inspect.StructType(cls=cls) if cls not in within:
            if info.tag_field and info.tag != UNKNOWN:
                _add_words(found, f"{path}.{info.tag_field}".lstrip("."), (info.tag,))
            for field in info.fields:
                _collect_words(field.type, f"{path}.{field.encode_name}".lstrip("."), found, (*within, cls))


def _add_words(found: dict[str, dict[str, None]], path: str, values: Iterable[Any]) -> None:
    words = [value for value in values if isinstance(value, str)]
    if words:
        found.setdefault(path, {}).update(dict.fromkeys(words))


def explain(text: str, choices: Choices) -> InvalidRequest:
    """Convert a validation message ("Expected `str`, got `int` - at `$.messages[0].role`") to an error.

    `choices` holds the allowed values by path without list indexes.
    """
    path = path_of(text)
    reason = FIELD_PATH.sub("", text)
    absent = MISSING.match(reason)
    if absent:
        param = f"{path}.{absent[1]}" if path else absent[1]
        return missing(param)
    if not path:
        return InvalidRequest("The body must be a JSON object.")
    allowed = choices.get(NUMBERS.sub("", path))
    if allowed and ENUM.match(reason):
        return invalid(path, f"{ENUM.sub('', reason)} is not one of {either(allowed)}")
    words = TYPES.sub(lambda match: _in_json_words(match[1]), reason)
    return invalid(path, words[:1].lower() + words[1:])


def either(words: tuple[str, ...]) -> str:
    """Join words: "a", "a or b", "a, b or c"."""
    if len(words) == 1:
        return words[0]
    return f"{', '.join(words[:-1])} or {words[-1]}"


def _in_json_words(types: str) -> str:
    """Convert "str | int | null" to "string, integer or null"."""
    return either(tuple(JSON_WORDS.get(word, word) for word in types.split(" | ")))


# JSON bodies of the service's own format, decoded and validated.

T = TypeVar("T")


def read_json(limits: LimitSettings, decoder: Decoder[T], raw: bytes) -> T:
    """Return the decoded body of a request.

    Raises InvalidRequest `invalid_json`, `request_too_complex`, or `invalid_parameters` with `param` set.
    """
    return caps_module.read(limits, raw, decode_json, decoder, raw)


def decode_json(decoder: Decoder[T], raw: bytes) -> T:
    """Decode a body as `read_json` does, after its parts were counted."""
    try:
        return decoder.decode(raw)
    except ValidationError as error:
        try:
            repaired: T = decode_again(decoder, raw, error)
        except ValidationError as still:
            raise explain(str(still), words_of(cast(Hashable, decoder.type))) from None
        return repaired
    except (DecodeError, RecursionError, UnicodeDecodeError) as error:
        return decode_json(decoder, readable(raw, error))


# Reads the URLs of images and files in requests.

DATA_START = "data:"
# The head of a data URL: its media type and parameters, which RFC 2397 means to be short. Without this limit, a URL of
# separators alone is split into as many parts.
MAX_HEAD_CHARS = 1_000
PDF_START = "data:application/pdf"
PDF_NAME = "document.pdf"


def is_document(url: str) -> bool:
    """Return whether a data URL in a member for images is a PDF, as clients of vendors that take it there write it."""
    return url[: len(PDF_START)].lower() == PDF_START


def split_data_url(text: str, path: str) -> tuple[str, str]:
    """Return the media type (in lower case) and the base64 of a data URL. InvalidRequest with the dotted path."""
    begin = len(DATA_START)
    comma = text.find(",", begin, begin + MAX_HEAD_CHARS)
    kind, *flags = text[begin : max(comma, begin)].split(";")
    if "base64" not in [flag.strip().lower() for flag in flags]:
        raise invalid(path, "a data URL must look like data:<media type>;base64,<data>")
    return kind.strip().lower(), text[comma + 1 :]


def read_media(text: str, path: str, *, bare: bool = False) -> Media:
    """Return an http(s) or data URL, or (`bare`) base64 alone, as media. InvalidRequest with the dotted path."""
    if text[: len(DATA_START)].lower() == DATA_START:
        kind, data = split_data_url(text, path)
        return Media(media_type=kind, data=data)
    if text[:8].lower() == "https://" or text[:7].lower() == "http://":
        return Media(url=text)
    if bare:
        return Media(data=text)
    raise invalid(path, "expected an https URL or a data URL")
