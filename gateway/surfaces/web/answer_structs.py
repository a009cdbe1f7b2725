"""Answers as types: one definition for the JSON, the API description and its examples.

An answer is a struct, or a typed dictionary where a struct would cost time in each request: the writer fills a
dictionary, and mypy compares it with its type.
"""

from collections.abc import Callable, Iterable, Mapping, MutableSequence
from functools import cache
from types import UnionType
from typing import (
    Annotated,
    Any,
    ClassVar,
    Literal,
    NamedTuple,
    NotRequired,
    Required,
    Self,
    TypedDict,
    TypeVar,
    Union,
    get_args,
    get_origin,
    get_type_hints,
    is_typeddict,
)

import msgspec
from msgspec import UNSET, Meta, Struct, structs

from gateway.clock import to_iso
from gateway.money import format_usd
from gateway.runtime.threads import give_way

T = TypeVar("T")

# Amounts and times are integers in the program and text on the wire; `Answer.of` converts them. The suffix is that of
# the attribute: `created_at` is read from `created_at_us`.
Usd = Annotated[str, Meta(examples=["12.5"], extra={"suffix": "_nusd", "write": format_usd})]
Time = Annotated[
    str,
    Meta(
        examples=["2026-01-31T12:00:00.000Z"],
        extra_json_schema={"format": "date-time"},
        extra={"suffix": "_us", "write": to_iso},
    ),
]
JsonObject = Annotated[Any, Meta(extra_json_schema={"type": "object"})]
# For a part that a provider may have written: members that only this provider has are passed on unchanged.
RELAYED = Meta(extra_json_schema={"additionalProperties": True})
Url = Annotated[str, Meta(extra_json_schema={"format": "uri"})]

# Bodies whose unknown members are collected: the structs that take any member, and the member and the struct of the
# collection, which callers do not write.
NEWER = "(newer)"
COLLECTION = "NewerMembers"
TAKE_ANY = frozenset(("FunctionSpec", "FunctionTool", "CustomSpec", "CustomTool"))


LIMITED = (str, int, float, list[Any], dict[str, Any])  # types that an annotation can limit


class StreamFailure(TypedDict):
    """The last event of a stream that failed."""

    error: JsonObject


class AnswerField(NamedTuple):
    """A field of an answer: the attribute that it is read from, and the conversion of its value."""

    name: str
    attribute: str
    write: Callable[[Any], Any] | None


def to_camel(name: str) -> str:
    """Return the name of a member of an answer of the management API."""
    first, *rest = name.split("_")
    return first + "".join(map(str.capitalize, rest))


class Answer(Struct, rename="camel"):
    """The base of all answers. `columns` are the fields that a table shows."""

    columns: ClassVar[tuple[str, ...]] = ()

    @classmethod
    def of(cls, source: Any = None, /, **values: Any) -> Self:
        """Return the answer with `values` (amounts in nano-dollars, times in microseconds), and the other fields from
        the attributes of `source`."""
        for name, attribute, write in _plan(cls, source.__class__, *values):
            value = getattr(source, attribute) if attribute else values[name]
            if write is not None and value is not None:
                value = write(value)
            values[name] = value
        return cls(**values)

    def encode(self) -> bytes:
        """Return the answer as JSON."""
        return msgspec.json.encode(self)


class ModelApiAnswer(Answer, rename={}):
    """The base of answers outside of the management API. Their fields keep their names: no camel case."""

    @classmethod
    def extend(cls, body: Mapping[str, Any], /, **values: Any) -> dict[str, Any]:
        """Return a provider's answer with the gateway's `values`. The fields are those that are described; members of
        `body` without a field are passed on unchanged."""
        read = {name: body[name] for name in cls.__struct_fields__ if name in body}
        answer = cls(**read | values)
        fields = {name: value for name, value in structs.asdict(answer).items() if value is not UNSET}
        return {**fields, **{name: value for name, value in body.items() if name not in fields}}


def fill_page(page: Any, rows: Iterable[T], show: Callable[[T], Any]) -> None:
    """Add the answers of rows to the `data` of a page, and its `first_id` and `last_id`. Other requests
    run between two rows, because parts of most rows are decrypted."""
    for row in rows:
        page.data.append(show(row))
        give_way()
    if page.data:
        page.first_id, page.last_id = page.data[0].id, page.data[-1].id


