"""The turn of an agent that a request is: the kind of its call, whether a sub-agent makes it, and its difficulty."""

import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from gateway.configuration.settings import CONFIG
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, CustomTool, FunctionTool
from gateway.neutral.parts import Message, Part, Text, ToolResult
from gateway.routes.route_document import DIFFICULTIES, Agent, Difficulty, Turn

TABLE = CONFIG / "routes" / "turns.toml"
# Bounds of the texts of a conversation, so that its length does not matter.
LATEST_MESSAGES = 24
EARLIER_MESSAGES = 400  # with the person's latest text, while the agent works for a long time
MAX_EARLIER = 8  # of them that are read
FIRST_MESSAGES = 6
HEAD, TAIL = 1_600, 800  # characters of a text
RESULT_PART = 400  # characters at either end of a result
RESULTS = 6  # the latest results of tools
MAX_PARTS = 16  # of a message
MAX_TOOLS = 256  # with names that are compared
BEGINNING = 600  # characters of instructions that say whether a sub-agent has them
LONG_TEXT, VERY_LONG_TEXT, SHORT_TEXT = 600, 2_000, 60
LARGE_PROMPT_BYTES = 240_000
MAX_FAILURES, MAX_HARD, MAX_EASY = 3, 3, 2
WORDS = re.compile(r"[a-z]+")
TOOL_ROLE, USER_ROLE = "tool", "user"
LOW_EFFORTS = frozenset(("none", "minimal", "low"))
HIGH_EFFORTS = frozenset(("high", "xhigh", "max"))


class TurnTable:
    """The cues and points of turns.toml."""

    def __init__(self, table: Mapping[str, Any]) -> None:
        self.sides: list[tuple[Turn, tuple[str, ...], tuple[str, ...], int]] = [
            (side["turn"], tuple(side.get("system", ())), tuple(side.get("last", ())), side.get("most_tokens", 0))
            for side in table["side"]
        ]
        self.side_headers: list[tuple[Turn, str, tuple[str, ...]]] = [
            (side["turn"], name, tuple(values))
            for side in table["side"]
            for name, values in side.get("headers", {}).items()
        ]
        agents = table["sub_agents"]
        self.sub_headers: list[tuple[str, frozenset[str]]] = [
            (name, frozenset(agents["main"].get(name, ()))) for name in agents["headers"]
        ]
        self.sub_texts: tuple[str, ...] = tuple(agents["system"])
        self.conversation_headers: tuple[str, ...] = tuple(table["conversation"]["headers"])
        self.added: tuple[str, ...] = tuple(table["added"]["starts"])
        self.added_later: tuple[str, ...] = (*self.added, *table["added"]["continues"])
        self.goes_on: frozenset[str] = frozenset(table["added"]["goes_on"])
        points = table["difficulty"]
        self.points: dict[str, float] = {
            name: value for name, value in points.items() if not isinstance(value, list | dict)
        }
        self.usual_efforts: dict[str, str] = points["usual_effort"]
        tasks = points["sub_agent"]
        self.task_points: dict[str, float] = self.points | {
            name: value for name, value in tasks.items() if not isinstance(value, list)
        }
        self.looks: frozenset[str] = frozenset(tasks["looks"])
        self.changes: frozenset[str] = frozenset(tasks["changes"])
        self.changes_nothing: tuple[str, ...] = tuple(tasks["changes_nothing"])
        self.hard: frozenset[str] = frozenset(points["hard"])
        self.easy: frozenset[str] = frozenset(points["easy"])
        self.stated_hard: tuple[str, ...] = tuple(points["stated_hard_phrases"])
        self.stated_easy: tuple[str, ...] = tuple(points["stated_easy_phrases"])
        self.failures: tuple[str, ...] = tuple(points["failures"])

    def is_of_sub_agent(self, system: str) -> bool:
        """Return whether instructions, in lower case, are those of a sub-agent."""
        return _has_any(system[:BEGINNING], self.sub_texts)


def _has_any(text: str, phrases: Iterable[str]) -> bool:
    return any(phrase in text for phrase in phrases)


TURNS = TurnTable(tomllib.loads(TABLE.read_text()))


