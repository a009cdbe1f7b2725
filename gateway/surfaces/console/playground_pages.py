"""`/console/playground`: the page, the models that it offers, the requests it replays, its presets, and the tokens that
its calls use.

The page's script calls `/v1` as any client does, with a token for the key that the visitor chose, or with a key that is
made for the page. Both are in the memory of the page only. Conversations stay in the visitor's browser.
"""

from datetime import timedelta
from typing import Any
from urllib.parse import urlsplit

import orjson

from gateway.accounts import playground_presets
from gateway.accounts.keys import KeyInfo
from gateway.accounts.playground_presets import Preset
from gateway.accounts.projects import ProjectInfo
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.clock import to_iso
from gateway.errors import Forbidden, GatewayError, InvalidRequest
from gateway.metering.log.records import LoggedRequest
from gateway.surfaces.console.converted_chats import read_chat
from gateway.surfaces.console.model_rows import list_rows
from gateway.surfaces.console.organization_choice import (
    FIELD,
    CallerChoices,
    caller_without_key,
    find_caller,
    read_choices,
)
from gateway.surfaces.console.page_calls import CSRF_SUBJECT, PageCall, make_short_lived_key, page_operations
from gateway.surfaces.console.pages import check_page
from gateway.surfaces.console.playground_models import MODES, list_choices, name_models
from gateway.surfaces.console.visits import as_json, pressed, require_visitor, submitted_by_visitor
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.resent_requests import OF_CALLER
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

TITLE = "Playground"
PATH = "/console/playground"
KEYS = f"{PATH}/key"
MODELS = f"{PATH}/models"
PRESETS = f"{PATH}/presets"
RUNS = f"{PATH}/runs"
KEY_NAME = "Playground"
TOKEN_LIFE = timedelta(minutes=15)
MAX_SEED_LENGTH = 1_500_000  # characters of a replayed request
SOURCES = "img-src 'self' data: blob:; media-src blob:"
NOT_CONVERTED = "Only the model of this request is filled in: {}."
NOT_STORED = (
    "The organization has zero data retention, so the gateway stores no presets. The settings stay in this browser."
)


def show(call: PageCall) -> Outbound:
    """Show the playground; with `?request=` a request of the log is ready to be sent again."""
    request = _find_request(call)
    # A request of the log is continued in its own project.
    wanted = call.arguments.get(FIELD, "") or ("" if request is None else f"proj_{request.owner.project.hex()}")
    choices = read_own_choices(call.visitor, wanted)
    project = choices.project
    first: list[str] = []
    caller = None
    if project is not None:
        caller = caller_of(call.visitor, choices)
        first = name_models(list_rows(call.services, caller), MODES["chat"].operation)
    seed, note = _read_seed(call, caller, request)
    chosen = seed.get("model") or call.arguments.get("model", "")
    return call.page(
        "playground/playground.html",
        TITLE,
        path=PATH,
        field=FIELD,
        sources=SOURCES,
        choices=[(one, [(key.id, key.description) for key in keys]) for one, keys in choices.groups],
        chosen_key=choices.chosen,
        project=project,
        modes=[(name, mode.label) for name, mode in MODES.items()],
        models=first[:2],
        chosen=chosen,
        seed=orjson.dumps(seed).decode() if len(seed) > 1 else "",
        note=note,
        keys=KEYS,
        runs=RUNS,
        api=f"{urlsplit(call.inbound.base_url).path}/v1",
        url=f"{call.inbound.base_url}/v1",
        user=call.visitor.user_id,
        stores=caller is not None and not keeps_nothing(caller.rules),
    )


def read_own_choices(visitor: Visitor, chosen: str) -> CallerChoices:
    """Return the visitor's projects with the keys that the visitor owns; keys of others are not spent here."""
    choices = read_choices(visitor, chosen)
    groups = tuple((project, own_keys(visitor, project, keys)) for project, keys in choices.groups)
    known = [ident for project, keys in groups for ident in (project.id, *(key.id for key in keys))]
    if choices.chosen in known:
        return CallerChoices(groups, choices.chosen)
    project = choices.project
    return CallerChoices(groups, project.id if project is not None else "")


def own_keys(visitor: Visitor, project: ProjectInfo, keys: tuple[KeyInfo, ...]) -> tuple[KeyInfo, ...]:
    """Return the keys that belong to the visitor, without those of pages."""
    member = visitor.memberships[project.organization_id]
    return tuple(key for key in keys if key.member_id == member.id and key.description != KEY_NAME)


def caller_of(visitor: Visitor, choices: CallerChoices) -> Caller:
    """Return the caller of the choice. Raises Forbidden without any, Unauthenticated or Gone for a key that ended."""
    caller = find_caller(visitor, choices)
    if caller is None:
        raise Forbidden("You are not a member of any project.")
    return caller


def show_models(services: Services, inbound: Inbound) -> Outbound:
    """Return the models that the chosen key, or a new key of the chosen project, can call now. The answer is JSON."""
    visitor = require_visitor(services, inbound, PATH)
    check_page(visitor, PATH)
    with services.background.reports.turn(visitor.user_id):
        choices = read_own_choices(visitor, inbound.arguments().get(FIELD, ""))
        listed = list_choices(services, caller_of(visitor, choices))
    return json_reply(listed, inbound.shown_id)


