import pytest

from gateway.accounts import members, organizations, passwords, projects, teams
from gateway.callers.vault import Vault
from gateway.errors import Conflict, Forbidden, InvalidRequest, NotFound, Unauthenticated

BY = {"actor": "operator"}
PASSWORD = "correct horse battery"


def test_organizations_are_listed_for_their_active_members_only(company) -> None:
    at = (company.database, company.control)
    other_organization = organizations.create_organization(*at, "Other", **BY)
    owner = members.list_members(company.database, company.organization_id)[0]
    mine = organizations.list_organizations(company.database, owner.user_id)
    assert [one.id for one in mine] == [company.organization_id]
    assert other_organization in organizations.list_organizations(company.database)


def test_a_policy_is_replaced_whole_and_checked(company) -> None:
    at = (company.database, company.control, company.organization_id)
    organizations.set_policy(*at, {"requireSoc2": True}, **BY)
    assert organizations.set_policy(*at, {"requireGdpr": True}, **BY).policy == {"requireGdpr": True}
    with pytest.raises(InvalidRequest):
        organizations.set_policy(*at, {"requireNothing": True}, **BY)
    assert organizations.find_organization(company.database, company.organization_id).policy == {"requireGdpr": True}


@pytest.mark.parametrize(
    "change",
    [
        projects.ProjectChange(),
        projects.ProjectChange(name=" "),
        projects.ProjectChange(mode="free"),
        projects.ProjectChange(cache_ttl_s=9),
        projects.ProjectChange(cache_ttl_s=31_536_001),
        projects.ProjectChange(retention="for ever"),
        projects.ProjectChange(retention_days=0),
        projects.ProjectChange(cache_markers="always"),
        projects.ProjectChange(status="gone"),
    ],
)
def test_a_project_keeps_to_its_choices_and_ranges(small_company, change) -> None:
    with pytest.raises(InvalidRequest):
        projects.update_project(small_company.database, small_company.control, small_company.project_id, change, **BY)


def test_an_archived_project_can_be_active_again(company) -> None:
    at = (company.database, company.control, company.project_id)
    for status in ("archived", "active"):
        assert projects.update_project(*at, projects.ProjectChange(status=status), **BY).status == status


def test_a_response_cache_is_refused_under_zero_data_retention(company) -> None:
    at = (company.database, company.control)
    organizations.set_policy(*at, company.organization_id, {"zeroDataRetention": True}, **BY)
    with pytest.raises(Conflict):
        projects.update_project(*at, company.project_id, projects.ProjectChange(cache_enabled=True), **BY)


def test_a_callback_secret_is_kept_encrypted(company) -> None:
    vault = Vault(company.secrets.encryption_keys)
    at = (company.database, company.control, vault, company.project_id)
    assert projects.set_callback_secret(*at, "whsec_secret", **BY).has_callback_secret
    assert projects.callback_secret(company.database, vault, company.project_id) == "whsec_secret"
    for table in ("project", "audit"):
        sql = f"SELECT * FROM {table}"
        rows = company.database.read(lambda sql=sql: company.database.execute(sql).fetchall())
        assert "whsec_secret" not in str(rows)


def test_one_person_may_belong_to_two_organizations_but_once_to_each(company) -> None:
    at = (company.database, company.control)
    other_organization = organizations.create_organization(*at, "Other", **BY)
    second = members.add_member(*at, other_organization.id, "OWNER@example.com", "admin", **BY)
    assert len(members.list_members(company.database, user_id=second.user_id)) == 2
    with pytest.raises(Conflict):
        members.add_member(*at, other_organization.id, "owner@example.com", **BY)


def test_the_last_owner_cannot_leave(company) -> None:
    at = (company.database, company.control, company.organization_id, company.member_id)
    for change in ({"role": "admin"}, {"active": False}):
        with pytest.raises(Conflict):
            members.update_member(*at, **change, **BY)
    assert members.list_members(company.database, company.organization_id)[0].role == "owner"


@pytest.mark.parametrize("email", ["", "nobody", "@host", "a b@host", "a@b@c", "x" * 300 + "@host"])
def test_an_address_has_a_form(email: str) -> None:
    with pytest.raises(InvalidRequest):
        members.read_email(email)


@pytest.mark.parametrize(
    "email", ["ada\u200b@host", "ada@host\u2060", "\u202eada@host", "mi\u212ae@host", "\u0130da@host"]
)
def test_an_address_that_looks_like_or_becomes_that_of_another_person_is_refused(email: str) -> None:
    with pytest.raises(InvalidRequest):
        members.read_email(email)
    assert members.read_email("Zoë@bücher.example") == "zoë@bücher.example"


def test_a_password_only_signs_in_its_owner(company, password_threads) -> None:
    user_id = members.list_members(company.database)[0].user_id
    members.set_password(company.database, company.control, password_threads, user_id, PASSWORD, **BY)
    assert members.sign_in(company.database, password_threads, "Owner@example.com ", PASSWORD).id == user_id
    for email, password in [("owner@example.com", "wrong password!"), ("nobody@example.com", PASSWORD)]:
        with pytest.raises(Unauthenticated, match="e-mail address or the password"):
            members.sign_in(company.database, password_threads, email, password)


def test_a_deactivated_account_cannot_sign_in(company, password_threads) -> None:
    user_id = members.list_members(company.database)[0].user_id
    members.set_password(company.database, company.control, password_threads, user_id, PASSWORD, **BY)
    company.database.write(lambda: company.database.execute("UPDATE \"user\" SET status = 'inactive'"))
    with pytest.raises(Forbidden):
        members.sign_in(company.database, password_threads, "owner@example.com", PASSWORD)


def test_accounts_without_a_password_refuse_an_empty_one(company, password_threads) -> None:
    with pytest.raises(Unauthenticated):
        members.sign_in(company.database, password_threads, "owner@example.com", "")


def test_an_unknown_person_costs_as_much_time_as_a_known_one(password_threads) -> None:
    known = password_threads.hash(PASSWORD)
    assert known.split("$")[:4] == passwords.UNKNOWN_USER_HASH.split("$")[:4]
    assert [len(part) for part in known.split("$")] == [len(part) for part in passwords.UNKNOWN_USER_HASH.split("$")]


@pytest.mark.parametrize("password", ["short", "x" * 1025])
def test_a_password_has_bounds(password_threads, password: str) -> None:
    with pytest.raises(InvalidRequest):
        password_threads.hash(password)


def test_a_team_only_accepts_members_of_its_organization(company) -> None:
    at = (company.database, company.control)
    team = teams.create_team(*at, company.organization_id, "Research", **BY)
    other_organization = organizations.create_organization(*at, "Other", **BY)
    stranger = members.add_member(*at, other_organization.id, "stranger@example.com", **BY)
    with pytest.raises(NotFound):
        teams.set_team_member(*at, team.id, stranger.id, True, **BY)
    with pytest.raises(Conflict):
        teams.create_team(*at, company.organization_id, "Research", **BY)
    assert teams.list_teams(company.database, company.organization_id) == [team]
