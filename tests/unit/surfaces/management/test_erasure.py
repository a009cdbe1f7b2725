"""An erased person is in no table, the books and the audit log stay whole, and other people are untouched."""

from typing import Any

import pytest
from support.console import open_page, press_button
from support.management import Person, Tenants
from support.scim_client import GROUP_URN, USER_URN, IdentityProvider
from support.usage import insert_rows, usage_row

from gateway.accounts import audit, identities, members
from gateway.accounts.member_attributes import ENTERPRISE
from gateway.billing.reconciliation import doctor
from gateway.clock import HOUR_US
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database

NAME = "Wilhelmina Vandersloot"
EMAIL = "wilhelmina@person.example"
NUMBER = "E-000815"
FORMER = "wilhelmina@former.example"


@pytest.fixture
def tenants(open_tenants) -> Any:
    with open_tenants() as opened:
        yield opened


def find_text(tenants: Tenants, *words: str) -> list[str]:
    """Return the tables that contain one of the words, in any column."""
    database = tenants.services.store.database

    def read() -> list[str]:
        found = []
        names = database.fetch("SELECT name FROM sqlite_master WHERE type = 'table'")
        for (table,) in names:
            for row in database.fetch(f'SELECT * FROM "{table}"'):
                text = " ".join(
                    bytes(value).decode("latin-1") if isinstance(value, bytes | memoryview) else str(value)
                    for value in row
                )
                if any(word.lower() in text.lower() for word in words):
                    found.append(f"{table}: {text[:200]}")
        return found

    return database.read(read)


def provision(tenants: Tenants, owner: Person) -> tuple[IdentityProvider, str]:
    """Return a directory, and the member that it created and changed."""
    directory = IdentityProvider.of(tenants.gateway, owner.organization_id)
    created = directory(
        "POST",
        "/Users",
        {
            "schemas": [USER_URN],
            "userName": FORMER,
            "externalId": "W-4711",
            "active": True,
            "emails": [{"primary": True, "type": "work", "value": FORMER}],
            "name": {"formatted": NAME, "familyName": "Vandersloot", "givenName": "Wilhelmina"},
            ENTERPRISE: {"costCenter": "4711", "department": f"Office of {NAME}", "employeeNumber": NUMBER},
        },
    )
    path = f"/Users/{created['id']}"
    directory.patch(
        path,
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": EMAIL},
        {"op": "Replace", "path": "userName", "value": EMAIL},
    )
    return directory, created["id"]


def use_all(tenants: Tenants, owner: Person, member_id: str) -> None:
    """Leave the person's name and address wherever the product stores them."""
    organization = f"/orgs/{owner.organization_id}"
    key = {"projectId": owner.project_id, "description": f"Laptop of {NAME}", "memberId": member_id}
    tenants.ok("POST", "/keys/api", owner, key)
    team = tenants.ok("POST", f"{organization}/teams", owner, {"name": "Search"})["team"]["id"]
    tenants.ok("PUT", f"{organization}/teams/{team}/members/{member_id}", owner)
    tenants.ok("POST", f"{organization}/alerts", owner, {"url": f"mailto:{EMAIL}"})
    limit = {"usageLimit": 5}
    tenants.ok("PATCH", f"{organization}/members/{member_id}/limit", owner, limit)


