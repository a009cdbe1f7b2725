"""`/console/files`: files of a project, with their size, expiry and what they take of the quota: stored, downloaded and
deleted."""

from dataclasses import replace as replace_caller
from typing import Any

from msgspec.structs import replace

from gateway.accounts.members import list_members
from gateway.callers.permissions import Permission
from gateway.errors import Conflict, GatewayError
from gateway.files.project_files import BATCH_OUTPUT, NewFile
from gateway.surfaces.bodies import stored_files
from gateway.surfaces.console.choice_bar import ChoiceField, build_bar
from gateway.surfaces.console.job_pages import choose_project
from gateway.surfaces.console.organization_choice import caller_without_key, choose_organization
from gateway.surfaces.console.page_calls import CSRF_SUBJECT, ManagementCall, PageCall, page_operations
from gateway.surfaces.console.pages import check_page
from gateway.surfaces.console.visits import as_page, check_csrf, require_visitor
from gateway.surfaces.management.file_routes import PURPOSES
from gateway.surfaces.visitors.project_jobs import covers
from gateway.surfaces.visitors.visitor import check_origin
from gateway.surfaces.web.forms import read_form
from gateway.surfaces.web.http import Handler, Inbound, Operation, Outbound
from gateway.worker.services import Services

TITLE = "Files"
PATH = "/console/files"
LISTED = 50
UPLOADED = tuple(purpose for purpose in PURPOSES if purpose != BATCH_OUTPUT)
PURPOSE_NAMES = {
    "user_data": "Input of requests",
    "batch": "Lines of a batch",
    "vision": "Images",
    "assistants": "Assistants",
    "evals": "Evaluations",
    "fine-tune": "Fine-tuning",
    BATCH_OUTPUT: "Results of a batch",
}
DAY_S = 86_400
LIFETIMES = {"": "Default", "1": "1 day", "7": "7 days", "30": "30 days"}
LIST = ManagementCall("GET /projects/<project_id>/files")
USAGE = ManagementCall("GET /orgs/<organization_id>/file-usage")
DELETE = ManagementCall("DELETE /projects/<project_id>/files/<file_id>")
STORE: Permission = "jobs:write"
ACTIVE = "active"


def show(call: PageCall) -> Outbound:
    """Show the files of a project, newest first."""
    choice = choose_organization(call, "projects:read")
    projects, project_id = choose_project(call, choice)
    purpose = call.arguments.get("purpose", "")
    purpose = purpose if purpose in PURPOSE_NAMES else ""
    cursor = call.arguments.get("cursor", "")
    rows: list[dict[str, Any]] = []
    may_upload = False
    if project_id:
        fields = {"limit": LISTED + 1} | {n: v for n, v in (("purpose", purpose), ("cursor", cursor)) if v}
        files = call.run(LIST, fields, project_id=project_id)
        project = call.visitor.project(project_id, "projects:read")
        reads, writes = covers(call.visitor, "logs:read", project), covers(call.visitor, STORE, project)
        names = _names_of(call, choice.id)
        rows = [_describe(file, names, reads, writes) for file in files]
        reach = call.visitor.reach(choice.id, STORE)
        may_upload = reach.whole or reach.own or project_id in reach.projects
    usage = call.run(USAGE, organization_id=choice.id)
    most = min(usage["maxFileBytes"], call.services.settings.server.max_form_mb << 20)
    return call.page(
        "jobs/files.html",
        TITLE,
        path=PATH,
        files=rows[:LISTED],
        older=rows[LISTED - 1]["id"] if len(rows) > LISTED else "",
        cursor=cursor,
        purposes=list(PURPOSE_NAMES.items()),
        uploaded=[(one, PURPOSE_NAMES[one]) for one in UPLOADED],
        lifetimes=list(LIFETIMES.items()),
        purpose=purpose,
        bar=build_bar(call.inbound, choice.field, ChoiceField("projectId", "Project", projects, project_id)),
        projects=projects,
        project_id=project_id,
        choice=choice,
        usage=usage,
        share=usage["usedBytes"] * 100 // usage["limitBytes"] if usage["limitBytes"] else 0,
        most=most,
        may_upload=may_upload,
    )


def _names_of(call: PageCall, organization_id: str) -> dict[str, str]:
    """Return the names of members, for those who may see these."""
    if not call.visitor.manages("members:read", organization_id):
        return {}
    listed = list_members(call.services.store.database, organization_id)
    return {member.id: member.name or member.email for member in listed}


def _describe(file: dict[str, Any], names: dict[str, str], reads: Any, writes: Any) -> dict[str, Any]:
    owner = file["apiKeyId"] or file["memberId"] or ""
    return {
        **file,
        "purposeName": PURPOSE_NAMES.get(file["purpose"], file["purpose"]),
        "by": names.get(owner, "a member") if file["memberId"] else "",
        "mayRead": reads(owner),
        "mayDelete": writes(owner),
    }


def delete(call: PageCall) -> str:
    """Delete the file of the pressed button."""
    call.run(DELETE, project_id=call.form.get("project", ""), file_id=call.form.get("file", ""))
    return "The file was deleted."


def upload(services: Services, inbound: Inbound) -> Outbound:
    """Store the file of a form, and show the page with the result."""
    check_origin(services, inbound, required=True)
    visitor = require_visitor(services, inbound, PATH)
    check_page(visitor, inbound.path)
    form = read_form(inbound, stored_files.limits_of(services), services.settings.spool_dir)
    fields = dict(form.fields)
    check_csrf(services, visitor, CSRF_SUBJECT, fields)
    call = PageCall(visitor, inbound, fields)
    try:
        project = visitor.project(fields.get("project", ""), STORE)
        visitor.check(project.organization_id, STORE, True)
        if project.status != ACTIVE:
            raise Conflict(f"The project {project.name} is archived: restore it first.", code="project_archived")
        file = stored_files.file_of(form, "file")
        purpose = fields.get("purpose", "")
        days = fields.get("days", "")
        new = NewFile(
            file.filename,
            stored_files.media_type_of(file.content_type, file.filename),
            purpose if purpose in UPLOADED else UPLOADED[0],
            int(days) * DAY_S if days in LIFETIMES and days else None,
        )
        member = visitor.member(project.organization_id)
        caller = caller_without_key(services.store.database, project, member)
        # The member owns it as a key owns its files.
        caller = replace_caller(caller, key_id=member.id)
        stored = services.engine.files.create(caller, new, len(file.data), file.data.pieces())
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return show(replace(call, error=error))
    name = services.engine.files.name_of(stored) or stored.id
    return show(replace(call, message=f"{name} was stored as {stored.id}."))


def _choose(press: Handler) -> Handler:
    """Return the handler of the page's forms: that with a file, and those of its buttons."""
    store = as_page(upload)

    def handle(services: Services, inbound: Inbound) -> Outbound:
        return press(services, inbound) if inbound.upload is None else store(services, inbound)

    handle.__doc__ = upload.__doc__
    return handle


SHOWN, PRESSED = page_operations(PATH, show, {"delete": delete})
OPERATIONS: tuple[Operation, ...] = (SHOWN, Operation("POST", PATH, _choose(PRESSED.handler), body="form"))
