"""Shares of a project's usage by tag, session, team, person, attribute of the person, provider, model, key or app, for
chargeback."""

from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

from msgspec import Struct

from gateway.accounts.keys import KeyInfo
from gateway.accounts.member_attributes import AttributePeriod, read_periods
from gateway.clock import DAY_US, HOUR_US, to_datetime
from gateway.configuration.configured_providers import ATTRIBUTES
from gateway.metering.activity import (
    HeldValue,
    HeldValues,
    Owners,
    Span,
    TagValues,
    measure,
    measure_held,
    measure_top,
)
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, at_once
from gateway.metering.rollups.rollup_table import OTHER, SESSION
from gateway.reports.focus import Month, read_month
from gateway.reports.report_answers import METRIC_FIGURES, total
from gateway.store.database import Database

# The forecast of a month's cost: what was spent, and the average of the last days for the days that are left.

FORECAST_DAYS = 7  # complete days; the forecast continues their average
HOURS = 24


class Forecast(NamedTuple):
    """Nano-dollars: spent in the month so far, the daily average of the last days, and what the month will cost."""

    month: Month
    spent_nusd: int
    daily_nusd: int
    expected_nusd: int


def forecast_month(database: Database, owners: Owners, now_us: int) -> Forecast:
    """Return the forecast of the current month (UTC). The average is that of the last complete days, at most DAYS, in
    which the owners existed; on the first day with usage it is the usage of this day so far."""
    month = read_month(to_datetime(now_us).strftime("%Y-%m"))
    today = now_us // DAY_US
    first = min(month.start_us // DAY_US, today - FORECAST_DAYS)
    span = Span(first * HOURS, (today + 1) * HOURS, "day")
    costs: dict[int, int] = {}
    for row in at_once(database, lambda: measure(database, owners, span, "total", ("cost_nusd",))):
        costs[row.step] = costs.get(row.step, 0) + row.figures.cost_nusd
    spent = sum(nusd for day, nusd in costs.items() if day * DAY_US >= month.start_us)
    complete = [costs.get(day, 0) for day in range(max(today - FORECAST_DAYS, min(costs, default=today)), today)]
    so_far = costs.get(today, 0)
    daily = sum(complete) // len(complete) if complete else so_far * DAY_US // max(HOUR_US, now_us - today * DAY_US)
    left_us = month.end_us - now_us
    return Forecast(month, spent, daily, spent + daily * left_us // DAY_US)


# Values of a tag or session that are shown; the rest is one row.
MAX_VALUES = 1_000
FOREVER = 2**62  # the end of a value that still holds
NO_ACTIVITY = ActivityFigures()


class Share(NamedTuple):
    """The usage of one value; `id` "" is usage without one."""

    id: str
    figures: ActivityFigures


class ShareQuestion(Struct, frozen=True):
    """The projects, or keys if the reader sees only these, a period, and how usage is grouped. `tag` is the name of the
    tag; `teams` are the ids of the teams of each member, `held` the values of the attribute of each key's owner."""

    owners: Owners
    span: Span
    group: str
    tag: str = ""
    keys: Mapping[str, KeyInfo] | None = None
    teams: Mapping[str, Sequence[str]] | None = None
    held: HeldValues | None = None


def read_held(database: Database, keys: Mapping[str, KeyInfo], group: str) -> HeldValues | None:
    """Return the values of an attribute of the owner of each key; None if the group is no attribute."""
    if group not in ATTRIBUTES:
        return None
    periods = read_periods(database, sorted({key.member_id for key in keys.values()}), group)
    values = {member_id: [_hold(period) for period in found] for member_id, found in periods.items()}
    return {key_id: values.get(key.member_id, ()) for key_id, key in keys.items()}


def _hold(period: AttributePeriod) -> HeldValue:
    return HeldValue(period.value, period.since, FOREVER if period.until is None else period.until)


def read_shares(database: Database, question: ShareQuestion) -> list[Share]:
    """Return the shares, the most expensive first. Usage of a person in several teams counts in each of them; all other
    shares add up to the usage of the projects."""
    shares = at_once(database, lambda: READERS[question.group](database, question))
    return sorted(shares, key=lambda share: (-share.figures.cost_nusd, share.id))


def _tag_of(question: ShareQuestion) -> str:
    if question.group == "session":
        return SESSION
    return question.tag


def _values(database: Database, question: ShareQuestion) -> list[Share]:
    """Return the most expensive values of a tag, one share for all others, and one for usage without the tag."""
    tag = _tag_of(question)
    tops = measure_top(database, question.owners, question.span, tag, METRIC_FIGURES, MAX_VALUES)
    shares = [Share(row.value[0], row.figures) for row in tops]
    tagged = _sum_of(measure(database, question.owners, question.span, "tag_total", METRIC_FIGURES, TagValues(tag)))
    everything = _sum_of(measure(database, question.owners, question.span, "total", METRIC_FIGURES))
    rest = _subtract(tagged, total([share.figures for share in shares]))
    shares += [Share(OTHER, rest), Share("", _subtract(everything, tagged))]
    return [share for share in shares if any(vars(share.figures).values())]


def _sum_of(rows: Sequence[Row]) -> ActivityFigures:
    return total([row.figures for row in rows])


def _subtract(figures: ActivityFigures, part: ActivityFigures) -> ActivityFigures:
    rest = ActivityFigures()
    for name in METRIC_FIGURES:
        setattr(rest, name, getattr(figures, name) - getattr(part, name))
    return rest


def _by_key(database: Database, question: ShareQuestion) -> list[tuple[str, ActivityFigures]]:
    owners = Owners(key_ids=tuple(question.keys or ()))
    rows = measure(database, owners, question.span, "api_key", METRIC_FIGURES)
    return [(f"key_{row.value[0].hex()}", row.figures) for row in rows]


def _keys(database: Database, question: ShareQuestion) -> list[Share]:
    return _summed(_by_key(database, question))


def _people(database: Database, question: ShareQuestion) -> list[Share]:
    keys = question.keys or {}
    return _summed([(keys[key].member_id, figures) for key, figures in _by_key(database, question)])


def _teams(database: Database, question: ShareQuestion) -> list[Share]:
    keys = question.keys or {}
    teams = question.teams or {}
    found = [(keys[key].member_id, figures) for key, figures in _by_key(database, question)]
    return _summed([(team, figures) for member, figures in found for team in teams.get(member) or ("",)])


def _attributes(database: Database, question: ShareQuestion) -> list[Share]:
    rows = measure_held(database, question.held or {}, question.span, METRIC_FIGURES)
    return _summed([(row.value[0], row.figures) for row in rows])


def _models(database: Database, question: ShareQuestion) -> list[Share]:
    rows = measure(database, question.owners, question.span, "model", METRIC_FIGURES)
    return _summed([(f"{row.value[1]}/{row.value[0]}", row.figures) for row in rows])


def _providers(database: Database, question: ShareQuestion) -> list[Share]:
    rows = measure(database, question.owners, question.span, "model", METRIC_FIGURES)
    return _summed([(row.value[1], row.figures) for row in rows])


def _apps(database: Database, question: ShareQuestion) -> list[Share]:
    rows: list[Row] = measure(database, question.owners, question.span, "source", METRIC_FIGURES)
    return _summed([(row.value[0], row.figures) for row in rows])


READERS: dict[str, Callable[[Database, ShareQuestion], list[Share]]] = {
    "tag": _values,
    "session": _values,
    "team": _teams,
    "person": _people,
    **dict.fromkeys(ATTRIBUTES, _attributes),
    "provider": _providers,
    "model": _models,
    "key": _keys,
    "app": _apps,
}
GROUPS = tuple(READERS)


def _summed(parts: Sequence[tuple[str, ActivityFigures]]) -> list[Share]:
    sums: dict[str, ActivityFigures] = {}
    for ident, figures in parts:
        sums.setdefault(ident, ActivityFigures()).add(figures)
    return [Share(ident, figures) for ident, figures in sums.items()]
