"""Compares real answers with the API description, strictly: a member that it does not name is a mistake."""

import json
from collections.abc import Iterator
from functools import cache
from typing import Any

from jsonschema_rs import Draft202012Validator

from gateway.surfaces import surface_table
from gateway.surfaces.description import openapi as openapi_module
from gateway.surfaces.responses.reader import ECHOED_FIELDS

EVENTS = "text/event-stream"
JSON = "application/json"
Json = dict[str, Any]


@cache
def document() -> Json:
    """Return the API description."""
    return openapi_module.describe(surface_table.described())


@cache
def _closed_components(rebuilt: bool) -> Json:
    components = _close(document()["components"], rebuilt)
    # A response repeats these fields of its request; most of them are rows of the table of parameters.
    response = components["schemas"]["ResponseObject"]
    response["properties"] |= {name: {} for name in ECHOED_FIELDS}
    return components


def _close(schema: Any, rebuilt: bool) -> Any:
    """Return the schema without further members, except in parts that a provider may have written. `rebuilt`: the
    gateway wrote all parts itself."""
    if isinstance(schema, list):
        return [_close(one, rebuilt) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {name: _close(value, rebuilt) for name, value in schema.items() if name != "example"}
    further = schema.get("additionalProperties")
    if isinstance(schema.get("properties"), dict) and (further is None or (rebuilt and further is True)):
        closed["additionalProperties"] = False
    return closed


@cache
def _validator(operation: str, status: int, media: str, rebuilt: bool) -> Draft202012Validator:
    method, path = operation.split(" ", 1)
    answer = document()["paths"][path][method.lower()]["responses"][str(status)]
    if "$ref" in answer:
        answer = document()["components"]["responses"][answer["$ref"].rpartition("/")[2]]
    content = answer["content"][media]
    schema = content["x-event-schema"] if media == EVENTS else content["schema"]
    return Draft202012Validator({**_close(schema, rebuilt), "components": _closed_components(rebuilt)})


def mistakes_of(operation: str, status: int, media: str, body: bytes, *, rebuilt: bool = False) -> list[str]:
    """Return the differences between an answer of `operation` ("METHOD /path") and its description."""
    validator = _validator(operation, status, media.partition(";")[0], rebuilt)
    values = events_of(body) if media.startswith(EVENTS) else [json.loads(body)]
    return [
        f"{operation} {error.instance_path}: {error.message[:300]}"
        for value in values
        for error in validator.iter_errors(value)
    ]


def events_of(stream: bytes) -> Iterator[Any]:
    """Yield the JSON of each event."""
    for line in stream.decode().splitlines():
        if line.startswith("data: {"):
            yield json.loads(line[6:])
