"""Converts conversation items of the callers' format to turns and function responses of the Live API."""

import re
from typing import Any

import orjson

from gateway.errors import InvalidRequest
from gateway.neutral.encoded import decode_pieces
from gateway.providers.google.live.session_setup import RATE, invalid, size_within
from gateway.runtime.threads import compute_if

Json = dict[str, Any]
LARGE = 1 << 18  # characters from which base64 is checked in a thread
MIN_PART_LENGTH = 1 << 8
ROLES = {"user": "user", "assistant": "model"}
PICTURE = re.compile(r"data:(image/[\w.+-]{1,40});base64,", re.IGNORECASE)


def _unsupported(place: str, reason: str) -> InvalidRequest:
    return InvalidRequest(reason, param=place, code="unsupported_item")


def is_base64(text: str, start: int = 0) -> bool:
    """Return whether a text is base64 from `start` on; the upstream ends a session that sends anything else."""
    return compute_if(len(text) > LARGE, _is_base64, text, start)


def _is_base64(text: str, start: int) -> bool:
    try:
        for _ in decode_pieces(text, start):
            pass
    except ValueError:
        return False
    return True


def size_of_turn(turn: Json) -> int:
    """Return the size of a turn: the characters of its content, and a fixed minimum for each part."""
    return sum(
        MIN_PART_LENGTH + len(part.get("text") or part.get("inlineData", {}).get("data", "")) for part in turn["parts"]
    )


def turn_of(item: Json) -> Json:
    """Return a message as a turn. InvalidRequest for unsupported roles and content."""
    role = item.get("role")
    if role not in ROLES:
        text = "This model's provider supports only the roles 'user' and 'assistant'; use 'instructions' for others."
        raise _unsupported("item.role", text)
    content = item.get("content")
    if not isinstance(content, list) or not content:
        raise invalid("item.content", "'content' must be a list.")
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
            raise invalid(f"{place}.audio", "'audio' must be base64.")
        return {"inlineData": {"mimeType": f"audio/pcm;rate={RATE}", "data": part["audio"]}}
    if kind == "output_audio" and isinstance(part.get("transcript"), str):
        return {"text": part["transcript"]}  # past output goes back as its transcript, without the audio
    if kind == "input_image":
        return _picture_of(part, place)
    raise _unsupported(place, f"This model's provider has no counterpart of content of the type {str(kind)[:64]!r}.")


def _picture_of(part: Json, place: str) -> Json:
    url = part.get("image_url")
    match = PICTURE.match(url) if isinstance(url, str) else None
    if match is None or not isinstance(url, str):
        message = "This model supports only images in data URLs (data:image/png;base64,…)."
        raise _unsupported(f"{place}.image_url", message)
    if not is_base64(url, match.end()):
        raise invalid(f"{place}.image_url", "The image must be base64.")
    if part.get("detail") not in (None, "auto"):
        raise _unsupported(f"{place}.detail", "This model's provider has no counterpart of 'detail'.")
    return {"inlineData": {"mimeType": match[1].lower(), "data": url[match.end() :]}}


def result_of(item: Json, names: dict[str, str]) -> Json:
    """Return the result of a call as a FunctionResponse; `names` has the function names of open calls by id."""
    call = item.get("call_id")
    if not isinstance(call, str) or call not in names:
        text = "There is no open call of this id: it was answered, or the model cancelled it when it was interrupted."
        raise InvalidRequest(text, param="item.call_id", code="tool_call_unknown")
    return {"id": call, "name": names[call], "response": _response_of(item.get("output"))}


def _response_of(output: Any) -> Json:
    """Return a JSON object as it is, and any other output as {output} (reference, FunctionResponse.response)."""
    if isinstance(output, str):
        parsed = compute_if(len(output) > LARGE, _parse, output)
        if isinstance(parsed, dict):
            return parsed
    size_within(output)
    return {"output": output}


def _parse(output: str) -> Any:
    """Return the value of a JSON text; None for any other text, and for JSON that is nested too deep to be written."""
    try:
        parsed = orjson.loads(output)
        size_within(parsed)
    except (orjson.JSONDecodeError, InvalidRequest):
        return None
    return parsed
