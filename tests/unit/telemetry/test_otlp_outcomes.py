"""Outcomes are read from exports of metrics and logs, in protobuf and JSON, whatever else is in them."""

import json
import math
import time
import tracemalloc
from contextlib import suppress
from hashlib import blake2b

import pytest
from hypothesis import given
from hypothesis import strategies as st
from support.agent_telemetry import CUMULATIVE, MetricExport, log_export

from gateway.errors import InvalidRequest
from gateway.metering.outcomes.names import NAMES, OutcomeNames
from gateway.telemetry import otlp_outcomes
from gateway.telemetry.otlp_outcomes import MAX_VALUE, read_outcomes
from gateway.telemetry.protobuf_fields import TooManyFields

NOW_US = 1_790_000_000_000_000
SESSION = "7a1b8c1e-3f0b-4f4e-9d2c-1f4c2d9e8a77"
FORMS = ("protobuf", "json")


def read(export: MetricExport, form: str) -> list[tuple]:
    points = (
        read_outcomes(export.protobuf, "metrics", False)
        if form == "protobuf"
        else read_outcomes(json.dumps(export.json).encode(), "metrics", True)
    )
    return [(point.agent, point.outcome, point.amount, point.session, point.model) for point in points]


def claude(**more: str) -> dict[str, str]:
    return {"session__id": SESSION, "user__id": "u", **more}


