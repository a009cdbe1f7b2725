"""Details of an error: further members of the error object, which help to find its cause."""

from typing import Any, TypeVar

from msgspec import Meta

from gateway.errors import GatewayError

T = TypeVar("T")
# For an error object that may have details.
DETAILED = Meta(extra_json_schema={"additionalProperties": {"type": "string"}})


def with_details(content: T, error: GatewayError) -> T:
    """Return an error object with the error's details, which replace none of its members."""
    if not error.details:
        return content
    shown: Any = content
    detailed: Any = {**shown, **{name: text for name, text in error.details.items() if name not in shown}}
    result: T = detailed
    return result
