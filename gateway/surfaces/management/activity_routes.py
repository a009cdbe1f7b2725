"""`GET /activity` and `/activity/sources`: usage by hour or day, as the public client prints it, and the latency of
calls. `/activity/shares`, `/activity/forecast` and `/orgs/…/focus`: usage to be charged to those who caused it."""

from collections.abc import Iterator
from typing import Any

from msgspec import to_builtins

from gateway.accounts.members import list_members
from gateway.accounts.projects import ProjectInfo
from gateway.accounts.teams import list_teams
from gateway.clock import HOUR_US, to_datetime, to_iso
from gateway.errors import InvalidRequest
from gateway.metering.activity import Owners, Span, last_hours, measure, merge
from gateway.metering.rollups.queries import Row, at_once
from gateway.reports.focus import COLUMNS, read_charges, read_month
from gateway.reports.latency_percentiles import ModelLatency, Percentiles, read_percentiles
from gateway.reports.shares import GROUPS, Share, ShareQuestion, forecast_month, read_held, read_shares
from gateway.runtime.loop_turns import low_priority_turn
from gateway.surfaces.management.access_groups import anywhere, in_organization, in_project
from gateway.surfaces.management.exports import check_again, download
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors import tabular as tabular_module
from gateway.surfaces.visitors.report_windows import RANGES, read_window
from gateway.surfaces.visitors.usage_report import (
    MAX_DATE_LENGTH,
    ActivityLatency,
    ActivityQuery,
    ActivityReport,
    ActivitySource,
    LatencyPercentiles,
    describe_report,
    owners_of,
    places_of,
    usage_of,
    visible_keys,
    write_short,
    write_split,
)
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, TextField
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Usd
from gateway.surfaces.web.http import Operation, Outbound

TAG = "Activity"
UNKNOWN = "unknown"  # the source of requests that recorded none


class LatencyQuery(Body):
    projectId = TextField(1, 80)
    timeRange = OneOf(tuple(RANGES))
    first = TextField(1, MAX_DATE_LENGTH, data_key="from")
    last = TextField(1, MAX_DATE_LENGTH, data_key="to")


class SourcesQuery(LatencyQuery):
    projectId = TextField(1, 80, required=True)


def activity(call: ManagedCall[None]) -> ActivityReport:
    """Usage of a project or of all accessible ones; a developer's own keys only."""
    return usage_of(call.visitor, call.inbound.arguments())


def sources(call: ManagedCall[ProjectInfo]) -> list[ActivitySource]:
    """The apps that used a project, the most expensive first."""
    span = read_window(call.fields, call.services.clock.now_us()).span
    owners = Owners(project_ids=(call.subject.id,))
    database = call.database
    known = call.services.accounts.sources

    def read() -> tuple[list[Row], dict[tuple[Any, ...], int]]:
        rows = measure(database, owners, Span(span.first, span.end, "all"), "source")
        return rows, last_hours(database, owners, span)

    rows, hours = at_once(database, read)
    for row in rows:
        row.last_hour = hours.get(row.value, row.last_hour)
    # The table of clients may know more names than it did when they were recorded.
    merged = merge(rows, [(known.canonical(row.value[0]) or UNKNOWN,) for row in rows])
    ranked = sorted(merged, key=lambda row: (-row.figures.cost_nusd, row.value))
    return [_write_source(row) for row in ranked]


def latency(call: ManagedCall[None]) -> list[ActivityLatency]:
    """The median and the 95th percentile of the upstream calls of a project or of all accessible ones, by provider and
    model; a developer's own calls only. Only the newest 10,000 usage rows of the period are read, as `calls` shows."""
    span = read_window(call.fields, call.services.clock.now_us()).span
    places = places_of(call.visitor, call.fields.get("projectId"))
    return [_write_latency(one) for one in read_percentiles(call.database, places, span)]


def _write_latency(one: ModelLatency) -> ActivityLatency:
    return {
        "provider": one.provider,
        "model": one.model,
        "calls": one.calls,
        "durationMs": _write_percentiles(one.duration),
        "timeToFirstTokenMs": _write_percentiles(one.wait) if one.wait else None,
    }


