"""Providers that play a model at work: the first turn calls the client's own tool for writing files, the next one ends.

They are the strict fakes of the test suite with an endless script: a request of a real client that the gateway
rewrote wrongly is refused as the real service would refuse it. All requests are kept in `calls`.
"""

import json
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fakes import anthropic, bedrock, cohere, google, mistral, openai, responses
from fakes.anthropic import FakeAnthropic
from fakes.bedrock import FakeBedrock
from fakes.cohere import FakeCohere
from fakes.google import FakeGoogle
from fakes.mistral import FakeMistral
from fakes.openai import FakeOpenAI
from fakes.openai_checks import Refused, check_reasoned_calls, check_request
from fakes.responses import FakeResponses


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
    "write_file": lambda job: {"file_path": job.path, "content": job.text + "\n"},
    "write": lambda job: {"filePath": job.path, "content": job.text + "\n"},
    "apply_patch": lambda job: {"patchText": job.patch},
    "exec_command": lambda job: {"cmd": job.command},
    "shell_command": lambda job: {"command": job.command},
    "shell": lambda job: {"command": ["bash", "-c", job.command]},
}
DONE = "The file is written."
# Members with which servers of OpenAI's format switch thought.
SWITCHES = ("thinking", "enable_thinking", "thinking_budget")
LONG = "I could do that in many ways, and will tell of each of them before I begin with any. " * 4


def choose(tools: list[str], job: Job, worked: bool) -> str | None:
    """The tool that does the job; none when it `worked` already or no tool can: clients also ask for titles."""
    return None if worked else next((name for name in WRITERS if name in tools), None)


def call(tools: list[str], job: Job, worked: bool) -> tuple[tuple[str, str], ...]:
    """The chosen tool with its arguments as JSON text, if any."""
    name = choose(tools, job, worked)
    return ((name, json.dumps(WRITERS[name](job))),) if name else ()


class Endless:
    """A script that makes its next answer from the current request after its given answers are used up."""

    def __init__(self, answer: Callable[[dict[str, Any]], Any], calls: list[Any]) -> None:
        self._answer = answer
        self._calls = calls
        self._given: list[Any] = []

    def extend(self, answers: Iterable[Any]) -> None:
        self._given.extend(answers)

    def pop(self, place: int) -> Any:
        return self._given.pop(0) if self._given else self._answer(self._calls[-1].body)


class ModelAtOpenAI(FakeOpenAI):
    """POST /v1/chat/completions."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._script = Endless(self._work, self.calls)

    def _work(self, body: dict[str, Any]) -> openai.Answer:
        tools = [tool["function"]["name"] for tool in body.get("tools") or () if tool["type"] == "function"]
        worked = any(message["role"] == "tool" for message in body["messages"])
        calls = call(tools, self._job, worked)
        return openai.Answer("" if calls else DONE, tools=calls, prompt=1000, completion=20)


class ModelAtCompatible(ModelAtOpenAI):
    """A server of that format that is not OpenAI's own: the limit has its older name, reasoning a switch, and comes
    back under the name that it had."""

    def check(self, environ: dict[str, Any], headers: dict[str, str], payload: bytes) -> dict[str, Any]:
        body = json.loads(payload)
        if "max_completion_tokens" in body or "developer" in {message["role"] for message in body["messages"]}:
            raise Refused("Only OpenAI knows that.")
        known = {name: value for name, value in body.items() if name not in ("max_tokens", *SWITCHES)}
        known["messages"] = [
            {name: value for name, value in message.items() if name != "reasoning_content"}
            for message in body["messages"]
        ]
        check_request(environ, headers, json.dumps(known).encode())
        return body


class ModelAtThinking(ModelAtCompatible):
    """A server that refuses a turn with calls and without its thought, which it writes before each call."""

    def check(self, environ: dict[str, Any], headers: dict[str, str], payload: bytes) -> dict[str, Any]:
        check_reasoned_calls(json.loads(payload))
        return super().check(environ, headers, payload)

    def _work(self, body: dict[str, Any]) -> openai.Answer:
        return replace(super()._work(body), thought="The user wants a file.")


class ModelAtResponses(FakeResponses):
    """POST /v1/responses. Writes by a free-text tool where one is offered, and reasons before it calls."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._script = Endless(self._work, self.calls)

    def _work(self, body: dict[str, Any]) -> responses.Answer:
        kinds = {tool.get("name"): tool["type"] for tool in body.get("tools") or ()}
        items = body["input"] if isinstance(body["input"], list) else []
        name = choose(list(kinds), self._job, any(item.get("type", "").endswith("_output") for item in items))
        if name is None:
            return responses.Answer(responses.said(DONE))
        if kinds[name] == "custom":
            return responses.Answer(responses.thought("A patch."), responses.custom_call(name, self._job.patch))
        arguments = json.dumps(WRITERS[name](self._job))
        return responses.Answer(responses.thought("A file."), responses.call(name, arguments))


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
        calls = call(tools, self._job, worked)
        thinks = (body.get("thinking") or {}).get("type", "disabled") != "disabled"
        return anthropic.Answer(
            "I write it." if calls else DONE,
            tools=calls,
            thinking="The user wants a file." if thinks else "",
            input=1000,
            output=20,
        )


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
        calls = tuple((name, json.loads(text)) for name, text in call(declared, self._job, worked))
        return google.Answer("" if calls else DONE, tools=calls, prompt=1000)


