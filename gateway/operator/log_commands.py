"""`logs` and `explain`: requests of the whole installation, and the details of one request."""

import json
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any

import click
from msgspec import to_builtins

from gateway.accounts import keys, organizations
from gateway.accounts.projects import list_projects
from gateway.clock import SECOND_US, to_iso
from gateway.engine.routing_decisions import read_decision
from gateway.errors import InvalidRequest, NotFound
from gateway.metering.log.archived_requests import find_logged, search_log
from gateway.metering.log.log_entries import first_id
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter, LogScope
from gateway.money import format_usd
from gateway.operator.installation_commands import Installation, check_scope, opened
from gateway.operator.output import AS_JSON, IntegerOption, is_json, print_json, print_table, printable, read_time
from gateway.surfaces.visitors.log_answers import show_attempt, show_request
from gateway.surfaces.visitors.request_log_reader import read_tags
from gateway.telemetry.request_line import REMEDIES

HEADER = ("AT", "ID", "STATUS", "MODEL", "SERVED BY", "TOKENS", "MS", "COST USD", "PROJECT", "ERROR")
PAGE = 100
MAX_REQUESTS = 10_000
# `--follow` searches for new requests every FOLLOW_INTERVAL_S seconds, and on every 15th search also for slow requests.
FOLLOW_INTERVAL_S = 1.0
LOOK_BACK_EVERY = 15


@click.command()
@click.option("--organization", default="", help="Only this organization.")
@click.option("--project", default="", help="Only this project.")
@click.option("--key", "key_id", default="", help="Only this API key.")
@click.option("--model", default="", help="The requested model, the model that responded, or provider/model.")
@click.option("--provider", default="", help="Only requests that called this provider.")
@click.option("--status", type=IntegerOption(100, 599), default=None, help="HTTP status of the response.")
@click.option("--error", "code", default="", help="Error code of the response or of an upstream call.")
@click.option("--failed", is_flag=True, help="Only requests that were rejected or failed.")
@click.option("--source", default=None, help="The application, or unknown for requests without one.")
@click.option("--request-id", "label", default="", help="The caller's x-request-id.")
@click.option("--metadata", multiple=True, help="name:value; may be repeated.")
@click.option("--from", "start", help="Start, as 2026-01-31 or 2026-01-31T14:00 (UTC), inclusive.")
@click.option("--to", "end", help="End, exclusive.")
@click.option(
    "--limit", type=IntegerOption(1, MAX_REQUESTS), default=50, show_default=True, help="Maximum number of requests."
)
@click.option("--follow", is_flag=True, help="Print new requests when they end, until interrupted.")
@AS_JSON
@click.pass_context
def logs(ctx: click.Context, limit: int, follow: bool, **filters: Any) -> None:
    """List requests, newest first; with --follow newest last. A request is listed when it has ended."""
    installation = ctx.with_resource(opened())
    query = _read_query(installation, filters)
    requests = list(query.newest(limit))
    if follow:
        with suppress(KeyboardInterrupt):
            _follow(installation, query, requests[::-1])
    elif is_json():
        print_json([to_builtins(show_request(request)) for request in requests])
    else:
        print_table(HEADER, [query.row_of(request) for request in requests], "No requests match.")


@click.command()
@AS_JSON
@click.argument("ident", metavar="ID")
@click.pass_context
def explain(ctx: click.Context, ident: str) -> None:
    """Explain a request: its sender, upstream calls with the providers' errors, costs, routing decision and remedies.

    ID is the id in the log, or the caller's x-request-id.
    """
    installation = ctx.with_resource(opened())
    request = _find(installation, ident)
    facts = _facts_of(installation, request)
    if is_json():
        print_json(facts)
        return
    for line in _lines_of(facts):
        click.echo(printable(line))


