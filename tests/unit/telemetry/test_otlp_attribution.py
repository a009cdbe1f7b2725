"""Attributes are added to every resource of an export; everything else stays as it was."""

import orjson
import pytest
from opentelemetry.proto.collector.logs.v1.logs_service_pb2 import ExportLogsServiceRequest
from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from gateway.errors import InvalidRequest
from gateway.telemetry.otlp_attribution import MAX_FIELDS, add_to_json, add_to_protobuf

ADDED = {"llmgateway.organization.id": "org_1", "llmgateway.user.email": "ä" * 100 + "@example.com"}
REQUESTS = {
    "metrics": ExportMetricsServiceRequest,
    "logs": ExportLogsServiceRequest,
    "traces": ExportTraceServiceRequest,
}
FIELDS = {"metrics": "resource_metrics", "logs": "resource_logs", "traces": "resource_spans"}


def make(signal: str):
    """Return an export with two resources, one of them empty; a spoofed attribute is in the first."""
    request = REQUESTS[signal]()
    groups = getattr(request, FIELDS[signal])
    first = groups.add()
    first.schema_url = "https://example.com/schema"
    first.resource.dropped_attributes_count = 7
    for key, value in (("service.name", "claude-code"), ("llmgateway.organization.id", "org_of_another")):
        attribute = first.resource.attributes.add(key=key)
        attribute.value.string_value = value
    scope = getattr(first, "scope_" + FIELDS[signal].removeprefix("resource_")).add()
    scope.scope.name = "x" * 300
    groups.add()
    return request


def strip(request, signal: str):
    """Return the export without the attributes of its resources."""
    copy = REQUESTS[signal].FromString(request.SerializeToString())
    for group in getattr(copy, FIELDS[signal]):
        group.resource.ClearField("attributes")
    return copy


@pytest.mark.parametrize("signal", REQUESTS)
def test_each_resource_of_a_protobuf_export_gets_the_attributes(signal: str) -> None:
    request = make(signal)
    changed = REQUESTS[signal].FromString(add_to_protobuf(request.SerializeToString(), ADDED))
    for group in getattr(request, FIELDS[signal]):
        group.resource.SetInParent()
    assert strip(changed, signal) == strip(request, signal)
    first, second = (
        {attribute.key: attribute.value.string_value for attribute in group.resource.attributes}
        for group in getattr(changed, FIELDS[signal])
    )
    assert first == {"service.name": "claude-code", **ADDED} and second == ADDED


def test_a_resource_in_pieces_cannot_hide_an_attribute() -> None:
    """A parser joins the pieces of a repeated message, and takes the last of repeated keys."""
    request = ExportLogsServiceRequest()
    attribute = request.resource_logs.add().resource.attributes.add(key="harmless")
    attribute.value.string_value = "org_of_another"
    key_value = attribute.SerializeToString() + b"\x0a\x1allmgateway.organization.id"
    resource = b"\x0a" + bytes([len(key_value)]) + key_value
    group = b"\x0a\x00" + b"\x0a" + bytes([len(resource)]) + resource
    body = b"\x0a" + bytes([len(group)]) + group
    changed = ExportLogsServiceRequest.FromString(add_to_protobuf(body, ADDED))
    found = [
        (attribute.key, attribute.value.string_value) for attribute in changed.resource_logs[0].resource.attributes
    ]
    assert found == list(ADDED.items())


@pytest.mark.parametrize(
    "body",
    [
        b"\x0a",
        b"\x0a\x05ab",
        b"\xff" * 11,
        b"\x0b\x0c",
        b"\x0a\x02\x0a\x09",
        b"\x02\x01a",
        b"\x0a" + b"\xff" * 9 + b"\x01",
    ],
)
def test_malformed_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        add_to_protobuf(body, ADDED)


def test_fields_of_a_later_release_stay_whatever_their_type_is() -> None:
    """https://protobuf.dev/programming-guides/encoding/#structure: 8 bytes of type 1, 4 bytes of type 5."""
    later = bytes([15 << 3 | 1]) + b"8 bytes." + bytes([14 << 3 | 5]) + b"four" + bytes([13 << 3, 7])
    resource = b"\x0a" + bytes([len(later)]) + later
    changed = add_to_protobuf(b"\x0a" + bytes([len(resource)]) + resource, ADDED)
    attributes = ExportLogsServiceRequest.FromString(changed).resource_logs[0].resource.attributes
    assert later in changed and {attribute.key for attribute in attributes} == set(ADDED)


def test_an_export_with_too_many_fields_is_refused() -> None:
    with pytest.raises(InvalidRequest, match="fields"):
        add_to_protobuf(b"\x0a\x00" * (MAX_FIELDS + 1), ADDED)


@pytest.mark.parametrize("signal", REQUESTS)
def test_each_resource_of_a_json_export_gets_the_attributes(signal: str) -> None:
    given = {"key": "service.name", "value": {"stringValue": "claude-code"}}
    spoofed = {"key": "llmgateway.user.email", "value": {"stringValue": "other@example.com"}}
    member = REQUESTS[signal].DESCRIPTOR.fields_by_name[FIELDS[signal]].json_name
    body = {member: [{"resource": {"attributes": [given, spoofed]}, "kept": [1]}, {}]}
    body[FIELDS[signal]] = [{"resource": {"attributes": [spoofed]}}]  # a name that collectors read too
    changed = orjson.loads(add_to_json(orjson.dumps(body), signal, ADDED))
    added = [{"key": name, "value": {"stringValue": value}} for name, value in ADDED.items()]
    assert changed == {
        member: [
            {"resource": {"attributes": [given, *added]}, "kept": [1]},
            {"resource": {"attributes": added}},
        ]
    }


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"[]",
        b"{",
        b'{"resourceLogs": {}}',
        b'{"resourceLogs": [1]}',
        b'{"resourceLogs": [{"resource": 1}]}',
        b'{"resourceLogs": [{"resource": {"attributes": {}}}]}',
        b'{"resourceLogs": [{"resource": {"attributes": [1]}}]}',
    ],
)
def test_malformed_json_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest):
        add_to_json(body, "logs", ADDED)
