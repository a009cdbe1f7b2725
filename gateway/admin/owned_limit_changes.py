"""Limits of one key, member, team, provider key, session or run as limits of the organization: set, raised and removed
with the checks of the operations that change them with their owner."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from gateway.accounts import audit
from gateway.accounts.agent_budgets import AgentBudgets, read_agent_budgets, write_agent_budgets
from gateway.accounts.changes import commit
from gateway.accounts.limit_drafts import LimitDraft, checked
from gateway.accounts.spending_limits import LimitInfo, SpendingLimits, describe
from gateway.admin.funding import (
    AUDITED,
    PERIOD,
    REFUSALS,
    Funding,
    LimitSetter,
    Setter,
    check_within_member,
    find_setters,
    read_setters,
    read_setters_of,
    setter_of,
    write_setters,
)
from gateway.admin.held_limits import (
    CODE,
    NOT_HIGHER,
    NOT_YOUR_LIMIT,
    RAISE,
    AmountHold,
    LimitHolding,
    OrganizationLimitHold,
    is_as_strict,
)
from gateway.callers.models import ApiKey, ProviderKey
from gateway.callers.permissions import LIMIT_RANKS
from gateway.control.version import Control
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.limits.budgets import Limits
from gateway.limits.limit_rules import ALERT, REQUEST, WARN, LimitAction, LimitRule
from gateway.limits.models import KEY, PROVIDER_KEY, TOTAL, WINDOW, LimitRow
from gateway.limits.owned_limits import find_owned
from gateway.limits.owned_rows import (
    PARTS,
    PER_SESSION,
    REFUSES,
    OwnedName,
    find_organization,
    keep_actions,
    name_owned,
    parse_owned,
)
from gateway.limits.periods import read_period
from gateway.store.database import Database

SESSION_AUDIT = {KEY: "api_key.update_session_budget", "project": "project.update_session_budget"}
# Part of a limit → the part of its owner's setters.
SETTER_PARTS = {TOTAL: TOTAL, WINDOW: PERIOD, **PER_SESSION}
OTHER_SUBJECTS = "The limit {} belongs to {}. It has no other subjects and counts what every request says."
REFUSE_AT_ALL = "A limit of a key, member, team, provider key, session or run refuses at 100 %: give refuse@100."
NO_ALERTS = "A limit of each session or run sends no alerts: use warn, which adds a header to the answers."


class OwnedLimitHold(OrganizationLimitHold):
    """Checks raises of limits that belong to an owner by the rules for their amounts. `is_manager`: the person changes
    budgets of sessions for the whole organization, which a service account does too."""

    def __init__(self, database: Database, is_manager: bool) -> None:
        super().__init__(database)
        self._is_manager = is_manager

    def check_raise(self, row: LimitRow, nusd: int, until_us: int, actor: str) -> None:
        """Raise Forbidden (limit_not_yours) if another person set a lower amount and granted no such raise."""
        name = parse_owned(row.name)
        assert name is not None
        own = self._setter(name.part, row.organization, actor)
        known = self._find_owned_setter(name, row.organization, row.amount_nusd)
        lowers = nusd <= row.raise_nusd and row.raise_until is not None and until_us <= row.raise_until
        is_within = known is not None and row.amount_nusd + nusd <= known.nusd
        if nusd and not lowers and not is_within and not _may_raise(name, known, own):
            raise Forbidden(NOT_HIGHER if name.part in PER_SESSION else REFUSALS[TOTAL], code=CODE)
        held = read_setters(self._database, name.owner) or {}
        held[f"{RAISE}_{name.part}"] = LimitSetter(*own, nusd, "") if nusd else None
        write_setters(self._database, name.owner, held)

    def check_actions(self, organization_id: str, before: LimitRule, after: LimitRule, actor: str) -> None:
        """Raise Forbidden (limit_not_yours) if an action of a limit ends which another person set."""
        name = parse_owned(before.name)
        assert name is not None
        known = self._find_owned_setter(name, organization_id, before.amount_nusd)
        acting = replace(before, actions=tuple(one for one in before.actions if one.action != ALERT))
        if not _may_raise(name, known, self._setter(name.part, organization_id, actor)) and not is_as_strict(
            acting, after
        ):
            raise Forbidden(NOT_YOUR_LIMIT, code=CODE)

    def held_for(self, rows: Sequence[tuple[str, str]], organization_id: str, actor: str) -> dict[str, LimitHolding]:
        """Return how limits (id and name) are held from an actor. Within a read."""
        names = {ident: name for ident, text in rows if (name := parse_owned(text)) is not None}
        setters = read_setters_of(self._database, list({name.owner for name in names.values()}))
        own = {part: self._setter(part, organization_id, actor) for part in {name.part for name in names.values()}}
        holdings = {}
        for ident, name in names.items():
            held = setters.get(name.owner, {})
            granted = held.get(f"{RAISE}_{name.part}")
            is_theirs = _may_raise(name, held.get(SETTER_PARTS[name.part]), own[name.part])
            holdings[ident] = LimitHolding(is_theirs, granted.actor if granted else "")
        return holdings

    def _setter(self, part: str, organization_id: str, actor: str) -> Setter:
        setter = setter_of(actor, organization_id)
        if part in PER_SESSION and self._is_manager:
            return setter._replace(rank=max(setter.rank, LIMIT_RANKS["admin"]))
        return setter

    def _find_owned_setter(self, name: OwnedName, organization_id: str, nusd: int) -> LimitSetter | None:
        """Return the setter of an amount, from the audit trail where it is older than the stored setters."""
        part = SETTER_PARTS[name.part]
        if name.kind == PROVIDER_KEY:
            return None
        if name.part in PER_SESSION:
            known = (read_setters(self._database, name.owner) or {}).get(part)
            hold = AmountHold(self._database, organization_id, SESSION_AUDIT[name.kind], "", False)
            return known or hold.find_setter(name.owner, part, nusd)
        limits = Limits(nusd) if name.part == TOTAL else Limits(period_nusd=nusd, period=read_period("1d"))
        action = AUDITED[name.kind]
        return find_setters(self._database, organization_id, name.owner, limits, action).get(part)


def _may_raise(name: OwnedName, known: LimitSetter | None, own: Setter) -> bool:
    """Return whether a person may raise an amount that `known` set: budgets of sessions like the setter's role, other
    limits by the setter or a higher role."""
    if known is None or known.actor == own.actor:
        return True
    return own.rank >= known.rank if name.part in PER_SESSION else own.rank > known.rank


class OwnedLimits:
    """Sets and removes limits that belong to an owner; see OwnedLimitHold for `is_manager`."""

    def __init__(self, database: Database, control: Control, is_manager: bool) -> None:
        self._database = database
        self._control = control
        self._funding = Funding(database, control)
        self._hold = OwnedLimitHold(database, is_manager)
        self._is_manager = is_manager

    def put(self, organization_id: str, name: OwnedName, draft: LimitDraft, *, actor: str) -> LimitInfo:
        """Set a limit; in force on every worker on return. Another amount ends its raise. InvalidRequest, NotFound,
        Forbidden (limit_not_yours)."""
        draft = check_owned(name, draft)

        def work(now: int) -> None:
            if find_organization(self._database, name) != organization_id:
                raise NotFound(f"There is no {name.kind.replace('_', ' ')} {name.owner} in this organization.")
            self._write(organization_id, name, draft, actor, now)
            rule = LimitRule(str(name), str(name), name.subjects, *draft[1:])
            detail: dict[str, object] = {"limit": str(name), **describe(rule)}
            audit.append("limit.set", str(name), actor=actor, at_us=now, organization_id=organization_id, detail=detail)

        commit(self._database, self._control, work)
        return SpendingLimits(self._database, self._control).find(organization_id, str(name))

    def delete(self, organization_id: str, name: OwnedName, *, actor: str) -> None:
        """Remove a limit; what was spent stays on record. NotFound, Forbidden (limit_not_yours)."""

        def work(now: int) -> None:
            if find_owned(self._database, organization_id, name) is None:
                raise NotFound(f"There is no limit {name}.")
            self._write(organization_id, name, None, actor, now)
            detail: dict[str, object] = {"limit": str(name)}
            audit.append(
                "limit.delete", str(name), actor=actor, at_us=now, organization_id=organization_id, detail=detail
            )

        commit(self._database, self._control, work)

    def _write(self, organization_id: str, name: OwnedName, draft: LimitDraft | None, actor: str, now: int) -> None:
        before = find_owned(self._database, organization_id, name)
        if before is not None and draft is not None:
            after = replace(before.rule, actions=draft.actions, reservation=draft.reservation)
            if name.part in PER_SESSION or name.kind == PROVIDER_KEY:
                after = replace(after, reservation=before.rule.reservation)
            self._hold.check_actions(organization_id, before.rule, after, actor)
        amount = None if draft is None else draft.amount_nusd
        if name.part in PER_SESSION:
            self._write_sessions(organization_id, name, amount, actor, now)
        elif name.kind == PROVIDER_KEY:
            ProviderKey.update(max_spend_nusd=amount, updated_at=now).where(ProviderKey.id == name.owner).execute()
            self._funding.budgets.write_bound(name.owner, amount)
        else:
            edit = partial(self._edit, name, draft)
            place = (name.kind, name.owner, organization_id)
            self._funding.write_limits(*place, edit, setter=actor, actor=actor, now=now)
        if draft is not None:
            keep_actions(self._database, name, tuple(action for action in draft.actions if action.action != ALERT))

    def _write_sessions(self, organization_id: str, name: OwnedName, amount: int | None, actor: str, now: int) -> None:
        before = read_agent_budgets(self._database, name.owner)
        changes = {PER_SESSION[name.part]: amount}
        action = SESSION_AUDIT[name.kind]
        hold = AmountHold(self._database, organization_id, action, actor, self._is_manager)
        hold.check(name.owner, before._asdict(), changes)
        after = AgentBudgets(**{**before._asdict(), **changes})
        write_agent_budgets(self._database, name.owner, after)
        audit.append(
            action, name.owner, actor=actor, at_us=now, organization_id=organization_id, detail=after._asdict()
        )

    def _edit(self, name: OwnedName, draft: LimitDraft | None, before: Limits) -> Limits:
        total, period_nusd, period = before.total_nusd, before.period_nusd, before.period
        amount = None if draft is None else draft.amount_nusd
        if name.part == WINDOW:
            period_nusd, period = amount, read_period(draft.period) if draft is not None else None
        else:
            total = amount
        alert_at, reservation = before.alert_at, before.reservation
        if draft is not None:
            # The total and the period of an owner share their alerts.
            shares = {action.share for action in draft.actions if action.action in (ALERT, WARN)}
            alert_at = tuple(sorted(shares | self._warned_by_other(name)))
            reservation = draft.reservation
        limits = Limits(total, period_nusd, period, alert_at, reservation)
        if name.kind == KEY and draft is not None:
            key = ApiKey.get_by_id(name.owner)
            check_within_member(self._funding.budgets, key.member_id, limits)
        return limits

    def _warned_by_other(self, name: OwnedName) -> set[int]:
        other = name_owned(name.owner, TOTAL if name.part == WINDOW else WINDOW)
        if other.part not in PARTS[name.kind]:
            return set()
        organization_id = find_organization(self._database, name) or ""
        found = find_owned(self._database, organization_id, other)
        actions: tuple[LimitAction, ...] = () if found is None else found.rule.actions
        return {action.share for action in actions if action.action == WARN}


def check_owned(name: OwnedName, draft: LimitDraft) -> LimitDraft:
    """Return the draft of a limit that belongs to an owner, with its subjects and its period as they are stored.
    InvalidRequest."""
    draft = checked(draft)
    if set(draft.subjects) != set(name.subjects) or draft.values_of != REQUEST:
        subjects = " × ".join(map(str, name.subjects))
        raise InvalidRequest(OTHER_SUBJECTS.format(name, subjects), param="subjects")
    if (name.part == WINDOW) != bool(draft.period):
        text = "has a period" if name.part == WINDOW else "has no period"
        raise InvalidRequest(f"The limit {name} {text}.", param="period")
    if REFUSES not in draft.actions:
        raise InvalidRequest(REFUSE_AT_ALL, param="actions")
    if name.part in PER_SESSION and any(action.action == ALERT for action in draft.actions):
        raise InvalidRequest(NO_ALERTS, param="actions")
    return draft._replace(subjects=name.subjects)
