"""Libraries that are imported when a test first uses them, and not when pytest collects the tests.

Each process of pytest imports all test modules and runs a share of them: the vendors' clients, which few tests need,
were most of what starting one cost. `import anthropic` at the top of a module is as ever; `from anthropic import …`
imports the library at once and so belongs into the function that needs it, and annotations that name something of it
want `from __future__ import annotations`.
"""

import importlib
import importlib.util
import sys
from pathlib import Path
from types import FrameType, FunctionType, ModuleType
from typing import Any

# The dearest first; modules of ours that are made of a library stand beside it.
LATE = (
    *("anthropic", "fakes.anthropic_types"),
    *("mcp", "langchain_openai", "mistralai.client", "schemathesis", "soundfile", "fakes.bedrock_types"),
    *("google.genai", "fakes.google_types", "fakes.google_live_types"),
    "helm_python",  # of Go, whose threads no fork keeps
)
# Where modules of ours are.
FOLDERS = {"ai_sdk", "agents", "contract", "fakes", "support"}
TESTS = str(Path(__file__).resolve().parents[1])
# What was imported, each with the line that wanted it; and that which was while pytest collected, which nothing should.
imported: list[str] = []
too_early: list[str] = []


class LateModule(ModuleType):
    """A library that nobody has used yet."""

    def __getattr__(self, name: str) -> Any:
        spec = self.__spec__
        if name.startswith("_") and (name != "__path__" or not spec or spec.submodule_search_locations is None):
            raise AttributeError(name)  # pytest and others ask any module for such names in passing
        _import(self)
        return getattr(self, name)


def put_off() -> None:
    """From now on in this process; what is not installed or is imported already stays so."""
    for name in LATE:
        spec = importlib.util.find_spec(name) if name not in sys.modules else None
        if spec is not None and spec.loader is not None:
            module = LateModule(name)
            module.__spec__, module.__loader__, module.__file__ = spec, spec.loader, spec.origin
            module.__package__ = spec.parent
            sys.modules[name] = module
            setattr(sys.modules[name.rpartition(".")[0]], name.rpartition(".")[2], module) if "." in name else None


def end_collection() -> None:
    """All that was imported so far was so too early."""
    too_early.extend(imported)


def first_needed(module: ModuleType, seen: set[str] | None = None) -> int:
    """The place in LATE of the dearest library that a test module uses, itself or by a module of ours that it has
    something of; the length of LATE where it uses none."""
    known = set() if seen is None else seen
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
