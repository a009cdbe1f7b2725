import pytest

HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}


def teams_of(who) -> str:
    return f"/orgs/{who.organization_id}/teams"


def make(house, owner, *members) -> tuple[str, dict]:
    """The path of a new team with these members, and what it is."""
    team = house.ok("POST", teams_of(owner), owner, {"name": "Research"})
    path = f"{teams_of(owner)}/{team['team']['id']}"
    for one in members:
        house.ok("PUT", f"{path}/members/{one.member_id}", owner)
    return path, team["team"]


def grant(house, owner) -> None:
    root = house.open(next(iter(house.services.management.operators())))
    house.ok("POST", f"/orgs/{owner.organization_id}/credits", root, {"amount": "5"})


def ask(house, who) -> str:
    """ "200", or status and code of the refusal."""
    status, answer = house.call("POST", "/v1/chat/completions", who.key.token, HELLO)
    return str(status) if status == 200 else f"{status} {answer['error']['code']}"


def test_a_team_has_the_two_limits_of_a_member(house) -> None:
    owner = house["acme owner"]
    path, team = make(house, owner)
    assert (team["usage"], team["usageLimit"], team["memberIds"]) == ("0", None, [])
    given = {"usageLimit": "20", "periodUsageLimit": "5", "periodUsageDurationValue": 1,
             "periodUsageDurationUnit": "week"}  # fmt: skip
    changed = house.ok("PATCH", f"{path}/limit", house["acme admin"], given)["team"]
    assert given.items() <= changed.items()
    assert house.ok("GET", path, owner)["team"] == changed
    cleared = house.ok("PATCH", f"{path}/limit", owner, dict.fromkeys(given))["team"]
    assert (cleared["usageLimit"], cleared["periodUsageLimit"]) == (None, None)


def test_members_spend_against_the_team_and_a_spent_team_refuses_by_name(house) -> None:
    owner, dev, other = house["acme owner"], house["acme developer"], house["acme colleague"]
    grant(house, owner)
    path, team = make(house, owner, dev, other)
    house.ok("PATCH", f"{path}/limit", owner, {"usageLimit": "1"})
    assert [ask(house, dev), ask(house, other), ask(house, owner)] == ["200"] * 3
    spent = {
        one["id"]: one["usage"] for one in house.ok("GET", f"/orgs/{owner.organization_id}/members", owner)["members"]
    }
    total = sum(float(spent[one.member_id]) for one in (dev, other))
    assert float(house.ok("GET", path, owner)["team"]["usage"]) == pytest.approx(total, abs=1e-12) != 0
    house.ok("PATCH", f"{path}/limit", owner, {"usageLimit": "0"})
    assert [ask(house, one) for one in (dev, other)] == ["402 team_limit_reached"] * 2
    _, answer = house.call("POST", "/v1/chat/completions", dev.key.token, HELLO)
    assert f'team "{team["name"]}"' in answer["error"]["message"]
    assert ask(house, owner) == "200"


def test_who_leaves_a_spent_team_may_go_on_at_once(house) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    grant(house, owner)
    path, _ = make(house, owner, dev)
    house.ok("PATCH", f"{path}/limit", owner, {"usageLimit": "0"})
    assert ask(house, dev) == "402 team_limit_reached"
    house.ok("DELETE", f"{path}/members/{dev.member_id}", owner)
    assert ask(house, dev) == "200"
    house.ok("PUT", f"{path}/members/{dev.member_id}", owner)
    assert ask(house, dev) == "402 team_limit_reached"


def test_a_deleted_team_limits_nobody_and_is_gone_with_its_rules(house) -> None:
    owner, dev = house["acme owner"], house["acme developer"]
    grant(house, owner)
    path, team = make(house, owner, dev)
    house.ok("PATCH", f"{path}/limit", owner, {"usageLimit": "0"})
    rule = {"ruleType": "deny_models", "ruleValue": {"models": ["auto"]}, "scope": "team", "scopeId": team["id"]}
    house.ok("POST", f"/orgs/{owner.organization_id}/iam", owner, rule)
    house.ok("DELETE", path, owner)
    assert ask(house, dev) == "200"
    assert house.refused("GET", path, owner) == "404 not_found"
    assert house.ok("GET", f"/orgs/{owner.organization_id}/iam", owner)["rules"] == []
    assert house.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)["entries"][0]["action"] == "team.delete"


def test_a_team_is_renamed_but_not_to_the_name_of_another(house) -> None:
    owner = house["acme owner"]
    path, team = make(house, owner)
    house.ok("POST", teams_of(owner), owner, {"name": "Sales"})
    assert house.ok("PATCH", path, owner, {"name": " Science "})["team"]["name"] == "Science"
    assert house.ok("PATCH", path, owner, {"name": "Science"})["team"]["id"] == team["id"]
    assert house.refused("PATCH", path, owner, {"name": "Sales"}) == "409 team_exists"


@pytest.mark.parametrize("given", [{}, {"usageLimit": "-1"}, {"periodUsageLimit": "1"}, {"limit": "1"}], ids=str)
def test_an_impossible_limit_is_a_400(house, given) -> None:
    owner = house["acme owner"]
    path, _ = make(house, owner)
    assert house.refused("PATCH", f"{path}/limit", owner, given).startswith("400 ")
