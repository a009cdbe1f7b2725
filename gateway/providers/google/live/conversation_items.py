"""Items of a conversation in the callers' format, as turns and function responses of the Live API."""

import re
from typing import Any

import orjson

from gateway.errors import InvalidRequest
from gateway.neutral.encoded import decode_pieces
from gateway.providers.google.live.session_setup import RATE, invalid, size_within
from gateway.runtime.threads import compute_if

Json = dict[str, Any]
LARGE = 1 << 18  # characters from which base64 is looked at in a thread
LEAST_PART = 1 << 8
ROLES = {"user": "user", "assistant": "model"}
PICTURE = re.compile(r"data:(image/[\w.+-]{1,40});base64,", re.IGNORECASE)


def _unsupported(place: str, reason: str) -> InvalidRequest:
    return InvalidRequest(reason, param=place, code="unsupported_item")


def is_base64(text: str, start: int = 0) -> bool:
    """Whether a text is base64 from `start` on: the upstream ends a session for anything else."""
    return compute_if(len(text) > LARGE, _is_base64, text, start)


def _is_base64(text: str, start: int) -> bool:
    try:
        for _ in decode_pieces(text, start):
            pass
    except ValueError:
        return False
    return True


def size_of_turn(turn: Json) -> int:
    """What a turn takes: the characters of its content, and what each part of it takes however short it is."""
    return sum(
        LEAST_PART + len(part.get("text") or part.get("inlineData", {}).get("data", "")) for part in turn["parts"]
    )


def turn_of(item: Json) -> Json:
    """A message as a turn. InvalidRequest for what has no counterpart."""
    role = item.get("role")
    if role not in ROLES:
        text = "This model's provider takes messages of 'user' and 'assistant'; others belong into the instructions."
        raise _unsupported("item.role", text)
    content = item.get("content")
    if not isinstance(content, list) or not content:
        raise invalid("item.content", "A message has a list of content.")
    return {"role": ROLES[role], "parts": [_part_of(part, f"item.content[{at}]") for at, part in enumerate(content)]}


def _part_of(part: Any, place: str) -> Json:
    if isinstance(part, dict):
        kind = part.get("type")
    else:
        kind = None
    if kind in ("input_text", "output_text") and isinstance(part.get("text"), str):
        return {"text": part["text"]}
    if kind == "input_audio" and isinstance(part.get("audio"), str):
        if not is_base64(part["audio"]):
            raise invalid(f"{place}.audio", "'audio' is no base64.")
        return {"inlineData": {"mimeType": f"audio/pcm;rate={RATE}", "data": part["audio"]}}
    if kind == "output_audio" and isinstance(part.get("transcript"), str):
        return {"text": part["transcript"]}  # what the model said; its sound is not given back to it
    if kind == "input_image":
        return _picture_of(part, place)
    raise _unsupported(place, f"This model's provider has no counterpart of content of the type {str(kind)[:64]!r}.")


def _picture_of(part: Json, place: str) -> Json:
    given = part.get("image_url")
    if isinstance(given, str):
        found = PICTURE.match(given)
    else:
        found = None
    if found is None or not isinstance(given, str):
        raise _unsupported(f"{place}.image_url", "Images of this model are data URLs (data:image/png;base64,…).")
    if not is_base64(given, found.end()):
        raise invalid(f"{place}.image_url", "The image is no base64.")
    if part.get("detail") not in (None, "auto"):
        raise _unsupported(f"{place}.detail", "This model's provider has no counterpart of 'detail'.")
    return {"inlineData": {"mimeType": found[1].lower(), "data": given[found.end() :]}}


def result_of(item: Json, names: dict[str, str]) -> Json:
    """The result of a call as a FunctionResponse; `names` are the functions of the calls that are open."""
    call = item.get("call_id")
    if not isinstance(call, str) or call not in names:
        text = "There is no open call of this id: it was answered, or the model took it back when it was interrupted."
        raise InvalidRequest(text, param="item.call_id", code="tool_call_unknown")
    return {"id": call, "name": names[call], "response": _response_of(item.get("output"))}


def _response_of(output: Any) -> Json:
    """An object as it is; anything else as the `output` of one, as the reference has it."""
    if isinstance(output, str):
        found = compute_if(len(output) > LARGE, _read, output)
    else:
        found = None
    if isinstance(found, dict):
        return found
    size_within(output)
    return {"output": output}


def _read(output: str) -> Any:
    """A text of JSON; None for any other, and for one that is nested too deep to be written as anything but text."""
    try:
        found = orjson.loads(output)
        size_within(found)
    except (orjson.JSONDecodeError, InvalidRequest):
        return None
    return found