class TurnTexts:
    """The parts of a conversation that rules read: the beginning of its instructions (`system`) and of the first text
    of a person (`first`), the latest message of a person (`last`), and the number of failures among the latest
    results of tools since then; also those before, where the person only says that the agent shall go on. `continues`:
    the agent works through results of tools. `long_cache`: a mark requests a cache of an hour. All texts are in lower
    case but `first`."""

    __slots__ = ("continues", "failures", "first", "last", "length", "long_cache", "system", "tools")

    def __init__(self, request: ChatRequest, table: TurnTable = TURNS) -> None:
        self.system = self.first = self.last = ""
        self.continues = self.long_cache = False
        self.failures = self.length = 0
        self.tools: tuple[str, ...] = ()
        try:
            conversation = request.conversation()
        except GatewayError:
            return  # the engine reports it, or the provider does
        tools = conversation.tools[:MAX_TOOLS]
        self.tools = tuple([tool.name for tool in tools if isinstance(tool, FunctionTool | CustomTool)])
        self._read_first(conversation.messages, table)
        self._read_latest(conversation.messages, table)

    def _read_first(self, messages: Sequence[Message], table: TurnTable) -> None:
        for message in messages[:FIRST_MESSAGES]:
            if message.role == USER_ROLE:
                # Agents send their own additions first, which are the same in many conversations.
                self.first = "\n".join(map(shorten, _own_texts(message, table.added)))
                if self.first:
                    break
            elif message.role in ("system", "developer") and len(self.system) < HEAD:
                self.system += "\n".join([text[:HEAD] for text in _texts(message)]).lower()

    def _read_latest(self, messages: Sequence[Message], table: TurnTable) -> None:
        left = RESULTS
        earlier = 0
        for message in reversed(messages[-LATEST_MESSAGES:]):
            parts = message.parts[-MAX_PARTS:]
            self.long_cache = self.long_cache or any(map(_lives_long, parts))
            results = [part for part in parts if isinstance(part, ToolResult)][:left]
            left -= len(results)
            failures = sum([_has_failed(result, table) for result in results])
            if self.last:
                earlier += failures
                continue
            self.failures += failures
            if message.role == TOOL_ROLE:
                self.continues = True
            elif message.role == USER_ROLE:
                self._read_last(message, table)
        if not self.last:
            self._read_earlier(messages, table)
        # Failures before another task say nothing about it.
        if earlier and self.length < LONG_TEXT and not table.goes_on.isdisjoint(WORDS.findall(self.last)):
            self.failures += earlier

    def _read_earlier(self, messages: Sequence[Message], table: TurnTable) -> None:
        """Read the latest text of a person before the latest messages."""
        spoken = [each for each in messages[-EARLIER_MESSAGES:-LATEST_MESSAGES] if each.role == USER_ROLE]
        for message in reversed(spoken[-MAX_EARLIER:]):
            self._read_last(message, table)
            if self.last:
                break

    def _read_last(self, message: Message, table: TurnTable) -> None:
        own = _own_texts(message, table.added_later)
        self.length = sum(map(len, own))
        self.last = "\n".join(map(shorten, own)).lower()


def _texts(message: Message) -> Iterator[str]:
    return (part.text for part in message.parts[:MAX_PARTS] if isinstance(part, Text))


def _own_texts(message: Message, added: tuple[str, ...]) -> list[str]:
    """Return the texts of a message without those that begin as the `added` ones of the agent."""
    return [text for text in _texts(message) if not text[:80].lstrip().lower().startswith(added)]


def shorten(text: str, head: int = HEAD, tail: int = TAIL) -> str:
    """Return the beginning and the end of a long text."""
    if len(text) <= head + tail:
        return text
    return f"{text[:head]}\n{text[-tail:]}"


def _lives_long(part: Part) -> bool:
    """Return whether a mark requests a cache of an hour."""
    mark = getattr(part, "cache", None)
    return mark is not None and mark.ttl == "1h"


def _has_failed(result: ToolResult, table: TurnTable) -> bool:
    if result.is_error:
        return True
    parts = [part.text for part in result.parts[:4] if isinstance(part, Text)]
    text = "".join([shorten(part, RESULT_PART, RESULT_PART) for part in parts]).lower()
    return any(cue in text for cue in table.failures)


