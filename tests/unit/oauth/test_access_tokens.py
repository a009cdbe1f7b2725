"""An access token's caller is its key's, for as long as grant, key and member hold."""

import pytest

from gateway.accounts import keys, members
from gateway.accounts.organizations import set_organization_status
from gateway.clock import SECOND_US
from gateway.control.version import Control
from gateway.errors import Gone, Unauthenticated
from gateway.oauth.grants import ACCESS_LIFETIME_S
from gateway.store.installation_identity import Secrets

RESOURCE = "https://llm.example/mcp"
SECRETS = Secrets((b"newest-hash-key-of-tests", b"older-hash-key-of-tests"), ("newest-encryption-key", "older-one"))


def refused(callers, token: str, resource: str = RESOURCE) -> str:
    with pytest.raises(Unauthenticated) as told:
        callers.caller(token, resource)
    assert token.strip() == "" or token not in told.value.message
    return told.value.code


def test_a_token_stands_for_its_key(office) -> None:
    caller = office.callers().caller(office.connect().access, RESOURCE)
    assert (caller.key_id, caller.user_id) == (office.key.id, office.member.user_id)
    assert caller.by_token and caller.scopes == ("mcp:tools", "mcp:resources", "mcp:prompts")


def test_the_key_itself_is_no_token(office) -> None:
    key = office.make_key()
    authentication = office.callers()._authentication
    assert not authentication.caller(key.token).by_token and not authentication.caller_of_key(key.info.id).by_token
    assert refused(office.callers(), key.token) == "invalid_token"


def test_a_token_for_another_resource_is_refused(small_office) -> None:
    token = small_office.connect(audience="https://elsewhere.example/mcp").access
    assert refused(small_office.callers(), token) == "invalid_token"


def test_a_token_is_over_in_its_time_without_a_look_into_the_store(small_office, clock) -> None:
    clock.freeze()
    callers, token = small_office.callers(), small_office.connect().access
    caller = callers.caller(token, RESOURCE)
    assert caller.expires_at_us == small_office.database.now_us() + ACCESS_LIFETIME_S * SECOND_US
    clock.advance(ACCESS_LIFETIME_S + 1)
    assert refused(callers, token) == "invalid_token"


def test_refresh_tokens_and_codes_call_nothing(small_office) -> None:
    issued = small_office.connect()
    code = small_office.grants.allow(small_office.consent())
    assert {refused(small_office.callers(), one) for one in (issued.refresh, code, "llmgat_x", " ")} == {
        "invalid_token"
    }


def end_by_roll(office) -> None:
    keys.roll(office.database, office.control, SECRETS.hash_keys, office.key.id, actor="operator")


def end_by_deactivation(office) -> None:
    change = keys.Change("deactivate")
    keys.update(office.database, office.control, office.key.id, change, actor="operator")


def end_by_deletion(office) -> None:
    keys.delete(office.database, office.control, office.key.id, actor="operator")


def end_by_removal(office) -> None:
    members.update_member(
        office.database, office.control, office.organization_id, office.member.id, active=False, actor="operator"
    )


def end_by_person(office) -> None:
    for grant in office.grants.list_grants(user_id=office.member.user_id):
        office.grants.end(grant.id, "revoked", actor=office.member.user_id)


@pytest.mark.parametrize("end", [end_by_roll, end_by_deactivation, end_by_deletion, end_by_removal, end_by_person])
def test_the_end_of_a_key_ends_its_tokens_at_every_worker_at_once(office, open_store, database_url, clock, end) -> None:
    issued = office.connect()
    elsewhere = Control(open_store(database_url), clock, node="another")
    elsewhere.start()
    try:
        callers = office.callers(elsewhere)
        assert callers.caller(issued.access, RESOURCE).key_id == office.key.id
        end(office)
        # The change has returned: another worker that remembered the caller refuses by now.
        assert refused(callers, issued.access) in ("invalid_token", "invalid_api_key")
        assert office.grants.find_token(issued.refresh) is None
        assert office.grants.list_grants(user_id=office.member.user_id) == []
    finally:
        elsewhere.stop()


def test_tokens_do_not_come_back_with_their_key_or_member(office) -> None:
    issued = office.connect()
    end_by_deactivation(office)
    keys.update(office.database, office.control, office.key.id, keys.Change("activate"), actor="operator")
    assert refused(office.callers(), issued.access) == "invalid_token"
    again = office.connect()
    end_by_removal(office)
    members.update_member(
        office.database, office.control, office.organization_id, office.member.id, active=True, actor="operator"
    )
    assert refused(office.callers(), again.access) == "invalid_token"


def test_a_new_name_of_the_key_leaves_its_tokens(small_office) -> None:
    issued = small_office.connect()
    change = keys.Change(description="Renamed")
    keys.update(small_office.database, small_office.control, small_office.key.id, change, actor="operator")
    assert small_office.callers().caller(issued.access, RESOURCE).key_name == "Renamed"


def test_a_blocked_organization_is_reported_as_by_key(small_office) -> None:
    issued = small_office.connect()
    set_organization_status(
        small_office.database, small_office.control, small_office.organization_id, "blocked", actor="operator"
    )
    with pytest.raises(Gone):
        small_office.callers().caller(issued.access, RESOURCE)
