"""`/console/welcome` signs a person in by a one-time link; `/console/start` leads from a provider to the whole team."""

from typing import Any

from gateway.accounts.projects import list_projects
from gateway.errors import NotFound
from gateway.surfaces import request_log_reader
from gateway.surfaces.console.first_run.connect import connect_provider, list_connected, list_providers
from gateway.surfaces.console.management_calls import ManagementCall
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.setup.client_settings import AUTO, group_clients, load_clients
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
PLACEHOLDER = "llmgtwy_…"
FIRST_TOOL = "curl"
FIRST_FAILURE = 400
CREATE_KEY = ManagementCall("POST /keys/api")
KEYS = ManagementCall("GET /keys/api")
MEMBERS = ManagementCall("GET /orgs/<organization_id>/members")
INVITATIONS = ManagementCall("GET /orgs/<organization_id>/invitations")
INVITE = ManagementCall("POST /orgs/<organization_id>/invitations")
TEAMS = ManagementCall("GET /orgs/<organization_id>/teams")
CREATE_TEAM = ManagementCall("POST /orgs/<organization_id>/teams")
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
    """Show the three steps, and how far the visitor is. `apiKeyId` limits the second one to requests of this key."""
    return _show(call, key_id=call.arguments.get("apiKeyId", ""))


def _show(call: PageCall, token: str = "", link: str = "", key_id: str = "") -> Outbound:
    newest = request_log_reader.find_newest(call.visitor, key_id)
    chosen = call.form.get("tool") or FIRST_TOOL
    groups = group_clients(call.inbound.base_url, token or PLACEHOLDER, AUTO)
    return call.page(
        "first_run/start.html",
        TITLE,
        path=START,
        token=token,
        link=link,
        has_keys=bool(token) or bool(call.run(KEYS)["apiKeys"]),
        newest=show_request(newest) if newest else None,
        works=newest is not None and newest.status < FIRST_FAILURE,
        key_id=key_id,
        manages=call.visitor.manages("organization:write"),
        connected=list_connected(call),
        providers=list_providers(call),
        tools=[(group, [(client.id, client.name) for client in clients]) for group, clients in groups],
        chosen=chosen,
        tool=next((client for _, clients in groups for client in clients if client.id == chosen), None),
        **(_describe_team(call) if call.visitor.manages("organization:write") else {}),
    )


def _describe_team(call: PageCall) -> dict[str, Any]:
    """Return the facts of the third step: the teams, and whether another person was invited."""
    organization_id = choose_organization(call).id
    invited = [one["email"] for one in call.run(INVITATIONS, organization_id=organization_id)]
    members = call.run(MEMBERS, organization_id=organization_id)
    teams = call.run(TEAMS, organization_id=organization_id)
    return {
        "teams": [team["name"] for team in teams],
        "invited": invited,
        "has_team": bool(invited) or len(members) > 1,
    }


def _create_key(call: PageCall) -> Outbound:
    projects = list_projects(call.services.store.database, list(call.visitor.memberships))
    project = next((project for project in projects if project.status == "active"), None)
    if project is None:
        raise NotFound("You are not a member of any project. Ask an owner of your organization to create one.")
    tool = next((client.name for client in load_clients() if client.id == call.form.get("tool")), KEY_NAME)
    key = call.run(CREATE_KEY, {"description": tool, "projectId": project.id})
    return _show(call, key["token"], key_id=key["id"])


def _invite(call: PageCall) -> Outbound:
    """Invite a person with a team, which is created if there is none of this name, and a limit per month."""
    organization_id = choose_organization(call).id
    fields: dict[str, Any] = {"email": call.form.get("email", "").strip(), "role": "developer"}
    amount = call.form.get("periodUsageLimit", "").strip()
    if amount:
        fields |= {"periodUsageLimit": amount, "periodUsageDurationValue": 1, "periodUsageDurationUnit": "month"}
    name = call.form.get("team", "").strip()
    if name:
        teams = call.run(TEAMS, organization_id=organization_id)
        team = next((team for team in teams if team["name"].lower() == name.lower()), None)
        fields["teamId"] = (team or call.run(CREATE_TEAM, {"name": name}, organization_id=organization_id))["id"]
    made = call.run(INVITE, fields, organization_id=organization_id)
    message = f"Send the link to {made['email']}; it is shown only now and works for a week."
    if made["emailed"]:
        message = f"The invitation was sent to {made['email']}. It works for a week."
    return _show(PageCall(call.visitor, call.inbound, message=message), link=made["link"])


def _token_of(inbound: Inbound) -> str:
    token = read_cookie(inbound, COOKIE)
    if not token:
        raise NotFound(UNOPENED)
    return token


OPERATIONS: tuple[Operation, ...] = (
    Operation("GET", WELCOME, as_page(show_welcome)),
    Operation("POST", WELCOME, as_page(sign_in), body="form"),
    *page_operations(START, show_start, {"connect": connect_provider, "create": _create_key, "invite": _invite}),
)
