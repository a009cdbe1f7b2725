"""`/keys/provider` and `/orgs/…/custom-providers`: an organization's own provider keys and own providers."""

from typing import Any
from urllib.parse import urlsplit

from marshmallow import ValidationError, fields

from gateway.accounts.access import CUSTOM
from gateway.accounts.provider_keys import ProviderKeyChange, ProviderKeyDraft
from gateway.accounts.throttle import ThrottleGate
from gateway.admin.key_use import find_key_use, summarize_use
from gateway.configuration.names import near
from gateway.errors import InvalidRequest
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed, require_some
from gateway.surfaces.management.presenters import show_custom_provider, show_key_use, show_provider_key
from gateway.surfaces.validation_schemas import (
    Body,
    Names,
    OneOf,
    StrictBody,
    TextField,
    Usd,
    WholeNumber,
    read_body,
    read_query,
)
from gateway.surfaces.visitor import Visitor
from gateway.transport.addresses import check_spelling

KEYS = "Provider keys"
PROVIDERS = "Custom providers"
CHECKS_A_MINUTE = 10
LONGEST_SECRET = 16_384  # a service account's JSON document is some 2,400 characters long


class Address(TextField):
    """An http(s) address without credentials, query and fragment; "" = none."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **more: Any) -> str:
        text = super()._deserialize(value, attr, data, **more).strip()
        if text and not _is_address(text):
            raise ValidationError("Give an http(s) address without credentials, query and fragment.")
        return text


class NewProviderKey(Body):
    organizationId = TextField(1, 80, required=True)
    provider = TextField(1, 80, required=True)
    token = TextField(1, LONGEST_SECRET, required=True)
    name = TextField(0, 255, load_default="")
    baseUrl = Address(0, 2048, load_default="")
    region = TextField(0, 40, load_default="")
    allowedModels = Names(load_default=list)
    maxSpend = Usd(allow_none=True, load_default=None)


class ProviderKeySettings(Body):
    token = TextField(1, LONGEST_SECRET)
    name = TextField(0, 255)
    baseUrl = Address(0, 2048)
    region = TextField(0, 40)
    allowedModels = Names()
    maxSpend = Usd(allow_none=True)
    status = OneOf(("active", "inactive"))


class Rotation(Body):
    token = TextField(1, LONGEST_SECRET, required=True)


class ProviderKeyQuery(Body):
    organizationId = TextField(1, 80)


class CheckQuestion(Body):
    model = TextField(0, 255, load_default="")


class CustomModel(StrictBody):
    id = TextField(1, 255, required=True)
    prices = fields.Raw(allow_none=False)
    context_length = WholeNumber(0, 1_000_000_000)
    max_output = WholeNumber(0, 1_000_000_000)


class NewCustomProvider(Body):
    name = TextField(1, 64, required=True)
    baseUrl = Address(1, 2048, required=True)
    models = fields.List(fields.Nested(CustomModel), load_default=list)


class CustomProviderSettings(Body):
    baseUrl = Address(1, 2048)
    models = fields.List(fields.Nested(CustomModel))


def list_keys(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The keys of one organization, or of all in which the visitor is owner or admin; never a secret."""
    given = read_query(ProviderKeyQuery, inbound)
    if "organizationId" in given:
        chosen = [visitor.manager(given["organizationId"]).organization_id]
    else:
        chosen = [one for one, member in visitor.memberships.items() if member.role != "developer"]
    management = visitor.services.management
    found = [key for one in chosen for key in management.provider_keys.list_keys(one)]
    states = management.budgets.statuses(key.id for key in found)
    return {"providerKeys": [show_provider_key(key, states[key.id].usage_nusd) for key in found]}


