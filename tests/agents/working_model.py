"""A model that works through the tasks of a person: commands, some of which fail, and sub-agents."""

import json
import re
from collections import Counter
from collections.abc import Callable
from typing import Any

from agents.upstreams import Endless, ModelAtAnthropic
from fakes import anthropic

Json = dict[str, Any]
TASK, PART = re.compile(r"\(Task (\d+)\.\)"), re.compile(r"\(Part (\d+)\.\)")
SUMMARY_CUES = ("Respond with TEXT ONLY", "CONTEXT CHECKPOINT COMPACTION", "context summarization agent")
BYTES_PER_TOKEN = 4
COMMANDS: dict[str, Callable[[str], Json]] = {
    "Bash": lambda command: {"command": command, "description": "Run it"},
    "exec_command": lambda command: {"cmd": command},
    "bash": lambda command: {"command": command, "description": "Run it"},
}
# How each client starts a sub-agent, and waits for it where that is a call of its own.
DELEGATIONS: dict[str, Callable[[str], Json]] = {
    "Agent": lambda prompt: {"description": "Look", "prompt": prompt, "subagent_type": "general-purpose"},
    "task": lambda prompt: {"description": "Look", "prompt": prompt, "subagent_type": "general"},
    "multi_agent_v1__spawn_agent": lambda prompt: {"message": prompt},
    "spawn_agent": lambda prompt: {"message": prompt},
}
WAIT, AGENT_ID = "multi_agent_v1__wait_agent", re.compile(r'agent_id[\\"]+:[\\"]+([0-9a-f-]{36})')
DELEGATED = "delegate"
PARTS_STEPS = 5


def said(body: Json) -> str:
    """Return the texts of a conversation that are in messages of the user, and no results of tools."""
    contents = [message["content"] for message in body["messages"] if message["role"] == "user"]
    parts = [[content] if isinstance(content, str) else content for content in contents]
    return "\n".join(one if isinstance(one, str) else one.get("text", "") for some in parts for one in some)


class WorkingModel:
    """Answers for a fake of the provider. `tasks` has the steps of each task by its number, a command or DELEGATED;
    `size_of` the tokens of a step's answer. `answered` has the kind of each request and its answer, in order: main,
    sub, summary, or side."""

    def __init__(self, fake: ModelAtAnthropic, size_of: Callable[[], int] = lambda: 60) -> None:
        self.tasks: dict[int, list[str]] = {}
        self.answered: list[tuple[str, anthropic.Answer]] = []
        self.tokens = 0  # of the latest prompt of a main agent
        self._size_of = size_of
        self._done: Counter[str] = Counter()
        self._current = 0
        fake._script = Endless(self._answer, fake.calls)

    def begin(self, task: int, steps: list[str]) -> str:
        """Take over a task and return the words that end its prompt."""
        self.tasks[task] = steps
        self._current = task
        return f"(Task {task}.)"

    def _answer(self, body: Json) -> anthropic.Answer:
        kind, text, tools = self._next(body)
        number = len(self.answered)
        thinks = (body.get("thinking") or {}).get("type", "disabled") != "disabled"
        answer = anthropic.Answer(
            f"{text} #{number}#",
            tools=tools,
            thinking=f"I think of step {number}." if thinks else "",
            turn=f"{number}_",
            input=len(json.dumps(body)) // BYTES_PER_TOKEN,
            output=self._size_of(),
        )
        self.answered.append((kind, answer))
        if kind == "main":
            self.tokens = answer.input
        return answer

    def _next(self, body: Json) -> tuple[str, str, tuple[tuple[str, str], ...]]:
        names = [tool["name"] for tool in body.get("tools") or ()]
        last = json.dumps(body["messages"][-1]) + json.dumps(body.get("system"))
        if any(cue in last for cue in SUMMARY_CUES):
            return "summary", "<summary>All of it is done.</summary>", ()
        command = next((name for name in names if name in COMMANDS), "")
        if not command:
            return "side", "A title", ()
        text = said(body)
        part, task = PART.search(text), TASK.search(text)
        # Codex goes on with its last session, which is that of a sub-agent where one ended last.
        if part is not None and (task is None or part.start() < task.start()):
            ident = part.group()
            self._done[ident] += 1
            if self._done[ident] > PARTS_STEPS:
                return "sub", "I found it.", ()
            return "sub", "I look.", ((command, json.dumps(COMMANDS[command]("cat src/small.py"))),)
        started = AGENT_ID.search(json.dumps(body["messages"][-1]))
        if WAIT in names and started is not None:
            targets = json.dumps({"targets": [started.group(1)], "timeout_ms": 60_000})
            return "main", "I wait.", ((WAIT, targets),)
        return "main", *self._step(command, names)

    def _step(self, command: str, names: list[str]) -> tuple[str, tuple[tuple[str, str], ...]]:
        steps = self.tasks.get(self._current, [])
        place = self._done[str(self._current)]
        self._done[str(self._current)] += 1
        if place >= len(steps):
            return "The task is done.", ()
        step = steps[place]
        if step != DELEGATED:
            return "The next step.", ((command, json.dumps(COMMANDS[command](step))),)
        spawn = next((name for name in names if name in DELEGATIONS), "")
        if not spawn:
            return "I look myself.", ((command, json.dumps(COMMANDS[command]("ls src"))),)
        prompt = f"Search the sources for the place that reads settings. (Part {self._current}{place}.)"
        return "I delegate.", ((spawn, json.dumps(DELEGATIONS[spawn](prompt))),)
