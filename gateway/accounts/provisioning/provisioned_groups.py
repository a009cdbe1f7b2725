"""Groups of provisioning: an identity provider names them and their members; the group rules give them a meaning."""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any

from msgspec import Struct

from gateway import ids
from gateway.accounts import audit, group_rules
from gateway.accounts.changes import MAX_TEAMS, check_quota, commit
from gateway.accounts.models import ScimGroup, ScimGroupMember
from gateway.accounts.provisioning import user_rows
from gateway.accounts.provisioning.user_rows import GroupEffect, ProvisioningClient, StaleVersion
from gateway.callers.models import Member
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.store.database import Database

SCAN_ROWS = 100
STEP_MEMBERS = 50  # of one transaction: other changes of accounts wait for it
BATCH_SIZE = 500  # ids in one query
MAX_GROUPS = MAX_TEAMS  # of an organization
MAX_LINKS = 500_000  # of members to groups in an organization


class ProvisionedGroup(Struct, frozen=True):
    """A group; `member_ids` are loaded on request. `version` changes with the group and with its members."""

    id: str
    organization_id: str
    name: str
    external_id: str
    version: str
    created_at_us: int
    updated_at_us: int
    member_ids: tuple[str, ...] = ()


class GroupLookup(Struct, frozen=True):
    """A condition that an index answers. An empty value is no condition."""

    id: str = ""
    name: str = ""
    member_id: str = ""


class GroupChange(Struct, frozen=True):
    """A change of a group; None leaves a value unchanged."""

    name: str | None = None
    external_id: str | None = None
    added: Sequence[str] = ()
    removed: Sequence[str] = ()

    def steps(self) -> Iterator[tuple[Sequence[str], Sequence[str]]]:
        """Return the added and removed members of each transaction; there is at least one."""
        count = max(1, len(self.added), len(self.removed))
        for start in range(0, count, STEP_MEMBERS):
            end = start + STEP_MEMBERS
            yield self.added[start:end], self.removed[start:end]


