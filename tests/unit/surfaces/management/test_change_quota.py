"""Changes over the management API have a pace: a loop of them fills neither the audit log nor the table of keys."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.management import Tenants

from gateway.accounts import audit, changes
from gateway.admin import sign_in
from gateway.errors import RateLimited

MOST = 40


@pytest.fixture
def paced(make_tenants: Any) -> Iterator[Tenants]:
    with make_tenants(GATEWAY_LIMITS_MAX_CHANGES=str(MOST)) as gateway:
        yield Tenants(gateway)


def make(tenants: Tenants, who: Any) -> tuple[int, Any]:
    return tenants.call("POST", "/keys/api", who, {"description": "CI", "projectId": who.project_id})


def test_a_loop_of_one_member_ends_and_others_go_on(paced) -> None:
    dev, owner = paced["acme developer"], paced["acme owner"]
    first = make(paced, dev)[1]["apiKey"]
    statuses = []
    for number in range(MOST // 4):
        status = {"status": ("inactive", "active")[number % 2]}
        statuses.append(paced.call("PATCH", f"/keys/api/{first['id']}", dev, status)[0])
    assert statuses == [200] * (MOST // 4 - 1) + [429]
    entries = len(audit.list_entries(paced.services.store.database, dev.organization_id, limit=1000))
    status, answer = make(paced, dev)
    assert (status, answer["code"]) == (429, "too_many_changes") and "limits.max_changes" in answer["message"]
    assert len(audit.list_entries(paced.services.store.database, dev.organization_id, limit=1000)) == entries
    # Reading, deleting and everybody else go on.
    assert paced.call("GET", "/keys/api", dev)[0] == 200
    assert paced.call("DELETE", f"/keys/api/{first['id']}", dev)[0] == 200
    assert make(paced, owner)[0] == 200 and make(paced, paced["rival developer"])[0] == 200


def test_developers_together_leave_room_for_those_who_have_to_undo_it(paced, monkeypatch) -> None:
    monkeypatch.setattr("gateway.admin.account_changes.MEMBER_PART", 1)
    two = [paced["acme developer"], paced["acme colleague"]]
    statuses = [make(paced, two[number % 2])[0] for number in range(MOST * 3 // 4 + 1)]
    assert statuses[-2:] == [200, 429]
    answer = make(paced, two[0])[1]
    assert answer["message"].startswith("Your organization has made 30 changes")
    assert make(paced, paced["acme admin"])[0] == 200


def test_changes_outside_of_organizations_are_not_limited_by_their_quota(paced) -> None:
    dev = paced["acme developer"]
    while make(paced, dev)[0] == 200:
        pass
    assert paced.call("POST", "/auth/sign-out-everywhere", dev, {})[0] == 200
    dev = paced.open(dev.user_id)
    assert paced.call("GET", "/orgs", dev)[0] == 200


def test_sign_ins_that_succeed_have_a_count_too(paced, monkeypatch) -> None:
    monkeypatch.setattr(sign_in, "OPENED", 2)
    services, owner = paced.services, paced["acme owner"]
    place = sign_in.Place("203.0.113.7")
    begun = services.management.sign_in
    assert [bool(begun._open(owner.user_id, place)) for _ in range(2)] == [True, True]
    with pytest.raises(RateLimited, match="sign in, in a day"):
        begun._open(owner.user_id, place)


def test_keys_that_are_not_deleted_and_projects_have_a_most(paced, monkeypatch) -> None:
    owner = paced["acme owner"]
    monkeypatch.setattr(changes, "MAX_KEYS", 4)
    assert paced.refused("POST", "/keys/api", owner, {"description": "CI", "projectId": owner.project_id}) == (
        "400 too_many"
    )
    monkeypatch.setattr("gateway.accounts.projects.MAX_PROJECTS", 1)
    body = {"name": "Another", "organizationId": owner.organization_id}
    assert paced.call("POST", "/projects", owner, body)[1].get("code") == "too_many"
