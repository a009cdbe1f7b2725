"""Usage reports by hour or day: the usage that a signed-in visitor may see, and its format.

The management API, its exports and the pages read usage only through this module.
"""

from collections.abc import Callable, Collection, Iterable, Mapping
from operator import add, itemgetter
from typing import Annotated, Any, NamedTuple, NotRequired, TypedDict

from msgspec import Meta

from gateway.accounts.keys import KeyInfo, list_keys
from gateway.accounts.members import list_members
from gateway.accounts.teams import list_teams
from gateway.metering.activity import ActivityScope, Dimension, Owners, measure, measure_columns, merge
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import Row, StepColumns, at_once
from gateway.money import NANO, usd_number
from gateway.neutral.units import UNITS, Figure
from gateway.runtime.threads import compute_if
from gateway.surfaces.visitors.report_windows import MAX_DAYS, RANGES, ReportRange, read_window
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, QueryInteger, TextField, read_fields
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import describe_answer

# Answers of usage reports: figures of hours and days, of apps, and of the parts of a breakdown.

# Figures of units, which the writers add to each hour or day.
UNIT_COUNTS = tuple(dict.fromkeys(figure for unit in UNITS for figure in unit.figures))
UNIT_COSTS = tuple(dict.fromkeys(unit.cost for unit in UNITS if unit.cost))


class ShortFigures(TypedDict):
    requestCount: int
    inputTokens: int
    outputTokens: int
    totalTokens: int
    cost: Annotated[float, Meta(description="In US dollars, like all costs.")]
    discountSavings: float


class SplitFigures(TypedDict):
    """Figures of requests that credits paid for, and of requests with provider keys of the organization."""

    creditsRequestCount: int
    apiKeysRequestCount: int
    creditsCost: float
    apiKeysCost: float


class ActivityPart(ShortFigures):
    """A part of an hour or day: a model, an API key or a person."""

    id: str
    provider: NotRequired[str]
    description: NotRequired[str]
    email: NotRequired[str]


class ActivitySource(ShortFigures, SplitFigures):
    source: str
    lastUsedAt: Annotated[str, Meta(extra_json_schema={"format": "date-time"})]


class LatencyPercentiles(TypedDict):
    """Milliseconds that half of the calls, and 95 % of them, did not exceed."""

    p50: int
    p95: int


class ActivityLatency(TypedDict):
    """The latency of the answered upstream calls of a model at a provider."""

    provider: str
    model: str
    calls: int
    durationMs: LatencyPercentiles
    timeToFirstTokenMs: LatencyPercentiles | None


class ActivityStep(ShortFigures, SplitFigures):
    date: str
    errorCount: int
    clientErrorCount: int
    errorRate: Annotated[float, Meta(description="In percent of the requests.")]
    cacheCount: int
    cacheRate: Annotated[float, Meta(description="In percent of the requests.")]
    dataStorageCost: float
    creditsDataStorageCost: float
    apiKeysDataStorageCost: float
    modelBreakdown: list[ActivityPart]
    apiKeyBreakdown: list[ActivityPart]
    userBreakdown: NotRequired[list[ActivityPart]]


class ActivityReport(TypedDict):
    activity: list[Any]
    granularity: NotRequired[str]


def describe_report() -> dict[str, Any]:
    """Return the JSON schema of a report, including the figures of units."""
    step = describe_answer(ActivityStep)
    counts = {figure.member: {"type": "integer" if figure.divisor == 1 else "number"} for figure in UNIT_COUNTS}
    members = {**counts, **{figure.member: {"type": "number"} for figure in UNIT_COSTS}}
    step = {
        **step,
        "properties": {**step["properties"], **members},
        "required": list(dict.fromkeys([*step["required"], *members])),
    }
    report = describe_answer(ActivityReport)
    return {**report, "properties": {**report["properties"], "activity": {"type": "array", "items": step}}}


DIMENSIONS: dict[str, Dimension] = {"model": "model", "apiKey": "api_key", "user": "api_key"}
# Figures in breakdowns.
SHORT_FIGURES = ("requests", "input_tokens", "output_tokens", "cost_nusd", "discount_nusd")
# Writing more parts than this takes milliseconds.
THREAD_PARTS = 1_000
TOTALS_PARTS = 10  # parts that take as long to write as all figures of an hour or day
# Columns of a part: its value, then SHORT.
SUM_VALUE = itemgetter(0)
SUM_COST = itemgetter(1 + SHORT_FIGURES.index("cost_nusd"))
MAX_DATE_LENGTH = 40  # characters of an invalid value that are examined
BREAKDOWNS = {"model": "modelBreakdown", "apiKey": "apiKeyBreakdown", "user": "userBreakdown"}
NO_PARTS: dict[str, Any] = {"modelBreakdown": (), "apiKeyBreakdown": ()}

