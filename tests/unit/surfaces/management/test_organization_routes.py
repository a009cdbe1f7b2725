from typing import Any

import orjson
import pytest
from msgspec import json

from gateway.surfaces.management import credit_routes
from gateway.surfaces.management.answers import LimitedAnswer, limits_of

RULE = {"ruleType": "deny_models", "ruleValue": {"models": ["auto"]}}


def org(who) -> str:
    return f"/orgs/{who.organization_id}"


def test_the_balance_is_for_owners_and_admins(shared_tenants) -> None:
    for role, shown in (("owner", "0"), ("admin", "0"), ("developer", None)):
        listed = shared_tenants.ok("GET", "/orgs", shared_tenants[f"acme {role}"])["organizations"]
        assert [(one["name"], one["credits"], one["role"]) for one in listed] == [("acme", shown, role)]


def test_a_new_organization_belongs_to_its_creator_and_has_a_project_and_no_credits(shared_tenants) -> None:
    dev = shared_tenants["acme developer"]
    status, answer = shared_tenants.call("POST", "/orgs", dev, {"name": "  Side  "})
    made = answer["organization"]
    assert (status, made["name"], made["role"], made["credits"]) == (201, "Side", "owner", "0")
    assert len(shared_tenants.ok("GET", f"/orgs/{made['id']}/projects", dev)["projects"]) == 1
    me = shared_tenants.ok("GET", "/user/me", dev)
    assert len(me["memberships"]) == 2 and not me["operator"]


def test_an_operator_grants_credits_once_for_a_reference(tenants) -> None:
    root = tenants.open_operator()
    owner = tenants["acme owner"]
    path = f"{org(owner)}/credits"
    given = {"amount": "12.5", "reference": "invoice-7", "note": "first"}
    assert tenants.refused("POST", path, owner, given) == "403 permission_denied"
    assert [tenants.ok("POST", path, root, given)["posted"] for _ in range(2)] == [True, False]
    assert tenants.refused("POST", path, root, given | {"amount": "21.5"}) == "409 reference_taken"
    tenants.ok("POST", path, root, {"amount": "-2.5", "kind": "adjustment"})
    tenants.ok("POST", path, root, {"amount": "1", "kind": "refund"})
    assert tenants.ok("GET", path, owner)["credits"] == "11"
    history = tenants.ok("GET", f"{path}/history", owner)["history"]
    posted = [("refund", "1"), ("adjustment", "-2.5"), ("grant", "12.5")]
    assert [(entry["kind"], entry["amount"]) for entry in history] == posted


@pytest.mark.parametrize("given", [{"amount": "-1"}, {"amount": "0"}, {"amount": ""}, {"amount": "x"}, {},
                                   {"amount": "1", "kind": "usage"}, {"amount": "99999999999"}], ids=str)  # fmt: skip
def test_an_impossible_grant_is_a_400(shared_tenants, given) -> None:
    root = shared_tenants.open_operator()
    path = f"{org(shared_tenants['acme owner'])}/credits"
    assert shared_tenants.refused("POST", path, root, given) == "400 invalid_parameters"


def test_granted_credits_are_spendable_and_what_they_bought_is_in_the_activity(tenants) -> None:
    root = tenants.open_operator()
    owner = tenants["acme owner"]
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "Hello"}]}
    models = tenants.ok("GET", "/v1/models?mapped=true")["data"]
    body["model"] = next(model["id"] for model in models if model["id"].startswith("sandbox/"))
    tenants.ok("POST", f"{org(owner)}/credits", root, {"amount": "5"})
    for _ in range(3):
        tenants.ok("POST", "/v1/chat/completions", owner.key.token, body, x_source="my-app")
    [day] = tenants.ok("GET", f"/activity?projectId={owner.project_id}&days=1", owner)["activity"]
    assert (day["requestCount"], day["errorCount"]) == (3, 0) and day["totalTokens"] > 0
    [source] = tenants.ok("GET", f"/activity/sources?projectId={owner.project_id}", owner)["sources"]
    assert (source["source"], source["requestCount"], source["cost"]) == ("my-app", 3, day["cost"])
    key = tenants.ok("GET", "/keys/api?filter=mine", owner)["apiKeys"][0]
    assert float(key["usage"]) == pytest.approx(day["cost"])