class ModelAtMistral(FakeMistral):
    """POST /v1/chat/completions with Mistral's own rules: unknown members are refused, ids have nine letters."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._script = Endless(self._work, self.calls)

    def _work(self, body: dict[str, Any]) -> mistral.Answer:
        tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
        worked = any(message["role"] == "tool" for message in body["messages"])
        calls = call(tools, self._job, worked)
        return mistral.Answer("" if calls else DONE, tools=calls)


class ModelAtBedrock(FakeBedrock):
    """POST /model/<model>/converse and /converse-stream."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._script = Endless(self._work, self.calls)

    def _work(self, body: dict[str, Any]) -> bedrock.Answer:
        tools = [tool.get("toolSpec", {}).get("name") for tool in body.get("toolConfig", {}).get("tools") or ()]
        worked = any("toolResult" in block for block in _blocks(body["messages"], "content"))
        calls = call(tools, self._job, worked)
        thinks = (body.get("additionalModelRequestFields") or {}).get("thinking", {}).get("type", "disabled")
        reasoning = ("The user wants a file.", "c2lnbmVk") if thinks != "disabled" else ("", "")
        return bedrock.Answer("" if calls else DONE, tools=calls, reasoning=reasoning)


class ModelAtCohere(FakeCohere):
    """POST /v2/chat."""

    def __init__(self, job: Job) -> None:
        super().__init__()
        self._job = job
        self._script = Endless(self._work, self.calls)

    def _work(self, body: dict[str, Any]) -> cohere.Answer:
        tools = [tool["function"]["name"] for tool in body.get("tools") or ()]
        worked = any(message["role"] == "tool" for message in body["messages"])
        calls = call(tools, self._job, worked)
        return cohere.Answer("" if calls else DONE, thinking="The user wants a file.", tools=calls)


Model = (
    ModelAtBedrock
    | ModelAtCohere
    | ModelAtMistral
    | ModelAtOpenAI
    | ModelAtResponses
    | ModelAtAnthropic
    | ModelAtGoogle
)


def _blocks(messages: list[dict[str, Any]], member: str) -> Iterator[dict[str, Any]]:
    for message in messages:
        blocks = message.get(member)
        yield from blocks if isinstance(blocks, list) else ()


@dataclass(frozen=True)
class Place:
    """A model as callers name it, the provider in the catalogue that serves it, and the fake for that."""

    model: str
    provider: str
    kind: Callable[[Job], Model]
    busy: Any = None  # what the service answers when it has too much to do
    half: Any = None  # an answer with a connection that breaks on the way
    key: str = "sk-upstream"

    def environment(self, address: str) -> dict[str, str]:
        """Return the environment variables that place the provider at `address`."""
        stem = "LLM_" + self.provider.upper().replace("-", "_")
        return {f"{stem}_BASE_URL": address, f"{stem}_API_KEY": self.key}


PLACES = {
    "chat": Place(
        "groq/gpt-oss-120b",
        "groq",
        ModelAtCompatible,
        busy=openai.Answer(status=503),
        half=openai.Answer(LONG, cut=1500),
    ),
    "responses": Place(
        "gpt-5.3-codex",
        "openai",
        ModelAtResponses,
        busy=responses.Answer(status=503),
        half=responses.Answer(responses.said(LONG), cut=3000),
    ),
    "messages": Place(
        "anthropic/claude-sonnet-4-6",
        "anthropic",
        ModelAtAnthropic,
        busy=anthropic.Answer(status=529),
        half=anthropic.Answer(LONG, cut=1500),
    ),
    "generate": Place(
        "google-ai-studio/gemini-2.5-flash",
        "google-ai-studio",
        ModelAtGoogle,
        busy=google.Answer(status=503),
        half=google.Answer(LONG, cut=1500),
    ),
}

# Where agents meet models that can do less than they ask for: small output limits, no reasoning, no web search; named
# with and without a provider.
LESSER_PLACES = {
    "small": Place("groq/llama-4-scout-17b-16e-instruct", "groq", ModelAtCompatible),
    "unpinned": Place("kimi-k2-0905", "groq", ModelAtCompatible),
    "deepseek": Place("deepseek/deepseek-v4-flash", "deepseek", ModelAtCompatible),
    "deepseek reasons": Place("deepseek-v4-pro", "deepseek", ModelAtCompatible),
    "mistral": Place("mistral/codestral-latest", "mistral", ModelAtMistral, key=mistral.KEY),
    "claude unpinned": Place("claude-sonnet-4-6", "anthropic", ModelAtAnthropic),
    "gemini unpinned": Place("gemini-2.5-flash", "google-ai-studio", ModelAtGoogle),
}

# Further protocols, and servers that refuse a conversation which lacks their thought.
FURTHER_PLACES = {
    "converse": Place("aws-bedrock/claude-sonnet-4-6", "aws-bedrock", ModelAtBedrock, key=bedrock.API_KEY),
    "cohere": Place("cohere/command-a-reasoning", "cohere", ModelAtCohere, key=cohere.KEY),
    "qwen": Place("alibaba/qwen3.8-max", "alibaba", ModelAtCompatible),
    "kimi": Place("moonshot/kimi-k3", "moonshot", ModelAtThinking),
}
CATALOGUE = """[[mappings]]
model = "command-a-reasoning"
external_id = "command-a-reasoning-08-2025"
context_length = 256000
max_output = 32000
tools = true
reasoning = true
reasoning_max_tokens = true
prices = { prompt = "0.0000025", completion = "0.00001" }
"""


def write_catalogue(folder: Path) -> Path:
    """Write a model of Cohere's, of which the product's own catalogue has none for chats."""
    for name, text in (("providers/cohere", CATALOGUE), ("models/cohere", '[[models]]\nid = "command-a-reasoning"\n')):
        path = folder / f"{name}.toml"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder
