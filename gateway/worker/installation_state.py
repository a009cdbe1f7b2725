"""The state of the installation, as its workers and jobs reported it: for `./manage status`, the management API and the
page System."""

import json
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from msgspec import Struct

from gateway.configuration.settings import DatabaseSettings
from gateway.control.version import Control
from gateway.store import migrations
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.outage_journal import kept_bytes
from gateway.telemetry.presence import WorkerFacts, read_presence
from gateway.worker.recurring_jobs import JobReport, read_reports

VERSION_DIGITS = 16  # hex digits of a catalogue version
BACKUP = "backup"  # kind of the document that remembers the last backup
BACKUP_KEY = "last"
BACKUP_TTL_S = 400 * 86_400.0


class LiveWorker(NamedTuple):
    """A running worker; its versions are None before its first report."""

    epoch: int
    node: str
    leads: bool
    version: str | None
    catalogue: str | None


class ActiveCooldown(Struct, frozen=True):
    """How many models, regions and keys of a provider requests of a node try last, and why."""

    node: str
    provider: str
    reason: str
    count: int


class WorkerIdentity(NamedTuple):
    """A workload identity of a worker at a provider; `expires_us` is 0 without a token."""

    node: str
    worker: int
    provider: str
    source: str
    expires_us: int
    failure: str


class ReportedWorkers(NamedTuple):
    """The running workers, and what they reported."""

    workers: tuple[LiveWorker, ...]
    cooldowns: tuple[ActiveCooldown, ...]
    identities: tuple[WorkerIdentity, ...]


class LastBackup(NamedTuple):
    """The last backup that `./manage backup` made."""

    at_us: int
    file: str
    size: int


class StoreState(NamedTuple):
    """The database and the data folder of this node, in bytes. `kept` are usage records in local files that wait for
    the database. `backup` is None where another program makes backups, as with PostgreSQL."""

    kind: str
    size: int
    migration: str
    pending: tuple[str, ...]
    ahead: tuple[str, ...]
    disk_free: int
    disk_size: int
    kept: int
    backup: LastBackup | None


class InstallationState(NamedTuple):
    """The state of the installation."""

    workers: ReportedWorkers
    jobs: tuple[JobReport, ...]
    store: StoreState


def read_state(database: Database, settings: DatabaseSettings) -> InstallationState:
    """Return the state of an installation whose database is migrated. Unavailable."""
    documents = Documents(database)
    jobs = tuple(read_reports(documents).values())
    return InstallationState(read_workers(database), jobs, read_store(database, settings))


def read_workers(database: Database) -> ReportedWorkers:
    """Return the running workers with their reports. Unavailable."""
    workers = dict(sorted(Control.observer(database).live_epochs().items()))
    presence = read_presence(Documents(database))
    leader = _find_leader(database)
    return ReportedWorkers(
        tuple(
            LiveWorker(epoch, node, epoch == leader, *_versions(presence.get(epoch))) for epoch, node in workers.items()
        ),
        _count_cooldowns(workers, presence),
        tuple(
            WorkerIdentity(node, epoch, *identity)
            for epoch, node in workers.items()
            for identity in (presence[epoch].identities if epoch in presence else ())
        ),
    )


def read_store(database: Database, settings: DatabaseSettings) -> StoreState:
    """Return the state of the database and of the data folder. Unavailable."""
    schema = migrations.read_state(database)
    folder = Path(settings.data_dir)
    disk = shutil.disk_usage(folder)
    return StoreState(
        settings.scheme,
        _measure(database, settings),
        schema.newest,
        schema.pending,
        schema.ahead,
        disk.free,
        disk.total,
        kept_bytes(folder / "journal"),
        find_backup(database),
    )


def note_backup(database: Database, file: Path, size: int) -> None:
    """Remember a backup. Unavailable."""
    content = json.dumps([database.now_us(), file.name, size]).encode()
    Documents(database).put(BACKUP, BACKUP_KEY, content, BACKUP_TTL_S)


def find_backup(database: Database) -> LastBackup | None:
    """Return the last backup, None without one in the last 400 days. Unavailable."""
    stored = Documents(database).get(BACKUP, BACKUP_KEY)
    return LastBackup(*json.loads(stored)) if stored else None


def _versions(facts: WorkerFacts | None) -> tuple[str | None, str | None]:
    return (None, None) if facts is None else (facts.version, facts.catalogue[:VERSION_DIGITS])


def _count_cooldowns(workers: Mapping[int, str], presence: Mapping[int, WorkerFacts]) -> tuple[ActiveCooldown, ...]:
    """Return the active cooldowns of each node, which workers report every few seconds."""
    counts: dict[tuple[str, str, str], int] = {}
    for epoch, node in workers.items():
        for provider, reason, count in presence[epoch].resting if epoch in presence else ():
            place = (node, provider, reason)
            counts[place] = max(counts.get(place, 0), count)
    return tuple(ActiveCooldown(*place, count) for place, count in sorted(counts.items()))


def _find_leader(database: Database) -> int:
    sql = f"SELECT worker FROM leader WHERE name = 'jobs' AND expires_at > {database.moment_sql()}"
    row = database.read(lambda: database.execute(sql).fetchone())
    if row:
        worker: int = row[0]
        return worker
    return 0


def _measure(database: Database, settings: DatabaseSettings) -> int:
    """Return the bytes of the database, without the log of SQLite."""
    if settings.scheme == "sqlite":
        sql = "SELECT page_count * page_size FROM pragma_page_count, pragma_page_size"
    else:
        sql = "SELECT pg_database_size(current_database())"
    row = database.query_row(sql, ())
    size: int = row[0] if row else 0
    return size