@dataclass(slots=True)
class LogQuery:
    """A search over projects. `names` maps project ids to names; `failed` keeps only rejected and failed requests."""

    installation: Installation
    scopes: list[LogScope]
    filters: LogFilter
    names: dict[str, str]
    failed: bool = False
    seen: set[bytes] = field(default_factory=set)

    def newest(self, limit: int, from_us: int | None = None) -> Iterator[LoggedRequest]:
        """Return the newest `limit` requests since `from_us`."""
        filters = self.filters if from_us is None else self.filters._replace(from_us=from_us)
        before: bytes | None = None
        count = 0
        while count < limit:
            page = search_log(self.installation.database, self.scopes, filters, before, PAGE)
            for request in page.requests:
                if self.failed and request.status < 400 and not request.error:
                    continue
                yield request
                count += 1
                if count == limit:
                    return
            if page.following is None:
                return
            before = page.following

    def fresh(self, from_us: int) -> list[LoggedRequest]:
        """Return requests since `from_us` that were not returned before, oldest first."""
        recent = self.newest(MAX_REQUESTS, max(from_us, self.filters.from_us or 0))
        fresh = [request for request in recent if request.request not in self.seen]
        self.seen.update(request.request for request in fresh)
        return fresh[::-1]

    def forget(self, before_us: int) -> None:
        """Remove requests that began before `before_us` from `seen`."""
        oldest = first_id(before_us)
        self.seen = {request for request in self.seen if request >= oldest}

    def row_of(self, request: LoggedRequest) -> tuple[object, ...]:
        """Return a row of the table."""
        served = request.served
        project = f"proj_{request.owner.project.hex()}"
        tokens = f"{request.input_tokens}/{request.output_tokens}" if request.attempts else ""
        count = f" x{request.requests}" if request.requests > 1 else ""
        return (
            to_iso(request.at_us),
            request.request_id,
            request.status,
            request.asked,
            f"{served.provider}/{served.served}" if served else "",
            tokens,
            request.duration_ms,
            format_usd(request.cost_nusd),
            self.names.get(project, project),
            request.error + count,
        )


def _read_query(installation: Installation, options: dict[str, Any]) -> LogQuery:
    organization = options["organization"]
    project = options["project"]
    key_id = options["key_id"]
    check_scope(installation, organization, project)
    projects = list_projects(installation.database, [organization] if organization else None)
    names = {info.id: info.name for info in projects if project in ("", info.id)}
    if key_id:
        key = keys.find(installation.database, key_id, deleted=True)
        names = {ident: name for ident, name in names.items() if ident == key.project_id}
    scopes = [LogScope(ident, "", (key_id,) if key_id else ()) for ident in names]
    start = options["start"]
    end = options["end"]
    filters = LogFilter(
        model=options["model"],
        provider=options["provider"],
        status=options["status"] or 0,
        error=options["code"],
        source="" if options["source"] == "unknown" else options["source"],
        label=options["label"],
        tags=read_tags(options["metadata"]),
        from_us=read_time(start) if start else None,
        to_us=read_time(end) if end else None,
    )
    if filters.from_us is not None and filters.to_us is not None and filters.from_us > filters.to_us:
        raise InvalidRequest("--from must not be after --to.")
    return LogQuery(installation, scopes, filters, names, options["failed"])


def _follow(installation: Installation, query: LogQuery, requests: list[LoggedRequest]) -> None:
    """Print requests when they end. The log is sorted by start, so slow requests need a longer and rarer search."""
    longest_us = round(installation.settings.timeouts.request_s * SECOND_US)
    _print_lines(query, requests)
    query.seen.update(request.request for request in requests)
    newest_us = requests[-1].at_us if requests else installation.clock.now_us()
    rounds = 0
    while True:
        time.sleep(FOLLOW_INTERVAL_S)
        rounds += 1
        oldest_us = newest_us - round(LOOK_BACK_EVERY * FOLLOW_INTERVAL_S * SECOND_US)
        if rounds % LOOK_BACK_EVERY == 0:
            oldest_us = newest_us - longest_us
            query.forget(oldest_us)
        requests = query.fresh(oldest_us)
        _print_lines(query, requests)
        newest_us = max([newest_us, *(request.at_us for request in requests)])


def _print_lines(query: LogQuery, requests: list[LoggedRequest]) -> None:
    for request in requests:
        if is_json():
            click.echo(json.dumps(to_builtins(show_request(request)), ensure_ascii=False))
        else:
            click.echo("  ".join(printable(str(cell), keep="") or "-" for cell in query.row_of(request)))


