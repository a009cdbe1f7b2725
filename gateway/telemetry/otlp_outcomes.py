"""Reads the outcomes of coding agents from OTLP exports of metrics and logs, in protobuf and JSON.

Shapes: https://github.com/open-telemetry/opentelemetry-proto (metrics/v1 and logs/v1). Only monotonic sums and log
records with a known name are read (`gateway/metering/outcomes/names.py`); the rest is skipped without being decoded.
Raises InvalidRequest for a malformed export, and TooManyFields for one with too many fields or points.
"""

import math
import struct
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, NamedTuple

import orjson

from gateway.metering.outcomes.names import NAMES, OutcomeName
from gateway.metering.outcomes.outcome_points import NO_SERIES, OutcomePoint
from gateway.metering.outcomes.repository_names import repository_of
from gateway.metering.session_ids import shorten
from gateway.telemetry.otlp_attribution import MAX_RESOURCES, MEMBERS
from gateway.telemetry.protobuf_fields import (
    FieldBudget,
    ProtoField,
    TooManyFields,
    malformed,
    read_fields,
    read_varint,
)

MAX_FIELDS = 40_000  # of an export that are read
MAX_POINTS = 2_000  # of an export that count something
MAX_VALUE = 10**9  # of a point; no agent writes so many lines, and larger numbers are no measurement
MAX_TEXT = 255  # characters of an attribute that are read
MAX_ATTRIBUTES = 128  # of a point or a resource
MAX_INTEGER_DIGITS = 20  # of the integers of OTLP's JSON, which are strings
SERIES_BYTES = 16
NS_PER_US = 1_000
MAX_NS = 2**63 - 1
DELTA = 1  # AggregationTemporality
CUMULATIVE = 2
TEMPORALITIES = {
    "AGGREGATION_TEMPORALITY_DELTA": DELTA,
    "AGGREGATION_TEMPORALITY_CUMULATIVE": CUMULATIVE,
}
EVENT_NAME = "event.name"
# Fields of Export…ServiceRequest, ResourceMetrics, ScopeMetrics (and the same of logs).
RESOURCE = 1
SCOPES = 2
ENTRIES = 2
# AnyValue
STRING_VALUE = 1
BOOL_VALUE = 2
INT_VALUE = 3

Attributes = Mapping[str, str]


class RawPoint(NamedTuple):
    """A data point or a log record as it was sent. `amount` is None for one without a usable number."""

    amount: float | None
    start_us: int
    time_us: int
    attributes: Attributes


class RawResource:
    """The attributes of a resource. The part of a series' digest that all points of a metric from one start have in
    common is computed once: a resource may have 30 kB, and 2,000 points."""

    def __init__(self, attributes: Attributes) -> None:
        self.attributes = attributes
        self._text = _series_text(attributes)
        self._begun: dict[tuple[str, int], Any] = {}

    def begin_digest(self, name: str, start_us: int) -> Any:
        """Return a copy of the digest of a metric's name and start and of this resource, to which a point is added."""
        begun = self._begun.get((name, start_us))
        if begun is None:
            begun = blake2b(f"{name}\1{start_us}\1".encode(errors="replace") + self._text, digest_size=SERIES_BYTES)
            self._begun[name, start_us] = begun
        return begun.copy()


class RawMetric(NamedTuple):
    """A named metric or event with its points, and its resource."""

    name: str
    temporality: int
    points: Iterator[RawPoint]
    resource: RawResource


def read_outcomes(body: bytes, signal: str, is_json: bool) -> list[OutcomePoint]:
    """Return the points of an export that count an outcome."""
    names = NAMES.of(signal)
    if not names:
        return []
    read = _read_json if is_json else _read_protobuf
    found: list[OutcomePoint] = []
    for metric in read(body, signal, names):
        for point in metric.points:
            outcome_point = _count(names[metric.name], metric, point)
            if outcome_point is not None:
                found.append(outcome_point)
                if len(found) > MAX_POINTS:
                    raise TooManyFields(MAX_POINTS, "points")
    return found


def _count(name: OutcomeName, metric: RawMetric, point: RawPoint) -> OutcomePoint | None:
    def read(attribute: str) -> str:
        return point.attributes.get(attribute) or metric.resource.attributes.get(attribute, "")

    outcome = name.outcome_of(read)
    amount = point.amount
    if not outcome or amount is None or not math.isfinite(amount) or not 0 <= amount <= MAX_VALUE:
        return None
    session = next((shorten(text) for attribute in name.session if (text := read(attribute))), "")
    model = next((text for attribute in name.model if (text := read(attribute))), "")
    series = _series(metric, point) if metric.temporality == CUMULATIVE else NO_SERIES
    scaled = round(amount * name.scale)
    return OutcomePoint(
        name.agent,
        outcome,
        session,
        _clean(model),
        scaled,
        series,
        point.start_us,
        point.time_us,
        repository_of(read),
    )


