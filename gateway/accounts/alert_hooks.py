"""Addresses that are told of alerts: an organization's own, and those of the first one, whose owners run all."""

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import urlsplit

from gateway import ids, webhooks
from gateway.accounts import audit, organizations
from gateway.accounts.changes import commit
from gateway.accounts.vault import Vault
from gateway.control import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database
from gateway.transport.addresses import check_spelling, read_receiver

MOST_HOOKS = 20
# What may be chosen; an operator's hook without a choice gets all, an organization's all that concerns it.
EVENTS = (
    "budget.nearly_spent",
    "budget.spent",
    "credits.low",
    "credits.spent",
    "credential.refused",
    "provider.resting",
    "model.retiring",
    "books.differ",
    "database.away",
    "redis.away",
    "leases.swept",
    "recovery.done",
)
COLUMNS = "id, organization, url, secret, events, created_at"


@dataclass(frozen=True, slots=True)
class AlertHook:
    """`events` () = all. The secret is only there for who delivers."""

    id: str
    organization_id: str
    url: str
    events: tuple[str, ...]
    created_at_us: int
    secret: str = field(default="", repr=False)


class AlertHooks:
    """Changes are audited. `allow_private`: addresses of private networks may be added."""

    def __init__(self, database: Database, control: Control, vault: Vault, allow_private: bool = False) -> None:
        self._database, self._control, self._vault = database, control, vault
        self._allow_private = allow_private

    def add(self, organization_id: str, url: str, events: Sequence[str] = (), *, actor: str) -> AlertHook:
        """A new one, with its secret. NotFound, InvalidRequest (address, events, too many)."""
        url, chosen = read_receiver(url, "url"), _read_events(events)
        if not self._allow_private:
            check_spelling(url, "url")
        ident, secret = ids.new("hook"), webhooks.make_secret()
        sealed = self._vault.seal(secret)

        def work(now: int) -> AlertHook:
            organizations.load_organization(organization_id)
            if len(self._select(organization_id)) >= MOST_HOOKS:
                raise InvalidRequest(f"An organization has at most {MOST_HOOKS} addresses for alerts.", param="url")
            values = (ident, organization_id, url, sealed, json.dumps(chosen), now)
            self._database.execute(f"INSERT INTO alert_hook ({COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)", values)
            _audit("alert_hook.create", ident, organization_id, {"host": urlsplit(url).hostname}, actor, now)
            return AlertHook(ident, organization_id, url, chosen, now, secret)

        return commit(self._database, self._control, work, confirm=False)

    def remove(self, organization_id: str, hook_id: str, *, actor: str) -> None:
        """NotFound."""

        def work(now: int) -> None:
            sql = "DELETE FROM alert_hook WHERE id = ? AND organization = ?"
            if not self._database.execute(sql, (hook_id, organization_id)).rowcount:
                raise NotFound(f"There is no address for alerts {hook_id}.")
            _audit("alert_hook.delete", hook_id, organization_id, {}, actor, now)

        commit(self._database, self._control, work, confirm=False)

    def list_hooks(self, organization_id: str) -> list[AlertHook]:
        """An organization's own, without secrets."""
        return [_info(row) for row in self._database.read(lambda: self._select(organization_id))]

    def find(self, organization_id: str, hook_id: str) -> AlertHook:
        """One with its secret. NotFound."""
        rows = self._database.read(lambda: self._select(organization_id))
        found = next((row for row in rows if row[0] == hook_id), None)
        if found is None:
            raise NotFound(f"There is no address for alerts {hook_id}.")
        return _info(found, self._vault.open(found[3]))

    def concerned(self, event: str, organization_id: str) -> list[AlertHook]:
        """Who is told of an event that concerns an organization ("": none), with their secrets."""

        def read() -> tuple[str, list[tuple]]:
            first = organizations.first_id()
            sql = f"SELECT {COLUMNS} FROM alert_hook WHERE organization IN (?, ?) ORDER BY id"
            return first, self._database.execute(sql, (first, organization_id)).fetchall()

        found = [_info(row, self._vault.open(row[3])) for row in self._database.read(read)[1]]
        return [hook for hook in found if not hook.events or event in hook.events]

    def _select(self, organization_id: str) -> list[tuple]:
        sql = f"SELECT {COLUMNS} FROM alert_hook WHERE organization = ? ORDER BY id"
        return list(self._database.execute(sql, (organization_id,)).fetchall())


def _info(row: tuple, secret: str = "") -> AlertHook:
    ident, organization_id, url, _, events, created_at = row
    return AlertHook(ident, organization_id, url, tuple(json.loads(events)), created_at, secret)


def _read_events(events: Sequence[str]) -> tuple[str, ...]:
    unknown = [one for one in events if one not in EVENTS]
    if unknown:
        raise InvalidRequest(f"There is no alert {unknown[0][:80]!r}; there are: {', '.join(EVENTS)}.", param="events")
    return tuple(dict.fromkeys(events))


def _audit(action: str, subject: str, organization_id: str, detail: dict[str, Any], actor: str, now: int) -> None:
    audit.append(action, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