def test_project_settings_are_read_back_and_in_force(shared_tenants) -> None:
    owner = shared_tenants["rival owner"]
    path = f"/projects/{owner.project_id}"
    given = {"mode": "hybrid", "cachingEnabled": True, "cacheDurationSeconds": 10, "retention": "retain",
             "retentionDays": 7, "cacheMarkers": "client-managed", "routing": "price", "hedging": True,
             "useSuccessors": True, "name": "Renamed"}  # fmt: skip
    changed = shared_tenants.ok("PATCH", path, owner, given)["project"]
    assert {name: changed[name] for name in given} == given
    assert shared_tenants.ok("GET", path, shared_tenants["rival developer"])["project"] == changed
    caller = shared_tenants.services.accounts.authentication.caller(owner.key.token)
    assert (caller.mode, caller.cache_ttl_s, caller.settings["routing"]) == ("hybrid", 10, "price")
    assert caller.settings["hedging"] is True


IMPOSSIBLE = [
    *({}, {"cacheDurationSeconds": 9}, {"cacheDurationSeconds": 31_536_001}),
    *({"mode": "free"}, {"cachingEnabled": "yes"}, {"retentionDays": 0}),
]


@pytest.mark.parametrize("given", IMPOSSIBLE, ids=str)
def test_an_impossible_project_setting_is_a_400(shared_tenants, given) -> None:
    owner = shared_tenants["acme owner"]
    assert shared_tenants.refused("PATCH", f"/projects/{owner.project_id}", owner, given) == "400 invalid_parameters"
    dev = shared_tenants["acme developer"]
    assert shared_tenants.refused("PATCH", f"/projects/{dev.project_id}", dev, {"name": "x"}).startswith("403")


def test_an_archived_project_answers_410_until_it_is_active_again(tenants) -> None:
    owner = tenants["acme owner"]
    path = f"/projects/{owner.project_id}"
    tenants.ok("DELETE", path, owner)
    assert tenants.call("GET", "/v1/key", owner.key.token)[0] == 410
    for query in ("", "?includeArchived=false"):
        assert tenants.ok("GET", f"{org(owner)}/projects{query}", owner)["projects"] == []
    assert len(tenants.ok("GET", f"{org(owner)}/projects?includeArchived=true", owner)["projects"]) == 1
    tenants.ok("PATCH", path, owner, {"status": "active"})
    assert tenants.call("GET", "/v1/key", owner.key.token)[0] == 200


def test_the_callback_secret_is_made_read_and_rolled(shared_tenants) -> None:
    admin = shared_tenants["acme admin"]
    path = f"/projects/{admin.project_id}/callback-secret"
    assert shared_tenants.ok("GET", path, admin) == {"callbackSecret": None}
    first = shared_tenants.ok("POST", f"{path}/roll", admin)["callbackSecret"]
    second = shared_tenants.ok("POST", f"{path}/roll", admin)["callbackSecret"]
    assert first.startswith("whsec_") and first != second
    assert shared_tenants.ok("GET", path, admin) == {"callbackSecret": second}
    entries = shared_tenants.ok("GET", f"{org(admin)}/audit?limit=1000", admin)
    assert second not in str(entries)


def test_an_unknown_name_in_what_is_allowed_is_refused_when_it_is_set(tenants) -> None:
    """A slip of the pen would refuse every request from then on."""
    owner = tenants["acme owner"]
    rule = {"ruleType": "allow_providers", "ruleValue": {"providers": ["opnai"]}}
    placed = {**rule, "scope": "organization", "scopeId": owner.organization_id}
    for method, path, body in (
        ("PUT", f"{org(owner)}/policy", {"allowedProviders": ["opnai"]}),
        ("POST", f"{org(owner)}/iam", placed),
        ("POST", f"/keys/api/{owner.key.info.id}/iam", rule),
    ):
        status, told = tenants.call(method, path, owner, body)
        assert (status, told["code"]) == (400, "invalid_parameters") and "openai" in told["message"]
    house = {"name": "house", "baseUrl": "https://house.invalid/v1"}
    tenants.ok("POST", f"{org(owner)}/custom-providers", owner, house)
    tenants.ok("PUT", f"{org(owner)}/policy", owner, {"allowedProviders": ["openai", "custom:house"]})


def test_the_policy_holds_for_the_next_request(tenants) -> None:
    owner = tenants["acme owner"]
    path = f"{org(owner)}/policy"
    assert tenants.ok("PUT", path, owner, {"blockedProviders": ["sandbox"]})["policy"]
    assert "sandbox/" not in str(tenants.ok("GET", "/v1/models?mapped=true", owner.key.token))
    assert tenants.ok("PUT", path, owner, {}) == {"policy": {}}
    assert tenants.refused("PUT", path, owner, {"requireMagic": True}) == "400 invalid_parameters"
    assert tenants.ok("GET", path, tenants["acme developer"]) == {"policy": {}}


