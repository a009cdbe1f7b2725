"""`/console/logs`: the request log with filters and a live view."""

from collections.abc import Collection, Mapping, Sequence
from http import HTTPStatus
from typing import Any, NamedTuple
from urllib.parse import urlencode

from msgspec import to_builtins
from msgspec.structs import replace

from gateway.accounts.chosen_columns import choose_columns, find_columns
from gateway.accounts.members import list_members
from gateway.accounts.saved_views import LOGS, SavedView
from gateway.catalogue.entries import Provider
from gateway.errors import GatewayError
from gateway.metering.activity import measure
from gateway.metering.log.records import LoggedRequest
from gateway.metering.rollups.queries import at_once
from gateway.surfaces.console.choice_bar import build_bar, choose_period, choose_project
from gateway.surfaces.console.explore_periods import read_period
from gateway.surfaces.console.explore_views import find_view, read_view, remove, save, show_views
from gateway.surfaces.console.grouping import NO_APP
from gateway.surfaces.console.page_calls import PageCall, page_operations, show_instead
from gateway.surfaces.console.request_details import level_of, name_provider
from gateway.surfaces.console.request_histogram import plot_requests
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.log_answers import show_request
from gateway.surfaces.visitors.request_log_reader import LogsPageQuery, LogsQuery
from gateway.surfaces.visitors.usage_report import owners_of, visible_keys
from gateway.surfaces.visitors.validation_schemas import read_query
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Requests"
PATH = "/console/logs"
# Rows of a page, and of the live view, which is read again every second.
ROWS = 50
LIVE_ROWS = 25
LIST_ID = "list"
SUGGESTING = ("model", "provider", "status", "source")
SUGGESTED = 500  # names of a field at most
STATUSES = [(str(status.value), status.phrase) for status in HTTPStatus if status == HTTPStatus.OK or status >= 400]
# Name of a further filter → label and placeholder.
FURTHER_FILTERS = {
    "errorCode": ("Error code", "upstream_timeout"),
    "operation": ("Operation", "embeddings"),
    "requestId": ("x-request-id", ""),
    "metadata": ("Metadata", "team:search"),
    "session": ("Session", ""),
    "minDurationMs": ("A call took at least, ms", "10000"),
    "minCost": ("A call cost at least, USD", "0.1"),
    "from": ("From (UTC)", "2026-01-31T14:00"),
    "to": ("Before (UTC)", "2026-02-01"),
}
# The filters that a click sets or removes.
CHIPS = (
    ("Failed", "failed", "true"),
    ("Answered", "noError", "true"),
    ("No session", "noSession", "true"),
    ("Slow", "minDurationMs", "10000"),
    ("Expensive", "minCost", "0.1"),
)
PERIODS = {"1h": "Last hour", "24h": "Last 24 hours", "7d": "Last 7 days", "30d": "Last 30 days"}
NO_NAMES: Mapping[str, str] = {}
FILTERS = tuple(field.data_key or name for name, field in LogsQuery().fields.items())


class LogColumn(NamedTuple):
    """A column of the list that people choose. `usual`: it is shown as long as they choose none."""

    name: str
    title: str
    style: str
    usual: bool = True


COLUMNS = (
    LogColumn("key", "API key", "more"),
    LogColumn("person", "Person", "brief extra"),
    LogColumn("app", "App", "brief extra late"),
    LogColumn("project", "Project", "brief chosen", False),
    LogColumn("operation", "Operation", "brief chosen", False),
    LogColumn("session", "Session", "brief chosen", False),
    LogColumn("label", "x-request-id", "brief chosen", False),
    LogColumn("tags", "Metadata", "brief chosen", False),
    LogColumn("finish", "Finish reason", "brief chosen", False),
    LogColumn("tokens", "Tokens in / out", "number"),
    LogColumn("cached", "From cache", "number chosen", False),
    LogColumn("first", "First token", "number chosen", False),
    LogColumn("duration", "Duration", "number figure"),
    LogColumn("cost", "Cost", "number amount"),
)
MAX_TAGS_LENGTH = 200


