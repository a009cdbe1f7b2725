import itertools

import pytest

from gateway.accounts import audit, keys, members, organizations, projects
from gateway.clock import SECOND_US
from gateway.errors import Conflict, InvalidRequest, NotFound

BY = {"actor": "operator"}
STATES = ("", "active", "inactive", "expired", "revoked", "deleted")
ACTIONS = ("create", "expire", "activate", "deactivate", "update", "roll", "revoke", "delete")

# Written out a second time on purpose: rows are states, columns actions in the order above, "-" is refused.
TABLE = """
          create  expire   activate deactivate update   roll     revoke  delete
none      active  -        -        -          -        -        -       -
active    -       expired  active   inactive   active   active   revoked deleted
inactive  -       -        active   inactive   inactive inactive revoked deleted
expired   -       -        active   inactive   expired  expired  revoked deleted
revoked   -       -        -        -          -        -        revoked deleted
deleted   -       -        -        -          -        -        -       -
"""


def expected() -> dict[tuple[str, str], str]:
    lines = [line.split() for line in TABLE.strip().splitlines()]
    return {
        ("" if line[0] == "none" else line[0], action): after
        for line in lines[1:]
        for action, after in zip(lines[0], line[1:], strict=True)
    }


@pytest.mark.parametrize(("state", "action"), itertools.product(STATES, ACTIONS))
def test_every_state_answers_every_action_as_the_table_says(state: str, action: str) -> None:
    after = expected()[state, action]
    if after == "-":
        with pytest.raises(NotFound if state == "deleted" else Conflict):
            keys.move(state, action)
    else:
        assert keys.move(state, action) == after


def test_the_token_is_shown_once_and_the_mask_afterwards(company) -> None:
    key = company.make_key()
    assert key.token.startswith("llmgtwy_") and len(key.token) == 48
    found = keys.find(company.database, key.info.id)
    assert found == key.info
    assert found.mask == key.token[:12] + "•" * 5
    assert (found.creator_email, found.organization_id) == ("owner@example.com", company.organization_id)


def test_an_expired_key_comes_back_only_with_a_new_expiry(company) -> None:
    key = company.make_key(expires_at_us=company.clock.now_us() + SECOND_US)
    past = keys.Expiry(company.clock.now_us())
    future = keys.Expiry(company.clock.now_us() + 7_200 * SECOND_US)
    set_expiry(company, key.info.id, -1)
    assert keys.find(company.database, key.info.id).state == "expired"
    for change in [
        keys.Change("activate"),
        keys.Change("activate", expiry=past),
        keys.Change(expiry=future),
        keys.Change(expiry=past),
    ]:
        with pytest.raises(InvalidRequest):
            keys.update(company.database, company.control, key.info.id, change, **BY)
    change = keys.Change("activate", expiry=future)
    assert keys.update(company.database, company.control, key.info.id, change, **BY).state == "active"


def test_an_inactive_key_whose_expiry_passed_is_not_activated(company) -> None:
    key = company.make_key(expires_at_us=company.clock.now_us() + 60 * SECOND_US)
    keys.update(company.database, company.control, key.info.id, keys.Change("deactivate"), **BY)
    set_expiry(company, key.info.id, -1)
    assert keys.find(company.database, key.info.id).state == "inactive"
    with pytest.raises(InvalidRequest):
        keys.update(company.database, company.control, key.info.id, keys.Change("activate"), **BY)


def test_an_expiry_can_be_removed(company) -> None:
    key = company.make_key(expires_at_us=company.clock.now_us() + 60 * SECOND_US)
    change = keys.Change(expiry=keys.Expiry(None))
    assert keys.update(company.database, company.control, key.info.id, change, **BY).expires_at_us is None


def test_rolling_keeps_everything_but_the_token(company) -> None:
    key = company.make_key(expires_at_us=company.clock.now_us() + 60 * SECOND_US)
    keys.update(company.database, company.control, key.info.id, keys.Change("deactivate"), **BY)
    rolled = keys.roll(company.database, company.control, company.secrets.hash_keys, key.info.id, **BY)
    assert rolled.token != key.token
    assert rolled.info.id == key.info.id
    assert rolled.info.state == "inactive"
    assert rolled.info.expires_at_us == key.info.expires_at_us