Part = tuple[Any, ...]
Describe = Callable[[tuple[str, ...]], dict[str, Any]]


class ActivityQuery(Body):
    projectId = TextField(1, 80, about="Only usage of this project; default: all that you may see.")
    apiKeyId = TextField(1, 80, about="Only usage of this API key.")
    groupBy = OneOf(tuple(DIMENSIONS), load_default="model")
    timeRange = OneOf(tuple(RANGES), about="A time until now, instead of days, from and to.")
    days = QueryInteger(1, MAX_DAYS, about="This many days until today.")
    first = TextField(1, MAX_DATE_LENGTH, data_key="from", about="The first day, like 2026-01-31.")
    last = TextField(1, MAX_DATE_LENGTH, data_key="to", about="The last day; default: today.")
    timezone = TextField(1, 64, load_default="UTC", about="The zone of the days, like Europe/Berlin; default: UTC.")


class UsageScope(NamedTuple):
    """The usage that a visitor may see: `owners` have all of it, `keys` those by which it is split, by id."""

    owners: Owners
    keys: Mapping[str, KeyInfo]

    @property
    def by_key(self) -> Owners:
        """Return the owners of the same usage by key."""
        return Owners(key_ids=tuple(self.keys))


def scope_of(visitor: Visitor, project_id: str | None, key_id: str = "") -> UsageScope:
    """Return what the visitor may see of a project, or of all accessible ones, or of a key there."""
    places = places_of(visitor, project_id)
    keys = _keys(visitor, places, [key_id] if key_id else None)
    if key_id and key_id not in keys:
        visitor.key(key_id)
    return UsageScope(_scopes(places, keys, key_id), keys)


def usage_of(visitor: Visitor, asked: Mapping[str, str]) -> ActivityReport:
    """Return the response to GET /activity with these parameters: usage of a project or of all accessible ones; for a
    developer only that of their own keys."""
    given = read_fields(ActivityQuery, asked)
    window = read_window(given, visitor.services.clock.now_us())
    group = given["groupBy"]
    scope = scope_of(visitor, given.get("projectId"), given.get("apiKeyId", ""))
    apart = scope.owners if group == "model" else scope.by_key
    keys = scope.keys
    database = visitor.services.store.database

    def read() -> tuple[list[Row], list[StepColumns]]:
        totals = measure(database, scope.owners, window.span, "total")
        return totals, measure_columns(database, apart, window.span, DIMENSIONS[group], SHORT_FIGURES)

    totals, parts = at_once(database, read)
    describe = _describer(visitor, group, keys)
    if group == "user":
        users = {key: describe((info.member_id,))["id"] for key, info in keys.items()}
        parts = [part._replace(dimensions=[[users[f"key_{owner}"] for owner in part.dimensions[0]]]) for part in parts]
    many = len(totals) * TOTALS_PARTS + sum(len(part.figures[0]) for part in parts) > THREAD_PARTS
    body: ActivityReport = {"activity": compute_if(many, write_rows, totals, parts, window, group, describe)}
    if "timeRange" in given:
        body["granularity"] = window.granularity
    return body


def apps_of(visitor: Visitor, asked: Mapping[str, str]) -> dict[str, list[dict[str, Any]]]:
    """Return the usage by app of each hour or day of a window, in the form of a breakdown and with the scope of
    `usage_of`. Requests without an app have an empty id."""
    given = read_fields(ActivityQuery, asked)
    window = read_window(given, visitor.services.clock.now_us())
    owners = owners_of(visitor, given.get("projectId"))
    database = visitor.services.store.database
    known = visitor.services.accounts.sources
    rows = at_once(database, lambda: measure(database, owners, window.span, "source", SHORT_FIGURES))
    breakdown: dict[str, list[dict[str, Any]]] = {}
    for row in merge(rows, [(known.canonical(row.value[0]),) for row in rows]):
        app = row.value[0]
        breakdown.setdefault(window.label(row.step), []).append(
            {"id": app, "description": app, **write_short(row.figures)}
        )
    return breakdown


