"""Codes work once, refresh tokens until a token issued from them is used; later use revokes all issued from them."""

import gevent
import pytest
from msgspec.structs import replace

from gateway.accounts import audit, keys
from gateway.callers.authentication import TokenCallers
from gateway.callers.models import OAuthCode, OAuthGrant, OAuthToken
from gateway.clock import SECOND_US
from gateway.errors import Conflict, InvalidRequest, NotFound, RateLimited, Unauthenticated
from gateway.oauth import grants as module
from gateway.oauth.grants import CODE_LIFETIME_S, REFRESH_LIFETIME_S, AlreadyUsed

RESOURCE = "https://llm.example/mcp"


def is_live(office, token: str) -> bool:
    try:
        return bool(office.callers().caller(token, RESOURCE))
    except Unauthenticated:
        return False


def audited(office) -> list[str]:
    return [one.action for one in audit.list_entries(office.database) if one.action.startswith("oauth.")]


def test_a_code_gives_tokens_once_and_its_second_use_ends_them(office) -> None:
    code = office.grants.allow(office.consent())
    issued = office.grants.exchange(office.grants.find_code(code), refreshable=True)
    assert is_live(office, issued.access)
    assert office.grants.find_code(code) is None
    assert not is_live(office, issued.access) and office.grants.find_token(issued.refresh) is None


def test_one_of_many_parallel_uses_of_a_code_gets_tokens_which_are_revoked(office) -> None:
    found = office.grants.find_code(office.grants.allow(office.consent()))
    tries = [gevent.spawn(office.grants.exchange, found, refreshable=True) for _ in range(4)]
    gevent.joinall(tries)
    issued = [one.value for one in tries if one.successful()]
    assert len(issued) == 1 and all(isinstance(one.exception, AlreadyUsed) for one in tries if not one.successful())
    assert not is_live(office, issued[0].access)


def test_a_refresh_token_rotates_and_its_late_second_use_ends_the_family(office, monkeypatch) -> None:
    first = office.connect()
    second = office.grants.refresh(office.grants.find_token(first.refresh), "mcp:tools")
    assert second.refresh != first.refresh and is_live(office, second.access) and is_live(office, first.access)
    assert office.callers().caller(second.access, RESOURCE).scopes == ("mcp:tools",)
    # The new refresh token keeps all that was allowed.
    assert office.grants.find_token(second.refresh).scope == "mcp:tools mcp:resources mcp:prompts"
    stolen = office.grants.find_token(first.refresh)
    assert stolen.used
    monkeypatch.setattr(module, "REUSE_WINDOW_S", 0)
    with pytest.raises(AlreadyUsed):
        office.grants.refresh(stolen, "mcp:tools")
    assert not is_live(office, first.access) and not is_live(office, second.access)
    assert office.grants.find_token(second.refresh) is None


def test_all_who_refresh_at_once_get_tokens_until_one_of_these_is_used(office) -> None:
    found = office.grants.find_token(office.connect().refresh)
    tries = [gevent.spawn(office.grants.refresh, found, "mcp:tools") for _ in range(4)]
    gevent.joinall(tries, raise_error=True)
    issued = [one.value for one in tries]
    assert all(is_live(office, one.access) for one in issued) and len({one.refresh for one in issued}) == 4
    followed = office.grants.refresh(office.grants.find_token(issued[0].refresh), "mcp:tools")
    with pytest.raises(AlreadyUsed):
        office.grants.refresh(found, "mcp:tools")
    assert not any(is_live(office, one.access) for one in (*issued, followed))
    assert office.database.read(lambda: OAuthToken.select().count()) == 0