def _find(installation: Installation, ident: str) -> LoggedRequest:
    request = find_logged(installation.database, ident)
    if request is None and ident:
        scopes = [LogScope(project.id) for project in list_projects(installation.database)]
        labelled = search_log(installation.database, scopes, LogFilter(label=ident), None, 1).requests
        request = labelled[0] if labelled else None
    if request is None:
        raise NotFound(f"There is no request {ident} in the log. The id is unknown, or the request was deleted.")
    return request


def _facts_of(installation: Installation, request: LoggedRequest) -> dict[str, Any]:
    decision = read_decision(installation.database, request.request)
    return {
        "log": to_builtins(show_request(request)),
        "owner": _owner_of(installation, request),
        "attempts": [to_builtins(show_attempt(record, for_operator=True)) for record in request.attempts],
        "routing": None if decision is None else decision.record,
        "remedies": {code: REMEDIES[code] for code in sorted(request.codes) if code in REMEDIES},
    }


def _owner_of(installation: Installation, request: LoggedRequest) -> dict[str, str]:
    """Return names and ids of the owner; deleted objects have only ids."""
    database = installation.database
    owner = request.owner
    organization = f"org_{owner.organization.hex()}"
    key_id = f"key_{owner.api_key.hex()}"
    project = f"proj_{owner.project.hex()}"
    names = {info.id: info.name for info in list_projects(database, [organization])}
    shown = {"organization": organization, "project": project, "key": key_id}
    try:
        shown["organization_name"] = organizations.find_organization(database, organization).name
        key = keys.find(database, key_id, deleted=True)
        shown |= {"key_name": key.description, "key_mask": key.mask, "key_owner": key.creator_email}
    except NotFound:
        pass
    return shown | {"project_name": names.get(project, "")}


def _lines_of(facts: dict[str, Any]) -> Iterator[str]:
    log = facts["log"]
    owner = facts["owner"]
    label = f" (x-request-id {log['requestId']})" if log["requestId"] else ""
    yield f"Request {log['id']}{label} of {log['createdAt']}"
    yield f"Sent by: {_named(owner, 'organization')}, {_named(owner, 'project')}, {_named(owner, 'key')}"
    yield f"Requested: {log['model'] or '-'} ({log['operation'] or '-'}{', streamed' if log['streamed'] else ''})"
    ended = f"{log['status']} {log['error'] or log['finish'] or ''}".strip()
    count = f", {log['requestCount']} identical requests" if log["requestCount"] > 1 else ""
    yield f"Result: {ended}{', from the cache' if log['cached'] else ''}{count}"
    yield f"Served by: {log['served'] or 'no provider'}, {log['durationMs']} ms, {log['cost']} USD"
    if log["metadata"]:
        yield "Metadata: " + ", ".join(f"{name}={value}" for name, value in sorted(log["metadata"].items()))
    for attempt in facts["attempts"]:
        yield from _attempt_lines(attempt)
    if not facts["attempts"]:
        yield "Upstream calls: none, the request was rejected first"
    if facts["routing"]:
        yield f"Routing: {json.dumps(facts['routing'], ensure_ascii=False)}"
    for code, remedy in facts["remedies"].items():
        yield f"Remedy for {code}: {remedy}"


def _attempt_lines(attempt: dict[str, Any]) -> Iterator[str]:
    tokens = f"{attempt['inputTokens']} tokens in, {attempt['outputTokens']} out"
    yield (
        f"Upstream call {attempt['number'] + 1}: {attempt['provider']}/{attempt['model']}, status {attempt['status']}"
        f"{' ' + attempt['error'] if attempt['error'] else ''}, {attempt['durationMs']} ms, {tokens}, "
        f"{attempt['cost']} USD, paid by {attempt['mode']}"
    )
    if attempt["upstreamError"]:
        yield f"  Provider's message: {attempt['upstreamError']}"


def _named(owner: dict[str, str], kind: str) -> str:
    name = owner.get(f"{kind}_name")
    if name:
        return f"{kind} {name} ({owner[kind]})"
    return f"{kind} {owner[kind]}"
