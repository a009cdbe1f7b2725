"""`/keys/provider` and `/orgs/…/custom-providers`: an organization's own provider keys and own providers."""

from collections.abc import Sequence
from typing import Any
from urllib.parse import urlsplit

from marshmallow import ValidationError, fields

from gateway.accounts.projects import ProjectInfo, switch_modes
from gateway.accounts.provider_keys import ProviderKeyChange, ProviderKeyDraft
from gateway.admin.key_use import MAX_SHOWN, find_key_use, summarize_use, switch_command
from gateway.callers.access import CUSTOM
from gateway.callers.credential_sources import CREDITS, HYBRID
from gateway.callers.stored_keys import ProviderKeyInfo
from gateway.callers.throttle import ThrottleGate
from gateway.configuration.setting_checks import suggest_similar
from gateway.errors import Forbidden, InvalidRequest
from gateway.surfaces.management.access_groups import SIGNED_IN, in_organization, of_provider_key
from gateway.surfaces.management.answers import (
    CustomProviderAnswer,
    KeyCheckAnswer,
    KeyCheckErrorAnswer,
    NewProviderKeyAnswer,
    ProviderKeyAnswer,
    UnusedProjectAnswer,
    UsingProjectAnswer,
)
from gateway.surfaces.management.limit_routes import hold_subject
from gateway.surfaces.management.managed_operation import Creating, Creation, ListPageQuery, ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import (
    ON_OFF,
    Body,
    NameList,
    OneOf,
    StatusField,
    StrictBody,
    TextField,
    Usd,
    WholeNumber,
    describe_field,
)
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import Operation
from gateway.transport.addresses import check_spelling

KEYS = "Provider keys"
PROVIDERS = "Custom providers"
CHECKS_PER_MINUTE = 10
ALL_PROJECTS, SAME_PROJECTS = "all", "unchanged"
PROJECTS_SCOPE = "projects:write"
MAX_SECRET_LENGTH = 16_384  # a service account's JSON document is some 2,400 characters long


class Address(TextField):
    """An http(s) address without credentials, query and fragment; "" = none."""

    def _deserialize(self, value: Any, attr: str | None, data: Any, **more: Any) -> str:
        text = super()._deserialize(value, attr, data, **more).strip()
        if text and not _is_address(text):
            raise ValidationError("Give an http(s) address without credentials, query and fragment.")
        return text


class NewProviderKey(Creating):
    organizationId = TextField(1, 80, required=True)
    provider = TextField(1, 80, required=True)
    token = TextField(1, MAX_SECRET_LENGTH, required=True)
    name = TextField(0, 255, load_default="", about="Name in lists.")
    baseUrl = Address(0, 2048, load_default="", about="Base URL for this key, if different from the provider's.")
    region = TextField(0, 40, load_default="", about="The provider's region for this key.")
    allowedModels = NameList(load_default=list, about="Models that the key is used for; default: all.")
    maxSpend = Usd(allow_none=True, load_default=None, about="Spending limit in USD, above which the key is skipped.")
    projects = OneOf(
        (ALL_PROJECTS, SAME_PROJECTS),
        about="all: every active project uses the key at once. unchanged: only those that use own keys already do. "
        "Default: all, for service accounts unchanged.",
    )


class ProviderKeySettings(Body):
    token = TextField(1, MAX_SECRET_LENGTH)
    name = TextField(0, 255, about="Name in lists.")
    baseUrl = Address(0, 2048, about="Base URL for this key, if different from the provider's.")
    region = TextField(0, 40, about="The provider's region for this key.")
    allowedModels = NameList(about="Models that the key is used for.")
    maxSpend = Usd(allow_none=True, about="Spending limit in USD, or none.")
    status = StatusField(words=ON_OFF)


class Rotation(Body):
    token = TextField(1, MAX_SECRET_LENGTH, required=True)


class ProviderKeyQuery(ListPageQuery):
    organizationId = TextField(1, 80)


class CheckQuestion(Body):
    model = TextField(0, 255, load_default="", about="The model of the test request.", example="gpt-4o-mini")