@pytest.mark.parametrize("form", FORMS)
def test_each_outcome_of_claude_code_is_read(form: str) -> None:
    export = MetricExport(NOW_US - 1000, NOW_US)
    export.add("claude_code.session.count", 1, **claude(start_type="fresh"))
    export.add("claude_code.commit.count", 2.0, **claude())
    export.add("claude_code.pull_request.count", 1, **claude())
    export.add("claude_code.lines_of_code.count", 12, **claude(type="added", model="claude-opus"))
    export.add("claude_code.lines_of_code.count", 3, **claude(type="removed"))
    export.add("claude_code.code_edit_tool.decision", 4, **claude(decision="accept", tool_name="Edit"))
    export.add("claude_code.code_edit_tool.decision", 1, **claude(decision="reject", tool_name="Write"))
    export.add("claude_code.active_time.total", 1.5, **claude(type="cli"))
    export.add("claude_code.token.usage", 900, **claude(type="input"))
    export.add("claude_code.cost.usage", 0.5, **claude())
    assert read(export, form) == [
        ("claude-code", "sessions", 1, SESSION, ""),
        ("claude-code", "commits", 2, SESSION, ""),
        ("claude-code", "pull_requests", 1, SESSION, ""),
        ("claude-code", "lines_added", 12, SESSION, "claude-opus"),
        ("claude-code", "lines_removed", 3, SESSION, ""),
        ("claude-code", "edits_accepted", 4, SESSION, ""),
        ("claude-code", "edits_rejected", 1, SESSION, ""),
        ("claude-code", "active_ms", 1500, SESSION, ""),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_gemini_cli_counts_the_decisions_on_edits_alone(form: str) -> None:
    export = MetricExport(NOW_US - 1000, NOW_US, CUMULATIVE)
    for function, decision, amount in (
        ("replace", "accept", 1),
        ("write_file", "auto_accept", 2),
        ("edit", "modify", 3),
        ("write_file", "reject", 4),
        ("read_file", "accept", 5),
        ("replace", "", 6),
    ):
        export.add("gemini_cli.tool.call.count", amount, function_name=function, decision=decision, success=True)
    assert [(outcome, amount) for _, outcome, amount, *_ in read(export, form)] == [
        ("edits_accepted", 1),
        ("edits_accepted", 2),
        ("edits_accepted", 3),
        ("edits_rejected", 4),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_an_edit_of_gemini_cli_that_failed_changed_nothing(form: str) -> None:
    export = MetricExport(NOW_US - 1000, NOW_US, CUMULATIVE)
    for success, decision, amount in ((True, "accept", 1), (False, "accept", 2), (False, "reject", 4)):
        export.add("gemini_cli.tool.call.count", amount, function_name="replace", decision=decision, success=success)
    assert [(outcome, amount) for _, outcome, amount, *_ in read(export, form)] == [
        ("edits_accepted", 1),
        ("edits_rejected", 4),
    ]


def test_a_full_export_of_codex_is_read() -> None:
    """Its exporter sends 512 records at once, nearly all of them events of streams."""
    more = {f"attribute.{number}": "some text" for number in range(25)}
    stream = {"event.name": "codex.sse_event", **more}
    decision = {"event.name": "codex.tool_decision", "tool_name": "apply_patch", "decision": "approved", **more}
    body = log_export(NOW_US, *[stream] * 500, *[decision] * 12).SerializeToString()
    assert [point.outcome for point in read_outcomes(body, "logs", False)] == ["edits_accepted"] * 12


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("point", "resource", "expected"),
    [
        ({"vcs__repository__name": "house", "vcs__owner__name": "acme"}, {}, "acme/house"),
        ({}, {"vcs.repository.name": "house", "vcs.owner.name": "acme"}, "acme/house"),
        ({"vcs__repository__name": "house"}, {}, "house"),
        ({"vcs__owner__name": "acme"}, {}, ""),
        ({"vcs__repository__name": "h\0" * 100}, {}, "h\N{REPLACEMENT CHARACTER}" * 100),
        # No name is so long; of an address that was cut, the end of the password may be missing.
        ({"vcs__repository__name": "h" * 500}, {}, ""),
        ({"vcs__repository__name": "house", "vcs__owner__name": "https://u:" + "p" * 300 + "@host"}, {}, ""),
        ({"vcs__repository__name": "a" * 250, "vcs__owner__name": "b" * 250}, {}, "b" * 250 + "/aaaa"),
    ],
)
def test_the_repository_has_the_names_of_opentelemetry(
    form: str, point: dict[str, str], resource: dict[str, str], expected: str
) -> None:
    export = MetricExport(NOW_US - 1000, NOW_US, **resource).add("claude_code.commit.count", 1, **point)
    body = export.protobuf if form == "protobuf" else json.dumps(export.json).encode()
    (found,) = read_outcomes(body, "metrics", form == "json")
    assert found.repository == expected


def test_a_series_keeps_its_name_from_one_version_to_the_next() -> None:
    """Otherwise all that running agents had reported would count again after an upgrade."""
    export = MetricExport(NOW_US, NOW_US + 5, CUMULATIVE, **{"host.name": "h"})
    (point,) = read_outcomes(export.add("claude_code.commit.count", 1, model="m").protobuf, "metrics", False)
    parts = ["claude_code.commit.count", str(NOW_US), "host.name\0h", "service.name\0agent", "", "model\0m", ""]
    assert point.series == blake2b("\1".join(parts).encode(), digest_size=16).digest()


@pytest.mark.parametrize("form", FORMS)
def test_the_attributes_of_a_resource_are_hashed_once_for_all_of_its_points(form: str, monkeypatch) -> None:
    sizes: list[int] = []
    written = otlp_outcomes._series_text
    monkeypatch.setattr(otlp_outcomes, "_series_text", lambda given: sizes.append(len(given)) or written(given))
    export = MetricExport(NOW_US, NOW_US, CUMULATIVE, **{f"k{number}": "x" * 255 for number in range(100)})
    for number in range(50):
        export.add("claude_code.commit.count", 1, model=str(number))
    assert len(read(export, form)) == 50
    assert [size for size in sizes if size > 50] == [101]


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    ("name", "starts", "amount"),
    [
        ("claude_code.commit.count", False, 1),
        ("claude_code.commit.count", True, 1),
        ("claude_code.commit.count", False, -1),
        ("claude_code.token.usage", False, 1),
    ],
)
def test_a_large_export_takes_little_time_and_memory(form: str, name: str, starts: bool, amount: int) -> None:
    """50,000 points, long attributes, and a start for each point."""
    export = MetricExport(NOW_US, NOW_US, CUMULATIVE, **{f"k{number}": "x" * 1_000 for number in range(128)})
    group = export.add(name, amount)._scope.metrics[0].sum
    first = group.data_points[0]
    for _ in range(15_000 if form == "json" else 50_000):
        first.start_time_unix_nano += 1_000 * starts
        group.data_points.append(first)
    body = export.protobuf if form == "protobuf" else json.dumps(export.json).encode()
    tracemalloc.start()
    began = time.process_time()
    with suppress(InvalidRequest):
        assert read_outcomes(body, "metrics", form == "json") == []
    took_s, (_, peak) = time.process_time() - began, tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert took_s < 5 and peak < 60_000_000, (took_s, peak)


