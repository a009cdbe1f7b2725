"""Limits of an organization over the management API and on the page Budgets: checks, leads, requests for more."""

from html import unescape

import pytest
from support.console import open_page, press_button
from support.management import Person, Tenants

from gateway.accounts.spending_limits import MAX_REQUESTS_OF_PERSON
from gateway.ids import new_hex
from gateway.metering.session_ids import shorten
from gateway.surfaces.management.limit_simulation_routes import PER_MINUTE

FAR = "2099-01-01T00:00:00Z"
HOSTILE = '"><script>alert(1)</script>'
REFUSED = {
    "no subject": {"subjects": []},
    "three subjects": {"subjects": ["each user", "each model", "each key"]},
    "the same kind twice": {"subjects": ["each user", "user=ann"]},
    "an unknown kind": {"subjects": ["planet=mars"]},
    "a bare kind": {"subjects": ["user"]},
    "requests without a key": {"subjects": ["no key"]},
    "a tag without a name": {"subjects": ["each tag"]},
    "a pattern with brackets": {"subjects": ["model=gpt-[45]"]},
    "a model that nobody serves": {"subjects": ["model=gpt-9000"]},
    "a provider that nobody knows": {"subjects": ["provider=opnai"]},
    "a negative amount": {"amount": "-1"},
    "an amount in digits of another script": {"amount": "５"},
    "an amount that is too large": {"amount": "1000000001"},
    "no amount": {"amount": None},
    "an unknown period": {"period": "1y"},
    "a time zone without a period": {"timezone": "UTC"},
    "a time zone of a rolling period": {"period": "2w", "timezone": "UTC"},
    "an unknown time zone": {"period": "day", "timezone": "Moon/Base"},
    "an unknown action": {"actions": ["shout@80"]},
    "a share above the whole": {"actions": ["refuse@101"]},
    "a model without a name": {"actions": ["model@90"]},
    "an action with a model that nobody serves": {"actions": ["model@90=gpt-4o-minni", "refuse@100"]},
    "an action with a pattern as its model": {"actions": ["model@90=gpt-*", "refuse@100"]},
    "two refusals": {"actions": ["refuse@90", "refuse@100"]},
    "no actions": {"actions": []},
}


