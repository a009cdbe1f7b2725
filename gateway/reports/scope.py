"""Whose usage a report may tell, from who asks."""

from dataclasses import dataclass
from typing import Any, NamedTuple

from gateway.accounts.authentication import Caller
from gateway.accounts.keys import KeyInfo, list_keys
from gateway.errors import Forbidden, NotFound
from gateway.metering.activity import Owners
from gateway.store.database import Database

MANAGERS = ("owner", "admin")


@dataclass(frozen=True, slots=True)
class ReportScope:
    """A member of an organization who asks about a project with a key of theirs: owners and admins see all of it,
    developers what the keys did that they made there."""

    organization_id: str
    project_id: str
    user_id: str
    member_id: str
    role: str
    key_id: str

    @property
    def whole(self) -> bool:
        """Whether all of the project is told."""
        return self.role in MANAGERS


def scope_of_caller(caller: Caller) -> ReportScope:
    """The scope of an API key. Forbidden for customer keys: they may call models, not read the account."""
    if caller.key_kind != "user":
        raise Forbidden("This key may call models only; use a project API key to read the account.")
    return ReportScope(
        caller.organization_id, caller.project_id, caller.user_id, caller.member_id, caller.role, caller.key_id
    )


def show_scope(scope: ReportScope) -> dict[str, Any]:
    if scope.whole:
        return {"type": "project", "projectId": scope.project_id, "userId": None}
    return {"type": "member", "projectId": scope.project_id, "userId": scope.user_id}


class AccountNames(NamedTuple):
    """What those of a scope are called; `expires_at_us` is its key's, None: never."""

    user: str
    organization: str
    project: str
    key: str
    expires_at_us: int | None


NAMES = """
SELECT u.name, o.name, p.name, k.description, k.expires_at
FROM api_key k JOIN project p ON p.id = k.project_id JOIN organization o ON o.id = p.organization_id
JOIN "user" u ON u.id = ?
WHERE k.id = ? AND p.id = ? AND o.id = ?
"""


def names_of(database: Database, scope: ReportScope) -> AccountNames:
    """The names of a scope, in one look. NotFound for a key that is gone."""
    given = (scope.user_id, scope.key_id, scope.project_id, scope.organization_id)
    found = database.read(lambda: database.execute(NAMES, given).fetchone())
    if found is None:
        raise NotFound("There is no such API key.")
    return AccountNames(*found)


def keys_of(database: Database, scope: ReportScope) -> dict[str, KeyInfo]:
    """The keys that the scope tells apart, by id; inactive and deleted ones too: their history counts."""
    member = "" if scope.whole else scope.member_id
    found = list_keys(database, project_ids=[scope.project_id], member_id=member, deleted=True)
    return {key.id: key for key in found}


def owners_of(database: Database, scope: ReportScope) -> Owners:
    """Whose sums make up the scope."""
    if scope.whole:
        return Owners(project_ids=(scope.project_id,))
    return Owners(key_ids=tuple(keys_of(database, scope)))