def _scopes(places: list[ActivityScope], keys: Mapping[str, KeyInfo], key_id: str) -> Owners:
    """Return whole projects where the visitor may see them, the visitor's keys in other projects, or only the requested
    key."""
    if key_id:
        return Owners(key_ids=(key_id,) if key_id in keys else ())
    whole = {project_id for place in places if not place.member_id for project_id in place.project_ids}
    own = tuple(key.id for key in keys.values() if key.project_id not in whole)
    return Owners(tuple(sorted(whole)), own)


def write_rows(
    totals: list[Row], parts: list[StepColumns], window: ReportRange, group: str, describe: Describe
) -> list[dict[str, Any]]:
    """Return an object for each hour or day that has rows, and for each of the window when it is padded. `parts` hold
    SHORT for each value of the breakdown; there may be tens of thousands."""
    days: dict[str, ActivityFigures] = {}
    labels = {step: window.label(step) for step in {row.step for row in totals}}
    for row in totals:
        days.setdefault(labels[row.step], ActivityFigures()).add(row.figures)
    by_label: dict[str, list[StepColumns]] = {}
    for part in parts:
        by_label.setdefault(labels[part.step], []).append(part)
    described: dict[tuple[str, ...], dict[str, Any]] = {}
    written = []
    for label in sorted({*window.padding, *days}):
        if label not in days:
            written.append({"date": label, **UNUSED_DAY, BREAKDOWNS[group]: ()})
            continue
        lines = [part for columns in by_label.get(label, ()) for part in _parts_of(columns)]
        described.update((part[0], describe(part[0])) for part in lines if part[0] not in described)
        breakdown = _write_parts(_merge_parts(lines), described)
        written.append({"date": label, **write_figures(days[label]), **NO_PARTS, BREAKDOWNS[group]: breakdown})
    return written


def _parts_of(columns: StepColumns) -> Iterable[Part]:
    return zip(zip(*columns.dimensions, strict=True), *columns.figures, strict=True)


def _merge_parts(parts: list[Part]) -> list[Part]:
    """Merge parts with the same value and sort them by cost, highest first."""
    if len({part[0] for part in parts}) < len(parts):
        merged: dict[tuple[str, ...], tuple[int, ...]] = {}
        for value, *figures in parts:
            known = merged.get(value)
            if known is None:
                merged[value] = tuple(figures)
            else:
                merged[value] = tuple(map(add, known, figures))
        parts = [(value, *figures) for value, figures in merged.items()]
    parts.sort(key=SUM_VALUE)
    parts.sort(key=SUM_COST, reverse=True)
    return parts


def _write_parts(parts: list[Part], described: Mapping[tuple[str, ...], dict[str, Any]]) -> list[dict[str, Any]]:
    return [
        {
            **described[value],
            "requestCount": requests,
            "inputTokens": tokens_in,
            "outputTokens": tokens_out,
            "totalTokens": tokens_in + tokens_out,
            "cost": cost / NANO,
            "discountSavings": saved / NANO,
        }
        for value, requests, tokens_in, tokens_out, cost, saved in parts
    ]


def write_figures(figures: ActivityFigures) -> dict[str, Any]:
    """Return all figures as numbers, money in USD, rates in percent of requests."""
    count = figures.requests
    usd = usd_number
    return {
        **write_short(figures),
        **write_split(figures),
        "errorCount": figures.errors,
        "clientErrorCount": figures.client_errors,
        "errorRate": _percent(figures.errors, count),
        "cacheCount": figures.cached_requests,
        "cacheRate": _percent(figures.cached_requests, count),
        **{figure.member: usd(getattr(figures, figure.column)) for figure in UNIT_COSTS},
        **{figure.member: _quantity(figures, figure) for figure in UNIT_COUNTS},
        "dataStorageCost": usd(figures.storage_nusd),
        "creditsDataStorageCost": usd(figures.storage_nusd - figures.byok_storage_nusd),
        "apiKeysDataStorageCost": usd(figures.byok_storage_nusd),
    }


def _quantity(figures: ActivityFigures, figure: Figure) -> float:
    count: int = getattr(figures, figure.column)
    if figure.divisor == 1:
        return count
    return count / figure.divisor


def write_short(figures: ActivityFigures) -> ShortFigures:
    return {
        "requestCount": figures.requests,
        "inputTokens": figures.input_tokens,
        "outputTokens": figures.output_tokens,
        "totalTokens": figures.input_tokens + figures.output_tokens,
        "cost": usd_number(figures.cost_nusd),
        "discountSavings": usd_number(figures.discount_nusd),
    }


