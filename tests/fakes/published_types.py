"""Requests checked by the types that an official client publishes for them."""

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Annotated, Any, get_args, get_origin

from pydantic import BaseModel, TypeAdapter, ValidationError
from typing_extensions import is_typeddict


def check(shape: Any, value: Any, *packages: ModuleType, strict: bool = True) -> None:
    """ValidationError for a value that is not of this shape, also where one of its types, which these packages
    publish, has a member that it does not know."""
    _walk(_adapter(shape, packages).validate_python(value, strict=strict))


class PublishedUnion:
    """A union that a client publishes of types which their member `type` tells apart: a value is checked against its
    own type alone, where pydantic would try all of them, fifty for an event of responses."""

    def __init__(self, union: Any) -> None:
        self._union = union
        self._shapes: dict[str, list[type[BaseModel]]] = {}
        for shape in get_args(get_args(union)[0] if get_origin(union) is Annotated else union):
            for name in get_args(shape.model_fields["type"].annotation):
                self._shapes.setdefault(name, []).append(shape)

    def check(self, value: Any) -> None:
        """ValidationError for a value that is of none of the types."""
        own = self._shapes.get(value.get("type"), ())
        if len(own) == 1:
            own[0].model_validate(value)
        else:
            _adapter(self._union, ()).validate_python(value)


def worst_of(error: ValidationError) -> Any:
    """The most telling of the errors: an unknown member, else the one that lies deepest."""
    return sorted(error.errors(), key=lambda one: (one["type"] != "extra_forbidden", -len(one["loc"])))[0]


def _walk(value: Any) -> None:
    """Iterables are checked only while they are walked: walk all of them."""
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
    """Every type that a package publishes, those of its own folders left out, refuses members that it does not know."""
    for found in pkgutil.iter_modules(package.__path__, package.__name__ + "."):
        if found.ispkg:
            continue
        for published in vars(importlib.import_module(found.name)).values():
            if is_typeddict(published) and not getattr(published, "__pydantic_config__", None):
                published.__pydantic_config__ = {"extra": "forbid"}
