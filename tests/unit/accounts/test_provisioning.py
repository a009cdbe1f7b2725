"""Provisioning of members and groups, on both stores."""

from collections.abc import Callable
from typing import Any

import pytest

from gateway.accounts import audit, identities, keys, members, organizations
from gateway.accounts.provisioning import provisioned_users
from gateway.accounts.provisioning.provisioned_groups import GroupChange, GroupLookup, ProvisionedGroups
from gateway.accounts.provisioning.provisioned_users import ProvisionedUsers
from gateway.accounts.provisioning.scim_tokens import LIFE_US, ScimTokens
from gateway.accounts.provisioning.user_rows import (
    ProvisionedUser,
    ProvisioningClient,
    StaleVersion,
    UserLookup,
    UserValues,
)
from gateway.accounts.sessions import Sessions
from gateway.callers.models import ApiKey, Member, User
from gateway.clock import DAY_US
from gateway.errors import Conflict, Forbidden, Gone, InvalidRequest, NotFound, Unauthenticated

ADA = UserValues("Ada@Example.com", "ada@example.com", name="Ada", external_id="e-1", attributes={"title": "Countess"})


class Directory:
    """The provisioning of an organization. `effects` are the groups that the group rules were applied to."""

    def __init__(self, company: Any) -> None:
        self.company = company
        self.effects: dict[str, list[str]] = {}
        self.roles: dict[str, str] = {}
        self.users = ProvisionedUsers(company.database, company.control, self._apply)
        self.groups = ProvisionedGroups(company.database, company.control, self._apply)
        self.client = ProvisioningClient(company.organization_id, "scim_1", True)

    def _apply(self, organization_id: str, member_id: str, names: Any, actor: str, now: int) -> None:
        self.effects[member_id] = list(names)
        for name in names:
            if name in self.roles:
                Member.update(role=self.roles[name]).where(Member.id == member_id).execute()

    def find(self, member_id: str) -> ProvisionedUser:
        return self.users.find(self.company.organization_id, member_id)

    def change(self, member_id: str, **changes: Any) -> ProvisionedUser:
        """Change values of a user; the others stay."""
        before = self.find(member_id)
        stated = {
            "user_name": before.user_name,
            "email": before.email,
            "active": before.active,
            "external_id": before.external_id,
            "attributes": before.attributes,
        }
        return self.users.update(self.client, before, UserValues(**(stated | changes)))

    def read(self, query: Callable[[], Any]) -> Any:
        return self.company.database.read(query)


@pytest.fixture
def directory(company: Any) -> Directory:
    return Directory(company)


def elsewhere(company: Any, email: str) -> str:
    """Make a person a member of another organization."""
    stores = (company.database, company.control)
    other_organization = organizations.create_organization(*stores, "Other", actor="operator")
    return members.add_member(*stores, other_organization.id, email, "owner", password_hash="x", actor="operator").id


def join(company: Any, email: str) -> None:
    """Add a person with an account, as an accepted invitation does."""
    members.add_member(company.database, company.control, company.organization_id, email, actor="operator")


def test_a_created_user_is_a_member_with_an_account_without_password(directory: Directory) -> None:
    user = directory.users.create(directory.client, ADA)
    assert (user.role, user.active, user.user_name, user.external_id) == ("developer", True, "Ada@Example.com", "e-1")
    assert (user.account_email, user.account_name, user.attributes) == ("ada@example.com", "Ada", {"title": "Countess"})
    assert directory.read(lambda: User.get(User.email == "ada@example.com").password_hash) == ""
    with pytest.raises(Conflict) as raised:
        directory.users.create(directory.client, UserValues("ADA@example.com", "other@example.com"))
    assert raised.value.code == "user_exists"
    with pytest.raises(Conflict):
        directory.users.create(directory.client, UserValues("other", "ADA@example.com"))
    entries = audit.list_entries(directory.company.database, directory.company.organization_id)
    assert [entry.action for entry in entries[:2]] == ["scim_user.create", "member.create"]
    assert entries[0].actor == "scim_1"


def test_members_without_values_are_found_by_their_address_and_adopted(directory: Directory) -> None:
    owner = directory.find(directory.company.member_id)
    assert (owner.user_name, owner.managed) == ("owner@example.com", False)
    user = directory.users.create(directory.client, UserValues("boss", "owner@example.com", name="New name"))
    assert (user.id, user.user_name, user.role, user.managed) == (owner.id, "boss", "owner", True)
    assert user.account_name == owner.account_name


