"""Which app made a call."""

from collections.abc import Mapping


def read_source(headers: Mapping[str, str]) -> str:
    """The recorded source of a request, "" when none is known."""
    return headers.get("x-source", "").strip()
