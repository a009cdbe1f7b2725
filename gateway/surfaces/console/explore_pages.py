"""`/console/explore`: a measure of usage over time, by one or two groups, compared with an earlier period."""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlencode

from gateway.accounts.saved_views import SavedView
from gateway.clock import HOUR_US, from_datetime
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.rollup_table import HOURS
from gateway.metering.usage_table import raw_id
from gateway.reports.latency_percentiles import BUSIEST
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.choice_bar import build_bar, choose_period, choose_project
from gateway.surfaces.console.explore_periods import COMPARED_TEXTS, COMPARISONS, RANGES, write_hour
from gateway.surfaces.console.explore_questions import ExploreAnswer, UsageChoices, answer
from gateway.surfaces.console.explore_views import (
    KEPT,
    find_view,
    read_view,
    remove,
    save,
    send_now,
    show_subscriptions,
    show_views,
    subscribe,
    unsubscribe,
)
from gateway.surfaces.console.grouping import (
    GROUPS,
    PARAMETERS,
    GroupingScope,
    families_of,
    split_groups,
)
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import PageCall, page_operations, show_instead
from gateway.surfaces.console.plot_marks import Happening, find_happenings, place_marks
from gateway.surfaces.console.plots import BarLink, build_lines, build_plot, choose_colours
from gateway.surfaces.console.usage_measures import MEASURES, Measure
from gateway.surfaces.console.usage_reader import (
    NO_ACTIVITY,
    STEP_HOURS,
    PeriodUsage,
    UsageQuestion,
)
from gateway.surfaces.visitors.usage_report import THREAD_PARTS
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound
from gateway.worker.services import Services

TITLE = "Explore"
PATH = "/console/explore"
VIEW = "/console/explore/views/<view_id>"
LOGS = "/console/logs"
MAX_TAG_LENGTH = 64
DEFAULT_TAG = "team"  # the tag of a page without one, which no latest request has
SHORT_PERIOD = 31  # days or hours that are listed even without requests
UNKEPT = ("q", "page")  # parameters that end with another search
NEXT_GROUPS = ("model", "user", "apiKey", "app", "tag")  # by which the usage of one name is grouped

COLUMNS = (
    Column("Requests", "requestCount", numeric=True),
    Column("Tokens in / out", "tokens", numeric=True),
    Column("Spend", "cost", numeric=True),
)
PLAIN_MEASURES = {"spend": "cost", "requests": "requestCount", "tokens": "tokens"}  # those of COLUMNS, with their keys


def show(call: PageCall) -> Outbound:
    """Show a plot and the totals of a period, split by what the visitor chose, the largest first."""
    return _show(call, call.arguments, None)


def show_view(call: PageCall) -> Outbound:
    """Show a saved view."""
    view = find_view(call)
    return _show(call, read_view(view, call.arguments), view)


def remove_view(call: PageCall) -> Outbound:
    """Remove a saved view, and show Explore."""
    return show_instead(call, PATH, show, remove(call))


def _show(call: PageCall, arguments: dict[str, str], view: SavedView | None) -> Outbound:
    visitor = call.visitor
    answered = answer(visitor, arguments, strict=False)
    choices, question, usage = answered.choices, answered.question, answered.usage
    happenings = find_happenings(visitor, question.window, question.owners, answered.scope.keys)
    many = len(usage.names) + len(usage.names_before) > THREAD_PARTS
    figures = compute_if(many, _show_figures, answered, arguments, happenings)
    measure = MEASURES[choices.measure]
    step = "day" if question.bars is question.window else "week"
    if choices.period.is_of_hours:
        step = "hour"
    return call.page(
        "explore/explore.html",
        TITLE if view is None else view.name,
        path=PATH,
        logs=LOGS,
        extra=choices.measure not in PLAIN_MEASURES,
        zoom=_write_query(arguments, **dict.fromkeys((*UNKEPT, "timeRange", "from", "to"), "")) or "measure=spend",
        fields=_list_fields(answered),
        bar=build_bar(
            call.inbound,
            choose_project(visitor, choices.report.get("projectId", "")),
            choose_period(choices.period.name, RANGES.items()),
        ),
        project_id=choices.report.get("projectId", ""),
        filters=_list_filters(choices, arguments, answered.naming),
        groups=[GROUPS[group].label for group in choices.groups],
        tag=answered.tag,
        tags=answered.tags,
        by_tag="tag" in choices.groups,
        measure=measure,
        step=step,
        period=choices.period,
        busiest=BUSIEST,
        comparison=COMPARED_TEXTS[choices.comparison] or answered.other,
        models_compared=bool(answered.other),
        unanswered=answered.problem,
        compared_title=_title_comparison(answered),
        credits=_credits(call.services, visitor),
        export="" if answered.problem else _export_path(arguments, answered.tag),
        kept={name: value for name, value in arguments.items() if name not in UNKEPT},
        **show_views(call, arguments, view),
        **show_subscriptions(call, view),
        **figures,
    )


