"""Checks of single values in a request body, with the error texts of OpenAI's API."""

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
