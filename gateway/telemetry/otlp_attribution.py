"""Adds resource attributes to OTLP exports (metrics, logs, traces), as JSON and as protobuf.

Shapes: https://github.com/open-telemetry/opentelemetry-proto. The three export requests have the same frame: field 1
repeats ResourceMetrics, ResourceLogs or ResourceSpans, whose field 1 is the Resource, whose field 1 repeats the
attributes (KeyValue: key 1, value 2; AnyValue: string_value 1). Everything else in them is copied unchanged.

Attributes that a sender gives itself under PREFIX are removed. Raises InvalidRequest for anything malformed.
"""

from collections.abc import Mapping
from typing import Any

import orjson

from gateway.telemetry.protobuf_fields import BYTES, FieldBudget, malformed, read_fields

PREFIX = "llmgateway."
# Signal → the member of the JSON form that lists the resources.
MEMBERS = {"metrics": "resourceMetrics", "logs": "resourceLogs", "traces": "resourceSpans"}
MAX_RESOURCES = 100
MAX_FIELDS = 20_000  # of the resources and their attributes
FIRST = 1 << 3 | BYTES  # the tag of field 1, of type BYTES
SECOND = 2 << 3 | BYTES


def add_to_json(body: bytes, signal: str, attributes: Mapping[str, str]) -> bytes:
    """Return a JSON export with the attributes in each resource."""
    try:
        export = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise malformed("JSON") from None
    if not isinstance(export, dict):
        raise malformed("JSON")
    resources = export.get(MEMBERS[signal], [])
    if not isinstance(resources, list) or len(resources) > MAX_RESOURCES:
        raise malformed("JSON")
    added = [{"key": name, "value": {"stringValue": value}} for name, value in attributes.items()]
    for resource in resources:
        _add_to_resource(resource, added)
    # Collectors also read `resource_metrics` and its like, in which the sender would choose the attributes.
    return orjson.dumps({MEMBERS[signal]: resources})


def _add_to_resource(entry: Any, added: list[dict[str, Any]]) -> None:
    if not isinstance(entry, dict):
        raise malformed("JSON")
    resource = entry.setdefault("resource", {})
    if not isinstance(resource, dict):
        raise malformed("JSON")
    given = resource.get("attributes", [])
    if not isinstance(given, list):
        raise malformed("JSON")
    resource["attributes"] = [attribute for attribute in given if not _is_ours(attribute)] + added


def _is_ours(attribute: Any) -> bool:
    if not isinstance(attribute, dict):
        raise malformed("JSON")
    return str(attribute.get("key", "")).startswith(PREFIX)


def add_to_protobuf(body: bytes, attributes: Mapping[str, str]) -> bytes:
    """Return a protobuf export with the attributes in each resource."""
    added = b"".join(_message(FIRST, _key_value(name, value)) for name, value in attributes.items())
    budget = FieldBudget(MAX_FIELDS)
    parts = []
    for field in read_fields(body, budget):
        if field.tag == FIRST:
            parts.append(_message(FIRST, _with_resource(body[field.value : field.end], added, budget)))
        else:
            parts.append(body[field.start : field.end])
    return b"".join(parts)


def _with_resource(message: bytes, added: bytes, budget: FieldBudget) -> bytes:
    """Return a ResourceMetrics, ResourceLogs or ResourceSpans whose Resource has the attributes. A repeated Resource
    is one message in pieces, which are joined."""
    own: list[bytes] = []
    others: list[bytes] = []
    for field in read_fields(message, budget):
        if field.tag != FIRST:
            others.append(message[field.start : field.end])
            continue
        resource = message[field.value : field.end]
        for attribute in read_fields(resource, budget):
            piece = resource[attribute.value : attribute.end]
            if attribute.tag != FIRST or not _key_of(piece, budget).startswith(PREFIX.encode()):
                own.append(resource[attribute.start : attribute.end])
    return _message(FIRST, b"".join(own) + added) + b"".join(others)


def _key_of(attribute: bytes, budget: FieldBudget) -> bytes:
    """Return the key of a KeyValue; the last one counts."""
    key = b""
    for field in read_fields(attribute, budget):
        if field.tag == FIRST:
            key = attribute[field.value : field.end]
    return key


def _key_value(name: str, value: str) -> bytes:
    return _message(FIRST, name.encode()) + _message(SECOND, _message(FIRST, value.encode()))


def _message(tag: int, content: bytes) -> bytes:
    """Return a field of type BYTES."""
    head = bytearray((tag,))
    length = len(content)
    while length > 0x7F:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + content