def path_of(tenants: Tenants, who: str = "acme owner") -> str:
    return f"/orgs/{tenants[who].organization_id}/limits"


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_limit_is_refused(case: str, shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    body = {"subjects": ["organization"], "amount": "5", **REFUSED[case]}
    assert shared_tenants.call("PUT", f"{path_of(shared_tenants)}/wrong", owner, body)[0] == 400
    assert shared_tenants.call("GET", f"{path_of(shared_tenants)}/wrong", owner)[0] == 404


def test_a_limit_names_things_of_its_own_organization_alone(shared_tenants: Tenants) -> None:
    owner, rival = shared_tenants["acme owner"], shared_tenants["rival owner"]
    for subject in (f"project={rival.project_id}", f"member={rival.member_id}", f"key={rival.key.info.id}"):
        body = {"subjects": [subject], "amount": "5"}
        assert shared_tenants.call("PUT", f"{path_of(shared_tenants)}/theirs", owner, body)[0] == 404
    assert shared_tenants.call("PUT", f"{path_of(shared_tenants)}/x", rival, body)[0] in (403, 404)


def administrator(tenants: Tenants) -> Person:
    """Return a new admin of acme."""
    owner = tenants["acme owner"]
    return tenants.join(owner.organization_id, owner.project_id, f"{new_hex()}@acme.example", "admin")


HELD = {"subjects": ["each user"], "amount": "5", "actions": ["warn@80", "refuse@100"], "reservation": "exact"}
WEAKER = {
    "a higher amount": {"amount": "6"},
    "a later refusal": {"amount": "1", "actions": ["warn@80"]},
    "without a warning": {"actions": ["refuse@100"]},
    "another reservation": {"reservation": "likely"},
    "another subject": {"subjects": ["each model"]},
    "another period": {"period": "1d"},
    "another source of values": {"values": "credential"},
}


@pytest.mark.parametrize("case", WEAKER)
def test_an_admin_does_not_weaken_a_limit_that_an_owner_set(case: str, shared_tenants: Tenants) -> None:
    owner, path = shared_tenants["acme owner"], f"{path_of(shared_tenants)}/held"
    before = shared_tenants.ok("PUT", path, owner, HELD)["limit"]
    status, answer = shared_tenants.call("PUT", path, administrator(shared_tenants), {**HELD, **WEAKER[case]})
    after = shared_tenants.ok("GET", path, owner)["limit"]
    changed = shared_tenants.ok("PUT", path, owner, {**HELD, **WEAKER[case]})["limit"]
    shared_tenants.ok("DELETE", path, owner)
    assert status == 403 and "limit_not_yours" in str(answer)
    assert after == before != changed


def test_an_admin_makes_a_limit_of_an_owner_stricter_and_takes_that_back(shared_tenants: Tenants) -> None:
    owner, admin, path = shared_tenants["acme owner"], administrator(shared_tenants), f"{path_of(shared_tenants)}/held"
    shared_tenants.ok("PUT", path, owner, HELD)
    more = {"amount": "2", "until": FAR}
    asked = shared_tenants.ok("POST", f"{path}/requests", admin, more)["request"]["id"]
    refused = (
        ("DELETE", path, None),
        ("PUT", f"{path}/raise", more),
        ("PUT", f"{path}/requests/{asked}", None),
    )
    for method, place, body in refused:
        status, answer = shared_tenants.call(method, place, admin, body)
        assert status == 403 and "limit_not_yours" in str(answer)
    stricter = {**HELD, "amount": "2", "actions": ["warn@50", "warn@80", "refuse@100"]}
    assert shared_tenants.ok("PUT", path, admin, stricter)["limit"]["amount"] == "2"
    assert shared_tenants.ok("PUT", path, admin, {**stricter, "amount": "5"})["limit"]["amount"] == "5"
    assert shared_tenants.call("PUT", path, admin, {**stricter, "amount": "5.01"})[0] == 403
    granted = shared_tenants.ok("PUT", f"{path}/requests/{asked}", owner)["limit"]
    lowered = shared_tenants.ok("PUT", f"{path}/raise", admin, {"amount": "1", "until": FAR})["limit"]
    ended = shared_tenants.ok("PUT", f"{path}/raise", admin, {"amount": "0", "until": FAR})["limit"]
    shared_tenants.ok("DELETE", path, owner)
    assert [one["limit"] for one in (granted, lowered, ended)] == ["7", "6", "5"]


def test_a_limit_that_an_admin_set_is_changed_by_everyone_who_may_set_limits(shared_tenants: Tenants) -> None:
    path = f"{path_of(shared_tenants)}/open"
    shared_tenants.ok("PUT", path, administrator(shared_tenants), HELD)
    another = administrator(shared_tenants)
    for amount in ("9", "4"):
        set_one = shared_tenants.ok("PUT", path, another, {"subjects": ["each model"], "amount": amount})["limit"]
        assert set_one["amount"] == amount
    shared_tenants.ok("DELETE", path, another)


def make_named(tenants: Tenants, kind: str) -> tuple[str, str]:
    """Return a new thing of acme that a limit can name: its id and its address."""
    owner = tenants["acme owner"]
    organization = f"/orgs/{owner.organization_id}"
    if kind == "team":
        ident = tenants.ok("POST", f"{organization}/teams", owner, {"name": new_hex()})["team"]["id"]
        return ident, f"{organization}/teams/{ident}"
    if kind == "project":
        ident = tenants.ok("POST", "/projects", owner, {"organizationId": owner.organization_id, "name": new_hex()})[
            "project"
        ]["id"]
        return ident, f"/projects/{ident}"
    if kind == "key":
        developer = tenants["acme developer"]
        body = {"projectId": owner.project_id, "description": "named"}
        ident = tenants.ok("POST", "/keys/api", developer, body)["apiKey"]["id"]
        return ident, f"/keys/api/{ident}"
    body = {"organizationId": owner.organization_id, "provider": "openai", "token": f"sk-{new_hex()}"}
    ident = tenants.ok("POST", "/keys/provider", owner, body)["providerKey"]["id"]
    return ident, f"/keys/provider/{ident}?organizationId={owner.organization_id}"


@pytest.mark.parametrize("kind", ["team", "project", "key", "provider_key"])
def test_a_lower_role_does_not_end_the_subject_of_an_owners_limit(kind: str, shared_tenants: Tenants) -> None:
    owner, admin = shared_tenants["acme owner"], administrator(shared_tenants)
    ident, place = make_named(shared_tenants, kind)
    path = f"{path_of(shared_tenants)}/{new_hex()}"
    body = {"subjects": [f"{kind}={ident}", "each model"], "amount": "5"}
    shared_tenants.ok("PUT", path, owner, body)
    status, answer = shared_tenants.call("DELETE", place, admin)
    assert status == 403 and "limit_not_yours" in str(answer), answer
    if kind == "project":
        assert shared_tenants.call("PATCH", place, admin, {"status": "archived"})[0] == 403
    shared_tenants.ok("DELETE", path, owner)
    shared_tenants.ok("PUT", path, administrator(shared_tenants), body)
    shared_tenants.ok("DELETE", place, admin)
    shared_tenants.ok("DELETE", path, admin)


def test_a_member_stays_in_a_team_that_a_limit_of_an_owner_names(shared_tenants: Tenants) -> None:
    owner, admin, developer = (
        shared_tenants["acme owner"],
        administrator(shared_tenants),
        shared_tenants["acme developer"],
    )
    ident, place = make_named(shared_tenants, "team")
    path = f"{path_of(shared_tenants)}/{new_hex()}"
    membership = f"{place}/members/{developer.member_id}"
    shared_tenants.ok("PUT", membership, owner)
    shared_tenants.ok("PUT", path, owner, {"subjects": [f"team={ident}"], "amount": "5"})
    status, answer = shared_tenants.call("DELETE", membership, admin)
    assert status == 403 and "limit_not_yours" in str(answer)
    shared_tenants.ok("DELETE", path, owner)
    shared_tenants.ok("DELETE", membership, admin)


def test_answers_say_who_granted_a_raise_and_whether_a_limit_is_yours(shared_tenants: Tenants) -> None:
    owner, admin, path = shared_tenants["acme owner"], administrator(shared_tenants), f"{path_of(shared_tenants)}/said"
    page = f"/console/budgets/{owner.organization_id}/said"
    shared_tenants.ok("PUT", path, owner, HELD)
    raised = shared_tenants.ok("PUT", f"{path}/raise", owner, {"amount": "2", "until": FAR})["limit"]
    lowered = shared_tenants.ok("PUT", f"{path}/raise", admin, {"amount": "1", "until": FAR})["limit"]
    shared_tenants.ok("PUT", path, owner, {**HELD, "amount": "6"})
    (listed,) = (
        one for one in shared_tenants.ok("GET", path_of(shared_tenants), owner)["limits"] if one["id"] == "said"
    )
    pages = {who.user_id: open_page(shared_tenants, who, page) for who in (owner, admin)}
    ended = shared_tenants.ok("PUT", f"{path}/raise", admin, {"amount": "0", "until": FAR})["limit"]
    shared_tenants.ok("DELETE", path, owner)
    assert [one["raiseGrantedBy"] for one in (raised, lowered, listed, ended)] == [
        owner.user_id,
        admin.user_id,
        admin.user_id,
        None,
    ]
    assert [one["deletable"] for one in (raised, lowered, listed)] == [True, False, True]
    assert 'value="delete"' in pages[owner.user_id] and 'value="delete"' not in pages[admin.user_id]


def test_a_lead_sees_and_raises_the_limits_of_the_team_alone(shared_tenants: Tenants) -> None:
    owner, lead = shared_tenants["acme owner"], shared_tenants["acme colleague"]
    organization = f"/orgs/{owner.organization_id}"
    team = shared_tenants.ok("POST", f"{organization}/teams", owner, {"name": "Led"})["team"]["id"]
    shared_tenants.ok("PUT", f"{organization}/teams/{team}/leads/{lead.member_id}", owner)
    limits = path_of(shared_tenants)
    theirs = {"subjects": [f"team={team}", "each model"], "amount": "5"}
    shared_tenants.ok("PUT", f"{limits}/theirs", administrator(shared_tenants), theirs)
    shared_tenants.ok("PUT", f"{limits}/all", owner, {"subjects": ["organization"], "amount": "9"})
    try:
        listed = shared_tenants.ok("GET", limits, lead)["limits"]
        assert [one["id"] for one in listed] == ["theirs"]
        raised = shared_tenants.ok("PUT", f"{limits}/theirs/raise", lead, {"amount": "2", "until": FAR})["limit"]
        assert [raised[part] for part in ("amount", "limit", "raisedBy")] == ["5", "7", "2"]
        assert raised["raisedUntil"].startswith("2099")
        for method, place, body in (
            ("GET", "all", None),
            ("PUT", "all/raise", {"amount": "2", "until": FAR}),
            ("PUT", "theirs", {"subjects": ["organization"], "amount": "50"}),
            ("DELETE", "theirs", None),
        ):
            assert shared_tenants.call(method, f"{limits}/{place}", lead, body)[0] == 403
        shared_tenants.ok("PUT", f"{limits}/theirs", owner, theirs)
        status, answer = shared_tenants.call("PUT", f"{limits}/theirs/raise", lead, {"amount": "3", "until": FAR})
        assert status == 403 and "limit_not_yours" in str(answer)
    finally:
        for name in ("theirs", "all"):
            shared_tenants.ok("DELETE", f"{limits}/{name}", owner)
        shared_tenants.ok("DELETE", f"{organization}/teams/{team}", owner)


def test_a_member_asks_for_more_and_an_owner_grants_it_on_the_page(shared_tenants: Tenants) -> None:
    owner, developer = shared_tenants["acme owner"], shared_tenants["acme developer"]
    limits, page = path_of(shared_tenants), f"/console/budgets/{owner.organization_id}/users"
    pages = f"/console/budgets?organization={owner.organization_id}"
    fields = {"subjects": "each user", "period": "day", "timezone": "UTC", "actions": "warn@80, refuse@100"}
    made = press_button(shared_tenants, owner, pages, "put", id="users", amount="2", **fields).text
    assert "The limit users was saved" in made and "each user" in made
    asked = {"amount": "1.50", "until": FAR, "note": HOSTILE}
    request = shared_tenants.ok("POST", f"{limits}/users/requests", developer, asked)["request"]["id"]
    shown = open_page(shared_tenants, owner, page)
    assert "$1.50" in shown
    raw = press_button(shared_tenants, owner, page, "decline", request="unknown").text
    assert HOSTILE not in raw and "&lt;script&gt;" in raw
    assert "was granted" in press_button(shared_tenants, owner, page, "grant", request=request).text
    limit = shared_tenants.ok("GET", f"{limits}/users", owner)["limit"]
    assert (limit["limit"], limit["actions"], limit["timezone"]) == ("3.5", ["warn@80", "refuse@100"], "UTC")
    assert shared_tenants.ok("GET", f"{limits}/users/requests", owner)["requests"] == []
    saved = press_button(shared_tenants, owner, page, "change", amount="4", reservation="exact", **fields).text
    assert "The limit was saved" in saved
    limit = shared_tenants.ok("GET", f"{limits}/users", owner)["limit"]
    assert (limit["amount"], limit["limit"], limit["reservation"]) == ("4", "5.5", "exact")
    assert press_button(shared_tenants, developer, page, "change", amount="400", **fields).status_code == 403
    assert "was deleted" in press_button(shared_tenants, owner, page, "delete").text
    actions = [
        one["action"] for one in shared_tenants.ok("GET", f"/orgs/{owner.organization_id}/audit", owner)["entries"]
    ]
    assert actions[:5] == ["limit.delete", "limit.set", "limit.raise", "limit.ask", "limit.set"]


def test_a_limit_is_simulated_on_its_page_before_it_is_saved_and_afterwards(tenants: Tenants) -> None:
    owner, developer = tenants["acme owner"], tenants["acme developer"]
    tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "grant")
    pages, page = (
        f"/console/budgets?organization={owner.organization_id}",
        f"/console/budgets/{owner.organization_id}/tight",
    )
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    for who in (owner, developer, developer):
        tenants.ok("POST", "/v1/chat/completions", who.key.token, body)
    fields = {"subjects": "project=" + owner.project_id, "actions": "refuse@100", "amount": "0"}
    tried = unescape(press_button(tenants, owner, pages, "preview", id="tight", **fields).text)
    assert "With this limit, 3 requests of 2 people would have been refused since" in tried
    assert "data-again" in tried and f'value="project={owner.project_id}"' in tried
    assert tenants.ok("GET", path_of(tenants), owner)["limits"] == []
    tenants.ok("PUT", f"{path_of(tenants)}/tight", owner, {"subjects": ["organization"], "amount": "5"})
    assert "none of 3 requests for $0." in press_button(tenants, owner, page, "simulate").text
    changed = unescape(press_button(tenants, owner, page, "try", **fields).text)
    assert (
        "3 requests of 2 people would have been refused" in changed and f'value="project={owner.project_id}"' in changed
    )
    assert tenants.ok("GET", f"{path_of(tenants)}/tight", owner)["limit"]["subjects"] == ["organization"]
    wrong = press_button(tenants, owner, pages, "preview", **fields | {"subjects": "planet=mars"})
    assert "is no subject" in unescape(wrong.text) and "data-again" in wrong.text
    assert press_button(tenants, developer, page, "try", **fields).status_code == 403


