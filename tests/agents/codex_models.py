"""Models that work as Codex' users see them: for each task they call a command, the free-text tool and a search over
tools at once, then the tool that the search found, and end."""

import json
import re
from typing import Any

from agents.upstreams import (
    DONE,
    Endless,
    Model,
    ModelAtAnthropic,
    ModelAtGoogle,
    ModelAtMistral,
    ModelAtOpenAI,
    ModelAtResponses,
)
from fakes import anthropic, google, mistral, openai, responses

Json = dict[str, Any]
TASK = re.compile(r"STEP(\d)")
RESULT = re.compile(
    r'"type": "[a-z_]*(?:call|search)_output"|"type": "tool_result"|"role": "tool"|"functionResponse"|"toolResult"'
)
CHECKPOINT = "CONTEXT CHECKPOINT COMPACTION"
SUMMARY = "The user wants files, and they are written."
SEALED = "gAAAA-compacted"
NOTE = "read_note"
TASK_OF_THE_GATEWAY = "Write down everything it needs"
# Tokens of a prompt, as reported: of one that has results of calls, and of another.
LONG, SHORT = 1000, 100


def file_of(task: str) -> str:
    return f"step{task}.txt"


def patch_of(task: str) -> str:
    return f"*** Begin Patch\n*** Add File: {file_of(task)}\n+Written in step {task}.\n*** End Patch\n"


def play(model: Model) -> None:
    """Let a model work on the tasks of a session."""
    model._script = Endless(lambda body: _answer(model, body), model.calls)


def _answer(model: Model, body: Json) -> Any:
    text = json.dumps(body)
    turns = json.dumps(next(body[name] for name in ("input", "messages", "contents") if name in body))
    if '"type": "compaction_trigger"' in turns:
        return responses.Answer({"type": "compaction", "encrypted_content": SEALED})
    latest = turns[turns.rfind("STEP") :]
    if CHECKPOINT in latest or TASK_OF_THE_GATEWAY in latest:
        return _said(model, SUMMARY)
    if SUMMARY in latest or '"type": "compaction"' in latest:
        return _said(model, DONE)
    tasks = list(TASK.finditer(turns))
    if not tasks:
        return _said(model, "A title.")
    task = tasks[-1].group(1)
    done = len(RESULT.findall(turns[tasks[-1].start() :]))
    tools = _tools(body, text)
    if not done:
        return _called(model, _first_calls(tools, task), task)
    note = next((name for name in tools if name.endswith(NOTE)), "")
    if note and done < len(_first_calls(tools, task)) + 1:
        return _called(model, [(note, json.dumps({"title": f"n{task}"}))], f"{task}n")
    return _said(model, DONE)


def _first_calls(tools: dict[str, str], task: str) -> list[tuple[str, str]]:
    """Return the calls with which a task begins: (name, arguments or free text)."""
    patch = patch_of(task)
    program = f"text(await tools.apply_patch({json.dumps(patch)}));"
    known = {
        "exec": json.dumps({"input": program}),
        "exec_command": json.dumps({"cmd": f"echo {task}"}),
        "apply_patch": json.dumps({"input": patch}),
        "tool_search": json.dumps({"query": "read note"}),
    }
    return [(name, known[bare]) for name, bare in tools.items() if bare in known]


def _tools(body: Json, text: str) -> dict[str, str]:
    """Return the bare names of the declared tools by their names; those in items count too."""
    names: dict[str, str] = {}
    found = re.findall(r'"name": "([A-Za-z0-9_.-]+)"', text)
    for name in found:
        names.setdefault(name, name.removeprefix("functions__"))
    if any(tool.get("type") == "tool_search" for tool in body.get("tools") or ()):
        names["tool_search"] = "tool_search"
    return names


def _size(model: Model) -> int:
    return LONG if RESULT.search(json.dumps(model.calls[-1].body)) else SHORT


def _said(model: Model, text: str) -> Any:
    if isinstance(model, ModelAtAnthropic):
        return anthropic.Answer(text, input=_size(model))
    if isinstance(model, ModelAtGoogle):
        return google.Answer(text, prompt=_size(model))
    if isinstance(model, ModelAtResponses):
        return responses.Answer(responses.said(text), prompt=_size(model))
    if isinstance(model, ModelAtMistral):
        return mistral.Answer(text)
    return openai.Answer(text, prompt=_size(model))


def _called(model: Model, calls: list[tuple[str, str]], task: str) -> Any:
    turn = f"{len(model.calls)}_"
    if isinstance(model, ModelAtAnthropic):
        thinks = (model.calls[-1].body.get("thinking") or {}).get("type", "disabled") != "disabled"
        return anthropic.Answer(
            "I begin.", tools=tuple(calls), thinking="Hm." if thinks else "", turn=turn, input=_size(model)
        )
    if isinstance(model, ModelAtGoogle):
        tools = tuple((name, json.loads(text)) for name, text in calls)
        return google.Answer(tools=tools, thoughts="Hm.", prompt=_size(model))
    if isinstance(model, ModelAtResponses):
        items = [_item(model.calls[-1].body, name, text, f"{turn}{place}") for place, (name, text) in enumerate(calls)]
        return responses.Answer(responses.thought("Hm."), *items, prompt=_size(model))
    if isinstance(model, ModelAtMistral):
        return mistral.Answer(tools=tuple(calls))
    assert isinstance(model, ModelAtOpenAI)
    return openai.Answer(tools=tuple(calls), turn=turn, prompt=_size(model))


def _item(body: Json, name: str, text: str, ident: str) -> Json:
    """Return a call as the server of Codex' own format writes it: free text, a search, or a tool of a namespace."""
    if name == "tool_search":
        arguments = json.loads(text)
        return {
            "type": "tool_search_call", "status": "completed", "execution": "client", "call_id": f"call_s{ident}",
            "arguments": arguments,
        }  # fmt: skip
    space = _namespace_of(json.loads(json.dumps(body)), name)
    where = {"namespace": space} if space else {}
    if name in ("exec", "apply_patch"):
        return {**responses.custom_call(name, json.loads(text)["input"]), **where}
    return {**responses.call(name, text), **where}


def _namespace_of(value: Any, name: str, space: str = "") -> str:
    """Return the namespace that declares a tool."""
    if isinstance(value, list):
        return next(filter(None, (_namespace_of(each, name, space) for each in value)), "")
    if not isinstance(value, dict):
        return ""
    if value.get("type") in ("function", "custom") and value.get("name") == name:
        return space
    inner = value["name"] if value.get("type") == "namespace" else space
    return next(filter(None, (_namespace_of(each, name, inner) for each in value.values())), "")
