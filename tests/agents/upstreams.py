"""Providers that play a model at work: the first turn calls the client's own tool for writing files, the next one ends.

They are the strict stand-ins of the test suite with an endless script, so every request of a real client that a
gateway rewrote wrongly is refused as the real service would refuse it, and is kept in `calls`.
"""

import json
import shlex
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from fakes import anthropic, google, openai
from fakes.anthropic import FakeAnthropic
from fakes.google import FakeGoogle
from fakes.openai import FakeOpenAI


@dataclass(frozen=True)
class Job:
    """The file to write: a name within `folder`, and its text (one line)."""

    folder: str
    name: str
    text: str

    @property
    def path(self) -> str:
        return f"{self.folder}/{self.name}"

    @property
    def patch(self) -> str:
        return f"*** Begin Patch\n*** Add File: {self.name}\n+{self.text}\n*** End Patch\n"

    @property
    def command(self) -> str:
        return f"printf '%s\\n' {shlex.quote(self.text)} > {shlex.quote(self.path)}"


# The tools by which clients write files, in the order in which a model would choose; each with its arguments.
WRITERS: dict[str, Callable[[Job], dict[str, Any]]] = {
    "Write": lambda job: {"file_path": job.path, "content": job.text + "\n"},
    "write": lambda job: {"filePath": job.path, "content": job.text + "\n"},
    "apply_patch": lambda job: {"patchText": job.patch},
    "exec_command": lambda job: {"cmd": job.command},
    "shell_command": lambda job: {"command": job.command},
    "shell": lambda job: {"command": ["bash", "-c", job.command]},
}
DONE = "The file is written."


def choose(tools: list[str], job: Job, worked: bool) -> tuple[tuple[str, str], ...]:
    """The call that does the job with one of these tools, as (name, JSON arguments); none when it `worked` already or
    no tool can: clients also ask for titles and summaries."""
    name = next((name for name in WRITERS if name in tools), None)
    if worked or name is None:
        return ()
    return ((name, json.dumps(WRITERS[name](job))),)


class Endless:
    """A script whose next answer is made from the request at hand."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any], calls: list[Any]) -> None:
        self._answer = answer
        self._calls = calls

    def pop(self, place: int) -> Any:
        return self._answer(self._calls[-1].body)


class ModelAtOpenAI(FakeOpenAI):
    """POST /v1/chat/completions."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._script = Endless(self._work, self.calls)

    def _work(self, body: dict[str, Any]) -> openai.Answer:
        tools = [(tool.get("function") or tool.get("custom"))["name"] for tool in body.get("tools") or ()]
        worked = any(message["role"] == "tool" for message in body["messages"])
        calls = choose(tools, self._job, worked)
        return openai.Answer("" if calls else DONE, tools=calls, prompt=1000, completion=20)


class ModelAtAnthropic(FakeAnthropic):
    """POST /v1/messages."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._script = Endless(self._work, self.calls)

    def _work(self, body: dict[str, Any]) -> anthropic.Answer:
        tools = [tool["name"] for tool in body.get("tools") or ()]
        blocks = _blocks(body["messages"], "content")
        worked = any(block.get("type") == "tool_result" for block in blocks)
        calls = choose(tools, self._job, worked)
        return anthropic.Answer("I write it." if calls else DONE, tools=calls, input=1000, output=20)


class ModelAtGoogle(FakeGoogle):
    """POST /v1beta/models/<model>:streamGenerateContent and :generateContent. Its calls carry thought signatures,
    which it wants back."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._script = Endless(self._work, self.calls)

    def _work(self, body: dict[str, Any]) -> google.Answer:
        declared = [tool["name"] for group in body.get("tools") or () for tool in group.get("functionDeclarations", ())]
        worked = any("functionResponse" in part for part in _blocks(body["contents"], "parts"))
        calls = tuple((name, json.loads(text)) for name, text in choose(declared, self._job, worked))
        return google.Answer("" if calls else DONE, tools=calls, prompt=1000)


Model = ModelAtOpenAI | ModelAtAnthropic | ModelAtGoogle


def _blocks(messages: list[dict[str, Any]], member: str) -> Iterator[dict[str, Any]]:
    for message in messages:
        blocks = message.get(member)
        yield from blocks if isinstance(blocks, list) else ()
