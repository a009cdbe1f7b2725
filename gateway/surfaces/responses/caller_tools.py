"""Tools of this dialect that the caller itself runs, as functions for the models of other vendors: `shell`,
`local_shell`, `apply_patch` and a `tool_search` of the caller. Their calls come back as items of their own kinds.

Members: function_shell_tool.py, local_shell.py, apply_patch_tool.py and tool_search_tool.py of the OpenAI SDK, and the
items of their calls next to them.
"""

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple

import orjson

from gateway.neutral.chat import FunctionTool
from gateway.surfaces.responses import items as shapes
from gateway.surfaces.responses import schema

Json = dict[str, Any]
TEXT: Json = {"type": "string"}
WHOLE: Json = {"type": "integer"}
TEXTS: Json = {"type": "array", "items": TEXT}
TOOL_SEARCH = "tool_search"
SHELL = "shell"


class CallerTool(NamedTuple):
    """A kind of tool as a function: its description and parameters, the type of its calls' items, the member of such an
    item that has the arguments, and how that member is written."""

    description: str
    parameters: Json
    item: str
    member: str
    write: Callable[[Json], Json]


def _object(required: str, **properties: Json) -> Json:
    return {"type": "object", "properties": properties, "required": required.split()}


def _write_command(arguments: Json) -> Json:
    command = arguments.get("command")
    if isinstance(command, str):
        command = ["bash", "-lc", command]
    return {"env": {}, **arguments, "type": "exec", "command": _texts(command)}


def _write_commands(arguments: Json) -> Json:
    commands = arguments.get("commands", arguments.get("command"))
    limits = {name: arguments.get(name) for name in ("timeout_ms", "max_output_length")}
    return {"commands": _texts(commands), **limits}


def _write_operation(arguments: Json) -> Json:
    inner = arguments.get("operation")
    operation = inner if isinstance(inner, dict) else arguments
    return {"type": "update_file", "path": "", **operation}


def _texts(value: Any) -> list[str]:
    if isinstance(value, str):
        return [value]
    return [each for each in value if isinstance(each, str)] if isinstance(value, list) else []


CALLER_TOOLS = {
    "local_shell": CallerTool(
        "Runs a command on the user's machine and returns its output.",
        _object("command", command=TEXTS, working_directory=TEXT, timeout_ms=WHOLE),
        *("local_shell_call", "action", _write_command),
    ),
    SHELL: CallerTool(
        "Runs shell commands on the user's machine and returns their output.",
        _object("commands", commands=TEXTS, timeout_ms=WHOLE, max_output_length=WHOLE),
        *("shell_call", "action", _write_commands),
    ),
    "apply_patch": CallerTool(
        "Creates, updates or deletes one file. `diff` is the change in the V4A format (lines with +, - or a blank in "
        "front, @@ before each place) or, for a new file, its lines with + in front.",
        _object(
            "type path",
            type={"type": "string", "enum": ["create_file", "update_file", "delete_file"]},
            path=TEXT,
            diff=TEXT,
        ),
        *("apply_patch_call", "operation", _write_operation),
    ),
    TOOL_SEARCH: CallerTool(
        "Finds further tools by a query.", _object("query", query=TEXT), "tool_search_call", "arguments", dict
    ),
}
BY_ITEM = {tool.item: kind for kind, tool in CALLER_TOOLS.items()}


def is_callers(tool: Any) -> bool:
    """Return whether an entry of `tools` is one that the caller runs: no hosted shell, and no search of the server."""
    if type(tool) is not schema.VendorItem or tool.kind not in CALLER_TOOLS:
        return False
    if tool.kind == TOOL_SEARCH:
        return tool.body.get("execution") == "client"
    environment = tool.body.get("environment")
    return tool.kind != SHELL or not isinstance(environment, dict) or environment.get("type") == "local"


def names_by_kind(tools: Iterable[shapes.Tool]) -> dict[str, str]:
    """Return the name of the function for each of these tools; it differs from the caller's own functions."""
    known = list(tools)
    taken = {tool.name for tool in known if isinstance(tool, schema.FunctionTool | schema.CustomTool)}
    kinds = [tool.kind for tool in known if isinstance(tool, schema.VendorItem) and is_callers(tool)]
    return {kind: f"{kind}_tool" if kind in taken else kind for kind in kinds}


def as_function(tool: schema.VendorItem, name: str) -> FunctionTool:
    """Return the function for a tool; a search of the caller has its own description and parameters."""
    known = CALLER_TOOLS[tool.kind]
    described = tool.body.get("description")
    parameters = tool.body.get("parameters")
    return FunctionTool(
        name,
        described if isinstance(described, str) and described else known.description,
        parameters if isinstance(parameters, dict) and parameters else known.parameters,
    )


def arguments_of(item: Json) -> str:
    """Return the arguments of a past call as JSON text."""
    value = item.get(CALLER_TOOLS[BY_ITEM[item["type"]]].member)
    if isinstance(value, str):
        return value
    if not isinstance(value, dict):
        return "{}"
    hidden = ("env",) if not value.get("env") else ()
    return orjson.dumps(
        {key: inner for key, inner in value.items() if inner is not None and key not in hidden}
    ).decode()


def write_call(kind: str, call_id: str, text: str, status: str) -> Any:
    """Return the item of a call of a function that stands for a tool of this kind."""
    tool = CALLER_TOOLS[kind]
    try:
        arguments = orjson.loads(text or "{}")
    except orjson.JSONDecodeError:
        arguments = text
    if not isinstance(arguments, dict):
        # A call that is no object is shown as well as it can be, so that the caller's error tells the model about it.
        arguments = {"command": text, "diff": text, "query": text}
    written: Json = {"type": tool.item, "status": status, "call_id": call_id, tool.member: tool.write(arguments)}
    if kind == TOOL_SEARCH:
        written["execution"] = "client"
    return written
