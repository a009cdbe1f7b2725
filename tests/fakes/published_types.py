"""Checks requests by the types that an official client publishes."""

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import is_typeddict


def check(shape: Any, value: Any, *packages: ModuleType, strict: bool = True) -> None:
    """Raise ValidationError for a value of another shape, or with a member that a published type does not contain."""
    _walk(_adapter(shape, packages).validate_python(value, strict=strict))


class PublishedUnion:
    """A published union of types that are distinguished by `type`. A value is only checked against its type, while
    pydantic would try all types, which are fifty for an event of the Responses API."""

    def __init__(self, union: Any) -> None:
        self._union = union
        self._shapes: dict[str, list[type[BaseModel]]] = {}
        for shape in get_args(get_args(union)[0] if get_origin(union) is Annotated else union):
            for name in get_args(shape.model_fields["type"].annotation):
                self._shapes.setdefault(name, []).append(shape)

    def check(self, value: Any) -> None:
        """Raise ValidationError for a value that matches none of the types."""
        own = self._shapes.get(value.get("type"), ())
        if len(own) == 1:
            own[0].model_validate(value)
        else:
            _adapter(self._union, ()).validate_python(value)


def worst_of(error: ValidationError) -> Any:
    """Return the most informative error: an unknown member, otherwise the deepest error."""
    return sorted(error.errors(), key=lambda error: (error["type"] != "extra_forbidden", -len(error["loc"])))[0]


def _walk(value: Any) -> None:
    """Iterate over all nested values, because pydantic checks iterables lazily."""
    if isinstance(value, dict):
        for inner in value.values():
            _walk(inner)
    elif not isinstance(value, str | bytes) and hasattr(value, "__iter__"):
        for inner in value:
            _walk(inner)


@cache
def _adapter(shape: Any, packages: tuple[ModuleType, ...]) -> TypeAdapter:
    for package in packages:
        _forbid_unknown(package)
    return TypeAdapter(shape)


@cache
def _forbid_unknown(package: ModuleType) -> None:
    """Make every type that a package publishes refuse unknown members."""
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.ispkg:
            continue
        for published in vars(importlib.import_module(found.name)).values():
            if is_typeddict(published) and not getattr(published, "__pydantic_config__", None):
                published.__pydantic_config__ = {"extra": "forbid"}