def test_simulations_of_an_organization_are_few_in_a_minute(tenants: Tenants) -> None:
    owner, rival = tenants["acme owner"], tenants["rival owner"]
    path = f"{path_of(tenants)}/simulation"
    body = {"subjects": ["organization"], "amount": "5"}
    statuses = [tenants.call("POST", path, owner, body)[0] for _ in range(PER_MINUTE + 1)]
    assert statuses == [200] * PER_MINUTE + [429]
    assert tenants.call("POST", path, rival, body)[0] in (403, 404)
    assert tenants.call("POST", path_of(tenants, "rival owner") + "/simulation", rival, body)[0] == 200


def test_the_list_shows_the_limits_that_are_changed_elsewhere(tenants: Tenants) -> None:
    owner, developer, path = tenants["acme owner"], tenants["acme developer"], path_of(tenants)
    tenants.services.billing.ledger.grant(owner.organization_id, 10**9, "grant")
    organization = f"/orgs/{owner.organization_id}"
    team = tenants.ok("POST", f"{organization}/teams", owner, {"name": "Search"})["team"]["id"]
    key = developer.key.info.id
    changes = {
        f"/keys/api/limit/{key}": {"usageLimit": "7", "alertThresholds": [50]},
        f"{organization}/members/{developer.member_id}/limit": {
            "periodUsageLimit": "3",
            "periodUsageDurationValue": 1,
            "periodUsageDurationUnit": "day",
        },
        f"{organization}/teams/{team}/limit": {"usageLimit": "9", "reservation": "exact"},
        f"/keys/api/{key}/session-budget": {"sessionBudget": "0.5"},
        f"/projects/{owner.project_id}/session-budget": {"runBudget": "2"},
    }
    for place, body in changes.items():
        tenants.ok("PATCH", place, owner, body)
    tenants.ok("PUT", f"{path}/own", owner, {"subjects": ["organization"], "amount": "5"})
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    tenants.ok("POST", "/v1/chat/completions", developer.key.token, body)
    assert [one["id"] for one in tenants.ok("GET", path, owner)["limits"]] == ["own"]
    listed = tenants.ok("GET", f"{path}?all=true", owner)["limits"]
    shown = {one["changedWith"]: (one["subjects"], one["limit"], one["period"], one["name"]) for one in listed}
    person = "developer@acme.example"
    assert shown == {
        None: (["organization"], "5", None, None),
        f"PATCH /keys/api/limit/{key}": ([f"key={key}"], "7", None, developer.key.info.description),
        f"PATCH {organization}/members/{developer.member_id}/limit": (
            [f"member={developer.member_id}"],
            "3",
            "1d",
            person,
        ),
        f"PATCH {organization}/teams/{team}/limit": ([f"team={team}"], "9", None, "Search"),
        f"PATCH /keys/api/{key}/session-budget": (
            [f"key={key}", "each session"],
            "0.5",
            None,
            developer.key.info.description,
        ),
        f"PATCH /projects/{owner.project_id}/session-budget": (
            [f"project={owner.project_id}", "each run"],
            "2",
            None,
            shown[f"PATCH /projects/{owner.project_id}/session-budget"][3],
        ),
    }
    of_key = next(one for one in listed if one["changedWith"] == f"PATCH /keys/api/limit/{key}")
    assert of_key["actions"] == ["alert@50", "refuse@100"] and of_key["deletable"]
    pages, cursor = [], ""
    while cursor is not None:
        answer = tenants.ok("GET", f"{path}?all=true&limit=2{cursor and f'&cursor={cursor}'}", owner)
        pages += answer["limits"]
        cursor = answer["next"]
    assert [one["id"] for one in pages] == [one["id"] for one in listed]
    page = open_page(tenants, owner, f"/console/budgets?organization={owner.organization_id}")
    assert "key " + developer.key.info.description in page and f"/{team}:total" in page
    viewer = tenants.join(owner.organization_id, owner.project_id, "viewer@acme.example", "viewer")
    seen = tenants.ok("GET", f"{path}?all=true", viewer)["limits"]
    assert not [one for one in seen if one["subjects"][0].startswith("key=")]


