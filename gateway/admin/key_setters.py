"""Setters of the status and the expiry of API keys: only the setter or a higher role may activate a key again or extend
its expiry; everyone who may change the key may deactivate it or shorten its expiry.

What the owner of a key sets binds only the owner: others change it as far as they may change the key. What the operator
gives a new key binds nobody.
"""

from typing import Any

import orjson

from gateway.accounts.changes import OPERATOR
from gateway.accounts.keys import Change, KeyInfo
from gateway.admin.funding import LimitSetter, Setter, read_setters, setter_of, write_setters
from gateway.callers.models import Audit
from gateway.callers.permissions import LIMIT_RANKS
from gateway.errors import Forbidden
from gateway.store.database import Database

STATUS = "status"
EXPIRY = "expiry"
INACTIVE = "inactive"
NOT_ACTIVE = (
    "This key was deactivated by another person. Only that person or a higher role can activate it; you can create "
    "another key."
)
NOT_LONGER = (
    "The expiry of this key was set by another person. You can shorten it, but only that person or a higher role can "
    "extend or remove it."
)
# Changes of a status or an expiry in the audit trail, and how many of the last ones are read.
CREATED = "api_key.create"
ACTIONS = (CREATED, "api_key.update_status", "api_key.update")
TRAIL_ROWS = 100


def hold_key(database: Database, key: KeyInfo, change: Change, actor: str) -> None:
    """Check a change of a key and store its setters, within the transaction of the change.

    Raises Forbidden (limit_not_yours) if the change activates a key that another person of the same or a higher rank
    deactivated, or extends an expiry that such a person set. Owners may change what other owners set.
    """
    if not change.action and change.expiry is None:
        return
    held = read_setters(database, key.id) or {}
    setter = setter_of(actor, key.organization_id)
    if change.action:
        _hold_status(held, key, change.action, setter)
    if change.expiry is not None:
        _hold_expiry(held, key, change.expiry.at_us, setter)
    write_setters(database, key.id, held)


def hold_new_expiry(database: Database, key: KeyInfo, actor: str) -> None:
    """Store who set the expiry of a new key for another person, within the transaction that creates it."""
    if key.expires_at_us is not None:
        held = read_setters(database, key.id) or {}
        held[EXPIRY] = LimitSetter(*setter_of(actor, key.organization_id), key.expires_at_us, "")
        write_setters(database, key.id, held)


def _hold_status(held: dict[str, LimitSetter | None], key: KeyInfo, action: str, setter: Setter) -> None:
    known = held.get(STATUS) or (_from_trail(key, STATUS) if key.state == INACTIVE else None)
    allowed = _may_relax(known, setter)
    if action == "deactivate":
        if key.state != INACTIVE or allowed:
            held[STATUS] = _setting(key, setter, 0, INACTIVE)
    elif key.state == INACTIVE and not allowed:
        raise Forbidden(NOT_ACTIVE, code="limit_not_yours")
    else:
        held[STATUS] = None


def _hold_expiry(held: dict[str, LimitSetter | None], key: KeyInfo, at_us: int | None, setter: Setter) -> None:
    if at_us == key.expires_at_us:
        return
    known = held.get(EXPIRY) or (_from_trail(key, EXPIRY) if key.expires_at_us is not None else None)
    if _may_relax(known, setter):
        held[EXPIRY] = None if at_us is None else _setting(key, setter, at_us, "")
    elif known is not None and (at_us is None or at_us > known.nusd):
        raise Forbidden(NOT_LONGER, code="limit_not_yours")


def _setting(key: KeyInfo, setter: Setter, at_us: int, status: str) -> LimitSetter | None:
    if setter.actor == key.creator_id:
        return None
    return LimitSetter(*setter, at_us, status)


def _may_relax(known: LimitSetter | None, setter: Setter) -> bool:
    if known is None or known.actor == setter.actor or setter.rank > known.rank:
        return True
    return setter.rank == known.rank >= LIMIT_RANKS["owner"]  # owners of the first organization rank higher


def _from_trail(key: KeyInfo, part: str) -> LimitSetter | None:
    """Return the setter of a value that is older than its stored setters."""
    places = (Audit.organization == key.organization_id) & (Audit.subject == key.id) & Audit.action.in_(ACTIONS)
    rows: Any = Audit.select().where(places).order_by(Audit.seq.desc()).limit(TRAIL_ROWS)
    for row in rows:
        detail = orjson.loads(row.detail) if row.detail else {}
        if part == STATUS and detail.get("to") == INACTIVE and detail.get("from") != INACTIVE:
            return _setting(key, setter_of(row.actor, key.organization_id), 0, INACTIVE)
        is_created = row.action == CREATED
        if part == EXPIRY and is_created and row.actor == OPERATOR:
            return None
        if part == EXPIRY and (is_created or "expires_at" in detail):
            return _setting(key, setter_of(row.actor, key.organization_id), key.expires_at_us or 0, "")
    return None
