"""Rewrites OpenAI-format messages for stricter servers. Each function returns a new list and leaves the old list
unchanged.

Sources: Mistral API reference, "Chat", and its errors "Extra inputs are not permitted" (any unknown member), "Tool call
id … must be a-z, A-Z, 0-9, with a length of 9", "Unexpected role 'user' after role 'tool'", "Expected last role User or
Tool (or Assistant with prefix True)"; Perplexity's errors "After the (optional) system message(s), user or tool
message(s) should alternate with assistant message(s)" and "Last message must have role `user`".
"""

import hashlib
import re
from collections import deque
from collections.abc import Callable
from typing import Any

from gateway.neutral.tool_arguments import object_text
from gateway.providers.unsupported_parts import mark_instruction

Message = dict[str, Any]
Messages = list[Message]

MEMBERS = {
    "system": ("role", "content"),
    "user": ("role", "content"),
    "assistant": ("role", "content", "tool_calls", "prefix"),
    "tool": ("role", "content", "tool_call_id", "name"),
}
PART_MEMBERS = {
    "text": ("type", "text"),
    "image_url": ("type", "image_url"),
    "thinking": ("type", "thinking", "signature", "closed"),
    "document_url": ("type", "document_url", "document_name"),
    "input_audio": ("type", "input_audio"),
    "file": ("type", "file_id"),
}
CALL_MEMBERS = ("id", "type", "function")
SHORT_ID = re.compile(r"[a-zA-Z0-9]{9}")
ID_LETTERS = "0123456789abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
ID_LENGTH = 9
TAKEN_NOTE = "I have the results."
OPENING = "Begin."  # before a conversation that the assistant begins
CONTINUE = "Continue."
PARAGRAPH = "\n\n"


def known_members(messages: Messages) -> Messages:
    """Remove the members of messages, parts and calls that the strictest servers do not know."""
    return [_keep_message(message) for message in messages]


def short_call_ids(messages: Messages) -> Messages:
    """Replace tool call ids by nine letters and digits. A call and its result get the same id, in every request."""
    changed = []
    for message in messages:
        if message.get("tool_calls"):
            calls = [{**call, "id": short_id(call.get("id") or "")} for call in message["tool_calls"]]
            message = {**message, "tool_calls": calls}
        if message.get("tool_call_id"):
            message = {**message, "tool_call_id": short_id(message["tool_call_id"])}
        changed.append(message)
    return changed


def late_instructions_as_user(messages: Messages) -> Messages:
    """Convert later system messages to marked user messages. Coding agents send them, but servers that check the order
    of roles refuse them, particularly at the end. The last of instructions alone is what the user asks."""
    if messages and all(message["role"] == "system" for message in messages):
        return [*messages[:-1], {**messages[-1], "role": "user"}]
    begun = False
    changed = []
    for message in messages:
        begun = begun or message["role"] != "system"
        changed.append(_as_reminder(message) if begun and message["role"] == "system" else message)
    return changed


def one_instruction_in_front(messages: Messages) -> Messages:
    """Join the instructions in front into one message; later ones become marked user messages."""
    messages = late_instructions_as_user(messages)
    front = next((place for place, message in enumerate(messages) if message["role"] != "system"), len(messages))
    return [_joined(messages[:front]), *messages[front:]] if front else messages


def results_behind_calls(messages: Messages) -> Messages:
    """Move each result behind its call; all other messages keep their order."""
    calls = {call.get("id") for message in messages for call in message.get("tool_calls") or ()}
    results: dict[str, deque[Message]] = {}
    for message in messages:
        if message["role"] == "tool" and message["tool_call_id"] in calls:
            results.setdefault(message["tool_call_id"], deque()).append(message)
    changed: Messages = []
    for message in messages:
        if message["role"] == "tool" and message["tool_call_id"] in calls:
            continue
        changed.append(message)
        for call in message.get("tool_calls") or ():
            waiting = results.get(call.get("id"))
            if waiting:
                changed.append(waiting.popleft())
    return changed


def answer_between(messages: Messages) -> Messages:
    """Insert an assistant message between a tool's result and a user message that directly follows it."""
    changed: Messages = []
    for message in messages:
        if message["role"] == "user" and changed and changed[-1]["role"] == "tool":
            changed.append({"role": "assistant", "content": TAKEN_NOTE})
        changed.append(message)
    return changed


def alternating_roles(messages: Messages) -> Messages:
    """Join adjacent messages of the user, and of the assistant, for servers that want both to take turns. Instructions
    stay at the front only, and the user has the first word and the last one."""
    messages = answer_between(late_instructions_as_user(messages))
    runs: list[Messages] = []
    for message in messages:
        last = runs[-1][-1] if runs else None
        if message["role"] == "assistant" and (last is None or last["role"] == "system"):
            runs.append([{"role": "user", "content": OPENING}])
        elif last is not None and _is_continued(last, message):
            runs[-1].append(message)
            continue
        runs.append([message])
    changed = list(map(_joined, runs))
    if changed and changed[-1]["role"] == "assistant" and not changed[-1].get("tool_calls"):
        changed.append({"role": "user", "content": CONTINUE})
    return changed


def marked_prefix(messages: Messages) -> Messages:
    """Mark an assistant message that is to be continued."""
    if not messages or messages[-1]["role"] != "assistant" or messages[-1].get("tool_calls"):
        return messages
    return [*messages[:-1], {**messages[-1], "prefix": True}]


def thinking_parts(messages: Messages) -> Messages:
    """Move past reasoning into a part of the assistant message's content."""
    return [_with_thinking(message) for message in messages]


