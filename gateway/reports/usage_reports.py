"""The three reports: account, usage, and a breakdown of the usage that a caller may see."""

import re
from collections.abc import Callable
from datetime import date, timedelta
from operator import attrgetter
from typing import Any, NamedTuple

from msgspec import Struct

from gateway.accounts.keys import KeyInfo, list_keys
from gateway.callers.authentication import Caller
from gateway.callers.permissions import reach_of
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import HOUR_US, Clock, to_datetime, to_iso
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.limits.budgets import Budgets
from gateway.limits.ledger import LedgerBook
from gateway.metering.activity import Dimension, Owners, Span, measure, merge
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, at_once, is_filled
from gateway.metering.rollups.rollup_table import HOURS
from gateway.metering.route_usage import SavingsTotals
from gateway.metering.sources import Sources
from gateway.money import usd_number
from gateway.reports.report_answers import (
    METRIC_FIGURES,
    AccountReport,
    BreakdownReport,
    NamedMetrics,
    ReportCoverage,
    ReportHead,
    ShownKeyLimits,
    ShownScope,
    UsageReport,
    show_metrics,
    total,
)
from gateway.store.database import Database

# The usage that a report may contain, derived from the caller.


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


# The days of a report: parsing, defaults and bounds.

MAX_DAYS = 366
MAX_HOURLY_DAYS = 31
DEFAULT_DAYS = 30
DATE = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
EPOCH = date(1970, 1, 1)


class ReportDays(Struct, frozen=True):
    """Days in UTC, both inclusive."""

    first: date
    last: date

    def span(self, step: str) -> Span:
        """Return the hours of the period in buckets: "hour", "day", or any other value for one sum."""
        begin, end = ((day - EPOCH).days * HOURS for day in (self.first, self.last + timedelta(days=1)))
        if step == "hour":
            return Span(begin, end, "hour")
        if step == "day":
            return Span(begin, end, "day")
        return Span(begin, end, "all")


def read_period(from_date: str | None, to_date: str | None, now_us: int, granularity: str = "day") -> ReportDays:
    """Return the period of two dates, both optional. InvalidRequest describes an invalid period."""
    last = to_datetime(now_us).date() if to_date is None else _read(to_date, "to")
    first = last - timedelta(days=DEFAULT_DAYS - 1) if from_date is None else _read(from_date, "from")
    maximum = MAX_HOURLY_DAYS if granularity == "hour" else MAX_DAYS
    count = (last - first).days + 1
    if count < 1:
        raise InvalidRequest(f"from ({first}) is later than to ({last}).", param="from")
    if count > maximum:
        raise InvalidRequest(
            f"A report by {granularity} covers at most {maximum} days; {first} to {last} are {count}.", param="from"
        )
    return ReportDays(first, last)


def _read(text: str, name: str) -> date:
    try:
        day = date.fromisoformat(text) if isinstance(text, str) and DATE.fullmatch(text) else None
    except ValueError:
        day = None
    if day is None or day.year < 2000:
        raise InvalidRequest(f"{name} must be a date such as 2027-01-31.", param=name)
    return day


UNKNOWN = "unknown"  # the app of requests without a source
KIND = "default"  # the kind of every organization
MAX_ROWS = 100
MAX_OFFSET = 10_000

# group_by → the series to read, and the index of the id among a row's values.
GROUPS: dict[str, tuple[Dimension, int]] = {
    "provider": ("model", 1),
    "model": ("model", 0),
    "app": ("source", 0),
    "api_key": ("api_key", 0),
}
SORTED: dict[str, Callable[[ActivityFigures], int]] = {
    "requests": attrgetter("requests"),
    "cost": attrgetter("cost_nusd"),
    "tokens": lambda figures: figures.input_tokens + figures.output_tokens,
}


class Ranking(Struct, frozen=True):
    """Rows by id, the largest first, and whether they cover all requests of the totals."""

    rows: list[Row]
    coverage: ReportCoverage