def _write_percentiles(percentiles: Percentiles) -> LatencyPercentiles:
    return {"p50": percentiles.p50, "p95": percentiles.p95}


def _write_source(row: Row) -> ActivitySource:
    last = to_iso(row.last_hour * HOUR_US)
    figures = row.figures
    return {"source": row.value[0], **write_short(figures), **write_split(figures), "lastUsedAt": last}


CHARGEBACK = "Chargeback"
MAX_TAG_LENGTH = 64
PIECES_PER_CHECK = 12


class SharesQuery(Body):
    projectId = TextField(1, 80)
    groupBy = OneOf(GROUPS, load_default="team")
    tag = TextField(1, MAX_TAG_LENGTH, load_default="", about="The name of the tag, with groupBy=tag.")
    timeRange = OneOf(tuple(RANGES))
    first = TextField(1, MAX_DATE_LENGTH, data_key="from")
    last = TextField(1, MAX_DATE_LENGTH, data_key="to")


class SharesExportQuery(SharesQuery):
    format = OneOf(tabular_module.FORMATS, load_default=tabular_module.CSV)


class ForecastQuery(Body):
    projectId = TextField(1, 80)


class FocusQuery(Body):
    month = TextField(7, 7, load_default="", about="A month in UTC, such as 2026-11; default: the current one.")
    format = OneOf(tabular_module.FORMATS, load_default=tabular_module.CSV)


class ShareAnswer(Answer):
    """The usage of one value; an empty `id` is usage without one."""

    id: str
    name: str
    request_count: int
    input_tokens: int
    cached_tokens: int
    output_tokens: int
    cost: Usd
    credits_cost: Usd
    own_keys_cost: Usd
    data_storage_cost: Usd


class ForecastAnswer(Answer):
    """`expected` continues the daily average of the last seven days to the end of the month (UTC)."""

    month: str
    spent: Usd
    daily: Usd
    expected: Usd


def shares(call: ManagedCall[None]) -> list[ShareAnswer]:
    """Usage by tag (`X-LLMGateway-*`, `metadata` and `user` of requests), session, team, person, provider, model, key,
    app, or an attribute of people such as `costCenter`, with its value at the time of the usage; the most expensive
    first. A developer sees the usage of their own keys. Tags and sessions beyond a thousand
    are one row, `(other)`."""
    return read_share_answers(call.visitor, call.fields)


def export_shares(call: ManagedCall[None]) -> Outbound:
    """The same as CSV or JSON lines."""
    answers = read_share_answers(call.visitor, call.fields)
    form = call.fields["format"]
    rows = [to_builtins(answer) for answer in answers]
    owners = sorted(call.visitor.memberships)
    pieces = tabular_module.write_rows([rows], ShareAnswer.__struct_encode_fields__, form)
    return download(call.visitor, owners, f"shares.{form}", tabular_module.MEDIA[form], pieces)


def forecast(call: ManagedCall[None]) -> ForecastAnswer:
    """Return the cost of the current month if the usage of the last days continues."""
    owners = owners_of(call.visitor, call.fields.get("projectId"))
    expected = forecast_month(call.database, owners, call.services.clock.now_us())
    return ForecastAnswer.of(expected, month=expected.month.name)


def export_focus(call: ManagedCall[str]) -> Outbound:
    """The charges of a month in the format FOCUS 1.2, one row for each. The sum of `BilledCost` is what the ledger took
    from the organization's credits in that month."""
    form = call.fields["format"]
    month = read_month(call.fields["month"] or to_datetime(call.services.clock.now_us()).strftime("%Y-%m"))
    charges = read_charges(call.database, call.subject, month)
    pieces = tabular_module.write_rows(_checked(call.visitor, charges), COLUMNS, form)
    return download(call.visitor, [call.subject], f"focus-{month.name}.{form}", tabular_module.MEDIA[form], pieces)