def write_split(figures: ActivityFigures) -> SplitFigures:
    return {
        "creditsRequestCount": figures.requests - figures.byok_requests,
        "apiKeysRequestCount": figures.byok_requests,
        "creditsCost": usd_number(figures.cost_nusd - figures.byok_nusd),
        "apiKeysCost": usd_number(figures.byok_nusd),
    }


def _percent(part: int, whole: int) -> float:
    if whole:
        return part / whole * 100
    return 0.0


# An hour or day without requests, written once: a year has hundreds of them.
UNUSED_DAY: dict[str, Any] = {**write_figures(ActivityFigures()), **NO_PARTS}


def places_of(visitor: Visitor, project_id: str | None) -> list[ActivityScope]:
    """Return the usage that the visitor may see: whole projects, or the usage of their own keys and those of the teams
    that they lead."""
    if project_id is not None:
        project = visitor.project(project_id, "usage:read")
        return _places_in(visitor, project.organization_id, (project.id,))
    projects: dict[str, list[str]] = {}
    for project in visitor.projects():
        projects.setdefault(project.organization_id, []).append(project.id)
    return [
        place for organization_id, ids in projects.items() for place in _places_in(visitor, organization_id, tuple(ids))
    ]


def _places_in(visitor: Visitor, organization_id: str, project_ids: tuple[str, ...]) -> list[ActivityScope]:
    """Return projects that the visitor sees as a whole, and for each visible member the other projects."""
    mine = visitor.member(organization_id)
    reach = visitor.reach(organization_id, "usage:read")
    whole = tuple(ident for ident in project_ids if reach.whole or ident in reach.projects)
    rest = tuple(ident for ident in project_ids if ident not in whole)
    places = [ActivityScope(whole)] if whole else []
    if rest:
        seen = {mine.id} if reach.own else set()
        if reach.teams:
            listed = list_teams(visitor.services.store.database, organization_id)
            seen.update(member_id for team in listed if team.id in reach.teams for member_id in team.member_ids)
        places += [ActivityScope(rest, member_id) for member_id in sorted(seen)]
    return places


def owners_of(visitor: Visitor, project_id: str | None) -> Owners:
    """Return what the visitor may see of a project, or of all accessible ones: whole projects, or own keys."""
    places = places_of(visitor, project_id)
    return _scopes(places, _keys(visitor, [place for place in places if place.member_id], None), "")


def visible_keys(visitor: Visitor, among: Collection[str] | None = None) -> dict[str, KeyInfo]:
    """Return the keys with usage that the visitor may see, by id, including deleted keys; only those `among` some ids
    unless that is None."""
    return _keys(visitor, places_of(visitor, None), among)


def _keys(visitor: Visitor, places: list[ActivityScope], among: Collection[str] | None) -> dict[str, KeyInfo]:
    """Return the keys of the places by id, including deleted keys, since their history counts."""
    if among is None:
        return visitor.remember(("keys", tuple(places)), lambda: _read_keys(visitor, places, None))
    return _read_keys(visitor, places, among)


def _read_keys(visitor: Visitor, places: list[ActivityScope], among: Collection[str] | None) -> dict[str, KeyInfo]:
    database = visitor.services.store.database
    keys = [
        key
        for place in places
        for key in list_keys(
            database, project_ids=place.project_ids, key_ids=among, member_id=place.member_id, deleted=True
        )
    ]
    return {key.id: key for key in keys}


def _describer(visitor: Visitor, group: str, keys: Mapping[str, KeyInfo]) -> Describe:
    if group == "model":
        return lambda value: {"id": value[0], "provider": value[1]}
    if group == "apiKey":
        return lambda value: _describe_key(f"key_{value[0]}", keys)
    people = {
        ident: member
        for organization_id in visitor.memberships
        for member in list_members(visitor.services.store.database, organization_id, service_accounts=True)
        for ident in (member.id, member.user_id)
    }

    def describe(value: tuple[str, ...]) -> dict[str, Any]:
        member = people.get(value[0])
        if member is None:
            return {"id": value[0], "description": "", "email": ""}
        return {"id": member.user_id, "description": member.name or member.email, "email": member.email}

    return describe


def _describe_key(key_id: str, keys: Mapping[str, KeyInfo]) -> dict[str, Any]:
    return {"id": key_id, "description": keys[key_id].description if key_id in keys else key_id}
