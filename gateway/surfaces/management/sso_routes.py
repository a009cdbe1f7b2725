"""`/orgs/…/identity-providers` and `/orgs/…/sso`: single sign-on of an organization."""

from typing import Annotated, Any

from marshmallow import fields as marshmallow_fields
from msgspec import Meta
from msgspec.structs import replace

from gateway.accounts import group_rules
from gateway.accounts.identity_domains import ClaimedDomain
from gateway.accounts.identity_providers import STORED, IdentityProvider, ProviderDraft
from gateway.accounts.sso_requirement import SsoRequirement, find_requirement, set_requirement
from gateway.callers.throttle import ThrottleGate
from gateway.errors import Forbidden, Unavailable
from gateway.surfaces.management.access_groups import AccessGroup, Values, in_organization
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import (
    NameList,
    OneOf,
    StatusField,
    StrictBody,
    StrictBoolean,
    TextField,
    describe_field,
)
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Time, to_camel
from gateway.surfaces.web.http import Operation

TAG = "Single sign-on"
FETCHES = 20  # a minute, because the organization chose the address
MINUTE_S = 60
ROLES = ("viewer", "developer", "billing", "admin")
CALLBACK = "/console/sso/{}/callback"
LOGOUT = "/oauth/back-channel-logout/{}"
AFTER_LOGOUT = "/console/login"
# Fields of bodies → options of a provider.
OPTIONS = {to_camel(option): option for option in STORED}


NAME = "The text of its button on the sign-in page."
ISSUER = "The exact issuer of the discovery document."
CLIENT = "The id of the client at the provider."
SECRET = "The secret of the client; commands read it from standard input for -."
SCOPES = "Requested scopes; offline_access gives refresh tokens."
GROUPS = "The claim with the person's groups."
ATTRIBUTE_CLAIMS = "The claims with attributes of people, by attribute; a path such as company.cost_center is possible."
ROLE = "The role of new members."
TRUST = "Accept e-mail addresses of tokens that do not say whether they are verified."
LINK = "Connect members by their verified e-mail address."
CREATE = "Create accounts and memberships at the first sign-in."
FOR_OWNERS = "Owners may sign in with it, and its groups may make owners. Only an owner allows this."
# Changes of an admin that do not end what an owner allowed: they decide nothing about who a person is.
HARMLESS = {"name", "status", "attributeClaims"}


class AttributeClaims(StrictBody):
    """The claims with attributes of people for chargeback."""

    costCenter = TextField(0, 255, about="The claim with the cost center.", example="cost_center")
    department = TextField(0, 255, about="The claim with the department.")
    division = TextField(0, 255, about="The claim with the division.")
    organization = TextField(0, 255, about="The claim with the organization.")
    employeeNumber = TextField(0, 255, about="The claim with the number of the employee.")


class NewProvider(StrictBody):
    """The role is that of people for whom `createPeople` creates accounts and memberships."""

    name = TextField(1, 80, required=True, about=NAME)
    issuer = TextField(1, 512, required=True, about=ISSUER, example="https://login.example.com")
    clientId = TextField(1, 255, required=True, about=CLIENT)
    clientSecret = TextField(0, 1024, load_default="", about=SECRET)
    scopes = NameList(20, 80, about=SCOPES)
    groupsClaim = TextField(0, 255, load_default="", about=GROUPS)
    attributeClaims = marshmallow_fields.Nested(
        AttributeClaims, load_default=dict, metadata=describe_field(ATTRIBUTE_CLAIMS)
    )
    role = OneOf(ROLES, load_default="developer", about=ROLE)
    trustEmail = StrictBoolean(load_default=False, about=TRUST)
    linkByEmail = StrictBoolean(load_default=False, about=LINK)
    createPeople = StrictBoolean(load_default=False, about=CREATE)
    forOwners = StrictBoolean(about=FOR_OWNERS + " By default true if an owner adds it.")