def test_nothing_names_an_erased_person_and_the_books_and_the_audit_log_verify(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    _, member_id = provision(tenants, owner)
    use_all(tenants, owner, member_id)
    path = f"/orgs/{owner.organization_id}/members/{member_id}"
    exported = tenants.ok("GET", f"{path}/export", owner)["person"]
    assert exported["member"]["email"] == EMAIL and exported["provisioned"][0]["externalId"] == "W-4711"
    assert exported["apiKeys"][0]["description"] == f"Laptop of {NAME}" and len(exported["teamIds"]) == 1
    assert len(exported["audit"]) > 3 and "token" not in str(exported).lower().replace("maskedtoken", "")
    words = (EMAIL, FORMER, NAME, "Vandersloot", "W-4711", NUMBER)
    assert len({line.partition(":")[0] for line in find_text(tenants, *words)}) >= 5
    erased = tenants.ok("POST", f"{path}/erase", owner)["erasure"]
    assert erased["memberId"] == member_id and erased["keys"] == 1 and erased["accountDeleted"]
    assert erased["auditEntries"] >= 2
    assert find_text(tenants, *words) == []
    assert doctor(tenants.services.store.database) == []
    assert audit.verify(tenants.services.store.database)[1] == []
    assert tenants.refused("GET", path, owner).startswith("404")
    listed = tenants.ok("GET", f"/orgs/{owner.organization_id}/members", owner)["members"]
    assert member_id not in [member["id"] for member in listed] and len(listed) == 5


def test_the_export_of_a_person_has_all_that_is_stored_about_them(tenants: Tenants) -> None:
    owner, rival = tenants["acme owner"], tenants["rival owner"]
    directory, member_id = provision(tenants, owner)
    use_all(tenants, owner, member_id)
    group = {"schemas": [GROUP_URN], "displayName": "Engineers", "members": [{"value": member_id}]}
    directory("POST", "/Groups", group)
    organization = f"/orgs/{owner.organization_id}"
    path = f"{organization}/members/{member_id}"
    found = tenants.ok("GET", path, owner)["member"]
    team = tenants.ok("GET", f"{organization}/teams", owner)["teams"][0]["id"]
    tenants.ok("PUT", f"{organization}/teams/{team}/leads/{member_id}", owner)
    tenants.ok("PUT", f"/projects/{owner.project_id}/admins/{member_id}", owner)
    database, control = tenants.services.store.database, tenants.services.store.control
    tenants.services.management.sessions.open(found["userId"], "Firefox")
    for number, organization_id in enumerate((owner.organization_id, rival.organization_id)):
        insert_identity(database, organization_id, f"subject {number}", found["userId"])
    members.add_member(database, control, rival.organization_id, EMAIL, actor="operator")
    exported = tenants.ok("GET", f"{path}/export", owner)["person"]
    assert sorted(exported["roleIn"]) == sorted((team, owner.project_id))
    assert exported["member"]["attributes"]["costCenter"] == "4711"
    assert {"name": "employeeNumber", "value": NUMBER, "since": None, "until": None} in exported["attributes"]
    assert exported["groups"] == [{"name": "Engineers", "source": "scim"}]
    assert [session["agent"] for session in exported["sessions"]] == ["Firefox"]
    assert exported["alertAddresses"] == [f"mailto:{EMAIL}"]
    assert [identity["organizationId"] for identity in exported["identities"]] == [owner.organization_id]
    assert (exported["invitations"], exported["passkeys"], exported["applications"]) == ([], [], [])
    assert exported["secondFactor"] is False and rival.organization_id not in str(exported)


def insert_identity(database: Database, organization_id: str, subject: str, user_id: str) -> None:
    def work() -> None:
        issuer = "https://id.example.com"
        now = database.now_us()
        identities.insert_identity(organization_id, "idp_1", issuer, subject, user_id, EMAIL, actor=user_id, now=now)

    database.write(work)


def test_a_redacted_entry_that_is_changed_again_is_found(tenants: Tenants) -> None:
    owner = tenants["acme owner"]
    _, member_id = provision(tenants, owner)
    tenants.ok("POST", f"/orgs/{owner.organization_id}/members/{member_id}/erase", owner)
    database = tenants.services.store.database
    assert audit.verify(database)[1] == []
    kept = database.query_rows("SELECT seq, detail, redacted_by FROM audit")
    for change in (
        "UPDATE audit SET detail = '{}' WHERE redacted_by IS NOT NULL",
        "UPDATE audit SET redacted_by = 1 WHERE redacted_by IS NOT NULL",
        "UPDATE audit SET detail = '{}', redacted_by = seq WHERE seq = 2",
    ):
        database.change_rows(change)
        assert audit.verify(database)[1] != [], change
        for seq, detail, redacted_by in kept:
            database.change_rows(
                "UPDATE audit SET detail = ?, redacted_by = ? WHERE seq = ?", (detail, redacted_by, seq)
            )
    assert audit.verify(database)[1] == []


def test_a_person_of_two_organizations_is_erased_in_one(tenants: Tenants) -> None:
    owner, rival = tenants["acme owner"], tenants["rival owner"]
    person = tenants["acme developer"]
    database, control = tenants.services.store.database, tenants.services.store.control
    email = "developer@acme.example"
    members.add_member(database, control, rival.organization_id, email, actor="operator")
    erased = tenants.ok("POST", f"/orgs/{owner.organization_id}/members/{person.member_id}/erase", owner)["erasure"]
    assert not erased["accountDeleted"]
    assert tenants.refused("GET", f"/orgs/{owner.organization_id}/membership", person).startswith("403")
    assert (
        tenants.ok("GET", f"/orgs/{rival.organization_id}/membership", person)["membership"]["member"]["email"] == email
    )
    assert audit.verify(database)[1] == []


def test_the_last_owner_and_people_above_the_own_role_are_not_erased(tenants: Tenants) -> None:
    owner, admin = tenants["acme owner"], tenants["acme admin"]
    organization = f"/orgs/{owner.organization_id}/members"
    root = next(
        member["id"]
        for member in tenants.ok("GET", organization, owner)["members"]
        if member["role"] == "owner" and member["id"] != owner.member_id
    )
    assert tenants.refused("POST", f"{organization}/{owner.member_id}/erase", admin).startswith("403")
    assert tenants.refused("POST", f"{organization}/{owner.member_id}/erase", tenants["acme developer"]).startswith(
        "403"
    )
    assert tenants.refused("POST", f"{organization}/{owner.member_id}/erase", tenants["rival owner"]).startswith("403")
    tenants.ok("POST", f"{organization}/{root}/erase", owner)
    assert tenants.refused("POST", f"{organization}/{owner.member_id}/erase", owner) == "409 last_owner"


def test_a_key_of_an_erased_person_is_refused_and_the_usage_keeps_its_sums(tenants: Tenants) -> None:
    owner, person = tenants["acme owner"], tenants["acme developer"]
    message = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "hi"}]}
    token = f"Bearer {person.key.token}"
    before = tenants.client.post("/v1/chat/completions", json=message, headers={"Authorization": token}).status_code
    tenants.ok("POST", f"/orgs/{owner.organization_id}/members/{person.member_id}/erase", owner)
    after = tenants.client.post("/v1/chat/completions", json=message, headers={"Authorization": token}).status_code
    assert before != 401 and after == 401
    assert doctor(tenants.services.store.database) == []


