"""`/console/jobs`: batches, videos and background responses of a project, with their progress, cost, errors by line and
downloads."""

from typing import Any

from gateway.errors import GatewayError
from gateway.surfaces.console.choice_bar import ChoiceField, build_bar
from gateway.surfaces.console.organization_choice import OrganizationChoice, choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.visitors.project_jobs import BATCH, MESSAGE_BATCH, OF_LINES, RESPONSE, RUN, VIDEO, is_own
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Jobs"
PATH = "/console/jobs"
JOB = f"{PATH}/<project_id>/<job_id>"
LISTED = 50
ERRORS = 50
KIND_NAMES = {
    BATCH: "Batch",
    MESSAGE_BATCH: "Message batch",
    RUN: "Run",
    VIDEO: "Video",
    RESPONSE: "Background response",
}
# The state of a job → the colour of its badge; others are under way.
LEVELS = {
    "completed": "good",
    "incomplete": "warn",
    "expired": "warn",
    "failed": "bad",
    "cancelled": "",
    "canceled": "",
}
CONTENT_NAMES = {"results": "Results", "errors": "Errors", "input": "Input"}
# A page with a job under way asks again by itself: after so many seconds, for so many times.
TURNS = ((30, 2), (150, 5), (400, 15))
LIST_S = 5  # at least, for a list, which costs more and changes less than the page of one job
PROJECTS = ManagementCall("GET /orgs/<organization_id>/projects")
LIST = ManagementCall("GET /projects/<project_id>/jobs")
SHOW = ManagementCall("GET /projects/<project_id>/jobs/<job_id>")
CANCEL = ManagementCall("POST /projects/<project_id>/jobs/<job_id>/cancel")
LIST_ERRORS = ManagementCall("GET /projects/<project_id>/jobs/<job_id>/errors")


def show_list(call: PageCall) -> Outbound:
    """Show the jobs of a project, newest first."""
    choice = choose_organization(call, "projects:read")
    projects, project_id = choose_project(call, choice)
    kind = call.arguments.get("kind", "")
    kind = kind if kind in KIND_NAMES else ""
    cursor = call.arguments.get("cursor", "")
    jobs: list[dict[str, Any]] = []
    if project_id:
        fields = {"limit": LISTED + 1} | ({"kind": kind} if kind else {}) | ({"cursor": cursor} if cursor else {})
        jobs = call.run(LIST, fields, project_id=project_id)
    older = jobs[LISTED - 1]["id"] if len(jobs) > LISTED else ""
    jobs = jobs[:LISTED]
    return call.page(
        "jobs/jobs.html",
        TITLE,
        path=PATH,
        jobs=[describe(call, choice.id, project_id, job) for job in jobs],
        kinds=list(KIND_NAMES.items()),
        kind=kind,
        bar=build_bar(call.inbound, choice.field, ChoiceField("projectId", "Project", projects, project_id)),
        project_id=project_id,
        choice=choice,
        cursor=cursor,
        older=older,
        again=_turn(call, any(job["endedAt"] is None for job in jobs), LIST_S),
    )


def choose_project(call: PageCall, choice: OrganizationChoice) -> tuple[list[tuple[str, str]], str]:
    """Return ids and names of the projects that the visitor may see, and the id of the chosen one, "" without any."""
    projects = [(one["id"], one["name"]) for one in call.run(PROJECTS, organization_id=choice.id)]
    asked = call.arguments.get("projectId", "")
    return projects, asked if asked in dict(projects) else next((ident for ident, _ in projects), "")


def describe(call: PageCall, organization_id: str, project_id: str, job: dict[str, Any]) -> dict[str, Any]:
    """Return a job with what its row shows."""
    reach = call.visitor.reach(organization_id, "jobs:write")
    may = reach.whole or project_id in reach.projects
    # Nothing is reserved before the lines are checked, and for a batch that failed this check.
    unknown = not job["done"] and job["status"] in ("validating", "failed")
    return {
        **job,
        "bound": None if unknown else job["bound"],
        "name": KIND_NAMES[job["kind"]],
        "level": LEVELS.get(job["status"], "busy"),
        "hasLines": job["kind"] in OF_LINES,
        "mayCancel": job["cancelable"]
        and (may or (reach.own and is_own(call.visitor, organization_id, job["apiKeyId"]))),
    }


def _turn(call: PageCall, is_busy: bool, least_s: int = 0) -> tuple[int, int]:
    """Return the seconds after which the page asks again, at least `least_s`, 0 for never, and the number of that
    turn."""
    text = call.arguments.get("turn", "")
    number = int(text) + 1 if text.isascii() and text.isdigit() and len(text) < 5 else 1
    seconds = next((max(seconds, least_s) for turns, seconds in TURNS if number <= turns), 0)
    return seconds if is_busy else 0, number


def show_job(call: PageCall) -> Outbound:
    """Show a job: progress, cost, downloads, and the errors of its lines."""
    project_id = call.params["project_id"]
    found: dict[str, Any] = call.run(SHOW, **call.params)
    organization_id = call.visitor.project(project_id, "projects:read").organization_id
    job = describe(call, organization_id, project_id, found)
    reach = call.visitor.reach(organization_id, "logs:read")
    may_read = reach.whole or project_id in reach.projects
    may_read = may_read or (reach.own and is_own(call.visitor, organization_id, job["apiKeyId"]))
    page: dict[str, Any] = {"errors": [], "next": None}
    problem = ""
    if job["hasLines"] and job["kind"] != RUN and may_read and (job["failed"] or job["problems"] or job["endedAt"]):
        try:
            page = _read_errors(call)
        except GatewayError as error:
            if error.blame != "caller":
                raise
            problem = error.message
    return call.page(
        "jobs/job.html",
        job["name"],
        path=PATH,
        project_id=project_id,
        job=job,
        downloads=[(one["content"], CONTENT_NAMES[one["content"]], one["bytes"]) for one in job["downloads"]]
        if may_read
        else [],
        may_read=may_read,
        errors=page["errors"],
        following=page["next"],
        cursor=call.arguments.get("cursor", ""),
        trouble=problem,
        again=_turn(call, job["endedAt"] is None),
    )


def _read_errors(call: PageCall) -> dict[str, Any]:
    """Return a page of errors. Parts of results without any are passed over, as far as one page may."""
    cursor = call.arguments.get("cursor", "")
    page: dict[str, Any] = {}
    for _ in range(3):
        fields: dict[str, Any] = {"limit": ERRORS} | ({"cursor": cursor} if cursor else {})
        page = call.run(LIST_ERRORS, fields, **call.params)
        if page["errors"] or not page["next"]:
            break
        cursor = page["next"]
    return page


def cancel(call: PageCall) -> str:
    """Cancel the job of the pressed button."""
    call.run(
        CANCEL,
        project_id=call.params.get("project_id") or call.form.get("project", ""),
        job_id=call.params.get("job_id") or call.form.get("job", ""),
    )
    return "The job is being cancelled. Requests under way end and are billed."


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show_list, {"cancel": cancel}),
    *page_operations(JOB, show_job, {"cancel": cancel}),
)
