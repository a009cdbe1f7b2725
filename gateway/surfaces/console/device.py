"""`/console/device`: the page on which a signed-in person approves or denies a device (RFC 8628, section 3.3)."""

from urllib.parse import quote

from gateway.admin.agent_sign_in import CLIENT, CLIENT_NAME
from gateway.errors import GatewayError
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import (
    as_page,
    make_csrf,
    pressed,
    require_visitor,
    submitted_by_visitor,
)
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

MAX_CODE_LENGTH = 64
DEVICE = "/console/device"
APPROVED = "The device is signed in. You can close this page and return to the device."
DENIED = "The request was denied. You can close this page."


def show_device(services: Services, inbound: Inbound) -> Outbound:
    """Show the form for a code or, with a code, the request of its device. Requires sign-in."""
    code = _code_of(inbound.arguments())
    if not code:
        visitor = require_visitor(services, inbound, DEVICE)
        return page(inbound, "device_code.html", "Connect a device", visitor=visitor, email=visitor.session.email)
    visitor = require_visitor(services, inbound, f"{DEVICE}?user_code={quote(code)}")
    try:
        request = services.management.find_device(code, visitor.user_id)
    except GatewayError as error:
        return _ask_again(inbound, visitor, error)
    if request.status != "pending":
        return page(inbound, "message.html", "Connect a device", text="This code has already been used.")
    if request.client == CLIENT:
        choices = services.management.agent_sign_in.choices(visitor.user_id, visitor.memberships)
        template = "device_agent.html"
    else:
        choices = None
        template = "device.html"
    return page(
        inbound,
        template,
        "Connect a device",
        client=request.client,
        client_name=CLIENT_NAME,
        email=visitor.session.email,
        user_code=request.user_code,
        choices=choices,
        csrf=make_csrf(services, visitor, request.user_code),
    )


def decide_device(services: Services, inbound: Inbound) -> Outbound:
    """Approve or deny the device, depending on the button."""
    visitor, form = submitted_by_visitor(services, inbound, DEVICE, _code_of)
    approved = pressed({"approve": True, "deny": False}, form, "decision")
    try:
        if approved:
            workspace = visitor.workspace(inbound, form.get("project", "")[:80], form.get("team", "")[:80])
            login = visitor.session.sso_login
            services.management.approve_device(_code_of(form), visitor.user_id, workspace, login)
        else:
            services.management.deny_device(_code_of(form), visitor.user_id)
    except GatewayError as error:
        return _ask_again(inbound, visitor, error)
    text = APPROVED if approved else DENIED
    return page(inbound, "message.html", "Connect a device", text=text)


def _code_of(fields: dict[str, str]) -> str:
    return fields.get("user_code", "")[:MAX_CODE_LENGTH]


def _ask_again(inbound: Inbound, visitor: Visitor, error: GatewayError) -> Outbound:
    if error.blame != "caller":
        raise error
    return page(
        inbound, "device_code.html", "Connect a device", error=error, visitor=visitor, email=visitor.session.email
    )


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", DEVICE, as_page(show_device)),
    Operation("POST", DEVICE, as_page(decide_device), body="form"),
)
