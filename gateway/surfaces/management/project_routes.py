"""`/projects`: projects, their settings and their callback secret."""

from dataclasses import fields as fields_of
from functools import partial

from gateway.accounts import projects
from gateway.accounts.projects import MARKERS, RANGES, ProjectChange, ProjectInfo, name_markers
from gateway.neutral.request import STRATEGIES
from gateway.surfaces.management.access_groups import in_organization, in_project
from gateway.surfaces.management.limit_routes import hold_subject
from gateway.surfaces.management.managed_operation import Creating, Creation, ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, QueryFlag, StrictBoolean, TextField, WholeNumber
from gateway.surfaces.web.answer_structs import Answer, Time, to_camel
from gateway.surfaces.web.http import Operation
from gateway.transport import webhook_delivery

TAG = "Projects"
MODES = projects.CHOICES["mode"]
ROUTING = "routing"
HEDGING = "hedging"
USE_SUCCESSORS = "useSuccessors"
MARKER = "cacheMarkers"
# Members of a request and the fields of a change that they set; those of MARKER are converted.
CHANGED = {to_camel(field.name): field.name for field in fields_of(ProjectChange)} | {
    "cachingEnabled": "cache_enabled",
    "cacheDurationSeconds": "cache_ttl_s",
}


class NewProject(Creating):
    organizationId = TextField(1, 80, required=True)
    name = TextField(1, 255, required=True)
    # The installation's configuration sets the mode of projects that name none.
    mode = OneOf(MODES, load_default="", about="Default: [organizations] project_mode of the configuration.")


class ProjectSettings(Body):
    name = TextField(1, 255, about="New name.")
    mode = OneOf(
        MODES,
        about="Which provider keys are used: the installation's (credits), the organization's own, or its own first.",
    )
    status = OneOf(projects.CHOICES["status"], about="Keys of an archived project are refused.")
    cachingEnabled = StrictBoolean("The response cache.")
    cacheDurationSeconds = WholeNumber(*RANGES["cache_ttl_s"], about="Seconds, 10 to 31536000.")
    retention = OneOf(projects.CHOICES["retention"], about="Whether payloads are retained.")
    retentionDays = WholeNumber(*RANGES["retention_days"], about="Retention in days, 1 to 3650.")
    cacheMarkers = OneOf(
        tuple(MARKERS), about="Whether the caller or the gateway sets cache markers for providers' prompt caches."
    )
    routing = OneOf(STRATEGIES, about="The preference among providers.")
    useSuccessors = StrictBoolean("The successor answers for a model that has retired, with a warning.")
    hedging = StrictBoolean("A second attempt at the next provider while the first one is silent; both are billed.")


class ProjectAnswer(Answer):
    columns = ("id", "status", "mode", "caching_enabled", "cache_duration_seconds", "retention", "name")
    id: str
    organization_id: str
    name: str
    mode: str
    status: str
    caching_enabled: bool
    cache_duration_seconds: int
    retention: str
    retention_days: int
    cache_markers: str
    hedging: bool
    use_successors: bool
    routing: str
    has_callback_secret: bool
    created_at: Time


class ProjectQuery(ListPageQuery):
    includeArchived = QueryFlag(about="true: also archived projects.")


def list_projects(call: ManagedCall[str]) -> list[ProjectAnswer]:
    """List the organization's projects; archived projects only with `includeArchived=true`."""
    archived = call.fields.get("includeArchived") == "true"
    infos = call.page.read(partial(projects.list_projects, call.database, [call.subject], archived=archived))
    return [show_project(project) for project in infos]


def create(call: ManagedCall[str]) -> ProjectAnswer:
    """Create a project with the installation's defaults for mode, response cache and retention."""
    fields = call.fields
    project = call.management.create_project(
        call.subject, fields["name"], fields["mode"], actor=call.actor, claim=call.claim
    )
    return show_project(project)


def _show_existing(call: ManagedCall[str], project_id: str) -> ProjectAnswer:
    return show_project(projects.find_project(call.database, project_id))


def find(call: ManagedCall[ProjectInfo]) -> ProjectAnswer:
    """Return a project with its mode, response cache, retention and routing."""
    return show_project(call.subject)


