"""`/activity/explore`: the figures of the console's page Explore, as JSON and as a file: a measure by one or two
groups, with filters, and compared with an earlier period or with another model."""

from typing import Annotated, Any

from msgspec import Meta, to_builtins

from gateway.metering.figures import ActivityFigures
from gateway.money import format_usd
from gateway.surfaces.console.explore_periods import COMPARISONS, RANGES
from gateway.surfaces.console.explore_questions import ExploreAnswer, answer
from gateway.surfaces.console.grouping import GROUPS
from gateway.surfaces.console.usage_measures import HUNDREDTHS, MEASURES, Measure
from gateway.surfaces.console.usage_reader import NO_ACTIVITY, NameKey
from gateway.surfaces.management.access_groups import anywhere
from gateway.surfaces.management.exports import download
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors import tabular as tabular_module
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, TextField
from gateway.surfaces.web.answer_structs import Answer, Usd
from gateway.surfaces.web.http import Operation, Outbound

TAG = "Activity"
MAX_VALUE_LENGTH = 400
UNITS = {
    "usd": "US dollars",
    "count": "count",
    "percent": "percent",
    "ms": "milliseconds",
    "speed": "tokens per second",
}
DIMENSION = "What the usage is grouped by"


def _filter(about: str) -> TextField:
    return TextField(1, MAX_VALUE_LENGTH, about=about)


class ExploreQuery(Body):
    measure = OneOf(tuple(MEASURES), about="What is measured; default: spend.")
    groupBy = OneOf(tuple(GROUPS), about=f"{DIMENSION}; default: model.")
    splitBy = OneOf(tuple(GROUPS), about=f"{DIMENSION} in addition; default: nothing.")
    tag = TextField(1, 64, about="The name of the tag with groupBy=tag or splitBy=tag; default: team.")
    timeRange = OneOf(tuple(RANGES), about="A time until now; custom: the time from `from` to `to`. Default: 7d.")
    first = TextField(1, 13, data_key="from", about="The first day (UTC) like 2026-01-31, or hour like 2026-01-31T14.")
    last = TextField(1, 13, data_key="to", about="The last day or hour.")
    compare = OneOf(tuple(COMPARISONS), about="What it is compared with; default: the period before.")
    compareModel = TextField(1, 255, about="The other model, like openai/gpt-5, with compare=model.")
    projectId = TextField(1, 80, about="Only usage of this project.")
    apiKeyId = TextField(1, 80, about="Only usage of this API key.")
    userId = _filter("Only usage of this person.")
    team = _filter("Only usage of the members of the team with this name.")
    model = _filter("Only usage of this model, like openai/gpt-5.")
    provider = _filter("Only usage of this provider.")
    source = _filter("Only usage of this app.")
    session = _filter("Only usage of this session.")
    operation = _filter("Only this operation, like embeddings.")
    errorCode = _filter("Only attempts that failed with this code.")
    metadata = _filter("Only usage with this tag, like team:search.")


class ExploreExportQuery(ExploreQuery):
    format = OneOf(tabular_module.FORMATS, load_default=tabular_module.CSV, about="csv or jsonl.")


class ExploreNameAnswer(Answer):
    """The usage of a name of each group. `value` is that of the measure, null for a ratio of nothing; `before` that of
    the comparison."""

    columns = ("names", "value", "request_count", "cost")
    names: Annotated[list[str], Meta(examples=[["openai/gpt-5", "Search"]])]
    value: float | None
    before: float | None
    request_count: int
    input_tokens: int
    output_tokens: int
    cost: Usd


class ExploreStepAnswer(Answer):
    """The usage of an hour, a day or a week (`at` is its begin, UTC)."""

    at: Annotated[str, Meta(examples=["2026-01-31"])]
    value: float | None
    request_count: int
    cost: Usd


class ExploreFiguresAnswer(Answer):
    """`unit` is that of values. `cost` is exact; values of costs are the same amounts as numbers."""

    measure: str
    unit: Annotated[str, Meta(examples=["US dollars"])]
    groups: Annotated[list[str], Meta(examples=[["Model", "Team"]])]
    value: float | None
    before: float | None
    request_count: int
    cost: Usd
    names: list[ExploreNameAnswer]
    steps: list[ExploreStepAnswer]


def _value(measure: Measure, value: int | None) -> float | None:
    """Return a value in the unit of the answer."""
    if value is None:
        return None
    if measure.kind == "usd":
        return float(format_usd(value))
    return value / HUNDREDTHS if measure.kind in ("percent", "speed") else value


