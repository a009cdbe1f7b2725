"""Managed settings are validated, merged and identified by the checksum that agents compute themselves."""

import hashlib

import pytest

from gateway.accounts import audit, teams
from gateway.accounts.managed_settings import (
    MAX_BYTES,
    checksum_of,
    find_settings,
    merge,
    read_settings,
    remove_settings,
    set_settings,
    settings_of,
)
from gateway.errors import InvalidRequest

BY = {"actor": "operator"}


@pytest.fixture
def at(company):
    return company.database, company.control


def sha256(text: str) -> str:
    return "sha256:" + hashlib.sha256(text.encode()).hexdigest()


# Each text is what Node's JSON.stringify writes for the settings with sorted members.
@pytest.mark.parametrize(
    ("settings", "text"),
    [
        ({}, "{}"),
        (
            {"b": [1, {"y": None, "x": True}], "a": "\u00e4/\u2028\u007f"},
            '{"a":"\u00e4/\u2028\u007f","b":[1,{"x":true,"y":null}]}',
        ),
        ({"10": 1, "9": 2, "a": 3, "01": 4}, '{"9":2,"10":1,"01":4,"a":3}'),
        ({"\ufb01": 1, "\U0001f680": 2}, '{"\U0001f680":2,"\ufb01":1}'),
        ({"text": '"\\\n\t\b\f\r\u0001'}, '{"text":"\\"\\\\\\n\\t\\b\\f\\r\\u0001"}'),
    ],
)
def test_the_checksum_is_that_of_json_with_sorted_members_as_agents_write_it(settings, text) -> None:
    assert checksum_of(settings) == sha256(text)


@pytest.mark.parametrize(
    "settings",
    [
        [],
        "text",
        {"number": 1.5},
        {"number": 1 << 53},
        {"text": "\ud800"},
        {"\udfff": 1},
        {"text": "x" * MAX_BYTES},
        {"list": [0] * 6_000},
    ],
)
def test_settings_that_agents_would_read_differently_are_refused(settings) -> None:
    with pytest.raises(InvalidRequest):
        read_settings(settings)


def test_settings_that_are_nested_too_deeply_are_refused() -> None:
    nested: dict = {}
    for _ in range(40):
        nested = {"more": nested}
    with pytest.raises(InvalidRequest):
        read_settings(nested)


def test_whole_numbers_are_stored_as_javascript_writes_them() -> None:
    assert read_settings({"days": 30.0}) == '{"days":30}'


def test_a_team_adds_to_lists_and_objects_and_replaces_other_values() -> None:
    base = {"permissions": {"deny": ["WebFetch"], "defaultMode": "plan"}, "model": "a"}
    more = {"permissions": {"deny": ["WebFetch", "Bash"]}, "model": "b", "env": {"A": "1"}}
    assert merge(base, more) == {
        "permissions": {"deny": ["WebFetch", "Bash"], "defaultMode": "plan"},
        "model": "b",
        "env": {"A": "1"},
    }


def test_a_member_gets_the_settings_of_the_organization_and_the_chosen_team(company, at) -> None:
    database, organization_id = company.database, company.organization_id
    team = teams.create_team(*at, organization_id, "Research", **BY)
    teams.set_team_member(*at, team.id, company.member_id, True, **BY)
    assert settings_of(database, organization_id, team.id, company.member_id) is None
    set_settings(*at, organization_id, team.id, {"model": "b"}, **BY)
    assert settings_of(database, organization_id, "", company.member_id) is None
    set_settings(*at, organization_id, organization_id, {"model": "a", "env": {}}, **BY)
    own = settings_of(database, organization_id, "", company.member_id)
    of_team = settings_of(database, organization_id, team.id, company.member_id)
    assert own.settings == {"model": "a", "env": {}} and of_team.settings == {"model": "b", "env": {}}
    assert own.uuid != of_team.uuid and own.checksum != of_team.checksum
    teams.set_team_member(*at, team.id, company.member_id, False, **BY)
    assert settings_of(database, organization_id, team.id, company.member_id).settings == own.settings
    teams.delete_team(*at, organization_id, team.id, **BY)
    assert find_settings(database, team.id).settings is None


def test_changes_are_audited_without_their_content(company, at) -> None:
    organization_id = company.organization_id
    set_settings(*at, organization_id, organization_id, {"env": {"TOKEN": "secret"}}, **BY)
    assert find_settings(company.database, organization_id).settings == {"env": {"TOKEN": "secret"}}
    remove_settings(*at, organization_id, organization_id, **BY)
    remove_settings(*at, organization_id, organization_id, **BY)
    entries = [entry for entry in audit.list_entries(company.database) if entry.action.startswith("managed_settings.")]
    assert sorted(entry.action for entry in entries) == ["managed_settings.delete", "managed_settings.update"]
    assert "secret" not in "".join(entry.detail for entry in entries)
