"""The limits of each organization as requests read them: from memory under the control version."""

import json
from collections.abc import Sequence
from typing import Any

from msgspec import Struct, convert

from gateway.clock import Clock
from gateway.control.version import Control
from gateway.errors import GatewayError
from gateway.limits.budgets import SPENT
from gateway.limits.leases import marks
from gateway.limits.limit_rules import MAX_MEMBERS, LimitAction, LimitRule, LimitShare, Subject
from gateway.limits.periods import read_period
from gateway.store.database import Database

COLUMNS = "id, name, subjects, amount_nusd + raise_nusd, period, actions, reservation, values_of"
OF_ANY_SUBJECT = "owner = '' AND deleted_at IS NULL"
ORGANIZATIONS = (
    f"SELECT organization, MAX(acting) FROM (SELECT organization, 0 AS acting FROM limits WHERE {OF_ANY_SUBJECT} "
    "UNION SELECT organization, 1 AS acting FROM limits WHERE acts) AS found GROUP BY organization"
)
# Limits with an owner that do more than refuse, unless a worker of an earlier release changed their budgets.
ACTING = (
    f"SELECT {COLUMNS}, owner FROM limits WHERE acts AND {{}} AND NOT EXISTS (SELECT 1 FROM budget b "
    "WHERE b.id = limits.id AND (b.limit_nusd IS NULL OR b.limit_nusd <> limits.limit_nusd)) ORDER BY id"
)
RULES = f"SELECT {COLUMNS} FROM limits WHERE organization = ? AND {OF_ANY_SUBJECT} ORDER BY name"
TEAMS = (
    "SELECT tm.team_id, tm.member_id FROM team_member tm JOIN team t ON t.id = tm.team_id WHERE t.organization_id = ? "
    "ORDER BY tm.team_id"
)
USED = f"SELECT b.id, {SPENT}, b.period, b.window_start FROM budget b WHERE b.id IN"
# Which of these limits count as many members apart as they may.
FULL = f"SELECT id FROM limits WHERE members >= {MAX_MEMBERS} AND id IN"
SEEN_S = 1.0  # how old an amount may be by which a limit warns or uses another model
MAX_SEEN = 10_000
MAX_KEPT = 20_000
MAX_ORGANIZATIONS = 10_000  # with limits in the memory of a worker


class OrganizationLimits(Struct, frozen=True, eq=False):
    """The limits of an organization, and the members of its teams where a limit names teams. `acting`: some of its
    keys, members, teams, projects or provider keys have limits that do more than refuse; `provider_keys` are those of
    its provider keys."""

    rules: tuple[LimitRule, ...]
    teams: dict[str, set[str]]
    acting: bool = False
    provider_keys: dict[str, LimitRule] = {}


