"""Rules of guardrails and their findings in both stores."""

import pytest

from gateway.accounts import guardrail_changes, keys, projects
from gateway.callers.models import Audit, GuardrailFinding
from gateway.clock import DAY_US
from gateway.errors import InvalidRequest
from gateway.guardrails.rule_sets import GuardrailRule, RuleSet


def test_findings_are_counted_by_day_rule_kind_and_place(company, monkeypatch) -> None:
    now = company.database.now_us()
    rows = [
        {
            "request_id": f"r{number}", "rule": "guard_1", "kind": kind, "place": "prompt", "action": "mask",
            "organization": organization, "project": "proj", "api_key": "key", "count": 3, "at": now - days * DAY_US,
        }
        for number, (kind, organization, days) in enumerate(
            [("email", company.organization_id, 0), ("email", company.organization_id, 0),
             ("iban", company.organization_id, 1), ("email", company.organization_id, 9), ("email", "org_other", 0)]
        )
    ]  # fmt: skip
    company.database.write(lambda: GuardrailFinding.insert_many(rows).execute())
    counts, complete = guardrail_changes.count_findings(company.database, company.organization_id, 5)
    assert complete
    assert [(one.day, one.kind, one.requests, one.values) for one in counts] == [
        (now // DAY_US, "email", 2, 6),
        (now // DAY_US - 1, "iban", 1, 3),
    ]
    monkeypatch.setattr(guardrail_changes, "MAX_COUNTS", 1)
    newest = guardrail_changes.count_findings(company.database, company.organization_id, 5)
    assert newest == (counts[:1], False)


def test_rule_is_stored_changed_and_removed_with_all_of_its_members(company) -> None:
    stores = (company.database, company.control)
    rule = GuardrailRule(
        "",
        "Mask",
        "mask",
        ("email",),
        ("Falcon",),
        ("x[0-9]+",),
        ("prompt", "answer"),
        ("gpt-*",),
        "refuse",
        "ops",
        True,
    )
    place = (company.organization_id, "organization", company.organization_id)
    stored = guardrail_changes.add_guardrail(*stores, *place, rule, active=True, actor="operator")
    changed = guardrail_changes.change_guardrail(
        *stores, company.organization_id, stored.id, {"action": "block", "probation": False}, False, actor="operator"
    )
    assert (changed.rule.action, changed.rule.probation, changed.active) == ("block", False, False)
    assert changed.rule.terms == ("Falcon",) and changed.rule.places == ("prompt", "answer")
    guardrail_changes.remove_guardrail(*stores, company.organization_id, stored.id, actor="operator")
    assert guardrail_changes.list_guardrails(company.database, company.organization_id) == []


@pytest.mark.parametrize(("given", "after"), [({}, "refuse"), ({"unread": "pass"}, "pass")])
def test_unread_content_follows_a_changed_action_unless_it_was_set(company, given, after) -> None:
    stores = (company.database, company.control)
    place = (company.organization_id, "organization", company.organization_id)
    rule = GuardrailRule("", "Mask", "mask", ("email",), **given)
    stored = guardrail_changes.add_guardrail(*stores, *place, rule, active=True, actor="operator")
    changed = guardrail_changes.change_guardrail(
        *stores, company.organization_id, stored.id, {"action": "block"}, None, actor="operator"
    )
    refusing = RuleSet([changed.rule], str).refusing(inputs=True)
    assert (stored.rule.on_unread, changed.rule.on_unread, refusing is not None) == ("pass", after, after == "refuse")


def test_rules_of_deleted_keys_and_archived_projects_leave_room_for_others(company, monkeypatch) -> None:
    monkeypatch.setattr(guardrail_changes, "MAX_GUARDRAILS", 2)
    stores = (company.database, company.control)
    organization_id = company.organization_id

    def add(scope: str, scope_id: str) -> str:
        rule = GuardrailRule("", "Mask", "mask", ("email",))
        return guardrail_changes.add_guardrail(
            *stores, organization_id, scope, scope_id, rule, active=True, actor="operator"
        ).id

    def listed() -> list[str]:
        return [entry.id for entry in guardrail_changes.list_guardrails(company.database, organization_id)]

    key_id = company.make_key().info.id
    of_key, of_project = add("key", key_id), add("project", company.project_id)
    with pytest.raises(InvalidRequest, match="at most 2 guardrails"):
        add("organization", organization_id)
    keys.delete(*stores, key_id, actor="operator")
    of_all = add("organization", organization_id)
    assert listed() == [of_project, of_all]
    entries = company.database.read(lambda: [(row.action, row.subject) for row in Audit.select()])
    assert ("guardrail.delete", of_key) in entries
    with pytest.raises(InvalidRequest, match="at most 2 guardrails"):
        add("organization", organization_id)
    projects.update_project(*stores, company.project_id, projects.ProjectChange(status="archived"), actor="operator")
    newest = add("organization", organization_id)
    assert listed() == [of_project, of_all, newest]
    monkeypatch.setattr(guardrail_changes, "MAX_STORED", 3)
    with pytest.raises(InvalidRequest, match="at most 3 guardrails"):
        add("organization", organization_id)


def test_own_patterns_of_all_rules_of_an_organization_are_bounded(company, monkeypatch) -> None:
    monkeypatch.setattr(guardrail_changes, "MAX_PATTERNS", 3)
    stores = (company.database, company.control)
    place = (company.organization_id, "organization", company.organization_id)

    def add(*patterns: str):
        rule = GuardrailRule("", "Own", "log", patterns=patterns)
        return guardrail_changes.add_guardrail(*stores, *place, rule, active=False, actor="operator")

    stored = add("a1", "b1")
    with pytest.raises(InvalidRequest, match="at most 3 own patterns"):
        add("c1", "d1")
    add("c1")
    with pytest.raises(InvalidRequest, match="this makes 4"):
        change = {"patterns": ("a1", "b1", "e1")}
        guardrail_changes.change_guardrail(*stores, company.organization_id, stored.id, change, None, actor="operator")
