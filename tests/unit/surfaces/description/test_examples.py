"""The examples of the API description."""

from collections.abc import Iterator

import orjson

from gateway.surfaces import surface_table
from gateway.surfaces.description import openapi as openapi_module

# Rarely used fields without an example. A new field gets one in `examples.TEXTS`.
MAX_NAMES = 173


def examples_within(described: object) -> Iterator[object]:
    """Yield the examples of the bodies, answers and events of the description."""
    if isinstance(described, list):
        for one in described:
            yield from examples_within(one)
    elif isinstance(described, dict):
        for name, one in described.items():
            if name == "example":
                yield event_of(one) or one
            else:
                yield from examples_within(one)


def event_of(example: object) -> object:
    """Return the JSON of an event; None for another example."""
    if isinstance(example, str) and example.startswith("data: "):
        return orjson.loads(example.removeprefix("data: "))
    return None


def named_after_their_field(value: object, name: str = "") -> Iterator[str]:
    """Yield the fields of an example that show their name as their value."""
    if isinstance(value, dict):
        for member, one in value.items():
            yield from named_after_their_field(one, member)
    elif isinstance(value, list):
        for one in value:
            yield from named_after_their_field(one, name)
    elif isinstance(value, str) and value and name.replace("_", " ").startswith(value):
        yield name


def test_examples_show_texts_and_not_the_names_of_their_fields() -> None:
    found = list(examples_within(openapi_module.describe(surface_table.described())))
    names = {name for example in found for name in named_after_their_field(example)}
    assert len(found) > 100 and len(names) <= MAX_NAMES, sorted(names)
