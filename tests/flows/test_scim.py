"""SCIM as identity providers use it: the request sequences that Entra ID and Okta document, paging and ETags."""

import pytest
from support.gateways import LocalGateway
from support.scim_client import GROUP_URN, USER_URN, IdentityProvider, add_member
from support.shared import Tenant

from gateway.accounts import audit, group_rules, members
from gateway.accounts.group_rules import RuleDraft

ENTERPRISE = "urn:ietf:params:scim:schemas:extension:enterprise:2.0:User"


@pytest.fixture
def directory(gateway: Tenant) -> IdentityProvider:
    return IdentityProvider.of(gateway, gateway.organization_id)


def member_of(gateway: LocalGateway, organization_id: str, member_id: str) -> members.MemberInfo:
    listed = members.list_members(gateway.services.store.database, organization_id)
    return next(member for member in listed if member.id == member_id)


def test_the_cycle_of_entra_for_a_user(gateway: Tenant, directory: IdentityProvider) -> None:
    """Source: Microsoft Learn, "Tutorial: Develop and plan provisioning for a SCIM endpoint", request examples."""
    assert directory.find("Users", 'userName eq "Test_User_dfeef4c5-5681-4387-b016-bdf221e82081"') == []
    created = directory(
        "POST",
        "/Users",
        {
            "schemas": [USER_URN, ENTERPRISE],
            "externalId": "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef",
            "userName": "Test_User_ab6490ee@entra.example",
            "active": True,
            "emails": [{"primary": True, "type": "work", "value": "Test_User_fd0ea19b@testuser.example"}],
            "meta": {"resourceType": "User"},
            "name": {"formatted": "givenName familyName", "familyName": "familyName", "givenName": "givenName"},
            "addresses": [{"type": "work", "country": "DE", "primary": True}],
            "roles": [],
        },
    )
    user = f"/Users/{created['id']}"
    assert directory("GET", user)["userName"] == "Test_User_ab6490ee@entra.example"
    found = directory.find("Users", 'externalId eq "0a21f0f2-8d2a-4f8e-bf98-7363c4aed4ef"')
    assert [one["id"] for one in found] == [created["id"]]
    assert found == directory.find("Users", 'userName eq "test_user_AB6490EE@entra.example"')
    changed = directory.patch(
        user,
        {"op": "Replace", "path": 'emails[type eq "work"].value', "value": "updatedEmail@entra.example"},
        {"op": "Replace", "path": "name.familyName", "value": "updatedFamilyName"},
        {"op": "Add", "path": 'phoneNumbers[type eq "work"].value', "value": "+49 30 1"},
        {"op": "Add", "path": f"{ENTERPRISE}:department", "value": "Research"},
    )
    assert changed["emails"][0]["value"] == "updatedEmail@entra.example"
    assert changed["name"]["familyName"] == "updatedFamilyName"
    assert changed[ENTERPRISE] == {"department": "Research"}
    renamed = directory.patch(user, {"op": "Replace", "path": "userName", "value": "5b50642d@entra.example"})
    assert renamed["userName"] == "5b50642d@entra.example"
    off = directory.patch(user, {"op": "Replace", "path": "active", "value": "False"})
    assert off["active"] is False
    assert member_of(gateway, gateway.organization_id, created["id"]).status == "inactive"
    directory("DELETE", user)
    assert directory("GET", user, status=404)["status"] == "404"
    assert directory.find("Users", 'userName eq "5b50642d@entra.example"') == []


