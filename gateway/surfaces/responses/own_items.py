"""Items that only servers of this dialect read: the parts that the models of other vendors get in their place.

Calls and their results stay calls and results, so that such a model sees what was done. Items that say nothing to it
are left out silently, and others with a warning.
"""

from collections.abc import Callable, Iterable
from typing import Any

import orjson

from gateway.dialects import responses_vocabulary as dialect
from gateway.neutral.parts import Image, Media, Part, Text, ToolCall, ToolResult, VendorPart
from gateway.surfaces.responses import caller_tools, schema

Json = dict[str, Any]
OUTPUT = "_output"
CALL = "_call"
FOUND = "Found these tools: {}."
SCREENSHOT = "(a screenshot)"
# Their content is in the text that follows, in the tools of the request, or for the server alone.
SILENT = frozenset(("mcp_list_tools", dialect.LATER_TOOLS, "configuration_update", "file_search_call"))
CHECKPOINT = (
    "Stop here and answer with a summary of this conversation. The assistant will go on with it but will see only the "
    "user's own messages and what you write now. Write down everything it needs: the goal and the user's wishes, what "
    "was decided and why, what was done and found (names, paths, numbers, ids and commands exactly as they are), what "
    "failed, what is still open and the next step. Write plainly and briefly, in the language of the conversation; "
    "call no tools."
)


class OwnItems:
    """Converts the items of one request; `names` are the functions for the kinds of the caller's tools. Only calls that
    have a result are calls for other vendors."""

    def __init__(self, items: Iterable[Any], names: dict[str, str]) -> None:
        self._functions = names
        self._answered: set[str] = set()
        self.names: dict[str, str] = {}  # of the calls so far
        for item in items:
            ident = _result_of(item)
            if ident:
                self._answered.add(ident)

    def part(self, item: schema.VendorItem, mark: tuple[str, str]) -> Part:
        """Return an item as a part; `mark` is the opaque token of its call, with the vendor of the token."""
        body = item.body
        if item.kind == dialect.IMAGE_CALL and isinstance(body.get("result"), str) and body["result"]:
            return Image(Media(media_type=f"image/{body.get('output_format') or 'png'}", data=body["result"]))
        instead = self._instead(item.kind, body)
        if mark[0] and len(instead) == 1 and isinstance(instead[0], ToolCall):
            call = instead[0]
            instead = (ToolCall(call.id, call.name, call.arguments, signature=mark[0], vendor=mark[1]),)
        silent = item.kind in SILENT or item.kind == dialect.IMAGE_CALL or self._is_servers_search(item)
        return VendorPart(dialect.NAME, item.kind, body, instead, silent=silent)

    def _is_servers_search(self, item: schema.VendorItem) -> bool:
        """Return whether it is a search of the server's over tools, all of which other vendors get."""
        return item.kind in ("tool_search_call", "tool_search_output") and not _word(item.body, "call_id")

    def _instead(self, kind: str, body: Json) -> tuple[Part, ...]:
        ident = _ident_of(body)
        whole = WHOLE.get(kind)
        if whole is not None:
            return whole(body)
        if not ident:
            return ()
        if kind.endswith(OUTPUT):
            name = self.names.get(ident)
            if name is None:
                return ()
            text = RESULTS.get(kind, _read_output)(body)
            failed = body.get("status") == "failed"
            return (ToolResult(ident, (Text(text),) if text else (), name=name, is_error=failed),)
        if ident not in self._answered:
            return ()
        own = caller_tools.BY_ITEM.get(kind)
        name = self.names[ident] = self._functions.get(own, own) if own else kind.removesuffix(CALL)
        arguments = caller_tools.arguments_of(body) if own else _rest_of(body)
        return (ToolCall(ident, name, arguments),)


def user_parts(item: schema.VendorItem) -> tuple[Part, ...]:
    """Return the parts of an item that the user says: the answer to a request for approval."""
    approved = "The call is approved." if item.body.get("approve") is True else "The call is not approved."
    reason = _word(item.body, "reason")
    said = Text(f"{approved} {reason}" if reason else approved)
    return (VendorPart(dialect.NAME, item.kind, item.body, (said,)),)


def trigger_parts(item: schema.VendorItem) -> tuple[Part, ...]:
    """Return the parts of an item that requests a compaction: other vendors get a request for a summary."""
    return (VendorPart(dialect.NAME, item.kind, item.body, (Text(CHECKPOINT),)),)


