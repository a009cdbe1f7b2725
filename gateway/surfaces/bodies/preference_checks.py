"""Preferences: gateway fields with an effect that depends on the requested model.

An invalid value is no error while the field has no effect, which routing decides (`gateway/routing/plan.py`).
Therefore their types are checked here, after the schema of the body.
"""

from typing import Annotated, Any, Literal, get_type_hints

import msgspec
from msgspec import Meta, Struct, ValidationError
from msgspec.json import schema_components

from gateway.neutral.request import STRATEGIES, Mistake, Options
from gateway.surfaces.bodies.validation_errors import explain

CHOICES = {"routing": STRATEGIES}
NULL = {"type": "null"}

Routing = Annotated[Any, Meta(extra_json_schema={"anyOf": [{"enum": list(STRATEGIES)}, NULL]})]


class ImageConfig(Struct, gc=False):
    """Preferences for the images of a chat answer. `n` is the number of images in each choice."""

    aspect_ratio: Annotated[str, Meta(examples=["16:9"])] | None = None
    image_size: Annotated[str, Meta(examples=["1024x1024"])] | None = None
    image_quality: Literal["low", "medium", "high", "auto"] | None = None
    n: Annotated[int, Meta(ge=1, examples=[1])] | None = None
    seed: Annotated[int, Meta(examples=[7])] | None = None


def _described(kind: type[Struct]) -> dict[str, Any]:
    """Return the JSON schema of a struct inline."""
    _, parts = schema_components([kind])
    schema: dict[str, Any] = parts[kind.__name__]
    return schema


Switch = Annotated[Any, Meta(extra_json_schema={"anyOf": [{"type": "boolean"}, NULL]})]
ImageOptions = Annotated[Any, Meta(extra_json_schema={"anyOf": [_described(ImageConfig), NULL]})]
TYPES: dict[str, Any] = {name: get_type_hints(Options)[name] for name in ("routing", "no_reasoning")}


def read_preferences(types: dict[str, Any] = TYPES, /, **given: Any) -> dict[str, Any]:
    """Return members of Options from the values of preferences; None is an absent one. Invalid values are added to
    `mistakes`."""
    members: dict[str, Any] = {}
    mistakes: list[Mistake] = []
    for name, value in given.items():
        if value is None:
            continue
        try:
            members[name] = msgspec.convert(value.lower() if isinstance(value, str) else value, types[name])
        except ValidationError as error:
            mistakes.append(_mistake_of(name, str(error)))
    if mistakes:
        members["mistakes"] = tuple(mistakes)
    return members


def _mistake_of(name: str, text: str) -> Mistake:
    """Return the mistake that a validation message reports about the value of `name`."""
    reason, separator, place = text.rpartition(" - at `$")
    where = f"{reason} - at `$.{name}{place}" if separator else f"{text} - at `$.{name}`"
    error = explain(where, CHOICES)
    return Mistake(name, error.message, error.param or name)
