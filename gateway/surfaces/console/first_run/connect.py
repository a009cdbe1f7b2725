"""The first step: a provider's key, recognised by its form, tested, and then used in all projects."""

from typing import Any

from gateway.accounts.project_modes import CREDITS, HYBRID
from gateway.catalogue.key_prefixes import find_providers
from gateway.errors import GatewayError, InvalidRequest
from gateway.surfaces.console.management_calls import ManagementCall
from gateway.surfaces.console.organization_choice import choose_organization
from gateway.surfaces.console.page_calls import PageCall

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