def add_key(visitor: Visitor, inbound: Inbound) -> Outbound:
    """Store a provider key, encrypted. `provider` is one of the catalogue, "custom" or "custom:<name>". Projects in
    mode `credits` never use it: `unusedBy` lists them, each with the request and the operator's command that switch
    it."""
    given = read_body(NewProviderKey, inbound)
    organization_id = given["organizationId"]
    visitor.manager(organization_id)
    _check_provider(visitor, organization_id, given["provider"])
    _check_place(visitor, given["baseUrl"])
    draft = ProviderKeyDraft(
        given["provider"],
        given["token"],
        given["name"],
        given["baseUrl"],
        given["region"],
        given["allowedModels"],
        given["maxSpend"],
    )
    made = visitor.services.management.provider_keys.add(organization_id, draft, actor=visitor.user_id)
    use = find_key_use(visitor.services.store.database, organization_id)
    answer = {"providerKey": show_provider_key(made, 0), "message": summarize_use(use), **show_key_use(use)}
    return json_reply(answer, inbound.shown_id, 201)


def update_key(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Absent fields stay unchanged; changing the spending limit (maxSpend) does not reset its usage."""
    given = require_some(read_body(ProviderKeySettings, inbound))
    _check_place(visitor, given.get("baseUrl"))
    change = ProviderKeyChange(
        secret=given.get("token"),
        label=given.get("name"),
        base_url=given.get("baseUrl"),
        region=given.get("region"),
        allowed_models=given.get("allowedModels"),
        active=given["status"] == "active" if "status" in given else None,
        bounded="maxSpend" in given,
        max_spend_nusd=given.get("maxSpend"),
    )
    return _change_key(visitor, inbound, change)


def rotate_key(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Replace the secret; the next call on every worker uses the new one."""
    return _change_key(visitor, inbound, ProviderKeyChange(secret=read_body(Rotation, inbound)["token"]))


def remove_key(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Remove a key and destroy its secret."""
    organization_id, key_id = _find(visitor, inbound)
    visitor.services.management.provider_keys.remove(organization_id, key_id, actor=visitor.user_id)
    return {"message": "Provider key removed."}


def check_key(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Send the provider a short test request with this key; the provider may charge its owner for it."""
    given = read_body(CheckQuestion, inbound)
    organization_id, key_id = _find(visitor, inbound)
    management = visitor.services.management
    management.throttle.take(ThrottleGate("provider key checks", organization_id, CHECKS_A_MINUTE, 60))
    result = management.provider_check.check(organization_id, key_id, given["model"])
    error = {"code": result.code, "message": result.message, "upstreamStatus": result.upstream_status}
    return {
        "ok": result.ok,
        "model": result.model,
        "latencyMs": result.latency_ms,
        "error": None if result.ok else error,
    }


def list_providers(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Names, addresses and models of each; keys are listed separately."""
    organization_id = visitor.managed_organization(inbound)
    found = visitor.services.management.custom_providers.list_providers(organization_id)
    return {"customProviders": [show_custom_provider(one) for one in found]}


def add_provider(visitor: Visitor, inbound: Inbound) -> Outbound:
    """A provider with a chat completions API at the organization's own address; its key is added separately."""
    given = read_body(NewCustomProvider, inbound)
    organization_id = visitor.managed_organization(inbound)
    _check_place(visitor, given["baseUrl"])
    made = visitor.services.management.custom_providers.add(
        organization_id,
        given["name"],
        given["baseUrl"],
        given["models"],
        actor=visitor.user_id,
        built_in=visitor.services.routing.catalogue.current().providers,
    )
    return json_reply({"customProvider": show_custom_provider(made)}, inbound.shown_id, 201)


def update_provider(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Absent fields stay unchanged; in force when this returns."""
    given = require_some(read_body(CustomProviderSettings, inbound))
    organization_id = visitor.managed_organization(inbound)
    _check_place(visitor, given.get("baseUrl"))
    changed = visitor.services.management.custom_providers.update(
        organization_id,
        inbound.params["name"],
        base_url=given.get("baseUrl"),
        models=given.get("models"),
        actor=visitor.user_id,
    )
    return {"customProvider": show_custom_provider(changed)}


def remove_provider(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Remove a custom provider together with its keys."""
    organization_id = visitor.managed_organization(inbound)
    visitor.services.management.custom_providers.remove(organization_id, inbound.params["name"], actor=visitor.user_id)
    return {"message": "Custom provider removed."}


def _find(visitor: Visitor, inbound: Inbound) -> tuple[str, str]:
    """Organization and id of the key in the path, which the visitor manages."""
    key_id = inbound.params["key_id"]
    organization_id = visitor.services.management.provider_keys.organization_of(key_id)
    visitor.manager(organization_id)
    return organization_id, key_id


def _change_key(visitor: Visitor, inbound: Inbound, change: ProviderKeyChange) -> dict[str, Any]:
    organization_id, key_id = _find(visitor, inbound)
    changed = visitor.services.management.provider_keys.update(organization_id, key_id, change, actor=visitor.user_id)
    spent_nusd = visitor.services.management.budgets.status(key_id).usage_nusd
    return {"providerKey": show_provider_key(changed, spent_nusd)}


def _check_provider(visitor: Visitor, organization_id: str, provider: str) -> None:
    services = visitor.services
    own = {one.provider_id for one in services.management.custom_providers.list_providers(organization_id)}
    if provider not in own | {CUSTOM} and services.routing.catalogue.current().provider(provider) is None:
        known = own | {CUSTOM} | services.routing.catalogue.current().providers.keys()
        raise InvalidRequest(f"There is no provider {provider}{near(provider, known) or '.'}", param="provider")


def _check_place(visitor: Visitor, url: str | None) -> None:
    """InvalidRequest for an address of a private network, where those are not allowed."""
    if url and not visitor.services.settings.security.allow_private_upstreams:
        check_spelling(url, "baseUrl")


def _is_address(text: str) -> bool:
    try:
        parts = urlsplit(text)
        known = bool(parts.hostname) and (parts.port is None or parts.port > 0)
    except ValueError:
        return False
    return known and parts.scheme in ("http", "https") and not (parts.username or parts.query or parts.fragment)


ONE_KEY = shapes.shape(providerKey=shapes.PROVIDER_KEY)
NEW_KEY = shapes.shape(
    providerKey=shapes.PROVIDER_KEY, message="string", usedBy=[shapes.USING_PROJECT], unusedBy=[shapes.UNUSED_PROJECT]
)
ONE_PROVIDER = shapes.shape(customProvider=shapes.CUSTOM_PROVIDER)
KEY = "/keys/provider/<key_id>"
ALL = "/orgs/<organization_id>/custom-providers"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/keys/provider", list_keys, "List provider keys", tag=KEYS, query=ProviderKeyQuery,
            answer=shapes.shape(providerKeys=[shapes.PROVIDER_KEY])),
    managed("POST", "/keys/provider", add_key, "Add a provider key", tag=KEYS, request=NewProviderKey,
            answer=NEW_KEY, success=201),
    managed("PATCH", KEY, update_key, "Change a provider key", tag=KEYS, request=ProviderKeySettings, answer=ONE_KEY),
    managed("POST", f"{KEY}/rotate", rotate_key, "Replace a provider key's secret", tag=KEYS, request=Rotation,
            answer=ONE_KEY),
    managed("POST", f"{KEY}/test", check_key, "Try a provider key", tag=KEYS, request=CheckQuestion,
            answer=shapes.shape(ok="boolean", model="string", latencyMs="integer", error="object?"), errors=(429,)),
    managed("DELETE", KEY, remove_key, "Remove a provider key", tag=KEYS, answer=shapes.DONE),
    managed("GET", ALL, list_providers, "List custom providers", tag=PROVIDERS,
            answer=shapes.shape(customProviders=[shapes.CUSTOM_PROVIDER])),
    managed("POST", ALL, add_provider, "Add a custom provider", tag=PROVIDERS, request=NewCustomProvider,
            answer=ONE_PROVIDER, success=201),
    managed("PATCH", f"{ALL}/<name>", update_provider, "Change a custom provider", tag=PROVIDERS,
            request=CustomProviderSettings, answer=ONE_PROVIDER),
    managed("DELETE", f"{ALL}/<name>", remove_provider, "Remove a custom provider", tag=PROVIDERS,
            answer=shapes.DONE),
)  # fmt: skip