def _title_comparison(answered: ExploreAnswer) -> str:
    """Return the words that follow a value of the comparison."""
    if answered.other:
        return f"with {answered.other}"
    return "in the period before" if answered.choices.comparison == "before" else "in the earlier period"


def _list_fields(answered: ExploreAnswer) -> list[dict[str, Any]]:
    """Return the fields of the form, with the choices of each: value, text, and whether it is chosen, by section."""
    choices = answered.choices
    groups = {name: one.label for name, one in GROUPS.items()}
    splits = {"": "Nothing else"} | {name: one.label for name, one in split_groups(choices.group).items()}
    models = answered.models
    if answered.other and answered.other not in models:
        models = [answered.other, *models]
    sections: dict[str, dict[str, str]] = {}
    for name, one in MEASURES.items():
        sections.setdefault(one.section, {})[name] = one.label
    fields = (
        ("measure", "Measure", sections, choices.measure),
        ("groupBy", "By", {"": groups}, choices.group),
        ("splitBy", "And by", {"": splits}, choices.split),
        (
            "compare",
            "Compared with",
            {"": COMPARISONS},
            choices.comparison,
        ),
        *([("compareModel", "Model", {"": {name: name for name in models}}, answered.other)] if models else []),
    )
    return [
        {"name": name, "label": label, "sections": known, "chosen": chosen} for name, label, known, chosen in fields
    ]


def _list_filters(choices: UsageChoices, arguments: Mapping[str, str], naming: GroupingScope) -> list[dict[str, str]]:
    """Return the filters in force, each with its parameter, value, text, and the query of the page without it."""
    shown = [(one.parameter, value, f"{GROUPS[one.group].label}: {value}") for one, value in choices.filters.items()]
    for one, value in choices.filters.items():
        if one.group == "user":
            name = GROUPS["user"].find_name(naming)
            people = (name((raw_id(ident),)) for ident in naming.keys)
            text = next((person.name for person in people if person.id == value), value)
            shown = [(name, v, f"Person: {text}" if name == "userId" else label) for name, v, label in shown]
    key_id = choices.report.get("apiKeyId", "")
    if key_id:
        description = naming.keys[key_id].description if key_id in naming.keys else ""
        shown.append(("apiKeyId", key_id, f"API key: {description or key_id}"))
    return [
        {"name": name, "value": value, "text": text, "without": _write_query(arguments, **{name: ""})}
        for name, value, text in shown
    ]


def _export_path(arguments: Mapping[str, str], tag: str) -> str:
    """Return the path of the CSV with the names of the page: with the same filters, groups and period."""
    chosen = {name: value for name, value in arguments.items() if name in KEPT and name != "sort"}
    return f"/activity/explore/export?{_write_query(chosen, tag=tag)}"


