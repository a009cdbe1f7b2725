"""Guardrails by the page for people and by the management API."""

import re

import pytest

from gateway.surfaces.console import guardrail_pages

EMAIL, PASSWORD = "owner@localhost", "correct horse battery"
OWN = {"Origin": "http://localhost"}
FIELD = re.compile(r'name="(\w+)" value="([^"]*)"')
PATH = "/console/guardrails"


@pytest.fixture
def browser(shared_tenants):
    found = shared_tenants.gateway.app.flask.test_client()
    found.post("/console/login", data={"email": EMAIL, "password": PASSWORD, "redirect": "/console"}, headers=OWN)
    return found


def test_page_adds_tests_changes_and_removes_a_guardrail(browser) -> None:
    page = browser.get(PATH)
    assert page.status_code == 200
    hidden = {name: value for name, value in FIELD.findall(page.text) if name in ("csrf", "organization")}

    def press(action: str, **more: str):
        return browser.post(PATH, data={**hidden, "action": action, **more}, headers=OWN)

    added = press(
        "add", name="No cards", action_of_rule="block", detectors="payment_card", terms="Falcon", in_prompt="on"
    )
    assert "The guardrail was added" in added.text
    assert "Block the request: payment_card, 1 own term in prompts" in added.text
    rule = re.findall(r'name="rule" value="([^"]+)"', added.text)[-1]
    tested = press("check", text="Pay with 4111 1111 1111 1111", place="prompt")
    assert "The request would be blocked." in tested.text and "No cards: payment_card (block)" in tested.text
    excepted = press("except", rule=rule, value="4111 1111 1111 1111")
    assert "1 exception<" in excepted.text
    assert "No guardrail finds anything" in press("check", text="Pay with 4111 1111 1111 1111").text
    assert "on probation" in press("probation", rule=rule, probation="False").text
    assert "inactive" in press("switch", rule=rule, status="active").text
    refused = press("add", name="Broken", action_of_rule="log", patterns="(")
    assert refused.status_code == 400 and "RE2 cannot read the pattern" in refused.text
    removed = press("remove", rule=rule)
    assert "The guardrail was removed" in removed.text and rule not in removed.text