def test_a_raised_limit_that_is_set_as_it_was_read_is_raised_once(shared_tenants: Tenants) -> None:
    owner, path = shared_tenants["acme owner"], f"{path_of(shared_tenants)}/raised"
    shared_tenants.ok("PUT", path, owner, {"subjects": ["organization"], "amount": "10"})
    shared_tenants.ok("PUT", f"{path}/raise", owner, {"amount": "5", "until": FAR})
    read = shared_tenants.ok("GET", path, owner)["limit"]
    settable = ("subjects", "amount", "period", "timezone", "actions", "reservation", "values")
    written = shared_tenants.ok("PUT", path, owner, {part: read[part] for part in settable})["limit"]
    (listed,) = shared_tenants.ok("GET", path_of(shared_tenants), owner)["limits"]
    shared_tenants.ok("DELETE", path, owner)
    for shown in (read, written, listed):
        assert [shown[part] for part in ("amount", "raisedBy", "limit")] == ["10", "5", "15"]


def test_the_model_of_an_action_is_one_that_requests_may_name(shared_tenants: Tenants) -> None:
    owner, path = shared_tenants["acme owner"], f"{path_of(shared_tenants)}/substitute"
    body = {"subjects": ["organization"], "amount": "5"}
    status, answer = shared_tenants.call("PUT", path, owner, {**body, "actions": ["model@90=gpt-4o-minni"]})
    assert status == 400 and "gpt-4o-mini" in str(answer) and "actions" in str(answer)
    for model in ("gpt-4o-mini", "openai/gpt-4o-mini", "GPT-4o-Mini", "gpt-4o-mini-2024-07-18"):
        set_one = shared_tenants.ok("PUT", path, owner, {**body, "actions": [f"model@90={model}"]})["limit"]
        assert set_one["actions"] == [f"model@90={model}"]
    shared_tenants.ok("DELETE", path, owner)