def test_rules_of_a_key_hold_for_the_next_request_and_are_removed_again(tenants) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    path = f"/keys/api/{dev.key.info.id}/iam"
    rule = {"ruleType": "allow_providers", "ruleValue": {"providers": ["openai"]}}
    made = tenants.ok("POST", path, owner, rule)["rule"]
    assert "sandbox/" not in str(tenants.ok("GET", "/v1/models?mapped=true", dev.key.token))
    assert tenants.ok("GET", path, dev)["rules"] == [made]
    assert tenants.refused("DELETE", f"{path}/{made['id']}", dev) == "403 permission_denied"
    tenants.ok("PATCH", f"{path}/{made['id']}", owner, {"status": "inactive"})
    assert "sandbox/" in str(tenants.ok("GET", "/v1/models?mapped=true", dev.key.token))
    tenants.ok("DELETE", f"{path}/{made['id']}", owner)
    assert tenants.ok("GET", path, dev)["rules"] == []


def test_a_rule_is_put_at_a_place_of_the_own_organization_only(shared_tenants) -> None:
    owner, stranger = shared_tenants["acme owner"], shared_tenants["rival owner"]
    place = {"scope": "key", "scopeId": stranger.key.info.id}
    assert shared_tenants.refused("POST", f"{org(owner)}/iam", owner, {**RULE, **place}) == "404 not_found"
    nonsense = {"ruleType": "deny_models", "ruleValue": {"cidrs": []}, "scope": "organization"}
    body = {**nonsense, "scopeId": owner.organization_id}
    assert shared_tenants.refused("POST", f"{org(owner)}/iam", owner, body) == "400 invalid_parameters"


def test_teams_are_made_and_their_rules_hold_for_members(tenants) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    team = tenants.ok("POST", f"{org(owner)}/teams", owner, {"name": "Science"})["team"]
    seat = f"{org(owner)}/teams/{team['id']}/members/{dev.member_id}"
    tenants.ok("PUT", seat, owner)
    rule = {"ruleType": "deny_providers", "ruleValue": {"providers": ["sandbox"]}}
    tenants.ok("POST", f"{org(owner)}/iam", owner, {**rule, "scope": "team", "scopeId": team["id"]})
    assert "sandbox/" not in str(tenants.ok("GET", "/v1/models?mapped=true", dev.key.token))
    tenants.ok("DELETE", seat, owner)
    assert "sandbox/" in str(tenants.ok("GET", "/v1/models?mapped=true", dev.key.token))


def test_the_audit_log_is_paged_exported_and_verified(tenants) -> None:
    owner = tenants["acme owner"]
    for name in "abc":
        tenants.ok("PATCH", org(owner), owner, {"name": name})
    page = tenants.ok("GET", f"{org(owner)}/audit?limit=2", owner)
    rest = tenants.ok("GET", f"{org(owner)}/audit?limit=1000&before={page['next']}", owner)
    assert len(page["entries"]) == 2 and rest["next"] is None
    lines = tenants.ok("GET", f"{org(owner)}/audit/export", owner).splitlines()
    assert [orjson.loads(line) for line in lines] == page["entries"] + rest["entries"]
    assert tenants.ok("GET", f"{org(owner)}/audit/verify", owner)["valid"] is True
    assert tenants.refused("GET", f"{org(owner)}/audit/verify", tenants["acme admin"]) == "403 permission_denied"


def test_the_chain_of_all_organizations_is_walked_a_few_times_an_hour_for_one_of_them(tenants, monkeypatch) -> None:
    """An owner of one organization could have the changes of all organizations hashed, without any limit."""
    owner, rival = tenants["acme owner"], tenants["rival owner"]
    for _ in range(credit_routes.WALKS):
        assert tenants.ok("GET", f"{org(owner)}/audit/verify", owner)["valid"] is True
    assert tenants.refused("GET", f"{org(owner)}/audit/verify", owner) == "429 too_many_attempts"
    assert tenants.ok("GET", f"{org(rival)}/audit/verify", rival)["valid"] is True
    monkeypatch.setattr(credit_routes, "ALL_WALKS", credit_routes.WALKS)
    assert tenants.refused("GET", f"{org(rival)}/audit/verify", rival) == "429 too_many_attempts"
    root = tenants.open_operator()
    assert tenants.refused("GET", "/audit/verify", root) == "429 too_many_attempts"
    described = [one.about for one in credit_routes.OPERATIONS if one.path.endswith("/audit/verify")]
    assert len(described) == 2 and all(429 in about.errors for about in described)


