"""Rate limits, budgets of sessions, limits of organizations, rules and teams that a lower role may not relax or end.

A limit of a higher role stays in force whatever a lower role changes around it: the amount itself, the access rule of a
key, and the membership in a limited team. Everyone who may change an amount may lower it.
"""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import orjson

from gateway.accounts.managed_settings import ManagedSettings
from gateway.accounts.teams import TeamInfo
from gateway.admin.funding import AUDITED, LimitSetter, Setter, check_held, read_setters, setter_of, write_setters
from gateway.callers.models import AccessRule, Audit, TeamMember
from gateway.callers.permissions import LIMIT_RANKS
from gateway.errors import Forbidden
from gateway.limits.budgets import Budgets, Limits
from gateway.limits.limit_book import read_limits
from gateway.limits.limit_rules import ALERT, WARN, LimitAction, LimitRule, Subject
from gateway.limits.models import EXACT, TEAM, LimitRow
from gateway.store.database import Database

CODE = "limit_not_yours"
NOT_HIGHER = (
    "This limit was set by a person with a higher role. You can lower it, but only that role can raise or remove it."
)
NOT_YOUR_LIMIT = (
    "This limit was set by a person with a higher role. You can make it stricter, but only that role can raise it, "
    "delete it or change what it counts."
)
STILL_NAMED = (
    'The limit "{}", which a person with a higher role set, names this {}. Only that role can end it. Ask one of them '
    "to delete the limit first."
)
KEY_ADVICE = " You can deactivate the key instead."
NOT_YOUR_TAGS = "The tags of this key were set by a person with a higher role. Only that role can change them."
NOT_YOUR_RULE = "This rule was added by a person with a higher role. Only that role can disable or remove it."
STILL_RULED = (
    "Owners and admins set access rules or managed settings for this team, which would no longer apply to the member. "
    "Ask one of them."
)
STILL_LIMITED = (
    "Another person set spending limits of this team, which would no longer apply. Only that person or a higher role "
    "can do this."
)
OTHER_SETTINGS = (
    "Owners and admins set managed settings for a team of this member, who could choose yours instead. Ask one of them."
)
AMOUNT = "amount"
TAGS = "tags"
RAISE = "raise"
RULE_CHANGES = ("access_rule.create", "access_rule.update_status")
TRAIL_ROWS = 100

Amounts = Mapping[str, int | None]


class AmountHold:
    """Checks changes of the amounts of a key or project by one person, and stores their setters; called within the
    transaction of the change. `action` is the audit action of such changes. `is_manager`: the person changes them for
    the whole organization, which also a service account does."""

    def __init__(self, database: Database, organization_id: str, action: str, actor: str, is_manager: bool) -> None:
        self._database = database
        self._organization_id = organization_id
        self._action = action
        self._actor = actor
        self._is_manager = is_manager

    def check(self, scope_id: str, before: Amounts, after: Amounts) -> None:
        """Raise Forbidden (limit_not_yours) if the change raises or removes an amount of a higher role."""
        held = read_setters(self._database, scope_id) or {}
        setter = setter_of(self._actor, self._organization_id)
        if self._is_manager:
            setter = setter._replace(rank=max(setter.rank, LIMIT_RANKS["admin"]))
        for part, new in after.items():
            if new == before.get(part):
                continue
            known = held.get(part) or self.find_setter(scope_id, part, before.get(part))
            if known is None or setter.rank >= known.rank:
                held[part] = None if new is None else LimitSetter(*setter, new, "")
            elif new is None or new > known.nusd:
                raise Forbidden(NOT_HIGHER, code=CODE)
            else:
                held[part] = known
        write_setters(self._database, scope_id, held)

    def find_setter(self, scope_id: str, part: str, amount: int | None) -> LimitSetter | None:
        """Return the setter of an amount that is older than its stored setter, from the audit trail."""
        if amount is None:
            return None
        for row in _list_trail(self._organization_id, scope_id, (self._action,)):
            if part in orjson.loads(row.detail):
                return LimitSetter(*setter_of(row.actor, self._organization_id), amount, "")
        return None


