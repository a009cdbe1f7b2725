from collections.abc import Callable

import gevent
import pytest

from gateway.accounts import audit, keys, members, organizations
from gateway.admin.bootstrap import Administration
from gateway.callers.authentication import Authentication
from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.store.installation_identity import Secrets

SECRETS = Secrets((b"hash-key-of-the-tests",), ("encryption-key-of-the-tests",))


@pytest.fixture
def administration(database, clock, password_threads) -> Administration:
    database.bind()
    return Administration(database, Control.observer(database, clock), SECRETS, password_threads)


def caller_of(database, clock, token: str):
    return Authentication(database, Control.observer(database, clock), SECRETS, clock).caller(token)


def test_the_first_start_makes_a_key_that_works_and_later_starts_show_its_mask(
    administration, database, clock, settings: Callable
) -> None:
    first = administration.bootstrap(settings())
    assert first.created and caller_of(database, clock, first.token).role == "owner"
    later = administration.bootstrap(settings())
    assert (later.created, later.token, later.key) == (False, "", first.key)
    assert len(organizations.list_organizations(database)) == 1
    assert audit.verify(database)[1] == []


def test_credits_are_granted_once_within_the_same_transaction(administration, database, settings: Callable) -> None:
    grants = []

    def grant(*arguments) -> None:
        assert database.peewee.in_transaction()
        grants.append(arguments)

    first = administration.bootstrap(settings(GATEWAY_BOOTSTRAP_CREDITS_USD="2.5"), grant)
    administration.bootstrap(settings(), grant)
    organization_id = first.key.organization_id
    assert grants == [(organization_id, 2_500_000_000, f"bootstrap:{organization_id}")]
    assert first.granted_nusd == 2_500_000_000


def test_a_failed_grant_leaves_nothing_behind(administration, database, settings: Callable) -> None:
    def fail(*arguments) -> None:
        raise LookupError

    with pytest.raises(LookupError):
        administration.bootstrap(settings(), fail)
    assert organizations.list_organizations(database) == []
    assert administration.bootstrap(settings()).created


def test_a_key_brought_along_is_never_printed(administration, database, clock, settings: Callable) -> None:
    token = "llmgtwy_brought_along"
    first = administration.bootstrap(settings(GATEWAY_BOOTSTRAP_API_KEY=token))
    assert first.created and first.token == ""
    assert caller_of(database, clock, token).key_id == first.key.id
    assert not administration.bootstrap(settings(GATEWAY_BOOTSTRAP_API_KEY=token)).stranger
    assert administration.bootstrap(settings(GATEWAY_BOOTSTRAP_API_KEY="llmgtwy_another")).stranger


def test_the_owner_signs_in_with_the_password_of_the_environment(
    administration, database, password_threads, settings: Callable
) -> None:
    variables = {"GATEWAY_BOOTSTRAP_EMAIL": "Boss@Example.com", "GATEWAY_BOOTSTRAP_PASSWORD": "a long enough one"}
    administration.bootstrap(settings(**variables))
    assert (
        members.sign_in(database, password_threads, "boss@example.com", "a long enough one").email == "boss@example.com"
    )


def test_processes_that_start_at_once_make_one_organization(administration, database, settings: Callable) -> None:
    starts = [gevent.spawn(administration.bootstrap, settings()) for _ in range(4)]
    gevent.joinall(starts, timeout=20, raise_error=True)
    assert len(organizations.list_organizations(database)) == 1
    assert sum(start.value.created for start in starts) == 1
    assert {start.value.key.id for start in starts} == {keys.list_keys(database)[0].id}


@pytest.mark.parametrize(
    "variables",
    [
        {"GATEWAY_BOOTSTRAP_API_KEY": "has spaces in it"},
        {"GATEWAY_BOOTSTRAP_API_KEY": "short"},
        {"GATEWAY_BOOTSTRAP_EMAIL": "nobody"},
        {"GATEWAY_BOOTSTRAP_PASSWORD": "short"},
        {"GATEWAY_BOOTSTRAP_CREDITS_USD": "a lot"},
        {"GATEWAY_BOOTSTRAP_CREDITS_USD": "-1"},
    ],
)
def test_a_setting_that_cannot_be_used_stops_the_first_start(administration, database, settings, variables) -> None:
    with pytest.raises(InvalidRequest) as caught:
        administration.bootstrap(settings(**variables))
    assert "has spaces" not in caught.value.message
    assert organizations.list_organizations(database) == []


def test_a_start_without_any_active_key_says_so(administration, database, clock, settings: Callable) -> None:
    first = administration.bootstrap(settings())
    keys.revoke(database, Control.observer(database, clock), first.key.id, actor="operator")
    assert administration.bootstrap(settings()).key is None