def test_the_cycle_of_entra_for_a_group(directory: IdentityProvider) -> None:
    person = directory.new_user()
    created = directory(
        "POST",
        "/Groups",
        {
            "schemas": [GROUP_URN, "http://schemas.microsoft.com/2006/11/ResourceManagement/ADSCIM/2.0/Group"],
            "externalId": "8aa1a0c0-c4c3-4bc0-b4a5-2ef676900159",
            "displayName": "displayName",
            "meta": {"resourceType": "Group"},
        },
    )
    group = f"/Groups/{created['id']}"
    without = directory("GET", f"{group}?excludedAttributes=members")
    assert "members" not in without and without["displayName"] == "displayName"
    listed = directory("GET", '/Groups?excludedAttributes=members&filter=displayName eq "DisplayName"')
    assert [resource["id"] for resource in listed["Resources"]] == [created["id"]]
    directory.patch(group, {"op": "Replace", "path": "displayName", "value": "1879db59@entra"})
    added = {"op": "Add", "path": "members", "value": [{"$ref": None, "value": person["id"]}]}
    assert directory.patch(group, added)["members"][0]["value"] == person["id"]
    found = directory.find("Groups", f'id eq "{created["id"]}" and members eq "{person["id"]}"')
    assert [one["id"] for one in found] == [created["id"]]
    removed = {"op": "Remove", "path": "members", "value": [{"$ref": None, "value": person["id"]}]}
    assert directory.patch(group, removed)["members"] == []
    directory("DELETE", group)
    directory("GET", group, status=404)


def test_the_cycle_of_okta_for_a_user(gateway: Tenant, directory: IdentityProvider) -> None:
    """Source: Okta Developer, "SCIM 2.0 protocol reference"."""
    page = directory("GET", '/Users?filter=userName eq "test.user@okta.example"&startIndex=1&count=100')
    assert (page["totalResults"], page["startIndex"], page["itemsPerPage"], page["Resources"]) == (0, 1, 0, [])
    body = {
        "schemas": [USER_URN],
        "userName": "test.user@okta.example",
        "name": {"givenName": "Test", "familyName": "User"},
        "emails": [{"primary": True, "value": "test.user@okta.example", "type": "work"}],
        "displayName": "Test User",
        "locale": "en-US",
        "externalId": "00ujl29u0le5T6Aj10h7",
        "groups": [],
        "password": "1mz050nq",
        "active": True,
    }
    created = directory("POST", "/Users", body)
    assert "password" not in created
    assert directory("POST", "/Users", body, status=409)["scimType"] == "uniqueness"
    user = f"/Users/{created['id']}"
    replaced = directory("PUT", user, {**directory("GET", user), "name": {"givenName": "Another"}})
    assert replaced["name"] == {"givenName": "Another"} and replaced["displayName"] == "Test User"
    assert directory.patch(user, {"op": "replace", "value": {"active": False}})["active"] is False
    assert directory("PUT", user, {**body, "active": True})["active"] is True
    assert member_of(gateway, gateway.organization_id, created["id"]).name == "Test User"


def test_the_cycle_of_okta_for_a_group(directory: IdentityProvider) -> None:
    first, second = directory.new_user(), directory.new_user()
    created = directory("POST", "/Groups", {"schemas": [GROUP_URN], "displayName": "Test SCIMv2", "members": []})
    group = f"/Groups/{created['id']}"
    renamed = directory.patch(
        group, {"op": "replace", "value": {"id": created["id"], "displayName": "Test SCIMv2 renamed"}}
    )
    assert renamed["displayName"] == "Test SCIMv2 renamed"
    both = [{"value": first["id"], "display": "First"}, {"value": second["id"], "display": "Second"}]
    assert len(directory.patch(group, {"op": "add", "path": "members", "value": both})["members"]) == 2
    left = directory.patch(group, {"op": "remove", "path": f'members[value eq "{first["id"]}"]'})
    assert [member["value"] for member in left["members"]] == [second["id"]]
    replaced = directory.patch(group, {"op": "replace", "path": "members", "value": both[:1]})
    assert [member["value"] for member in replaced["members"]] == [first["id"]]
    put = directory("PUT", group, {"schemas": [GROUP_URN], "displayName": "Test SCIMv2", "members": both})
    assert put["displayName"] == "Test SCIMv2" and len(put["members"]) == 2


