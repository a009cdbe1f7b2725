"""Roles, teams and spending limits of people follow the rules for their groups, and nothing else."""

import pytest
from support.billing import BillingProcess

from gateway.accounts import audit, group_rules, members, organizations, teams
from gateway.accounts.group_rules import RuleDraft
from gateway.admin.funding import Funding
from gateway.admin.group_grants import GroupGrants, store_limits
from gateway.callers.models import Organization
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.limits.budgets import Limits
from gateway.limits.periods import Period

DOLLAR = 10**9
BY = {"actor": "operator"}
MONTHLY = Limits(100 * DOLLAR, 10 * DOLLAR, Period(1, "month"))


class GroupedCompany:
    """An organization with an owner, a member Bea without groups, and a team."""

    def __init__(self, process: BillingProcess) -> None:
        process.database.bind()
        self.database = process.database
        self.control = process.control
        self.at = (self.database, self.control)
        self.funding = Funding(*self.at)
        self.grants = GroupGrants(*self.at, self.funding)
        self.id = organizations.create_organization(*self.at, "Acme", **BY).id
        self.owner = members.add_member(*self.at, self.id, "owner@example.com", "owner", **BY)
        self.bea = members.add_member(*self.at, self.id, "bea@example.com", **BY)
        self.team = teams.create_team(*self.at, self.id, "Research", **BY).id

    def rule(self, group: str, **content) -> group_rules.GroupRule:
        draft = RuleDraft(group, **content)
        return group_rules.create_rule(*self.at, self.id, draft, actor=self.owner.user_id)

    def groups(self, *names: str, source: str = "idp_1", member: str = "") -> None:
        """State groups of a member; owners trust the source unless its name begins with "admins"."""
        stated = dict.fromkeys(names, not source.startswith("admins"))
        self.grants.set_groups(self.id, member or self.bea.id, source, stated, actor=source)

    def role(self, user_id: str = "") -> str:
        return members.find_member(self.database, self.id, user_id or self.bea.user_id).role

    def team_members(self) -> tuple[str, ...]:
        return teams.find_team(self.database, self.id, self.team).member_ids

    def limits(self) -> Limits:
        return self.funding.budgets.status(self.bea.id).limits

    def actions(self) -> list[str]:
        return [entry.action for entry in audit.list_entries(self.database, self.id)]


@pytest.fixture
def acme(start_billing) -> GroupedCompany:
    """On both stores in turn."""
    return GroupedCompany(start_billing())


def test_group_names_that_look_like_roles_give_nothing_without_a_rule(acme) -> None:
    acme.groups("owner", "admin", "role:owner", "Administrators", acme.team, "Research")
    assert acme.role() == "developer"
    assert acme.team_members() == ()
    assert acme.limits() == Limits()


def test_a_rule_gives_role_team_and_limits_and_takes_them_back(acme) -> None:
    acme.rule("eng", role="admin", team_ids=(acme.team,), limits=store_limits(MONTHLY))
    acme.groups("eng", "other")
    assert (acme.role(), acme.team_members(), acme.limits()) == ("admin", (acme.bea.id,), MONTHLY)
    acme.groups("other")
    assert (acme.role(), acme.team_members(), acme.limits()) == ("developer", (), Limits())
    assert acme.actions()[:3] == ["member.update_limit", "team.update", "member.update"]


def test_group_names_are_compared_exactly(acme) -> None:
    acme.rule("eng", role="admin")
    acme.groups("Eng", "eng ops", "eng*", "%")
    assert acme.role() == "developer"
    acme.groups(" eng ")
    assert acme.role() == "admin"


def test_the_highest_role_and_the_limits_of_the_first_priority_count(acme) -> None:
    other_team = teams.create_team(*acme.at, acme.id, "Operations", **BY).id
    acme.rule("staff", role="developer", team_ids=(acme.team,), limits=store_limits(Limits(5 * DOLLAR)), priority=50)
    acme.rule("leads", role="admin", team_ids=(other_team,), limits=store_limits(Limits(900 * DOLLAR)), priority=10)
    acme.groups("staff", "leads")
    assert acme.role() == "admin"
    assert acme.limits() == Limits(900 * DOLLAR)
    assert acme.team_members() == (acme.bea.id,)
    assert teams.find_team(acme.database, acme.id, other_team).member_ids == (acme.bea.id,)


