"""The card "What changed" of the overview: spend, requests and failures compared with those of the period before,
with the names that contributed most to each difference."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

from gateway.metering.activity import measure
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, at_once
from gateway.money import round_usd
from gateway.surfaces.console.grouping import GROUPS, GroupingScope, Namer
from gateway.surfaces.console.shown_figures import round_count, show_change
from gateway.surfaces.visitors.report_windows import ReportRange
from gateway.surfaces.visitors.usage_report import UsageScope, scope_of
from gateway.surfaces.visitors.visitor import Visitor

FIGURES = ("cost_nusd", "requests", "errors")
# Groups in which the reasons of a difference are searched; people only for those who see several.
REASONS = ("model", "apiKey", "user")
NOTABLE_PERCENT = 5  # of the earlier value: a smaller difference has no reasons


class ChangedFigure(NamedTuple):
    """A figure of the card."""

    name: str
    measure: str
    figure: str
    write: Callable[[int], str]


CHANGED = (
    ChangedFigure("Spend", "spend", "cost_nusd", round_usd),
    ChangedFigure("Requests", "requests", "requests", round_count),
    ChangedFigure("Failed requests", "errors", "errors", round_count),
)


class Reason(NamedTuple):
    """A name that contributed to a difference, with its own difference and the page that shows its usage."""

    kind: str
    name: str
    difference: str
    path: str


class ChangedLine(NamedTuple):
    """A line of the card: the figure now and before, how they differ, and why."""

    name: str
    now: str
    before: str
    change: str
    path: str
    reasons: tuple[Reason, ...]


def find_changes(visitor: Visitor, window: ReportRange, period: Mapping[str, str]) -> list[ChangedLine]:
    """Return the lines of a period; none without requests in the period before. `period` are the parameters by which
    Explore shows it."""
    scope = scope_of(visitor, None)
    earlier = window.earlier(window.span.end - window.span.first)
    now, before = _read(visitor, scope, window), _read(visitor, scope, earlier)
    if not _sum(before["apiKey"]).requests:
        return []
    naming = GroupingScope(visitor, scope.keys, "")
    sums = {group: _compare(now[group], before[group], GROUPS[group].find_name(naming)) for group in REASONS}
    if len(sums["user"]) < 2:
        sums.pop("user")
    totals = _sum(now["apiKey"]), _sum(before["apiKey"])
    return [_write_line(one, totals, sums, period) for one in CHANGED]


Rows = dict[str, list[Row]]
Compared = dict[tuple[str, str], tuple[ActivityFigures, ActivityFigures, Mapping[str, str]]]  # by name and id


def _read(visitor: Visitor, scope: UsageScope, window: ReportRange) -> Rows:
    database, span = visitor.services.store.database, window.whole().span

    def read() -> Rows:
        by_key = measure(database, scope.by_key, span, "api_key", FIGURES)
        return {
            "model": measure(database, scope.owners, span, "model", FIGURES),
            "apiKey": by_key,
            "user": by_key,
        }

    return at_once(database, read)


def _sum(rows: list[Row]) -> ActivityFigures:
    total = ActivityFigures()
    for row in rows:
        total.add(row.figures)
    return total


def _compare(now: list[Row], before: list[Row], name: Namer) -> Compared:
    compared: Compared = {}
    for place, rows in enumerate((now, before)):
        for row in rows:
            named = name(row.value)
            pair = compared.setdefault(
                (named.name, named.id), (ActivityFigures(), ActivityFigures(), dict(named.filters))
            )
            pair[place].add(row.figures)  # type: ignore[union-attr]
    return compared


def _write_line(
    one: ChangedFigure,
    totals: tuple[ActivityFigures, ActivityFigures],
    sums: Mapping[str, Compared],
    period: Mapping[str, str],
) -> ChangedLine:
    now, before = (getattr(figures, one.figure) for figures in totals)
    difference = now - before
    reasons: tuple[Reason, ...] = ()
    if abs(difference) * 100 >= max(1, before) * NOTABLE_PERCENT:
        found = (_find_reason(one, group, compared, difference, period) for group, compared in sums.items())
        reasons = tuple(reason for reason in found if reason is not None)
    change = "new" if now else "as many"
    if before:
        change = show_change(now, before)
    return ChangedLine(one.name, one.write(now), one.write(before), change, _link(one, period), reasons)


def _find_reason(
    one: ChangedFigure, group: str, compared: Compared, difference: int, period: Mapping[str, str]
) -> Reason | None:
    """Return the name of a group that changed most in the direction of the difference."""
    sign = 1 if difference > 0 else -1
    best: Any = None
    for (name, _), (now, before, filters) in compared.items():
        own = (getattr(now, one.figure) - getattr(before, one.figure)) * sign
        if own > 0 and (best is None or (own, name) > best[:2]):
            best = (own, name, filters)
    if best is None:
        return None
    text = f"{'+' if sign > 0 else '−'}{one.write(best[0])}"
    return Reason(GROUPS[group].label, best[1], text, _link(one, period, best[2]))


def _link(one: ChangedFigure, period: Mapping[str, str], filters: Mapping[str, str] | None = None) -> str:
    """Return the address of Explore that shows a figure, of one name with its filters."""
    group = {}
    if filters is not None:
        group["groupBy"] = "apiKey" if "model" in filters else "model"
    return f"/console/explore?{urlencode({'measure': one.measure, **period, **group, **(filters or {})})}"