def make_key(services: Services, inbound: Inbound) -> Outbound:
    """Return a token for the visitor's key in the form, or create a key for the page and delete the visitor's expired
    ones. The answer is JSON."""
    visitor, form = submitted_by_visitor(services, inbound, PATH, CSRF_SUBJECT)
    key_id = form.get("key", "")
    if not key_id:
        return make_short_lived_key(services, inbound, PATH, KEY_NAME, "customer")
    check_page(visitor, PATH)
    key = visitor.key(key_id, "keys:use")
    if key.member_id != visitor.member(key.organization_id).id:
        raise Forbidden("This key belongs to another person. Choose one of your own keys.")
    services.accounts.authentication.caller_of_key(key.id)  # refuses a key that has ended
    expires_at_us = services.clock.now_us() + round(TOKEN_LIFE.total_seconds() * 1e6)
    token = services.accounts.authentication.make_page_token(key.id, visitor.session.id, expires_at_us)
    return json_reply({"token": token, "expiresAt": to_iso(expires_at_us)}, inbound.shown_id)


# Presets.


def show_presets(services: Services, inbound: Inbound) -> Outbound:
    """Return the presets that the visitor sees in a project. The answer is JSON."""
    visitor = require_visitor(services, inbound, PATH)
    check_page(visitor, PATH)
    project = visitor.project(inbound.arguments().get("project", ""), "keys:use")
    return _list_presets(services, visitor, inbound, project)


def change_presets(services: Services, inbound: Inbound) -> Outbound:
    """Save or delete a preset, and return those that the visitor sees afterwards. The answer is JSON."""
    visitor, form = submitted_by_visitor(services, inbound, PATH, CSRF_SUBJECT)
    check_page(visitor, PATH)
    project = visitor.project(form.get("project", ""), "keys:use")
    action = pressed({"save": _save, "remove": _remove}, form)
    action(visitor, project, form)
    return _list_presets(services, visitor, inbound, project)


def _save(visitor: Visitor, project: ProjectInfo, form: dict[str, str]) -> None:
    services = visitor.services
    caller = caller_without_key(services.store.database, project, visitor.member(project.organization_id))
    if keeps_nothing(caller.rules):
        raise InvalidRequest(NOT_STORED, code="zdr_storage_conflict")
    try:
        content = orjson.dumps(orjson.loads(form.get("content", ""))).decode()
    except orjson.JSONDecodeError:
        raise InvalidRequest("The settings of the preset are not JSON.", param="content") from None
    place = (project.organization_id, project.id)
    shared = form.get("shared") == "true"
    store = services.store
    playground_presets.save(store.database, store.vault, place, visitor.user_id, form.get("name", ""), content, shared)


def _remove(visitor: Visitor, project: ProjectInfo, form: dict[str, str]) -> None:
    store = visitor.services.store
    preset = playground_presets.find(store.database, store.vault, form.get("preset", ""), project.id, visitor.user_id)
    if not _may_remove(visitor, preset):
        raise Forbidden("Only the person who saved a preset, owners and admins may delete it.")
    playground_presets.remove(store.database, preset)


def _may_remove(visitor: Visitor, preset: Preset) -> bool:
    return preset.user_id == visitor.user_id or visitor.manages("projects:write", preset.organization_id)


def _list_presets(services: Services, visitor: Visitor, inbound: Inbound, project: ProjectInfo) -> Outbound:
    store = services.store
    presets = playground_presets.list_presets(store.database, store.vault, project.id, visitor.user_id)
    listed = [
        {
            "id": preset.id,
            "name": preset.name,
            "content": orjson.loads(preset.content),
            "shared": preset.shared,
            "own": preset.user_id == visitor.user_id,
            "removable": _may_remove(visitor, preset),
        }
        for preset in presets
    ]
    return json_reply({"presets": listed}, inbound.shown_id)


def _find_request(call: PageCall) -> LoggedRequest | None:
    """Return the request of the query. Raises NotFound or Forbidden."""
    log_id = call.arguments.get("request", "")
    return request_log_reader_module.find_one(call.visitor, log_id[:80]) if log_id else None


def _read_seed(call: PageCall, caller: Caller | None, request: LoggedRequest | None) -> tuple[dict[str, Any], str]:
    """Return a request of the log as the body of a chat completion, whatever its API was, and a note on what of it is
    missing. Unavailable."""
    if request is None:
        return {}, ""
    only_model = {"model": request.asked}
    if request.operation != MODES["chat"].operation:
        return only_model, "This request is not a chat, so only its model is filled in."
    try:
        if caller is None:
            raise Forbidden("you are not a member of any project")
        written, notes = read_chat(call, caller, request)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return only_model, NOT_CONVERTED.format(error.message.rstrip("."))
    if len(orjson.dumps(written)) > MAX_SEED_LENGTH:
        return only_model, "This request is too large to be opened here, so only its model is filled in."
    return {name: value for name, value in written.items() if name not in OF_CALLER}, " ".join(notes)


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(PATH, show),
    Operation("POST", KEYS, as_json(make_key), body="form"),
    Operation("GET", MODELS, as_json(show_models)),
    Operation("GET", PRESETS, as_json(show_presets)),
    Operation("POST", PRESETS, as_json(change_presets), body="form"),
)