def _show_figures(
    answered: ExploreAnswer, arguments: Mapping[str, str], happenings: Sequence[Happening]
) -> dict[str, Any]:
    """Return the plot, the totals and the rows of both tables."""
    question, usage, times, choices = answered.question, answered.usage, answered.times, answered.choices
    measure, labels = question.measure, question.bars.padding
    steps = [(label, usage.steps.get(label, NO_ACTIVITY)) for label in labels]
    listed = [(label, sums) for label, sums in reversed(steps) if sums.requests or len(steps) <= SHORT_PERIOD]
    total = ActivityFigures()
    for _, sums in steps:
        total.add(sums)
    compared = bool(usage.before.requests)
    shown_before = _write(measure, usage.before)
    columns = [Column(GROUPS[choices.group].label, "name")]
    if choices.split:
        columns.append(Column(GROUPS[choices.split].label, "second"))
    if choices.measure not in PLAIN_MEASURES:
        columns.append(Column(measure.label, "value", numeric=True))
    columns += COLUMNS
    if compared and times is None and question.names_compared and not question.is_of_sessions:
        columns.append(Column("Change", "change", numeric=True))
    draw = build_lines if measure.is_ratio else build_plot
    links = link_bars(question, choices)
    marks = place_marks(happenings, span_bars(question))
    queries = {label: link.query for label, link in zip(labels, links, strict=True)}
    shown_total = _write(measure, total)
    shown_steps = [{"date": label, "query": queries[label], **_write(measure, sums)} for label, sums in listed]
    rows = _list_rows(question, usage)
    if times is not None:
        shown_total["value"] = times.total
        shown_before["value"] = times.before
        for step in shown_steps:
            step["value"] = times.steps[step["date"]]
        for row in rows:
            row["value"] = times.names.get(row["ident"])
    parts = arrange(
        rows,
        tuple(columns),
        arguments,
        searched=("name", "second"),
        sort=f"-{PLAIN_MEASURES.get(choices.measure, 'value')}",
    )
    _link_names(parts.rows, question, choices, arguments)
    return {
        "plot": draw(labels, usage.series, measure.write, choose_colours(usage.series), links, usage.line, marks),
        "happenings": happenings,
        "queries": _find_queries(usage),
        "changes": columns[-1].key == "change",
        "compared": compared,
        "total": shown_total,
        "before": shown_before,
        "parts": parts,
        "steps": shown_steps,
    }


def _write(measure: Measure, figures: ActivityFigures) -> dict[str, Any]:
    """Return the figures of a line by the names in the template; money in nano-dollars."""
    return {
        "value": measure.value(figures),
        "requestCount": figures.requests,
        "errorCount": figures.errors,
        "cacheCount": figures.cached_requests,
        "inputTokens": figures.input_tokens,
        "outputTokens": figures.output_tokens,
        "tokens": figures.input_tokens + figures.output_tokens,
        "cost": figures.cost_nusd,
        "apiKeysCost": figures.byok_nusd,
        "discountSavings": figures.discount_nusd,
    }


def _list_rows(question: UsageQuestion, usage: PeriodUsage) -> list[dict[str, Any]]:
    """Return a row for each name, the busiest of equal value first, with the value of the measure in the other
    period."""
    rows = []
    for ident, (named, sums) in usage.names.items():
        pair = named.pair or (named,)
        before = usage.names_before[ident].figures if ident in usage.names_before else NO_ACTIVITY
        shown = _write(question.measure, sums)
        value_before = question.measure.value(before)
        change = (shown["value"] or 0) / value_before if value_before else None
        names = {"name": pair[0].name, "second": pair[-1].name, "named": named, "ident": ident}
        rows.append({**shown, **names, "before": value_before, "change": change})
    return sorted(rows, key=lambda row: (-row["requestCount"], row["name"], row["second"]))


def _link_names(
    rows: Iterable[dict[str, Any]], question: UsageQuestion, choices: UsageChoices, arguments: Mapping[str, str]
) -> None:
    """Add to each row the query that finds its requests, and that of the page that shows only its name."""
    span = question.window.span
    logs = {**_log_filters(choices), **_write_times(choices, span.first, span.end)}
    narrow = _narrow(choices, arguments)
    for row in rows:
        filters = row["named"].filters
        row["query"] = row["narrow"] = ""
        if filters and filters.keys() <= PARAMETERS:
            row["narrow"] = _write_query(narrow, **filters)
        if filters and "team" not in {**filters, **logs}:
            row["query"] = _write_query({**filters, **logs, **filters})