def test_requests_for_more_of_a_person_are_few_and_in_the_export(tenants: Tenants) -> None:
    owner, developer, limits = tenants["acme owner"], tenants["acme developer"], path_of(tenants)
    names = [f"limit-{number:02}" for number in range(MAX_REQUESTS_OF_PERSON + 1)]
    more = {"amount": "1.5", "until": FAR, "note": "A launch"}
    for name in names:
        tenants.ok("PUT", f"{limits}/{name}", owner, {"subjects": ["organization"], "amount": "5"})
    for name in names[:-1] + names[:1]:
        tenants.ok("POST", f"{limits}/{name}/requests", developer, more)
    status, answer = tenants.call("POST", f"{limits}/{names[-1]}/requests", developer, more)
    assert status == 400 and "too_many" in str(answer)
    tenants.ok("POST", f"{limits}/{names[-1]}/requests", tenants["acme colleague"], more)
    path = f"/orgs/{owner.organization_id}/members/{developer.member_id}/export"
    exported = tenants.ok("GET", path, owner)["person"]["limitRequests"]
    assert sorted(one["limitId"] for one in exported) == names[:-1]
    assert {(one["amount"], one["until"][:4], one["note"]) for one in exported} == {("1.5", "2099", "A launch")}


def test_a_session_is_stored_as_requests_name_it(shared_tenants: Tenants) -> None:
    owner, path = shared_tenants["acme owner"], f"{path_of(shared_tenants)}/session"
    subjects = {}
    for session in ("plain-1", "with spaces/and slashes"):
        answer = shared_tenants.ok("PUT", path, owner, {"subjects": [f"session={session}"], "amount": "5"})
        subjects[session] = answer["limit"]["subjects"]
    shared_tenants.ok("DELETE", path, owner)
    assert subjects["plain-1"] == ["session=plain-1"]
    assert subjects["with spaces/and slashes"] == [f"session={shorten('with spaces/and slashes')}"]


def test_a_customer_is_one_of_the_keys_of_customers(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    body = {"subjects": [f"customer={owner.key.info.id}"], "amount": "5"}
    assert shared_tenants.call("PUT", f"{path_of(shared_tenants)}/customer", owner, body)[0] == 404
