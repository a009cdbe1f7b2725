"""The document of a route is read strictly, and says where it is wrong."""

import json
from typing import Any

import msgspec
import pytest

from gateway.errors import InvalidRequest
from gateway.routes.route_document import (
    MAX_RULES,
    MAX_STARS,
    RouteDocument,
    load_document,
    load_stored,
    read_document,
    write_document,
)
from gateway.routes.route_sentences import sentences_of

EVERYTHING: dict[str, Any] = {
    "rules": [
        {
            "name": "night",
            "when": {
                "headers": {"x-team": ["search", "ads-*"]},
                "body": {"metadata.tier": "gold", "stream": [True, False]},
                "keys": ["key_1"],
                "teams": ["team_1"],
                "projects": ["proj_1"],
                "applications": ["codex"],
                "agent": "sub",
                "turns": ["title"],
                "tools": ["Bash", "mcp__*"],
                "promptTokens": {"atLeast": 1_000, "below": 200_000},
                "images": False,
                "hours": {"from": "22:00", "to": "06:00", "zone": "Europe/Berlin", "days": ["mon"]},
                "budget": {"atLeast": 80, "limit": "team-month"},
                "difficulty": ["small"],
                "unless": {"tools": False},
            },
            "use": ["a", "b"],
        },
        {"use": {"split": {"a": 90, "b": 10}}},
    ],
    "otherwise": "c",
    "reference": "d",
    "keepSession": False,
}


def test_every_condition_and_target_is_read_and_written_back() -> None:
    document = read_document(EVERYTHING)
    assert load_document(write_document(document)) == document
    assert list(document.models()) == ["a", "b", "c", "d"]
    first, second, last = sentences_of(document)
    assert first.startswith("night: the key key_1 and a team of team_1") and first.endswith("→ a, then b")
    assert "80 % of the limit team-month is used" in first and "not (no tools are offered)" in first
    assert (second, last) == ("2. always → a for 90 %, b for 10 %", "otherwise → c")


def test_a_route_of_a_later_release_is_read_without_the_rules_that_are_unknown() -> None:
    later = json.dumps(
        {
            **EVERYTHING,
            "priority": 7,
            "judge": {"model": "m", "votes": 3},
            "rules": [*EVERYTHING["rules"], {"use": "e", "when": {"weather": "rain"}}, {"use": {"best": ["f"]}}],
        }
    )
    assert load_document(later) == read_document(EVERYTHING)
    stored = load_stored(later)
    assert stored.document == read_document(EVERYTHING) and stored.value == json.loads(later)
    count = len(EVERYTHING["rules"])
    assert stored.left_out == ("priority", "judge", f"rules.{count}", f"rules.{count + 1}")
    with pytest.raises(msgspec.ValidationError):
        load_document(json.dumps({"rules": [], "otherwise": {"best": ["f"]}}))


@pytest.mark.parametrize("rules", [None, 5, "none", {"first": {"use": "b"}}])
def test_rules_of_a_later_release_in_another_form_are_left_out(rules: object) -> None:
    stored = load_stored(json.dumps({"rules": rules, "otherwise": "a"}))
    assert (stored.document, stored.left_out) == (RouteDocument("a"), ("rules",))
    unread = load_stored(json.dumps({"rules": rules, "otherwise": {"best": ["a"]}}))
    assert (unread.document, set(unread.left_out)) == (None, {"rules", "otherwise"})


def within(when: object) -> dict[str, object]:
    return {"rules": [{"when": when, "use": "a"}], "otherwise": "a"}


@pytest.mark.parametrize(
    ("value", "place"),
    [
        ({}, "document"),
        ([], "document"),
        ({"otherwise": ""}, "document.otherwise"),
        ({"otherwise": []}, "document.otherwise"),
        ({"otherwise": ["a"] * 9}, "document.otherwise"),
        ({"otherwise": {"split": {"a": 0}}}, "document.otherwise.split"),
        ({"otherwise": {"split": {"a": -1, "b": 2}}}, "document.otherwise.split"),
        ({"otherwise": "a", "rules": [{"use": "a"}] * (MAX_RULES + 1)}, "document.rules"),
        ({"otherwise": "a", "rules": [{"use": "a", "name": "x"}] * 2}, "document.rules.1.name"),
        ({"otherwise": "a", "mood": "good"}, "document"),
        (within({"weather": "fine"}), "document.rules.0.when"),
        (within({"difficulty": ["huge"]}), "document.rules.0.when.difficulty.0"),
        (within({"headers": {"Authorization": "*"}}), "document.rules.0.when.headers"),
        (within({"headers": {"x-api-key": "*"}}), "document.rules.0.when.headers"),
        (within({"body": {"a.b.c.d.e": 1}}), "document.rules.0.when.body"),
        (within({"keys": ["x"] * 101}), "document.rules.0.when.keys"),
        (within({"promptTokens": {}}), "document.rules.0.when.promptTokens"),
        (within({"promptTokens": {"atLeast": 5, "below": 5}}), "document.rules.0.when.promptTokens"),
        (within({"budget": {"atLeast": -1}}), "document.rules.0.when.budget"),
        (within({"hours": {"from": "25:00"}}), "document.rules.0.when.hours.from"),
        (within({"hours": {"zone": "Mars/Olympus"}}), "document.rules.0.when.hours.zone"),
        (within({"hours": {"zone": "../../etc/passwd"}}), "document.rules.0.when.hours.zone"),
        (within({"unless": {"unless": {"tools": True}}}), "document.rules.0.when.unless.unless"),
        ({"otherwise": "a" * 70_000}, "document"),
    ],
)
def test_a_fault_is_refused_with_its_place(value: object, place: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        read_document(value)
    assert (caught.value.param, caught.value.code) == (place, "route_invalid")


@pytest.mark.parametrize("place", ["tools", "applications", "unless"])
def test_patterns_that_each_tool_of_a_request_is_compared_with_are_few(place: str) -> None:
    def document(stars: int) -> dict[str, object]:
        when = {"tools" if place == "unless" else place: ["*a" * 10] * (stars // 20)}
        rule = {"when": {"unless": when} if place == "unless" else when, "use": "a"}
        return {"rules": [rule, rule], "otherwise": "b"}

    assert read_document(document(MAX_STARS))
    with pytest.raises(InvalidRequest, match="200 times"):
        read_document(document(MAX_STARS + 20))