def _narrow(choices: UsageChoices, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of the page that shows only one name: grouped by what it is not grouped by yet."""
    kept = {name: value for name, value in arguments.items() if name not in (*UNKEPT, "splitBy", "sort", "groupBy")}
    used = {*choices.groups, *(one.group for one in choices.filters)}
    # Statistics answer a group of the same family, or of keys, at once; other combinations are summed from usage rows.
    families = {GROUPS[group].family for group in choices.groups} | families_of(choices.filters)
    quick = [name for name in NEXT_GROUPS if len((families | {GROUPS[name].family}) - {""}) <= 1]
    group = next((name for name in quick if name not in used), choices.group)
    return {**kept, "groupBy": group}


def _find_queries(usage: PeriodUsage) -> dict[str, str]:
    """Return the filters of the request log of each name in the plot, as a query."""
    filters = {named.name: named.filters for named, _ in usage.names.values()}
    shown = {name: filters.get(name, {}) for name in usage.series}
    return {name: urlencode(found) for name, found in shown.items() if found and "team" not in found}


def span_bars(question: UsageQuestion) -> list[tuple[int, int]]:
    """Return the hours [first, end) since the epoch of each bar."""
    span, hours = question.window.span, STEP_HOURS[question.bars.span.step]
    starts = [from_datetime(datetime.fromisoformat(label).replace(tzinfo=UTC)) for label in question.bars.padding]
    return [(max(span.first, at // HOUR_US), min(span.end, at // HOUR_US + hours)) for at in starts]


def link_bars(question: UsageQuestion, choices: UsageChoices) -> list[BarLink]:
    """Return for each bar its first and last day or hour, and the query that finds its requests."""
    filters = _log_filters(choices) | ({"failed": "true"} if "errors" in MEASURES[choices.measure].figures else {})
    links = []
    hours = STEP_HOURS[question.bars.span.step]
    for first, end in span_bars(question):
        times = (write_hour(first), write_hour(end - 1))
        if hours > 1:
            times = (times[0][:10], times[1][:10])
        query = "" if "team" in filters else urlencode({**filters, "from": _write_time(first), "to": _write_time(end)})
        links.append(BarLink(*times, query))
    return links


def _log_filters(choices: UsageChoices) -> dict[str, str]:
    """Return the filters of the page as those of the request log; it has none for teams."""
    owned: dict[str, str] = {name: choices.report[name] for name in ("projectId", "apiKeyId") if name in choices.report}
    return {**owned, **{one.parameter: value for one, value in choices.filters.items()}}


def _write_times(choices: UsageChoices, first: int, end: int) -> dict[str, str]:
    """Return the filters of the request log of the period; one that lasts until now has no end."""
    if choices.period.is_custom:
        return {"from": _write_time(first), "to": _write_time(end)}
    return {"from": _write_time(first)}


def _write_time(hour: int) -> str:
    """Return an hour as a day where one begins, else as a time."""
    text = write_hour(hour)
    return text[:10] if hour % HOURS == 0 else f"{text}:00:00"


def _write_query(arguments: Mapping[str, str], **changes: str) -> str:
    given = {**arguments, **changes}
    return urlencode({name: value for name, value in given.items() if value != ""})


def _credits(services: Services, visitor: Visitor) -> list[tuple[str, int | None]]:
    """Return the name and remaining credits of each organization that the visitor manages; None: unlimited."""
    credits = []
    for organization in visitor.organizations():
        if visitor.manages("credits:read", organization.id):
            balance = services.management.ledger.balance(organization.id)
            credits.append((organization.name, None if balance.unlimited else balance.balance_nusd))
    return credits


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show, {"save_view": save}),
    *page_operations(
        VIEW,
        show_view,
        {"remove_view": remove_view, "subscribe": subscribe, "unsubscribe": unsubscribe, "send_now": send_now},
    ),
)