@pytest.mark.parametrize("form", FORMS)
def test_a_few_points_too_many_drop_the_export_and_not_the_sender(form: str) -> None:
    export = MetricExport(NOW_US, NOW_US)
    for _ in range(otlp_outcomes.MAX_POINTS + 1):
        export.add("claude_code.commit.count", 1)
    with pytest.raises(TooManyFields):
        read(export, form)


@pytest.mark.parametrize("form", FORMS)
def test_codex_counts_by_its_log_events(form: str) -> None:
    message = log_export(
        NOW_US,
        {"event.name": "codex.conversation_starts", "conversation.id": SESSION, "model": "gpt-5.3-codex"},
        {"event.name": "codex.tool_decision", "tool_name": "apply_patch", "decision": "approved"},
        {"event.name": "codex.tool_decision", "tool_name": "apply_patch", "decision": "denied"},
        {"event.name": "codex.tool_decision", "tool_name": "exec_command", "decision": "approved"},
        {"event.name": "codex.user_prompt", "prompt": "secret"},
    )
    if form == "json":
        from google.protobuf.json_format import MessageToJson

        points = read_outcomes(MessageToJson(message).encode(), "logs", True)
    else:
        points = read_outcomes(message.SerializeToString(), "logs", False)
    assert [(point.outcome, point.amount) for point in points] == [
        ("sessions", 1),
        ("edits_accepted", 1),
        ("edits_rejected", 1),
    ]
    assert (points[0].session, points[0].model, points[0].series) == (SESSION, "gpt-5.3-codex", b"")
    assert points[0].time_us == NOW_US


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("amount", [math.nan, math.inf, -math.inf, -1, -0.5, MAX_VALUE + 1, 1e300])
def test_numbers_that_are_no_count_are_left_out(form: str, amount: float) -> None:
    export = MetricExport(NOW_US - 1000, NOW_US)
    export.add("claude_code.commit.count", amount).add("claude_code.commit.count", 1)
    assert [found[2] for found in read(export, form)] == [1]


@pytest.mark.parametrize("form", FORMS)
def test_a_sum_that_may_fall_is_no_counter(form: str) -> None:
    export = MetricExport(NOW_US - 1000, NOW_US)
    assert read(export.add("claude_code.commit.count", 1, monotonic=False), form) == []


@pytest.mark.parametrize("form", FORMS)
def test_the_session_may_be_an_attribute_of_the_resource(form: str) -> None:
    export = MetricExport(NOW_US - 1000, NOW_US, **{"session.id": SESSION})
    assert read(export.add("gemini_cli.session.count", 1), form) == [("gemini-cli", "sessions", 1, SESSION, "")]


def test_a_session_with_other_characters_is_stored_as_a_digest() -> None:
    export = MetricExport(NOW_US - 1000, NOW_US)
    export.add("claude_code.commit.count", 1, session__id="a\0b" * 100)
    ((_, _, _, session, _),) = read(export, "protobuf")
    assert len(session) == 32


