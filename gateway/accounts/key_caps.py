"""Caps on how many active keys an organization may have, in all and of each member."""

from functools import partial
from typing import Any

from msgspec import Struct

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.models import ApiKey, Organization, Project
from gateway.configuration import settings
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database

MAX_CAP = 1_000_000
CODE = "key_cap_reached"


class KeyCaps(Struct, frozen=True):
    """The most active keys of an organization and of each of its members; 0 = no cap."""

    total: int = 0
    member: int = 0


class OwnCaps(Struct, frozen=True):
    """The caps that an organization sets for its keys: None = the installation's cap, 0 = no cap."""

    total: int | None = None
    member: int | None = None

    def over(self, defaults: KeyCaps) -> KeyCaps:
        """The caps in force."""
        return KeyCaps(
            defaults.total if self.total is None else self.total,
            defaults.member if self.member is None else self.member,
        )


class CapUsage(Struct, frozen=True):
    """How many active keys there are, and may be (0 = no cap)."""

    count: int
    maximum: int

    @property
    def left(self) -> int:
        return max(0, self.maximum - self.count)


NO_CAPS = KeyCaps()


def read_caps(limits: settings.LimitSettings) -> KeyCaps:
    """The installation's caps, for organizations without their own."""
    return KeyCaps(limits.max_keys, limits.max_member_keys)


def find_caps(database: Database, organization_id: str) -> OwnCaps:
    """The organization's own caps. NotFound."""
    return database.read(partial(_load, organization_id))


def list_caps(database: Database) -> dict[str, OwnCaps]:
    """Return the own caps of the organizations that have some, by id."""
    has_own = Organization.max_keys.is_null(False) | Organization.max_member_keys.is_null(False)
    query = Organization.select(Organization.id, Organization.max_keys, Organization.max_member_keys).where(has_own)

    def read() -> dict[str, OwnCaps]:
        rows: Any = query.tuples()
        return {ident: OwnCaps(total, member) for ident, total, member in rows}

    return database.read(read)


def set_caps(database: Database, control: Control, organization_id: str, caps: OwnCaps, *, actor: str) -> OwnCaps:
    """Replace the organization's own caps; keys beyond them stay as they are. NotFound, InvalidRequest."""
    for value in (caps.total, caps.member):
        if value is not None and not 0 <= value <= MAX_CAP:
            raise InvalidRequest(f"A cap on active API keys lies between 0 (none) and {MAX_CAP}.")

    def work(now: int) -> OwnCaps:
        _load(organization_id)
        values: dict[str, int | None] = {"max_keys": caps.total, "max_member_keys": caps.member}
        Organization.update(updated_at=now, **values).where(Organization.id == organization_id).execute()
        action = "organization.update_key_caps"
        audit.append(action, organization_id, actor=actor, at_us=now, organization_id=organization_id, detail=values)
        return caps

    return commit(database, control, work, confirm=False)


def check_quota(organization_id: str, member_id: str, defaults: KeyCaps, now: int) -> None:
    """InvalidRequest (code key_cap_reached) when one more active key of the member would pass a cap.

    Within the transaction of the change: those of `changes.commit` run one after the other, so the count holds.
    """
    caps = _load(organization_id).over(defaults)
    for owner, maximum, of_member in (("organization", caps.total, ""), ("member", caps.member, member_id)):
        if maximum and (count := _count(organization_id, of_member, now)) >= maximum:
            raise InvalidRequest(
                f"The {owner} has {count} active API keys and may have {maximum}: deactivate or delete one first, or "
                "ask the operator of this installation to raise the cap.",
                code=CODE,
            )


def find_cap_usage(database: Database, organization_id: str, member_id: str, defaults: KeyCaps) -> CapUsage:
    """The active keys under the cap that leaves a member the fewest more: the organization's, or the member's own.
    `member_id` "": the organization's alone. NotFound."""
    now = database.now_us()

    def read() -> CapUsage:
        caps = _load(organization_id).over(defaults)
        usages = [CapUsage(_count(organization_id, "", now), caps.total)]
        if member_id:
            usages.append(CapUsage(_count(organization_id, member_id, now), caps.member))
        capped = [usage for usage in usages if usage.maximum]
        if capped:
            return min(capped, key=lambda usage: usage.left)
        return usages[0]

    return database.read(read)


def _count(organization_id: str, member_id: str, now: int) -> int:
    alive = ApiKey.expires_at.is_null() | (ApiKey.expires_at > now)
    query = ApiKey.select().join(Project).where(Project.organization == organization_id)
    if member_id:
        query = query.where(ApiKey.member == member_id)
    return query.where(ApiKey.status == "active", alive).count()


def _load(organization_id: str) -> OwnCaps:
    row = Organization.get_or_none(Organization.id == organization_id)
    if row is None:
        raise NotFound(f"There is no organization {organization_id}.")
    return OwnCaps(row.max_keys, row.max_member_keys)
