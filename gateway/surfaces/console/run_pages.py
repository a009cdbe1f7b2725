"""`/console/playground/runs`: logged requests that are sent to another model in the background, with the cost first.

Their answers are shown beside the old ones."""

from collections.abc import Mapping, Sequence
from datetime import timedelta
from statistics import median
from typing import Any
from urllib.parse import urlencode

from msgspec import Struct

from gateway.accounts import keys
from gateway.batches.batch_table import IN_PROGRESS, RUN_PREFIX, VALIDATING, BatchJob
from gateway.clock import to_datetime
from gateway.errors import Forbidden, GatewayError, InvalidRequest, NotFound
from gateway.jobs.job_rows import JobOwner
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import is_seen
from gateway.money import format_usd, parse_usd
from gateway.runtime.threads import compute_if
from gateway.surfaces.console.organization_choice import FIELD, CallerChoices
from gateway.surfaces.console.page_calls import CREATE, PageCall, page_operations
from gateway.surfaces.console.pages import redirect
from gateway.surfaces.console.playground_pages import KEY_NAME, PATH, RUNS, caller_of, read_own_choices
from gateway.surfaces.console.request_pages import PERIODS
from gateway.surfaces.console.shown_conversation import read_conversation
from gateway.surfaces.console.shown_parts import ShownMessage
from gateway.surfaces.visitors import logged_runs
from gateway.surfaces.visitors.logged_runs import MAX_REQUESTS, RunEstimate, RunResult, Selection
from gateway.surfaces.visitors.request_log_reader import LogsQuery, filter_of, scopes_of
from gateway.surfaces.visitors.validation_schemas import read_query
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Run on logged requests"
RUN = f"{RUNS}/<run_id>"
LISTED = 50
COMPARED = 10  # requests of a page of results
DEFAULT_COUNT = 20
MAX_MODEL_LENGTH = 255
LARGE = 1 << 16
CANCELABLE = (VALIDATING, IN_PROGRESS)
# Filters of the log that the form offers: name → label and placeholder. Others of a link are kept.
FILTERS = {
    "model": ("Model of the requests", "any"),
    "source": ("App", "any"),
    "session": ("Session", ""),
    "metadata": ("Metadata", "team:search"),
    "minCost": ("Cost at least, USD", ""),
    "minDurationMs": ("Took at least, ms", ""),
}
SHOWN = (*FILTERS, "timeRange", "retained")
KNOWN = tuple(field.data_key or name for name, field in LogsQuery().fields.items() if name not in ("projectId",))
ENDPOINTS = [("", "Most frequent"), *((path, path) for path in logged_runs.ENDPOINTS)]


def show_list(call: PageCall) -> Outbound:
    """Show the form of a run with its cost once a model is chosen, and the newest runs of the project."""
    chosen = call.arguments.get(FIELD, "") or call.arguments.get("projectId", "")
    choices = read_own_choices(call.visitor, chosen)
    project = choices.project
    if project is None:
        raise Forbidden("You are not a member of any project.")
    model = call.arguments.get("target", "").strip()[:MAX_MODEL_LENGTH]
    selection: Selection | None = None
    estimate: RunEstimate | None = None
    if model and call.error is None:
        try:
            selection = _select(call, choices)
            if selection.requests:
                caller = caller_of(call.visitor, choices)
                task = logged_runs.task_of(model, call.inbound.base_url, call.inbound.peer)
                estimate = logged_runs.estimate(call.services, caller, selection, model, task)
        except GatewayError as error:
            if error.blame != "caller":
                raise
            call = PageCall(call.visitor, call.inbound, call.form, error=error)
    return call.page(
        "playground/runs.html",
        TITLE,
        field=FIELD,
        choices=[(one, [(key.id, key.description) for key in keys]) for one, keys in choices.groups],
        chosen_key=choices.chosen,
        project=project,
        path=RUNS,
        playground=PATH,
        filters=[(name, *texts) for name, texts in FILTERS.items()],
        given={name: call.arguments.get(name, "") for name in (*KNOWN, "api")},
        further=[(name, call.arguments[name]) for name in KNOWN if name not in SHOWN and name in call.arguments],
        periods=list(PERIODS.items()),
        endpoints=ENDPOINTS,
        model=model,
        count=_read_count(call),
        patient=call.arguments.get("patient") == "true",
        most=MAX_REQUESTS,
        selection=selection,
        estimate=None if estimate is None else _show_estimate(estimate),
        runs=[_show_run(call, job) for job in _list_runs(call.visitor, project.id)],
    )


def _show_estimate(estimate: RunEstimate) -> dict[str, Any]:
    likely = estimate.likely_nusd
    return {
        "requests": estimate.requests,
        "bound": format_usd(estimate.bound_nusd),
        "likely": None if likely is None else format_usd(likely),
        "past": format_usd(estimate.past_nusd),
        "problems": estimate.problems,
    }