class ProviderChange(StrictBody):
    """Absent members stay unchanged. Sign-ins with an inactive provider are refused, and its sessions end. A change by
    an admin of more than name and status sets `forOwners` to false."""

    name = TextField(1, 80, about=NAME)
    issuer = TextField(1, 512, about=ISSUER, example="https://login.example.com")
    clientId = TextField(1, 255, about=CLIENT)
    clientSecret = TextField(0, 1024, about=SECRET)
    scopes = NameList(20, 80, about=SCOPES)
    groupsClaim = TextField(0, 255, about=GROUPS)
    attributeClaims = marshmallow_fields.Nested(AttributeClaims, metadata=describe_field(ATTRIBUTE_CLAIMS))
    role = OneOf(ROLES, about=ROLE)
    trustEmail = StrictBoolean(about=TRUST)
    linkByEmail = StrictBoolean(about=LINK)
    createPeople = StrictBoolean(about=CREATE)
    forOwners = StrictBoolean(about=FOR_OWNERS)
    status = StatusField()


class NewDomain(StrictBody):
    domain = TextField(3, 80, required=True, example="example.com")


class Requirement(StrictBody):
    """`breakGlassMemberId`: the owner who may still sign in by password."""

    required = StrictBoolean(required=True)
    breakGlassMemberId = TextField(0, 40, load_default="")


class DomainAnswer(Answer):
    """`token` is what `address` must show for the verification."""

    domain: str
    token: str
    address: str
    verified_at: Time | None


class ProviderAnswer(Answer):
    """`callback_url`, `back_channel_logout_url` and `post_logout_url` are to be registered at the provider."""

    columns = ("id", "status", "issuer", "name")
    id: str
    organization_id: str
    name: str
    issuer: str
    client_id: str
    status: str
    scopes: Annotated[list[str], Meta(examples=[["openid", "email", "profile"]])]
    groups_claim: str
    attribute_claims: Annotated[dict[str, str], Meta(examples=[{"costCenter": "cost_center"}])]
    role: str
    trust_email: bool
    link_by_email: bool
    create_people: bool
    for_owners: bool
    domains: list[DomainAnswer]
    callback_url: str
    back_channel_logout_url: str
    post_logout_url: str
    created_at: Time


class ProviderTestAnswer(Answer):
    """Whether discovery document and keys could be loaded; `problem` says why not."""

    usable: bool
    problem: str | None
    authorization_endpoint: str | None
    token_endpoint: str | None
    jwks_uri: str | None


class RequirementAnswer(Answer):
    required: bool
    break_glass_member_id: str | None


def _find_provider(visitor: Visitor, values: Values) -> IdentityProvider:
    organization_id = values["organization_id"]
    visitor.permitted(organization_id, "sso:write")
    return visitor.services.sso.service.providers.find_of(organization_id, values["provider_id"])


def _check_owners(call: ManagedCall[Any], organization_id: str) -> None:
    """Raise Forbidden for an admin while a group rule makes owners: the provider states who is in the group."""
    rules = group_rules.list_rules(call.database, organization_id)
    if any(rule.role == "owner" for rule in rules) and call.visitor.member(organization_id).role != "owner":
        raise Forbidden("A group rule makes owners: only an owner may add or change identity providers.")


def _is_owner(call: ManagedCall[Any], organization_id: str) -> bool:
    return call.visitor.authority(call.visitor.member(organization_id)).covers("owner")


def _read_for_owners(call: ManagedCall[Any], organization_id: str, default: bool) -> bool:
    """Return whether owners may use a provider; without the field, `default`. Raises Forbidden for an admin who allows
    it."""
    for_owners = bool(call.fields.get("forOwners", default))
    if "forOwners" in call.fields and for_owners:
        call.visitor.authority(call.visitor.member(organization_id)).check("owner")
    return for_owners


PROVIDER_MANAGER = AccessGroup("sso:write", "For owners and admins.", _find_provider)


def list_providers(call: ManagedCall[str]) -> list[ProviderAnswer]:
    """The identity providers of the organization, without their secrets."""
    return [_show(call, provider) for provider in call.services.sso.service.providers.list_providers(call.subject)]


