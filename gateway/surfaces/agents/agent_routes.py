"""The gateway protocol of Claude Code, beside sign-in (`gateway/surfaces/oauth`) and messages: `/managed/settings`, and
`/v1/metrics`, `/v1/logs` and `/v1/traces`, which take OTLP exports over HTTP.

The protocol is described at https://code.claude.com/docs/en/claude-apps-gateway and in the package
`@anthropic-ai/claude-code` itself.
"""

from functools import partial
from typing import Any

from gateway.accounts import managed_settings
from gateway.callers.access import keeps_nothing
from gateway.callers.authentication import Caller
from gateway.callers.models import Organization, Team, User
from gateway.callers.scopes import SETTINGS_PATH, SIGNALS, USAGE_PATH
from gateway.errors import NotFound, RequestTooLarge, UnsupportedMediaType
from gateway.metering.outcomes.names import NAMES
from gateway.metering.outcomes.outcome_points import OutcomeExport, OutcomePoint, export_digest
from gateway.metering.usage_table import raw_id
from gateway.runtime.threads import compute_if
from gateway.secret_text import hide_tokens
from gateway.surfaces.anthropic import usage_limits
from gateway.surfaces.anthropic.routes import ERRORS
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web.answer_structs import JsonObject, ModelApiAnswer
from gateway.surfaces.web.attribution import stored_session
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.http_responses import PRIVATE, json_reply
from gateway.telemetry.agent_signals import AgentExport
from gateway.telemetry.otlp_attribution import PREFIX, add_to_json, add_to_protobuf
from gateway.telemetry.otlp_outcomes import read_outcomes
from gateway.telemetry.protobuf_fields import TooManyFields
from gateway.worker.services import Services

TAG = "Claude Code"
JSON = "application/json"
PROTOBUF = "application/x-protobuf"
MAX_EXPORT_BYTES = 4 << 20  # bytes of an export; agents send a few kilobytes
THREAD_BYTES = 8_192
ATTRIBUTES_KEY = "agent attributes"


class ManagedSettingsDocument(ModelApiAnswer):
    """The settings of an agent, with their checksum."""

    uuid: str
    checksum: str
    settings: JsonObject


def show_settings(services: Services, inbound: Inbound) -> Outbound:
    """Return the managed settings of the caller's organization and team. The ETag is their checksum: with
    If-None-Match the answer is 304 while they are unchanged, and 404 if there are none."""
    caller = auth_module.require_user_key(auth_module.caller_of(services, inbound))
    settings = managed_settings.settings_of(
        services.store.database, caller.organization_id, caller.team_id, caller.member_id
    )
    if settings is None:
        raise NotFound("Your organization has no managed settings.", code="no_managed_settings")
    etag = f'"{settings.checksum}"'
    headers = [("ETag", etag)]
    if etag in [tag.strip() for tag in inbound.header("if-none-match").split(",")]:
        return Outbound(304, [*PRIVATE, *headers])
    answer = ManagedSettingsDocument(settings.uuid, settings.checksum, settings.settings)
    return json_reply(answer.encode(), inbound.shown_id, headers=headers)


def show_usage(services: Services, inbound: Inbound) -> Outbound:
    """Return the caller's spending limits in their current periods, the most used limit first, in cents."""
    caller = auth_module.require_user_key(auth_module.caller_of(services, inbound))
    states = usage_limits.read_states(services.billing.budgets, caller)
    return json_reply(usage_limits.show_usage(states), inbound.shown_id)


def take_export(signal: str, services: Services, inbound: Inbound) -> Outbound:
    """Accept an OTLP export in JSON or protobuf. The commits, pull requests, lines, edits and active time that it
    reports are added to the outcomes of the caller's key. With a collector (`otel.endpoint`) the export is forwarded in
    the background, with the organization, team and person as resource attributes."""
    caller = auth_module.caller_of(services, inbound)
    media_type = inbound.header("content-type").partition(";")[0].strip().lower()
    if media_type not in (JSON, PROTOBUF):
        raise UnsupportedMediaType(f"Send the export as {PROTOBUF} or {JSON}.")
    body = inbound.body
    if len(body) > MAX_EXPORT_BYTES:
        raise RequestTooLarge(f"An export may have at most {MAX_EXPORT_BYTES:,} bytes.")
    if NAMES.of(signal):
        _take_outcomes(services, caller, signal, body, media_type == JSON)
    signals = services.telemetry.agent_signals
    if signals.forwards:
        attributes = _attributes_of(services, caller)
        if media_type == JSON:
            body = caps_module.read(services.settings.limits, body, add_to_json, body, signal, attributes)
        else:
            body = compute_if(len(body) > THREAD_BYTES, add_to_protobuf, body, attributes)
    signals.take(AgentExport(signal, media_type, body, caller.organization_id))
    if media_type == JSON:
        return json_reply({}, inbound.shown_id)
    # An empty export response is an empty message.
    return Outbound(200, [("Content-Type", PROTOBUF), *PRIVATE])


