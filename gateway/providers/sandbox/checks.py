"""Checks of values in a request body and of chat messages, with the error texts of OpenAI's API."""

from collections.abc import Callable, Mapping
from typing import Any

from gateway.providers.sandbox.response import refuse

Check = Callable[[Any, str], None]
TYPE_NAMES = {
    str: "a string",
    bool: "a boolean",
    int: "an integer",
    float: "a decimal",
    list: "an array",
    dict: "an object",
}


def refuse_unknown(body: Mapping[str, Any], known: Mapping[str, Check]) -> None:
    """Raise InvalidRequest for unknown top-level fields."""
    unknown = [name for name in body if name not in known]
    if unknown:
        plural = "s" if len(unknown) > 1 else ""
        raise refuse(f"Unrecognized request argument{plural} supplied: {', '.join(unknown)[:500]}")


def check_fields(body: Mapping[str, Any], known: Mapping[str, Check], required: tuple[str, ...]) -> None:
    """Raise InvalidRequest for unknown, missing and wrongly typed top-level fields; null counts as absent."""
    refuse_unknown(body, known)
    for name in required:
        if body.get(name) is None:
            raise missing(name)
    for name, value in body.items():
        if value is not None:
            known[name](value, name)


def missing(param: str) -> Exception:
    return refuse(f"Missing required parameter: '{param}'.", param, "missing_required_parameter")


def wrong_type(value: Any, param: str, expected: str) -> Exception:
    got = "null" if value is None else TYPE_NAMES[type(value)]
    return refuse(f"Invalid type for '{param}': expected {expected}, but got {got} instead.", param, "invalid_type")


def wrong_value(value: Any, param: str, allowed: tuple[str, ...]) -> Exception:
    names = ", ".join(f"'{name}'" for name in allowed)
    return refuse(f"Invalid value: '{str(value)[:100]}'. Supported values are: {names}.", param, "invalid_value")


def accept(value: Any, param: str) -> None:
    """Accept every value."""


def of(*types: type) -> Check:
    """Return a check for one of these types. A boolean is not an integer; an integer is also a decimal."""

    def check(value: Any, param: str) -> None:
        if type(value) not in types and not (float in types and type(value) is int):
            raise wrong_type(value, param, " or ".join(TYPE_NAMES[kind] for kind in types))

    return check


def between(low: float, high: float, *, whole: bool = False) -> Check:
    """Return a check for a number within inclusive limits."""

    def check(value: Any, param: str) -> None:
        of(int if whole else float)(value, param)
        if value < low:
            text = f"Invalid '{param}': {value} is below the minimum value. Expected a value >= {low}."
            raise refuse(text, param, "integer_below_min_value" if whole else "decimal_below_min_value")
        if value > high:
            text = f"Invalid '{param}': {value} is above the maximum value. Expected a value <= {high}."
            raise refuse(text, param, "integer_above_max_value" if whole else "decimal_above_max_value")

    return check


def one_of(*allowed: str) -> Check:
    """Return a check for one of these strings."""

    def check(value: Any, param: str) -> None:
        of(str)(value, param)
        if value not in allowed:
            raise wrong_value(value, param, allowed)

    return check


def member(value: Mapping[str, Any], name: str, param: str, kind: type) -> Any:
    """Return a required member of the object at `param`. InvalidRequest unless it has the type `kind`."""
    if value.get(name) is None:
        raise missing(f"{param}.{name}")
    of(kind)(value[name], f"{param}.{name}")
    return value[name]


# Validates `messages` like the chat completions API: roles, contents, and misplaced tool messages.

TEXT_ONLY = ("text",)
# role -> the types of the parts that its messages may have
PARTS = {
    "system": TEXT_ONLY,
    "assistant": ("text", "refusal"),
    "user": ("text", "image_url", "input_audio", "file", "video_url"),
    "function": TEXT_ONLY,
    "tool": (*TEXT_ONLY, "image_url"),
    "developer": TEXT_ONLY,
}
# part type -> (its member, the member's type, inner members of which one is required)
BODIES: dict[str, tuple[str, type, tuple[str, ...]]] = {
    "text": ("text", str, ()),
    "refusal": ("refusal", str, ()),
    "image_url": ("image_url", dict, ("url",)),
    "video_url": ("video_url", dict, ("url",)),
    "input_audio": ("input_audio", dict, ("data",)),
    "file": ("file", dict, ("file_data", "file_id", "file_url")),
}