def read_share_answers(visitor: Visitor, fields: dict[str, Any]) -> list[ShareAnswer]:
    """Return the shares of a SharesQuery, as the visitor may see them."""
    group = fields["groupBy"]
    tag = fields["tag"].lower()
    if (group == "tag") != bool(tag):
        raise InvalidRequest("tag is the name of the tag with groupBy=tag; leave it out otherwise.", param="tag")
    window = read_window(fields, visitor.services.clock.now_us())
    owners = owners_of(visitor, fields.get("projectId"))
    keys = {ident: key for ident, key in visible_keys(visitor).items() if _is_owned(owners, ident, key.project_id)}
    names, teams = names_of(visitor)
    names |= {ident: key.description for ident, key in keys.items()}
    span = Span(window.span.first, window.span.end, "all")
    database = visitor.services.store.database
    question = ShareQuestion(owners, span, group, tag, keys, teams, read_held(database, keys, group))
    return [_show(share, names) for share in read_shares(database, question)]


def _is_owned(owners: Owners, key_id: str, project_id: str) -> bool:
    return project_id in owners.project_ids or key_id in owners.key_ids


def names_of(visitor: Visitor) -> tuple[dict[str, str], dict[str, list[str]]]:
    """Return the names of people and teams, and the teams of each member."""
    names = {}
    teams: dict[str, list[str]] = {}
    database = visitor.services.store.database
    for organization_id in visitor.memberships:
        for member in list_members(database, organization_id, service_accounts=True):
            names[member.id] = member.name or member.email
        for team in list_teams(database, organization_id):
            names[team.id] = team.name
            for member_id in team.member_ids:
                teams.setdefault(member_id, []).append(team.id)
    return names, teams


def _show(share: Share, names: dict[str, str]) -> ShareAnswer:
    figures = share.figures
    return ShareAnswer.of(
        id=share.id,
        name=names.get(share.id, share.id),
        request_count=figures.requests,
        input_tokens=figures.input_tokens,
        cached_tokens=figures.cached_tokens,
        output_tokens=figures.output_tokens,
        cost=figures.cost_nusd,
        credits_cost=figures.cost_nusd - figures.byok_nusd,
        own_keys_cost=figures.byok_nusd,
        data_storage_cost=figures.storage_nusd,
    )


def _checked(visitor: Visitor, pieces: Iterator[list[dict[str, Any]]]) -> Iterator[list[dict[str, Any]]]:
    """Yield the pieces, each in a turn of low priority, and check the visitor's access now and then."""
    for number, piece in enumerate(pieces, 1):
        yield piece
        low_priority_turn()
        if number % PIECES_PER_CHECK == 0:
            check_again(visitor)


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/activity", activity, "Usage by hour or day", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read", query=ActivityQuery,
            schema=describe_report()),
    managed("GET", "/activity/sources", sources, "Usage by app", tag=TAG,
            who=in_project("usage:apps"), scope="usage:read", query=SourcesQuery,
            inside="sources"),
    managed("GET", "/activity/latency", latency, "Latency by provider and model", tag=TAG,
            who=anywhere("usage:read"), scope="usage:read", query=LatencyQuery,
            inside="latency"),
    managed("GET", "/activity/shares", shares, "Usage by tag, session, team or person", tag=CHARGEBACK,
            who=anywhere("usage:read"), scope="usage:read",
            query=SharesQuery, inside="shares"),
    managed("GET", "/activity/shares/export", export_shares, "Export usage by tag, session, team or person",
            tag=CHARGEBACK, who=anywhere("usage:read"), scope="usage:read", query=SharesExportQuery, errors=(429,),
            media=tabular_module.MEDIA[tabular_module.CSV],
            also=(tabular_module.MEDIA[tabular_module.JSON_LINES],)),
    managed("GET", "/activity/forecast", forecast, "Forecast the month", tag=CHARGEBACK,
            who=anywhere("usage:read"), scope="usage:read",
            query=ForecastQuery, inside="forecast"),
    managed("GET", "/orgs/<organization_id>/focus", export_focus, "Export the charges of a month (FOCUS 1.2)",
            tag=CHARGEBACK, who=in_organization("charges:read"), scope="usage:read", query=FocusQuery, errors=(429,),
            media=tabular_module.MEDIA[tabular_module.CSV],
            also=(tabular_module.MEDIA[tabular_module.JSON_LINES],)),
)  # fmt: skip
