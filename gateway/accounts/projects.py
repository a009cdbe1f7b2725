"""Projects: making, listing, settings, archiving."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import Any, Self

from gateway import ids
from gateway.accounts import audit, client_ids
from gateway.accounts.changes import MAX_PROJECTS, SPLIT_ADVICE, check_quota, commit
from gateway.accounts.client_ids import ClientIdClaim
from gateway.accounts.organizations import read_name
from gateway.callers.credential_sources import PROJECT_MODES
from gateway.callers.models import Organization, Project
from gateway.callers.vault import Vault
from gateway.configuration.settings import OrganizationDefaults
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store.database import WHOLE, Database, ListSlice
from gateway.transport import webhook_delivery

# The party that marks prompts for providers' caches: public name → stored value.
MARKERS = {"automatic": "automatic", "client-managed": "client", "disabled": "disabled"}
CHOICES = {
    "mode": tuple(PROJECT_MODES),
    "status": ("active", "archived"),
    "retention": ("none", "retain"),
    "cache_markers": tuple(MARKERS.values()),
}
UNSET = OrganizationDefaults()
RANGES = {"cache_ttl_s": (10, 31_536_000), "retention_days": (1, 3650)}


def name_markers(stored: str) -> str:
    """The name of what a row has, as of MARKERS."""
    return next(name for name, value in MARKERS.items() if value == stored)


@dataclass(frozen=True, slots=True)
class ProjectInfo:
    """A project. `has_callback_secret` is true if callbacks are signed with the project's own secret."""

    id: str
    organization_id: str
    name: str
    mode: str
    status: str
    cache_enabled: bool
    cache_ttl_s: int
    retention: str
    retention_days: int
    cache_markers: str
    settings: Mapping[str, Any]
    has_callback_secret: bool
    created_at_us: int

    @classmethod
    def of(cls, row: Project) -> Self:
        """Return the project of a row. A field that is not converted here has the name of its column."""
        converted = {
            "settings": json.loads(row.settings),
            "has_callback_secret": bool(row.callback_secret),
            "created_at_us": row.created_at,
        }
        return cls(**{f.name: converted[f.name] if f.name in converted else getattr(row, f.name) for f in fields(cls)})


@dataclass(frozen=True, slots=True)
class ProjectChange:
    """An update of a project. None leaves a value unchanged. Ranges: cache 10 to 31536000 s, retention 1 to 3650
    days."""

    name: str | None = None
    mode: str | None = None
    status: str | None = None
    cache_enabled: bool | None = None
    cache_ttl_s: int | None = None
    retention: str | None = None
    retention_days: int | None = None
    cache_markers: str | None = None
    settings: Mapping[str, Any] | None = None


def create_project(
    database: Database,
    control: Control,
    organization_id: str,
    name: str,
    *,
    mode: str = "",
    maximum: int = 0,
    defaults: OrganizationDefaults = UNSET,
    actor: str,
    claim: ClientIdClaim | None = None,
) -> ProjectInfo:
    """Make a project. NotFound (organization); InvalidRequest (name, mode; code project_cap_reached when there are
    `maximum` active ones, 0 = no cap)."""
    values = first_values(name, defaults, mode)
    project_id = ids.new("proj")

    def work(now: int) -> ProjectInfo:
        projects = Project.select().where(Project.organization == organization_id)
        check_quota(projects, MAX_PROJECTS, "projects, archived ones among them", SPLIT_ADVICE)
        active_projects = projects.where(Project.status == "active")
        if maximum and active_projects.count() >= maximum:
            text = f"The organization has {maximum} active projects, which is the limit here."
            raise InvalidRequest(text, code="project_cap_reached")
        client_ids.insert(claim, project_id, now)
        return insert_project(project_id, organization_id, values, actor=actor, now=now)

    return commit(database, control, work, confirm=False)


def first_values(name: str, defaults: OrganizationDefaults, mode: str = "") -> dict[str, Any]:
    """The columns that a new project begins with; `mode` "" is the default's. InvalidRequest (name, mode)."""
    return read_change(
        ProjectChange(
            name=name,
            mode=mode or defaults.project_mode,
            cache_enabled=defaults.caching,
            cache_ttl_s=defaults.cache_ttl_s,
            retention=defaults.retention,
            retention_days=defaults.retention_days,
        )
    )


def insert_project(
    project_id: str, organization_id: str, values: Mapping[str, Any], *, actor: str, now: int
) -> ProjectInfo:
    """The part of `create_project` that runs within a transaction; `values` come from `read_change`."""
    if not Organization.select().where(Organization.id == organization_id).exists():
        raise NotFound(f"There is no organization {organization_id}.")
    Project.insert(id=project_id, organization=organization_id, created_at=now, updated_at=now, **values).execute()
    audit.append("project.create", project_id, actor=actor, at_us=now, organization_id=organization_id, detail=values)
    return _load(project_id)


def find_project(database: Database, project_id: str) -> ProjectInfo:
    """One project, archived or not. NotFound."""
    return database.read(partial(_load, project_id))