def update(call: ManagedCall[ProjectInfo]) -> ProjectAnswer:
    """Change settings; in force on every worker when this returns."""
    fields = call.fields
    if "status" in fields:
        call.visitor.permitted(call.subject.organization_id, "projects:create")
    changed = {CHANGED[name]: value for name, value in fields.items() if name in CHANGED}
    if fields.get(MARKER):
        changed["cache_markers"] = MARKERS[fields[MARKER]]
    chosen = {name: fields[name] for name in (ROUTING, HEDGING, USE_SUCCESSORS) if name in fields}
    if chosen:
        changed["settings"] = {**call.subject.settings, **chosen}
    change = ProjectChange(**changed)
    return show_project(_change(call, change))


def archive(call: ManagedCall[ProjectInfo]) -> None:
    """Archive a project: its keys are refused with 410 until its status is set to active again. It ends the keys of
    all members. A project that a limit of a higher role names stays."""
    _change(call, ProjectChange(status="archived"))


def _change(call: ManagedCall[ProjectInfo], change: ProjectChange) -> ProjectInfo:
    project = call.subject
    if change.status == "archived" != project.status:
        check = hold_subject(call, project.organization_id, ("project",), project.id)
        return projects.update_project(*call.stores, project.id, change, actor=call.actor, check=check)
    return projects.update_project(*call.stores, project.id, change, actor=call.actor)


def read_secret(call: ManagedCall[ProjectInfo]) -> str | None:
    """The secret that signs the project's callbacks; null when it has none."""
    return projects.callback_secret(call.database, call.management.vault, call.subject.id) or None


def roll_secret(call: ManagedCall[ProjectInfo]) -> str:
    """Replace the callback secret by a new one."""
    secret = webhook_delivery.make_secret()
    projects.set_callback_secret(*call.stores, call.management.vault, call.subject.id, secret, actor=call.actor)
    return secret


def show_project(info: ProjectInfo) -> ProjectAnswer:
    return ProjectAnswer.of(
        info,
        caching_enabled=info.cache_enabled,
        cache_duration_seconds=info.cache_ttl_s,
        cache_markers=name_markers(info.cache_markers),
        routing=info.settings.get(ROUTING, "auto"),
        hedging=info.settings.get(HEDGING, False),
        use_successors=info.settings.get(USE_SUCCESSORS, False),
    )


PATH = "/projects/<project_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/orgs/<organization_id>/projects", list_projects, "List projects", tag=TAG,
            who=in_organization("projects:read"), scope="projects:read",
            query=ProjectQuery, inside="projects",
            commands=("projects list includeArchived=\"true\"",)),
    managed("POST", "/projects", create, "Create a project", tag=TAG,
            who=in_organization("projects:create"), scope="projects:write", request=NewProject,
            inside="project", success=201, audit="project.create",
            creates=Creation("project", _show_existing),
            commands=("projects create <organizationId> <name> ... -> id",)),
    managed("GET", PATH, find, "Show a project", tag=TAG,
            who=in_project("projects:read"), scope="projects:read", inside="project",
            commands=("projects show <project_id>",)),
    managed("PATCH", PATH, update, "Change a project's settings", tag=TAG,
            who=in_project("projects:write"), scope="projects:write",
            request=ProjectSettings, inside="project", message="Project updated.",
            audit="project.update",
            commands=("projects set <project_id> --cache=cachingEnabled --cache-ttl=cacheDurationSeconds ...",
                      "projects restore <project_id> status=active")),
    managed("DELETE", PATH, archive, "Archive a project", tag=TAG,
            who=in_project("projects:create"), scope="projects:write", message="Project archived.",
            audit="project.update", commands=("projects archive <project_id>",)),
    managed("GET", f"{PATH}/callback-secret", read_secret, "Show the callback secret", tag=TAG,
            who=in_project("projects:write"), scope="projects:write",
            inside="callbackSecret"),
    managed("POST", f"{PATH}/callback-secret/roll", roll_secret, "Replace the callback secret", tag=TAG,
            who=in_project("projects:write"), scope="projects:write", inside="callbackSecret",
            audit="project.update"),
)  # fmt: skip
