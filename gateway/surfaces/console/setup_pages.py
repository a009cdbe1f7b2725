"""`/console/setup`: settings of agents, editors and MCP clients with this gateway's address, each with a test."""

from urllib.parse import urlsplit

from gateway.surfaces.console.client_settings import AUTO, MODEL, group_clients
from gateway.surfaces.console.model_rows import list_rows
from gateway.surfaces.console.organization_choice import FIELD, caller_without_key, read_choices
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.playground_models import name_models
from gateway.surfaces.console.playground_pages import KEYS
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Set up a client"
PATH = "/console/setup"
PLACEHOLDER = "llmgtwy_…"
MAX_MODEL_LENGTH = 255


def show(call: PageCall) -> Outbound:
    """Show the settings of each client with the chosen model."""
    choices = read_choices(call.visitor, call.arguments.get(FIELD, ""))
    project = choices.project
    models: list[str] = []
    if project is not None:
        member = call.visitor.member(project.organization_id)
        caller = caller_without_key(call.services.store.database, project, member)
        models = name_models(list_rows(call.services, caller), "chat")
    model = call.arguments.get("model", "")[:MAX_MODEL_LENGTH].strip()
    if not MODEL.fullmatch(model):
        model = AUTO
    return call.page(
        "setup/setup.html",
        TITLE,
        path=PATH,
        field=FIELD,
        projects=[(one.id, one.name) for one, _ in choices.groups],
        project=project,
        models=[AUTO, *models],
        model=model,
        groups=group_clients(call.inbound.base_url, PLACEHOLDER, model),
        keys=KEYS,
        root=urlsplit(call.inbound.base_url).path,
    )


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show)
