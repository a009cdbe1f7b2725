"""`/projects`: projects, their settings and their callback secret."""

from typing import Any

from marshmallow import fields

from gateway.accounts import projects
from gateway.accounts.projects import MARKERS, RANGES, ProjectChange
from gateway.runtime import webhook_signatures
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, require_some
from gateway.surfaces.management.presenters import ROUTING, show_project
from gateway.surfaces.validation_schemas import Body, OneOf, TextField, WholeNumber, read_body, read_query
from gateway.surfaces.visitor import MANAGERS, Visitor

TAG = "Projects"
MODES = projects.CHOICES["mode"]
STRATEGIES = ("auto", "price", "throughput", "latency")


class NewProject(Body):
    organizationId = TextField(1, 80, required=True)
    name = TextField(1, 255, required=True)
    mode = OneOf(MODES, load_default="")  # what the operator set for new projects


class ProjectSettings(Body):
    name = TextField(1, 255)
    mode = OneOf(MODES)
    status = OneOf(projects.CHOICES["status"])
    cachingEnabled = fields.Boolean(truthy={True}, falsy={False})
    cacheDurationSeconds = WholeNumber(*RANGES["cache_ttl_s"])
    retention = OneOf(projects.CHOICES["retention"])
    retentionDays = WholeNumber(*RANGES["retention_days"])
    cacheMarkers = OneOf(tuple(MARKERS))
    routing = OneOf(STRATEGIES)


class ProjectQuery(Body):
    includeArchived = OneOf(("true", "false"))


def list_projects(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """List the organization's projects; archived projects only with `includeArchived=true`."""
    archived = read_query(ProjectQuery, inbound).get("includeArchived") == "true"
    organization_id = visitor.own_organization(inbound)
    found = projects.list_projects(visitor.services.store.database, [organization_id])
    return {"projects": [show_project(one) for one in found if archived or one.status == "active"]}


def create(visitor: Visitor, inbound: Inbound) -> Outbound:
    """It begins with what the installation says of new projects: mode, response cache, retention."""
    given = read_body(NewProject, inbound)
    visitor.manager(given["organizationId"])
    management = visitor.services.management
    made = management.create_project(given["organizationId"], given["name"], given["mode"], actor=visitor.user_id)
    return json_reply({"project": show_project(made)}, inbound.shown_id, 201)


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Its mode, response cache, retention and routing."""
    return {"project": show_project(visitor.project(inbound.params["project_id"]))}


def update(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Change settings; in force on every worker when this returns."""
    given = require_some(read_body(ProjectSettings, inbound))
    project = visitor.project(inbound.params["project_id"], *MANAGERS)
    marker = given.get("cacheMarkers")
    change = ProjectChange(
        name=given.get("name"),
        mode=given.get("mode"),
        status=given.get("status"),
        cache_enabled=given.get("cachingEnabled"),
        cache_ttl_s=given.get("cacheDurationSeconds"),
        retention=given.get("retention"),
        retention_days=given.get("retentionDays"),
        cache_markers=MARKERS[marker] if marker else None,
        settings={**project.settings, ROUTING: given["routing"]} if "routing" in given else None,
    )
    return {"message": "Project updated.", "project": show_project(_change(visitor, project.id, change))}


def archive(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Archive a project: its keys are refused with 410 until its status is set to active again."""
    project = visitor.project(inbound.params["project_id"], *MANAGERS)
    _change(visitor, project.id, ProjectChange(status="archived"))
    return {"message": "Project archived."}


def read_secret(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The secret that signs the project's callbacks; null when it has none."""
    services = visitor.services
    project = visitor.project(inbound.params["project_id"], *MANAGERS)
    secret = projects.callback_secret(services.store.database, services.management.vault, project.id)
    return {"callbackSecret": secret or None}


def roll_secret(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Replace the callback secret by a new one."""
    services = visitor.services
    project = visitor.project(inbound.params["project_id"], *MANAGERS)
    secret = webhook_signatures.make_secret()
    projects.set_callback_secret(
        services.store.database,
        services.store.control,
        services.management.vault,
        project.id,
        secret,
        actor=visitor.user_id,
    )
    return {"callbackSecret": secret}


def _change(visitor: Visitor, project_id: str, change: ProjectChange) -> projects.ProjectInfo:
    services = visitor.services
    return projects.update_project(
        services.store.database, services.store.control, project_id, change, actor=visitor.user_id
    )


ONE = shapes.shape(project=shapes.PROJECT)
PATH = "/projects/<project_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/orgs/<organization_id>/projects", list_projects, "List projects", tag=TAG, query=ProjectQuery,
            answer=shapes.shape(projects=[shapes.PROJECT])),
    managed("POST", "/projects", create, "Make a project", tag=TAG, request=NewProject, answer=ONE, success=201),
    managed("GET", PATH, find, "Show a project", tag=TAG, answer=ONE),
    managed("PATCH", PATH, update, "Change a project's settings", tag=TAG, request=ProjectSettings,
            answer=shapes.shape(message="string", project=shapes.PROJECT)),
    managed("DELETE", PATH, archive, "Archive a project", tag=TAG, answer=shapes.DONE),
    managed("GET", f"{PATH}/callback-secret", read_secret, "Show the callback secret", tag=TAG,
            answer=shapes.shape(callbackSecret="string?")),
    managed("POST", f"{PATH}/callback-secret/roll", roll_secret, "Make a new callback secret", tag=TAG,
            answer=shapes.shape(callbackSecret="string")),
)  # fmt: skip