def test_lookups_and_pages_find_users_by_their_values(directory: Directory) -> None:
    users = directory.users
    ada = users.create(directory.client, ADA)
    for number in range(5):
        users.create(directory.client, UserValues(f"user-{number}", f"user-{number}@example.com"))
    organization_id = directory.company.organization_id

    def found(**lookup: str) -> list[str]:
        return [user.id for user in users.page(organization_id, UserLookup(**lookup), 0, 10)[1]]

    assert found(user_name="ada@example.COM") == found(external_id="e-1") == found(email="ADA@example.com") == [ada.id]
    assert found(user_name="owner@example.com") == [directory.company.member_id]
    assert found(id=ada.id, external_id="other") == []
    total, page = users.page(organization_id, UserLookup(), 2, 3)
    assert (total, len(page)) == (7, 3)
    everyone = [user.id for piece in users.scan(organization_id, UserLookup()) for user in piece]
    assert everyone[2:5] == [user.id for user in page] and len(everyone) == 7


def test_a_deactivated_person_loses_keys_sign_ins_and_access_tokens(directory: Directory) -> None:
    company = directory.company
    ada = directory.users.create(directory.client, ADA)
    draft = keys.Draft(company.project_id, ada.id, "Key of Ada")
    key = keys.create(company.database, company.control, company.secrets.hash_keys, draft, actor="operator")
    sessions = Sessions(company.database, company.secrets)
    token = sessions.open(ada.user_id).token
    generation = directory.read(lambda: ApiKey.get_by_id(key.info.id).generation)
    assert company.authentication().caller(key.token).member_id == ada.id
    assert not directory.change(ada.id, active=False).active
    with pytest.raises(Unauthenticated):
        company.authentication().caller(key.token)
    with pytest.raises(Unauthenticated):
        sessions.find(token)
    assert directory.read(lambda: ApiKey.get_by_id(key.info.id).generation) == generation + 1
    assert directory.change(ada.id, active=True).active
    assert company.authentication().caller(key.token).member_id == ada.id


def test_a_person_of_two_organizations_loses_one_membership_only(directory: Directory) -> None:
    company = directory.company
    other_organization = elsewhere(company, "ada@example.com")
    join(company, "ada@example.com")
    ada = directory.users.create(directory.client, ADA)
    sessions = Sessions(company.database, company.secrets)
    token = sessions.open(ada.user_id).token
    directory.users.delete(directory.client, ada.id)
    assert sessions.find(token).user_id == ada.user_id
    states = {member.id: member.status for member in members.list_members(company.database, user_id=ada.user_id)}
    assert states == {ada.id: "inactive", other_organization: "active"}


def test_a_deleted_user_is_hidden_and_returns_as_a_developer_without_the_old_keys(directory: Directory) -> None:
    company = directory.company
    ada = directory.users.create(directory.client, ADA)
    members.update_member(company.database, company.control, company.organization_id, ada.id, role="admin", actor="x")
    draft = keys.Draft(company.project_id, ada.id, "Key of Ada")
    key = keys.create(company.database, company.control, company.secrets.hash_keys, draft, actor="operator")
    directory.groups.create(directory.client, "Engineers", "", [ada.id])
    directory.users.delete(directory.client, ada.id)
    assert directory.effects[ada.id] == []
    with pytest.raises(NotFound):
        directory.find(ada.id)
    with pytest.raises(NotFound):
        directory.users.delete(directory.client, ada.id)
    again = directory.users.create(directory.client, ADA)
    assert (again.id, again.role, again.groups) == (ada.id, "developer", ())
    with pytest.raises(Unauthenticated):
        company.authentication().caller(key.token)


def test_the_last_owner_stays(directory: Directory) -> None:
    owner = directory.company.member_id
    with pytest.raises(Conflict) as refused:
        directory.change(owner, active=False)
    assert refused.value.code == "last_owner"
    with pytest.raises(Conflict):
        directory.users.delete(directory.client, owner)
    assert directory.find(owner).active


