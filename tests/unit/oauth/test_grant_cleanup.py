"""A job in the table of recurring work removes expired rows, and the other rows stay."""

from gateway.accounts import keys
from gateway.callers.models import OAuthClient, OAuthCode, OAuthGrant, OAuthToken
from gateway.oauth.authorization_server import (
    IDLE_LIFETIME_S,
    STEP_ROWS,
    UNUSED_LIFETIME_S,
    USED_CODE_RETENTION_S,
    OAuthCleanup,
)
from gateway.oauth.clients import Clients
from gateway.oauth.grants import ACCESS_LIFETIME_S, CODE_LIFETIME_S, REFRESH_LIFETIME_S
from gateway.store.installation_identity import Secrets
from gateway.worker.recurring_jobs import JOB_TABLE

SECRETS = Secrets((b"newest-hash-key-of-tests",), ("newest-encryption-key",))


def counts(office) -> tuple[int, ...]:
    tables = OAuthClient, OAuthGrant, OAuthCode, OAuthToken
    return office.database.read(lambda: tuple(table.select().count() for table in tables))


def test_codes_and_tokens_go_after_their_time_and_a_grant_after_the_last_of_it(small_office, clock) -> None:
    office, cleanup = small_office, OAuthCleanup(small_office.database)
    office.connect()
    office.grants.allow(office.consent())
    assert cleanup.forget() == 0 and counts(office) == (0, 2, 2, 2)
    clock.advance(CODE_LIFETIME_S + 1)
    cleanup.forget()
    assert counts(office) == (0, 1, 1, 2)  # the second code was never used
    clock.advance(ACCESS_LIFETIME_S)
    cleanup.forget()
    assert counts(office) == (0, 1, 1, 1)
    clock.advance(USED_CODE_RETENTION_S)
    cleanup.forget()
    assert counts(office) == (0, 1, 0, 1)
    clock.advance(REFRESH_LIFETIME_S)
    cleanup.forget()
    assert counts(office) == (0, 0, 0, 0)


def test_grants_of_ended_keys_are_deleted_at_once(office) -> None:
    Clients(office.database, SECRETS, lambda address, ask: None).register({"redirect_uris": ["https://a.example/"]})
    office.connect()
    keys.roll(office.database, office.control, SECRETS.hash_keys, office.key.id, actor="test")
    assert OAuthCleanup(office.database).forget() == 1 and counts(office) == (1, 0, 0, 0)


def test_unused_applications_are_removed_and_others_stay(small_office, clock) -> None:
    office, cleanup = small_office, OAuthCleanup(small_office.database)
    clients = Clients(office.database, SECRETS, lambda address, ask: None)
    unused, used = (clients.register({"redirect_uris": ["https://a.example/"]})[0] for _ in range(2))
    office.connect(client=used.id)
    clock.advance(UNUSED_LIFETIME_S + 1)
    cleanup.forget()
    assert clients.find(unused.id) is None and clients.find(used.id) is not None
    clock.advance(IDLE_LIFETIME_S)
    cleanup.forget()
    assert clients.find(used.id) is None


def test_many_go_in_small_steps(small_office, monkeypatch) -> None:
    now = small_office.database.now_us()
    lines = [
        {"id": f"client_{n}", "name": "n", "metadata": "{}", "created_at": now - UNUSED_LIFETIME_S * 2_000_000}
        for n in range(2 * STEP_ROWS + 3)
    ]
    small_office.database.write(
        lambda: [OAuthClient.insert_many(lines[at : at + 100]).execute() for at in range(0, len(lines), 100)]
    )
    sizes, write = [], small_office.database.write
    monkeypatch.setattr(small_office.database, "write", lambda work: sizes.append(write(work)) or sizes[-1])
    assert OAuthCleanup(small_office.database).forget() == len(lines) and max(sizes) == STEP_ROWS
    assert OAuthCleanup(small_office.database).forget(lambda: False) == 0


def test_the_job_is_in_the_table() -> None:
    assert [job.every_s for job in JOB_TABLE if job.name == "oauth"] == [600.0]
