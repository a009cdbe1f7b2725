"""Organizations: making, listing, blocking, and their compliance policy."""

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import check_names, commit
from gateway.accounts.known_names import KnownNames
from gateway.callers.compliance import read_policy
from gateway.callers.models import Member, Organization, OrganizationStatus
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database

MAX_NAME_LENGTH = 255


class OrganizationInfo(Struct, frozen=True):
    """`policy` is the JSON object of the compliance policy, {} when there is none."""

    id: str
    name: str
    status: OrganizationStatus
    policy: Mapping[str, Any]
    created_at_us: int
    leads_add_members: bool = False


def create_organization(
    database: Database,
    control: Control,
    name: str,
    *,
    actor: str,
    furnish: Callable[[str, int], None] = lambda organization_id, now: None,
) -> OrganizationInfo:
    """Make an organization without members; `furnish` adds to it within the transaction. InvalidRequest (name)."""
    name = read_name(name)
    organization_id = ids.new("org")

    def work(now: int) -> OrganizationInfo:
        info = insert_organization(organization_id, name, actor=actor, now=now)
        furnish(organization_id, now)
        return info

    return commit(database, control, work, confirm=False)


def insert_organization(organization_id: str, name: str, *, actor: str, now: int) -> OrganizationInfo:
    """The part of `create_organization` that runs within a transaction."""
    Organization.insert(id=organization_id, name=name, created_at=now, updated_at=now).execute()
    audit.append(
        "organization.create",
        organization_id,
        actor=actor,
        at_us=now,
        organization_id=organization_id,
        detail={"name": name},
    )
    return load_organization(organization_id)


def any_organization() -> bool:
    """Return whether there is one at all; within a database read or write."""
    return Organization.select().exists()


def find_organization(database: Database, organization_id: str) -> OrganizationInfo:
    """One organization. NotFound."""
    return database.read(partial(load_organization, organization_id))


def list_organizations(database: Database, user_id: str = "") -> list[OrganizationInfo]:
    """All organizations, or those in which the user is an active member; oldest first."""

    def read() -> list[OrganizationInfo]:
        query = Organization.select().order_by(Organization.id)
        if user_id:
            memberships = Member.select(Member.organization).where(Member.user == user_id, Member.status == "active")
            query = query.where(Organization.id.in_(memberships))
        return [_info(row) for row in query]

    return database.read(read)


def set_organization_status(
    database: Database, control: Control, organization_id: str, status: OrganizationStatus, *, actor: str
) -> OrganizationInfo:
    """Block an organization (its keys are answered 410 when this returns) or let it in again. NotFound."""
    return _update(database, control, organization_id, "update_status", {"status": status}, actor)


def change_organization(
    database: Database,
    control: Control,
    organization_id: str,
    *,
    actor: str,
    name: str | None = None,
    leads_add_members: bool | None = None,
) -> OrganizationInfo:
    """Change the name, and whether leads add members to their teams; None leaves it as it is. NotFound,
    InvalidRequest."""
    values: dict[str, Any] = {}
    if name is not None:
        values["name"] = read_name(name)
    if leads_add_members is not None:
        values["leads_add_members"] = leads_add_members
    return _update(database, control, organization_id, "update", values, actor)


def set_policy(
    database: Database,
    control: Control,
    organization_id: str,
    policy: Mapping[str, Any],
    *,
    actor: str,
    known: KnownNames | None = None,
) -> OrganizationInfo:
    """Replace the compliance policy; {} removes it; `known` are the names that it may allow (None: any). NotFound,
    InvalidRequest (unknown or ill-typed flag, unknown name)."""
    for name, listed in policy.items():
        if isinstance(listed, list):
            check_names(listed, name)
    read_policy(policy)
    if known is not None:
        known.check_policy(policy)
    values = {"policy": json.dumps(dict(policy), sort_keys=True)}
    return _update(database, control, organization_id, "update_policy", values, actor)


def read_name(text: str) -> str:
    """A name, trimmed. InvalidRequest unless 1 to 255 characters are left."""
    name = text.strip()
    if not 1 <= len(name) <= MAX_NAME_LENGTH:
        raise InvalidRequest(f"name needs 1 to {MAX_NAME_LENGTH} characters.", param="name")
    return name


def _update(
    database: Database, control: Control, organization_id: str, action: str, values: dict[str, Any], actor: str
) -> OrganizationInfo:
    def work(now: int) -> OrganizationInfo:
        load_organization(organization_id)
        Organization.update(updated_at=now, **values).where(Organization.id == organization_id).execute()
        audit.append(
            f"organization.{action}",
            organization_id,
            actor=actor,
            at_us=now,
            organization_id=organization_id,
            detail=values,
        )
        return load_organization(organization_id)

    return commit(database, control, work)


def load_organization(organization_id: str) -> OrganizationInfo:
    """One organization; within a database read or write. NotFound."""
    row = Organization.get_or_none(Organization.id == organization_id)
    if row is None:
        raise NotFound(f"There is no organization {organization_id}.")
    return _info(row)


def _info(row: Organization) -> OrganizationInfo:
    return OrganizationInfo(row.id, row.name, row.status, json.loads(row.policy), row.created_at, row.leads_add_members)


def first_id() -> str:
    """Return the id of the first organization, "" if there is none. Its owners run the installation. Call this within a
    read or write."""
    row = Organization.select(Organization.id).order_by(Organization.id).first()
    if row is not None:
        first: str = row.id
        return first
    return ""