def test_series_differ_by_start_resource_and_attributes_alone() -> None:
    def series(start_us: int = NOW_US, model: str = "m", host: str = "h", amount: int = 1) -> bytes:
        export = MetricExport(start_us, NOW_US + amount, CUMULATIVE, **{"host.name": host})
        (point,) = read_outcomes(export.add("claude_code.commit.count", amount, model=model).protobuf, "metrics", False)
        return point.series

    assert series() == series(amount=5)
    assert len({series(), series(start_us=NOW_US + 1), series(model="n"), series(host="i")}) == 4


def test_protobuf_and_json_of_one_series_agree() -> None:
    export = MetricExport(NOW_US, NOW_US + 5, CUMULATIVE).add("claude_code.commit.count", 1, **claude())
    (first,) = read_outcomes(export.protobuf, "metrics", False)
    (second,) = read_outcomes(json.dumps(export.json).encode(), "metrics", True)
    assert first == second


def test_an_export_with_too_many_points_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_outcomes, "MAX_POINTS", 2)
    export = MetricExport(NOW_US - 1000, NOW_US)
    for _ in range(3):
        export.add("claude_code.commit.count", 1)
    with pytest.raises(TooManyFields):
        read_outcomes(export.protobuf, "metrics", False)


def test_unknown_metrics_cost_no_fields(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(otlp_outcomes, "MAX_FIELDS", 200)
    export = MetricExport(NOW_US - 1000, NOW_US)
    for _ in range(50):
        export.add("claude_code.token.usage", 1, **claude(type="input"))
    assert read(export.add("claude_code.commit.count", 1), "protobuf") == [("claude-code", "commits", 1, "", "")]


def test_traces_have_no_outcomes() -> None:
    assert read_outcomes(b"\xff", "traces", False) == []


@pytest.mark.parametrize("body", [b"\xff", b"\x0a\xff", b"\x0a\x02\x12\x05"])
def test_malformed_protobuf_is_refused(body: bytes) -> None:
    with pytest.raises(InvalidRequest, match="protobuf"):
        read_outcomes(body, "metrics", False)


@pytest.mark.parametrize(
    "export",
    [
        "x",
        [],
        {"resourceMetrics": 1},
        {"resourceMetrics": [1]},
        {"resourceMetrics": [{"scopeMetrics": [{"metrics": [{"name": "claude_code.commit.count", "sum": []}, 1]}]}]},
    ],
)
def test_malformed_json_is_refused(export: object) -> None:
    with pytest.raises(InvalidRequest, match="JSON"):
        read_outcomes(json.dumps(export).encode(), "metrics", True)


JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["asInt", "asDouble", "attributes", "key", "value", "timeUnixNano", "stringValue", "x"]),
            inner,
            max_size=4,
        )
    ),
    max_leaves=10,
)


@given(JSON_VALUES)
def test_hostile_points_are_refused_or_left_out(point: object) -> None:
    total = {"aggregationTemporality": 2, "isMonotonic": True, "dataPoints": [point]}
    metric = {"name": "claude_code.commit.count", "sum": total}
    body = json.dumps({"resourceMetrics": [{"scopeMetrics": [{"metrics": [metric]}]}]}).encode()
    try:
        points = read_outcomes(body, "metrics", True)
    except InvalidRequest:
        return
    assert all(0 <= found.amount <= MAX_VALUE and 0 <= found.time_us < 2**63 for found in points)


@given(st.binary(max_size=200))
def test_hostile_bytes_are_refused_or_left_out(tail: bytes) -> None:
    body = MetricExport(NOW_US - 1000, NOW_US).add("claude_code.commit.count", 1).protobuf + tail
    for signal in ("metrics", "logs"):
        try:
            read_outcomes(body, signal, False)
        except InvalidRequest:
            continue


def test_a_name_must_count_a_known_outcome() -> None:
    agent = {"id": "a", "name": "A", "session": [], "model": [], "metric": [{"name": "m", "outcome": "poems"}]}
    with pytest.raises(ValueError, match="poems"):
        OutcomeNames([agent])
    assert set(NAMES.agents) == {"claude-code", "gemini-cli", "codex"}