def _select(call: PageCall, choices: CallerChoices) -> Selection:
    project = choices.project
    assert project is not None
    wanted = (call.arguments.get("apiKeyId", ""), call.arguments.get("userId", ""))
    scopes = scopes_of(call.visitor, project.id, *wanted)
    filters = filter_of(_read_filters(call), call.inbound, call.services.clock.now_us())
    return logged_runs.select(call.services, scopes, filters, _read_count(call), call.arguments.get("api", ""))


def _read_filters(call: PageCall) -> dict[str, Any]:
    """Return the filters of the log in the query, without its other parameters. Raises InvalidRequest."""
    given = {name: value for name, value in call.arguments.items() if name in KNOWN}
    inbound = call.inbound
    query = urlencode(given)
    return read_query(LogsQuery, type(inbound)("GET", inbound.path, inbound.headers, query=query))


def _read_count(call: PageCall) -> int:
    return min(MAX_REQUESTS, _read_number(call, "count", DEFAULT_COUNT))


def _read_number(call: PageCall, name: str, default: int) -> int:
    """Return a parameter of the query that is a number from 1, or the default."""
    text = call.arguments.get(name, "")
    return max(1, int(text)) if text.isascii() and text.isdigit() and len(text) < 6 else default


def start(call: PageCall) -> Outbound:
    """Start the run whose cost the page showed."""
    form, visitor = call.form, call.visitor
    choices = read_own_choices(visitor, form.get(FIELD, ""))
    project = choices.project
    if project is None:
        raise Forbidden("You are not a member of any project.")
    model = form.get("target", "").strip()[:MAX_MODEL_LENGTH]
    try:
        most_nusd = parse_usd(form.get("bound", ""))
    except ValueError:
        raise InvalidRequest("The highest cost is missing. Look at the cost again.", param="bound") from None
    scopes = scopes_of(visitor, project.id)
    requests = logged_runs.find_requests(call.services, scopes, form.get("requests", "").split(","))
    if choices.chosen == project.id:
        choices = choices._replace(chosen=_make_key(call, project.id))
        caller = call.services.accounts.authentication.caller_of_key(choices.chosen)
    else:
        caller = caller_of(visitor, choices)
    patient = form.get("patient") == "true"
    task = logged_runs.task_of(model, call.inbound.base_url, call.inbound.peer, patient)
    job = logged_runs.start(call.services, caller, requests, model, task, most_nusd)
    return redirect(call.inbound, f"{RUNS}/{job.id}")


def _make_key(call: PageCall, project_id: str) -> str:
    """Create a key that lasts as long as the run may take."""
    services = call.services
    life = timedelta(hours=services.settings.batches.window_h + 1)
    expiry = (to_datetime(services.clock.now_us()) + life).isoformat()
    fields = {"projectId": project_id, "description": KEY_NAME, "kind": "customer", "expiresAt": expiry}
    return str(call.run(CREATE, fields)["id"])


def _list_runs(visitor: Visitor, project_id: str) -> list[BatchJob]:
    jobs = visitor.services.engine.batches.runs(JobOwner(project_id), LISTED)
    if all(_sees_all(visitor, job) for job in jobs):
        return jobs
    members = keys.find_members(visitor.services.store.database, {job.api_key for job in jobs})
    own = {membership.id for membership in visitor.memberships.values()}
    return [job for job in jobs if _sees_all(visitor, job) or members.get(job.api_key, "") in own]


def _sees(visitor: Visitor, job: BatchJob) -> bool:
    """Return whether the visitor may see a run: their own ones, and all for those who see all requests."""
    return _sees_all(visitor, job) or _owns(visitor, job)


def _sees_all(visitor: Visitor, job: BatchJob) -> bool:
    reach = visitor.reach(job.organization, "logs:read")
    return reach.whole or job.project in reach.projects


def _owns(visitor: Visitor, job: BatchJob) -> bool:
    try:
        key = keys.find(visitor.services.store.database, job.api_key, deleted=True)
    except NotFound:
        return False
    return key.member_id == visitor.memberships[job.organization].id


def _find(call: PageCall) -> BatchJob:
    """Return the run of the path. Raises NotFound."""
    job = call.services.engine.batches.rows.find(call.params["run_id"][:80])
    known = job is not None and job.id.startswith(f"{RUN_PREFIX}_") and job.organization in call.visitor.memberships
    if job is None or not known or not _sees(call.visitor, job):
        raise NotFound("There is no such run, or you may not see it.")
    return job


def _show_run(call: PageCall, job: BatchJob) -> dict[str, Any]:
    return {
        "id": job.id,
        "model": logged_runs.model_of(call.services, job),
        "status": job.state,
        "done": job.done,
        "failed": job.failed,
        "total": job.total,
        "cost": format_usd(job.cost_nusd),
        "bound": format_usd(job.bound_nusd),
        "at": job.created_at,
        "ended": job.has_ended,
        "cancelable": job.state in CANCELABLE,
        "problems": [error.message for error in job.ended.errors],
        "project": job.project,
    }


# `/console/playground/runs/<id>`: the progress of a run, and its answers beside the old ones.


