"""`/connect/device`: the page on which a signed-in person approves or denies a device (facts A.4)."""

from urllib.parse import quote

from gateway.errors import GatewayError
from gateway.surfaces.console.pages import page
from gateway.surfaces.console.visits import (
    as_page,
    make_csrf,
    pressed,
    require_visitor,
    submitted_by_visitor,
)
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.visitor import Visitor
from gateway.worker.services import Services

LONGEST_CODE = 64
DEVICE = "/connect/device"
APPROVED = "The device is signed in. You can close this page and go back to it."
DENIED = "The request was denied. You can close this page."


def show_device(services: Services, inbound: Inbound) -> Outbound:
    """Ask for a code, or show what its device asks for; who is not signed in does that first."""
    code = _code_of(inbound.arguments())
    visitor = require_visitor(services, inbound, f"{DEVICE}?user_code={quote(code)}" if code else DEVICE)
    if not code:
        return page(inbound, "code.html", "Connect a device", email=visitor.session.email)
    try:
        request = services.management.find_device(code, visitor.user_id)
    except GatewayError as error:
        return _ask_again(inbound, visitor, error)
    if request.status != "pending":
        return page(inbound, "done.html", "Connect a device", text="This code was already used.")
    return page(
        inbound,
        "device.html",
        "Connect a device",
        client=request.client,
        email=visitor.session.email,
        user_code=request.user_code,
        csrf=make_csrf(services, visitor, request.user_code),
    )


def decide_device(services: Services, inbound: Inbound) -> Outbound:
    """Approve or deny, as the buttons of the page say."""
    visitor, given = submitted_by_visitor(services, inbound, DEVICE, _code_of)
    approved = pressed({"approve": True, "deny": False}, given, "decision")
    try:
        services.management.decide_device(_code_of(given), visitor.user_id, approved)
    except GatewayError as error:
        return _ask_again(inbound, visitor, error)
    return page(inbound, "done.html", "Connect a device", text=APPROVED if approved else DENIED)


def _code_of(given: dict[str, str]) -> str:
    return given.get("user_code", "")[:LONGEST_CODE]


def _ask_again(inbound: Inbound, visitor: Visitor, error: GatewayError) -> Outbound:
    if error.blame != "caller":
        raise error
    return page(inbound, "code.html", "Connect a device", error=error, email=visitor.session.email)


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", DEVICE, as_page(show_device)),
    Operation("POST", DEVICE, as_page(decide_device), body="form"),
)