def test_spending_outlasts_removal_by_provisioning_and_edits_of_group_rules(
    gateway: Tenant, directory: IdentityProvider
) -> None:
    store = gateway.services.store
    place = (store.database, store.control, gateway.organization_id)
    budgets = gateway.services.management.budgets
    person = directory.new_user()
    draft = RuleDraft("Spenders", "developer", limits={"period_nusd": 50_000_000, "period": "1d"})
    rule = group_rules.create_rule(*place, draft, actor="operator")
    group = directory.new_group("Spenders", person["id"])

    def join() -> None:
        value = [{"value": person["id"]}]
        directory.patch(f"/Groups/{group['id']}", {"op": "remove", "path": f'members[value eq "{person["id"]}"]'})
        directory.patch(f"/Groups/{group['id']}", {"op": "add", "path": "members", "value": value})

    assert budgets.status(person["id"]).limits.period_nusd == 50_000_000
    spent = 40_000_000
    charge = "UPDATE budget SET settled_nusd = ?, window_start = ? WHERE scope_id = ?"
    values = (spent, store.database.now_us(), person["id"])
    assert store.database.write(lambda: store.database.execute(charge, values).rowcount)
    assert budgets.status(person["id"]).period_usage_nusd == spent
    for amount in (60_000_000, 45_000_000):
        changed = RuleDraft("Spenders", "developer", limits={"period_nusd": amount, "period": "1d"})
        group_rules.update_rule(*place, rule.id, changed, actor="operator")
        join()
        status = budgets.status(person["id"])
        assert (status.limits.period_nusd, status.period_usage_nusd) == (amount, spent)
    for _ in range(2):
        directory("DELETE", f"/Users/{person['id']}")
        again = directory("POST", "/Users", {"schemas": [USER_URN], "userName": person["userName"]})
        assert again["id"] == person["id"]
        assert budgets.status(person["id"]).limits.period_nusd is None
        join()
        status = budgets.status(person["id"])
        assert (status.limits.period_nusd, status.period_usage_nusd) == (45_000_000, spent)


def test_groups_give_roles_teams_and_limits_by_rules_alone(gateway: Tenant, directory: IdentityProvider) -> None:
    store = gateway.services.store
    person = directory.new_user()
    directory.new_group("owner", person["id"])
    group = directory.new_group("Platform", person["id"])
    assert member_of(gateway, gateway.organization_id, person["id"]).role == "developer"
    draft = RuleDraft("Administrators", "admin", limits={"total_nusd": 5_000_000_000})
    group_rules.create_rule(store.database, store.control, gateway.organization_id, draft, actor="operator")
    directory.patch(f"/Groups/{group['id']}", {"op": "replace", "path": "displayName", "value": "Administrators"})
    assert member_of(gateway, gateway.organization_id, person["id"]).role == "admin"
    assert gateway.services.management.budgets.status(person["id"]).limits.total_nusd == 5_000_000_000
    directory("DELETE", f"/Groups/{group['id']}")
    assert member_of(gateway, gateway.organization_id, person["id"]).role == "developer"
    assert gateway.services.management.budgets.status(person["id"]).limits.total_nusd is None
    assert [group["display"] for group in directory("GET", f"/Users/{person['id']}")["groups"]] == ["owner"]


def test_lists_are_paged_from_one(directory: IdentityProvider) -> None:
    before = directory("GET", "/Users?count=0")
    assert before["itemsPerPage"] == 0 and before["Resources"] == []
    created = [directory.new_user(title="Paged")["id"] for _ in range(5)]
    total = before["totalResults"] + 5
    page = directory("GET", f"/Users?startIndex={total - 2}&count=2")
    assert (page["totalResults"], page["itemsPerPage"], page["startIndex"]) == (total, 2, total - 2)
    assert [resource["id"] for resource in page["Resources"]] == created[2:4]
    filtered = directory("GET", '/Users?filter=title eq "paged"&startIndex=4&count=10')
    assert [resource["id"] for resource in filtered["Resources"]] == created[3:]
    assert filtered["totalResults"] == 5
    assert directory("GET", "/Users?startIndex=-3&count=-1")["startIndex"] == 1
    assert directory("GET", "/Users?count=100000")["itemsPerPage"] == total
    assert directory("GET", "/Users?startIndex=x", status=400)["scimType"] == "invalidValue"
    searched = directory("POST", "/.search", {"filter": 'title eq "paged"', "count": 2}, 200)
    assert searched["totalResults"] == 5 and len(searched["Resources"]) == 2