def test_reports_name_an_erased_person_as_such(tenants: Tenants) -> None:
    owner, person = tenants["acme owner"], tenants["acme developer"]
    row = usage_row(
        tenants.services.clock.now_us() - HOUR_US,
        organization=raw_id(person.organization_id),
        project=raw_id(person.project_id),
        api_key=raw_id(person.key.info.id),
        member=raw_id(person.member_id),
        cost_nusd=1_000,
    )
    insert_rows(tenants.services.store.database, row)
    tenants.services.billing.rollups.catch_up()
    tenants.ok("POST", f"/orgs/{owner.organization_id}/members/{person.member_id}/erase", owner)
    shares = tenants.ok("GET", "/activity/shares?groupBy=person&timeRange=24h", owner)["shares"]
    assert [(share["id"], share["name"]) for share in shares] == [(person.member_id, "Erased person")]


def test_the_page_of_a_person_erases_them(tenants: Tenants) -> None:
    owner, person = tenants["acme owner"], tenants["acme colleague"]
    path = f"/console/people/{owner.organization_id}/{person.member_id}"
    assert "Erase personal data" in open_page(tenants, owner, path + "?tab=settings")
    answer = press_button(tenants, owner, path, "erase")
    assert answer.status_code == 200 and "The personal data were deleted" in answer.text
    assert "colleague@acme.example" not in open_page(
        tenants, owner, f"/console/people?organization={owner.organization_id}"
    )


@pytest.mark.parametrize("erases", [False, True])
def test_deletion_by_scim_erases_where_the_setting_says_so(make_tenants, erases: bool) -> None:
    with make_tenants(GATEWAY_RETENTION_ERASE_REMOVED=str(erases).lower()) as gateway:
        tenants = Tenants(gateway)
        owner = tenants["acme owner"]
        directory, member_id = provision(tenants, owner)
        directory("DELETE", f"/Users/{member_id}", status=204)
        assert (find_text(tenants, EMAIL, FORMER, NAME) == []) is erases
        assert audit.verify(tenants.services.store.database)[1] == []


def test_a_deletion_by_scim_whose_erasure_fails_changes_nothing(make_tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    with make_tenants(GATEWAY_RETENTION_ERASE_REMOVED="true") as gateway:
        tenants = Tenants(gateway)
        directory, member_id = provision(tenants, tenants["acme owner"])
        monkeypatch.setattr("gateway.admin.erasure.audit.redact", fail)
        directory("DELETE", f"/Users/{member_id}", status=500)
        assert directory("GET", f"/Users/{member_id}", status=200)["active"]
        monkeypatch.undo()
        directory("DELETE", f"/Users/{member_id}", status=204)
        assert find_text(tenants, EMAIL, FORMER, NAME) == []


def fail(*given: object, **more: object) -> None:
    raise RuntimeError("the erasure fails")