def test_an_export_of_changes_is_one_of_the_organizations_exports_and_ends_with_the_membership(
    tenants, monkeypatch
) -> None:
    monkeypatch.setattr(credit_routes, "EXPORT_PAGE", 2)
    owner, admin = tenants["acme owner"], tenants["acme admin"]
    headers = {"Authorization": f"Bearer {admin.token}"}
    going = [tenants.client.get(f"{org(owner)}/audit/export", headers=headers) for _ in range(2)]
    assert tenants.refused("GET", f"{org(owner)}/audit/export", owner) == "429 too_many_exports"
    assert tenants.refused("GET", "/logs/export", owner) == "429 too_many_exports"
    pieces = iter(going[0].response)
    assert next(pieces)
    tenants.ok("DELETE", f"{org(owner)}/members/{admin.member_id}", owner)
    with pytest.raises(Exception, match=r"membership changed|session has ended"):
        list(pieces)
    going[1].close()
    assert tenants.call("GET", f"{org(owner)}/audit/export", owner)[0] == 200


def test_a_changed_entry_shows_in_the_verification(tenants) -> None:
    owner = tenants["acme owner"]
    database = tenants.services.store.database
    database.write(lambda: database.execute("UPDATE audit SET actor = 'nobody' WHERE seq = 3"))
    found = tenants.ok("GET", f"{org(owner)}/audit/verify", owner)
    assert found["valid"] is False and found["problems"] == ["entry 3 was changed"]


def test_the_last_owner_stays(tenants) -> None:
    owner = tenants["acme owner"]
    root = next(
        m for m in tenants.ok("GET", f"{org(owner)}/members", owner)["members"] if m["email"] == "owner@localhost"
    )
    tenants.ok("DELETE", f"{org(owner)}/members/{root['id']}", owner)
    path = f"{org(owner)}/members/{owner.member_id}"
    assert tenants.refused("DELETE", path, owner) == "409 last_owner"
    assert tenants.refused("PATCH", path, owner, {"role": "admin"}) == "409 last_owner"


def test_members_are_listed_with_their_limits(shared_tenants) -> None:
    admin = shared_tenants["acme admin"]
    found = shared_tenants.ok("GET", f"{org(admin)}/members", admin)["members"]
    status = shared_tenants.services.billing.budgets.status(admin.member_id)
    mine = next(one for one in found if one["id"] == admin.member_id)
    limits = json.decode(json.encode(LimitedAnswer.of(id=admin.member_id, **limits_of(status))))
    assert mine["role"] == "admin" and {**mine, **limits} == mine


def test_a_spent_members_limit_refuses_their_keys(tenants) -> None:
    owner = tenants["acme owner"]
    root = tenants.open_operator()
    tenants.ok("POST", f"{org(owner)}/credits", root, {"amount": "5"})
    path = f"{org(owner)}/members/{owner.member_id}/limit"
    tenants.ok("PATCH", path, owner, {"usageLimit": "0"})
    models = tenants.ok("GET", "/v1/models?mapped=true")["data"]
    model = next(model["id"] for model in models if model["id"].startswith("sandbox/"))
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    status, answer = tenants.call("POST", "/v1/chat/completions", owner.key.token, body)
    assert (status, answer["error"]["code"]) == (402, "member_limit_reached")


def test_skills_are_published_by_managers_and_read_by_all(shared_tenants) -> None:
    admin, dev = shared_tenants["rival admin"], shared_tenants["rival developer"]
    body: dict[str, Any] = {"content": "---\nname: helpful\ndescription: Helps.\n---\nText"}
    picture = {"path": "logo.png", "content": "iVBORw==", "encoding": "base64"}
    body["files"] = [picture, {"path": "notes.md", "content": "Notes", "encoding": "utf-8"}]
    assert shared_tenants.refused("POST", f"{org(dev)}/skills", dev, body) == "403 permission_denied"
    skill = shared_tenants.ok("POST", f"{org(admin)}/skills", admin, body)["skill"]
    assert shared_tenants.ok("GET", f"{org(dev)}/skills", dev)["skills"] == [skill]
    found = shared_tenants.ok("GET", f"{org(dev)}/skills/{skill['id']}", dev)["skill"]
    assert (found["content"], found["files"]) == (body["content"], body["files"])
    for enabled in (False, True):
        changed = shared_tenants.ok("PATCH", f"{org(admin)}/skills/{skill['id']}", admin, {"enabled": enabled})
        assert changed["skill"]["enabled"] is enabled


def test_the_projects_strategy_holds_where_a_request_names_none_and_leaves_the_provider_open(tenants) -> None:
    owner = tenants["acme owner"]

    def strategy(model: str = "auto", **wish: str) -> str:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], **wish}
        return tenants.ok("POST", "/v1/route/explain", owner.key.token, body).get("routing", "")

    assert strategy() == "auto"
    tenants.ok("PATCH", f"/projects/{owner.project_id}", owner, {"routing": "price"})
    assert strategy() == "price" and strategy(routing="latency") == "latency"
    assert strategy("sandbox/sandbox-echo") == "auto"