@cache  # looking up each field for each answer took four times as long
def _plan(answer: type[Answer], source: type, *given: str) -> tuple[AnswerField, ...]:
    """Return the fields that are read or converted; the attribute of a given field is empty. A field with a default may
    be absent from the source."""
    plan = []
    for field in _fields_of(answer):
        if field.name not in given and hasattr(source, field.attribute):
            plan.append(field)
        elif field.name in given and field.write is not None:
            plan.append(field._replace(attribute=""))
    return tuple(plan)


@cache
def _fields_of(answer: type[Answer]) -> tuple[AnswerField, ...]:
    hints = get_type_hints(answer, include_extras=True)
    return tuple(_read_field(name, hints[name]) for name in answer.__struct_fields__)


def _read_field(name: str, hint: Any) -> AnswerField:
    for part in (hint, *get_args(hint)):  # the type itself, or one of a union
        for meta in getattr(part, "__metadata__", ()):
            if meta.extra:
                return AnswerField(name, name + meta.extra["suffix"], meta.extra["write"])
    return AnswerField(name, name, None)


def is_body(value: Any) -> bool:
    """Return whether this is the struct of a request's body, rather than the type of an answer."""
    return isinstance(value, type) and issubclass(value, Struct) and not issubclass(value, Answer)


def describe_answer(answer: Any) -> dict[str, Any]:
    """Return the JSON schema of an answer with those of all its parts inside; the title of each is its name."""
    described: dict[str, Any]
    if isinstance(answer, type) and issubclass(answer, Struct):
        (schema,), parts = msgspec.json.schema_components([answer], ref_template="{name}")
        described = _put_in(schema, parts)
    else:
        described = _describe(answer)
    return described


def _describe(hint: Any) -> dict[str, Any]:
    """Return the schema of a type with typed dictionaries, which msgspec describes as long as no union has several."""
    origin = get_origin(hint)
    arguments = get_args(hint)
    if is_typeddict(hint) or (isinstance(hint, type) and issubclass(hint, Struct)):
        return _describe_members(hint) if is_typeddict(hint) else describe_answer(hint)
    if origin in (Required, NotRequired):
        return _describe(arguments[0])
    if origin in (list, MutableSequence):
        return {"type": "array", "items": _describe(arguments[0])}
    if origin is dict:
        return {"type": "object", "additionalProperties": _describe(arguments[1])}
    if origin is Literal:
        return {"enum": list(arguments)}
    if origin in (Union, UnionType):
        return {"anyOf": [_describe(choice) for choice in arguments]}
    if origin is Annotated:
        # The limits of the annotation (lengths, ranges) belong to a type; msgspec refuses them on any other.
        bare = {list: list[Any], dict: dict[str, Any]}.get(get_origin(arguments[0]), arguments[0])
        if bare not in LIMITED:
            bare = Any
        return {**_describe(arguments[0]), **msgspec.json.schema(Annotated[bare, *arguments[1:]])}
    return msgspec.json.schema(hint)


def _describe_members(answer: Any) -> dict[str, Any]:
    members = {name: _describe(hint) for name, hint in get_type_hints(answer, include_extras=True).items()}
    described = {"title": answer.__name__, "type": "object", "properties": members}
    if answer.__doc__:
        described["description"] = answer.__doc__
    return {**described, "required": [name for name in members if name in answer.__required_keys__]}


def _put_in(schema: Any, parts: dict[str, Any]) -> Any:
    """Return the schema with its parts in place of the references to them."""
    if isinstance(schema, list):
        return [_put_in(value, parts) for value in schema]
    if not isinstance(schema, dict):
        return schema
    if "$ref" in schema:
        part = {name: _put_in(value, parts) for name, value in parts[schema["$ref"]].items()}
        # Members with a default are always in an answer, except those that are left out while UNSET.
        always = [name for name, value in part["properties"].items() if "default" in value]
        required = [*part["required"], *always]
        return {**part, "required": required, "title": part["title"].removesuffix("Answer")}
    return {name: _put_in(value, parts) for name, value in schema.items()}