def later_tools(item: Any) -> list[Json]:
    """Return the tools that an item adds to those of the request."""
    if type(item) is not schema.VendorItem or item.kind not in (dialect.LATER_TOOLS, "tool_search_output"):
        return []
    tools = item.body.get("tools")
    return [tool for tool in tools if isinstance(tool, dict)] if isinstance(tools, list) else []


def call_id_of(item: schema.VendorItem) -> str:
    return _ident_of(item.body)


def _result_of(item: Any) -> str:
    if type(item) is schema.VendorItem:
        return _ident_of(item.body) if item.kind.endswith(OUTPUT) else ""
    if type(item) in (schema.FunctionOutput, schema.CustomOutput):
        return str(item.call_id)
    return ""


def _ident_of(body: Json) -> str:
    """Return the id of a call; a local shell's output has it as its own id."""
    ident = _word(body, "call_id")
    if not ident and body.get("type") == "local_shell_call_output":
        ident = _word(body, "id")
    return ident


def _word(body: Json, name: str) -> str:
    value = body.get(name)
    return value if isinstance(value, str) else ""


def _rest_of(body: Json) -> str:
    """Return the members that describe a call as JSON text."""
    hidden = ("id", "type", "call_id", "status", "fingerprint")
    return orjson.dumps({name: value for name, value in body.items() if name not in hidden}).decode()


def _read_output(body: Json) -> str:
    value = body.get("output", body.get("result"))
    if value is None:
        return _word(body, "status")
    return value if isinstance(value, str) else orjson.dumps(value).decode()


def _read_shell(body: Json) -> str:
    pieces = []
    output = body.get("output")
    for each in output if isinstance(output, list) else ():
        if not isinstance(each, dict):
            continue
        outcome = each.get("outcome")
        ended = ""
        if isinstance(outcome, dict):
            ended = f"exit code {outcome['exit_code']}" if "exit_code" in outcome else _word(outcome, "type")
        pieces.append("\n".join(filter(None, (_word(each, "stdout"), _word(each, "stderr"), ended))))
    return "\n\n".join(pieces)


def _read_found(body: Json) -> str:
    names = []
    for tool in later_tools(schema.VendorItem("tool_search_output", body)):
        inner = tool.get("tools")
        listed = inner if tool.get("type") == "namespace" and isinstance(inner, list) else [tool]
        names += [_word(each, "name") for each in listed if isinstance(each, dict)]
    return FOUND.format(", ".join(filter(None, names)) or "none")


def _read_mcp(body: Json) -> tuple[Part, ...]:
    error = body.get("error")
    text = _word(body, "output")
    if error:
        text = error if isinstance(error, str) else orjson.dumps(error).decode()
    name = "__".join(filter(None, (_word(body, "server_label"), _word(body, "name")))) or "mcp"
    return _done(body, name, _word(body, "arguments") or "{}", text, failed=bool(error))


def _read_code(body: Json) -> tuple[Part, ...]:
    outputs = body.get("outputs")
    logs = []
    if isinstance(outputs, list):
        logs = [_word(each, "logs") for each in outputs if isinstance(each, dict)]
    arguments = orjson.dumps({"code": _word(body, "code")}).decode()
    return _done(body, "code_interpreter", arguments, "\n".join(filter(None, logs)))


def _read_files(body: Json) -> tuple[Part, ...]:
    results = body.get("results")
    if not isinstance(results, list) or not results:
        return ()
    texts = [f"{_word(each, 'filename')}\n{_word(each, 'text')}" for each in results if isinstance(each, dict)]
    arguments = orjson.dumps({"queries": body.get("queries")}).decode()
    return _done(body, "file_search", arguments, "\n\n".join(texts))


def _done(body: Json, name: str, arguments: str, text: str, *, failed: bool = False) -> tuple[Part, ...]:
    """Return a call with its result, both of which are in one item."""
    ident = _word(body, "id")
    if not ident:
        return ()
    result = ToolResult(ident, (Text(text),) if text else (), name=name, is_error=failed)
    return (ToolCall(ident, name, arguments), result)


def _read_approval(body: Json) -> tuple[Part, ...]:
    return (
        Text(f"May I call {_word(body, 'name')} of {_word(body, 'server_label')} with {_word(body, 'arguments')}?"),
    )


# Items that are a whole by themselves.
WHOLE: dict[str, Callable[[Json], tuple[Part, ...]]] = {
    "mcp_call": _read_mcp,
    "code_interpreter_call": _read_code,
    "file_search_call": _read_files,
    "mcp_approval_request": _read_approval,
}
RESULTS: dict[str, Callable[[Json], str]] = {
    "shell_call_output": _read_shell,
    "tool_search_output": _read_found,
    "computer_call_output": lambda body: SCREENSHOT,
}
