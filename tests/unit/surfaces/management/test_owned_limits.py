"""Limits of keys, members, teams, provider keys, sessions and runs as limits of the organization: set with actions,
raised for a time, asked for, simulated and removed by who may change them with their owner."""

from typing import Any

import pytest
from support.console import open_page, press_button
from support.management import Person, Tenants

from gateway.accounts.spending_limits import SpendingLimits

FAR = "2099-01-01T00:00:00Z"


class Owned:
    """Acme's owners of limits, by kind, with the address that sets each of their limits."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants = tenants
        self.owner = tenants["acme owner"]
        self.developer = tenants["acme developer"]
        organization = f"/orgs/{self.owner.organization_id}"
        self.path = f"{organization}/limits"
        self.team = tenants.ok("POST", f"{organization}/teams", self.owner, {"name": "Search"})["team"]["id"]
        body = {"organizationId": self.owner.organization_id, "provider": "openai", "token": "sk-own"}
        self.pkey = tenants.ok("POST", "/keys/provider", self.owner, body)["providerKey"]["id"]
        key, member, project = self.developer.key.info.id, self.developer.member_id, self.owner.project_id
        self.patches = {
            f"{key}:total": (f"/keys/api/limit/{key}", "usageLimit"),
            f"{member}:total": (f"{organization}/members/{member}/limit", "usageLimit"),
            f"{self.team}:total": (f"{organization}/teams/{self.team}/limit", "usageLimit"),
            f"{self.pkey}:total": (f"/keys/provider/{self.pkey}", "maxSpend"),
            f"{key}:session": (f"/keys/api/{key}/session-budget", "sessionBudget"),
            f"{project}:run": (f"/projects/{project}/session-budget", "runBudget"),
        }

    def limit(self, name: str, who: Person | None = None) -> Any:
        return self.tenants.ok("GET", f"{self.path}/{name}", who or self.owner)["limit"]

    def set(self, name: str, usd: str | None) -> Any:
        path, field = self.patches[name]
        answer = self.tenants.ok("PATCH", path, self.owner, {field: usd})
        return next(value[field] for value in answer.values() if isinstance(value, dict))

    def put(self, name: str, who: Person | None = None, **body: Any) -> tuple[int, Any]:
        """Set a limit with the subjects of its id."""
        ident, _, part = name.rpartition(":")
        kinds = {"pkey": "provider_key", "proj": "project"}
        prefix = ident.partition("_")[0]
        subjects = [f"{kinds.get(prefix, prefix)}={ident}"]
        if part in ("session", "run"):
            subjects.append(f"each {part}")
        body = {"subjects": subjects, "amount": "5", **body}
        return self.tenants.call("PUT", f"{self.path}/{name}", who or self.owner, body)

    def made(self, name: str, **body: Any) -> Any:
        status, answer = self.put(name, **body)
        assert status == 200, answer
        return answer["limit"]

    def in_force(self, name: str) -> int | None:
        """Return the amount that requests are held to."""
        owner, _, part = name.rpartition(":")
        database = self.tenants.services.store.database
        sql = f"SELECT {part}_nusd FROM session_budget WHERE scope_id = ?"
        if part in ("total", "window"):
            sql, owner = "SELECT limit_nusd FROM budget WHERE id = ?", name
        rows = database.read(lambda: database.fetch(sql, (owner,)))
        return None if not rows or rows[0][0] is None else int(rows[0][0])


@pytest.fixture
def owned(tenants: Tenants) -> Owned:
    return Owned(tenants)


NAMES = ("key total", "member total", "team total", "provider key total", "key session", "project run")


@pytest.mark.parametrize("number", range(len(NAMES)), ids=NAMES)
def test_a_limit_of_each_kind_is_one_resource_at_both_addresses(number: int, owned: Owned) -> None:
    tenants, name = owned.tenants, list(owned.patches)[number]
    path = f"{owned.path}/{name}"
    assert tenants.call("GET", path, owned.owner)[0] == 404
    made = owned.made(name)
    assert (made["amount"], made["limit"], made["actions"]) == ("5", "5", ["refuse@100"])
    assert owned.in_force(name) == 5 * 10**9 and owned.set(name, "6") == "6"
    assert owned.limit(name)["amount"] == "6"
    actions = ["warn@70", "model@90=gpt-4o-mini", "refuse@100"]
    acting = owned.made(name, amount="6", actions=actions)
    assert acting["actions"] == actions and owned.set(name, "6") == "6" and owned.limit(name)["actions"] == actions
    raised = tenants.ok("PUT", f"{path}/raise", owned.owner, {"amount": "2", "until": FAR})["limit"]
    assert (raised["amount"], raised["limit"], raised["raisedBy"]) == ("6", "8", "2")
    assert raised["raiseGrantedBy"] == owned.owner.user_id and owned.in_force(name) == 8 * 10**9
    assert owned.set(name, "6") == "6" and owned.in_force(name) == 8 * 10**9  # the same amount keeps the raise
    listed = tenants.ok("GET", f"{owned.path}?all=true", owned.owner)["limits"]
    assert [one["limit"] for one in listed if one["id"] == name] == ["8"]
    assert tenants.ok("GET", f"{path}/simulation?days=1", owned.owner)["simulation"]["requests"] == 0
    until = tenants.services.clock.now_us()
    store = tenants.services.store
    store.database.write(
        lambda: store.database.execute("UPDATE limits SET raise_until = ? WHERE id = ?", (until, name))
    )
    assert SpendingLimits(store.database, store.control).end_raises() == 1
    assert owned.in_force(name) == 6 * 10**9 and owned.limit(name)["raisedBy"] is None
    tenants.ok("PUT", f"{path}/raise", owned.owner, {"amount": "2", "until": FAR})
    assert owned.set(name, "3") == "3" and owned.in_force(name) == 3 * 10**9  # another amount ends the raise
    tenants.ok("DELETE", path, owned.owner)
    assert owned.in_force(name) is None and tenants.call("GET", path, owned.owner)[0] == 404


def test_a_period_of_a_key_keeps_what_was_used(owned: Owned) -> None:
    tenants, key = owned.tenants, owned.developer.key.info.id
    name = f"{key}:window"
    assert "period" in str(owned.put(name))
    owned.made(name, period="day", timezone="Europe/Berlin", actions=["alert@50", "refuse@100"])
    shown = tenants.ok("GET", f"/keys/api/{key}", owned.owner)["apiKey"]
    assert (shown["periodUsageLimit"], shown["periodTimezone"]) == ("5", "Europe/Berlin")
    assert shown["alertThresholds"] == [50] and shown["usageLimit"] is None
    tenants.ok("PATCH", f"/keys/api/limit/{key}", owned.owner, {"usageLimit": "9"})
    assert owned.limit(f"{key}:total")["actions"] == ["alert@50", "refuse@100"]
    assert owned.limit(f"{key}:window")["period"] == "day"


def test_a_budget_that_an_earlier_release_changed_counts_and_the_row_does_not(owned: Owned) -> None:
    tenants, key = owned.tenants, owned.developer.key.info.id
    name = f"{key}:total"
    owned.made(name, actions=["warn@50", "refuse@100"])
    tenants.ok("PUT", f"{owned.path}/{name}/raise", owned.owner, {"amount": "2", "until": FAR})
    database = tenants.services.store.database
    change = "UPDATE budget SET limit_nusd = 3000000000 WHERE id = ?"
    database.write(lambda: database.execute(change, (name,)))
    shown = owned.limit(name)
    assert (shown["amount"], shown["limit"], shown["raisedBy"]) == ("3", "3", None)
    assert tenants.ok("GET", f"/keys/api/{key}", owned.owner)["apiKey"]["usageLimit"] == "3"
    raised = tenants.ok("PUT", f"{owned.path}/{name}/raise", owned.owner, {"amount": "1", "until": FAR})["limit"]
    assert (raised["amount"], raised["limit"]) == ("3", "4") and owned.in_force(name) == 4 * 10**9
    database.write(lambda: database.execute("DELETE FROM limits WHERE id = ?", (name,)))
    assert owned.limit(name)["limit"] == "4"


def test_a_developer_asks_for_more_of_the_limit_of_the_own_key(owned: Owned) -> None:
    tenants, developer = owned.tenants, owned.developer
    name = f"{developer.key.info.id}:total"
    owned.made(name)
    assert owned.limit(name, developer)["limit"] == "5"
    more = {"amount": "2", "until": FAR, "note": "A launch"}
    for stranger in ("acme colleague", "rival owner"):
        assert tenants.call("POST", f"{owned.path}/{name}/requests", tenants[stranger], more)[0] in (403, 404)
    request = tenants.ok("POST", f"{owned.path}/{name}/requests", developer, more)["request"]["id"]
    grant = f"{owned.path}/{name}/requests/{request}"
    status, answer = tenants.call("PUT", grant, developer)
    assert status == 403 and "limit_not_yours" in str(answer)
    assert tenants.ok("PUT", grant, owned.owner)["limit"]["limit"] == "7"
    assert tenants.call("PUT", f"{owned.path}/{name}/raise", developer, {"amount": "3", "until": FAR})[0] == 403
    assert (
        tenants.ok("PUT", f"{owned.path}/{name}/raise", developer, {"amount": "0", "until": FAR})["limit"]["limit"]
        == "5"
    )


def test_who_may_not_change_a_limit_with_its_owner_may_not_here(owned: Owned) -> None:
    tenants = owned.tenants
    billing = tenants.join(owned.owner.organization_id, owned.owner.project_id, "billing@acme.example", "billing")
    admin, rival = tenants["acme admin"], tenants["rival owner"]
    for name in owned.patches:
        path = f"{owned.path}/{name}"
        owned.made(name, actions=["warn@50", "refuse@100"])
        for person in (tenants["acme colleague"], rival):
            assert owned.put(name, person, amount="9")[0] in (403, 404), name
            assert tenants.call("DELETE", path, person)[0] in (403, 404), name
            assert tenants.call("PUT", f"{path}/raise", person, {"amount": "1", "until": FAR})[0] in (403, 404)
        other = f"/orgs/{rival.organization_id}/limits/{name}"
        assert tenants.call("GET", other, rival)[0] in (403, 404) and tenants.call("DELETE", other, rival)[0] in (
            403,
            404,
        )
        if name.startswith("pkey_"):
            continue  # owners and admins change provider keys alike
        for body in ({"amount": "9"}, {"amount": "5"}):
            status, answer = owned.put(name, admin, **body)
            assert status == 403 and "limit_not_yours" in str(answer), name
        assert tenants.call("PUT", f"{path}/raise", admin, {"amount": "1", "until": FAR})[0] == 403
        assert tenants.call("DELETE", path, admin)[0] == 403
        assert owned.limit(name)["limit"] == "5"
    for name, status in ((f"{owned.developer.key.info.id}:total", 403), (f"{owned.team}:window", 200)):
        body = {"amount": "1", "period": "day", "timezone": "UTC"} if "window" in name else {"amount": "1"}
        assert owned.put(name, billing, **body)[0] == status


def test_what_ends_takes_its_limits_and_the_requests_for_more_along(owned: Owned) -> None:
    tenants, key = owned.tenants, owned.developer.key.info.id
    ends = {
        f"{key}:total": f"/keys/api/{key}",
        f"{owned.team}:total": f"/orgs/{owned.owner.organization_id}/teams/{owned.team}",
        f"{owned.pkey}:total": f"/keys/provider/{owned.pkey}",
    }
    for name in ends:
        owned.made(name)
        tenants.ok("POST", f"{owned.path}/{name}/requests", owned.owner, {"amount": "2", "until": FAR})
    for path in ends.values():
        tenants.ok("DELETE", path, owned.owner)
    database = tenants.services.store.database
    for table in ("limits WHERE owner <> ''", "limit_request"):
        sql = f"SELECT COUNT(*) FROM {table}"
        assert database.read(lambda sql=sql: database.fetch(sql, ()))[0][0] == 0
    assert {tenants.call("GET", f"{owned.path}/{name}", owned.owner)[0] for name in ends} == {404}


WRONG: dict[str, tuple[str, dict[str, Any]]] = {
    "another subject": ("{key}:total", {"subjects": ["organization"]}),
    "no refusal": ("{key}:total", {"actions": ["warn@80"]}),
    "a refusal at another share": ("{key}:total", {"actions": ["refuse@90"]}),
    "a period of a total": ("{key}:total", {"period": "1d"}),
    "an alert of sessions": ("{key}:session", {"actions": ["alert@80", "refuse@100"]}),
    "values of a credential": ("{key}:total", {"values": "credential"}),
    "an id with an unknown part": ("{key}:year", {}),
    "a part that a team has not": ("{team}:session", {}),
}


@pytest.mark.parametrize("case", WRONG)
def test_a_wrong_limit_of_an_owner_is_refused(case: str, owned: Owned) -> None:
    name, more = WRONG[case]
    name = name.format(key=owned.developer.key.info.id, team=owned.team)
    assert owned.put(name, **more)[0] == 400
    assert owned.tenants.call("GET", f"{owned.path}/{name}", owned.owner)[0] == 404


def test_a_developer_asks_on_the_page_of_the_refusal_and_an_owner_grants_there(owned: Owned) -> None:
    tenants, developer = owned.tenants, owned.developer
    name = f"{developer.key.info.id}:total"
    owned.made(name)
    path = f"/console/budgets/{owned.owner.organization_id}/{name}"
    seen = open_page(tenants, developer, path)
    assert "Key of developer@acme.example" in seen and ">$5.00<" in seen and "Ask for more" in seen
    assert "Raise for a time" in open_page(tenants, owned.owner, path)
    refused = press_button(tenants, tenants["acme colleague"], path, "ask", amount="2", until=FAR)
    assert refused.status_code in (403, 404)
    team = f"{owned.team}:total"
    owned.made(team)
    member = f"/orgs/{owned.owner.organization_id}/teams/{owned.team}/members/{developer.member_id}"
    tenants.ok("PUT", member, owned.owner)
    page = f"/console/budgets/{owned.owner.organization_id}/{team}"
    asked = press_button(tenants, developer, page, "ask", amount="2", until="2099-01-01", note="A launch").text
    assert "see that you ask for more" in asked and "Save" not in asked
    overview = open_page(tenants, owned.owner, "/console")
    assert "more of “team Search, $5.00 in total”" in overview and page.replace(":", "%3A") in overview
    request = tenants.ok("GET", f"{owned.path}/{team}/requests", owned.owner)["requests"][0]["id"]
    granted = press_button(tenants, owned.owner, page, "grant", request=request).text
    assert "was granted" in granted and ">$7.00<" in granted
    saved = press_button(tenants, owned.owner, page, "change", subjects=f"team={owned.team}", amount="6").text
    assert "The limit was saved" in saved and ">$6.00<" in saved and 'type="hidden" name="subjects"' in saved
    assert "Simulate" not in open_page(tenants, developer, page)
    mine = open_page(tenants, developer, "/console")
    assert f'value="{team} {owned.owner.organization_id}"' in mine and f'value="{name} ' in mine


def test_a_member_does_not_see_whose_requests_a_limit_of_others_would_refuse(owned: Owned) -> None:
    tenants, developer = owned.tenants, owned.developer
    member = f"/orgs/{owned.owner.organization_id}/teams/{owned.team}/members/{developer.member_id}"
    tenants.ok("PUT", member, owned.owner)
    own = (f"{developer.key.info.id}:total", f"{developer.member_id}:total")
    common = (f"{owned.team}:total", f"{owned.owner.project_id}:run")
    for name in own + common:
        owned.made(name)
        assert owned.limit(name, developer)["limit"] == "5"
        status, _ = tenants.call("GET", f"{owned.path}/{name}/simulation", developer)
        assert status == (200 if name in own else 403), name
