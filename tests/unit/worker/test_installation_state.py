"""The state of the installation: running workers with their reports, the database, the disk and the last backup."""

from pathlib import Path

import orjson

from gateway.configuration.settings import DatabaseSettings
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.telemetry.presence import KIND, WorkerFacts
from gateway.worker.installation_state import find_backup, note_backup, read_store, read_workers


def add_worker(database: Database, epoch: int, node: str, lives_s: int) -> None:
    end = f"{database.moment_sql()} + {lives_s * 1_000_000}"
    sql = f"INSERT INTO worker (epoch, node, expires_at, seen_version) VALUES (?, ?, {end}, 0)"
    database.write(lambda: database.execute(sql, (epoch, node)))
    facts = WorkerFacts("1.0", "c" * 64, (("openai", "limited", epoch),))
    Documents(database).put(KIND, str(epoch), orjson.dumps(facts), 60)


def test_only_live_workers_count_and_a_node_has_its_highest_number_of_cooldowns(database: Database) -> None:
    for epoch, node, lives_s in ((1, "north", 60), (2, "north", 60), (3, "south", -60)):
        add_worker(database, epoch, node, lives_s)
    found = read_workers(database)
    assert [(worker.epoch, worker.node, worker.version) for worker in found.workers] == [
        (1, "north", "1.0"),
        (2, "north", "1.0"),
    ]
    assert [(one.node, one.provider, one.count) for one in found.cooldowns] == [("north", "openai", 2)]


def test_the_last_backup_and_sizes_are_known(database: Database, tmp_path: Path) -> None:
    assert find_backup(database) is None
    for size in (10, 20):
        note_backup(database, tmp_path / "nightly.db", size)
    backup = find_backup(database)
    assert backup is not None and (backup.file, backup.size) == ("nightly.db", 20)
    url = "postgresql://" if database.kind != "sqlite" else ""
    store = read_store(database, DatabaseSettings(url, str(tmp_path), 1, 1.0))
    assert store.size > 0 and store.disk_free <= store.disk_size and store.kept == 0 and not store.pending
    assert store.backup == backup
