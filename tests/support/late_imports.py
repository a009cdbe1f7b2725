"""Imports libraries when a test first uses them, and not when pytest collects the tests.

Each pytest process imports all test modules and runs some of them. The vendors' clients, which few tests need, took
most of the start time. `import anthropic` at the top of a module works as usual; `from anthropic import …` imports the
library immediately and belongs into the function that needs it. Annotations with its names need `from __future__ import
annotations`.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

# The slowest first; test modules that are built on a library follow it.
LATE = (
    *("anthropic", "fakes.anthropic_types"),
    *("mcp", "langchain_openai", "mistralai.client", "schemathesis", "soundfile", "fakes.bedrock_types"),
    *("google.genai", "fakes.google_types", "fakes.google_live_types"),
    "helm_python",  # written in Go: its threads do not survive a fork
)
# Folders of test modules.
FOLDERS = {"ai_sdk", "agents", "contract", "fakes", "support"}
TESTS = str(Path(__file__).resolve().parents[1])
# Imported libraries with the line that imported them, and libraries that were imported during collection, which is a
# mistake.
imported: list[str] = []
too_early: list[str] = []


class LateModule(ModuleType):
    """A library that has not been used yet."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("_") and (name != "__path__" or not spec or spec.submodule_search_locations is None):
            raise AttributeError(name)  # pytest and other tools read such names from every module
        _import(self)
        return getattr(self, name)


def put_off() -> None:
    """Make imports lazy in this process, except for libraries that are missing or already imported."""
    for name in LATE:
        spec = importlib.util.find_spec(name) if name not in sys.modules else None
        if spec is not None and spec.loader is not None:
            module = LateModule(name)
            module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
            module.__package__ = spec.parent
            sys.modules[name] = module
            setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module) if "." in name else None


def end_collection() -> None:
    """Record all imports so far as too early."""
    too_early.extend(imported)


def first_needed(module: ModuleType, imported: set[str] | None = None) -> int:
    """Return the index in LATE of the slowest library that a test module uses directly or through a support module;
    len(LATE) for none."""
    known = set() if imported is None else imported
    first = len(LATE)
    for value in list(vars(module).values()):
        name = value.__name__ if isinstance(value, ModuleType) else _home_of(value)
        if name in LATE:
            first = min(first, LATE.index(name))
        elif name not in known and name in sys.modules and name.partition(".")[0] in FOLDERS:
            known.add(name)
            first = min(first, first_needed(sys.modules[name], known))
    return first


def _home_of(value: Any) -> str:
    return value.__module__ or "" if isinstance(value, FunctionType | type) else ""


def _find_line_of_a_test() -> str:
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        file = frame.f_code.co_filename
        if file.startswith(TESTS) and file != __file__:
            return f"{file.removeprefix(TESTS)}:{frame.f_lineno}"
        frame = frame.f_back
    return "pytest itself"


def _import(module: LateModule) -> None:
    spec = module.__spec__
    assert spec is not None and spec.loader is not None
    imported.append(f"{module.__name__} for {_find_line_of_a_test()}")
    module.__class__ = ModuleType
    if spec.submodule_search_locations is not None:
        module.__path__ = spec.submodule_search_locations  # type: ignore[assignment]
    try:
        spec.loader.exec_module(module)
    except BaseException:
        module.__class__ = LateModule
        raise
