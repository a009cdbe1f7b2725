"""API keys: their states and moves, making and rolling.

The table follows the service document ("States and transitions") with "revoked" as the state without return.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial, reduce
from operator import or_
from typing import Any, Literal

import peewee
from msgspec import Struct

from gateway import ids
from gateway.accounts import audit, changes
from gateway.accounts.changes import commit
from gateway.accounts.key_caps import NO_CAPS, KeyCaps, check_quota
from gateway.callers import tokens as tokens_module
from gateway.callers.models import ApiKey, Member, Organization, Project, User, is_suspended
from gateway.control.version import Control
from gateway.errors import Conflict, InvalidRequest, NotFound
from gateway.ids import mask
from gateway.limits.owned_rows import forget_owner
from gateway.store.database import WHOLE, Database, ListSlice

Action = Literal["", "activate", "deactivate"]
State = Literal["", "active", "inactive", "expired", "revoked", "deleted"]

# "" is a key before it was made. "expired" is never stored: an active key is expired from `expires_at` on.
TRANSITIONS: dict[tuple[str, str], State] = {
    ("", "create"): "active",
    ("active", "expire"): "expired",
    ("active", "activate"): "active",
    ("inactive", "activate"): "active",
    ("expired", "activate"): "active",  # with a new expiry only
    ("active", "deactivate"): "inactive",
    ("inactive", "deactivate"): "inactive",
    ("expired", "deactivate"): "inactive",
    ("active", "update"): "active",
    ("inactive", "update"): "inactive",
    ("expired", "update"): "expired",
    ("active", "roll"): "active",
    ("inactive", "roll"): "inactive",
    ("expired", "roll"): "expired",
    ("active", "revoke"): "revoked",
    ("inactive", "revoke"): "revoked",
    ("expired", "revoke"): "revoked",
    ("revoked", "revoke"): "revoked",
    ("active", "delete"): "deleted",
    ("inactive", "delete"): "deleted",
    ("expired", "delete"): "deleted",
    ("revoked", "delete"): "deleted",
}

AUDITED = {
    "activate": "api_key.update_status",
    "deactivate": "api_key.update_status",
    "update": "api_key.update",
    "roll": "api_key.roll",
    "revoke": "api_key.revoke",
    "delete": "api_key.delete",
}

# Access tokens of the key end with these.
ENDING = frozenset(("deactivate", "roll", "revoke", "delete"))

MAX_DESCRIPTION_LENGTH = 255


class KeyInfo(Struct, frozen=True):
    """A key as it may be shown. `state` is the effective one; times in µs, `expires_at_us` None = never. Whatever its
    state, it is refused while the member who owns it is inactive or suspended (`owner_active`)."""

    id: str
    organization_id: str
    project_id: str
    member_id: str
    creator_id: str
    creator_email: str
    creator_name: str
    kind: tokens_module.Kind
    description: str
    mask: str
    state: State
    owner_role: str
    owner_active: bool
    expires_at_us: int | None
    created_at_us: int
    updated_at_us: int


class NewKey(Struct, frozen=True):
    """A key and its token, which exists nowhere else and is not shown again."""

    info: KeyInfo
    token: str


class Draft(Struct, frozen=True):
    """The values of a new key. `member_id` owns it and must belong to the project's organization."""

    project_id: str
    member_id: str
    description: str
    kind: tokens_module.Kind = "user"
    expires_at_us: int | None = None


class Expiry(Struct, frozen=True):
    """A new expiry; None = never."""

    at_us: int | None


class Change(Struct, frozen=True):
    """An update of a key. None leaves a value unchanged; `action` "" leaves the state unchanged."""

    action: Action = ""
    description: str | None = None
    expiry: Expiry | None = None


def move(state: str, action: str) -> State:
    """The state after `action`. NotFound for a deleted key, Conflict for a move that the table does not have."""
    if state == "deleted":
        raise NotFound("The API key was deleted.")
    if (state, action) not in TRANSITIONS:
        raise Conflict(f"A key that is {state} does not take: {action}.", code="key_state_conflict")
    return TRANSITIONS[state, action]