class CustomModel(StrictBody):
    id = TextField(1, 255, required=True)
    prices = fields.Raw(allow_none=False)
    context_length = WholeNumber(0, 1_000_000_000)
    max_output = WholeNumber(0, 1_000_000_000)


class NewCustomProvider(Body):
    name = TextField(1, 64, required=True, example="house")
    baseUrl = Address(1, 2048, required=True)
    models = fields.List(
        fields.Nested(CustomModel),
        load_default=list,
        metadata=describe_field('Models as JSON: [{"id": "small"}]. Default: all.'),
    )


class CustomProviderSettings(Body):
    baseUrl = Address(1, 2048)
    models = fields.List(fields.Nested(CustomModel))


def list_keys(call: ManagedCall[None]) -> list[ProviderKeyAnswer]:
    """The keys of one organization, or of all in which the visitor is owner or admin; never a secret."""
    visitor = call.visitor
    if "organizationId" in call.fields:
        organization_ids = [visitor.permitted(call.fields["organizationId"], "providers:read").organization_id]
    else:
        organization_ids = [name for name in visitor.memberships if visitor.manages("providers:read", name)]
    management = call.management
    keys = call.page.cut([key for name in organization_ids for key in management.provider_keys.list_keys(name)])
    statuses = management.budgets.statuses(key.id for key in keys)
    return [show_provider_key(key, statuses[key.id].usage_nusd) for key in keys]


def add_key(call: ManagedCall[str]) -> NewProviderKeyAnswer:
    """Store a provider key, encrypted. `provider` is one of the catalogue, "custom" or "custom:<name>".

    All active projects use it at once: those in mode `credits`, which never use own keys, are set to `hybrid`, and
    listed in `switched`. With `"projects": "unchanged"` they stay as they are: `unusedBy` lists them, each with the
    request and the operator's command that switch it. A service account without `projects` changes no project; with
    `all` it needs the scope `projects:write`.
    """
    fields = call.fields
    switches = _switches_projects(call)
    organization_id = call.subject
    _check_provider(call.visitor, organization_id, fields["provider"])
    _check_place(call.visitor, fields["baseUrl"])
    draft = ProviderKeyDraft(
        fields["provider"],
        fields["token"],
        fields["name"],
        fields["baseUrl"],
        fields["region"],
        fields["allowedModels"],
        fields["maxSpend"],
    )
    key = call.management.provider_keys.add(organization_id, draft, actor=call.actor, claim=call.claim)
    switched: list[ProjectInfo] = []
    if switches:
        switched = switch_modes(*call.stores, organization_id, CREDITS, HYBRID, actor=call.actor)
    return _show_added(call, show_provider_key(key, 0), switched)


def _switches_projects(call: ManagedCall[str]) -> bool:
    """Return whether all projects are to use a new key. Raises Forbidden if a service account may not change them."""
    account = call.visitor.account
    chosen = call.fields.get("projects", ALL_PROJECTS if account is None else SAME_PROJECTS)
    if chosen != ALL_PROJECTS:
        return False
    if account is not None and PROJECTS_SCOPE not in account.scopes:
        raise Forbidden(
            f'"projects": "{ALL_PROJECTS}" requires the scope {PROJECTS_SCOPE} of the service account.',
            code="scope_missing",
        )
    return True


def _show_existing(call: ManagedCall[str], key_id: str) -> NewProviderKeyAnswer:
    info = call.management.provider_keys.find(call.subject, key_id).info
    return _show_added(call, show_provider_key(info, call.management.budgets.status(key_id).usage_nusd), [])


def _show_added(
    call: ManagedCall[str], key: ProviderKeyAnswer, switched: Sequence[ProjectInfo]
) -> NewProviderKeyAnswer:
    """Return a key with the projects that use it, that do not, and that got another mode for it."""
    use = find_key_use(call.database, call.subject)
    return NewProviderKeyAnswer(
        key,
        summarize_use(use, len(switched)),
        [UsingProjectAnswer.of(project) for project in use.used_by[:MAX_SHOWN]],
        [_show_unused(project) for project in use.unused_by[:MAX_SHOWN]],
        [UsingProjectAnswer.of(project) for project in switched[:MAX_SHOWN]],
    )


