"""The usage that a report may contain, derived from the caller."""

from typing import NamedTuple

from msgspec import Struct

from gateway.accounts.keys import KeyInfo, list_keys
from gateway.callers.authentication import Caller
from gateway.callers.permissions import reach_of
from gateway.errors import Forbidden, NotFound
from gateway.metering.activity import Owners
from gateway.reports.report_answers import ShownScope
from gateway.store.database import Database


class ReportScope(Struct, frozen=True):
    """A member of an organization who requests a report on a project. Owners and admins see the whole project,
    developers the usage of the keys that they created there."""

    organization_id: str
    project_id: str
    user_id: str
    member_id: str
    role: str
    key_id: str

    @property
    def whole(self) -> bool:
        """Whether the scope is the whole project."""
        return reach_of(self.role, "usage:read") == "all"


def scope_of_caller(caller: Caller) -> ReportScope:
    """Return the scope of an API key. Forbidden for customer keys: they may call models, but not read the account."""
    if caller.key_kind != "user":
        raise Forbidden("This key can only call models. Use a project API key to read the account.")
    return ReportScope(
        caller.organization_id, caller.project_id, caller.user_id, caller.member_id, caller.role, caller.key_id
    )


def show_scope(scope: ReportScope) -> ShownScope:
    if scope.whole:
        return {"type": "project", "projectId": scope.project_id, "userId": None}
    return {"type": "member", "projectId": scope.project_id, "userId": scope.user_id}


class AccountNames(NamedTuple):
    """The names of a scope's account. `expires_at_us` is the expiry of its key, None: never."""

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
    """Return the names of a scope, in one query. NotFound for a deleted key."""
    given = (scope.user_id, scope.key_id, scope.project_id, scope.organization_id)
    row = database.read(lambda: database.execute(NAMES, given).fetchone())
    if row is None:
        raise NotFound("There is no such API key.")
    return AccountNames(*row)


def keys_of(database: Database, scope: ReportScope) -> dict[str, KeyInfo]:
    """Return the keys of a scope by id, including inactive and deleted ones, because their history counts."""
    member = "" if scope.whole else scope.member_id
    keys = list_keys(database, project_ids=[scope.project_id], member_id=member, deleted=True)
    return {key.id: key for key in keys}


def owners_of(database: Database, scope: ReportScope) -> Owners:
    """Return the projects and keys with the usage of a scope."""
    if scope.whole:
        return Owners(project_ids=(scope.project_id,))
    return Owners(key_ids=tuple(keys_of(database, scope)))
