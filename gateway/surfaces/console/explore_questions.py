"""The choices of a visitor in Explore, and the question to the sums of usage that follows from them."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

import orjson
from msgspec.structs import replace

from gateway.errors import Overloaded
from gateway.metering.activity import measure
from gateway.metering.cross_sums import CrossUnavailable
from gateway.metering.rollups.queries import at_once
from gateway.metering.usage_table import raw_id
from gateway.reports.shares import read_held
from gateway.runtime.fair_threads import QueueFull
from gateway.store.database import Database
from gateway.surfaces.console.explore_periods import COMPARISONS, UsagePeriod, find_earlier, read_period
from gateway.surfaces.console.grouping import (
    FILTERS,
    GROUPS,
    GroupingScope,
    UsageFilter,
    families_of,
    filter_keys,
    filter_slots,
    filter_values,
    find_caller_tag,
    find_dimension,
    find_tag,
    is_crossed,
    list_slots,
    name_rows,
    name_slots,
    read_filters,
    slot_of,
    split_groups,
)
from gateway.surfaces.console.usage_measures import MEASURES
from gateway.surfaces.console.usage_reader import (
    NO_USAGE,
    CrossScope,
    PeriodUsage,
    TimedUsage,
    UsageQuestion,
    read_times,
    read_usage,
)
from gateway.surfaces.visitors.usage_report import UsageScope, scope_of
from gateway.surfaces.visitors.visitor import Visitor

MAX_TAG_LENGTH = 64
DEFAULT_TAG = "team"  # the tag of a page without one, which no latest request has
OTHER_MODEL = "model"  # the comparison with another model
MODELS = 200  # models that can be chosen for a comparison
OF_MODELS = ("model", "provider")  # groups that have other names for another model
BY_MODEL = next(one for one in FILTERS if one.group == "model")
BUSY = (
    "Statistics keep no sums of this combination, and several others are computed from single requests at the moment. "
    "Try again in some seconds."
)
RETRY_S = 10

PROJECTS = 20
LATEST = 500  # rows of each project in which names of tags are searched


def list_tags(database: Database, project_ids: Sequence[str]) -> list[str]:
    """Return the names of tags in the latest requests of the projects."""
    rows = database.report(partial(_latest_tags, database, project_ids[:PROJECTS]))
    return sorted({name for row in rows for name in orjson.loads(row)})


def _latest_tags(database: Database, projects: Sequence[str]) -> list[str]:
    sql = "SELECT tags FROM usage WHERE project = ? ORDER BY request DESC LIMIT ?"
    rows = [row for project in projects for row in database.fetch(sql, (raw_id(project), LATEST))]
    return [row[0] for row in rows if row[0]]


class UsageChoices(NamedTuple):
    """The choices that the visitor made, from the parameters of the page. `report` are the parameters of the usage
    report of the same period, project and key. `other` is the model of a comparison, "" for the busiest one."""

    group: str
    split: str
    measure: str
    comparison: str
    period: UsagePeriod
    filters: dict[UsageFilter, str]
    report: dict[str, str]
    other: str

    @property
    def groups(self) -> tuple[str, ...]:
        """Return the groups that are chosen."""
        return (self.group, self.split) if self.split else (self.group,)


def read_choices(visitor: Visitor, arguments: Mapping[str, str]) -> UsageChoices:
    """Return the choices that parameters name; what cannot be combined is left out."""
    filters = read_filters(arguments)
    group = _choose(GROUPS, arguments.get("groupBy"))
    splits = split_groups(group)
    split = arguments.get("splitBy", "")
    split = split if split in splits else ""
    report: dict[str, str] = {name: arguments[name] for name in ("projectId", "apiKeyId") if name in arguments}
    period = read_period(arguments, visitor.services.clock.now_us())
    return UsageChoices(
        group,
        split,
        _choose(MEASURES, arguments.get("measure")),
        _choose(COMPARISONS, arguments.get("compare")),
        period,
        filters,
        {**report, **period.report},
        arguments.get("compareModel", ""),
    )


class ExploreAnswer(NamedTuple):
    """The answer to the choices of a visitor. `times` are the percentiles of a timed measure. `tags` are the names of
    tags that can be chosen, `models` the models for a comparison, the busiest first, and `other` the one of it.
    `problem` is why there is no answer, "" if there is one."""

    choices: UsageChoices
    scope: UsageScope
    naming: GroupingScope
    question: UsageQuestion
    usage: PeriodUsage
    times: TimedUsage | None
    tag: str
    tags: list[str]
    models: list[str]
    other: str
    problem: str = ""


def answer(visitor: Visitor, arguments: Mapping[str, str], strict: bool = True) -> ExploreAnswer:
    """Return what a visitor may see of the usage that the parameters of a page ask for. Raises NotFound, Forbidden
    (project, key), Unavailable, CrossUnavailable for a combination that cannot be summed, and Overloaded for one that
    has to wait too long; unless `strict`, these are an answer with no usage and the `problem`."""
    database = visitor.services.store.database
    choices = read_choices(visitor, arguments)
    scope = scope_of(visitor, choices.report.get("projectId"), choices.report.get("apiKeyId", ""))
    tags = list_tags(database, scope.owners.project_ids) if "tag" in choices.groups else []
    tag = arguments.get("tag", "").strip().lower()[:MAX_TAG_LENGTH] or next(iter(tags), "") or DEFAULT_TAG
    naming = GroupingScope(visitor, scope.keys, find_caller_tag(choices.filters, tag))
    question = ask(visitor, choices, scope, naming)
    models: list[str] = []
    other = ""
    if choices.comparison == OTHER_MODEL:
        models = _list_models(database, question)
        other = choices.other or next((name for name in models if name != choices.filters.get(BY_MODEL)), "")
        question = _compare(visitor, question, choices, scope, naming, other)
    try:
        usage = _read(visitor, question)
    except (CrossUnavailable, Overloaded) as error:
        if strict:
            raise
        empty = replace(question, earlier=None, against=None)
        return ExploreAnswer(choices, scope, naming, empty, NO_USAGE, None, tag, tags, models, other, error.message)
    times = None
    if question.measure.timed:
        projects_of_keys = {ident: key.project_id for ident, key in scope.keys.items()}
        times = read_times(database, question, usage, projects_of_keys)
        usage = usage._replace(series=times.series, line=times.line)
    return ExploreAnswer(choices, scope, naming, question, usage, times, tag, tags, models, other)


def _read(visitor: Visitor, question: UsageQuestion) -> PeriodUsage:
    """Return the figures of a question. Those summed from single requests take a connection of the store for seconds,
    so a worker sums few at a time, and Overloaded is raised when some wait already."""
    database, background = visitor.services.store.database, visitor.services.background
    if not question.is_of_rows:
        return read_usage(database, question)
    try:
        with background.row_sums.turn(visitor.user_id):
            return read_usage(database, question)
    except QueueFull:
        raise Overloaded(BUSY, retry_after=RETRY_S) from None


def _list_models(database: Database, question: UsageQuestion) -> list[str]:
    """Return the models of a period, the busiest first."""
    span = question.window.whole().span
    rows = at_once(database, lambda: measure(database, question.owners, span, "model", ("requests",)))
    ranked = sorted(rows, key=lambda row: (-row.figures.requests, row.value))
    return [f"{row.value[1]}/{row.value[0]}" for row in ranked[:MODELS]]


def _compare(
    visitor: Visitor,
    question: UsageQuestion,
    choices: UsageChoices,
    scope: UsageScope,
    naming: GroupingScope,
    other: str,
) -> UsageQuestion:
    """Return a question that is compared with another model in the same period; with nothing without one."""
    if not other:
        return question
    filters = {one: value for one, value in choices.filters.items() if one.group not in OF_MODELS}
    against = ask(visitor, choices._replace(filters={**filters, BY_MODEL: other}), scope, naming)
    named = not any(group in OF_MODELS for group in choices.groups)
    return replace(question, earlier=question.bars, against=against, names_compared=named)


def ask(visitor: Visitor, choices: UsageChoices, scope: UsageScope, naming: GroupingScope) -> UsageQuestion:
    """Return the question that choices ask within a scope. `naming` has the caller's tag."""
    groups = [GROUPS[group] for group in choices.groups]
    families = families_of(choices.filters)
    owners = filter_keys(choices.filters, naming)
    keys = {ident: key for ident, key in scope.keys.items() if owners is None or ident in owners.key_ids}
    window, bars = choices.period.window, choices.period.bars
    earlier = find_earlier(window, choices.comparison)
    measure_ = MEASURES[choices.measure]
    database = visitor.services.store.database
    if measure_.is_of_rows or is_crossed(groups, families):
        slots = list_slots(choices.groups, choices.filters, naming)
        attributes = {slot.tag for slot in slots if slot.kind == "held"}
        crossed = CrossScope(
            slots,
            tuple(dict.fromkeys(key.project_id for key in keys.values())),
            {name: read_held(database, keys, name) or {} for name in attributes},
            {
                slot_of(one.group, naming.tag).tag: value.partition(":")[2] if one.group == "tag" else value
                for one, value in choices.filters.items()
                if GROUPS[one.group].dimension == "tag"
            },
        )
        return UsageQuestion(
            scope.owners if owners is None else owners,
            scope.owners if owners is None else owners,
            window,
            bars,
            "rows",
            name_slots(choices.groups, naming, slots),
            measure_,
            naming.tag,
            None,
            filter_slots(choices.filters, naming, slots),
            earlier,
            crossed=crossed,
        )
    naming = naming._replace(tag=find_tag(choices.group, choices.split, choices.filters, naming.tag))
    dimension = find_dimension(groups, families)
    parts = owners or (scope.by_key if dimension.startswith("api_key") else scope.owners)
    return UsageQuestion(
        scope.owners if owners is None else owners,
        parts,
        window,
        bars,
        dimension,
        name_rows(groups, naming, dimension),
        measure_,
        naming.tag,
        read_held(database, keys, groups[0].attribute),
        filter_values(choices.filters, naming),
        earlier,
    )


def _choose(known: Mapping[str, Any], value: str | None) -> str:
    if value is not None and value in known:
        return value
    return next(iter(known))
