import orjson
import pytest

from gateway.surfaces.management.presenters import show_limits

RULE = {"ruleType": "deny_models", "ruleValue": {"models": ["auto"]}}


def org(who) -> str:
    return f"/orgs/{who.organization_id}"


def test_the_balance_is_for_owners_and_admins(shared_house) -> None:
    for role, shown in (("owner", "0"), ("admin", "0"), ("developer", None)):
        listed = shared_house.ok("GET", "/orgs", shared_house[f"acme {role}"])["organizations"]
        assert [(one["name"], one["credits"], one["role"]) for one in listed] == [("acme", shown, role)]


def test_a_new_organization_belongs_to_its_maker_and_has_a_project_and_no_credits(shared_house) -> None:
    dev = shared_house["acme developer"]
    status, answer = shared_house.call("POST", "/orgs", dev, {"name": "  Side  "})
    made = answer["organization"]
    assert (status, made["name"], made["role"], made["credits"]) == (201, "Side", "owner", "0")
    assert len(shared_house.ok("GET", f"/orgs/{made['id']}/projects", dev)["projects"]) == 1
    me = shared_house.ok("GET", "/user/me", dev)
    assert len(me["memberships"]) == 2 and not me["operator"]


def test_an_operator_grants_credits_once_for_a_reference(house) -> None:
    root = house.open(next(iter(house.services.management.operators())))
    owner = house["acme owner"]
    path = f"{org(owner)}/credits"
    given = {"amount": "12.5", "reference": "invoice-7", "note": "first"}
    assert house.refused("POST", path, owner, given) == "403 permission_denied"
    assert [house.ok("POST", path, root, given)["posted"] for _ in range(2)] == [True, False]
    house.ok("POST", path, root, {"amount": "-2.5", "kind": "adjustment"})
    assert house.ok("GET", path, owner)["credits"] == "10"
    history = house.ok("GET", f"{path}/history", owner)["history"]
    assert [(one["kind"], one["amount"]) for one in history] == [("adjustment", "-2.5"), ("grant", "12.5")]


@pytest.mark.parametrize("given", [{"amount": "-1"}, {"amount": "0"}, {"amount": ""}, {"amount": "x"}, {},
                                   {"amount": "1", "kind": "usage"}, {"amount": "99999999999"}], ids=str)  # fmt: skip
def test_an_impossible_grant_is_a_400(shared_house, given) -> None:
    root = shared_house.open(next(iter(shared_house.services.management.operators())))
    path = f"{org(shared_house['acme owner'])}/credits"
    assert shared_house.refused("POST", path, root, given) == "400 invalid_parameters"


def test_granted_credits_are_spendable_and_what_they_bought_is_in_the_activity(house) -> None:
    root, owner = house.open(next(iter(house.services.management.operators()))), house["acme owner"]
    body = {"model": "sandbox/echo", "messages": [{"role": "user", "content": "Hello"}]}
    models = house.ok("GET", "/v1/models?mapped=true")["data"]
    body["model"] = next(one["id"] for one in models if one["id"].startswith("sandbox/"))
    house.ok("POST", f"{org(owner)}/credits", root, {"amount": "5"})
    for _ in range(3):
        house.ok("POST", "/v1/chat/completions", owner.key.token, body, x_source="my-app")
    [day] = house.ok("GET", f"/activity?projectId={owner.project_id}&days=1", owner)["activity"]
    assert (day["requestCount"], day["errorCount"]) == (3, 0) and day["totalTokens"] > 0
    [source] = house.ok("GET", f"/activity/sources?projectId={owner.project_id}", owner)["sources"]
    assert (source["source"], source["requestCount"], source["cost"]) == ("my-app", 3, day["cost"])
    key = house.ok("GET", "/keys/api?filter=mine", owner)["apiKeys"][0]
    assert float(key["usage"]) == pytest.approx(day["cost"])


def test_project_settings_are_read_back_and_in_force(shared_house) -> None:
    owner = shared_house["rival owner"]
    path = f"/projects/{owner.project_id}"
    given = {"mode": "hybrid", "cachingEnabled": True, "cacheDurationSeconds": 10, "retention": "retain",
             "retentionDays": 7, "cacheMarkers": "client-managed", "routing": "price", "name": "Renamed"}  # fmt: skip
    changed = shared_house.ok("PATCH", path, owner, given)["project"]
    assert {name: changed[name] for name in given} == given
    assert shared_house.ok("GET", path, shared_house["rival developer"])["project"] == changed
    caller = shared_house.services.accounts.authentication.caller(owner.key.token)
    assert (caller.mode, caller.cache_ttl_s, caller.settings["routing"]) == ("hybrid", 10, "price")