def test_a_failure_between_code_and_tokens_leaves_the_code_unused(small_office, monkeypatch) -> None:
    code = small_office.grants.find_code(small_office.grants.allow(small_office.consent()))
    with monkeypatch.context() as broken:
        broken.setattr(small_office.grants, "_insert_tokens", lambda *given: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            small_office.grants.exchange(code, refreshable=True)
    assert is_live(small_office, small_office.grants.exchange(code, refreshable=True).access)


def test_codes_and_tokens_are_over_in_their_time(small_office, clock) -> None:
    code = small_office.grants.allow(small_office.consent())
    issued = small_office.connect()
    clock.advance(CODE_LIFETIME_S + 1)
    assert small_office.grants.find_code(code) is None
    clock.advance(REFRESH_LIFETIME_S)
    assert small_office.grants.find_token(issued.refresh).expired
    with pytest.raises(AlreadyUsed):
        small_office.grants.refresh(small_office.grants.find_token(issued.refresh), "mcp:tools")


def test_the_store_has_no_code_and_no_token(office) -> None:
    code = office.grants.allow(office.consent())
    issued = office.connect()
    rows = office.database.read(
        lambda: [*OAuthGrant.select().dicts(), *OAuthCode.select().dicts(), *OAuthToken.select().dicts()]
    )
    told = str(rows) + str(audit.list_entries(office.database))
    for secret in (code, issued.access, issued.refresh):
        assert secret not in told and secret not in repr(issued)


def test_only_keys_of_ones_own_that_are_in_force_can_be_chosen(office) -> None:
    own = office.member.user_id
    customer = office.make_key(kind="customer")
    off = office.make_key()
    keys.update(office.database, office.control, off.info.id, keys.Change("deactivate"), actor="operator")
    reached = [office.organization_id]
    assert [key_id for key_id, _, _ in office.grants.keys_of(own, reached)] == [office.key.id]
    assert office.grants.keys_of(own, ["org_other"]) == office.grants.keys_of("somebody", reached) == []
    wrong = [{"key_id": customer.info.id}, {"key_id": off.info.id}, {"key_id": "key_x"}, {"user_id": "somebody"}]
    for more in wrong:
        with pytest.raises(NotFound):
            office.grants.allow(office.consent(**more))


def test_grants_and_revocations_are_in_the_audit_log(office) -> None:
    issued = office.connect()
    grant = office.grants.list_grants(user_id=office.member.user_id)[0]
    assert (grant.client_name, grant.redirect_host, grant.key_id) == ("An editor", "localhost", office.key.id)
    office.grants.end_token(office.grants.find_token(issued.access))
    assert not is_live(office, issued.access) and office.grants.find_token(issued.refresh) is not None
    office.grants.end_token(office.grants.find_token(issued.refresh))
    assert audited(office) == ["oauth.revoke", "oauth.revoke_token", "oauth.grant"]
    assert audit.verify(office.database)[1] == []
    office.grants.end(grant.id, "again")
    assert len(audited(office)) == 3


def test_repeated_token_requests_of_a_key_share_one_grant(office) -> None:
    asked = office.consent(client="", redirect_uri="", redirect_host="")
    issued = [office.grants.issue_for_key(asked) for _ in range(3)]
    assert all(is_live(office, one.access) and not one.refresh for one in issued)
    assert len(office.grants.list_grants(key_id=office.key.id)) == 1 and audited(office) == ["oauth.grant"]


def test_the_oldest_beyond_the_caps_go(small_office, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_GRANTS", 2)
    monkeypatch.setattr(module, "MAX_TOKENS", 2)
    first, second = small_office.connect(), small_office.connect()
    small_office.connect()
    assert not is_live(small_office, first.access) and is_live(small_office, second.access)
    assert len(small_office.grants.list_grants(user_id=small_office.member.user_id)) == 2
    issued = second
    for _ in range(4):
        issued = small_office.grants.refresh(small_office.grants.find_token(issued.refresh), "mcp:tools")
    grant_id = small_office.grants.find_token(issued.refresh).grant_id
    count = small_office.database.read(lambda: OAuthToken.select().where(OAuthToken.grant == grant_id).count())
    assert count == 4 and is_live(small_office, issued.access)


def test_a_token_is_read_once_while_nothing_changes(small_office, monkeypatch) -> None:
    callers: TokenCallers = small_office.callers()
    token = small_office.connect().access
    first = callers.caller(token, RESOURCE)
    monkeypatch.setattr(small_office.database, "read", lambda work: 1 / 0)
    monkeypatch.setattr(callers._memory._control, "check", lambda: callers._memory._version)
    assert callers.caller(token, RESOURCE) is first


def test_repeated_requests_neither_fill_the_audit_log_nor_clear_caches(small_office, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_CHANGES", 3)
    asked = small_office.consent(client="", redirect_uri="", redirect_host="")
    for number in range(2):
        small_office.grants.issue_for_key(replace(asked, audience=f"https://{number}.example/mcp"))
    token = small_office.grants.find_token(
        small_office.grants.issue_for_key(replace(asked, audience="https://1.example/mcp")).access
    )
    small_office.grants.end_token(token)
    with pytest.raises(RateLimited):
        small_office.grants.issue_for_key(replace(asked, audience="https://3.example/mcp"))
    with pytest.raises(RateLimited):
        small_office.grants.end_token(token)
    with pytest.raises(RateLimited):
        small_office.grants.allow(small_office.consent())
    # Existing grants remain usable.
    assert small_office.grants.issue_for_key(replace(asked, audience="https://1.example/mcp")).access


def test_nothing_is_got_for_a_key_that_is_over_and_all_is_good_again_with_it(small_office, clock) -> None:
    key = small_office.make_key(expires_at_us=clock.now_us() + 100 * SECOND_US)
    issued = small_office.connect(key_id=key.info.id)
    clock.advance(101)
    with pytest.raises(Conflict):
        small_office.grants.refresh(small_office.grants.find_token(issued.refresh), "mcp:tools")
    later = keys.Change("activate", expiry=keys.Expiry(None))
    keys.update(small_office.database, small_office.control, key.info.id, later, actor="operator")
    assert small_office.grants.refresh(small_office.grants.find_token(issued.refresh), "mcp:tools").access


def test_an_address_that_no_row_can_hold_is_refused(office) -> None:
    with pytest.raises(InvalidRequest):
        office.grants.allow(office.consent(audience="https://" + "x" * 600))