def create(call: ManagedCall[str]) -> ProviderAnswer:
    """Add an OpenID provider; only an owner while a group rule makes owners. Register the callback URL of the answer at
    the provider."""
    _check_owners(call, call.subject)
    fields = call.fields
    for_owners = _read_for_owners(call, call.subject, _is_owner(call, call.subject))
    draft = ProviderDraft(
        fields["name"],
        fields["issuer"],
        fields["clientId"],
        fields["clientSecret"],
        options={
            **{option: fields[field] for field, option in OPTIONS.items() if field in fields},
            "for_owners": for_owners,
        },
    )
    return _show(call, call.services.sso.service.providers.create(call.subject, draft, actor=call.actor))


def update(call: ManagedCall[IdentityProvider]) -> ProviderAnswer:
    """Change a provider; only an owner while a group rule makes owners. Another issuer or client ends its sessions."""
    before = call.subject
    _check_owners(call, before.organization_id)
    fields = call.fields
    stays = before.for_owners and (_is_owner(call, before.organization_id) or fields.keys() <= HARMLESS)
    draft = ProviderDraft(
        fields.get("name", before.name),
        fields.get("issuer", before.issuer),
        fields.get("clientId", before.client_id),
        fields.get("clientSecret"),
        fields.get("status", "active" if before.active else "inactive") == "active",
        {
            **{option: fields.get(field, getattr(before, option)) for field, option in OPTIONS.items()},
            "for_owners": _read_for_owners(call, before.organization_id, stays),
        },
    )
    providers = call.services.sso.service.providers
    return _show(call, providers.update(before.organization_id, before.id, draft, actor=call.actor))


def delete(call: ManagedCall[IdentityProvider]) -> None:
    """Delete a provider with its domains, connected identities and sessions."""
    providers = call.services.sso.service.providers
    providers.delete(call.subject.organization_id, call.subject.id, actor=call.actor)


def test(call: ManagedCall[IdentityProvider]) -> ProviderTestAnswer:
    """Load the discovery document and the keys of a provider now."""
    _throttle(call)
    try:
        endpoints = call.services.sso.service.check(call.subject)
    except Unavailable as error:
        return ProviderTestAnswer(False, error.message, None, None, None)
    return ProviderTestAnswer(True, None, endpoints.authorization, endpoints.token, endpoints.keys)


def add_domain(call: ManagedCall[IdentityProvider]) -> ProviderAnswer:
    """Add a domain of e-mail addresses. It counts once it is verified; at once if an operator adds it."""
    provider = call.subject
    call.services.sso.domains.claim(
        provider.organization_id,
        provider.id,
        call.fields["domain"],
        verified=call.visitor.is_operator(),
        actor=call.actor,
    )
    return _show(call, provider)


def verify_domain(call: ManagedCall[IdentityProvider]) -> ProviderAnswer:
    """Verify a domain: its address must show the token now, unless an operator verifies it."""
    _throttle(call)
    provider = call.subject
    domain = call.params["domain"]
    confirmed = call.visitor.is_operator()
    domains = call.services.sso.domains
    domains.verify(provider.organization_id, provider.id, domain, confirmed=confirmed, actor=call.actor)
    return _show(call, provider)


def remove_domain(call: ManagedCall[IdentityProvider]) -> None:
    """The provider no longer connects or creates accounts with addresses of the domain."""
    provider = call.subject
    domain = call.params["domain"]
    call.services.sso.domains.remove(provider.organization_id, provider.id, domain, actor=call.actor)


def show_requirement(call: ManagedCall[str]) -> RequirementAnswer:
    """Whether the organization requires single sign-on, and its break-glass account."""
    return _show_requirement(find_requirement(call.database, call.subject))


def require(call: ManagedCall[str]) -> RequirementAnswer:
    """Require single sign-on, or not. Sessions by password do not reach the organization from the next request on,
    except those of the break-glass account: an owner with a password."""
    wanted = SsoRequirement(call.fields["required"], call.fields["breakGlassMemberId"])
    if not wanted.required:
        wanted = replace(wanted, break_glass_member_id="")
    any_configured = bool(call.services.sso.service.providers.configured)
    made = set_requirement(*call.stores, call.subject, wanted, any_configured=any_configured, actor=call.actor)
    return _show_requirement(made)


def _throttle(call: ManagedCall[IdentityProvider]) -> None:
    organization_id = call.subject.organization_id
    call.management.throttle.take(ThrottleGate("identity providers tried", organization_id, FETCHES, MINUTE_S))