def check_messages(messages: list[Any]) -> None:
    """Raise InvalidRequest for the first invalid message, otherwise for the first message out of sequence."""
    if not messages:
        text = (
            "Invalid 'messages': empty array. Expected an array with minimum length 1, but got an empty array instead."
        )
        raise refuse(text, "messages", "empty_array")
    for place, message in enumerate(messages):
        _check_message(message, f"messages[{place}]")
    _check_sequence(messages)


def _check_message(message: Any, param: str) -> None:
    of(dict)(message, param)
    role = member(message, "role", param, str)
    if role not in PARTS:
        raise wrong_value(role, f"{param}.role", tuple(PARTS))
    if role == "tool":
        member(message, "tool_call_id", param, str)
    calls = message.get("tool_calls")
    if calls is not None:
        _check_calls(role, calls, f"{param}.tool_calls")
    _check_content(message, role, param)


def _check_content(message: dict[str, Any], role: str, param: str) -> None:
    content = message.get("content")
    if content is None:
        stand_ins = ("tool_calls", "function_call", "refusal", "audio")
        if role == "assistant" and any(message.get(name) for name in stand_ins):
            return
        raise refuse("Invalid value for 'content': expected a string, got null.", f"{param}.content")
    if not isinstance(content, str | list):
        raise wrong_type(content, f"{param}.content", "a string or an array")
    if isinstance(content, list):
        for place, part in enumerate(content):
            check_part(part, PARTS[role], f"{param}.content[{place}]")


def check_part(part: Any, allowed: tuple[str, ...], param: str) -> None:
    """Check a content part: one of the `allowed` types, with the member that its type requires."""
    of(dict)(part, param)
    kind = member(part, "type", param, str)
    if kind not in allowed:
        raise wrong_value(kind, f"{param}.type", allowed)
    name, expected, inner = BODIES[kind]
    value = member(part, name, param, expected)
    if inner and not any(isinstance(value.get(key), str) for key in inner):
        member(value, inner[0], f"{param}.{name}", str)


def _check_calls(role: str, calls: Any, param: str) -> None:
    if role != "assistant":
        raise refuse(f"Unknown parameter: '{param}': only assistant messages have it.", param, "unknown_parameter")
    of(list)(calls, param)
    if not calls:
        text = f"Invalid '{param}': empty array. Expected an array with minimum length 1."
        raise refuse(text, param, "empty_array")
    for place, call in enumerate(calls):
        where = f"{param}[{place}]"
        of(dict)(call, where)
        member(call, "id", where, str)
        kind = member(call, "type", where, str)
        if kind not in ("function", "custom"):
            raise wrong_value(kind, f"{where}.type", ("function", "custom"))
        inner = member(call, kind, where, dict)
        member(inner, "name", f"{where}.{kind}", str)
        member(inner, "arguments" if kind == "function" else "input", f"{where}.{kind}", str)


def _check_sequence(messages: list[dict[str, Any]]) -> None:
    """Check that tool messages answer the calls of the preceding assistant message, and that every call is answered."""
    waiting: dict[str, None] = {}
    answerable: set[str] = set()
    for place, message in enumerate(messages):
        if message["role"] == "tool":
            if message["tool_call_id"] not in answerable:
                raise _out_of_place(place)
            waiting.pop(message["tool_call_id"], None)
            continue
        _refuse_unanswered(waiting, place)
        waiting = {call["id"]: None for call in message.get("tool_calls") or ()}
        answerable = set(waiting)
    _refuse_unanswered(waiting, len(messages))


def _out_of_place(place: int) -> Exception:
    text = (
        "Invalid parameter: messages with role 'tool' must be a response to a preceding message with 'tool_calls'."
    )  # fmt: skip
    return refuse(text, f"messages.[{place}].role")


def _refuse_unanswered(waiting: dict[str, None], place: int) -> None:
    if waiting:
        text = (
            "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
            f"'tool_call_id'. The following tool_call_ids did not have response messages: {', '.join(waiting)[:500]}"
        )
        raise refuse(text, f"messages.[{place}].role")