def test_a_revoked_key_takes_nothing_but_deletion(company) -> None:
    made, at = company.make_key(), (company.database, company.control)
    keys.revoke(*at, made.info.id, **BY)
    with pytest.raises(Conflict):
        keys.update(*at, made.info.id, keys.Change("activate"), **BY)
    with pytest.raises(Conflict):
        keys.roll(*at, company.secrets.hash_keys, made.info.id, **BY)
    keys.delete(*at, made.info.id, **BY)
    with pytest.raises(NotFound):
        keys.find(company.database, made.info.id)
    assert keys.list_keys(company.database) == []
    assert [key.state for key in keys.list_keys(company.database, deleted=True)] == ["deleted"]


@pytest.mark.parametrize("description", ["", "   ", "x" * 256])
def test_a_description_has_bounds(small_company, description: str) -> None:
    draft = keys.Draft(small_company.project_id, small_company.member_id, description)
    with pytest.raises(InvalidRequest) as caught:
        keys.create(small_company.database, small_company.control, small_company.secrets.hash_keys, draft, **BY)
    assert caught.value.param == "description"


def test_a_key_needs_a_live_project_and_a_member_of_its_organization(company) -> None:
    at = (company.database, company.control)
    other_organization = organizations.create_organization(*at, "Other", **BY)
    stranger = members.add_member(*at, other_organization.id, "stranger@example.com", **BY)
    for project_id, member_id in [("proj_no", company.member_id), (company.project_id, stranger.id)]:
        with pytest.raises(NotFound):
            keys.create(*at, company.secrets.hash_keys, keys.Draft(project_id, member_id, "A key"), **BY)
    projects.update_project(*at, company.project_id, projects.ProjectChange(status="archived"), **BY)
    with pytest.raises(Conflict):
        company.make_key()


def test_an_update_that_changes_nothing_is_refused(small_company) -> None:
    key = small_company.make_key()
    with pytest.raises(InvalidRequest):
        keys.update(small_company.database, small_company.control, key.info.id, keys.Change(), **BY)


def test_keys_are_listed_by_project_and_by_owner(company) -> None:
    at = (company.database, company.control)
    second = projects.create_project(*at, company.organization_id, "Second", **BY)
    dev = members.add_member(*at, company.organization_id, "dev@example.com", **BY)
    mine = company.make_key().info
    theirs = keys.create(*at, company.secrets.hash_keys, keys.Draft(second.id, dev.id, "Dev"), **BY).info
    assert keys.list_keys(company.database, organization_id=company.organization_id) == [mine, theirs]
    assert keys.list_keys(company.database, project_ids=[second.id]) == [theirs]
    assert keys.list_keys(company.database, member_id=company.member_id) == [mine]
    assert keys.list_keys(company.database, project_ids=[]) == []


def test_every_change_of_a_key_is_on_the_audit_trail(company) -> None:
    made, at = company.make_key(), (company.database, company.control)
    keys.update(*at, made.info.id, keys.Change("deactivate"), actor="user_7")
    keys.roll(*at, company.secrets.hash_keys, made.info.id, **BY)
    keys.delete(*at, made.info.id, **BY)
    entries = [entry for entry in audit.list_entries(company.database) if entry.subject == made.info.id]
    actions = ["api_key.delete", "api_key.roll", "api_key.update_status", "api_key.create"]
    assert [entry.action for entry in entries] == actions
    assert entries[2].actor == "user_7"


def set_expiry(company, key_id: str, seconds: float) -> None:
    """Put the expiry where only the passing of time could: `seconds` from now."""
    at = company.clock.now_us() + round(seconds * SECOND_US)
    sql = "UPDATE api_key SET expires_at = ? WHERE id = ?"
    company.database.write(lambda: company.database.execute(sql, (at, key_id)))
