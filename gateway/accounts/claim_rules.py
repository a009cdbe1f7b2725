"""Conditions on the claims of a token: the values that each named claim must have.

A claim is named by its name, or, if the name begins with a slash, by a JSON pointer (RFC 6901), such as
/kubernetes.io/namespace. A value may contain *, which stands for any characters. For a claim that is a list, such as
groups, one matching element is enough.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from gateway.errors import InvalidRequest

MAX_CLAIMS = 20
MAX_VALUES = 50
MAX_NAME_LENGTH = 255
MAX_VALUE_LENGTH = 512
MAX_ELEMENTS = 1_000  # elements of a claim that are compared
ANY_VALUE = "*"

Claims = Mapping[str, Sequence[str]]


def read_claims(given: Mapping[str, Any]) -> dict[str, list[str]]:
    """Return the accepted values of each claim; a single value may be given without a list. Raises InvalidRequest.

    At least one claim is required: an issuer such as a public build service signs tokens for everyone.
    """
    if not 1 <= len(given) <= MAX_CLAIMS:
        raise InvalidRequest(f"Give 1 to {MAX_CLAIMS} claims that a token must have.", param="claims")
    claims: dict[str, list[str]] = {}
    for name, value in given.items():
        values = value if isinstance(value, list) else [value]
        if not 1 <= len(name) <= MAX_NAME_LENGTH or not 1 <= len(values) <= MAX_VALUES:
            raise InvalidRequest(f"A claim takes 1 to {MAX_VALUES} values.", param=f"claims.{name[:80]}")
        for text in values:
            if not isinstance(text, str) or not 1 <= len(text) <= MAX_VALUE_LENGTH or "\0" in text:
                raise InvalidRequest(f"A value has 1 to {MAX_VALUE_LENGTH} characters.", param=f"claims.{name[:80]}")
        claims[name] = values
    if all(not text.strip(ANY_VALUE) for values in claims.values() for text in values):
        raise InvalidRequest("Require at least one value that is more than *.", param="claims")
    return claims


def matches(required: Claims, claims: Mapping[str, Any]) -> bool:
    """Return whether the claims of a token meet every condition."""
    return all(_has_value(find_claim(claims, name), accepted) for name, accepted in required.items())


def find_claim(claims: Mapping[str, Any], name: str) -> Any:
    """Return the claim of this name or JSON pointer; None without."""
    if not name.startswith("/"):
        return claims.get(name)
    value: Any = claims
    for part in name[1:].split("/"):
        if not isinstance(value, Mapping):
            return None
        value = value.get(part.replace("~1", "/").replace("~0", "~"))
    return value


def text_of(value: Any) -> str | None:
    """Return a single value of a claim as text; None for lists, objects and absent claims."""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, str | int | float):
        return str(value)
    return None


def _has_value(value: Any, accepted: Sequence[str]) -> bool:
    elements = value[:MAX_ELEMENTS] if isinstance(value, list) else [value]
    texts = [text for text in map(text_of, elements) if text is not None]
    return any(_fits(pattern, text) for pattern in accepted for text in texts)


def _fits(pattern: str, text: str) -> bool:
    """Return whether a text has the form of a pattern with *; each part is searched once, from left to right."""
    first, *others = pattern.split(ANY_VALUE)
    if not others:
        return pattern == text
    last = others.pop()
    if len(text) < len(first) + len(last) or not text.startswith(first) or not text.endswith(last):
        return False
    position = len(first)
    end = len(text) - len(last)
    for part in others:
        found = text.find(part, position, end)
        if found < 0:
            return False
        position = found + len(part)
    return True