def _show(call: ManagedCall[Any], provider: IdentityProvider) -> ProviderAnswer:
    base = call.inbound.base_url
    return ProviderAnswer.of(
        provider,
        status="active" if provider.active else "inactive",
        scopes=list(provider.scopes),
        attribute_claims=dict(provider.attribute_claims),
        domains=[_show_domain(domain) for domain in call.services.sso.domains.list_domains(provider.id)],
        callback_url=base + CALLBACK.format(provider.id),
        back_channel_logout_url=base + LOGOUT.format(provider.id),
        post_logout_url=base + AFTER_LOGOUT,
    )


def _show_domain(domain: ClaimedDomain) -> DomainAnswer:
    return DomainAnswer.of(domain)


def _show_requirement(requirement: SsoRequirement) -> RequirementAnswer:
    return RequirementAnswer(requirement.required, requirement.break_glass_member_id or None)


ORG = "/orgs/<organization_id>"
PROVIDERS = f"{ORG}/identity-providers"
PROVIDER = f"{PROVIDERS}/<provider_id>"
DOMAIN = f"{PROVIDER}/domains/<domain>"
SETTINGS = (
    "--client-secret=clientSecret --scope=scopes --groups-claim=groupsClaim --attribute-claims=attributeClaims "
    "--role=role --trust-email=trustEmail --link-by-email=linkByEmail --create-people=createPeople "
    "--for-owners=forOwners"
)

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", PROVIDERS, list_providers, "List identity providers", tag=TAG, who=in_organization("sso:read"),
            inside="identityProviders", commands=("identity-providers list",)),
    managed("POST", PROVIDERS, create, "Add an identity provider", tag=TAG,
            who=in_organization("sso:write"), request=NewProvider,
            inside="identityProvider", success=201, audit="identity_provider.create",
            commands=(f"identity-providers add <name> --issuer=issuer! --client-id=clientId! {SETTINGS} "
                      "-> id callbackUrl",)),
    managed("PATCH", PROVIDER, update, "Change an identity provider", tag=TAG, who=PROVIDER_MANAGER,
            request=ProviderChange, inside="identityProvider",
            audit="identity_provider.update",
            commands=("identity-providers set <provider_id> --name=name --issuer=issuer --client-id=clientId "
                      f"{SETTINGS}",
                      "identity-providers switch <provider_id> <status>")),
    managed("DELETE", PROVIDER, delete, "Delete an identity provider", tag=TAG, who=PROVIDER_MANAGER,
            message="Identity provider deleted.", audit="identity_provider.delete",
            commands=("identity-providers delete <provider_id>",)),
    managed("POST", f"{PROVIDER}/test", test, "Test an identity provider", tag=TAG, who=PROVIDER_MANAGER,
            commands=("identity-providers test <provider_id> ?usable",)),
    managed("POST", f"{PROVIDER}/domains", add_domain, "Add a domain to an identity provider", tag=TAG,
            who=PROVIDER_MANAGER, request=NewDomain, inside="identityProvider", success=201,
            audit="identity_domain.create", commands=("identity-providers add-domain <provider_id> <domain>",)),
    managed("POST", f"{DOMAIN}/verify", verify_domain, "Verify a domain", tag=TAG, who=PROVIDER_MANAGER,
            inside="identityProvider", audit="identity_domain.verify",
            commands=("identity-providers verify-domain <provider_id> <domain>",)),
    managed("DELETE", DOMAIN, remove_domain, "Remove a domain", tag=TAG, who=PROVIDER_MANAGER,
            message="Domain removed.", audit="identity_domain.delete",
            commands=("identity-providers remove-domain <provider_id> <domain>",)),
    managed("GET", f"{ORG}/sso", show_requirement, "Show whether single sign-on is required", tag=TAG,
            who=in_organization("sso:read"),
            inside="sso", commands=("sso show",)),
    managed("PUT", f"{ORG}/sso", require, "Require single sign-on", tag=TAG,
            who=in_organization("sso:require"), request=Requirement,
            inside="sso", audit="organization.update_sso",
            commands=("sso require <breakGlassMemberId> required=true", "sso make-optional required=false")),
)  # fmt: skip
