import re

import pytest

from gateway.clock import to_iso

YEAR_US = 366 * 86_400_000_000
BULLETS = re.compile(r"^llmgtwy_.{4}•{5}$")


def make(house, who, **more):
    return house.call("POST", "/keys/api", who, {"description": "CI", "projectId": who.project_id, **more})


def made(house, who, **more):
    status, answer = make(house, who, **more)
    assert status == 200, answer
    return answer["apiKey"]


def later(house, micros: int = YEAR_US) -> str:
    return to_iso(house.services.clock.now_us() + micros)


def test_a_key_is_made_with_what_the_client_sends_and_shows_its_token_once(shared_house) -> None:
    dev = shared_house["acme developer"]
    given = {"usageLimit": "49.99", "periodUsageLimit": "10", "periodUsageDurationValue": 1}
    key = made(shared_house, dev, **given, periodUsageDurationUnit="day", expiresAt=later(shared_house))
    assert key["token"].startswith("llmgtwy_") and len(key["token"]) == 48 and BULLETS.match(key["maskedToken"])
    assert (key["usage"], key["usageLimit"], key["periodUsageLimit"]) == ("0", "49.99", "10")
    assert (key["periodUsageDurationValue"], key["periodUsageDurationUnit"], key["status"]) == (1, "day", "active")
    listed = shared_house.ok("GET", "/keys/api", dev)["apiKeys"]
    assert key["id"] in {one["id"] for one in listed} and key["token"] not in str(listed)


def test_the_token_calls_models_at_once(shared_house) -> None:
    key = made(shared_house, shared_house["acme developer"])
    assert shared_house.ok("GET", "/v1/key", key["token"])["data"]["label"] == "CI"


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
def test_a_key_with_impossible_limits_or_dates_is_a_400(shared_house, given) -> None:
    status, answer = make(shared_house, shared_house["acme developer"], **given)
    assert (status, answer["error"]) == (400, True), answer


@pytest.mark.parametrize("blank", ["", "  ", None])
def test_a_blank_limit_is_none(shared_house, blank) -> None:
    assert made(shared_house, shared_house["acme developer"], usageLimit=blank)["usageLimit"] is None


def test_limits_are_merged_and_cleared_by_null(shared_house) -> None:
    dev = shared_house["acme developer"]
    path = f"/keys/api/limit/{made(shared_house, dev, usageLimit='5')['id']}"
    period = {"periodUsageLimit": "2", "periodUsageDurationValue": 2, "periodUsageDurationUnit": "week"}
    key = shared_house.ok("PATCH", path, dev, period)["apiKey"]
    assert (key["usageLimit"], key["periodUsageLimit"]) == ("5", "2")
    key = shared_house.ok("PATCH", path, dev, {"periodUsageLimit": "3"})["apiKey"]
    assert (key["periodUsageLimit"], key["periodUsageDurationUnit"]) == ("3", "week")
    cleared = dict.fromkeys(("usageLimit", *period))
    key = shared_house.ok("PATCH", path, dev, cleared)["apiKey"]
    assert [key[name] for name in cleared] == [None] * 4


@pytest.mark.parametrize("body", [{}, {"usageLimit": "1", "limit": "2"}, {"periodUsageLimit": None}], ids=str)
def test_a_limit_change_that_is_empty_unknown_or_half_is_a_400(shared_house, body) -> None:
    dev = shared_house["acme developer"]
    period = {"periodUsageLimit": "2", "periodUsageDurationValue": 2, "periodUsageDurationUnit": "week"}
    key = made(shared_house, dev, **period)
    assert shared_house.refused("PATCH", f"/keys/api/limit/{key['id']}", dev, body) == "400 invalid_parameters"


def test_a_key_cannot_have_more_than_its_owner(house) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    member = f"/orgs/{dev.organization_id}/members/{dev.member_id}/limit"
    assert house.ok("PATCH", member, owner, {"usageLimit": "10"})["member"]["usageLimit"] == "10"
    assert make(house, dev, usageLimit="10.01")[0] == 400
    key = made(house, dev, usageLimit="10")
    assert house.refused("PATCH", f"/keys/api/limit/{key['id']}", dev, {"usageLimit": "11"}).startswith("400")


def test_a_rolled_token_is_dead_when_the_answer_comes(shared_house) -> None:
    dev = shared_house["acme developer"]
    key = made(shared_house, dev, usageLimit="7")
    rolled = shared_house.ok("POST", f"/keys/api/{key['id']}/roll", dev)["apiKey"]
    assert shared_house.call("GET", "/v1/key", key["token"])[0] == 401
    assert shared_house.call("GET", "/v1/key", rolled["token"])[0] == 200
    assert (rolled["id"], rolled["usageLimit"]) == (key["id"], "7")


def test_a_deactivated_key_is_refused_until_it_is_activated(shared_house) -> None:
    dev = shared_house["acme developer"]
    key = made(shared_house, dev)
    path = f"/keys/api/{key['id']}"
    assert shared_house.ok("PATCH", path, dev, {"status": "inactive"})["apiKey"]["status"] == "inactive"
    assert shared_house.call("GET", "/v1/key", key["token"])[0] == 401
    assert shared_house.ok("PATCH", path, dev, {"status": "active"})["apiKey"]["status"] == "active"
    assert shared_house.call("GET", "/v1/key", key["token"])[0] == 200