def list_projects(
    database: Database,
    organization_ids: Sequence[str] | None = None,
    part: ListSlice = WHOLE,
    *,
    archived: bool = True,
) -> list[ProjectInfo]:
    """The projects of the organizations (None: of all), oldest first; archived ones too unless `archived` is False."""

    def read() -> list[ProjectInfo]:
        query = Project.select().order_by(Project.id)
        if organization_ids is not None:
            query = query.where(Project.organization.in_(list(organization_ids)))
        if not archived:
            query = query.where(Project.status == "active")
        return [ProjectInfo.of(row) for row in part.narrow(query, Project.id)]

    return database.read(read)


def update_project(
    database: Database,
    control: Control,
    project_id: str,
    change: ProjectChange,
    *,
    actor: str,
    check: Callable[[], None] = lambda: None,
) -> ProjectInfo:
    """Set what `change` names, in force everywhere when this returns.

    Archiving is a change of status: keys of the project are answered 410 then. `check` raises within the transaction if
    `actor` may not make the change. NotFound, InvalidRequest, Conflict
    (a response cache under a policy of zero data retention).
    """
    values = read_change(change)
    if not values:
        raise InvalidRequest("Give at least one setting to change.")

    def work(now: int) -> ProjectInfo:
        before = _load(project_id)
        check()
        if change.cache_enabled:
            _check_cacheable(before.organization_id)
        return _set(before, values, values, actor, now)

    return commit(database, control, work)


def switch_modes(
    database: Database, control: Control, organization_id: str, before: str, after: str, *, actor: str
) -> list[ProjectInfo]:
    """Set the mode of the organization's active projects that have the mode `before`, and return these projects."""

    def work(now: int) -> list[ProjectInfo]:
        found = Project.select().where(
            Project.organization == organization_id, Project.mode == before, Project.status == "active"
        )
        values = {"mode": after}
        return [_set(ProjectInfo.of(row), values, values, actor, now) for row in found.order_by(Project.id)]

    return commit(database, control, work)


def set_callback_secret(
    database: Database, control: Control, vault: Vault, project_id: str, secret: str, *, actor: str
) -> ProjectInfo:
    """Keep the secret that signs the project's callbacks, encrypted; "" removes it. NotFound."""
    values = {"callback_secret": vault.seal(secret)}
    shown = {"callback_secret": "set" if secret else "removed"}
    return commit(database, control, lambda now: _set(_load(project_id), values, shown, actor, now))


def ensure_callback_secret(database: Database, control: Control, vault: Vault, project_id: str, *, actor: str) -> None:
    """Give a project without a callback secret a new one. NotFound, Unavailable."""
    if callback_secret(database, vault, project_id):
        return
    sealed = vault.seal(webhook_delivery.make_secret())

    def work(now: int) -> None:
        project = _load(project_id)
        if not project.has_callback_secret:
            _set(project, {"callback_secret": sealed}, {"callback_secret": "set"}, actor, now)

    commit(database, control, work, confirm=False)


def callback_secret(database: Database, vault: Vault, project_id: str) -> str:
    """The secret that signs the project's callbacks; "" when it has none. NotFound."""

    def read() -> str:
        row = Project.get_or_none(Project.id == project_id)
        if row is None:
            raise NotFound(f"There is no project {project_id}.")
        return row.callback_secret

    return vault.open(database.read(read))


def read_change(change: ProjectChange) -> dict[str, Any]:
    """The columns to set. InvalidRequest names the first field that is out of its choices or range."""
    changed_fields = {f.name: getattr(change, f.name) for f in fields(change)}
    values = {name: value for name, value in changed_fields.items() if value is not None}
    if "name" in values:
        values["name"] = read_name(values["name"])
    for name, choices in CHOICES.items():
        if name in values and values[name] not in choices:
            raise InvalidRequest(f"{name} must be one of {', '.join(choices)}.", param=name)
    for name, (low, high) in RANGES.items():
        if name in values and not low <= values[name] <= high:
            raise InvalidRequest(f"{name} must lie between {low} and {high}.", param=name)
    if "settings" in values:
        values["settings"] = json.dumps(dict(values["settings"]), sort_keys=True)
    return values


def _check_cacheable(organization_id: str) -> None:
    policy = Organization.get_by_id(organization_id).policy
    if json.loads(policy).get("zeroDataRetention"):
        raise Conflict("The organization's zero data retention policy forbids a response cache.")


def _set(before: ProjectInfo, values: Mapping[str, Any], shown: Mapping[str, Any], actor: str, now: int) -> ProjectInfo:
    Project.update(updated_at=now, **values).where(Project.id == before.id).execute()
    audit.append(
        "project.update", before.id, actor=actor, at_us=now, organization_id=before.organization_id, detail=shown
    )
    return _load(before.id)


def _load(project_id: str) -> ProjectInfo:
    row = Project.get_or_none(Project.id == project_id)
    if row is None:
        raise NotFound(f"There is no project {project_id}.")
    return ProjectInfo.of(row)