class Reports:
    """Builds the reports; the package's docstring describes arguments and results."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        budgets: Budgets,
        ledger: LedgerBook,
        catalogue: Callable[[], Catalogue],
        sources: Sources,
    ) -> None:
        self._database = database
        self._clock = clock
        self._budgets = budgets
        self._ledger = ledger
        self._catalogue = catalogue
        self._sources = sources
        self.route_savings = SavingsTotals(database, clock)

    def get_account(self, scope: ReportScope) -> AccountReport:
        """Return the user, the scope, and what the key may still spend; for owners and admins also the balance."""
        names = names_of(self._database, scope)
        balance = self._ledger.balance(scope.organization_id) if scope.whole else None
        shown = None if balance is None or balance.unlimited else usd_number(balance.balance_nusd)
        return {
            "user": {"id": scope.user_id, "name": names.user or None},
            "organization": {"id": scope.organization_id, "name": names.organization, "kind": KIND},
            "project": {"id": scope.project_id, "name": names.project},
            "role": scope.role,
            "usageScope": show_scope(scope),
            "apiKey": self._show_key(scope, names),
            "creditsBalanceUsd": shown,
        }

    def get_usage(
        self,
        scope: ReportScope,
        from_date: str | None = None,
        to_date: str | None = None,
        granularity: str = "day",
    ) -> UsageReport:
        """Return totals, the buckets with usage, and the most used provider, model and app."""
        _check("granularity", granularity, ("day", "hour"))
        period = read_period(from_date, to_date, self._clock.now_us(), granularity)
        owners = owners_of(self._database, scope)

        def read() -> tuple[list[Row], dict[str, Ranking]]:
            series = measure(self._database, owners, period.span(granularity), "total", METRIC_FIGURES)
            summed = total([row.figures for row in series])
            used: dict[Dimension, list[Row]] = {
                dimension: measure(self._database, owners, period.span("all"), dimension, METRIC_FIGURES)
                for dimension in ("model", "source")
            }
            groups = ("provider", "model", "app")
            return series, {g: self._rank(used[GROUPS[g][0]], g, "requests", summed) for g in groups}

        series, rankings = at_once(self._database, read)
        unit_us = HOUR_US * (1 if granularity == "hour" else 24)
        maximum = {g: self._show_rows(ranking.rows[:1], g, {}) for g, ranking in rankings.items()}
        return {
            **self._head(scope, period, series),
            "granularity": granularity,
            "totals": show_metrics(total([row.figures for row in series])),
            "series": [
                {"date": f"{to_iso(row.step * unit_us)[:19]}Z", **show_metrics(row.figures)} for row in _by_step(series)
            ],
            "mostUsedProvider": next(iter(maximum["provider"]), None),
            "mostUsedModel": next(iter(maximum["model"]), None),
            "mostUsedApp": next(iter(maximum["app"]), None),
            "appUsageCoverage": rankings["app"].coverage,
        }

    def get_usage_breakdown(
        self,
        scope: ReportScope,
        group_by: str,
        sort_by: str = "requests",
        from_date: str | None = None,
        to_date: str | None = None,
        limit: int = 10,
        offset: int = 0,
    ) -> BreakdownReport:
        """Return a page of the usage by provider, model, app or key, the largest first."""
        _check("group_by", group_by, tuple(GROUPS))
        _check("sort_by", sort_by, tuple(SORTED))
        _check_number("limit", limit, 1, MAX_ROWS)
        _check_number("offset", offset, 0, MAX_OFFSET)
        period = read_period(from_date, to_date, self._clock.now_us())
        owners = owners_of(self._database, scope)
        if group_by == "api_key":
            keys = keys_of(self._database, scope)
            measured = Owners(key_ids=tuple(keys))
        else:
            keys = {}
            measured = owners

        def read() -> tuple[list[Row], Ranking]:
            totals = measure(self._database, owners, period.span("all"), "total", METRIC_FIGURES)
            used = measure(self._database, measured, period.span("all"), GROUPS[group_by][0], METRIC_FIGURES)
            return totals, self._rank(used, group_by, sort_by, total([row.figures for row in totals]))

        totals, ranking = at_once(self._database, read)
        page = ranking.rows[offset : offset + limit]
        return {
            **self._head(scope, period, totals),
            "groupBy": group_by,
            "sortBy": sort_by,
            "rows": self._show_rows(page, group_by, {ident: key.description for ident, key in keys.items()}),
            "pagination": {"limit": limit, "offset": offset, "hasMore": len(ranking.rows) > offset + limit},
            "coverage": ranking.coverage,
        }

    def _head(self, scope: ReportScope, period: ReportDays, totals: list[Row]) -> ReportHead:
        updated_us = max((row.updated_us for row in totals), default=0)
        return {
            "scope": show_scope(scope),
            "from": period.first.isoformat(),
            "to": period.last.isoformat(),
            "timezone": "UTC",
            "currency": "USD",
            "updatedAt": to_iso(updated_us) if updated_us else None,
        }

    def _rank(self, rows: list[Row], group: str, sort_by: str, totals: ActivityFigures) -> Ranking:
        place = GROUPS[group][1]
        rows = merge(rows, [(self._ident(group, row.value[place]),) for row in rows])
        size = SORTED[sort_by]
        rows.sort(key=lambda row: (-size(row.figures), row.value))
        total = sum(row.figures.requests for row in rows)
        # Until existing rows are all counted, no ranking covers the whole period.
        complete = total == totals.requests and is_filled(self._database)
        coverage: ReportCoverage = {"requestCount": total, "totalRequestCount": totals.requests, "complete": complete}
        return Ranking(rows, coverage)

    def _ident(self, group: str, value: Any) -> str:
        if group == "app":  # the current table of clients may know more aliases than when the row was written
            return self._sources.canonical(value) or UNKNOWN
        if group == "api_key":
            return f"key_{value.hex()}"
        return str(value)

    def _show_rows(self, rows: list[Row], group: str, keys: dict[str, str]) -> list[NamedMetrics]:
        return [
            {"id": row.value[0], "name": self._name(group, row.value[0], keys), **show_metrics(row.figures)}
            for row in rows
        ]

    def _name(self, group: str, ident: str, keys: dict[str, str]) -> str:
        """Return the display name, or the id if there is none."""
        catalogue = self._catalogue()
        if group == "provider":
            provider = catalogue.provider(ident)
            if provider:
                return provider.name
            return ident
        if group == "model":
            model = catalogue.find(ident)
            if model and model.name:
                return model.name
            return ident
        if group == "app":
            return self._sources.labels.get(ident) or ident
        return keys.get(ident) or ident

    def _show_key(self, scope: ReportScope, names: AccountNames) -> ShownKeyLimits:
        status = self._budgets.status(scope.key_id)
        started = status.period_started_us
        return {
            "id": scope.key_id,
            "name": names.key,
            "usageUsd": usd_number(status.usage_nusd),
            "usageLimitUsd": _usd(status.total_nusd),
            "periodUsageUsd": usd_number(status.period_usage_nusd),
            "periodUsageLimitUsd": _usd(status.period_nusd),
            "periodStartedAt": None if started is None else to_iso(started),
            "expiresAt": None if names.expires_at_us is None else to_iso(names.expires_at_us),
        }


def _by_step(rows: list[Row]) -> list[Row]:
    """Return one row per bucket, in order; rows of several keys are added up."""
    return sorted(merge(rows, [()] * len(rows)), key=lambda row: row.step)


def _usd(nusd: int | None) -> float | None:
    if nusd is None:
        return None
    return usd_number(nusd)


def _check(name: str, value: object, known: tuple[str, ...]) -> None:
    if value not in known:
        raise InvalidRequest(f"{name} must be one of {', '.join(known)}.", param=name)


def _check_number(name: str, value: object, minimum: int, maximum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
        raise InvalidRequest(f"{name} must be a whole number from {minimum} to {maximum}.", param=name)