def test_an_expired_key_lives_again_with_a_new_expiry_only(shared_house) -> None:
    dev = shared_house["acme developer"]
    key = made(shared_house, dev, expiresAt=later(shared_house))
    database = shared_house.services.store.database
    database.write(lambda: database.execute("UPDATE api_key SET expires_at = 1 WHERE id = ?", (key["id"],)))
    path = f"/keys/api/{key['id']}"
    assert shared_house.refused("PATCH", path, dev, {"status": "active"}) == "400 invalid_parameters"
    again = shared_house.ok("PATCH", path, dev, {"status": "active", "expiresAt": later(shared_house)})["apiKey"]
    assert again["state"] == "active"


def test_a_deleted_key_is_gone_for_good(shared_house) -> None:
    dev = shared_house["acme developer"]
    key = made(shared_house, dev)
    path = f"/keys/api/{key['id']}"
    assert shared_house.ok("DELETE", path, dev)["message"]
    assert shared_house.call("GET", "/v1/key", key["token"])[0] == 401
    for method, body in (("DELETE", None), ("PATCH", {"status": "active"})):
        assert shared_house.refused(method, path, dev, body) == "404 not_found"
    assert key["id"] not in str(shared_house.ok("GET", "/keys/api", dev))


def test_a_customer_key_calls_models_and_cannot_read_the_account(shared_house) -> None:
    key = made(shared_house, shared_house["acme developer"], kind="customer")
    assert key["token"].startswith("llmgcus_")
    assert shared_house.call("GET", "/v1/models", key["token"])[0] == 200
    for path in ("/v1/key", "/v1/credits"):
        assert shared_house.call("GET", path, key["token"])[0] == 403


@pytest.mark.parametrize("body", [{}, {"status": "deleted"}, {"status": "expired"}, {"foo": 1}], ids=str)
def test_an_update_without_sense_is_a_400(shared_house, body) -> None:
    dev = shared_house["acme developer"]
    path = f"/keys/api/{dev.key.info.id}"
    assert shared_house.refused("PATCH", path, dev, body) == "400 invalid_parameters"


def test_managers_list_all_keys_of_their_organization_and_developers_their_own(shared_house) -> None:
    owner, dev = shared_house["rival owner"], shared_house["rival developer"]
    everyone = shared_house.ok("GET", "/keys/api", owner)
    assert len(everyone["apiKeys"]) == 4 and everyone["userRole"] == "owner"
    assert [one["id"] for one in shared_house.ok("GET", "/keys/api?filter=mine", owner)["apiKeys"]] == [
        owner.key.info.id
    ]
    for query in ("", "?filter=all", f"?projectId={dev.project_id}"):
        mine = shared_house.ok("GET", f"/keys/api{query}", dev)
        assert [one["id"] for one in mine["apiKeys"]] == [dev.key.info.id] and mine["userRole"] == "developer"


def test_each_change_of_a_key_is_audited(house) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    key = made(house, dev)
    house.ok("PATCH", f"/keys/api/{key['id']}", dev, {"status": "inactive"})
    house.ok("PATCH", f"/keys/api/limit/{key['id']}", dev, {"usageLimit": "1"})
    house.ok("POST", f"/keys/api/{key['id']}/roll", dev)
    house.ok("DELETE", f"/keys/api/{key['id']}", dev)
    entries = house.ok("GET", f"/orgs/{owner.organization_id}/audit?limit=5", owner)["entries"]
    done = ["delete", "roll", "update_limit", "update_status", "create"]
    assert [one["action"] for one in entries] == [f"api_key.{word}" for word in done]
    assert {one["actor"] for one in entries} == {dev.user_id} and {one["subject"] for one in entries} == {key["id"]}


def test_a_key_shows_the_rules_at_itself_and_no_others(house) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    rule = {"ruleType": "deny_models", "ruleValue": {"models": ["auto"]}}
    made_rule = house.ok("POST", f"/keys/api/{dev.key.info.id}/iam", owner, rule)["rule"]
    place = {"scope": "organization", "scopeId": owner.organization_id}
    house.ok("POST", f"/orgs/{owner.organization_id}/iam", owner, {**rule, **place})
    shown = {one["id"]: one["iamRules"] for one in house.ok("GET", "/keys/api", owner)["apiKeys"]}
    assert shown[dev.key.info.id] == [made_rule] and shown[owner.key.info.id] == []
    assert house.ok("GET", f"/keys/api/{dev.key.info.id}", dev)["apiKey"]["iamRules"] == [made_rule]
    assert house.refused("GET", f"/keys/api/{owner.key.info.id}", dev) == "403 permission_denied"


def test_one_member_shows_what_the_list_shows(shared_house) -> None:
    owner = shared_house["acme owner"]
    path = f"/orgs/{owner.organization_id}/members"
    listed = shared_house.ok("GET", path, owner)["members"]
    assert [shared_house.ok("GET", f"{path}/{one['id']}", owner)["member"] for one in listed] == listed
