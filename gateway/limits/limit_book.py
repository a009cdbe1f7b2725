"""The limits of each organization as requests read them: from memory under the control version."""

import json
from typing import Any

from msgspec import Struct, convert

from gateway.control.version import Control
from gateway.errors import GatewayError
from gateway.limits.limit_rules import LimitAction, LimitRule, Subject
from gateway.store.database import Database

COLUMNS = "id, name, subjects, amount_nusd + raise_nusd, period, actions, reservation, values_of"
ORGANIZATIONS = "SELECT DISTINCT organization FROM limits WHERE deleted_at IS NULL"
RULES = f"SELECT {COLUMNS} FROM limits WHERE organization = ? AND deleted_at IS NULL ORDER BY name"
TEAMS = (
    "SELECT tm.team, tm.member FROM team_member tm JOIN team t ON t.id = tm.team WHERE t.organization_id = ? "
    "ORDER BY tm.team"
)
NONE: frozenset[str] = frozenset()


class OrganizationLimits(Struct, frozen=True, eq=False):
    """The limits of an organization, and the members of its teams where a limit names teams."""

    rules: tuple[LimitRule, ...]
    teams: dict[str, set[str]]


class LimitBook:
    """`any` is False if no organization has limits, so that a request looks no further."""

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control
        self._version = -1
        self._organizations: frozenset[str] | None = None
        self._read_ones: dict[str, OrganizationLimits] = {}
        self.any = True
        control.on_change(self._renew)

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
            limits = self._read(organization_id, self._version)
        return limits

    def _renew(self, version: int) -> None:
        """Forget the limits and read which organizations have any, even if that fails now."""
        self._organizations = None
        self._read_ones = {}
        self.any = True
        try:
            self._read_organizations(version)
        except GatewayError:
            return  # the next request that needs them asks again

    def _read_organizations(self, version: int) -> frozenset[str]:
        found = frozenset(self._database.read(lambda: [row[0] for row in self._database.fetch(ORGANIZATIONS, ())]))
        # The result of a read that a change overtook serves its caller, but is not kept.
        if version >= max(self._version, self._control.version):
            if version > self._version:
                self._read_ones = {}
            self._version = version
            self._organizations = found
            self.any = bool(found)
        return found

    def _read(self, organization_id: str, version: int) -> OrganizationLimits:
        limits = self._database.read(lambda: read_limits(self._database, organization_id))
        if version == self._version and self._organizations is not None:
            self._read_ones[organization_id] = limits
        return limits


def read_limits(database: Database, organization_id: str) -> OrganizationLimits:
    """Return the limits of an organization; inside a read."""
    rules = tuple(map(rule_of, database.fetch(RULES, (organization_id,))))
    teams: dict[str, set[str]] = {}
    if any(subject.kind == "team" for rule in rules for subject in rule.subjects):
        for team, member in database.fetch(TEAMS, (organization_id,)):
            teams.setdefault(team, set()).add(member)
    return OrganizationLimits(rules, teams)


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