IMPOSSIBLE = [
    *({}, {"cacheDurationSeconds": 9}, {"cacheDurationSeconds": 31_536_001}),
    *({"mode": "free"}, {"cachingEnabled": "yes"}, {"retentionDays": 0}),
]


@pytest.mark.parametrize("given", IMPOSSIBLE, ids=str)
def test_an_impossible_project_setting_is_a_400(shared_house, given) -> None:
    owner = shared_house["acme owner"]
    assert shared_house.refused("PATCH", f"/projects/{owner.project_id}", owner, given) == "400 invalid_parameters"
    dev = shared_house["acme developer"]
    assert shared_house.refused("PATCH", f"/projects/{dev.project_id}", dev, {"name": "x"}).startswith("403")


def test_an_archived_project_answers_410_until_it_is_active_again(house) -> None:
    owner = house["acme owner"]
    path = f"/projects/{owner.project_id}"
    house.ok("DELETE", path, owner)
    assert house.call("GET", "/v1/key", owner.key.token)[0] == 410
    assert house.ok("GET", f"{org(owner)}/projects", owner)["projects"] == []
    assert len(house.ok("GET", f"{org(owner)}/projects?includeArchived=true", owner)["projects"]) == 1
    house.ok("PATCH", path, owner, {"status": "active"})
    assert house.call("GET", "/v1/key", owner.key.token)[0] == 200


def test_the_callback_secret_is_made_read_and_rolled(shared_house) -> None:
    admin = shared_house["acme admin"]
    path = f"/projects/{admin.project_id}/callback-secret"
    assert shared_house.ok("GET", path, admin) == {"callbackSecret": None}
    first = shared_house.ok("POST", f"{path}/roll", admin)["callbackSecret"]
    second = shared_house.ok("POST", f"{path}/roll", admin)["callbackSecret"]
    assert first.startswith("whsec_") and first != second
    assert shared_house.ok("GET", path, admin) == {"callbackSecret": second}
    entries = shared_house.ok("GET", f"{org(admin)}/audit?limit=1000", admin)
    assert second not in str(entries)


def test_the_policy_holds_for_the_next_request(house) -> None:
    owner = house["acme owner"]
    path = f"{org(owner)}/policy"
    assert house.ok("PUT", path, owner, {"blockedProviders": ["sandbox"]})["policy"]
    assert "sandbox/" not in str(house.ok("GET", "/v1/models?mapped=true", owner.key.token))
    assert house.ok("PUT", path, owner, {}) == {"policy": {}}
    assert house.refused("PUT", path, owner, {"requireMagic": True}) == "400 invalid_parameters"
    assert house.ok("GET", path, house["acme developer"]) == {"policy": {}}


def test_rules_of_a_key_hold_for_the_next_request_and_are_removed_again(house) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    path = f"/keys/api/{dev.key.info.id}/iam"
    rule = {"ruleType": "allow_providers", "ruleValue": {"providers": ["openai"]}}
    made = house.ok("POST", path, owner, rule)["rule"]
    assert "sandbox/" not in str(house.ok("GET", "/v1/models?mapped=true", dev.key.token))
    assert house.ok("GET", path, dev)["rules"] == [made]
    assert house.refused("DELETE", f"{path}/{made['id']}", dev) == "403 permission_denied"
    house.ok("PATCH", f"{path}/{made['id']}", owner, {"status": "inactive"})
    assert "sandbox/" in str(house.ok("GET", "/v1/models?mapped=true", dev.key.token))
    house.ok("DELETE", f"{path}/{made['id']}", owner)
    assert house.ok("GET", path, dev)["rules"] == []


def test_a_rule_is_put_at_a_place_of_the_own_organization_only(shared_house) -> None:
    owner, stranger = shared_house["acme owner"], shared_house["rival owner"]
    place = {"scope": "key", "scopeId": stranger.key.info.id}
    assert shared_house.refused("POST", f"{org(owner)}/iam", owner, {**RULE, **place}) == "404 not_found"
    nonsense = {"ruleType": "deny_models", "ruleValue": {"cidrs": []}, "scope": "organization"}
    body = {**nonsense, "scopeId": owner.organization_id}
    assert shared_house.refused("POST", f"{org(owner)}/iam", owner, body) == "400 invalid_parameters"


def test_teams_are_made_and_their_rules_hold_for_members(house) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    team = house.ok("POST", f"{org(owner)}/teams", owner, {"name": "Science"})["team"]
    seat = f"{org(owner)}/teams/{team['id']}/members/{dev.member_id}"
    house.ok("PUT", seat, owner)
    rule = {"ruleType": "deny_providers", "ruleValue": {"providers": ["sandbox"]}}
    house.ok("POST", f"{org(owner)}/iam", owner, {**rule, "scope": "team", "scopeId": team["id"]})
    assert "sandbox/" not in str(house.ok("GET", "/v1/models?mapped=true", dev.key.token))
    house.ok("DELETE", seat, owner)
    assert "sandbox/" in str(house.ok("GET", "/v1/models?mapped=true", dev.key.token))


