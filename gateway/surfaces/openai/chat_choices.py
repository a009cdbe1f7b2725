"""Writes the choices of a whole chat completion: of a neutral result, or relayed with the gateway's names."""

from typing import Any

from gateway.dialects import openai as dialect
from gateway.dialects.listed_sources import LISTED_SOURCES, read_sources
from gateway.neutral.chat import Choice, images_of
from gateway.neutral.parts import Reasoning, Refusal, Text, ToolCall
from gateway.surfaces.openai.chat_answers import ChatChoice, ChatCompletion, CompletionMessage
from gateway.surfaces.openai.chat_parts import write_annotation, write_annotations, write_call, write_image
from gateway.surfaces.openai.reasoning_details import write_details


def native_choices(native: dict[str, Any]) -> list[ChatChoice]:
    """Return the upstream's choices with the gateway's names for reasoning and finish reasons (copies where they
    differ)."""
    choices: list[ChatChoice] = []
    for place, choice in enumerate(native["choices"]):
        message = choice["message"]
        thoughts = message.get("reasoning") or message.get("reasoning_content")
        if thoughts:
            details = message.get("reasoning_details") or write_details([Reasoning(str(thoughts))])
            both = {"reasoning": thoughts, "reasoning_content": message.get("reasoning_content") or thoughts}
            message = {**message, **both, "reasoning_details": details}
        if "tool_calls" in message:
            message = _with_types(message)
        reason = write_finish(choice.get("finish_reason")) or "stop"
        choices.append({"index": choice.get("index", place), "message": message, "finish_reason": reason})
    return choices


def _with_types(message: dict[str, Any]) -> dict[str, Any]:
    """Return the message with complete tool calls: some servers omit the type and number the calls as in a stream."""
    calls = message["tool_calls"] or ()
    if all(call.get("type") for call in calls):
        return message
    kept = [{name: value for name, value in call.items() if name != "index"} for call in calls]
    typed = [call | {"type": "custom" if "custom" in call else "function"} for call in kept]
    return {**message, "tool_calls": typed}


def write_finish(reason: Any) -> dialect.ChatFinish | None:
    """Map an upstream's finish reason to one of the four that callers know; None for none."""
    if not reason:
        return None
    return dialect.FINISH_WRITE[dialect.FINISH_READ.get(reason) or dialect.read_finish(reason)]


def write_choice(choice: Choice, index: int) -> ChatChoice:
    message: CompletionMessage
    text = _only_text(choice)
    if text is None:
        message = _message(choice)
    else:
        message = {"role": "assistant", "content": text}
    return {"index": index, "message": message, "finish_reason": dialect.FINISH_WRITE[choice.finish]}


def _only_text(choice: Choice) -> str | None:
    """Return the text of a choice that consists of nothing else, as most do."""
    if len(choice.parts) != 1:
        return None
    part = choice.parts[0]
    if isinstance(part, Text) and not part.sources and not part.signature:
        return part.text
    return None


def _message(choice: Choice) -> CompletionMessage:
    texts = [part.text for part in choice.parts if isinstance(part, Text)]
    message: CompletionMessage = {"role": "assistant", "content": "".join(texts) if texts else None}
    refusals = [part.text for part in choice.parts if isinstance(part, Refusal)]
    if refusals:
        message["refusal"] = "".join(refusals)
    thoughts = [part.text for part in choice.parts if isinstance(part, Reasoning) and part.text]
    if thoughts:
        message["reasoning"] = message["reasoning_content"] = "\n\n".join(thoughts)
    details = write_details(choice.parts)
    if details:
        message["reasoning_details"] = details
    calls = [write_call(part) for part in choice.parts if isinstance(part, ToolCall) and not part.executed]
    if calls:
        message["tool_calls"] = calls
    images = [write_image(image) for image in images_of(choice)]
    if images:
        message["images"] = images
    sources = write_annotations(choice.parts)
    if sources:
        message["annotations"] = sources
    return message


def list_sources(body: ChatCompletion, native: dict[str, Any]) -> None:
    """Add the sources that the upstream lists beside its choices: as they came, and as citations of the first choice
    where that has none."""
    for name in LISTED_SOURCES:
        if native.get(name):
            body[name] = native[name]  # type: ignore[literal-required]
    sources = read_sources(native)
    choices = body["choices"]
    if sources and choices and not choices[0]["message"].get("annotations"):
        length = len(choices[0]["message"].get("content") or "")
        annotations = [write_annotation(source, 0, length) for source in sources]
        choices[0] = {**choices[0], "message": {**choices[0]["message"], "annotations": annotations}}