def turn_of(request: ChatRequest, texts: TurnTexts, headers: Mapping[str, str] = {}, table: TurnTable = TURNS) -> Turn:
    """Return the kind of a turn: work, or a side call of the agent."""
    for turn, name, values in table.side_headers:
        value = headers.get(name, "")
        if value and _has_any(value, values):
            return turn
    limit = request.requirements.max_tokens or 0
    for turn, system, last, most_tokens in table.sides:
        if 0 < limit <= most_tokens:
            return turn
        if (system and any(cue in texts.system for cue in system)) or any(cue in texts.last for cue in last):
            return turn
    return "work"


def agent_of(headers: Mapping[str, str], texts: TurnTexts, table: TurnTable = TURNS) -> Agent:
    """Return whether the main agent or a sub-agent makes a call; an unclear one is the main agent's."""
    for name, main_values in table.sub_headers:
        if name in headers and headers[name] not in main_values:
            return "sub"
    return "sub" if table.is_of_sub_agent(texts.system) else "main"


def conversation_of(headers: Mapping[str, str], table: TurnTable = TURNS) -> str:
    """Return the name that the agent gives to a conversation within its session, "" without one."""
    return next((headers[name] for name in table.conversation_headers if name in headers), "")


def difficulty_of(
    request: ChatRequest,
    texts: TurnTexts,
    turn: Turn,
    stated: str = "",
    agent: Agent = "main",
    table: TurnTable = TURNS,
) -> Difficulty:
    """Return how difficult a turn is. An agent may state it itself (`stated`)."""
    if stated in DIFFICULTIES:
        return stated
    if turn in ("title", "probe"):
        return "small"
    points = table.points
    score = points_of(request, texts, agent, table)
    if score >= points["large"]:
        return "large"
    return "medium" if score >= points["medium"] else "small"


def points_of(request: ChatRequest, texts: TurnTexts, agent: Agent = "main", table: TurnTable = TURNS) -> float:
    """Return the points of a turn, by which it is small, medium or large."""
    points = table.points
    needs = request.requirements
    score = _task_points(texts, table) if agent == "sub" else _text_points(texts, table)
    score += points["stated_hard"] * _has_any(texts.last, table.stated_hard)
    if texts.continues:
        score *= points["continuation"]
    score += points["failure"] * max(0, min(texts.failures, MAX_FAILURES) - 1)
    score += points["large_prompt"] * (needs.prompt_bytes > LARGE_PROMPT_BYTES)
    score += points["images"] * (needs.vision or needs.earlier_images)
    native = request.native
    if native is not None and table.usual_efforts.get(native.dialect) == needs.effort:
        return score
    score += points["effort_low"] * (needs.effort in LOW_EFFORTS)
    return score + points["effort_high"] * (needs.effort in HIGH_EFFORTS)


def _text_points(texts: TurnTexts, table: TurnTable) -> float:
    """Return the points of a person's text."""
    points = table.points
    words = set(WORDS.findall(texts.last))
    score = points["hard_word"] * min(len(words & table.hard), MAX_HARD)
    score += points["easy_word"] * min(len(words & table.easy), MAX_EASY)
    score += points["long_text"] * ((texts.length > LONG_TEXT) + (texts.length > VERY_LONG_TEXT))
    score += points["short_text" if texts.length < SHORT_TEXT else "task_text"]
    score += points["code"] * ("```" in texts.last or "traceback" in texts.last)
    return score + points["stated_easy"] * _has_any(texts.last, table.stated_easy)


def _task_points(texts: TurnTexts, table: TurnTable) -> float:
    """Return the points of a task that an agent gives to a sub-agent. Its length says nothing about its difficulty."""
    points = table.task_points
    words = WORDS.findall(texts.last)
    hard = len(table.hard.intersection(words))
    score = points["task_text"] + points["hard_word"] * min(hard, MAX_HARD)
    only_looks = _has_any(texts.last, table.changes_nothing)
    if only_looks or not (table.looks.isdisjoint(words) or not table.changes.isdisjoint(words)):
        score += points["look"]
    return score
