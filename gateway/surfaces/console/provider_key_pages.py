"""`/console/providers/keys`: the provider keys of organizations, and the projects that use them."""

from collections.abc import Mapping
from typing import Any

from gateway.callers.access import CUSTOM
from gateway.callers.credential_sources import PROJECT_MODES
from gateway.errors import InvalidRequest
from gateway.surfaces.console.lists import Column, arrange
from gateway.surfaces.console.page_calls import ManagementCall, PageAction, PageCall, page_operations
from gateway.surfaces.console.provider_pages import list_cooldowns, list_own_keys
from gateway.surfaces.web.http import Operation, Outbound

TITLE = "Provider keys"
PATH = "/console/providers/keys"
LIST = ManagementCall("GET /keys/provider")
ADD = ManagementCall("POST /keys/provider")
UPDATE = ManagementCall("PATCH /keys/provider/<key_id>")
ROTATE = ManagementCall("POST /keys/provider/<key_id>/rotate")
TEST = ManagementCall("POST /keys/provider/<key_id>/test")
REMOVE = ManagementCall("DELETE /keys/provider/<key_id>")
PROJECTS = ManagementCall("GET /orgs/<organization_id>/projects")
CUSTOM_PROVIDERS = ManagementCall("GET /orgs/<organization_id>/custom-providers")
SET_PROJECT = ManagementCall("PATCH /projects/<project_id>")
TEXTS = ("name", "baseUrl", "region")
COLUMNS = (
    Column("Provider", "providerName"),
    Column("Key", "maskedToken"),
    Column("Spent", numeric=True),
    Column("State", "status"),
    Column("Actions"),
)
SEARCHED = ("providerName", "provider", "name", "maskedToken", "baseUrl", "region", "models", "status")


def show(call: PageCall) -> Outbound:
    """Show the keys of the organizations that the visitor manages, and the mode of each project."""
    return _show(call, [])


def _show(call: PageCall, unused: list[dict[str, Any]]) -> Outbound:
    """Show the page; `unused` are projects that do not use the key that was just added."""
    catalogue = call.services.routing.catalogue.current()
    cooldowns = list_cooldowns(call.visitor, list_own_keys(call.visitor))
    names = {provider.id: provider.name for provider in catalogue.providers.values()}
    organizations = []
    for organization in call.visitor.organizations():
        manages = call.visitor.manages("providers:write", organization.id)
        shown: dict[str, Any] = {"id": organization.id, "name": organization.name, "manages": manages}
        shown["administered"] = call.visitor.reach(organization.id, "projects:write").projects
        shown["projects"] = call.run(PROJECTS, organization_id=organization.id)
        if manages:
            own = [provider["providerId"] for provider in call.run(CUSTOM_PROVIDERS, organization_id=organization.id)]
            shown["providers"] = [
                *sorted(names.items(), key=lambda item: item[1].lower()),
                *((provider, provider) for provider in own),
            ]
            shown["providers"].append((CUSTOM, "Any address (custom)"))
            keys = [_row_of(key, names) for key in call.run(LIST, {"organizationId": organization.id})]
            page_name = f"page-{organization.id}"
            shown["own_keys"] = arrange(
                keys, COLUMNS, call.arguments, searched=SEARCHED, sort="providerName", page_name=page_name
            )
        organizations.append(shown)
    listed = [shown["own_keys"] for shown in organizations if shown["manages"]]
    return call.page(
        "providers/provider_keys.html",
        TITLE,
        path=PATH,
        organizations=organizations,
        searched=next(iter(listed), None),
        unused=unused,
        cooldowns=cooldowns,
        modes=PROJECT_MODES,
        chosen=call.arguments.get("provider", "") or call.form.get("provider", ""),
    )


def _row_of(key: dict[str, Any], names: Mapping[str, str]) -> dict[str, Any]:
    """Return a key as a row, with the members by which it is sorted and searched."""
    provider = names.get(key["provider"], key["provider"])
    return {**key, "providerName": provider, "models": ", ".join(key["allowedModels"])}


def _add(call: PageCall) -> Outbound:
    form = call.form
    fields = {
        "organizationId": form.get("organization", ""),
        "provider": form.get("provider", ""),
        "token": form.get("token", ""),
        "projects": form.get("projects", "unchanged"),
        **_read_settings(call),
    }
    added = call.run(ADD, fields)
    unused = added["unusedBy"]
    use = "The projects below do not use it yet." if unused else added["message"]
    message = f"The key {added['providerKey']['maskedToken']} was added. {use}"
    return _show(PageCall(call.visitor, call.inbound, message=message), unused)


def _save(call: PageCall) -> str:
    call.run(UPDATE, _read_settings(call), key_id=call.form.get("key", ""))
    return "The settings of the key were saved."


def _switch(call: PageCall) -> str:
    status = call.form.get("status", "")
    call.run(UPDATE, {"status": status}, key_id=call.form.get("key", ""))
    return f"The key is {status} now."


def _rotate(call: PageCall) -> str:
    rotated = call.run(ROTATE, {"token": call.form.get("token", "")}, key_id=call.form.get("key", ""))
    return f"The key was replaced by {rotated['maskedToken']}; requests use it from now on."


def _test(call: PageCall) -> str:
    result = call.run(TEST, {"model": call.form.get("model", "")}, key_id=call.form.get("key", ""))
    if result["ok"]:
        return f"The key works: {result['model']} answered in {result['latencyMs']:,} ms."
    error = result["error"]
    status = f" (status {error['upstreamStatus']})" if error["upstreamStatus"] else ""
    raise InvalidRequest(f"The test with {result['model']} failed{status}: {error['message']}")


def _remove(call: PageCall) -> str:
    call.run(REMOVE, key_id=call.form.get("key", ""))
    return "The key was deleted; no request uses it from now on."


def _set_mode(call: PageCall) -> str:
    mode = call.form.get("mode", "")
    project = call.run(SET_PROJECT, {"mode": mode}, project_id=call.form.get("project", ""))
    return f"{project['name']}: {PROJECT_MODES[project['mode']]}."


def _read_settings(call: PageCall) -> dict[str, Any]:
    """Return the settings of the form, as the management API takes them."""
    form = call.form
    fields: dict[str, Any] = {name: form[name].strip() for name in TEXTS if name in form}
    fields["allowedModels"] = [name for name in form.get("allowedModels", "").replace(",", " ").split() if name]
    fields["maxSpend"] = form.get("maxSpend", "").strip() or None
    return fields


ACTIONS: dict[str, PageAction] = {
    "add": _add,
    "save": _save,
    "switch": _switch,
    "rotate": _rotate,
    "test": _test,
    "remove": _remove,
    "mode": _set_mode,
}
OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show, ACTIONS)
