import re

import pytest

from gateway.clock import to_iso
from gateway.limits.budgets import Limits

YEAR_US = 366 * 86_400_000_000
BULLETS = re.compile(r"^llmgtwy_.{4}•{5}$")


def make(tenants, who, **more):
    return tenants.call("POST", "/keys/api", who, {"description": "CI", "projectId": who.project_id, **more})


def made(tenants, who, **more):
    status, answer = make(tenants, who, **more)
    assert status == 200, answer
    return answer["apiKey"]


def later(tenants, micros: int = YEAR_US) -> str:
    return to_iso(tenants.services.clock.now_us() + micros)


def test_a_key_is_made_with_what_the_client_sends_and_shows_its_token_once(shared_tenants) -> None:
    dev = shared_tenants["acme developer"]
    given = {"usageLimit": "49.99", "periodUsageLimit": "10", "periodUsageDurationValue": 1}
    key = made(shared_tenants, dev, **given, periodUsageDurationUnit="day", expiresAt=later(shared_tenants))
    assert key["token"].startswith("llmgtwy_") and len(key["token"]) == 48 and BULLETS.match(key["maskedToken"])
    assert (key["usage"], key["usageLimit"], key["periodUsageLimit"]) == ("0", "49.99", "10")
    assert (key["periodUsageDurationValue"], key["periodUsageDurationUnit"], key["status"]) == (1, "day", "active")
    listed = shared_tenants.ok("GET", "/keys/api", dev)["apiKeys"]
    assert key["id"] in {one["id"] for one in listed} and key["token"] not in str(listed)


def test_a_key_may_be_made_with_a_limit_for_each_month_of_its_time_zone(shared_tenants) -> None:
    period = {"periodUsageDurationValue": 1, "periodUsageDurationUnit": "month", "periodTimezone": "Europe/Berlin"}
    key = made(shared_tenants, shared_tenants["acme developer"], periodUsageLimit="10", **period)
    assert {name: key[name] for name in period} == period


