import platform

import gevent
import orjson
import pytest

from gateway.configuration.settings import SettingsError
from gateway.store.documents import Documents
from gateway.store.installation_identity import claim_value, get_value, load_secrets, set_value
from gateway.telemetry.presence import WorkerFacts

HASH = "GATEWAY_API_KEY_HASH_SECRET"
KEY = "GATEWAY_ENCRYPTION_KEY"
OLD, NEW, OTHER = "old-secret-0123456789", "new-secret-0123456789", "other-secret-01234567"


def test_a_value_is_kept_and_replaced(database):
    assert get_value(database, "name") is None
    set_value(database, "name", "1")
    set_value(database, "name", "2")
    assert get_value(database, "name") == "2"


def test_the_first_claim_of_a_value_counts(database):
    assert claim_value(database, "name", "1") == "1"
    assert claim_value(database, "name", "2") == "1"


def test_secrets_are_made_once_into_private_files(sqlite_database, settings, tmp_path):
    first = load_secrets(settings(), sqlite_database)
    assert load_secrets(settings(), sqlite_database) == first
    files = list((tmp_path / "data").iterdir())
    assert {file.stat().st_mode & 0o777 for file in files} == {0o600}
    assert len(files) == 2 and len(first.hash_keys[0]) > 40 and len(first.encryption_keys[0]) == 44


def test_processes_that_start_at_once_agree_on_the_secret(sqlite_database, settings):
    runs = [gevent.spawn(load_secrets, settings(), sqlite_database) for _ in range(5)]
    gevent.joinall(runs, raise_error=True)
    assert len({run.value for run in runs}) == 1


def test_a_lost_file_is_not_replaced_by_a_new_secret(sqlite_database, settings, tmp_path):
    load_secrets(settings(), sqlite_database)
    (tmp_path / "data" / HASH.lower()).unlink()
    with pytest.raises(SettingsError, match="restore it"):
        load_secrets(settings(), sqlite_database)


def test_another_secret_is_refused(database, settings):
    load_secrets(settings(**{HASH: OLD, KEY: OLD}), database)
    with pytest.raises(SettingsError, match=HASH):
        load_secrets(settings(**{HASH: OTHER, KEY: OLD}), database)


def test_a_secret_is_rotated_by_standing_before_the_old_one(database, settings):
    load_secrets(settings(**{HASH: OLD, KEY: OLD}), database)
    both = load_secrets(settings(**{HASH: f"{NEW}, {OLD}", KEY: OLD}), database)
    assert both.hash_keys == (NEW.encode(), OLD.encode())
    assert load_secrets(settings(**{HASH: NEW, KEY: OLD}), database).hash_keys == (NEW.encode(),)
    with pytest.raises(SettingsError):
        load_secrets(settings(**{HASH: OLD, KEY: OLD}), database)


def test_a_server_needs_secrets_from_outside(postgresql_url, open_store, settings):
    with pytest.raises(SettingsError, match=f"{HASH}.*required with PostgreSQL"):
        load_secrets(settings(), open_store(postgresql_url))


def test_a_short_secret_is_refused_without_being_shown(database, settings):
    with pytest.raises(SettingsError) as caught:
        load_secrets(settings(**{HASH: "hunter2", KEY: OLD}), database)
    assert "hunter2" not in str(caught.value)


def test_secrets_are_not_printed(database, settings):
    assert OLD not in repr(load_secrets(settings(**{HASH: OLD, KEY: OLD}), database))


def test_the_table_does_not_hold_the_secret(database, settings):
    load_secrets(settings(**{HASH: OLD, KEY: OLD}), database)
    rows = database.read(lambda: database.execute("SELECT value FROM installation").fetchall())
    assert len(rows) == 3 and all(OLD not in value for (value,) in rows)


def run_worker(database, node: str, fingerprints: tuple[str, ...], lives: bool = True) -> None:
    """Leave the rows of a worker of another node that knows these secrets."""
    ends = database.now_us() + (60_000_000 if lives else -1)
    database.change_rows("DELETE FROM worker WHERE epoch = ?", (7,))
    sql = "INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (?, ?, ?, ?)"
    database.change_rows(sql, (7, node, ends, 0))
    facts = WorkerFacts("1", "c", secrets=fingerprints)
    Documents(database).put("worker", "7", orjson.dumps(facts), 60)


def test_a_secret_is_not_used_before_all_nodes_know_it(database, settings):
    old = load_secrets(settings(**{HASH: OLD, KEY: OLD}), database)
    run_worker(database, "other:4001 (process 1)", old.fingerprints)
    for name in (HASH, KEY):
        rotated = {HASH: OLD, KEY: OLD, name: f"{NEW},{OLD}"}
        with pytest.raises(SettingsError, match=rf"{name}: the node other:4001 .*does not know .* Append"):
            load_secrets(settings(**rotated), database)
    appended = load_secrets(settings(**{HASH: f"{OLD},{NEW}", KEY: OLD}), database)
    assert appended.hash_keys[0] == OLD.encode()
    run_worker(database, "other:4001 (process 2)", appended.fingerprints)
    assert load_secrets(settings(**{HASH: f"{NEW},{OLD}", KEY: OLD}), database).hash_keys[0] == NEW.encode()


@pytest.mark.parametrize(
    ("node", "lives"), [(f"{platform.node()}:4001 (process 1)", True), ("other (process 1)", False)]
)
def test_workers_of_the_own_host_and_dead_ones_do_not_hold_up_a_rotation(database, settings, node, lives):
    old = load_secrets(settings(**{HASH: OLD, KEY: OLD}), database)
    run_worker(database, node, old.fingerprints, lives)
    assert load_secrets(settings(**{HASH: f"{NEW},{OLD}", KEY: OLD}), database).hash_keys[0] == NEW.encode()
