"""Managed settings: the settings that an organization and its teams give to coding agents (Claude Code).

An agent fetches `{uuid, checksum, settings}` and sends the checksum of the settings that it has. It computes that
checksum itself (https://code.claude.com/docs/en/claude-apps-gateway), so `checksum_of` must give the same text: the
SHA-256 of the JSON with sorted members as JavaScript writes it.
"""

import hashlib
import uuid
from collections.abc import Mapping
from functools import partial
from typing import Any

import orjson
import peewee
from msgspec import Struct

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.models import Team, TeamMember
from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.store.database import Base, Database, TimeField

# The table of the settings that coding agents fetch.


class ManagedSettings(Base):
    """Settings as JSON text; `scope_id` is the id of the organization or of a team of it."""

    scope_id = peewee.CharField(40, primary_key=True)
    organization_id = peewee.CharField(40, column_name="organization")
    settings = peewee.TextField()
    updated_at = TimeField()

    class Meta:
        table_name = "managed_settings"


MAX_BYTES = 65_536  # bytes of the settings of one place as JSON
MAX_DEPTH = 32
MAX_PARTS = 5_000
MAX_INTEGER = (1 << 53) - 1  # JavaScript has no larger exact integers
MAX_INDEX = (1 << 32) - 2
NAMES = uuid.UUID("b8f3f9d6-2c61-4d0e-9f2e-0f6a7a0c9d11")


class StoredSettings(Struct, frozen=True):
    """The settings of an organization or a team. `updated_at_us` is None if there are none."""

    id: str
    settings: Mapping[str, Any] | None = None
    updated_at_us: int | None = None


class AgentSettings(Struct, frozen=True):
    """The settings of an agent. `uuid` names the place of the settings, `checksum` their content."""

    uuid: str
    checksum: str
    settings: Mapping[str, Any]


def find_settings(database: Database, scope_id: str) -> StoredSettings:
    """Return the settings of an organization or a team."""
    row = database.read(partial(ManagedSettings.get_or_none, ManagedSettings.scope_id == scope_id))
    if row is None:
        return StoredSettings(scope_id)
    return StoredSettings(scope_id, orjson.loads(row.settings), row.updated_at)


def set_settings(
    database: Database, control: Control, organization_id: str, scope_id: str, settings: Any, *, actor: str
) -> StoredSettings:
    """Replace the settings of an organization or, with its id as `scope_id`, of a team. Raises InvalidRequest."""
    text = read_settings(settings)

    def work(now: int) -> StoredSettings:
        values = {"organization_id": organization_id, "settings": text, "updated_at": now}
        if not ManagedSettings.update(**values).where(ManagedSettings.scope_id == scope_id).execute():
            ManagedSettings.insert(scope_id=scope_id, **values).execute()
        _audit("update", organization_id, scope_id, {"bytes": len(text.encode())}, actor, now)
        return StoredSettings(scope_id, orjson.loads(text), now)

    return commit(database, control, work, confirm=False)


def remove_settings(database: Database, control: Control, organization_id: str, scope_id: str, *, actor: str) -> None:
    """Remove the settings of an organization or a team, if there are any."""

    def work(now: int) -> None:
        if ManagedSettings.delete().where(ManagedSettings.scope_id == scope_id).execute():
            _audit("delete", organization_id, scope_id, {}, actor, now)

    commit(database, control, work, confirm=False)


def settings_of(database: Database, organization_id: str, team_id: str, member_id: str) -> AgentSettings | None:
    """Return the settings of a member who chose a team ("": none), or None if neither has any. The settings of a team
    that the member has left do not apply."""

    def read() -> list[str]:
        scopes = [organization_id]
        if team_id:
            link = (TeamMember.team == team_id) & (TeamMember.member == member_id)
            if Team.select().join(TeamMember).where(Team.organization == organization_id, link).exists():
                scopes.append(team_id)
        rows = {
            row.scope_id: row.settings for row in ManagedSettings.select().where(ManagedSettings.scope_id << scopes)
        }
        return [rows[scope] for scope in scopes if scope in rows]

    texts = database.read(read)
    if not texts:
        return None
    settings: dict[str, Any] = {}
    for text in texts:
        settings = merge(settings, orjson.loads(text))
    name = uuid.uuid5(NAMES, f"{organization_id} {team_id}")
    return AgentSettings(str(name), checksum_of(settings), settings)


def merge(base: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    """Return `base` with the settings of a team: objects are merged, lists joined, any other value is the team's."""
    merged = dict(base)
    for name, value in more.items():
        before = merged.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            merged[name] = merge(before, value)
        elif isinstance(before, list) and isinstance(value, list):
            merged[name] = [*before, *(item for item in value if item not in before)]
        else:
            merged[name] = value
    return merged


def read_settings(settings: Any) -> str:
    """Return settings as JSON text. Raises InvalidRequest unless they are an object that every agent reads alike."""
    if not isinstance(settings, dict):
        raise InvalidRequest("The settings must be a JSON object.", param="settings")
    plain = _Reader().read(settings, 0)
    text = orjson.dumps(plain)
    if len(text) > MAX_BYTES:
        raise InvalidRequest(f"The settings must have at most {MAX_BYTES:,} bytes.", param="settings")
    return text.decode()


class _Reader:
    """Copies JSON values and refuses those that JavaScript would change."""

    def __init__(self) -> None:
        self._parts = 0

    def read(self, value: Any, depth: int) -> Any:
        self._parts += 1
        if depth > MAX_DEPTH or self._parts > MAX_PARTS:
            raise InvalidRequest(
                f"The settings may have at most {MAX_PARTS:,} values and {MAX_DEPTH} levels.", param="settings"
            )
        if isinstance(value, dict):
            return {_read_text(name): self.read(one, depth + 1) for name, one in value.items()}
        if isinstance(value, list):
            return [self.read(item, depth + 1) for item in value]
        if isinstance(value, str):
            return _read_text(value)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, float):
            raise InvalidRequest("The settings may contain whole numbers only.", param="settings")
        if isinstance(value, int) and abs(value) > MAX_INTEGER:
            raise InvalidRequest("The settings contain a number that is too large.", param="settings")
        return value


def _read_text(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("The settings contain invalid Unicode.", param="settings") from None
    return text


def checksum_of(settings: Mapping[str, Any]) -> str:
    """Return the checksum of settings as agents compute it."""
    return f"sha256:{hashlib.sha256(orjson.dumps(_sorted(settings))).hexdigest()}"


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(value[name]) for name in sorted(value, key=_member_order)}
    if isinstance(value, list):
        return [_sorted(item) for item in value]
    return value


def _member_order(name: str) -> tuple[bool, int, bytes]:
    """Return the position of a member as JavaScript enumerates it: array indexes first, then by UTF-16 code units."""
    if name.isascii() and name.isdigit() and (name == "0" or name[0] != "0") and len(name) <= 10:
        index = int(name)
        if index <= MAX_INDEX:
            return False, index, b""
    return True, 0, name.encode("utf-16-be")


def _audit(what: str, organization_id: str, scope_id: str, detail: dict[str, Any], actor: str, now: int) -> None:
    audit.append(
        f"managed_settings.{what}", scope_id, actor=actor, at_us=now, organization_id=organization_id, detail=detail
    )