class ProvisionedGroups:
    """Reads and changes the groups of an organization. Changes are audited, and the group rules are applied to each
    member whose groups change. A change of many members is several transactions, each complete."""

    def __init__(self, database: Database, control: Control, effect: GroupEffect) -> None:
        self._database = database
        self._control = control
        self._effect = effect

    def find(self, organization_id: str, group_id: str, members: bool = True) -> ProvisionedGroup:
        """Return one group. Raises NotFound."""

        def read() -> ProvisionedGroup:
            row = _row(organization_id, group_id)
            return _info(row, _members_of([row.id])[row.id] if members else ())

        return self._database.report(read)

    def page(
        self, organization_id: str, lookup: GroupLookup, offset: int, limit: int
    ) -> tuple[int, list[ProvisionedGroup]]:
        """Return the number of groups that match a lookup, and at most `limit` of them, without members."""
        query = _narrow(organization_id, lookup)

        def read() -> tuple[int, list[ProvisionedGroup]]:
            rows = list(query.offset(offset).limit(limit)) if limit else []
            return query.count(), [_info(row, ()) for row in rows]

        return self._database.report(read)

    def scan(self, organization_id: str, lookup: GroupLookup, members: bool) -> Iterator[list[ProvisionedGroup]]:
        """Return all groups that match a lookup in pieces, oldest first."""
        last = ""
        while True:
            query = _narrow(organization_id, lookup).where(ScimGroup.id > last).limit(SCAN_ROWS)
            piece = self._database.report(partial(_load, query, members))
            if piece:
                yield piece
            if len(piece) < SCAN_ROWS:
                return
            last = piece[-1].id

    def members_of(self, group_id: str) -> tuple[str, ...]:
        """Return the ids of the members of a group, oldest first."""
        return self._database.report(lambda: _members_of([group_id])[group_id])

    def create(self, client: ProvisioningClient, name: str, external_id: str, member_ids: Sequence[str]) -> str:
        """Create a group and return its id. Raises Conflict (code group_exists) or InvalidRequest (unknown member, too
        many groups)."""
        group_id = ids.new("sgrp")
        organization_id = client.organization_id
        self._check_members(organization_id, member_ids)

        def work(now: int) -> None:
            _check_name_free(organization_id, name, "")
            rows = ScimGroup.select().where(ScimGroup.organization == organization_id)
            check_quota(rows, MAX_GROUPS, "provisioned groups")
            ScimGroup.insert(
                id=group_id,
                organization=organization_id,
                display_name=name,
                name_key=name.lower(),
                external_id=external_id,
                by_owner=client.by_owner,
                created_at=now,
                updated_at=now,
            ).execute()
            detail = {"name": name, "members": len(member_ids)}
            _audit("scim_group.create", group_id, client, detail, now)

        commit(self._database, self._control, work, confirm=False)
        if member_ids:
            self.update(client, group_id, GroupChange(added=member_ids))
        return group_id

    def update(self, client: ProvisioningClient, group_id: str, change: GroupChange, version: str = "") -> None:
        """Change a group; the effects are in force on every worker on return. Raises NotFound, StaleVersion (another
        version than `version`), Conflict (group_exists), InvalidRequest (unknown member) or Forbidden."""
        self._check_members(client.organization_id, change.added)
        for number, (added, removed) in enumerate(change.steps()):
            first = number == 0
            work = partial(self._step, client, group_id, change if first else None, version if first else "")
            commit(self._database, self._control, partial(work, added, removed), confirm=False)
        if change.name is not None:
            self._apply_name(client, group_id)
        self._control.confirm()

    def delete(self, client: ProvisioningClient, group_id: str, version: str = "") -> None:
        """Delete a group; its members lose what its rules gave them. Raises NotFound, StaleVersion or Forbidden."""
        group = self.find(client.organization_id, group_id)
        self.update(client, group_id, GroupChange(removed=group.member_ids), version)

        def work(now: int) -> None:
            row = _row(client.organization_id, group_id)
            ScimGroupMember.delete().where(ScimGroupMember.group == group_id).execute()
            ScimGroup.delete().where(ScimGroup.id == group_id).execute()
            _audit("scim_group.delete", group_id, client, {"name": row.display_name}, now)

        commit(self._database, self._control, work)

    def _step(
        self,
        client: ProvisioningClient,
        group_id: str,
        change: GroupChange | None,
        version: str,
        added: Sequence[str],
        removed: Sequence[str],
        now: int,
    ) -> None:
        """One transaction of a change. The first one has the `change` with the name."""
        row = _row(client.organization_id, group_id)
        if version and _version(row) != version:
            raise StaleVersion
        values: dict[str, Any] = {}
        if change is not None:
            values = _changed_values(client, row, change)
        joined, left = _moves(group_id, added, removed)
        confirmed = _confirmed(client, group_id, added)
        if not (values or joined or left or confirmed):
            return
        name = values.get("display_name", row.display_name)
        if joined and group_rules.makes_owners(client.organization_id, name, group_rules.SCIM_SOURCE):
            client.authority.check("owner")
        ScimGroup.update(version=ScimGroup.version + 1, updated_at=now, **values).where(
            ScimGroup.id == group_id
        ).execute()
        ScimGroupMember.delete().where(ScimGroupMember.group == group_id, ScimGroupMember.member.in_(left)).execute()
        if joined:
            if change is not None:
                _check_room(client.organization_id)
            link = {"group": group_id, "by_owner": client.by_owner}
            ScimGroupMember.insert_many([{**link, "member": member_id} for member_id in joined]).execute()
        if confirmed:
            links = (ScimGroupMember.group == group_id) & ScimGroupMember.member.in_(confirmed)
            ScimGroupMember.update(by_owner=True).where(links).execute()
        detail = {"name": name, "added": joined, "removed": left}
        _audit("scim_group.update", group_id, client, detail, now)
        self._apply(client, [*joined, *left, *confirmed], now)

    def _apply_name(self, client: ProvisioningClient, group_id: str) -> None:
        """Apply the rules for a new name to all members."""
        member_ids = self.members_of(group_id)
        for start in range(0, len(member_ids), STEP_MEMBERS):
            step = partial(self._apply, client, member_ids[start : start + STEP_MEMBERS])
            commit(self._database, self._control, step, confirm=False)

    def _apply(self, client: ProvisioningClient, member_ids: Sequence[str], now: int) -> None:
        """Apply the group rules to members. Raises Forbidden for a change of owners that the token may not make."""
        groups = _names_of(member_ids)
        for member_id in member_ids:
            before = Member.get_by_id(member_id).role
            self._effect(client.organization_id, member_id, groups[member_id], client.actor, now)
            after = Member.get_by_id(member_id).role
            if after != before:
                client.authority.check(before, after)

    def _check_members(self, organization_id: str, member_ids: Sequence[str]) -> None:
        """Raise InvalidRequest for an id of no user in the organization."""
        for start in range(0, len(member_ids), BATCH_SIZE):
            piece = set(member_ids[start : start + BATCH_SIZE])
            query = user_rows.select_users(organization_id).where(Member.id.in_(list(piece)))
            rows: list[Any] = self._database.read(partial(list, query))
            unknown = piece - {row["id"] for row in rows}
            if unknown:
                text = f"There is no user {min(unknown)[:80]} in this organization."
                raise InvalidRequest(text, param="members")


def _changed_values(client: ProvisioningClient, row: ScimGroup, change: GroupChange) -> dict[str, Any]:
    values: dict[str, Any] = {}
    if change.name is not None and change.name != row.display_name:
        _check_name_free(row.organization, change.name, row.id)
        values |= {"display_name": change.name, "name_key": change.name.lower(), "by_owner": client.by_owner}
    elif change.name is not None and client.by_owner and not row.by_owner:
        values["by_owner"] = True
    if change.external_id is not None and change.external_id != row.external_id:
        values["external_id"] = change.external_id
    return values