class TagHold:
    """Checks that the tags of a key, by which limits may count, are not replaced by a lower role than set them."""

    def __init__(self, database: Database, organization_id: str, key_id: str, actor: str) -> None:
        self._database = database
        self._organization_id = organization_id
        self._key_id = key_id
        self._actor = actor

    def check(self, before: Mapping[str, str], *, is_manager: bool) -> None:
        """Raise Forbidden (limit_not_yours) if the tags of before are held; remember the actor as their setter. Within
        the transaction of the change."""
        held = read_setters(self._database, self._key_id) or {}
        own = setter_of(self._actor, self._organization_id)
        if is_manager:
            own = own._replace(rank=max(own.rank, LIMIT_RANKS["admin"]))
        known = held.get(TAGS) if before else None
        if known is not None and own.rank < known.rank and known.actor != own.actor:
            raise Forbidden(NOT_YOUR_TAGS, code=CODE)
        held[TAGS] = LimitSetter(*own, 0, "")
        write_setters(self._database, self._key_id, held)


class LimitHolding(NamedTuple):
    """Whether a person may delete, raise and weaken a limit, and who granted its raise ("" without one)."""

    is_theirs: bool
    raised_by: str


class OrganizationLimitHold:
    """Checks changes of the limits of organizations (SpendingLimits), and stores their setters. Who may set or raise
    limits at all has at least the rank of billing: also a service account, and a lead for limits of the team."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def check_put(
        self, organization_id: str, row: LimitRow | None, before: LimitRule | None, after: LimitRule, actor: str
    ) -> None:
        """Raise Forbidden (limit_not_yours) if a limit of a higher role would become less strict."""
        own = _setter_of_limit(actor, organization_id)
        known = None if row is None else self._find_setter(row)
        if row is None or before is None or known is None or own.rank >= known.rank:
            setter = LimitSetter(*own, after.amount_nusd, "")
        elif after.id == row.id and after.amount_nusd <= known.nusd and is_as_strict(before, after):
            setter = known
        else:
            raise Forbidden(NOT_YOUR_LIMIT, code=CODE)
        held: dict[str, LimitSetter | None] = {AMOUNT: setter}
        if row is not None and row.id == after.id:
            held = (read_setters(self._database, row.id) or {}) | held
        elif row is not None:
            self._forget(row)
        write_setters(self._database, after.id, held)

    def check_delete(self, row: LimitRow, actor: str) -> None:
        """Raise Forbidden (limit_not_yours) if a higher role set the limit."""
        if _setter_of_limit(actor, row.organization).rank < self._find_setter(row).rank:
            raise Forbidden(NOT_YOUR_LIMIT, code=CODE)
        self._forget(row)

    def check_raise(self, row: LimitRow, nusd: int, until_us: int, actor: str) -> None:
        """Raise Forbidden (limit_not_yours) if a higher role set a lower limit and granted no such raise. Stores who
        granted it; 0 ends a raise."""
        known = self._find_setter(row)
        own = _setter_of_limit(actor, row.organization)
        lowers = nusd <= row.raise_nusd and row.raise_until is not None and until_us <= row.raise_until
        if nusd and not lowers and row.amount_nusd + nusd > known.nusd and own.rank < known.rank:
            raise Forbidden(NOT_YOUR_LIMIT, code=CODE)
        granted = LimitSetter(*own, nusd, "") if nusd else None
        write_setters(self._database, row.id, {AMOUNT: known, RAISE: granted})

    def held_for(self, rows: Sequence[tuple[str, str]], organization_id: str, actor: str) -> dict[str, LimitHolding]:
        """Return how limits (id and name) are held from an actor. Within a read."""
        own = _setter_of_limit(actor, organization_id)
        holdings = {}
        for ident, name in rows:
            held = read_setters(self._database, ident) or {}
            setter = held.get(AMOUNT) or _setter_of_trail(organization_id, name)
            granted = held.get(RAISE)
            holdings[ident] = LimitHolding(own.rank >= setter.rank, granted.actor if granted else "")
        return holdings

    def _find_setter(self, row: LimitRow) -> LimitSetter:
        """Return the setter of a limit; that of one without a stored setter, from the audit trail."""
        known = (read_setters(self._database, row.id) or {}).get(AMOUNT)
        if known is not None:
            return known
        return LimitSetter(*_setter_of_trail(row.organization, row.name), row.amount_nusd, "")

    def _forget(self, row: LimitRow) -> None:
        self._database.execute("DELETE FROM limit_setter WHERE scope_id = ?", (row.id,))


class SubjectHold:
    """Checks that what limits of an organization name stays as long as a limit of a higher role names it: teams,
    projects, keys and provider keys. `sets_limits`: the person could delete limits that no higher role set, too."""

    def __init__(self, database: Database, organization_id: str, actor: str, sets_limits: bool) -> None:
        self._database = database
        self._organization_id = organization_id
        self._actor = actor
        self._sets_limits = sets_limits

    def check_end(self, kinds: Sequence[str], ident: str) -> None:
        """Raise Forbidden (limit_not_yours) if a subject of one of these kinds may not end. Within the transaction of
        the change."""
        named = {Subject(kind, ident) for kind in kinds}
        rules = [rule for rule in read_limits(self._database, self._organization_id).rules if named & {*rule.subjects}]
        if not rules:
            return
        own = setter_of(self._actor, self._organization_id)
        rank = max(own.rank, LIMIT_RANKS["billing"]) if self._sets_limits else own.rank
        for rule in rules:
            setter = (read_setters(self._database, rule.id) or {}).get(AMOUNT)
            known = setter or _setter_of_trail(self._organization_id, rule.name)
            if rank < known.rank and self._actor != known.actor:
                text = STILL_NAMED.format(rule.name, kinds[0].replace("_", " "))
                raise Forbidden(text + (KEY_ADVICE if "key" in kinds else ""), code=CODE)


def _setter_of_trail(organization_id: str, name: str) -> Setter:
    """Return the setter of a limit from the audit trail."""
    trail = _list_trail(organization_id, name, ("limit.set",))
    return _setter_of_limit(trail[0].actor if trail else "", organization_id)


def _setter_of_limit(actor: str, organization_id: str) -> Setter:
    setter = setter_of(actor, organization_id)
    return setter._replace(rank=max(setter.rank, LIMIT_RANKS["billing"]))


def is_as_strict(before: LimitRule, after: LimitRule) -> bool:
    """Return whether everything that a limit does, it does afterwards too, at the same share of the amount or earlier;
    a warning at the same share."""
    if before.reservation == EXACT != after.reservation:
        return False
    return all(any(_covers(one, action) for one in after.actions) for action in before.actions)


def _covers(one: LimitAction, action: LimitAction) -> bool:
    if one.action != action.action or one.model != action.model:
        return False
    return one.share == action.share if action.action in (ALERT, WARN) else one.share <= action.share


def check_rule_author(organization_id: str, rule_id: str, actor: str) -> None:
    """Raise Forbidden if a person of a higher role added a key's access rule or switched it on, or if the audit trail
    does not say who did. Within a read."""
    own = setter_of(actor, organization_id)
    for row in _list_trail(organization_id, rule_id, RULE_CHANGES):
        if setter_of(row.actor, organization_id).rank <= own.rank:
            return
        break
    raise Forbidden(NOT_YOUR_RULE, code=CODE)


def _list_trail(organization_id: str, subject: str, actions: tuple[str, ...]) -> list[Audit]:
    places = (Audit.organization == organization_id) & (Audit.subject == subject) & Audit.action.in_(actions)
    rows: Any = Audit.select().where(places).order_by(Audit.seq.desc()).limit(TRAIL_ROWS)
    return list(rows)


class TeamHold:
    """Checks that nothing of a higher role ends when a person changes a team. `is_manager`: an owner or admin, also a
    service account, who changes access rules and managed settings too."""

    def __init__(self, database: Database, budgets: Budgets, team: TeamInfo, actor: str, is_manager: bool) -> None:
        self._database = database
        self._budgets = budgets
        self._team = team
        self._actor = actor
        self._is_manager = is_manager

    def check_end(self) -> None:
        """Raise Forbidden (limit_not_yours) if the limits of the team may not end: for a member who leaves, or for all.
        Within the transaction of the change."""
        team = self._team
        if not self._is_manager and _has_rules(team.id):
            raise Forbidden(STILL_RULED, code=CODE)
        before = self._budgets.status(team.id).limits
        setter = setter_of(self._actor, team.organization_id)
        place = (self._database, team.organization_id, team.id)
        check_held(*place, before, Limits(), setter, AUDITED[TEAM], lambda part: STILL_LIMITED)

    def check_join(self, member_id: str) -> None:
        """Raise Forbidden if the member could choose this team in place of one with managed settings. Within the
        transaction of the change."""
        if self._is_manager:
            return
        teams = TeamMember.select(TeamMember.team).where(TeamMember.member == member_id)
        if ManagedSettings.select().where(ManagedSettings.scope_id.in_(teams)).exists():
            raise Forbidden(OTHER_SETTINGS, code=CODE)


def _has_rules(team_id: str) -> bool:
    rules = AccessRule.select().where(AccessRule.scope == TEAM, AccessRule.scope_id == team_id, AccessRule.active)
    settings = ManagedSettings.select().where(ManagedSettings.scope_id == team_id)
    return rules.exists() or settings.exists()