def create(
    database: Database,
    control: Control,
    hash_keys: Sequence[bytes],
    draft: Draft,
    *,
    actor: str,
    caps: KeyCaps = NO_CAPS,
) -> NewKey:
    """Make a key; `caps` are the installation's. InvalidRequest (description, expiry in the past, too many active
    keys), NotFound (project, member)."""
    description = read_description(draft.description)
    key_id = ids.new("key")
    token = tokens_module.make(draft.kind)
    return commit(
        database,
        control,
        lambda now: insert(hash_keys, draft, key_id, token, description=description, actor=actor, now=now, caps=caps),
        confirm=False,
    )


def insert(
    hash_keys: Sequence[bytes],
    draft: Draft,
    key_id: str,
    token: str,
    *,
    description: str,
    actor: str,
    now: int,
    caps: KeyCaps = NO_CAPS,
) -> NewKey:
    """The part of `create` that runs within a transaction; changes of several packages call it in theirs."""
    _check_expiry(draft.expires_at_us, now)
    organization_id = _check_owner(draft)
    check_quota(organization_id, draft.member_id, caps, now)
    keys = ApiKey.select().join(Project).where(Project.organization == organization_id, ApiKey.status != "deleted")
    changes.check_quota(keys, changes.MAX_KEYS, "API keys, inactive and expired ones among them")
    ApiKey.insert(
        id=key_id,
        project=draft.project_id,
        member=draft.member_id,
        kind=draft.kind,
        description=description,
        token_hash=tokens_module.hash_token(token, hash_keys[0]),
        mask=mask(token),
        status=TRANSITIONS["", "create"],
        expires_at=draft.expires_at_us,
        created_at=now,
        updated_at=now,
    ).execute()
    detail: dict[str, object] = {"project": draft.project_id, "kind": draft.kind}
    if draft.expires_at_us is not None:
        detail["expires_at"] = draft.expires_at_us
    audit.append("api_key.create", key_id, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
    return NewKey(_load(key_id, now), token)


def find(database: Database, key_id: str, *, deleted: bool = False) -> KeyInfo:
    """Return a key in any state; a deleted key only if `deleted` is set. Raises NotFound."""
    now = database.now_us()
    info = database.read(partial(_load, key_id, now))
    if info.state == "deleted" and not deleted:
        raise NotFound(f"There is no API key {key_id}.")
    return info


def knows(database: Database, hash_keys: Sequence[bytes], token: str) -> bool:
    """Return whether a key with this token was ever made here, whatever its state."""
    hashes = tokens_module.candidates(token, hash_keys)
    return database.read(lambda: ApiKey.select().where(ApiKey.token_hash.in_(hashes)).exists())


class KeyOwners(Struct, frozen=True):
    """Projects with the keys of all their members, or ("" = all) of one member."""

    project_ids: Sequence[str]
    member_id: str = ""


def list_owned(database: Database, owners: Sequence[KeyOwners], part: ListSlice = WHOLE) -> list[KeyInfo]:
    """List the keys that any of `owners` has, oldest first, without deleted ones."""
    now = database.now_us()
    owned = [
        ApiKey.project.in_(list(owner.project_ids)) & ((ApiKey.member == owner.member_id) if owner.member_id else True)
        for owner in owners
        if owner.project_ids
    ]
    if not owned:
        return []

    def read() -> list[KeyInfo]:
        query = _select().where(reduce(or_, owned), ApiKey.status != "deleted").order_by(ApiKey.id)
        return _infos(part.narrow(query, ApiKey.id), now)

    return database.read(read)


def list_keys(
    database: Database,
    *,
    project_ids: Sequence[str] | None = None,
    key_ids: Collection[str] | None = None,
    organization_id: str = "",
    member_id: str = "",
    deleted: bool = False,
    newest: int = 0,
    words: Sequence[str] = (),
) -> list[KeyInfo]:
    """List the keys that match all given filters, oldest first; deleted keys only if `deleted` is set. `newest` lists
    at most that many keys, newest first. All `words` are in their description, project, id or mask."""
    now = database.now_us()

    def read() -> list[KeyInfo]:
        query = _select().order_by(ApiKey.id.desc()).limit(newest) if newest else _select().order_by(ApiKey.id)
        if project_ids is not None:
            query = query.where(ApiKey.project.in_(list(project_ids)))
        if key_ids is not None:
            query = query.where(ApiKey.id.in_(list(key_ids)))
        if organization_id:
            query = query.where(Project.organization == organization_id)
        if member_id:
            query = query.where(ApiKey.member == member_id)
        if not deleted:
            query = query.where(ApiKey.status != "deleted")
        for word in words:
            columns = (ApiKey.description, Project.name, ApiKey.id, ApiKey.mask)
            query = query.where(reduce(or_, (column.contains(word) for column in columns)))
        return _infos(query, now)

    return database.read(read)


def find_members(database: Database, key_ids: Collection[str]) -> dict[str, str]:
    """Return the members who own keys, deleted ones among them, by the ids of the keys."""
    query = ApiKey.select(ApiKey.id, ApiKey.member).where(ApiKey.id.in_(list(key_ids)))

    def read() -> dict[str, str]:
        rows: Any = query.tuples()
        return dict(rows)

    return database.read(read)


def _allow(key: KeyInfo) -> None:
    """Refuse no change."""


def update(
    database: Database,
    control: Control,
    key_id: str,
    change: Change,
    *,
    actor: str,
    caps: KeyCaps = NO_CAPS,
    check: Callable[[KeyInfo], object] = _allow,
) -> KeyInfo:
    """Change state, description or expiry; `caps` are the installation's. `check` raises within the transaction if
    `actor` may not change the key in this way. NotFound, Conflict (revoked), InvalidRequest (nothing to do, bad value,
    too many active keys)."""
    if change == Change():
        raise InvalidRequest("Give at least one of status, expiresAt and description.")
    values: dict[str, object] = {}
    if change.description is not None:
        values["description"] = read_description(change.description)
    if change.expiry is not None:
        values["expires_at"] = change.expiry.at_us

    def work(now: int) -> KeyInfo:
        before = _load(key_id, now)
        if change.expiry is not None:
            _check_expiry(change.expiry.at_us, now)
        if before.state == "expired" and change.action != "deactivate":
            _check_revival(change)
        if change.action == "activate":
            _check_expiry(change.expiry.at_us if change.expiry else before.expires_at_us, now)
            if before.state in ("inactive", "expired"):
                check_quota(before.organization_id, before.member_id, caps, now)
        move(before.state, change.action or "update")
        check(before)
        return _apply(before, change.action or "update", values, actor, now)

    return commit(database, control, work)


def roll(database: Database, control: Control, hash_keys: Sequence[bytes], key_id: str, *, actor: str) -> NewKey:
    """Give the key a new token; the old one is refused everywhere when this returns. NotFound, Conflict (revoked)."""
    fresh = {kind: tokens_module.make(kind) for kind in tokens_module.PREFIXES}

    def work(now: int) -> NewKey:
        before = _load(key_id, now)
        token = fresh[before.kind]
        values = {"token_hash": tokens_module.hash_token(token, hash_keys[0]), "mask": mask(token)}
        return NewKey(_apply(before, "roll", values, actor, now), token)

    return commit(database, control, work)


def revoke(database: Database, control: Control, key_id: str, *, actor: str) -> KeyInfo:
    """End the key for good; it is refused everywhere when this returns. NotFound."""
    return commit(database, control, lambda now: _apply(_load(key_id, now), "revoke", {}, actor, now))


def delete(
    database: Database, control: Control, key_id: str, *, actor: str, check: Callable[[], None] = lambda: None
) -> None:
    """Delete the key (its row stays for the history); refused everywhere when this returns. `check` raises within the
    transaction if `actor` may not end it. NotFound."""

    def work(now: int) -> None:
        before = _load(key_id, now)
        check()
        forget_owner(database, key_id)
        _apply(before, "delete", {}, actor, now)

    commit(database, control, work)


def read_description(text: str) -> str:
    """The description, trimmed. InvalidRequest unless 1 to 255 characters are left."""
    description = text.strip()
    if not 1 <= len(description) <= MAX_DESCRIPTION_LENGTH:
        raise InvalidRequest(f"description needs 1 to {MAX_DESCRIPTION_LENGTH} characters.", param="description")
    return description


def state_of(status: State, expires_at_us: int | None, now: int) -> State:
    """The effective state of a stored status."""
    expired = expires_at_us is not None and expires_at_us <= now
    if expired:
        return TRANSITIONS.get((status, "expire"), status)
    return status


def _apply(before: KeyInfo, action: str, values: Mapping[str, object], actor: str, now: int) -> KeyInfo:
    after = move(before.state, action)
    status = "active" if after == "expired" else after
    generation = ApiKey.generation + int(action in ENDING)
    ApiKey.update(status=status, updated_at=now, generation=generation, **values).where(
        ApiKey.id == before.id
    ).execute()
    detail: dict[str, object] = {"from": before.state, "to": after}
    if "expires_at" in values:
        detail["expires_at"] = values["expires_at"]
    audit.append(
        AUDITED[action], before.id, actor=actor, at_us=now, organization_id=before.organization_id, detail=detail
    )
    return _load(before.id, now)


def _check_revival(change: Change) -> None:
    if change.action == "activate" and change.expiry is None:
        raise InvalidRequest("The key has expired: activate it together with a new expiry.", param="expiresAt")
    if change.action == "" and change.expiry is not None:
        raise InvalidRequest("The key has expired: send status active with the new expiry.", param="status")


def _check_expiry(expires_at_us: int | None, now: int) -> None:
    if expires_at_us is not None and expires_at_us <= now:
        raise InvalidRequest("expiresAt must lie in the future.", param="expiresAt")


def _check_owner(draft: Draft) -> str:
    project = Project.get_or_none(Project.id == draft.project_id)
    if project is None:
        raise NotFound(f"There is no project {draft.project_id}.")
    if project.status != "active":
        raise Conflict(f"Project {draft.project_id} is archived.", code="project_archived")
    member = Member.get_or_none(Member.id == draft.member_id, Member.organization == project.organization_id)
    if member is None or member.status != "active":
        raise NotFound(f"There is no active member {draft.member_id} in the project's organization.")
    return project.organization_id


def _select() -> "peewee.ModelSelect[Any]":
    return (
        ApiKey.select(
            ApiKey.id,
            Project.organization,
            ApiKey.project,
            ApiKey.member,
            User.id,
            User.email,
            User.name,
            ApiKey.kind,
            ApiKey.description,
            ApiKey.mask,
            ApiKey.status,
            Member.role,
            Member.status,
            is_suspended(),
            ApiKey.expires_at,
            ApiKey.created_at,
            ApiKey.updated_at,
        )
        .join(Project)
        .join(Organization)
        .switch(ApiKey)
        .join(Member)
        .join(User)
        .tuples()
    )


def _infos(query: "peewee.ModelSelect[Any]", now: int) -> list[KeyInfo]:
    """Return the keys of a query of `_select`. An organization may have tens of thousands, so the rows are read without
    objects in between."""
    sql, params = query.sql()
    return [_info(row, now) for row in ApiKey._meta.database.execute_sql(sql, params).fetchall()]


def _load(key_id: str, now: int) -> KeyInfo:
    found = _infos(_select().where(ApiKey.id == key_id), now)
    if not found:
        raise NotFound(f"There is no API key {key_id}.")
    return found[0]


def _info(row: Any, now: int) -> KeyInfo:
    """Convert a row of `_select` to a key with its organization and the user who made it."""
    owned, (status, role, membership, suspended), times = row[:10], row[10:14], row[14:]
    is_active = membership == "active" and not suspended
    values: tuple[Any, ...] = (*owned, state_of(status, times[0], now), role, is_active, *times)
    return KeyInfo(*values)
