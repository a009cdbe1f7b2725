import pytest

from gateway.accounts import members
from gateway.accounts.invitations import Invitations
from gateway.errors import Conflict, Forbidden, NotFound


@pytest.fixture
def invitations(company) -> Invitations:
    return Invitations(company.database, company.control, company.secrets, lambda *given: None)


def test_an_invited_person_joins_in_the_role_they_were_invited_for(invitations, company) -> None:
    invitation = invitations.invite(company.organization_id, "New@Example.com", "admin", actor="operator")
    member = invitations.sign_up(invitation.token, " New Person ", "a hash")
    assert (member.email, member.role, member.name) == ("new@example.com", "admin", "New Person")


def test_an_invitation_is_good_for_one_person_once(invitations, company) -> None:
    invitation = invitations.invite(company.organization_id, "new@example.com", "developer", actor="operator")
    invitations.sign_up(invitation.token, "", "a hash")
    with pytest.raises(NotFound):
        invitations.sign_up(invitation.token, "", "a hash")


def test_an_invitation_does_not_give_its_sender_an_account(invitations, company) -> None:
    user = members.add_member(company.database, company.control, company.organization_id, "x@example.com", actor="o")
    off = {"active": False, "actor": "operator"}
    members.update_member(company.database, company.control, company.organization_id, user.id, **off)
    invitation = invitations.invite(company.organization_id, "x@example.com", "owner", actor="operator")
    with pytest.raises(Conflict) as caught:
        invitations.sign_up(invitation.token, "", "a hash of the thief")
    assert caught.value.code == "user_exists"


def test_the_owner_of_the_address_accepts_and_is_let_in_again(invitations, company) -> None:
    user = members.add_member(company.database, company.control, company.organization_id, "x@example.com", actor="o")
    off = {"active": False, "actor": "operator"}
    members.update_member(company.database, company.control, company.organization_id, user.id, **off)
    invitation = invitations.invite(company.organization_id, "x@example.com", "admin", actor="operator")
    again = invitations.accept_as(invitation.token, user.user_id)
    assert (again.id, again.status, again.role) == (user.id, "active", "admin")


def test_an_invitation_for_another_address_is_refused(invitations, company) -> None:
    owner = members.list_members(company.database, company.organization_id)[0]
    invitation = invitations.invite(company.organization_id, "other@example.com", "developer", actor="operator")
    with pytest.raises(Forbidden):
        invitations.accept_as(invitation.token, owner.user_id)


@pytest.mark.parametrize("change", ["status = 'revoked'", "expires_at = 1"])
def test_a_revoked_or_old_invitation_is_unknown(invitations, company, change) -> None:
    invitation = invitations.invite(company.organization_id, "new@example.com", "developer", actor="operator")
    company.database.write(lambda: company.database.execute(f"UPDATE invitation SET {change}"))
    with pytest.raises(NotFound):
        invitations.find(invitation.token)


def test_a_second_invitation_of_an_address_revokes_the_first(invitations, company) -> None:
    first = invitations.invite(company.organization_id, "new@example.com", "developer", actor="operator")
    invitations.invite(company.organization_id, "new@example.com", "admin", actor="operator")
    assert [invitation.role for invitation in invitations.list_invitations(company.organization_id)] == ["admin"]
    with pytest.raises(NotFound):
        invitations.find(first.token)


def test_an_active_member_is_not_invited(invitations, company) -> None:
    with pytest.raises(Conflict):
        invitations.invite(company.organization_id, "owner@example.com", "admin", actor="operator")


def test_an_invitation_of_another_organization_cannot_be_revoked(invitations, company) -> None:
    invitation = invitations.invite(company.organization_id, "new@example.com", "developer", actor="operator")
    with pytest.raises(NotFound):
        invitations.revoke("org_other", invitation.info.id, actor="operator")