def _take_outcomes(services: Services, caller: Caller, signal: str, body: bytes, is_json: bool) -> None:
    """Keep what an export reports for the next transaction. Raises InvalidRequest for a malformed export; one that is
    too large to be read is only forwarded."""
    if not any(prefix in body for prefix in NAMES.prefixes):
        return
    book = services.telemetry.outcomes
    try:
        if is_json:
            points = caps_module.read(services.settings.limits, body, read_outcomes, body, signal, True)
        else:
            points = compute_if(len(body) > THREAD_BYTES, read_outcomes, body, signal, False)
    except TooManyFields as error:
        book.drop(error.maximum)
        return
    if points:
        points = [_without_secrets(caller, point) for point in points]
        owners = (caller.organization_id, caller.project_id, caller.key_id, caller.member_id)
        organization, project, api_key, member = map(raw_id, owners)
        book.take(OutcomeExport(export_digest(body), organization, project, api_key, member, points))


def _without_secrets(caller: Caller, point: OutcomePoint) -> OutcomePoint:
    """Return a point with its session as those of requests are stored, without names in which a key is, and under zero
    data retention without its repository."""
    model, repository = (name if hide_tokens(name) == name else "" for name in (point.model, point.repository))
    if keeps_nothing(caller.rules):
        repository = ""
    session = point.session and stored_session(caller, point.session)
    return point._replace(session=session, model=model, repository=repository)


def _attributes_of(services: Services, caller: Caller) -> dict[str, str]:
    """Return the resource attributes of a caller; the names are read once for each version of the accounts."""
    if ATTRIBUTES_KEY not in caller.memo:
        caller.memo[ATTRIBUTES_KEY] = services.store.database.read(partial(_read_attributes, caller))
    attributes: dict[str, str] = caller.memo[ATTRIBUTES_KEY]
    return attributes


def _read_attributes(caller: Caller) -> dict[str, str]:
    organization: Any = Organization.get_or_none(Organization.id == caller.organization_id)
    user: Any = User.get_or_none(User.id == caller.user_id)
    team: Any = Team.get_or_none(Team.id == caller.team_id)
    values = {
        "organization.id": caller.organization_id,
        "organization.name": organization.name if organization is not None else "",
        "project.id": caller.project_id,
        "team.id": caller.team_id,
        "team.name": team.name if team is not None else "",
        "user.id": caller.user_id,
        "user.email": user.email if user is not None else "",
        "key.id": caller.key_id,
    }
    return {PREFIX + name: value for name, value in values.items() if value}


def _export_operation(signal: str) -> Operation:
    about = About(
        f"Send {signal} of an agent (OTLP over HTTP)",
        TAG,
        {"type": "object", "description": "An OTLP export request, in protobuf or JSON."},
        answer={"type": "object", "maxProperties": 0},
    )
    handler = partial(take_export, signal)
    handler.__doc__ = take_export.__doc__
    return Operation("POST", f"/v1/{signal}", handler, body="any", about=about)


SETTINGS = About("Fetch the managed settings of an agent", TAG, answer=ManagedSettingsDocument)
USAGE = About("Fetch the spending limits of an agent", TAG, answer=usage_limits.AgentUsage)
OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", USAGE_PATH, show_usage, about=USAGE),
    Operation("GET", SETTINGS_PATH, show_settings, about=SETTINGS),
    *(_export_operation(signal) for signal in SIGNALS),
)
SURFACE = Surface(
    "claude-code", ERRORS, OPERATIONS, prefixes=("/managed", USAGE_PATH, *(f"/v1/{signal}" for signal in SIGNALS))
)