def test_a_token_of_an_admin_changes_no_owner_and_makes_none(directory: Directory) -> None:
    company = directory.company
    second = members.add_member(
        company.database, company.control, company.organization_id, "second@example.com", "owner", actor="operator"
    )
    ada = directory.users.create(directory.client, ADA)
    directory.client = ProvisioningClient(company.organization_id, "scim_2", False)
    with pytest.raises(Forbidden):
        directory.change(second.id, active=False)
    with pytest.raises(Forbidden):
        directory.users.delete(directory.client, second.id)
    with pytest.raises(Forbidden):
        directory.users.create(directory.client, UserValues("second", "second@example.com", active=False))
    directory.roles = {"Owners": "owner", "Admins": "admin"}
    group_id = directory.groups.create(directory.client, "Owners", "", [])
    with pytest.raises(Forbidden):
        directory.groups.update(directory.client, group_id, GroupChange(added=(ada.id,)))
    assert directory.find(ada.id).role == "developer" and directory.groups.members_of(group_id) == ()
    directory.groups.create(directory.client, "Admins", "", [ada.id])
    assert directory.find(ada.id).role == "admin"


def test_a_change_based_on_an_older_version_is_refused(directory: Directory) -> None:
    ada = directory.users.create(directory.client, ADA)
    directory.change(ada.id, external_id="e-2")
    with pytest.raises(StaleVersion):
        directory.users.update(directory.client, ada, ADA)
    with pytest.raises(StaleVersion):
        directory.users.delete(directory.client, ada.id, ada.version)
    group_id = directory.groups.create(directory.client, "Engineers", "", [])
    version = directory.groups.find(directory.company.organization_id, group_id).version
    directory.groups.update(directory.client, group_id, GroupChange(added=(ada.id,)), version)
    with pytest.raises(StaleVersion):
        directory.groups.update(directory.client, group_id, GroupChange(name="Others"), version)


def test_the_account_changes_only_while_it_belongs_to_the_organization_alone(directory: Directory) -> None:
    ada = directory.users.create(directory.client, ADA)
    renamed = directory.change(ada.id, email="countess@example.com", name="Countess")
    assert (renamed.account_email, renamed.account_name) == ("countess@example.com", "Countess")
    with pytest.raises(Conflict):
        directory.change(ada.id, email="owner@example.com")
    elsewhere(directory.company, "countess@example.com")
    kept = directory.change(ada.id, email="third@example.com", name="Third")
    assert (kept.email, kept.account_email, kept.account_name) == (
        "third@example.com",
        "countess@example.com",
        "Countess",
    )


def test_an_account_that_existed_before_keeps_its_address(directory: Directory) -> None:
    elsewhere(directory.company, "ada@example.com")
    with pytest.raises(Conflict, match="Invite its person"):
        directory.users.create(directory.client, ADA)
    join(directory.company, "ada@example.com")
    ada = directory.users.create(directory.client, ADA)
    assert directory.change(ada.id, email="stolen@example.com").account_email == "ada@example.com"


def test_group_rules_are_applied_to_members_who_join_leave_or_whose_group_is_renamed(directory: Directory) -> None:
    organization_id = directory.company.organization_id
    people = [
        directory.users.create(directory.client, UserValues(f"user-{number}", f"user-{number}@example.com")).id
        for number in range(60)
    ]
    group_id = directory.groups.create(directory.client, "Engineers", "g-1", people)
    assert all(directory.effects[member_id] == ["Engineers"] for member_id in people)
    directory.groups.update(directory.client, group_id, GroupChange(name="Compilers", removed=tuple(people[:55])))
    assert all(directory.effects[member_id] == [] for member_id in people[:55])
    assert all(directory.effects[member_id] == ["Compilers"] for member_id in people[55:])
    assert directory.groups.find(organization_id, group_id).member_ids == tuple(people[55:])
    assert directory.find(people[59]).groups == ((group_id, "Compilers"),)
    directory.groups.delete(directory.client, group_id)
    assert directory.effects[people[59]] == []
    with pytest.raises(NotFound):
        directory.groups.find(organization_id, group_id)


def test_groups_have_unique_names_and_known_members(directory: Directory) -> None:
    groups, client = directory.groups, directory.client
    group_id = groups.create(client, "Engineers", "", [])
    with pytest.raises(Conflict) as raised:
        groups.create(client, "ENGINEERS", "", [])
    assert raised.value.code == "group_exists"
    other_person = elsewhere(directory.company, "stranger@example.com")
    for unknown in (other_person, "member_unknown"):
        with pytest.raises(InvalidRequest):
            groups.update(client, group_id, GroupChange(added=(unknown,)))
        with pytest.raises(InvalidRequest):
            groups.create(client, "New", "", [unknown])
    organization_id = directory.company.organization_id
    assert [one.name for one in groups.page(organization_id, GroupLookup(name="engineers"), 0, 10)[1]] == ["Engineers"]
    groups.update(client, group_id, GroupChange(added=(directory.company.member_id,)))
    with_owner = GroupLookup(member_id=directory.company.member_id)
    assert [one.id for piece in groups.scan(organization_id, with_owner, True) for one in piece] == [group_id]


