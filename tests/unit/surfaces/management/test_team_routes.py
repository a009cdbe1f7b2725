import pytest

HELLO = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}], "max_tokens": 100}


def teams_of(who) -> str:
    return f"/orgs/{who.organization_id}/teams"


def make(tenants, owner, *members) -> tuple[str, dict]:
    """The path of a new team with these members, and what it is."""
    team = tenants.ok("POST", teams_of(owner), owner, {"name": "Research"})
    path = f"{teams_of(owner)}/{team['team']['id']}"
    for member in members:
        tenants.ok("PUT", f"{path}/members/{member.member_id}", owner)
    return path, team["team"]


def grant(tenants, owner) -> None:
    root = tenants.open_operator()
    tenants.ok("POST", f"/orgs/{owner.organization_id}/credits", root, {"amount": "5"})


def spent_team(tenants, owner, *members) -> tuple[str, dict]:
    """A team of these that has nothing left, in an organization with credits."""
    grant(tenants, owner)
    path, team = make(tenants, owner, *members)
    tenants.ok("PATCH", f"{path}/limit", owner, {"usageLimit": "0"})
    return path, team


def ask(tenants, who) -> str:
    """ "200", or status and code of the refusal."""
    status, answer = tenants.call("POST", "/v1/chat/completions", who.key.token, HELLO)
    return str(status) if status == 200 else f"{status} {answer['error']['code']}"


def test_a_team_has_the_two_limits_of_a_member(tenants) -> None:
    owner = tenants["acme owner"]
    path, team = make(tenants, owner)
    assert (team["usage"], team["usageLimit"], team["memberIds"]) == ("0", None, [])
    given = {"usageLimit": "20", "periodUsageLimit": "5", "periodUsageDurationValue": 1,
             "periodUsageDurationUnit": "week"}  # fmt: skip
    changed = tenants.ok("PATCH", f"{path}/limit", tenants["acme admin"], given)["team"]
    assert given.items() <= changed.items()
    assert tenants.ok("GET", path, owner)["team"] == changed
    cleared = tenants.ok("PATCH", f"{path}/limit", owner, dict.fromkeys(given))["team"]
    assert (cleared["usageLimit"], cleared["periodUsageLimit"]) == (None, None)


def test_members_spend_against_the_team_and_a_spent_team_refuses_by_name(tenants) -> None:
    owner, dev, other = tenants["acme owner"], tenants["acme developer"], tenants["acme colleague"]
    grant(tenants, owner)
    path, team = make(tenants, owner, dev, other)
    tenants.ok("PATCH", f"{path}/limit", owner, {"usageLimit": "1"})
    assert [ask(tenants, dev), ask(tenants, other), ask(tenants, owner)] == ["200"] * 3
    spent = {
        member["id"]: member["usage"]
        for member in tenants.ok("GET", f"/orgs/{owner.organization_id}/members", owner)["members"]
    }
    total = sum(float(spent[one.member_id]) for one in (dev, other))
    assert float(tenants.ok("GET", path, owner)["team"]["usage"]) == pytest.approx(total, abs=1e-12) != 0
    tenants.ok("PATCH", f"{path}/limit", owner, {"usageLimit": "0"})
    assert [ask(tenants, one) for one in (dev, other)] == ["402 team_limit_reached"] * 2
    _, answer = tenants.call("POST", "/v1/chat/completions", dev.key.token, HELLO)
    assert f'team "{team["name"]}"' in answer["error"]["message"]
    assert ask(tenants, owner) == "200"


def test_leaving_a_team_without_budget_allows_requests_at_once(tenants) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    path, _ = spent_team(tenants, owner, dev)
    assert ask(tenants, dev) == "402 team_limit_reached"
    tenants.ok("DELETE", f"{path}/members/{dev.member_id}", owner)
    assert ask(tenants, dev) == "200"
    tenants.ok("PUT", f"{path}/members/{dev.member_id}", owner)
    assert ask(tenants, dev) == "402 team_limit_reached"


def test_a_deleted_team_limits_no_member_and_its_rules_are_gone(tenants) -> None:
    owner, dev = tenants["acme owner"], tenants["acme developer"]
    path, team = spent_team(tenants, owner, dev)
    rule = {"ruleType": "deny_models", "ruleValue": {"models": ["auto"]}, "scope": "team", "scopeId": team["id"]}
    tenants.ok("POST", f"/orgs/{owner.organization_id}/iam", owner, rule)
    tenants.ok("DELETE", path, owner)
    assert ask(tenants, dev) == "200"
    assert tenants.refused("GET", path, owner) == "404 not_found"
    assert tenants.ok("GET", f"/orgs/{owner.organization_id}/iam", owner)["rules"] == []
    assert tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)["entries"][0]["action"] == "team.delete"


def test_a_team_is_renamed_but_not_to_the_name_of_another(tenants) -> None:
    owner = tenants["acme owner"]
    path, team = make(tenants, owner)
    tenants.ok("POST", teams_of(owner), owner, {"name": "Sales"})
    assert tenants.ok("PATCH", path, owner, {"name": " Science "})["team"]["name"] == "Science"
    assert tenants.ok("PATCH", path, owner, {"name": "Science"})["team"]["id"] == team["id"]
    assert tenants.refused("PATCH", path, owner, {"name": "Sales"}) == "409 team_exists"


@pytest.mark.parametrize("given", [{}, {"usageLimit": "-1"}, {"periodUsageLimit": "1"}, {"limit": "1"}], ids=str)
def test_an_impossible_limit_is_a_400(tenants, given) -> None:
    owner = tenants["acme owner"]
    path, _ = make(tenants, owner)
    assert tenants.refused("PATCH", f"{path}/limit", owner, given).startswith("400 ")
