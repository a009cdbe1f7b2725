"""`/console/welcome` signs a person in by a one-time link; `/console/start` leads from a provider to the whole team."""

from typing import Any

from gateway.callers.credential_sources import CREDITS, HYBRID
from gateway.catalogue.environment_credentials import find_providers
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.surfaces.console.client_settings import AUTO, group_clients, load_clients
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import ManagementCall, PageCall, page_operations
from gateway.surfaces.console.pages import page, redirect
from gateway.surfaces.console.visits import as_page, submitted
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.log_answers import show_request
from gateway.surfaces.visitors.visitor import agent_of, read_cookie, write_cookie
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.worker.services import Services

# The first step: a provider's key, recognised by its form, tested, and then used in all projects.

ADD = ManagementCall("POST /keys/provider")
TEST = ManagementCall("POST /keys/provider/<key_id>/test")
REMOVE = ManagementCall("DELETE /keys/provider/<key_id>")
LIST = ManagementCall("GET /keys/provider")
PROJECTS = ManagementCall("GET /orgs/<organization_id>/projects")
SET_PROJECT = ManagementCall("PATCH /projects/<project_id>")


def connect_provider(call: PageCall) -> str:
    """Add the key of the form. A key that fails its test is removed again, and no project uses it meanwhile."""
    organization_id = choose_organization(call).id
    token = call.form.get("token", "").strip()
    provider_id = call.form.get("provider", "") or _recognise(call, token)
    added = call.run(
        ADD, {"organizationId": organization_id, "provider": provider_id, "token": token, "projects": "unchanged"}
    )
    key_id = added["providerKey"]["id"]
    try:
        result = call.run(TEST, {"model": ""}, key_id=key_id)
    except GatewayError:
        call.run(REMOVE, key_id=key_id)
        raise
    name = _name_of(call, provider_id)
    if not result["ok"]:
        call.run(REMOVE, key_id=key_id)
        raise InvalidRequest(
            f"{name} did not accept the key, so it was not saved. The test with {result['model']} failed: "
            f"{result['error']['message']}",
            param="token",
        )
    for project in call.run(PROJECTS, organization_id=organization_id):
        if project["mode"] == CREDITS and project["status"] == "active":
            call.run(SET_PROJECT, {"mode": HYBRID}, project_id=project["id"])
    return f"{name} is connected: {result['model']} answered. All projects use the key."


def list_connected(call: PageCall) -> list[str]:
    """Return the names of the providers with a key, of the installation or of the visitor's organizations."""
    routing = call.services.routing
    own = set()
    if call.visitor.manages("providers:read"):
        own = {key["provider"] for key in call.run(LIST, {}) if key["status"] == "active"}
    return [
        provider.name
        for provider in routing.catalogue.current().providers.values()
        if provider.id in own or (provider.key_required and routing.credentials.has_platform(provider.id))
    ]


def list_providers(call: PageCall) -> list[tuple[str, str]]:
    """Return the providers that a key can belong to."""
    providers = call.services.routing.catalogue.current().providers.values()
    return sorted(
        ((provider.id, provider.name) for provider in providers if provider.key_required),
        key=lambda one: one[1].lower(),
    )


def _recognise(call: PageCall, token: str) -> str:
    if not token:
        raise InvalidRequest("Paste an API key of a provider.", param="token")
    found = find_providers(call.services.routing.catalogue.current().providers.values(), token)
    if len(found) == 1:
        return found[0].id
    if found:
        names = ", ".join(provider.name for provider in found)
        raise InvalidRequest(
            f"Keys of {names} look like this. Choose the provider, and paste the key again.", param="provider"
        )
    raise InvalidRequest(
        "No provider is known by this form of key. Choose the provider, and paste the key again.", param="provider"
    )


def _name_of(call: PageCall, provider_id: str) -> str:
    providers: dict[str, Any] = dict(call.services.routing.catalogue.current().providers)
    return providers[provider_id].name if provider_id in providers else provider_id


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
    newest = request_log_reader_module.find_newest(call.visitor, key_id)
    chosen = call.form.get("tool") or FIRST_TOOL
    groups = group_clients(call.inbound.base_url, token or PLACEHOLDER, AUTO)
    return call.page(
        "first_run/start.html",
        TITLE,
        path=START,
        token=token,
        link=link,
        has_keys=bool(token) or bool(call.run(KEYS, {"limit": 1})["apiKeys"]),
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
    members = call.run(MEMBERS, {"limit": 2}, organization_id=organization_id)
    teams = call.run(TEAMS, organization_id=organization_id)
    return {
        "teams": [team["name"] for team in teams],
        "invited": invited,
        "has_team": bool(invited) or len(members) > 1,
    }


def _create_key(call: PageCall) -> Outbound:
    projects = call.visitor.projects()
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