class RunFigures(Struct, frozen=True):
    """The sum of the requests that both sides answered; `median_ms` is of their durations."""

    requests: int
    cost_nusd: int
    input_tokens: int
    output_tokens: int
    median_ms: int

    @property
    def cost(self) -> str:
        return format_usd(self.cost_nusd)


class Side(Struct, frozen=True):
    """An answer of a pair: its request of the log, messages and error; None as request where the log has none."""

    ident: str
    served: str
    cost: str
    input_tokens: int
    output_tokens: int
    duration_ms: int
    messages: list[ShownMessage]
    problem: str = ""


def show_run(call: PageCall) -> Outbound:
    """Show the progress of a run, the sums of both models, and the answers side by side."""
    job = _find(call)
    number = _read_number(call, "page", 1)
    places = range((number - 1) * COMPARED, number * COMPARED)
    results = logged_runs.read_results(call.services, job, places)
    shown = results[places.start : places.stop]
    idents = [ident for one in results for ident in (one.original, one.request_id)]
    scopes = scopes_of(call.visitor, job.project)
    read = logged_runs.read_records(call.services, idents)
    records = {ident: record for ident, record in read.items() if is_seen(record, scopes)}
    both = [
        (records[one.original], records[one.request_id])
        for one in results
        if one.status < 400 and one.original in records and one.request_id in records
    ]
    return call.page(
        "playground/run.html",
        "Run",
        run=_show_run(call, job),
        path=RUNS,
        old=_sum([old for old, _ in both]),
        new=_sum([new for _, new in both]),
        pairs=[_show_pair(call, one, records) for one in shown],
        page_number=number,
        pages=-(-len(results) // COMPARED),
    )


def _sum(requests: Sequence[LoggedRequest]) -> RunFigures:
    return RunFigures(
        len(requests),
        sum(one.cost_nusd for one in requests),
        sum(one.input_tokens for one in requests),
        sum(one.output_tokens for one in requests),
        round(median([one.duration_ms for one in requests] or [0])),
    )


def _show_pair(call: PageCall, result: RunResult, records: Mapping[str, LoggedRequest]) -> dict[str, Any]:
    """Return a request with both answers, as far as its payload is still retained and the visitor may see it."""
    old = records.get(result.original)
    sent, answer = b"", b""
    if old is not None and old.payload is not None:
        try:
            payload = call.services.engine.retention.read(old.payload)
            sent, answer = payload.sent, payload.answer
        except NotFound:
            pass
    large = len(sent) + len(answer) + len(result.answer) > LARGE
    prompt, before, after = compute_if(large, _read_both, sent, answer, result.answer)
    return {
        "original": result.original,
        "prompt": prompt,
        "old": _show_side(old, result.original, before, 200),
        "new": _show_side(records.get(result.request_id), result.request_id, after, result.status),
        "waits": not result.request_id and not result.status,
    }


def _read_both(
    sent: bytes, answer: bytes, other: bytes
) -> tuple[list[ShownMessage], list[ShownMessage], list[ShownMessage]]:
    """Return the last message of a request, its answer, and the other answer to it."""
    old = read_conversation(sent, answer)
    new = read_conversation(sent or b'{"messages": [{"role": "user", "content": ""}]}', other)
    prompt = old.messages[-1:] if old is not None else []
    return prompt, old.answers if old is not None else [], new.answers if new is not None else []


def _show_side(record: LoggedRequest | None, ident: str, messages: list[ShownMessage], status: int) -> Side:
    problem = f"Failed with status {status}." if status >= 400 else ""
    if record is None:
        return Side(ident, "", "", 0, 0, 0, messages, problem)
    served = record.served
    return Side(
        ident,
        f"{served.provider}/{served.served}" if served is not None else record.asked,
        format_usd(record.cost_nusd),
        record.input_tokens,
        record.output_tokens,
        record.duration_ms,
        messages,
        problem,
    )


def cancel(call: PageCall) -> str:
    """Cancel a run."""
    job = _find(call)
    _check_owner(call.visitor, job)
    call.services.engine.batches.cancel_job(lambda: _find(call))
    return "The run is being cancelled. Requests under way end and are billed."


def delete(call: PageCall) -> Outbound:
    """Delete a run that has ended, with its answers."""
    job = _find(call)
    _check_owner(call.visitor, job)
    call.services.engine.batches.delete_job(job)
    return redirect(call.inbound, f"{RUNS}?{urlencode({FIELD: job.project})}")


def _check_owner(visitor: Visitor, job: BatchJob) -> None:
    """Raise Forbidden unless the run is the visitor's own or of a project that the visitor manages."""
    reach = visitor.reach(job.organization, "projects:write")
    if reach.whole or job.project in reach.projects:
        return
    if not _owns(visitor, job):
        raise Forbidden("Only the person who started a run, owners and admins may change it.")


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(RUNS, show_list, {"start": start}),
    *page_operations(RUN, show_run, {"cancel": cancel, "delete": delete}),
)
