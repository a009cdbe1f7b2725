"""JSON schemas of responses for the API description, and the members that model responses share."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

ANY: dict[str, Any] = {}
OBJECT = {"type": "object"}
TEXT = {"type": "string"}


def shape(_optional: Mapping[str, Any] | None = None, /, **members: Any) -> dict[str, Any]:
    """Return the schema of an object with these required members: the name of a type ("string?" may be null), another
    schema, or [schema] for a list. Members of the first argument are optional; additional members are allowed."""
    every = {**members, **(_optional or {})}
    return {
        "type": "object",
        "properties": {name: read_shape(value) for name, value in every.items()},
        "required": list(members),
    }


def named(title: str, _optional: Mapping[str, Any] | None = None, /, **members: Any) -> dict[str, Any]:
    """Return the same schema as a component of the description."""
    return {"title": title, **shape(_optional, **members)}


def map_of(value: Any) -> dict[str, Any]:
    """Return the schema of an object with any names and values of that shape."""
    return {"type": "object", "additionalProperties": read_shape(value)}


def one_of(*words: str, null: bool = False) -> dict[str, Any]:
    """Return the schema of one of these words; with `null` also null."""
    return {"enum": [*words, None] if null else list(words)}


def read_shape(value: Any) -> Any:
    """Return the schema that a member's notation stands for; an answer struct stands for itself."""
    if isinstance(value, list):
        return {"type": "array", "items": read_shape(value[0])}
    if not isinstance(value, str):
        return value
    name = value.removesuffix("?")
    return {"type": [name, "null"] if value.endswith("?") else name}


COST_DETAILS = {"title": "CostDetails", **map_of("number")}
COST = {"cost": "number", "cost_details": COST_DETAILS}
ATTEMPT = named(
    "RoutingAttempt",
    {"region": "string", "credentialSource": "string"},
    provider="string",
    model="string",
    status_code="integer",
    error_type="string",
    succeeded="boolean",
)
METADATA = named(
    "RoutingMetadata",
    {"warnings": ["string"], **COST},
    request_id="string",
    requested_model="string",
    requested_provider="string?",
    used_model="string",
    used_provider="string",
    underlying_used_model="string",
    log_id="string",
    organization_id="string",
    project_id="string",
    routing=[ATTEMPT],
)
# Fields of answer structs with these objects, which are written as dictionaries on the hot path.
CostDetails = Annotated[Any, Meta(extra_json_schema=COST_DETAILS)]
RoutingMetadata = Annotated[Any, Meta(extra_json_schema=METADATA)]