def update_key(call: ManagedCall[str]) -> ProviderKeyAnswer:
    """Absent fields stay unchanged; changing the spending limit (maxSpend) does not reset its usage."""
    fields = call.fields
    _check_place(call.visitor, fields.get("baseUrl"))
    change = ProviderKeyChange(
        secret=fields.get("token"),
        label=fields.get("name"),
        base_url=fields.get("baseUrl"),
        region=fields.get("region"),
        allowed_models=fields.get("allowedModels"),
        active=fields["status"] == "active" if "status" in fields else None,
        bounded="maxSpend" in fields,
        max_spend_nusd=fields.get("maxSpend"),
    )
    return _change_key(call, change)


def rotate_key(call: ManagedCall[str]) -> ProviderKeyAnswer:
    """Replace the secret; the next call on every worker uses the new one."""
    return _change_key(call, ProviderKeyChange(secret=call.fields["token"]))


def remove_key(call: ManagedCall[str]) -> None:
    """Remove a key and destroy its secret. A key that a limit of a higher role names stays."""
    key_id = call.params["key_id"]
    check = hold_subject(call, call.subject, ("provider_key",), key_id)
    call.management.provider_keys.remove(call.subject, key_id, actor=call.actor, check=check)


def check_key(call: ManagedCall[str]) -> KeyCheckAnswer:
    """Send the provider a short test request with this key; the provider may charge its owner for it."""
    management = call.management
    management.throttle.take(ThrottleGate("provider key checks", call.subject, CHECKS_PER_MINUTE, 60))
    result = management.provider_check.check(call.subject, call.params["key_id"], call.fields["model"])
    error = KeyCheckErrorAnswer(result.code, result.message, result.upstream_status)
    return KeyCheckAnswer(result.ok, result.model, result.latency_ms, None if result.ok else error)


def list_providers(call: ManagedCall[str]) -> list[CustomProviderAnswer]:
    """Names, addresses and models of each; keys are listed separately."""
    return [CustomProviderAnswer.of(info) for info in call.management.custom_providers.list_providers(call.subject)]


def add_provider(call: ManagedCall[str]) -> CustomProviderAnswer:
    """A provider with a chat completions API at the organization's own address; its key is added separately."""
    fields = call.fields
    _check_place(call.visitor, fields["baseUrl"])
    info = call.management.custom_providers.add(
        call.subject,
        fields["name"],
        fields["baseUrl"],
        fields["models"],
        actor=call.actor,
        built_in=call.services.routing.catalogue.current().providers,
    )
    return CustomProviderAnswer.of(info)


def update_provider(call: ManagedCall[str]) -> CustomProviderAnswer:
    """Absent fields stay unchanged; in force when this returns."""
    fields = call.fields
    _check_place(call.visitor, fields.get("baseUrl"))
    info = call.management.custom_providers.update(
        call.subject,
        call.params["name"],
        base_url=fields.get("baseUrl"),
        models=fields.get("models"),
        actor=call.actor,
    )
    return CustomProviderAnswer.of(info)


def remove_provider(call: ManagedCall[str]) -> None:
    """Remove a custom provider together with its keys."""
    call.management.custom_providers.remove(call.subject, call.params["name"], actor=call.actor)


def show_provider_key(info: ProviderKeyInfo, spent_nusd: int) -> ProviderKeyAnswer:
    """Return a provider key; `spent_nusd` was spent with it while it had a spending limit."""
    return ProviderKeyAnswer.of(info, name=info.label, masked_token=info.mask, spent=spent_nusd)


def _show_unused(project: ProjectInfo) -> UnusedProjectAnswer:
    request = {"method": "PATCH", "path": f"/projects/{project.id}", "body": {"mode": HYBRID}}
    return UnusedProjectAnswer.of(project, switch_request=request, switch_command=switch_command(project))


def _change_key(call: ManagedCall[str], change: ProviderKeyChange) -> ProviderKeyAnswer:
    key_id = call.params["key_id"]
    info = call.management.provider_keys.update(call.subject, key_id, change, actor=call.actor)
    return show_provider_key(info, call.management.budgets.status(key_id).usage_nusd)