def _show(answered: ExploreAnswer) -> ExploreFiguresAnswer:
    question, usage, times = answered.question, answered.usage, answered.times
    measure = question.measure
    total = ActivityFigures()
    for figures in usage.steps.values():
        total.add(figures)
    before = None
    if times is not None:
        before = times.before
    elif question.earlier is not None:
        before = measure.value(usage.before)
    steps = [
        ExploreStepAnswer(
            label,
            _value(measure, times.steps.get(label) if times is not None else measure.value(figures)),
            figures.requests,
            format_usd(figures.cost_nusd),
        )
        for label in question.bars.padding
        for figures in (usage.steps.get(label, NO_ACTIVITY),)
    ]
    return ExploreFiguresAnswer(
        answered.choices.measure,
        UNITS[measure.kind],
        [GROUPS[group].label for group in answered.choices.groups],
        _value(measure, measure.value(total) if times is None else times.total),
        _value(measure, before),
        total.requests,
        format_usd(total.cost_nusd),
        [_show_name(answered, ident) for ident in _rank(answered)],
        steps,
    )


def _rank(answered: ExploreAnswer) -> list[NameKey]:
    """Return the names, the largest first."""
    measure, names = answered.question.measure, answered.usage.names
    return sorted(names, key=lambda ident: (-measure.size(names[ident].figures), ident))


def _show_name(answered: ExploreAnswer, ident: NameKey) -> ExploreNameAnswer:
    measure, usage, times = answered.question.measure, answered.usage, answered.times
    named, figures = usage.names[ident]
    known = usage.names_before.get(ident)
    return ExploreNameAnswer(
        [one.name for one in named.pair or (named,)],
        _value(measure, times.names.get(ident) if times is not None else measure.value(figures)),
        None if known is None or times is not None else _value(measure, measure.value(known.figures)),
        figures.requests,
        figures.input_tokens,
        figures.output_tokens,
        format_usd(figures.cost_nusd),
    )


def _arguments(fields: dict[str, Any]) -> dict[str, str]:
    """Return the parameters of the page, by their names in its query."""
    given = {"from": fields.get("first"), "to": fields.get("last"), **fields}
    if "first" in fields or "last" in fields:
        given.setdefault("timeRange", "custom")
    return {name: value for name, value in given.items() if value and name not in ("first", "last", "format")}


def explore(call: ManagedCall[None]) -> ExploreFiguresAnswer:
    """The figures of the console's page Explore, of the usage that you may see. The sums are those of `/activity`. A
    combination of which the statistics keep no sums, such as model and error code, is summed from the stored requests:
    it is a 400 with the reason where these are not stored any more, or too many."""
    return _show(answer(call.visitor, _arguments(call.fields)))


def export_explore(call: ManagedCall[None]) -> Outbound:
    """The names of the same as CSV or JSON lines, with exact amounts."""
    fields = dict(call.fields)
    form = fields.pop("format")
    shown = _show(answer(call.visitor, _arguments(fields)))
    unit = f"{MEASURES[shown.measure].label} ({shown.unit})"
    rows = [_write_row(shown, to_builtins(name), unit) for name in shown.names]
    columns = (*shown.groups, unit, f"{unit} before", *COLUMNS)
    pieces = tabular_module.write_rows([rows], columns, form)
    return download(
        call.visitor, sorted(call.visitor.memberships), f"explore.{form}", tabular_module.MEDIA[form], pieces
    )


COLUMNS = ("requestCount", "inputTokens", "outputTokens", "cost")


def _write_row(shown: ExploreFiguresAnswer, name: dict[str, Any], unit: str) -> dict[str, Any]:
    groups = dict(zip(shown.groups, name["names"], strict=True))
    return {**groups, unit: name["value"], f"{unit} before": name["before"], **{one: name[one] for one in COLUMNS}}


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/activity/explore", explore, "Explore usage by two groups", tag=TAG, who=anywhere("usage:read"),
            scope="usage:read", query=ExploreQuery),
    managed("GET", "/activity/explore/export", export_explore, "Export usage by two groups", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read", query=ExploreExportQuery, errors=(429,),
            media=tabular_module.MEDIA[tabular_module.CSV], also=(tabular_module.MEDIA[tabular_module.JSON_LINES],)),
)  # fmt: skip
