"""`/auth/device`: the device flow (RFC 8628 with JSON bodies), as the public client polls it."""

from typing import Any
from urllib.parse import quote, urlsplit

from gateway.accounts.device_codes import CLIENTS, DeviceRequest
from gateway.accounts.sessions import LIFE_S
from gateway.accounts.throttle import ThrottleGate
from gateway.clock import to_iso
from gateway.errors import RateLimited
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, public
from gateway.surfaces.validation_schemas import Body, TextField, read_body, read_query
from gateway.surfaces.visitor import Visitor
from gateway.worker.services import Services

PAGE = "/connect/device"
GRANT_TYPE = "urn:ietf:params:oauth:grant-type:device_code"
MINUTE_S = 60
CODES, POLLS = 30, 120  # a minute, from one place

# The error code of each state in RFC 8628, section 3.5, and a message for people.
REFUSALS = {
    "pending": ("authorization_pending", "The request has not been approved yet."),
    "slow_down": ("slow_down", "Poll less often."),
    "denied": ("access_denied", "The request was denied."),
    "expired": ("expired_token", "The code is unknown, used or expired. Start again."),
}


class CodeRequest(Body):
    client_id = TextField(1, 64, required=True)


class TokenRequest(Body):
    grant_type = TextField(1, 128, required=True)
    device_code = TextField(1, 256, required=True)
    client_id = TextField(1, 64, required=True)


class UserCode(Body):
    userCode = TextField(1, 64, required=True)


class CodeQuery(Body):
    user_code = TextField(1, 64, required=True)


def start(services: Services, inbound: Inbound) -> Outbound:
    """A device code, and the URL of the page where a person approves it."""
    services.management.throttle.take(ThrottleGate("device codes", inbound.peer, CODES, MINUTE_S))
    given = read_body(CodeRequest, inbound)
    if given["client_id"] not in CLIENTS:
        return _refuse(inbound, "invalid_client", "This client is unknown.")
    grant = services.management.devices.start(given["client_id"])
    page = dashboard_of(services, inbound) + PAGE
    body = {
        "device_code": grant.device_code,
        "user_code": grant.user_code,
        "verification_uri": page,
        "verification_uri_complete": f"{page}?user_code={quote(grant.user_code)}",
        "expires_in": grant.expires_in_s,
        "interval": grant.interval_s,
    }
    return json_reply(body, inbound.shown_id)


def collect(services: Services, inbound: Inbound) -> Outbound:
    """The state of the request; once approved, the session, which can be collected once."""
    try:
        services.management.throttle.take(ThrottleGate("device polls", inbound.peer, POLLS, MINUTE_S))
    except RateLimited:
        return _refuse(inbound, *REFUSALS["slow_down"])
    given = read_body(TokenRequest, inbound)
    if given["grant_type"] != GRANT_TYPE:
        return _refuse(inbound, "unsupported_grant_type", f"Send grant_type {GRANT_TYPE}.")
    if given["client_id"] not in CLIENTS:
        return _refuse(inbound, "invalid_client", "This client is unknown.")
    status, session = services.management.devices.collect(given["device_code"], given["client_id"])
    if session is None:
        return _refuse(inbound, *REFUSALS[status])
    body = {"access_token": session.token, "token_type": "Bearer", "expires_in": LIFE_S, "scope": ""}
    return json_reply(body, inbound.shown_id)


def find(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The request behind the code that a device shows, so that you know what you approve."""
    given = read_query(CodeQuery, inbound)
    return show_request(visitor.services.management.find_device(given["user_code"], visitor.user_id))


def approve(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Give the device that shows this code a session of yours."""
    return _decide(visitor, inbound, True)


def deny(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Deny access to the device that shows this code."""
    return _decide(visitor, inbound, False)


def _decide(visitor: Visitor, inbound: Inbound, yes: bool) -> dict[str, Any]:
    user_code = read_body(UserCode, inbound)["userCode"]
    return show_request(visitor.services.management.decide_device(user_code, visitor.user_id, yes))


def dashboard_of(services: Services, inbound: Inbound) -> str:
    """Where people sign in: the configured origin that the client names, else our own address."""
    origin = inbound.header("origin")
    if origin and origin in services.settings.security.trusted_origins:
        return origin
    own = urlsplit(inbound.base_url)
    return f"{own.scheme}://{own.netloc}{own.path}".rstrip("/")


def show_request(request: DeviceRequest) -> dict[str, Any]:
    return {
        "userCode": request.user_code,
        "clientId": request.client,
        "status": request.status,
        "expiresAt": to_iso(request.expires_at_us),
    }


def _refuse(inbound: Inbound, slug: str, message: str) -> Outbound:
    body = {"error": slug, "error_description": message, "message": message}
    return json_reply(body, inbound.shown_id, 400)


REQUEST = shapes.shape(userCode="string", clientId="string", status="string", expiresAt="string")
GRANT = shapes.shape(device_code="string", user_code="string", verification_uri="string",
                     verification_uri_complete="string", expires_in="integer", interval="integer")  # fmt: skip
TOKEN = shapes.shape(access_token="string", token_type="string", expires_in="integer", scope="string")

OPERATIONS: tuple[Operation, ...] = (
    public("POST", "/auth/device/code", start, "Begin a sign-in on a device without browser", request=CodeRequest,
           answer=GRANT, errors=(429,)),
    public("POST", "/auth/device/token", collect, "Collect the session of a device code", request=TokenRequest,
           answer=TOKEN),
    managed("GET", "/auth/device", find, "Look at a device's request", tag="Sign-in", query=CodeQuery,
            answer=REQUEST, errors=(429,)),
    managed("POST", "/auth/device/approve", approve, "Approve a device's request", tag="Sign-in", request=UserCode,
            answer=REQUEST, errors=(429,)),
    managed("POST", "/auth/device/deny", deny, "Deny a device's request", tag="Sign-in", request=UserCode,
            answer=REQUEST, errors=(429,)),
)  # fmt: skip
