"""The agent's tools: each module here with a `DEFINITION` and a function `run` is one."""

import importlib
import pkgutil
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True)
class Tool:
    """A function that the model may call; `definition` describes it in the format of chat completions."""

    definition: dict[str, Any]
    run: Callable[..., str]


def load_tools() -> dict[str, Tool]:
    """Return the tools by name."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    return {module.DEFINITION["function"]["name"]: Tool(module.DEFINITION, module.run) for module in modules}


def call_tool(name: str, arguments: dict[str, Any]) -> str:
    """Return the result of a tool, or the error as a text for the model."""
    tool = TOOLS.get(name)
    if tool is None:
        return f"There is no tool {name}."
    try:
        return tool.run(**arguments)
    except Exception as error:
        return f"{name} failed: {error}"


TOOLS = load_tools()
