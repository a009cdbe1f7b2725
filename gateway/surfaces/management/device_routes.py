"""`/auth/device`: the device flow (RFC 8628 with JSON bodies), as the public client polls it."""

from urllib.parse import quote, urlsplit

from msgspec.json import encode

from gateway.accounts.device_codes import CLIENTS, PAGE, REFUSALS, DeviceRequest
from gateway.accounts.sessions import LIFETIME_S
from gateway.callers.throttle import ThrottleGate
from gateway.dialects.error_details import DeviceError
from gateway.errors import RateLimited
from gateway.surfaces.management.access_groups import SIGNED_IN
from gateway.surfaces.management.managed_operation import ManagedCall, managed, public
from gateway.surfaces.management.sign_in_routes import DeviceGrantAnswer, DeviceRequestAnswer, DeviceTokenAnswer
from gateway.surfaces.visitors.validation_schemas import Body, TextField, read_body
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import json_reply
from gateway.worker.services import Services

GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
MINUTE_S = 60
# A minute, from one client address.
CODES = 30
POLLS = 120


class CodeRequest(Body):
    client_id = TextField(1, 64, required=True)


class TokenRequest(Body):
    grant_type = TextField(1, 128, required=True, example=GRANT_TYPE)
    device_code = TextField(1, 256, required=True)
    client_id = TextField(1, 64, required=True)


class UserCode(Body):
    userCode = TextField(1, 64, required=True)


class Approval(Body):
    userCode = TextField(1, 64, required=True)
    projectId = TextField(0, 80, load_default="", about="For Claude Code: the project that pays its requests.")
    teamId = TextField(0, 80, load_default="", about="For Claude Code: the team whose managed settings it gets.")


class CodeQuery(Body):
    user_code = TextField(1, 64, required=True)


def start(services: Services, inbound: Inbound) -> Outbound:
    """A device code, and the URL of the page where a person approves it."""
    services.management.throttle.take(ThrottleGate("device codes", inbound.peer, CODES, MINUTE_S))
    fields = read_body(CodeRequest, inbound)
    if fields["client_id"] not in CLIENTS:
        return _refuse(inbound, "invalid_client", "This client is unknown.")
    grant = services.management.devices.start(fields["client_id"], inbound.peer)
    page = dashboard_of(services, inbound) + PAGE
    answer = DeviceGrantAnswer(
        grant.device_code,
        grant.user_code,
        page,
        f"{page}?user_code={quote(grant.user_code)}",
        grant.expires_in_s,
        grant.interval_s,
    )
    return json_reply(encode(answer), inbound.shown_id)


def collect(services: Services, inbound: Inbound) -> Outbound:
    """The state of the request; once approved, the session, which can be collected once."""
    try:
        services.management.throttle.take(ThrottleGate("device polls", inbound.peer, POLLS, MINUTE_S))
    except RateLimited:
        return _refuse(inbound, *REFUSALS["slow_down"])
    fields = read_body(TokenRequest, inbound)
    if fields["grant_type"] != GRANT_TYPE:
        return _refuse(inbound, "unsupported_grant_type", f"Send grant_type {GRANT_TYPE}.")
    if fields["client_id"] not in CLIENTS:
        return _refuse(inbound, "invalid_client", "This client is unknown.")
    status, session = services.management.devices.collect(fields["device_code"], fields["client_id"])
    if session is None:
        return _refuse(inbound, *REFUSALS[status])
    return json_reply(encode(DeviceTokenAnswer(session.token, "Bearer", LIFETIME_S, "")), inbound.shown_id)


def find(call: ManagedCall[None]) -> DeviceRequestAnswer:
    """The request behind the code that a device shows, so that you know what you approve."""
    return show_request(call.management.find_device(call.fields["user_code"], call.actor))


def approve(call: ManagedCall[None]) -> DeviceRequestAnswer:
    """Give the device that shows this code a session of yours. Claude Code gets tokens for a project instead; without
    `projectId` you must have only one."""
    code = call.fields["userCode"]
    workspace = call.visitor.workspace(call.inbound, call.fields["projectId"], call.fields["teamId"])
    login = call.visitor.session.sso_login
    return show_request(call.management.approve_device(code, call.actor, workspace, login))


def deny(call: ManagedCall[None]) -> DeviceRequestAnswer:
    """Deny access to the device that shows this code."""
    return show_request(call.management.deny_device(call.fields["userCode"], call.actor))


def dashboard_of(services: Services, inbound: Inbound) -> str:
    """Return the origin of the sign-in page: a configured origin that the client names, else the gateway's own."""
    origin = inbound.header("origin")
    if origin and origin in services.settings.security.trusted_origins:
        return origin
    own = urlsplit(inbound.base_url)
    return f"{own.scheme}://{own.netloc}{own.path}".rstrip("/")


def show_request(request: DeviceRequest) -> DeviceRequestAnswer:
    return DeviceRequestAnswer.of(request, client_id=request.client)


def _refuse(inbound: Inbound, slug: str, message: str) -> Outbound:
    body: DeviceError = {"error": slug, "error_description": message, "message": message}
    return json_reply(body, inbound.shown_id, 400)


OPERATIONS: tuple[Operation, ...] = (
    public("POST", "/auth/device/code", start, "Start a sign-in on a device without a browser", request=CodeRequest,
           answer=DeviceGrantAnswer, errors=(429,)),
    public("POST", "/auth/device/token", collect, "Collect the session of a device code", request=TokenRequest,
           answer=DeviceTokenAnswer),
    managed("GET", "/auth/device", find, "Show a device's request", tag="Sign-in", who=SIGNED_IN, query=CodeQuery,
            errors=(429,)),
    managed("POST", "/auth/device/approve", approve, "Approve a device's request", tag="Sign-in", who=SIGNED_IN,
            request=Approval, audit="device.approve"),
    managed("POST", "/auth/device/deny", deny, "Deny a device's request", tag="Sign-in", who=SIGNED_IN,
            request=UserCode, audit="device.deny"),
)  # fmt: skip