def test_groups_of_several_sources_count_together(acme) -> None:
    acme.rule("eng", role="admin")
    acme.groups("eng", source="idp_1")
    acme.groups("eng", source="scim")
    acme.groups(source="idp_1")
    assert acme.role() == "admin"
    acme.groups(source="scim")
    assert acme.role() == "developer"


def test_grants_made_by_hand_stay(acme) -> None:
    acme.rule("eng", role="developer", team_ids=(acme.team,))
    teams.set_team_member(*acme.at, acme.team, acme.bea.id, True, **BY)
    second = members.add_member(*acme.at, acme.id, "second@example.com", "owner", **BY)
    acme.groups("eng")
    acme.groups("eng", member=second.id)
    assert acme.role(second.user_id) == "owner"
    acme.groups()
    assert acme.team_members() == (acme.bea.id, second.id)
    acme.groups(member=second.id)
    assert acme.team_members() == (acme.bea.id,)


def test_the_last_owner_and_the_break_glass_account_keep_their_role(acme) -> None:
    acme.rule("bosses", role="owner")
    acme.groups("bosses")
    assert acme.role() == "owner"
    members.update_member(*acme.at, acme.id, acme.owner.id, active=False, **BY)
    acme.groups()
    assert acme.role() == "owner"
    members.update_member(*acme.at, acme.id, acme.owner.id, active=True, **BY)
    acme.database.write(
        lambda: Organization.update(break_glass=acme.bea.id).where(Organization.id == acme.id).execute()
    )
    acme.groups()
    assert acme.role() == "owner"


def test_a_limit_that_a_higher_role_set_is_not_raised_by_an_admins_rule(acme) -> None:
    admin = members.add_member(*acme.at, acme.id, "admin@example.com", "admin", **BY)
    acme.funding.set_limits("member", acme.bea.id, acme.id, lambda _: Limits(DOLLAR), actor=acme.owner.user_id)
    draft = RuleDraft("eng", role="developer", limits=store_limits(Limits(500 * DOLLAR)))
    group_rules.create_rule(*acme.at, acme.id, draft, actor=admin.user_id)
    acme.groups("eng")
    assert acme.limits() == Limits(DOLLAR)


def test_a_changed_rule_reaches_members_of_its_group(acme) -> None:
    rule = acme.rule("eng", role="admin")
    acme.groups("eng")
    group_rules.update_rule(*acme.at, acme.id, rule.id, RuleDraft("eng", team_ids=(acme.team,)), **BY)
    assert acme.grants.refresh(acme.id) == 1
    assert (acme.role(), acme.team_members()) == ("developer", (acme.bea.id,))
    group_rules.delete_rule(*acme.at, acme.id, rule.id, **BY)
    assert acme.grants.refresh() == 1
    assert acme.team_members() == ()
    assert acme.grants.refresh() == 0


def test_a_new_rule_reaches_people_whose_groups_are_known(acme) -> None:
    acme.groups("eng")
    assert acme.role() == "developer"
    acme.rule("eng", role="admin")
    acme.grants.refresh(acme.id)
    assert acme.role() == "admin"


def test_unchanged_groups_write_nothing(acme) -> None:
    acme.rule("eng", role="admin")
    acme.groups("eng")
    before = acme.control.check()
    acme.groups("eng")
    assert acme.control.check() == before


def test_rules_are_checked(acme) -> None:
    acme.rule("eng")
    with pytest.raises(Conflict):
        acme.rule("eng")
    with pytest.raises(NotFound):
        acme.rule("ops", team_ids=("team_unknown",))
    with pytest.raises(InvalidRequest):
        acme.rule("ops", role="root")
    with pytest.raises(InvalidRequest):
        acme.rule(" ")
    with pytest.raises(NotFound):
        acme.groups("eng", member="member_unknown")


def test_rules_of_another_organization_do_not_count(acme) -> None:
    other_organization = organizations.create_organization(*acme.at, "Other", **BY).id
    group_rules.create_rule(*acme.at, other_organization, RuleDraft("eng", role="admin"), **BY)
    acme.groups("eng")
    assert acme.role() == "developer"


def test_too_many_and_unreadable_group_names_are_ignored() -> None:
    assert group_rules.clean_groups([" a ", "a", "", 7, None, {"b": 1}, "x" * 256, "c\0d"]) == ["a", "cd"]
    assert len(group_rules.clean_groups(str(n) for n in range(5000))) == group_rules.MAX_GROUPS