def test_each_session_and_each_run_of_a_key_has_its_own_budget(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/keys/api/{made(shared_tenants, owner)['id']}/session-budget"
    for change, session, run in (
        ({"sessionBudget": "0.5", "runBudget": "2"}, "0.5", "2"),
        ({"runBudget": None}, "0.5", None),
        ({"sessionBudget": None, "runBudget": "3"}, None, "3"),
    ):
        shared_tenants.ok("PATCH", path, owner, change)
        shown = shared_tenants.ok("GET", path, owner)["sessionBudget"]
        assert (shown["sessionBudget"], shown["runBudget"]) == (session, run)


def test_the_token_calls_models_at_once(shared_tenants) -> None:
    key = made(shared_tenants, shared_tenants["acme developer"])
    assert shared_tenants.ok("GET", "/v1/key", key["token"])["data"]["label"] == "CI"


BAD = [
    {"usageLimit": "-1"}, {"usageLimit": "1e3"}, {"usageLimit": "abc"}, {"usageLimit": True}, {"usageLimit": "9" * 12},
    {"usageLimit": "0.0000000001"}, {"periodUsageLimit": "1"}, {"description": "  "}, {"description": "x" * 256},
    {"periodUsageLimit": "1", "periodUsageDurationValue": 1},
    {"periodUsageDurationValue": 1, "periodUsageDurationUnit": "day"},
    {"periodUsageLimit": "1", "periodUsageDurationValue": 8761, "periodUsageDurationUnit": "hour"},
    {"periodUsageLimit": "1", "periodUsageDurationValue": 366, "periodUsageDurationUnit": "day"},
    {"periodUsageLimit": "1", "periodUsageDurationValue": 53, "periodUsageDurationUnit": "week"},
    {"periodUsageLimit": "1", "periodUsageDurationValue": 13, "periodUsageDurationUnit": "month"},
    {"periodUsageLimit": "1", "periodUsageDurationValue": 0, "periodUsageDurationUnit": "month"},
    {"periodUsageLimit": "1", "periodUsageDurationValue": 1, "periodUsageDurationUnit": "year"},
    {"expiresAt": "2001-01-01T00:00:00.000Z"}, {"expiresAt": "tomorrow"}, {"expiresAt": 7}, {"kind": "master"},
]  # fmt: skip


@pytest.mark.parametrize("given", BAD, ids=str)
def test_a_key_with_impossible_limits_or_dates_is_a_400(shared_tenants, given) -> None:
    status, answer = make(shared_tenants, shared_tenants["acme developer"], **given)
    assert (status, answer["error"]) == (400, True), answer


@pytest.mark.parametrize("description", ["", "  ", "x" * 256])
def test_a_refused_description_names_its_longest_length(shared_tenants, description) -> None:
    dev = shared_tenants["acme developer"]
    key = made(shared_tenants, dev)
    for method, path in (("POST", "/keys/api"), ("PATCH", f"/keys/api/{key['id']}")):
        body = {"description": description} | ({"projectId": dev.project_id} if method == "POST" else {})
        status, answer = shared_tenants.call(method, path, dev, body)
        assert status == 400 and "255" in answer["message"] and "1000" not in answer["message"]


@pytest.mark.parametrize("blank", ["", "  ", None])
def test_a_blank_limit_means_no_limit(shared_tenants, blank) -> None:
    assert made(shared_tenants, shared_tenants["acme developer"], usageLimit=blank)["usageLimit"] is None


def test_limits_are_merged_and_cleared_by_null(shared_tenants) -> None:
    dev = shared_tenants["acme developer"]
    path = f"/keys/api/limit/{made(shared_tenants, dev, usageLimit='5')['id']}"
    period = {"periodUsageLimit": "2", "periodUsageDurationValue": 2, "periodUsageDurationUnit": "week"}
    key = shared_tenants.ok("PATCH", path, dev, period)["apiKey"]
    assert (key["usageLimit"], key["periodUsageLimit"]) == ("5", "2")
    key = shared_tenants.ok("PATCH", path, dev, {"periodUsageLimit": "3"})["apiKey"]
    assert (key["periodUsageLimit"], key["periodUsageDurationUnit"]) == ("3", "week")
    cleared = dict.fromkeys(("usageLimit", *period))
    key = shared_tenants.ok("PATCH", path, dev, cleared)["apiKey"]
    assert [key[name] for name in cleared] == [None] * 4


def test_a_change_of_limits_keeps_a_concurrent_change(shared_tenants, monkeypatch) -> None:
    dev, services = shared_tenants["acme developer"], shared_tenants.services
    ident = made(shared_tenants, dev)["id"]
    bump = services.store.control.bump

    def come_first() -> None:
        """Commit another caller's change while this one waits for its turn."""
        monkeypatch.setattr(services.store.control, "bump", bump)
        services.management.budgets.write_limits("key", ident, Limits(total_nusd=5 * 10**9))
        bump()

    monkeypatch.setattr(services.store.control, "bump", come_first)
    period = {"periodUsageLimit": "2", "periodUsageDurationValue": 2, "periodUsageDurationUnit": "week"}
    key = shared_tenants.ok("PATCH", f"/keys/api/limit/{ident}", dev, period)["apiKey"]
    assert (key["usageLimit"], key["periodUsageLimit"]) == ("5", "2")


@pytest.mark.parametrize("body", [{}, {"usageLimit": "1", "limit": "2"}, {"periodUsageLimit": None}], ids=str)
def test_a_limit_change_that_is_empty_unknown_or_half_is_a_400(shared_tenants, body) -> None:
    dev = shared_tenants["acme developer"]
    period = {"periodUsageLimit": "2", "periodUsageDurationValue": 2, "periodUsageDurationUnit": "week"}
    key = made(shared_tenants, dev, **period)
    assert shared_tenants.refused("PATCH", f"/keys/api/limit/{key['id']}", dev, body) == "400 invalid_parameters"


def test_a_key_cannot_have_more_than_its_owner(tenants) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    member = f"/orgs/{dev.organization_id}/members/{dev.member_id}/limit"
    assert tenants.ok("PATCH", member, owner, {"usageLimit": "10"})["member"]["usageLimit"] == "10"
    assert make(tenants, dev, usageLimit="10.01")[0] == 400
    key = made(tenants, dev, usageLimit="10")
    assert tenants.refused("PATCH", f"/keys/api/limit/{key['id']}", dev, {"usageLimit": "11"}).startswith("400")


def test_a_rolled_token_is_dead_when_the_answer_comes(shared_tenants) -> None:
    dev = shared_tenants["acme developer"]
    key = made(shared_tenants, dev, usageLimit="7")
    rolled = shared_tenants.ok("POST", f"/keys/api/{key['id']}/roll", dev)["apiKey"]
    assert shared_tenants.call("GET", "/v1/key", key["token"])[0] == 401
    assert shared_tenants.call("GET", "/v1/key", rolled["token"])[0] == 200
    assert (rolled["id"], rolled["usageLimit"]) == (key["id"], "7")


def test_a_deactivated_key_is_refused_until_it_is_activated(shared_tenants) -> None:
    dev = shared_tenants["acme developer"]
    key = made(shared_tenants, dev)
    path = f"/keys/api/{key['id']}"
    assert shared_tenants.ok("PATCH", path, dev, {"status": "inactive"})["apiKey"]["status"] == "inactive"
    assert shared_tenants.call("GET", "/v1/key", key["token"])[0] == 401
    assert shared_tenants.ok("PATCH", path, dev, {"status": "active"})["apiKey"]["status"] == "active"
    assert shared_tenants.call("GET", "/v1/key", key["token"])[0] == 200


def test_an_expired_key_lives_again_with_a_new_expiry_only(shared_tenants) -> None:
    dev = shared_tenants["acme developer"]
    key = made(shared_tenants, dev, expiresAt=later(shared_tenants))
    database = shared_tenants.services.store.database
    database.write(lambda: database.execute("UPDATE api_key SET expires_at = 1 WHERE id = ?", (key["id"],)))
    path = f"/keys/api/{key['id']}"
    assert shared_tenants.refused("PATCH", path, dev, {"status": "active"}) == "400 invalid_parameters"
    assert shown_states(shared_tenants, dev)[key["id"]] == ("inactive", "expired")
    again = shared_tenants.ok("PATCH", path, dev, {"status": "active", "expiresAt": later(shared_tenants)})["apiKey"]
    assert again["state"] == "active"
    database.write(lambda: database.execute("UPDATE api_key SET status = 'revoked' WHERE id = ?", (key["id"],)))
    assert shown_states(shared_tenants, dev)[key["id"]] == ("inactive", "revoked")


def shown_states(tenants, who) -> dict[str, tuple[str, str]]:
    """Return the status and the state of each key that a person sees, by id."""
    return {key["id"]: (key["status"], key["state"]) for key in tenants.ok("GET", "/keys/api", who)["apiKeys"]}


def test_a_deleted_key_is_gone_for_good(shared_tenants) -> None:
    dev = shared_tenants["acme developer"]
    key = made(shared_tenants, dev)
    path = f"/keys/api/{key['id']}"
    assert shared_tenants.ok("DELETE", path, dev)["message"]
    assert shared_tenants.call("GET", "/v1/key", key["token"])[0] == 401
    for method, body in (("DELETE", None), ("PATCH", {"status": "active"})):
        assert shared_tenants.refused(method, path, dev, body) == "404 not_found"
    assert key["id"] not in str(shared_tenants.ok("GET", "/keys/api", dev))


def test_a_customer_key_calls_models_and_cannot_read_the_account(shared_tenants) -> None:
    key = made(shared_tenants, shared_tenants["acme developer"], kind="customer")
    assert key["token"].startswith("llmgcus_")
    assert shared_tenants.call("GET", "/v1/models", key["token"])[0] == 200
    for path in ("/v1/key", "/v1/credits"):
        assert shared_tenants.call("GET", path, key["token"])[0] == 403


@pytest.mark.parametrize("body", [{}, {"status": "deleted"}, {"status": "expired"}, {"foo": 1}], ids=str)
def test_an_update_without_sense_is_a_400(shared_tenants, body) -> None:
    dev = shared_tenants["acme developer"]
    path = f"/keys/api/{dev.key.info.id}"
    assert shared_tenants.refused("PATCH", path, dev, body) == "400 invalid_parameters"


def test_managers_list_all_keys_of_their_organization_and_developers_their_own(shared_tenants) -> None:
    owner, dev = shared_tenants["rival owner"], shared_tenants["rival developer"]
    everyone = shared_tenants.ok("GET", "/keys/api", owner)
    assert len(everyone["apiKeys"]) == 4 and everyone["userRole"] == "owner"
    assert [key["id"] for key in shared_tenants.ok("GET", "/keys/api?filter=mine", owner)["apiKeys"]] == [
        owner.key.info.id
    ]
    for query in ("", "?filter=all", f"?projectId={dev.project_id}"):
        mine = shared_tenants.ok("GET", f"/keys/api{query}", dev)
        assert [key["id"] for key in mine["apiKeys"]] == [dev.key.info.id] and mine["userRole"] == "developer"


def test_each_change_of_a_key_is_audited(tenants) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    key = made(tenants, dev)
    tenants.ok("PATCH", f"/keys/api/{key['id']}", dev, {"status": "inactive"})
    tenants.ok("PATCH", f"/keys/api/limit/{key['id']}", dev, {"usageLimit": "1"})
    tenants.ok("POST", f"/keys/api/{key['id']}/roll", dev)
    tenants.ok("DELETE", f"/keys/api/{key['id']}", dev)
    entries = tenants.ok("GET", f"/orgs/{owner.organization_id}/audit?limit=5", owner)["entries"]
    done = ["delete", "roll", "update_limit", "update_status", "create"]
    assert [entry["action"] for entry in entries] == [f"api_key.{word}" for word in done]
    assert {entry["actor"] for entry in entries} == {dev.user_id} and {entry["subject"] for entry in entries} == {
        key["id"]
    }


def test_a_key_shows_the_rules_at_itself_and_no_others(tenants) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    rule = {"ruleType": "deny_models", "ruleValue": {"models": ["auto"]}}
    made_rule = tenants.ok("POST", f"/keys/api/{dev.key.info.id}/iam", owner, rule)["rule"]
    place = {"scope": "organization", "scopeId": owner.organization_id}
    tenants.ok("POST", f"/orgs/{owner.organization_id}/iam", owner, {**rule, **place})
    shown = {key["id"]: key["iamRules"] for key in tenants.ok("GET", "/keys/api", owner)["apiKeys"]}
    assert shown[dev.key.info.id] == [made_rule] and shown[owner.key.info.id] == []
    assert tenants.ok("GET", f"/keys/api/{dev.key.info.id}", dev)["apiKey"]["iamRules"] == [made_rule]
    assert tenants.refused("GET", f"/keys/api/{owner.key.info.id}", dev) == "403 permission_denied"


def test_one_member_shows_what_the_list_shows(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    path = f"/orgs/{owner.organization_id}/members"
    listed = shared_tenants.ok("GET", path, owner)["members"]
    assert [shared_tenants.ok("GET", f"{path}/{one['id']}", owner)["member"] for one in listed] == listed