def reasoning_as_details(messages: Messages) -> Messages:
    """Move past reasoning into items of `reasoning_details`, which some servers read."""
    return [_with_details(message) for message in messages]


def plain_media(messages: Messages) -> Messages:
    """Reduce files to a URL or data URL, and audio to base64 text."""
    return [
        {**message, "content": [_plain_part(part) for part in message["content"]]}
        if isinstance(message.get("content"), list)
        else message
        for message in messages
    ]


def plain_answers(messages: Messages) -> Messages:
    """Write past answers as most servers want them: a refusal as text, and the arguments of each call as the JSON text
    of an object. A model may have cut them off, and the server would refuse each further request with them."""
    return [_plain_answer(message) if message["role"] == "assistant" else message for message in messages]


def short_id(ident: str) -> str:
    """Return `ident` if it consists of nine letters and digits, otherwise nine characters derived from its hash."""
    if SHORT_ID.fullmatch(ident):
        return ident
    number = int.from_bytes(hashlib.sha256(ident.encode()).digest())
    drawn = ""
    for _ in range(ID_LENGTH):
        number, place = divmod(number, len(ID_LETTERS))
        drawn += ID_LETTERS[place]
    return drawn


def _is_continued(last: Message, message: Message) -> bool:
    """Return whether a message and the next one are one turn. Results stay directly behind their calls."""
    return last["role"] == message["role"] in ("user", "assistant") and not last.get("tool_calls")


def _joined(messages: Messages) -> Message:
    """Return messages of one role as one."""
    if len(messages) == 1:
        return messages[0]
    joined: Message = {}
    for message in messages:
        joined |= message
    joined["content"] = _joined_content([message.get("content") for message in messages])
    return joined


def _joined_content(contents: list[Any]) -> Any:
    """Return several contents as one: a text if all are texts, otherwise the parts of all."""
    said = [content for content in contents if content]
    if not said:
        return contents[-1]
    if len(said) == 1:
        return said[0]
    if all(isinstance(content, str) for content in said):
        return PARAGRAPH.join(said)
    return [
        part
        for content in said
        for part in ([{"type": "text", "text": content}] if isinstance(content, str) else content)
    ]


def _as_reminder(message: Message) -> Message:
    content = message.get("content")
    if isinstance(content, str):
        return {**message, "role": "user", "content": mark_instruction(content)}
    parts = [
        {**part, "text": mark_instruction(part["text"])} if part.get("type") == "text" else part
        for part in content or ()
    ]
    return {**message, "role": "user", "content": parts}


def _keep(value: dict[str, Any], members: tuple[str, ...]) -> dict[str, Any]:
    return {name: value[name] for name in members if name in value}


def _keep_message(message: Message) -> Message:
    members = _keep(message, MEMBERS.get(message["role"], tuple(message)))
    if isinstance(members.get("content"), list):
        members["content"] = [_keep(part, PART_MEMBERS.get(part["type"], tuple(part))) for part in members["content"]]
    if members.get("tool_calls"):
        members["tool_calls"] = [_keep(call, CALL_MEMBERS) for call in members["tool_calls"]]
    elif message["role"] == "assistant":
        members.pop("tool_calls", None)
        members["content"] = members.get("content") or message.get("refusal") or ""
    return members


def _plain_answer(message: Message) -> Message:
    changed = {name: value for name, value in message.items() if name != "refusal"}
    content = message.get("content")
    if isinstance(content, list):
        changed["content"] = [
            {"type": "text", "text": part["refusal"]} if part.get("type") == "refusal" else part for part in content
        ]
    elif not content and message.get("refusal"):
        changed["content"] = message["refusal"]
    if message.get("tool_calls"):
        changed["tool_calls"] = [_plain_call(call) for call in message["tool_calls"]]
    return changed


def _plain_call(call: dict[str, Any]) -> dict[str, Any]:
    function = call.get("function")
    if not isinstance(function, dict) or not isinstance(function.get("arguments"), str):
        return call
    return {**call, "function": {**function, "arguments": object_text(function["arguments"])}}


def _with_thinking(message: Message) -> Message:
    thoughts = message.get("reasoning_content") or message.get("reasoning")
    if message["role"] != "assistant" or not isinstance(thoughts, str):
        return message
    content = message.get("content") or []
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    thinking = {"type": "thinking", "thinking": [{"type": "text", "text": thoughts}]}
    return {**message, "content": [thinking, *parts]}


def _with_details(message: Message) -> Message:
    """Keep details from the same server; reasoning in another field becomes the only item of `reasoning_details`."""
    reasoning = message.get("reasoning_content") or message.get("reasoning")
    if not isinstance(reasoning, str):
        return message
    members = {name: value for name, value in message.items() if name not in ("reasoning_content", "reasoning")}
    return {"reasoning_details": [{"type": "reasoning.text", "index": 0, "text": reasoning}], **members}


def _plain_part(part: dict[str, Any]) -> dict[str, Any]:
    match part:
        case {"type": "file", "file": {"file_data": str(data), **rest}}:
            named = {"document_name": rest["filename"]} if rest.get("filename") else {}
            return {"type": "document_url", "document_url": data, **named}
        case {"type": "file", "file": {"file_id": str(ident)}}:
            return {"type": "file", "file_id": ident}
        case {"type": "input_audio", "input_audio": {"data": str(data)}}:
            return {"type": "input_audio", "input_audio": data}
    return part


MESSAGE_SHAPES: dict[str, Callable[[Messages], Messages]] = {
    function.__name__: function
    for function in (
        known_members,
        short_call_ids,
        alternating_roles,
        answer_between,
        marked_prefix,
        thinking_parts,
        late_instructions_as_user,
        reasoning_as_details,
        plain_media,
    )
}
