import re
from collections.abc import Callable

import gevent
import pytest

from gateway.accounts import keys, members, organizations, projects, rules, teams
from gateway.callers import tokens as tokens_module
from gateway.callers.authentication import Authentication
from gateway.clock import SECOND_US
from gateway.control.version import Control
from gateway.errors import GatewayError, Gone, Unauthenticated, Unavailable
from gateway.store.installation_identity import Secrets

BY = {"actor": "operator"}


class CountingDatabase:
    """Passes reads on and counts them; raises instead while `away`."""

    def __init__(self, database) -> None:
        self.database, self.reads, self.away = database, 0, False

    def read(self, work):
        self.reads += 1
        if self.away:
            raise Unavailable()
        return self.database.read(work)


class Steady:
    """A control version that never moves."""

    def check(self) -> int:
        return 1


@pytest.fixture
def worker(company):
    control = Control(company.database, company.clock)
    control.start()
    yield control
    control.stop()


def test_a_token_gives_its_caller(company) -> None:
    key = company.make_key()
    caller = company.authentication().caller(key.token)
    assert (caller.key_id, caller.key_name, caller.key_kind) == (key.info.id, "A key", "user")
    assert (caller.organization_id, caller.project_id) == (company.organization_id, company.project_id)
    assert (caller.member_id, caller.role, caller.mode, caller.rules) == (company.member_id, "owner", "credits", ())


def test_the_settings_of_the_project_come_with_the_caller(company) -> None:
    change = projects.ProjectChange(
        cache_enabled=True,
        cache_ttl_s=90,
        cache_markers="automatic",
        retention="retain",
        retention_days=7,
        settings={"x": 1},
    )
    projects.update_project(company.database, company.control, company.project_id, change, **BY)
    caller = company.authentication().caller(company.make_key().token)
    assert (caller.cache_enabled, caller.cache_ttl_s, caller.cache_markers) == (True, 90, "automatic")
    assert (caller.retention, caller.retention_days) == ("retain", 7)
    assert caller.settings == {"x": 1}


def test_no_token_is_kept_in_the_store(company) -> None:
    key = company.make_key()
    rows = company.database.read(lambda: company.database.execute("SELECT * FROM api_key").fetchall())
    rows += company.database.read(lambda: company.database.execute("SELECT * FROM audit").fetchall())
    assert key.token[12:] not in str(rows)


