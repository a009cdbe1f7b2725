"""Conversion of values from files and variables to the types of the settings' fields."""

import ipaddress
import math
import re
from dataclasses import dataclass
from typing import Annotated, Any, Literal, get_args, get_origin

from gateway.configuration.setting_checks import suggest_similar, url_problem

HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
TRUE = {"1", "true", "yes", "on"}
FALSE = {"0", "false", "no", "off"}


@dataclass(frozen=True, slots=True)
class NumberRange:
    """A check of the minimum and maximum of a number. `or_zero`: 0 is allowed too, and means none."""

    minimum: float
    maximum: float = math.inf
    or_zero: bool = False

    def check(self, value: Any) -> None:
        if self.or_zero and value == 0:
            return
        if not self.minimum <= value <= self.maximum:
            maximum = "" if self.maximum == math.inf else f" and at most {self.maximum:g}"
            zero = "0, or " if self.or_zero else ""
            raise ValueError(f"must be {zero}at least {self.minimum:g}{maximum}, got {value:g}")


@dataclass(frozen=True, slots=True)
class Scheme:
    """A check of a URL's scheme; "" means that no URL is set."""

    names: tuple[str, ...]

    def check(self, value: str) -> None:
        if value and (problem := url_problem(value, self.names)):
            raise ValueError(problem)


@dataclass(frozen=True, slots=True)
class NetworkText:
    """A check for an IP address or network, e.g. 10.0.0.0/8."""

    def check(self, value: str) -> None:
        try:
            ipaddress.ip_network(value, strict=False)
        except ValueError:
            raise ValueError(f"{value!r} is not an address or network such as 10.0.0.0/8") from None


@dataclass(frozen=True, slots=True)
class HeaderName:
    """A check for the name of an HTTP header, or "" for none."""

    def check(self, value: str) -> None:
        if value and not HEADER_NAME.fullmatch(value):
            raise ValueError(f"{value!r} is not a header name such as x-forwarded-for")


def convert(value: Any, kind: Any) -> Any:
    """Convert `value` to the type `kind` of a field. ValueError says what is expected."""
    origin = get_origin(kind)
    if origin is Annotated:
        plain, *checks = get_args(kind)
        ready = convert(value, plain)
        for requirement in checks:
            requirement.check(ready)
        return ready
    if origin is tuple:
        items = [v.strip() for v in value.split(",") if v.strip()] if isinstance(value, str) else value
        if not isinstance(items, list | tuple):
            raise ValueError(f"expected a list, got {value!r}")
        return tuple(convert(item, get_args(kind)[0]) for item in items)
    if origin is Literal:
        return _convert_choice(value, get_args(kind))
    if kind is bool:
        return _convert_bool(value)
    if kind in (int, float):
        return _convert_number(value, kind)
    if not isinstance(value, str):
        raise ValueError(f"expected text, got {value!r}")
    return value


def _convert_number(value: Any, kind: type[int] | type[float]) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | str):
        raise ValueError(f"expected a number, got {value!r}")
    try:
        number = kind(value if not isinstance(value, str) or value.isascii() else "")
    except (ValueError, OverflowError):
        raise ValueError(f"expected a {'whole ' if kind is int else ''}number, got {value!r}") from None
    if not math.isfinite(number) or (kind is int and isinstance(value, float) and value != number):
        raise ValueError(f"expected a {'whole ' if kind is int else ''}number, got {value!r}")
    if number < 0:
        raise ValueError(f"must not be negative: {value!r}")
    return number


def _convert_choice(value: Any, choices: tuple[str, ...]) -> str:
    chosen = str(value).strip().lower()
    if chosen not in choices:
        raise ValueError(f"expected one of {', '.join(choices)}, got {value!r}{suggest_similar(chosen, choices)}")
    return chosen


def _convert_bool(value: Any) -> bool:
    if isinstance(value, bool):
        return value
    text = str(value).strip().lower()
    if text in TRUE:
        return True
    if text in FALSE:
        return False
    raise ValueError(f"expected true or false, got {value!r}")