def _series(metric: RawMetric, point: RawPoint) -> bytes:
    """Return what identifies a cumulative series from one start of its process to the next."""
    digest = metric.resource.begin_digest(metric.name, point.start_us)
    digest.update(b"\1" + _series_text(point.attributes))
    found: bytes = digest.digest()
    return found


def _series_text(attributes: Attributes) -> bytes:
    pairs = [f"{key}\0{value}" for key, value in sorted(attributes.items())]
    return "\1".join([*pairs, ""]).encode(errors="replace")


def _clean(text: str) -> str:
    """Return a text that both stores take: PostgreSQL stores no NUL."""
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")


# Protobuf.


def _read_protobuf(body: bytes, signal: str, names: Mapping[str, OutcomeName]) -> Iterator[RawMetric]:
    budget = FieldBudget(MAX_FIELDS)
    for group in read_fields(body, budget):
        if group.number != RESOURCE:
            continue
        message = _piece(body, group)
        scopes = []
        resource: dict[str, str] = {}
        for field in read_fields(message, budget):
            if field.number == RESOURCE:
                resource |= _read_attributes(_piece(message, field), 1, budget)
            elif field.number == SCOPES:
                scopes.append(_piece(message, field))
        known = RawResource(resource)
        for scope in scopes:
            for field in read_fields(scope, budget):
                if field.number == ENTRIES:
                    yield from _read_entry(_piece(scope, field), signal, known, names, budget)


def _read_entry(
    entry: bytes, signal: str, resource: RawResource, names: Mapping[str, OutcomeName], budget: FieldBudget
) -> Iterator[RawMetric]:
    if signal == "logs":
        if any(name in entry for name in NAMES.encoded[signal]):
            yield from _read_record(entry, resource, names, budget)
        return
    name = ""
    total: bytes | None = None
    for field in read_fields(entry, budget):
        if field.number == 1:
            name = _text(entry, field)
            if name not in names:
                return
        elif field.number == 7:
            total = _piece(entry, field)
    if name in names and total is not None:
        yield from _read_sum(name, total, resource, budget)


def _read_sum(name: str, message: bytes, resource: RawResource, budget: FieldBudget) -> Iterator[RawMetric]:
    points = []
    temporality = 0
    monotonic = False
    for field in read_fields(message, budget):
        if field.number == 1:
            points.append(_piece(message, field))
        elif field.number == 2:
            temporality = read_varint(message, field.value)[0]
        elif field.number == 3:
            monotonic = bool(read_varint(message, field.value)[0])
    if monotonic and temporality in (DELTA, CUMULATIVE):
        yield RawMetric(name, temporality, (_read_point(point, budget) for point in points), resource)


def _read_point(message: bytes, budget: FieldBudget) -> RawPoint:
    """Return a NumberDataPoint."""
    amount: float | None = None
    start = time = 0
    attributes: dict[str, str] = {}
    for field in read_fields(message, budget):
        if field.number == 7:
            attributes |= _read_pair(_piece(message, field), budget)
        elif field.number in (2, 3, 4, 6) and field.end - field.value == 8:
            (number,) = struct.unpack_from("<q" if field.number != 4 else "<d", message, field.value)
            if field.number == 2:
                start = number
            elif field.number == 3:
                time = number
            else:
                amount = number
    return RawPoint(amount, _micros(start), _micros(time), attributes)


def _micros(ns: int) -> int:
    """Return microseconds that both stores take."""
    return min(max(0, ns), MAX_NS) // NS_PER_US


def _read_record(
    message: bytes, resource: RawResource, names: Mapping[str, OutcomeName], budget: FieldBudget
) -> Iterator[RawMetric]:
    """Yield a LogRecord if it has a known name: its `event_name`, or the attribute that older exporters use."""
    time = observed = 0
    name = ""
    attributes: dict[str, str] = {}
    for field in read_fields(message, budget):
        if field.number == 6:
            attributes |= _read_pair(_piece(message, field), budget)
        elif field.number == 12:
            name = _text(message, field)
        elif field.number in (1, 11) and field.end - field.value == 8:
            (number,) = struct.unpack_from("<q", message, field.value)
            time, observed = (number, observed) if field.number == 1 else (time, number)
    yield from _named_record(name, _micros(time or observed), attributes, resource, names)


def _named_record(
    name: str, time_us: int, attributes: Attributes, resource: RawResource, names: Mapping[str, OutcomeName]
) -> Iterator[RawMetric]:
    named = next((known for known in (name, attributes.get(EVENT_NAME, "")) if known in names), "")
    if named:
        yield RawMetric(named, DELTA, iter([RawPoint(1, time_us, time_us, attributes)]), resource)