CHANGES: dict[str, tuple[Callable, type[GatewayError]]] = {
    "revoked": (lambda c, key: keys.revoke(c.database, c.control, key, **BY), Unauthenticated),
    "rolled": (lambda c, key: keys.roll(c.database, c.control, c.secrets.hash_keys, key, **BY), Unauthenticated),
    "deleted": (lambda c, key: keys.delete(c.database, c.control, key, **BY), Unauthenticated),
    "deactivated": (
        lambda c, key: keys.update(c.database, c.control, key, keys.Change("deactivate"), **BY),
        Unauthenticated,
    ),
    "archived": (
        lambda c, key: projects.update_project(
            c.database, c.control, c.project_id, projects.ProjectChange(status="archived"), **BY
        ),
        Gone,
    ),
    "blocked": (
        lambda c, key: organizations.set_organization_status(c.database, c.control, c.organization_id, "blocked", **BY),
        Gone,
    ),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_removed_key_is_refused_at_once_by_another_worker(company, worker, name: str) -> None:
    change, refusal = CHANGES[name]
    authentication = company.authentication(worker)
    key = company.make_key()
    assert authentication.caller(key.token).key_id == key.info.id
    change(company, key.info.id)
    with pytest.raises(refusal):
        authentication.caller(key.token)


def test_a_rolled_key_goes_on_with_its_new_token(company, worker) -> None:
    authentication = company.authentication(worker)
    key = company.make_key()
    rolled = keys.roll(company.database, company.control, company.secrets.hash_keys, key.info.id, **BY)
    assert authentication.caller(rolled.token).key_id == key.info.id


def test_the_keys_of_a_deactivated_member_are_refused(company) -> None:
    add = members.add_member(company.database, company.control, company.organization_id, "dev@example.com", **BY)
    token = keys.create(
        company.database,
        company.control,
        company.secrets.hash_keys,
        keys.Draft(company.project_id, add.id, "Theirs"),
        **BY,
    ).token
    authentication = company.authentication()
    authentication.caller(token)
    members.update_member(company.database, company.control, company.organization_id, add.id, active=False, **BY)
    with pytest.raises(Unauthenticated, match="deactivated"):
        authentication.caller(token)


def test_update_and_revoke_at_once_end_revoked(company, worker) -> None:
    authentication, made = company.authentication(worker), company.make_key()
    change = keys.Change("activate", description="Changed")

    def update() -> None:
        for _ in range(5):
            keys.update(company.database, company.control, made.info.id, change, **BY)

    updates = [gevent.spawn(update) for _ in range(3)]
    keys.revoke(company.database, company.control, made.info.id, **BY)
    gevent.joinall(updates, timeout=20)
    assert keys.find(company.database, made.info.id).state == "revoked"
    with pytest.raises(Unauthenticated, match="revoked"):
        authentication.caller(made.token)


@pytest.mark.parametrize(
    "token",
    ["", "x", "eight xx", "llmgtwy_" + "é" * 20, "x" * 300, "\x00" * 10, "\udcff" * 12, "llmgtwy_" + "x" * 40],
)
def test_garbage_is_refused_with_the_one_code(small_company, token: str) -> None:
    with pytest.raises(Unauthenticated) as caught:
        small_company.authentication().caller(token)
    assert (caught.value.status, caught.value.code) == (401, "invalid_api_key")
    assert not token.strip() or token not in caught.value.message


@pytest.mark.parametrize(
    ("token", "message"), [("sk-proj-abcdefgh", "begin with llmgtwy_;"), ("llmgtwy_unknown", "key is complete")]
)
def test_a_refusal_tells_a_providers_key_from_one_that_might_be_ours(small_company, token: str, message: str) -> None:
    with pytest.raises(Unauthenticated, match=re.escape(message)):
        small_company.authentication().caller(token)


def test_an_unknown_token_is_looked_up_once_and_a_malformed_one_never(small_company) -> None:
    database = CountingDatabase(small_company.database)
    authentication = Authentication(database, Steady(), small_company.secrets, small_company.clock)
    for token in ["llmgtwy_unknown", "two words here", ""] * 5:
        with pytest.raises(Unauthenticated):
            authentication.caller(token)
    assert database.reads == 1


def test_a_key_created_after_a_failed_lookup_is_found(company, worker) -> None:
    authentication = company.authentication(worker)
    token = "llmgtwy_brought_along_by_the_operator"
    with pytest.raises(Unauthenticated):
        authentication.caller(token)
    company.database.write(
        lambda: (
            company.control.bump(),
            keys.insert(
                company.secrets.hash_keys,
                company.draft(),
                "key_1",
                token,
                description="Brought",
                now=company.clock.now_us(),
                **BY,
            ),
        )
    )
    company.control.confirm()
    assert authentication.caller(token).key_id == "key_1"


def test_a_store_that_is_away_is_503_and_never_401(small_company) -> None:
    key = small_company.make_key()
    database = CountingDatabase(small_company.database)
    authentication = Authentication(database, Steady(), small_company.secrets, small_company.clock)
    database.away = True
    with pytest.raises(Unavailable) as caught:
        authentication.caller(key.token)
    assert caught.value.status == 503 and caught.value.retry_after
    database.away = False
    assert authentication.caller(key.token).key_id == key.info.id


def test_a_known_caller_is_not_trusted_once_the_control_lease_cannot_be_renewed(small_company) -> None:
    key, away = small_company.make_key(), Steady()
    authentication = Authentication(small_company.database, away, small_company.secrets, small_company.clock)
    authentication.caller(key.token)

    def fail() -> int:
        raise Unavailable()

    away.check = fail
    with pytest.raises(Unavailable):
        authentication.caller(key.token)


def test_a_remembered_key_expires_at_its_moment(company) -> None:
    key = company.make_key(expires_at_us=company.clock.now_us() + 60 * SECOND_US)
    authentication = Authentication(company.database, Steady(), company.secrets, company.clock)
    authentication.caller(key.token)
    company.clock.advance(61)
    with pytest.raises(Unauthenticated, match="expired"):
        authentication.caller(key.token)


def test_the_first_use_of_a_key_renews_its_hash_so_that_the_older_hash_key_can_go(company) -> None:
    used, unused = company.make_key(), company.make_key()
    rotated = Secrets((b"a-hash-key-of-next-year", *company.secrets.hash_keys), company.secrets.encryption_keys)
    authentication = Authentication(company.database, company.control, rotated, company.clock)
    assert authentication.caller(used.token).key_id == used.info.id
    forgotten = Secrets((b"a-hash-key-of-next-year",), company.secrets.encryption_keys)
    later = Authentication(company.database, company.control, forgotten, company.clock)
    assert later.caller(used.token).key_id == used.info.id
    with pytest.raises(Unauthenticated):
        later.caller(unused.token)
    assert authentication.caller(unused.token).key_id == unused.info.id


def test_a_customer_key_is_distinguished_from_a_user_key(company) -> None:
    key = company.make_key(kind="customer")
    assert key.token.startswith(tokens_module.PREFIXES["customer"])
    assert company.authentication().caller(key.token).key_kind == "customer"


def test_rules_of_every_scope_reach_the_caller_and_inactive_ones_do_not(company) -> None:
    made, at = company.make_key(), (company.database, company.control)
    team = teams.create_team(*at, company.organization_id, "Research", **BY)
    teams.set_team_member(*at, team.id, company.member_id, True, **BY)
    elsewhere = teams.create_team(*at, company.organization_id, "Sales", **BY)
    places = [
        ("organization", company.organization_id),
        ("team", team.id),
        ("member", company.member_id),
        ("key", made.info.id),
        ("team", elsewhere.id),
    ]
    for scope, scope_id in places:
        rules.add_rule(*at, scope, scope_id, "deny_models", {"models": [scope]}, **BY)
    rules.add_rule(*at, "key", made.info.id, "deny_models", {"models": ["off"]}, active=False, **BY)
    levels = company.authentication().caller(made.token).rules
    assert [(level.scope, level.scope_id) for level in levels] == places[:4]
    assert [set(level.deny_models) for level in levels] == [{scope} for scope, _ in places[:4]]


def test_a_caller_holds_until_anything_changed(company, worker) -> None:
    authentication = Authentication(company.database, worker, company.secrets, company.clock)
    key = company.make_key()
    caller = authentication.caller(key.token)
    assert authentication.holds(caller)
    keys.revoke(company.database, worker, key.info.id, **BY)
    assert not authentication.holds(caller)
    with pytest.raises(Unauthenticated):
        authentication.caller(key.token)


def test_a_caller_whose_key_expired_holds_no_more(company) -> None:
    authentication = company.authentication()
    caller = authentication.caller(company.make_key(expires_at_us=company.clock.now_us() + SECOND_US).token)
    assert authentication.holds(caller)
    company.clock.advance(1)
    assert not authentication.holds(caller)
