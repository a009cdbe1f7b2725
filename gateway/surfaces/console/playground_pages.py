"""`/console/playground`: the page, the requests it replays, and the short-lived keys that its calls use.
`/console/setup`: the settings of clients.

The page's script calls `/v1` as any client does. Its key can only call models, expires after an hour, and is in the
memory of the page only.
"""

from typing import Any
from urllib.parse import urlsplit

import orjson

from gateway.metering.payload_table import SENT_CUT
from gateway.surfaces.console.client_settings import AUTO, MODEL, group_clients
from gateway.surfaces.console.model_rows import ModelRow, list_rows
from gateway.surfaces.console.organization_choice import FIELD, caller_without_key, read_choices
from gateway.surfaces.console.page_calls import PageCall, make_short_lived_key, page_operations
from gateway.surfaces.console.visits import as_json
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

TITLE = "Playground"
PATH = "/console/playground"
KEYS = f"{PATH}/key"
KEY_NAME = "Playground"
MAX_SEED_LENGTH = 200_000  # characters of a replayed request
SOURCES = "img-src 'self' data:; media-src blob:"
CHAT_PATH = "/chat/completions"
# Mode of the page → its label, and the operation of its models.
MODES = {"chat": ("Chat", "chat"), "image": ("Images", "images"), "speech": ("Speech", "speech")}


def show(call: PageCall) -> Outbound:
    """Show the playground; with `?request=` a request of the log is ready to be sent again."""
    choices = read_choices(call.visitor, call.arguments.get(FIELD, ""))
    project = choices.project
    models: dict[str, list[str]] = {mode: [] for mode in MODES}
    if project is not None:
        member = call.visitor.member(project.organization_id)
        rows = list_rows(call.services, caller_without_key(call.services.store.database, project, member))
        models = {mode: name_models(rows, operation) for mode, (_, operation) in MODES.items()}
    seed, note = _read_seed(call)
    chosen = seed.get("model") or call.arguments.get("model", "")
    return call.page(
        "playground/playground.html",
        TITLE,
        path=PATH,
        field=FIELD,
        sources=SOURCES,
        projects=[(one.id, one.name) for one, _ in choices.groups],
        project=project,
        modes=[(mode, label) for mode, (label, _) in MODES.items()],
        models=models,
        chosen=[chosen or next(iter(models["chat"]), ""), next(iter(models["chat"][1:]), "")],
        seed=orjson.dumps(seed).decode() if len(seed) > 1 else "",
        note=note,
        keys=KEYS,
        api=f"{urlsplit(call.inbound.base_url).path}/v1",
        url=f"{call.inbound.base_url}/v1",
    )


def make_key(services: Services, inbound: Inbound) -> Outbound:
    """Create a key for the page and delete the visitor's expired ones. The answer is JSON."""
    return make_short_lived_key(services, inbound, PATH, KEY_NAME, "customer")


def name_models(rows: list[ModelRow], operation: str) -> list[str]:
    """Return the ids of the usable models for an operation."""
    usable = [row for row in rows if row.usable]
    return [row.id for row in usable if any(operation in mapping.operations for mapping in row.model.mappings)]


def _read_seed(call: PageCall) -> tuple[dict[str, Any], str]:
    """Return the chat completions body of the request in the query, and a note on what of it is missing. Raises
    NotFound or Forbidden."""
    log_id = call.arguments.get("request", "")
    if not log_id:
        return {}, ""
    request = request_log_reader_module.find_one(call.visitor, log_id[:80])
    only_model = {"model": request.asked}
    info = request.payload
    if info is None:
        return only_model, "The payload of this request was not retained, so only its model is filled in."
    if info.sent_bytes > MAX_SEED_LENGTH or info.flags & SENT_CUT:
        return only_model, "This request is too large to be replayed here, so only its model is filled in."
    try:
        body = orjson.loads(call.services.engine.retention.read(info).sent)
    except orjson.JSONDecodeError:
        body = None
    if not isinstance(body, dict) or not request.path.endswith(CHAT_PATH):
        return only_model, "This request is not a chat completion, so only its model is filled in."
    return body, ""


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show),
    Operation("POST", KEYS, as_json(make_key), body="form"),
)


# `/console/setup`: settings of agents, editors and MCP clients with this gateway's address, each with a test.

SETUP_TITLE = "Set up a client"
SETUP_PATH = "/console/setup"
PLACEHOLDER = "llmgtwy_…"
MAX_MODEL_LENGTH = 255


def show_setup(call: PageCall) -> Outbound:
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
        SETUP_TITLE,
        path=SETUP_PATH,
        field=FIELD,
        projects=[(one.id, one.name) for one, _ in choices.groups],
        project=project,
        models=[AUTO, *models],
        model=model,
        groups=group_clients(call.inbound.base_url, PLACEHOLDER, model),
        keys=KEYS,
        root=urlsplit(call.inbound.base_url).path,
    )


SETUP_OPERATIONS: tuple[Operation, ...] = page_operations(SETUP_PATH, show_setup)