def _read_attributes(message: bytes, number: int, budget: FieldBudget) -> dict[str, str]:
    attributes: dict[str, str] = {}
    for field in read_fields(message, budget):
        if field.number == number and len(attributes) < MAX_ATTRIBUTES:
            attributes |= _read_pair(_piece(message, field), budget)
    return attributes


def _read_pair(message: bytes, budget: FieldBudget) -> dict[str, str]:
    """Return a KeyValue; a value that is no text, number or truth counts as empty."""
    key = value = ""
    for field in read_fields(message, budget):
        if field.number == 1:
            key = _text(message, field)
        elif field.number == 2:
            value = _read_value(_piece(message, field), budget)
    return {key: value}


def _read_value(message: bytes, budget: FieldBudget) -> str:
    for field in read_fields(message, budget):
        if field.number == STRING_VALUE:
            return _text(message, field)
        if field.number == BOOL_VALUE:
            return "true" if read_varint(message, field.value)[0] else "false"
        if field.number == INT_VALUE:
            return str(read_varint(message, field.value)[0])
    return ""


def _piece(message: bytes, field: ProtoField) -> bytes:
    """Return the value of a field that holds a message."""
    if field.tag & 7 != 2:
        raise malformed("protobuf")
    return message[field.value : field.end]


def _text(message: bytes, field: ProtoField) -> str:
    return _piece(message, field)[: 4 * MAX_TEXT].decode(errors="replace")[:MAX_TEXT]


# JSON: https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding


def _read_json(body: bytes, signal: str, names: Mapping[str, OutcomeName]) -> Iterator[RawMetric]:
    try:
        export = orjson.loads(body)
    except orjson.JSONDecodeError:
        raise malformed("JSON") from None
    groups = _list(_object(export), MEMBERS[signal])
    if len(groups) > MAX_RESOURCES:
        raise malformed("JSON")
    scopes_member, entries_member = ("scopeMetrics", "metrics") if signal == "metrics" else ("scopeLogs", "logRecords")
    for group in groups:
        resource = RawResource(_json_attributes(_object(group.get("resource") or {})))
        for scope in _list(group, scopes_member):
            for entry in _list(scope, entries_member):
                if signal == "logs":
                    time = _integer(entry.get("timeUnixNano")) or _integer(entry.get("observedTimeUnixNano"))
                    attributes = _json_attributes(entry)
                    name = _json_text(entry.get("eventName"))
                    yield from _named_record(name, _micros(time), attributes, resource, names)
                elif entry.get("name") in names:
                    yield from _json_sum(entry, resource)


def _json_sum(entry: dict[str, Any], resource: RawResource) -> Iterator[RawMetric]:
    total = _object(entry.get("sum") or {})
    given = total.get("aggregationTemporality")
    temporality = TEMPORALITIES.get(given, 0) if isinstance(given, str) else given
    if total.get("isMonotonic") is True and temporality in (DELTA, CUMULATIVE):
        points = (_json_point(point) for point in _list(total, "dataPoints"))
        yield RawMetric(entry["name"], temporality, points, resource)


def _json_point(point: dict[str, Any]) -> RawPoint:
    amount: float | None = None
    if "asInt" in point:
        amount = _integer(point["asInt"], None)
    elif isinstance(point.get("asDouble"), int | float):
        amount = point["asDouble"]
    start, time = (_micros(_integer(point.get(name))) for name in ("startTimeUnixNano", "timeUnixNano"))
    return RawPoint(amount, start, time, _json_attributes(point))


def _json_attributes(holder: dict[str, Any]) -> dict[str, str]:
    attributes = {}
    for pair in _list(holder, "attributes")[:MAX_ATTRIBUTES]:
        value = pair.get("value")
        attributes[_json_text(pair.get("key"))] = _json_value(value) if isinstance(value, dict) else ""
    return attributes


def _json_value(value: dict[str, Any]) -> str:
    if "boolValue" in value:
        return "true" if value["boolValue"] is True else "false"
    if "intValue" in value:
        return str(_integer(value["intValue"]))
    return _json_text(value.get("stringValue"))


def _json_text(value: Any) -> str:
    return value[:MAX_TEXT] if isinstance(value, str) else ""


def _integer(value: Any, otherwise: Any = 0) -> Any:
    """Return a whole number, which is a number or a string of digits."""
    if isinstance(value, str) and len(value) <= MAX_INTEGER_DIGITS:
        try:
            return int(value)
        except ValueError:
            return otherwise
    return value if isinstance(value, int) and not isinstance(value, bool) else otherwise


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise malformed("JSON")
    return value


def _list(holder: dict[str, Any], member: str) -> list[dict[str, Any]]:
    listed = holder.get(member) or []
    if not isinstance(listed, list) or not all(isinstance(entry, dict) for entry in listed):
        raise malformed("JSON")
    return listed