def test_attributes_are_selected_by_the_query(directory: IdentityProvider) -> None:
    person = directory.new_user(name={"givenName": "Ada", "familyName": "L"}, displayName="Ada")
    user = f"/Users/{person['id']}"
    chosen = directory("GET", f"{user}?attributes=userName,name.givenName,emails.value")
    assert set(chosen) == {"schemas", "id", "userName", "name", "emails"}
    assert chosen["name"] == {"givenName": "Ada"} and chosen["emails"] == [{"value": person["userName"]}]
    rest = directory("GET", f"{user}?excludedAttributes=emails,name.familyName,id")
    assert "emails" not in rest and rest["name"] == {"givenName": "Ada"} and rest["id"] == person["id"]


def test_etags_protect_changes_and_save_reads(directory: IdentityProvider) -> None:
    person = directory.new_user()
    group = directory.new_group("Tagged", person["id"])
    rename = {"op": "replace", "path": "displayName", "value": "Tagged again"}
    for path in (f"/Users/{person['id']}", f"/Groups/{group['id']}"):
        first = directory.send("GET", path)
        tag = first.headers["ETag"]
        assert first.json()["meta"]["version"] == tag and tag.startswith('W/"')
        directory("GET", path, status=304, If_None_Match=tag)
        directory.patch(path, rename, If_Match=tag)
        assert directory.send("GET", path, If_None_Match=tag).status_code == 200
        assert directory.patch(path, rename, status=412, If_Match=tag)["status"] == "412"
        directory("PUT", path, {"userName": person["userName"], "displayName": "x"}, 412, If_Match=tag)
        directory("DELETE", path, status=412, If_Match=tag)
        directory("DELETE", path, If_Match="*")


def test_every_change_is_audited_with_the_token_as_its_actor(gateway: Tenant, directory: IdentityProvider) -> None:
    person = directory.new_user()
    directory.patch(f"/Users/{person['id']}", {"op": "replace", "path": "title", "value": "Boss"})
    group = directory.new_group("Audited", person["id"])
    directory("DELETE", f"/Groups/{group['id']}")
    directory("DELETE", f"/Users/{person['id']}")
    (token,) = gateway.services.accounts.scim_tokens.list_tokens(gateway.organization_id)
    entries = audit.list_entries(gateway.services.store.database, gateway.organization_id)
    actions = [entry.action for entry in reversed(entries) if entry.actor == token.id]
    expected = ["member.create", "scim_user.create", "scim_user.update", "scim_group.create", "scim_group.update"]
    expected += ["scim_group.update", "scim_group.delete", "member.update", "session.delete_others"]
    assert actions == [*expected, "scim_user.delete"]
    assert directory.token not in str(entries)


def test_the_last_owner_and_members_by_hand_are_protected(gateway: Tenant, directory: IdentityProvider) -> None:
    by_hand = add_member(gateway, gateway.organization_id, f"by-hand@{gateway.organization_id}.example", "admin")
    (found,) = directory.find("Users", f'userName eq "{by_hand.email}"')
    assert found["id"] == by_hand.id and found["emails"][0]["value"] == by_hand.email
    owners = [
        member
        for member in members.list_members(gateway.services.store.database, gateway.organization_id)
        if member.role == "owner"
    ]
    assert len(owners) == 1
    refused = directory.patch(f"/Users/{owners[0].id}", {"op": "replace", "path": "active", "value": False}, status=409)
    assert "owner" in refused["detail"] and "scimType" not in refused
    directory("DELETE", f"/Users/{owners[0].id}", status=409)


def test_discovery_documents_describe_the_surface(directory: IdentityProvider) -> None:
    config = directory("GET", "/ServiceProviderConfig")
    assert config["patch"]["supported"] and config["etag"]["supported"] and not config["bulk"]["supported"]
    types = {resource["id"]: resource for resource in directory("GET", "/ResourceTypes")["Resources"]}
    assert types["User"]["schemaExtensions"] == [{"schema": ENTERPRISE, "required": False}]
    schemas = {resource["id"]: resource for resource in directory("GET", "/Schemas")["Resources"]}
    assert set(schemas) == {USER_URN, GROUP_URN, ENTERPRISE}
    assert directory("GET", f"/Schemas/{USER_URN}") == schemas[USER_URN]
    assert directory("GET", "/ResourceTypes/Group") == types["Group"]
    directory("GET", "/Schemas/urn:unknown", status=404)
    directory("GET", '/Schemas?filter=id eq "x"', status=403)
