"""Client secrets: kept by a digest, in Redis or the store, until their end."""

from typing import Any

import pytest

from gateway.accounts import keys
from gateway.accounts.keys import Change
from gateway.callers import realtime_secrets as realtime_secrets_module
from gateway.callers.realtime_secrets import KIND, RealtimeSecrets
from gateway.callers.throttle import Throttle
from gateway.callers.vault import Vault
from gateway.configuration.settings import RedisSettings
from gateway.errors import RateLimited, Unauthenticated
from gateway.neutral.realtime import SessionLock
from gateway.store.documents import Documents
from gateway.store.redis import open_redis

LOCK = SessionLock(model="openai/gpt-realtime", instructions="Be brief.", voice="marin", transcription="")


def secrets_of(company: Any, redis: Any = None) -> RealtimeSecrets:
    return RealtimeSecrets(
        Documents(company.database),
        redis,
        company.secrets,
        company.authentication(),
        company.clock,
        Vault(["an encryption key of the tests"]),
        Throttle(company.database, b"key"),
    )


def test_a_secret_gives_back_its_key_and_what_it_settles_until_its_end(company) -> None:
    company.clock.freeze()
    made, secrets = company.make_key(), secrets_of(company)
    caller = company.authentication().caller(made.token)
    token, ends_at = secrets.make(caller, LOCK, None)
    assert ends_at == company.clock.now_us() // 1_000_000 + 60
    found = secrets.find(token)
    assert found.key_id == made.info.id and found.lock == LOCK == secrets.find(token).lock
    assert secrets.caller(found).key_id == made.info.id
    kept = str(company.database.read(lambda: company.database.execute("SELECT * FROM document").fetchall()))
    assert token not in kept and LOCK.instructions not in kept
    company.clock.advance(61)
    with pytest.raises(Unauthenticated) as expired:
        secrets.find(token)
    assert expired.value.code == "invalid_client_secret"


@pytest.mark.parametrize(
    "token", ["", "ek_", "ek_unknown-but-well-formed", "ek_with space", "ek_\u00fc\u00fc\u00fc\u00fc", "x" * 999]
)
def test_invalid_secrets_are_refused(small_company, token: str) -> None:
    with pytest.raises(Unauthenticated):
        secrets_of(small_company).find(token)


def test_a_key_makes_so_many_secrets_and_no_more_until_the_first_are_over(small_company, monkeypatch) -> None:
    monkeypatch.setattr(realtime_secrets_module, "MAX_SECRETS", 3)
    secrets = secrets_of(small_company)
    caller, other = (small_company.authentication().caller(small_company.make_key().token) for _ in range(2))
    for _ in range(3):
        secrets.make(caller, LOCK, 300)
    with pytest.raises(RateLimited) as refused:
        secrets.make(caller, LOCK, 300)
    assert refused.value.code == "too_many_client_secrets"
    secrets.make(other, LOCK, 300)
    small_company.clock.advance(301)
    secrets.make(caller, LOCK, 300)


def test_a_secret_ends_with_its_key_and_when_that_is_rolled(small_company) -> None:
    company, by = small_company, {"actor": "operator"}
    secrets = secrets_of(company)
    rolled, ended = company.make_key(), company.make_key()
    found = []
    for one in (rolled, ended):
        token, _ = secrets.make(company.authentication().caller(one.token), LOCK, 300)
        found.append(secrets.find(token))
    keys.roll(company.database, company.control, company.secrets.hash_keys, rolled.info.id, **by)
    keys.update(company.database, company.control, ended.info.id, Change(action="deactivate"), **by)
    for one in found:
        with pytest.raises(Unauthenticated):
            secrets_of(company).caller(one)


def test_redis_keeps_secrets_where_there_is_one_and_the_store_while_it_is_away(
    small_company, redis_url, tmp_path
) -> None:
    company = small_company
    there = open_redis(RedisSettings(redis_url, 30.0), company.clock)
    away = open_redis(RedisSettings(f"unix://{tmp_path}/none.sock", 0.2), company.clock)
    caller = company.authentication().caller(company.make_key().token)
    kept, _ = secrets_of(company, there).make(caller, LOCK, 60)
    assert Documents(company.database).entries(KIND) == []
    spare, _ = secrets_of(company, away).make(caller, LOCK, 60)
    for token in (kept, spare):
        assert secrets_of(company, there).find(token).lock == LOCK
    there.close()