class LimitBook:
    """`any` is False if no organization has limits, so that a request looks no further."""

    def __init__(self, database: Database, control: Control, clock: Clock) -> None:
        self._database = database
        self._control = control
        self._clock = clock
        self._version = -1
        self._organizations: dict[str, bool] | None = None  # those with limits → OrganizationLimits.acting
        self._read_ones: dict[str, OrganizationLimits] = {}
        self._used: dict[str, tuple[float, int]] = {}
        # Cached results of earlier requests: key → (the objects that the key's numbers identify, result).
        self.kept: dict[tuple[Any, ...], tuple[Any, Any]] = {}
        self.any = True
        control.on_change(self._forget, self._renew)

    def find(self, organization_id: str) -> OrganizationLimits | None:
        """Return the limits of an organization, None without any. Unavailable when the store was down since a
        change."""
        organizations = self._organizations
        if organizations is None:
            organizations = self._read_organizations(self._control.version)
        if organization_id not in organizations:
            return None
        limits = self._read_ones.get(organization_id)
        if limits is None:
            limits = self._read(organization_id, self._version, organizations[organization_id])
        return limits

    def find_acting(self, owners: Sequence[str]) -> tuple[LimitRule, ...]:
        """Return the limits that belong to these owners and do more than refuse. Unavailable."""
        rows = self._database.read(lambda: self._database.fetch(ACTING.format(f"owner IN ({marks(owners)})"), owners))
        return tuple(rule_of(row[:-1]) for row in rows)

    def keep(self, key: tuple[Any, ...], owner: object, result: Any) -> None:
        """Keep a result in `kept`, which holds at most MAX_KEPT of all callers, about 3 KB each."""
        if len(self.kept) >= MAX_KEPT:
            self.kept.clear()
        self.kept[key] = (owner, result)

    def used_nusd(self, shares: Sequence[LimitShare]) -> dict[str, int]:
        """Return budget id → what is used in its present window, as of the last SEEN_S. That of a member
        beyond the bound is the budget of all of these. While the store is down it is what was seen last."""
        now_s = self._clock.monotonic()
        used = {}
        missing = []
        for share in shares:
            seen = self._used.get(share.budget)
            if seen and now_s - seen[0] < SEEN_S:
                used[share.budget] = seen[1]
            else:
                missing.append(share)
        if missing:
            found = self._read_used(missing)
            if len(self._used) > MAX_SEEN:
                self._used.clear()
            for share in missing:
                used[share.budget] = found.get(share.budget, 0)
                self._used[share.budget] = (now_s, used[share.budget])
        return used

    def _read_used(self, shares: list[LimitShare]) -> dict[str, int]:
        try:
            return self._database.read(lambda: self._fetch_used(shares))
        except GatewayError:
            return {share.budget: self._used[share.budget][1] for share in shares if share.budget in self._used}

    def _fetch_used(self, shares: list[LimitShare]) -> dict[str, int]:
        ids = [share.budget for share in shares] + [share.rule.others.budget for share in shares if share.rule.each]
        now = self._database.now_us()
        rows = self._database.fetch(f"{USED} ({marks(ids)})", ids)
        found = {row[0]: 0 if _is_over(row[2], row[3], now) else int(row[1]) for row in rows}
        uncounted = [share for share in shares if share.budget not in found and share.rule.others.budget in found]
        if uncounted:
            limits = [share.rule.id for share in uncounted]
            full = {row[0] for row in self._database.fetch(f"{FULL} ({marks(limits)})", limits)}
            found |= {share.budget: found[share.rule.others.budget] for share in uncounted if share.rule.id in full}
        return found

    def _forget(self, version: int) -> None:
        self._organizations = None
        self._read_ones = {}
        self.kept.clear()
        self.any = True

    def _renew(self, version: int) -> None:
        """Read which organizations have limits."""
        try:
            self._read_organizations(version)
        except GatewayError:
            return  # the next request that needs them asks again

    def _read_organizations(self, version: int) -> dict[str, bool]:
        rows = self._database.read(lambda: self._database.fetch(ORGANIZATIONS, ()))
        found = {organization: bool(acting) for organization, acting in rows}
        # The result of a read that a change overtook serves its caller, but is not kept.
        if version >= max(self._version, self._control.version):
            if version > self._version:
                self._read_ones = {}
            self._version = version
            self._organizations = found
            self.any = bool(found)
        return found

    def _read(self, organization_id: str, version: int, acting: bool) -> OrganizationLimits:
        limits = self._database.read(lambda: read_limits(self._database, organization_id, acting))
        if version == self._version and self._organizations is not None:
            if len(self._read_ones) >= MAX_ORGANIZATIONS:
                del self._read_ones[next(iter(self._read_ones))]  # the oldest one
            self._read_ones[organization_id] = limits
        return limits


def _is_over(period: str, start: int | None, now: int) -> bool:
    return bool(period) and (start is None or read_period(period).end(start) <= now)


def read_limits(database: Database, organization_id: str, acting: bool = False) -> OrganizationLimits:
    """Return the limits of an organization; inside a read. `acting`: with those of its provider keys."""
    rules = tuple(map(rule_of, database.fetch(RULES, (organization_id,))))
    has_teams = any(subject.kind == "team" for rule in rules for subject in rule.subjects)
    teams = read_teams(database, organization_id) if has_teams else {}
    provider_keys = {}
    if acting:
        of_organization = ACTING.format("organization = ? AND SUBSTR(owner, 1, 5) = 'pkey_'")
        rows = database.fetch(of_organization, (organization_id,))
        provider_keys = {row[-1]: rule_of(row[:-1]) for row in rows}
    return OrganizationLimits(rules, teams, acting, provider_keys)


def read_teams(database: Database, organization_id: str) -> dict[str, set[str]]:
    """Return the members of each team; inside a read."""
    teams: dict[str, set[str]] = {}
    for team, member in database.fetch(TEAMS, (organization_id,)):
        teams.setdefault(team, set()).add(member)
    return teams


def rule_of(row: tuple[Any, ...]) -> LimitRule:
    """Return the limit of a row of COLUMNS."""
    ident, name, subjects, amount_nusd, period, actions, reservation, values_of = row
    return LimitRule(
        ident,
        name,
        convert(json.loads(subjects), tuple[Subject, ...]),
        int(amount_nusd),
        period,
        convert(json.loads(actions), tuple[LimitAction, ...]),
        reservation,
        values_of,
    )
