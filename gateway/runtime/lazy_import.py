"""Packages that only some installations use, imported on first use: each costs every worker megabytes."""

import importlib
from typing import Any


class LazyImport:
    """A proxy for the module `name`: the first use of an attribute imports it. Not for hot paths."""

    __slots__ = ("_name",)

    def __init__(self, name: str) -> None:
        self._name = name

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self._name), attribute)