def test_another_organization_sees_and_changes_nothing(directory: Directory) -> None:
    ada = directory.users.create(directory.client, ADA)
    group_id = directory.groups.create(directory.client, "Engineers", "", [ada.id])
    elsewhere(directory.company, "stranger@example.com")
    other_organization = organizations.list_organizations(directory.company.database)[1].id
    stranger = ProvisioningClient(other_organization, "scim_3", True)
    for attempt in (
        lambda: directory.users.find(other_organization, ada.id),
        lambda: directory.users.update(stranger, ada, ADA),
        lambda: directory.users.delete(stranger, ada.id),
        lambda: directory.groups.find(other_organization, group_id),
        lambda: directory.groups.update(stranger, group_id, GroupChange(name="Mine")),
        lambda: directory.groups.delete(stranger, group_id),
    ):
        with pytest.raises(NotFound):
            attempt()
    assert directory.groups.page(other_organization, GroupLookup(), 0, 10) == (0, [])
    assert directory.users.page(other_organization, UserLookup(user_name="ada@example.com"), 0, 10) == (0, [])


def test_a_token_is_found_until_it_expires_or_is_revoked(company: Any) -> None:
    tokens = ScimTokens(company.database, company.control, company.secrets, company.authentication(), company.clock)
    token = tokens.create(company.organization_id, "Okta", by_owner=True, actor="user_1")
    assert token.token.startswith("llmgscim_") and token.token not in repr(token)
    assert token.info.expires_at_us == token.info.created_at_us + LIFE_US
    assert tokens.find(token.token) == token.info
    tokens.note_use(token.info)
    assert tokens.list_tokens(company.organization_id)[0].used_at_us is not None
    with pytest.raises(NotFound):
        tokens.revoke("org_other", token.info.id, actor="user_1")
    tokens.revoke(company.organization_id, token.info.id, actor="user_1")
    for unknown in (token.token, "", "llmgscim_x", "llmgscim_" + "x" * 300, "llmgtwy_" + "0" * 40):
        with pytest.raises(Unauthenticated) as refused:
            tokens.find(unknown)
        assert refused.value.code == "invalid_scim_token"


def test_a_token_needs_a_future_expiry_and_an_active_organization(company: Any) -> None:
    tokens = ScimTokens(company.database, company.control, company.secrets, company.authentication(), company.clock)
    now = company.database.now_us()
    with pytest.raises(InvalidRequest):
        tokens.create(company.organization_id, "Okta", now - DAY_US, by_owner=True, actor="user_1")
    token = tokens.create(company.organization_id, "Okta", now + DAY_US, by_owner=True, actor="user_1")
    stores = (company.database, company.control)
    organizations.set_organization_status(*stores, company.organization_id, "blocked", actor="operator")
    with pytest.raises(Gone):
        tokens.find(token.token)
    for number in range(19):
        tokens.create(company.organization_id, f"Token {number}", by_owner=False, actor="user_1")
    with pytest.raises(InvalidRequest) as many:
        tokens.create(company.organization_id, "One more", by_owner=False, actor="user_1")
    assert many.value.code == "too_many"


def test_an_account_belongs_to_its_organization_until_a_foreign_identity_provider_is_connected(
    directory: Directory,
) -> None:
    company = directory.company
    ada = directory.users.create(directory.client, ADA)

    def connect(organization_id: str, subject: str) -> None:
        place = (organization_id, "provider", "https://issuer.example", subject, ada.user_id, "ada@example.com")
        now = company.database.now_us()
        company.database.write(lambda: identities.insert_identity(*place, actor="x", now=now))

    def owner() -> str:
        return directory.read(lambda: provisioned_users.organization_of_account(ada.user_id))

    assert owner() == company.organization_id
    connect(company.organization_id, "ada")
    assert owner() == company.organization_id
    connect("", "ada-of-the-installation")
    assert owner() == ""
    assert directory.change(ada.id, email="stolen@example.com").account_email == "ada@example.com"
    assert directory.read(lambda: provisioned_users.organization_of_account("user_unknown")) == ""