def _check_provider(visitor: Visitor, organization_id: str, provider: str) -> None:
    services = visitor.services
    own = {info.provider_id for info in services.management.custom_providers.list_providers(organization_id)}
    if provider not in own | {CUSTOM} and services.routing.catalogue.current().provider(provider) is None:
        known = own | {CUSTOM} | services.routing.catalogue.current().providers.keys()
        suggestion = suggest_similar(provider, known) or "."
        raise InvalidRequest(f"There is no provider {provider}{suggestion}", param="provider")


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


KEY = "/keys/provider/<key_id>"
CUSTOM_PROVIDERS_PATH = "/orgs/<organization_id>/custom-providers"
PROVIDER = f"{CUSTOM_PROVIDERS_PATH}/<name>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/keys/provider", list_keys, "List provider keys", tag=KEYS, who=SIGNED_IN, scope="providers:read",
            query=ProviderKeyQuery, inside="providerKeys",
            commands=("provider-keys list <organizationId>",)),
    managed("POST", "/keys/provider", add_key, "Add a provider key", tag=KEYS,
            who=in_organization("providers:write"), scope="providers:write", request=NewProviderKey,
            success=201, audit=("provider_key.create", "project.update"),
            creates=Creation("provider_key", _show_existing),
            commands=("provider-keys add <organizationId> <provider> token=- --label=name --model=allowedModels ... "
                      "-> providerKey.id message unusedBy.switchCommand",)),
    managed("PATCH", KEY, update_key, "Change a provider key", tag=KEYS,
            who=of_provider_key("providers:write"), scope="providers:write",
            request=ProviderKeySettings, inside="providerKey", audit="provider_key.update",
            commands=("provider-keys set <key_id> --label=name --base-url=baseUrl --region=region "
                      "--model=allowedModels --max-spend=maxSpend",
                      "provider-keys limit <key_id> <maxSpend>", "provider-keys switch <key_id> <status>")),
    managed("POST", f"{KEY}/rotate", rotate_key, "Replace a provider key's secret", tag=KEYS,
            who=of_provider_key("providers:write"), scope="providers:write", request=Rotation,
            inside="providerKey",
            audit="provider_key.update", commands=("provider-keys rotate <key_id> token=-",)),
    managed("POST", f"{KEY}/test", check_key, "Test a provider key", tag=KEYS,
            who=of_provider_key("providers:write"), scope="providers:write",
            request=CheckQuestion,
            commands=("provider-keys test <key_id> --model=model ?ok",)),
    managed("DELETE", KEY, remove_key, "Remove a provider key", tag=KEYS,
            who=of_provider_key("providers:write"), scope="providers:write",
            message="Provider key removed.", audit="provider_key.delete", commands=("provider-keys remove <key_id>",)),
    managed("GET", CUSTOM_PROVIDERS_PATH, list_providers, "List custom providers", tag=PROVIDERS,
            who=in_organization("providers:read"),
            scope="providers:read", inside="customProviders",
            commands=("custom-providers list <organization_id>",)),
    managed("POST", CUSTOM_PROVIDERS_PATH, add_provider, "Add a custom provider", tag=PROVIDERS,
            who=in_organization("providers:write"),
            scope="providers:write", request=NewCustomProvider, inside="customProvider", success=201,
            audit="custom_provider.create",
            commands=("custom-providers add <organization_id> <name> <baseUrl> ... -> providerId",)),
    managed("PATCH", PROVIDER, update_provider, "Change a custom provider", tag=PROVIDERS,
            who=in_organization("providers:write"), scope="providers:write",
            request=CustomProviderSettings, inside="customProvider",
            audit="custom_provider.update"),
    managed("DELETE", PROVIDER, remove_provider, "Remove a custom provider", tag=PROVIDERS,
            who=in_organization("providers:write"), scope="providers:write",
            message="Custom provider removed.", audit="custom_provider.delete",
            commands=("custom-providers remove <organization_id> <name>",)),
)  # fmt: skip