def show_list(call: PageCall) -> Outbound:
    """Show the newest requests that match the filters, with a link to older requests."""
    return _show_list(call, None)


def show_view(call: PageCall) -> Outbound:
    """Show the requests of a saved view."""
    view = find_view(call, LOGS)
    query = urlencode(read_view(view, call.arguments))
    return _show_list(replace(call, inbound=replace(call.inbound, query=query)), view)


def remove_saved(call: PageCall) -> Outbound:
    """Remove a saved view, and show all requests."""
    return show_instead(call, PATH, show_list, remove(call, LOGS))


def save_filters(call: PageCall) -> str:
    """Save the filters of the page with a name."""
    return save(call, LOGS, FILTERS)


def change_columns(call: PageCall) -> str:
    """Keep the columns that the visitor chose; the usual ones are not kept."""
    chosen = [column.name for column in COLUMNS if f"column-{column.name}" in call.form]
    if chosen == [column.name for column in COLUMNS if column.usual]:
        chosen = []
    choose_columns(call.services.store.database, call.visitor.user_id, LOGS, chosen)
    return "The columns are changed."


def _columns_of(call: PageCall) -> list[LogColumn]:
    names = find_columns(call.services.store.database, call.visitor.user_id, LOGS)
    if not names:
        return [column for column in COLUMNS if column.usual]
    # Chosen ones are not hidden where there is little room.
    return [one._replace(style=one.style.replace(" extra", "")) for one in COLUMNS if one.name in names]


def _show_list(call: PageCall, view: SavedView | None) -> Outbound:
    visitor = call.visitor
    arguments = call.arguments
    live = arguments.get("live") == "1"
    shown: dict[str, Any] = {"rows": [], "older": ""}
    is_whole = call.inbound.header("hx-target") != LIST_ID  # the live view reads only the list again
    keys = _name_keys(visitor) if is_whole else {}
    people = _people_of(visitor)
    try:
        log_page = request_log_reader_module.read_page(
            visitor, read_query(LogsPageQuery, call.inbound), call.inbound, LIVE_ROWS if live else ROWS
        )
        named = keys or _name_keys(visitor, _list_key_ids(log_page.requests))
        names = {**named, **{f"mem_{ident}": name for ident, (_, name) in people.items()}}
        providers = call.services.routing.catalogue.current().providers
        projects = dict(_projects_of(visitor))
        shown["rows"] = [_show_row(request, names, providers, projects) for request in log_page.requests]
        cursor = request_log_reader_module.write_cursor(log_page)
        if cursor is not None and not live:
            shown["older"] = "?" + urlencode({**arguments, "cursor": cursor})
    except GatewayError as error:
        if error.blame != "caller":
            raise
        call = replace(call, error=error)
    suggestions: dict[str, list[tuple[str, str]]] = {key: [] for key in SUGGESTING}
    if is_whole:
        suggestions = _suggest(visitor)
    chosen = {name: arguments[name] for name in FILTERS if name in arguments}
    turned = {**chosen, "live": "" if live else "1"}
    is_part = live or bool(arguments.get("cursor")) or call.error is not None
    return call.page(
        "requests/requests.html",
        TITLE if view is None else view.name,
        columns=_columns_of(call),
        all_columns=COLUMNS,
        histogram=None if is_part else plot_requests(call, chosen),
        path=PATH,
        live=live,
        filters={name: arguments.get(name, "") for name in FILTERS},
        chosen=chosen,
        chips=[
            (label, "?" + urlencode(_toggle(chosen, name, value)), chosen.get(name) == value)
            for label, name, value in CHIPS
        ],
        switch="?" + urlencode({name: value for name, value in turned.items() if value}),
        bar=build_bar(
            call.inbound,
            choose_project(visitor, arguments.get("projectId", "")),
            choose_period(arguments.get("timeRange", ""), PERIODS.items(), "All time"),
        ),
        keys=sorted(keys.items(), key=lambda key: key[1].lower())[:SUGGESTED],
        people=sorted(set(people.values()), key=lambda person: person[1].lower())[:SUGGESTED],
        suggestions=suggestions,
        more=[(name, *texts) for name, texts in FURTHER_FILTERS.items()],
        export=urlencode(chosen),
        **show_views(call, arguments, view, LOGS, FILTERS),
        **shown,
    )


