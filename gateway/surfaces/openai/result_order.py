"""The order of chat messages that servers of the format accept: results directly behind their calls."""

from collections import deque

from gateway.surfaces.openai import chat_schema as schema


def with_results_behind_calls(messages: schema.Messages) -> schema.Messages:
    """Return the messages with each result behind its call, and all others in their order; the same list if they
    already are."""
    if _is_ordered(messages):
        return messages
    results: dict[str, deque[schema.AnyMessage]] = {}
    calls = {call.id for message in messages for call in _calls_of(message)}
    for message in messages:
        if type(message) is schema.ToolMessage and message.tool_call_id in calls:
            results.setdefault(message.tool_call_id, deque()).append(message)
    ordered: schema.Messages = []
    for message in messages:
        if type(message) is schema.ToolMessage and message.tool_call_id in calls:
            continue
        ordered.append(message)
        for call in _calls_of(message):
            waiting = results.get(call.id)
            if waiting:
                ordered.append(waiting.popleft())
    return ordered


def _is_ordered(messages: schema.Messages) -> bool:
    known: set[str] = set()
    open_ids: set[str] = set()  # of the last message, if nothing but results followed it
    for message in messages:
        if type(message) is schema.ToolMessage:
            if message.tool_call_id in known and message.tool_call_id not in open_ids:
                return False
        else:
            open_ids = {call.id for call in _calls_of(message)}
            known |= open_ids
    return True


def _calls_of(message: schema.AnyMessage) -> list[schema.FunctionCall | schema.CustomCall]:
    return message.tool_calls or [] if type(message) is schema.AssistantMessage else []
