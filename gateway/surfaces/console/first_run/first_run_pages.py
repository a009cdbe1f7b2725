"""`/console/welcome` signs a person in by a one-time link; `/console/start` leads to the first answered request."""

from gateway.accounts.projects import list_projects
from gateway.errors import NotFound
from gateway.surfaces import request_log_reader
from gateway.surfaces.console.management_calls import ManagementCall
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.visits import as_page, submitted
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.log_answers import show_request
from gateway.surfaces.visitor import agent_of, read_cookie, write_cookie
from gateway.worker.services import Services

WELCOME = "/console/welcome"
START = "/console/start"
COOKIE = "llmgateway.welcome"
COOKIE_LIFETIME_S = 1800
NO_REFERRER = ("Referrer-Policy", "no-referrer")
TITLE = "First steps"
KEY_NAME = "My first key"
CREATE_KEY = ManagementCall("POST /keys/api")
KEYS = ManagementCall("GET /keys/api")
UNOPENED = "Open the sign-in link that the gateway printed on the terminal when it started."


def show_welcome(services: Services, inbound: Inbound) -> Outbound:
    """Show the person that the link signs in. The token moves from the URL into a cookie before."""
    token = inbound.arguments().get("token", "")
    if token:
        if not token.replace(".", "").replace("_", "").replace("-", "").isalnum() or not token.isascii():
            raise NotFound(UNOPENED)
        return redirect(inbound, WELCOME, [NO_REFERRER, write_cookie(inbound, token, COOKIE_LIFETIME_S, COOKIE)])
    user = services.management.sign_in_links.find(_token_of(inbound), inbound.peer)
    return page(inbound, "first_run/welcome.html", "Welcome", email=user.email)


def sign_in(services: Services, inbound: Inbound) -> Outbound:
    """Use the link up, and begin with the first steps."""
    submitted(services, inbound)
    session = services.management.sign_in_links.redeem(_token_of(inbound), inbound.peer, agent_of(inbound))
    cookies = [write_cookie(inbound, session.token), write_cookie(inbound, "", 0, COOKIE)]
    return redirect(inbound, START, cookies)


def show_start(call: PageCall) -> Outbound:
    """Show the three steps, and how far the visitor is."""
    return _show(call, "")


def _show(call: PageCall, token: str) -> Outbound:
    newest = request_log_reader.find_newest(call.visitor)
    return call.page(
        "first_run/start.html",
        TITLE,
        token=token,
        has_keys=bool(token) or bool(call.run(KEYS)["apiKeys"]),
        newest=show_request(newest) if newest else None,
        manages=call.visitor.manages,
    )


def _create_key(call: PageCall) -> Outbound:
    projects = list_projects(call.services.store.database, list(call.visitor.memberships))
    project = next((project for project in projects if project.status == "active"), None)
    if project is None:
        raise NotFound("You are not a member of any project. Ask an owner of your organization to create one.")
    key = call.run(CREATE_KEY, {"description": KEY_NAME, "projectId": project.id})
    return _show(call, key["token"])


def _token_of(inbound: Inbound) -> str:
    token = read_cookie(inbound, COOKIE)
    if not token:
        raise NotFound(UNOPENED)
    return token


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", WELCOME, as_page(show_welcome)),
    Operation("POST", WELCOME, as_page(sign_in), body="form"),
    *page_operations(START, show_start, {"create": _create_key}),
)