def _toggle(chosen: Mapping[str, str], name: str, value: str) -> dict[str, str]:
    """Return the filters with one set, or without it if it is set already."""
    others = {other: given for other, given in chosen.items() if other != name}
    return others if chosen.get(name) == value else {**others, name: value}


def _suggest(visitor: Visitor) -> dict[str, list[tuple[str, str]]]:
    """Return values of the filters with their names: the models, providers and apps of the last 30 days."""
    services = visitor.services
    database = services.store.database
    span = read_period({"timeRange": "30d"}, services.clock.now_us()).window.whole().span
    owners = owners_of(visitor, None)
    served, sources = at_once(
        database,
        lambda: [measure(database, owners, span, dimension, ("requests",)) for dimension in ("model", "source")],
    )
    catalogue = services.routing.catalogue.current()
    models = sorted({row.value[0] for row in served} - {""})[:SUGGESTED]
    providers = sorted({row.value[1] for row in served} - {""})[:SUGGESTED]
    apps = sorted({services.accounts.sources.canonical(row.value[0]) for row in sources} - {""})[:SUGGESTED]
    return {
        "model": [(ident, catalogue.models[ident].name if ident in catalogue.models else "") for ident in models],
        "provider": [(ident, name_provider(ident, catalogue.providers)) for ident in providers],
        "status": STATUSES,
        "source": [("unknown", NO_APP), *((app, "") for app in apps)],
    }


def _people_of(visitor: Visitor) -> dict[str, tuple[str, str]]:
    """Return the id of the user and the name of each visible person, by the raw id of the member."""
    people = {}
    for organization_id, own in visitor.memberships.items():
        members = [own]
        if visitor.manages("logs:read", organization_id):
            members = list_members(visitor.services.store.database, organization_id, service_accounts=True)
        for member in members:
            people[member.id.partition("_")[2]] = (member.user_id, member.name or member.email)
    return people


def _projects_of(visitor: Visitor) -> list[tuple[str, str]]:
    projects = visitor.projects()
    return [("", "All projects"), *((project.id, project.name) for project in projects)]


def _show_row(
    request: LoggedRequest,
    names: Mapping[str, str],
    providers: Mapping[str, Provider],
    projects: Mapping[str, str] = NO_NAMES,
) -> dict[str, Any]:
    row: dict[str, Any] = to_builtins(show_request(request))
    size = sum(one.input + one.cache_read + one.cache_write for one in request.attempts)
    return {
        **row,
        "tokens": f"{request.input_tokens:,} / {request.output_tokens:,}" if request.attempts else "",
        "provider_name": name_provider(row["provider"], providers),
        "key": names.get(row["apiKeyId"], row["apiKeyId"]),
        "person": names.get(f"mem_{request.owner.member.hex()}", ""),
        "project": projects.get(row["projectId"], ""),
        "tags": ", ".join(f"{name}: {value}" for name, value in request.tags.items())[:MAX_TAGS_LENGTH],
        "cache_share": sum(one.cache_read for one in request.attempts) * 100 // size if size else 0,
        "ttft_ms": request.last.ttft_ms if request.last else 0,
        "level": level_of(request.status),
    }


def show_short(call: PageCall, requests: Sequence[LoggedRequest]) -> list[dict[str, Any]]:
    """Return the rows of a short list of requests on another page."""
    providers = call.services.routing.catalogue.current().providers
    names = _name_keys(call.visitor, _list_key_ids(requests))
    return [_show_row(request, names, providers) for request in requests]


def _name_keys(visitor: Visitor, among: Collection[str] | None = None) -> dict[str, str]:
    return {key.id: key.description for key in visible_keys(visitor, among).values()}


def _list_key_ids(requests: Sequence[LoggedRequest]) -> set[str]:
    return {f"key_{request.owner.api_key.hex()}" for request in requests}


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list, {"save_view": save_filters, "columns": change_columns}),
    *page_operations(f"{PATH}/views/<view_id>", show_view, {"remove_view": remove_saved}),
)