def test_guardrail_needs_something_to_look_for_and_a_place_of_the_organization(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    for body in (
        {"name": "x", "action": "log"},
        {"name": "x", "action": "log", "detectors": ["nothing"]},
        {"name": "x", "action": "log", "detectors": ["email"], "places": ["moon"]},
        {"name": "x", "action": "log", "detectors": ["email"], "places": []},
        {"name": "x", "action": "log", "detectors": ["email"], "unknown": 1},
    ):
        assert shared_tenants.call("POST", path, owner, body)[0] == 400, body
    elsewhere = {"name": "x", "action": "log", "detectors": ["email"], "scope": "project", "scopeId": "proj_other"}
    assert shared_tenants.call("POST", path, owner, elsewhere)[0] == 404


def test_rule_that_blocks_refuses_what_it_cannot_read_unless_it_says_otherwise(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    for action, unread in (("block", "refuse"), ("mask", "pass"), ("log", "pass")):
        made = shared_tenants.ok("POST", path, owner, {"name": "x", "action": action, "detectors": ["email"]})
        assert made["guardrail"]["unread"] == unread
        shared_tenants.ok("DELETE", f"{path}/{made['guardrail']['id']}", owner)


def test_checker_of_a_guardrail_is_set_changed_and_shown_without_its_credential(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    body = {
        "name": "People", "action": "mask", "checker": "webhook", "address": "https://guard.example.com/check",
        "credential": "whsec_c2VjcmV0LW9mLXRoZS10ZXN0", "timeoutMs": 500,
    }  # fmt: skip
    made = shared_tenants.ok("POST", path, owner, body)["guardrail"]
    assert made["checker"] == {
        "form": "webhook",
        "address": "https://guard.example.com/check",
        "settings": [],
        "timeoutMs": 500,
        "onFailure": "block",
        "streaming": "window",
        "hasCredential": True,
    }
    rule = f"{path}/{made['id']}"
    status, moved = shared_tenants.call("PATCH", rule, owner, {"address": "https://thief.example.com/"})
    assert (status, "credential again" in str(moved)) == (400, True)
    both = {"address": "https://other.example.com/", "credential": "another-secret", "onFailure": "warn"}
    changed = shared_tenants.ok("PATCH", rule, owner, both)["guardrail"]
    assert (changed["checker"]["address"], changed["checker"]["onFailure"]) == ("https://other.example.com/", "warn")
    entries = shared_tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)
    for shown in (made, changed, entries):
        assert "another-secret" not in str(shown) and "whsec_" not in str(shown)
    assert shared_tenants.call("POST", f"{rule}/replay", owner, {"days": 1})[0] == 400
    shared_tenants.ok("DELETE", rule, owner)


def test_checker_that_is_not_complete_is_refused(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    presidio = {"checker": "presidio", "address": "https://presidio.example.com"}
    for members, message in (
        ({"checker": "nobody"}, "checker"),
        ({"checker": "presidio"}, "needs its address"),
        (presidio | {"detectors": ["email"]}, "either a checker or detectors"),
        (presidio | {"settings": ["language=english"]}, "ISO 639-1"),
        (presidio | {"address": "ftp://x"}, "http or https"),
        (presidio | {"timeoutMs": 5}, "timeoutMs"),
        ({"address": "https://presidio.example.com"}, "belongs to a checker"),
        ({"checker": "lakera_guard"}, "needs a credential"),
        (presidio | {"checker": "azure_content_safety", "credential": "k"}, "use block, warn or log"),
        ({"checker": "model"}, "needs the setting model"),
        ({"checker": "model", "settings": ["model=m"], "address": "https://a.example.com"}, "has no address"),
    ):  # fmt: skip
        status, answer = shared_tenants.call("POST", path, owner, {"name": "x", "action": "mask", **members})
        assert status == 400 and message in str(answer), (members, answer)


def test_page_adds_a_guardrail_with_a_checker_and_says_why_it_failed(browser) -> None:
    page = browser.get(PATH)
    hidden = {name: value for name, value in FIELD.findall(page.text) if name in ("csrf", "organization")}

    def press(action: str, **more: str):
        return browser.post(PATH, data={**hidden, "action": action, **more}, headers=OWN)

    fields = {"name": "People", "action_of_rule": "block", "checker": "presidio", "settings": "language=en"}
    assert "needs its address" in press("add", **fields).text
    fields |= {"address": "http://127.0.0.1:9/", "on_failure": "pass", "timeout_ms": "200", "in_prompt": "on"}
    added = press("add", **fields)
    assert "Block the request: Presidio analyzer in prompts" in added.text
    rule = re.findall(r'name="rule" value="([^"]+)"', added.text)[-1]
    assert "People could not be checked:" in press("check", text="Anna Meyer", place="prompt").text
    press("remove", rule=rule)


def test_false_positive_becomes_an_exception_with_one_click(browser) -> None:
    page = browser.get(PATH)
    hidden = {name: value for name, value in FIELD.findall(page.text) if name in ("csrf", "organization")}

    def press(action: str, **more: str):
        return browser.post(PATH, data={**hidden, "action": action, **more}, headers=OWN)

    added = press(
        "add", name="Cards", action_of_rule="block", detectors="payment_card", in_prompt="on", switched_off="on"
    )
    assert "It is off: replay it" in added.text and "inactive" in added.text
    rule = re.findall(r'name="rule" value="([^"]+)"', added.text)[-1]
    replayed = press("replay", rule=rule)
    assert "0 of 0 retained requests" in replayed.text
    tested = press("check", text="Pay with 4111 1111 1111 1111", place="prompt")
    assert "Found in the text" in tested.text
    offered = dict(re.findall(r'name="(rule|fingerprint)" value="([^"]+)"', tested.text)[:2])
    assert offered["rule"] == rule
    excepted = press("except", **offered)
    assert "is an exception now" in excepted.text and "1 exception<" in excepted.text
    assert "No guardrail finds anything" in press("check", text="Pay with 4111 1111 1111 1111").text
    press("remove", rule=rule)


def test_exception_is_a_value_or_its_fingerprint(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/guardrails"
    made = shared_tenants.ok("POST", path, owner, {"name": "x", "action": "log", "detectors": ["email"]})["guardrail"]
    exceptions = f"{path}/{made['id']}/exceptions"
    for body in ({}, {"value": "x", "fingerprint": "0" * 32}, {"fingerprint": "g" * 32}, {"fingerprint": "0"}):
        assert shared_tenants.call("POST", exceptions, owner, body)[0] == 400, body
    added = shared_tenants.ok("POST", exceptions, owner, {"fingerprint": "0" * 32})["guardrail"]
    assert [one["fingerprint"] for one in added["exceptions"]] == ["0" * 32]
    shared_tenants.ok("DELETE", f"{path}/{made['id']}", owner)


def test_page_says_when_there_are_more_findings_than_it_shows(browser, monkeypatch) -> None:
    counted = {"complete": False, "findings": [
        {"date": "2026-11-30T00:00:00Z", "guardrailId": "guard_1", "kind": "email", "place": "prompt", "action": "mask",
         "requests": 1, "values": 2}]}  # fmt: skip

    class Counted:
        def run(self, *given, **more):
            return counted

    monkeypatch.setattr(guardrail_pages, "FINDINGS", Counted())
    assert "There are more findings than are shown" in browser.get(PATH).text
    counted["complete"] = True
    assert "There are more findings" not in browser.get(PATH).text
