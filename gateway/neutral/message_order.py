"""The order that every vendor accepts: results directly behind their calls, and call ids that occur once.

Callers may put messages between a call and its result, and some models repeat their ids in every turn. A repeated id
gets a number that depends only on the messages before it, so a conversation that grows keeps its prefix.
"""

from collections import deque
from collections.abc import Iterable

from msgspec.structs import replace

from gateway.neutral.parts import Message, Part, ToolCall, ToolResult

Messages = tuple[Message, ...]


def in_order(messages: Messages) -> Messages:
    """Return the messages in this order; the same object if they already are."""
    if "tool" not in [message.role for message in messages] or _is_ordered(messages):
        return messages
    return _move_results(_number_ids(messages))


def take_free(ident: str, taken: dict[str, int]) -> str:
    """Return `ident`, or the id with the first number that is not in `taken`, and add it there.

    `taken` has the last number of each id, from which the search goes on: a model may repeat one id in each turn.
    """
    number = taken.get(ident, 0)
    free = ident
    if number:
        while free in taken:
            number += 1
            free = f"{ident}_{number}"
    taken[ident] = number or 1
    taken.setdefault(free, 1)
    return free


def _is_ordered(messages: Messages) -> bool:
    ids: set[str] = set()
    open_ids: set[str] = set()  # of the last message, if nothing but results followed it
    for message in messages:
        if message.role == "tool":
            answered = {part.call_id for part in message.parts if isinstance(part, ToolResult)}
            if not answered <= open_ids and not answered.isdisjoint(ids):
                return False
            continue
        open_ids = set()
        if message.role == "assistant":
            for part in message.parts:
                if isinstance(part, ToolCall) and not part.executed:
                    if part.id in ids:
                        return False
                    ids.add(part.id)
                    open_ids.add(part.id)
    return True


def _number_ids(messages: Messages) -> Messages:
    """Return the messages with a number at each repeated id, and the same at its result."""
    taken: dict[str, int] = {}
    waiting: dict[str, deque[str]] = {}  # new ids of the calls without a result, by the caller's id
    latest: dict[str, str] = {}

    def rename(part: Part) -> Part:
        if isinstance(part, ToolCall) and not part.executed:
            ident = take_free(part.id, taken)
            waiting.setdefault(part.id, deque()).append(ident)
            latest[part.id] = ident
            return part if ident == part.id else replace(part, id=ident)
        if isinstance(part, ToolResult) and not part.executed and part.call_id in latest:
            calls = waiting[part.call_id]
            ident = calls.popleft() if calls else latest[part.call_id]
            return part if ident == part.call_id else replace(part, call_id=ident)
        return part

    return tuple(
        replace(message, parts=tuple(rename(part) for part in message.parts))
        if message.role in ("assistant", "tool")
        else message
        for message in messages
    )


def _move_results(messages: Messages) -> Messages:
    """Return the messages with each result behind its call, and all others in their order. Adjacent messages of the
    assistant become one if calls of the first are answered behind the second."""
    results: dict[str, list[ToolResult]] = {}
    calls = {part.id for message in messages for part in _calls_of(message)}
    for message in messages:
        if message.role == "tool":
            for part in message.parts:
                if isinstance(part, ToolResult) and part.call_id in calls:
                    results.setdefault(part.call_id, []).append(part)
    ordered: list[Message] = []
    for message in _joined(messages):
        if message.role == "tool":
            rest = tuple(
                part for part in message.parts if not isinstance(part, ToolResult) or part.call_id not in calls
            )
            if rest:
                ordered.append(replace(message, parts=rest))
            continue
        ordered.append(message)
        answers = [result for part in _calls_of(message) for result in results.get(part.id, ())]
        if answers:
            ordered.append(Message("tool", tuple(answers)))
    return tuple(ordered)


def _calls_of(message: Message) -> Iterable[ToolCall]:
    if message.role != "assistant":
        return ()
    return (part for part in message.parts if isinstance(part, ToolCall) and not part.executed)


def _joined(messages: Messages) -> list[Message]:
    """Return the messages, with adjacent messages of the assistant joined if the first one has calls."""
    runs: list[list[Message]] = []
    calls = False  # whether the last run begins with calls
    for message in messages:
        if calls and message.role == "assistant" == runs[-1][0].role:
            runs[-1].append(message)
        else:
            runs.append([message])
            calls = any(_calls_of(message))
    return [
        run[0] if len(run) == 1 else replace(run[0], parts=tuple(part for message in run for part in message.parts))
        for run in runs
    ]