def test_the_audit_log_is_paged_exported_and_verified(house) -> None:
    owner = house["acme owner"]
    for name in "abc":
        house.ok("PATCH", org(owner), owner, {"name": name})
    page = house.ok("GET", f"{org(owner)}/audit?limit=2", owner)
    rest = house.ok("GET", f"{org(owner)}/audit?limit=1000&before={page['next']}", owner)
    assert len(page["entries"]) == 2 and rest["next"] is None
    lines = house.ok("GET", f"{org(owner)}/audit/export", owner).splitlines()
    assert [orjson.loads(line) for line in lines] == page["entries"] + rest["entries"]
    assert house.ok("GET", f"{org(owner)}/audit/verify", owner)["valid"] is True
    assert house.refused("GET", f"{org(owner)}/audit/verify", house["acme admin"]) == "403 permission_denied"


def test_a_changed_entry_shows_in_the_verification(house) -> None:
    owner = house["acme owner"]
    database = house.services.store.database
    database.write(lambda: database.execute("UPDATE audit SET actor = 'nobody' WHERE seq = 3"))
    found = house.ok("GET", f"{org(owner)}/audit/verify", owner)
    assert found["valid"] is False and found["problems"] == ["entry 3 was changed"]


def test_the_last_owner_stays(house) -> None:
    owner = house["acme owner"]
    root = next(
        m for m in house.ok("GET", f"{org(owner)}/members", owner)["members"] if m["email"] == "owner@localhost"
    )
    house.ok("DELETE", f"{org(owner)}/members/{root['id']}", owner)
    path = f"{org(owner)}/members/{owner.member_id}"
    assert house.refused("DELETE", path, owner) == "409 last_owner"
    assert house.refused("PATCH", path, owner, {"role": "admin"}) == "409 last_owner"


def test_members_are_listed_with_their_limits(shared_house) -> None:
    admin = shared_house["acme admin"]
    found = shared_house.ok("GET", f"{org(admin)}/members", admin)["members"]
    status = shared_house.services.billing.budgets.status(admin.member_id)
    mine = next(one for one in found if one["id"] == admin.member_id)
    assert mine["role"] == "admin" and show_limits(status).items() <= mine.items()


def test_a_spent_members_limit_refuses_their_keys(house) -> None:
    owner, root = house["acme owner"], house.open(next(iter(house.services.management.operators())))
    house.ok("POST", f"{org(owner)}/credits", root, {"amount": "5"})
    path = f"{org(owner)}/members/{owner.member_id}/limit"
    house.ok("PATCH", path, owner, {"usageLimit": "0"})
    models = house.ok("GET", "/v1/models?mapped=true")["data"]
    model = next(one["id"] for one in models if one["id"].startswith("sandbox/"))
    body = {"model": model, "messages": [{"role": "user", "content": "Hello"}]}
    status, answer = house.call("POST", "/v1/chat/completions", owner.key.token, body)
    assert (status, answer["error"]["code"]) == (402, "member_limit_reached")


def test_skills_are_published_by_managers_and_read_by_all(shared_house) -> None:
    admin, dev = shared_house["rival admin"], shared_house["rival developer"]
    body = {"content": "---\nname: helpful\ndescription: Helps.\n---\nText", "files": []}
    assert shared_house.refused("POST", f"{org(dev)}/skills", dev, body) == "403 permission_denied"
    skill = shared_house.ok("POST", f"{org(admin)}/skills", admin, body)["skill"]
    assert shared_house.ok("GET", f"{org(dev)}/skills", dev)["skills"] == [skill]
    assert shared_house.ok("GET", f"{org(dev)}/skills/{skill['id']}", dev)["skill"]["content"] == body["content"]
    off = shared_house.ok("PATCH", f"{org(admin)}/skills/{skill['id']}", admin, {"enabled": False})
    assert off["skill"]["enabled"] is False


def test_the_projects_strategy_holds_where_a_request_names_none_and_leaves_the_provider_open(house) -> None:
    owner = house["acme owner"]

    def strategy(model: str = "auto", **wish: str) -> str:
        body = {"model": model, "messages": [{"role": "user", "content": "Hello"}], **wish}
        return house.ok("POST", "/v1/route/explain", owner.key.token, body).get("routing", "")

    assert strategy() == "auto"
    house.ok("PATCH", f"/projects/{owner.project_id}", owner, {"routing": "price"})
    assert strategy() == "price" and strategy(routing="latency") == "latency"
    assert strategy("sandbox/sandbox-echo") == "auto"