def _moves(group_id: str, added: Sequence[str], removed: Sequence[str]) -> tuple[list[str], list[str]]:
    """Return the ids that join the group and those that leave it; the others are as they are to be."""
    concerned = [*added, *removed]
    links = ScimGroupMember.select().where(ScimGroupMember.group == group_id, ScimGroupMember.member.in_(concerned))
    current = {link.member for link in links}
    joined = [member_id for member_id in dict.fromkeys(added) if member_id not in current]
    left = [member_id for member_id in dict.fromkeys(removed) if member_id in current]
    return joined, left


def _confirmed(client: ProvisioningClient, group_id: str, added: Sequence[str]) -> list[str]:
    """Return the members that a token of an admin stated before, and the token of an owner states now."""
    if not client.by_owner:
        return []
    links = ScimGroupMember.select().where(ScimGroupMember.group == group_id, ScimGroupMember.member.in_(list(added)))
    return [link.member for link in links.where(ScimGroupMember.by_owner == False)]  # noqa: E712


def _names_of(member_ids: Sequence[str]) -> dict[str, dict[str, bool]]:
    """Return the names of the groups of each member. An owner stands behind one if the tokens that named the group and
    that stated the member are an owner's."""
    links: Any = (
        ScimGroupMember.select(
            ScimGroupMember.member, ScimGroupMember.by_owner, ScimGroup.display_name, ScimGroup.by_owner
        )
        .join(ScimGroup)
        .where(ScimGroupMember.member.in_(list(member_ids)))
        .order_by(ScimGroup.id)
        .tuples()
    )
    names: dict[str, dict[str, bool]] = {member_id: {} for member_id in member_ids}
    for member_id, stated_by_owner, name, named_by_owner in links:
        names[member_id][name] = bool(stated_by_owner and named_by_owner)
    return names


def _check_room(organization_id: str) -> None:
    """Raise InvalidRequest if the groups of an organization have too many members together."""
    links = ScimGroupMember.select().join(ScimGroup).where(ScimGroup.organization == organization_id)
    if links.limit(MAX_LINKS).count() >= MAX_LINKS:
        text = f"The groups of an organization have at most {MAX_LINKS:,} members together."
        raise InvalidRequest(text, param="members", code="too_many")


def _row(organization_id: str, group_id: str) -> ScimGroup:
    row: ScimGroup | None = ScimGroup.get_or_none(ScimGroup.id == group_id, ScimGroup.organization == organization_id)
    if row is None:
        raise NotFound(f"There is no group {group_id[:80]} in this organization.")
    return row


def _narrow(organization_id: str, lookup: GroupLookup) -> Any:
    query = ScimGroup.select().where(ScimGroup.organization == organization_id).order_by(ScimGroup.id)
    if lookup.id:
        query = query.where(ScimGroup.id == lookup.id)
    if lookup.name:
        query = query.where(ScimGroup.name_key == lookup.name.lower())
    if lookup.member_id:
        linked = ScimGroupMember.select(ScimGroupMember.group).where(ScimGroupMember.member == lookup.member_id)
        query = query.where(ScimGroup.id.in_(linked))
    return query


def _load(query: Any, members: bool) -> list[ProvisionedGroup]:
    rows = list(query)
    if not members:
        return [_info(row, ()) for row in rows]
    loaded = _members_of([row.id for row in rows])
    return [_info(row, loaded[row.id]) for row in rows]


def _members_of(group_ids: Sequence[str]) -> dict[str, tuple[str, ...]]:
    links: Any = (
        ScimGroupMember.select(ScimGroupMember.group, ScimGroupMember.member)
        .where(ScimGroupMember.group.in_(list(group_ids)))
        .order_by(ScimGroupMember.member)
        .tuples()
    )
    lists: dict[str, list[str]] = {group_id: [] for group_id in group_ids}
    for group_id, member_id in links:
        lists[group_id].append(member_id)
    return {group_id: tuple(member_ids) for group_id, member_ids in lists.items()}


def _check_name_free(organization_id: str, name: str, group_id: str) -> None:
    same = ScimGroup.select().where(
        ScimGroup.organization == organization_id, ScimGroup.name_key == name.lower(), ScimGroup.id != group_id
    )
    if same.exists():
        raise Conflict(f"There is already a group {name}.", code="group_exists")


def _version(row: ScimGroup) -> str:
    return f"{row.id[-8:]}-{row.version}"


def _info(row: ScimGroup, member_ids: tuple[str, ...]) -> ProvisionedGroup:
    return ProvisionedGroup(
        row.id,
        row.organization,
        row.display_name,
        row.external_id,
        _version(row),
        row.created_at,
        row.updated_at,
        member_ids,
    )


def _audit(action: str, subject: str, client: ProvisioningClient, detail: Mapping[str, object], now: int) -> None:
    audit.append(action, subject, actor=client.actor, at_us=now, organization_id=client.organization_id, detail=detail)
