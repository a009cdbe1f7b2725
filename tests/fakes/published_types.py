"""Requests checked by the types that an official client publishes for them."""

import importlib
import pkgutil
from functools import cache
from types import ModuleType
from typing import Any

from pydantic import TypeAdapter, ValidationError
from typing_extensions import is_typeddict


def check(shape: Any, value: Any, *packages: ModuleType, strict: bool = True) -> None:
    """ValidationError for a value that is not of this shape, also where one of its types, which these packages
    publish, has a member that it does not know."""
    _walk(_adapter(shape, packages).validate_python(value, strict=strict))


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
