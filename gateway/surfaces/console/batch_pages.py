"""`/console/jobs`: batches of a project with their progress, cost and errors."""

from typing import Any

from gateway.batches.batch_table import IN_PROGRESS, VALIDATING
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.management.batch_routes import MAX_LISTED
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Jobs"
PATH = "/console/jobs"
COLUMNS = (
    Column("Job", "id"),
    Column("Status", "status"),
    Column("Done", "done", numeric=True),
    Column("Failed", "failed", numeric=True),
    Column("Cost", "cost", numeric=True),
    Column("At most", "bound", numeric=True),
    Column("Created", "createdAt"),
    Column("Action"),
)
CANCELABLE = (VALIDATING, IN_PROGRESS)
PROJECTS = ManagementCall("GET /orgs/<organization_id>/projects")
BATCHES = ManagementCall("GET /projects/<project_id>/batches")
CANCEL = ManagementCall("POST /projects/<project_id>/batches/<batch_id>/cancel")


def show_list(call: PageCall) -> Outbound:
    """Show the newest batches of a project."""
    choice = choose_organization(call, "projects:read")
    projects = [(one["id"], one["name"]) for one in call.run(PROJECTS, organization_id=choice.id)]
    asked = call.arguments.get("projectId", "")
    project_id = asked if asked in dict(projects) else next((ident for ident, _ in projects), "")
    batches: list[dict[str, Any]] = []
    if project_id:
        batches = call.run(BATCHES, project_id=project_id)
    rows = [{**batch, "cancelable": batch["status"] in CANCELABLE} for batch in batches]
    shown = arrange(rows, COLUMNS, call.arguments, searched=("id", "status", "endpoint"), sort="-createdAt")
    manages = call.visitor.manages("projects:write", choice.id)
    return call.page(
        "jobs.html",
        TITLE,
        jobs=shown,
        projects=projects,
        project_id=project_id,
        choice=choice,
        manages=manages,
        newest=MAX_LISTED if len(batches) == MAX_LISTED else 0,
    )


def cancel(call: PageCall) -> str:
    """Cancel the batch of the pressed button."""
    call.run(CANCEL, project_id=call.form["project"], batch_id=call.form["job"])
    return "The job is being cancelled. Requests under way end and are billed."


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show_list, {"cancel": cancel})
