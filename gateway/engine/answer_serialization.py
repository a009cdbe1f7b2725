"""Serializes neutral answers to bytes and back, so that they can be stored and replayed."""

import dataclasses
import functools
import types
from array import array
from collections.abc import Callable
from typing import Any, Union, get_args, get_origin, get_type_hints

import orjson
from msgspec import NODEFAULT, Struct, structs

from gateway.neutral import chat, embeddings, events, parts, request, structured, usage
from gateway.neutral.events import Batch
from gateway.neutral.long_json import dumps_in_pieces, loads_long
from gateway.neutral.request import Result
from gateway.runtime.threads import compute, compute_if

KIND = "$"
LARGE = 1 << 17  # bytes of an answer
MANY = 16  # vectors; an answer with this many is written in a thread
# The types that answers consist of, by name.
KINDS: dict[str, type] = {
    name: kind
    for module in (chat, embeddings, events, parts, request, structured, structured, usage)
    for name, kind in vars(module).items()
    if getattr(kind, "__module__", "") == module.__name__
    and isinstance(kind, type)
    and (issubclass(kind, Struct) or dataclasses.is_dataclass(kind))
}


@dataclasses.dataclass(frozen=True, slots=True)
class Field:
    """A field of a type. `raw`: foreign JSON, stored unchanged; `many`: a tuple; `texts`: a list of JSON as bytes."""

    name: str
    default: Any
    raw: bool
    many: bool
    texts: bool = False


def write_result(result: Result) -> bytes:
    """Return a complete answer as JSON, written in a thread if it is large or has many numbers. TypeError when it holds
    a value that JSON cannot represent."""
    vectors = getattr(result, "vectors", None)
    if vectors and len(vectors) >= MANY:
        return compute(_write_vectors, result, vectors)
    return compute_if(result.large, _write, result)


def _write(result: Result) -> bytes:
    if result.large and not hasattr(result, "vectors"):
        return dumps_in_pieces(flatten(result))
    return orjson.dumps(flatten(result), default=_list)


def _write_vectors(result: Result, vectors: list[Any]) -> bytes:
    """Serialize each vector separately, since one call for all numbers would block every other thread."""
    flat = flatten(result)
    rest = orjson.dumps({name: value for name, value in flat.items() if name != "vectors"})
    rows = [orjson.dumps(vector, default=_list) for vector in vectors]
    return b"".join((rest[:-1], b',"vectors":[', b",".join(rows), b"]}"))


def _list(value: Any) -> list[float]:
    """Return the numbers of a vector that is an array. TypeError for any other value."""
    if isinstance(value, array):
        return value.tolist()
    raise TypeError(f"{type(value).__name__} is not JSON")


def read_result(payload: bytes) -> Any:
    """Return the answer that `write_result` wrote; a large one is read in a thread."""
    large = len(payload) >= LARGE
    result = compute_if(large, _read, payload)
    result.large = large
    return result


def _read(payload: bytes) -> Any:
    return build(loads_long(payload))


def write_batch(batch: Batch) -> bytes:
    """Return a batch of a stream as JSON, without heartbeats. TypeError like `write_result`."""
    return orjson.dumps([flatten(event) for event in batch if type(event) is not events.Heartbeat])


def read_batch(payload: bytes) -> Batch:
    return [build(event) for event in orjson.loads(payload)]


def flatten(value: Any) -> Any:
    """Return a value of the neutral form as JSON data that names every type; defaults are omitted."""
    if isinstance(value, tuple | list):
        return [flatten(item) for item in value]
    name = type(value).__name__
    if KINDS.get(name) is not type(value):
        return value
    flat: dict[str, Any] = {KIND: name}
    for field in shape_of(KINDS[name]):
        item = getattr(value, field.name)
        if item is field.default or item == field.default:
            continue
        if field.texts:
            flat[field.name] = [text.decode() for text in item]
        elif field.raw:
            flat[field.name] = item
        else:
            flat[field.name] = flatten(item)
    return flat


def build(flat: Any) -> Any:
    """Return the value that was passed to `flatten`. KeyError or TypeError for data of another release."""
    if isinstance(flat, list):
        return [build(item) for item in flat]
    if not isinstance(flat, dict):
        return flat
    kind = KINDS[flat[KIND]]
    values = {}
    for field in shape_of(kind):
        if field.name in flat:
            values[field.name] = _restore(field, flat[field.name])
    return kind(**values)


def _restore(field: Field, item: Any) -> Any:
    if field.texts:
        return [text.encode() for text in item]
    if not field.raw:
        item = build(item)
    if field.many and isinstance(item, list):
        return tuple(item)
    return item


@functools.lru_cache(maxsize=64)
def shape_of(kind: type[Any]) -> tuple[Field, ...]:
    """Return the fields of a dataclass or struct. A function belongs to the answer in progress and is left out."""
    hints = get_type_hints(kind)
    if issubclass(kind, Struct):
        fields = [(field.name, _default_of(field, NODEFAULT)) for field in structs.fields(kind)]
    else:
        known = [field for field in dataclasses.fields(kind) if field.compare]
        fields = [(field.name, _default_of(field, dataclasses.MISSING)) for field in known]
    return tuple(
        Field(name, default, _is_raw(hints[name]), _is_many(hints[name]), hints[name] == list[bytes])
        for name, default in fields
        if not _is_function(hints[name])
    )


def _default_of(field: Any, none: object) -> Any:
    """Return the default of a field, or `none`, its class's marker for a missing default."""
    if field.default_factory is none:
        return field.default
    return field.default_factory()


def _kinds_within(hint: Any) -> tuple[Any, ...]:
    if get_origin(hint) in (Union, types.UnionType):
        return get_args(hint)
    return (hint,)


def _is_raw(hint: Any) -> bool:
    return any(kind in (dict, Any) or get_origin(kind) is dict for kind in _kinds_within(hint))


def _is_function(hint: Any) -> bool:
    return any(get_origin(kind) is Callable for kind in _kinds_within(hint))


def _is_many(hint: Any) -> bool:
    return any(get_origin(kind) is tuple for kind in _kinds_within(hint))
