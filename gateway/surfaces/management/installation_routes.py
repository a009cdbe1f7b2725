"""`/installation`: the state of the installation, and all its organizations, for its operators."""

from typing import Annotated, get_args

from msgspec import Meta

from gateway.accounts import key_caps, organizations
from gateway.build_stamp import full_version
from gateway.callers.models import OrganizationStatus
from gateway.limits.ledger import Balance
from gateway.surfaces.management.access_groups import OPERATOR
from gateway.surfaces.management.answers import OwnCapsAnswer
from gateway.surfaces.management.managed_operation import ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import OneOf, StrictBody
from gateway.surfaces.web.answer_structs import Answer, Time, Usd
from gateway.surfaces.web.http import Operation
from gateway.worker.installation_state import read_state

TAG = "Installation"
ORGANIZATION = "/installation/organizations/<organization_id>"


class LiveWorkerAnswer(Answer):
    """A running worker. `leads`: it runs the jobs of the installation."""

    node: Annotated[str, Meta(examples=["node-1"])]
    epoch: int
    leads: bool
    version: Annotated[str | None, Meta(examples=["2.1.0"])]
    catalogue: Annotated[str | None, Meta(examples=["1f0c5b7a2d9e4c38"])]


class CooldownAnswer(Answer):
    """How many models, regions and keys of a provider requests of a node try last."""

    node: Annotated[str, Meta(examples=["node-1"])]
    provider: Annotated[str, Meta(examples=["openai"])]
    reason: Annotated[str, Meta(examples=["limited"])]
    count: int


class RecurringJobAnswer(Answer):
    """The last run of a recurring job; `error` is null after a success."""

    name: Annotated[str, Meta(examples=["rollups"])]
    last_run_at: Time | None
    last_success_at: Time | None
    seconds: float
    error: Annotated[str | None, Meta(examples=["The database is away."])]


class BackupAnswer(Answer):
    """The last backup that `./manage backup` made."""

    at: Time
    file: Annotated[str, Meta(examples=["nightly.db"])]
    bytes: int


class StoreStateAnswer(Answer):
    """The database and the disk of its node. `pendingMigrations` are those that this release needs; `newerMigrations`
    come from a newer one. `keptBytes` are usage records in local files that wait for the database."""

    database: Annotated[str, Meta(examples=["postgresql"])]
    database_bytes: int
    migration: Annotated[str, Meta(examples=["0092_unusual_days"])]
    pending_migrations: list[str]
    newer_migrations: list[str]
    disk_free_bytes: int
    disk_bytes: int
    kept_bytes: int
    redis: Annotated[str, Meta(examples=["connected"])]
    backup: BackupAnswer | None


class OrganizationStatusChange(StrictBody):
    status = OneOf(
        get_args(OrganizationStatus), required=True, about="A blocked organization's keys are refused (410)."
    )


class InstallationAnswer(Answer):
    """The state of the installation as its workers reported it."""

    version: Annotated[str, Meta(examples=["2.1.0"])]
    workers: list[LiveWorkerAnswer]
    cooldowns: list[CooldownAnswer]
    jobs: list[RecurringJobAnswer]
    store: StoreStateAnswer


class InstallationOrganizationAnswer(Answer):
    """An organization as the operators see it: its credits and its own caps on active keys (null: the installation's),
    and nothing of its contents."""

    columns = ("id", "status", "credits", "unlimited", "created_at", "name")
    id: str
    name: str
    status: str
    credits: Usd
    unlimited: bool
    own_caps: OwnCapsAnswer
    created_at: Time


def show(call: ManagedCall[str]) -> InstallationAnswer:
    """Running workers with their versions, active cooldowns, the last runs of recurring jobs, database, disk, Redis and
    the last backup."""
    services = call.services
    state = read_state(call.database, services.settings.database)
    store = state.store
    redis = "not configured"
    if services.settings.redis.url:
        redis = "connected" if services.redis_connected() else "away"
    backup = store.backup
    return InstallationAnswer(
        services.settings.server.version or full_version(),
        [LiveWorkerAnswer.of(worker) for worker in state.workers.workers],
        [CooldownAnswer.of(one) for one in state.workers.cooldowns],
        [
            RecurringJobAnswer.of(
                job, last_run_at=job.at_us or None, last_success_at=job.good_us or None, error=job.error or None
            )
            for job in state.jobs
        ],
        StoreStateAnswer(
            store.kind,
            store.size,
            store.migration,
            list(store.pending),
            list(store.ahead),
            store.disk_free,
            store.disk_size,
            store.kept,
            redis,
            BackupAnswer.of(backup, bytes=backup.size) if backup else None,
        ),
    )


def list_all(call: ManagedCall[str]) -> list[InstallationOrganizationAnswer]:
    """All organizations of the installation with their credits, oldest first."""
    part = call.page.cut(organizations.list_organizations(call.database))
    balances = call.management.ledger.balances([info.id for info in part])
    caps = key_caps.list_caps(call.database)
    return [_show_with(info, balances[info.id], caps.get(info.id, key_caps.OwnCaps())) for info in part]


def find(call: ManagedCall[str]) -> InstallationOrganizationAnswer:
    """An organization of the installation with its credits."""
    return _show(call, organizations.find_organization(call.database, call.subject))


def change_status(call: ManagedCall[str]) -> InstallationOrganizationAnswer:
    """Block an organization, or let it in again. In force on every worker when this returns."""
    info = organizations.set_organization_status(*call.stores, call.subject, call.fields["status"], actor=call.actor)
    return _show(call, info)


def _show(call: ManagedCall[str], info: organizations.OrganizationInfo) -> InstallationOrganizationAnswer:
    own, _ = call.management.find_key_caps(info.id)
    return _show_with(info, call.management.ledger.balance(info.id), own)


def _show_with(
    info: organizations.OrganizationInfo, balance: Balance, own: key_caps.OwnCaps
) -> InstallationOrganizationAnswer:
    return InstallationOrganizationAnswer.of(
        info,
        credits=balance.balance_nusd,
        unlimited=balance.unlimited,
        own_caps=OwnCapsAnswer(own.total, own.member),
    )


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/installation", show, "Show the state of the installation", tag=TAG, who=OPERATOR,
            inside="installation"),
    managed("GET", "/installation/organizations", list_all, "List all organizations of the installation", tag=TAG,
            who=OPERATOR, query=ListPageQuery, inside="organizations"),
    managed("GET", ORGANIZATION, find, "Show an organization of the installation", tag=TAG, who=OPERATOR,
            inside="organization"),
    managed("PATCH", ORGANIZATION, change_status, "Block an organization or let it in again", tag=TAG, who=OPERATOR,
            request=OrganizationStatusChange, inside="organization", audit="organization.update_status"),
)  # fmt: skip
