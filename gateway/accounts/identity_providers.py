"""Identity providers: OpenID providers of the installation (from the configuration) and of organizations (stored)."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from gateway import ids
from gateway.accounts import audit, changes, group_rules, organizations
from gateway.accounts.changes import commit
from gateway.accounts.models import IdentityDomain, IdentityProviderRow, SsoLogin, UserIdentity
from gateway.accounts.sso_logins import delete_logins
from gateway.callers.models import Organization
from gateway.callers.permissions import Role
from gateway.callers.vault import Vault
from gateway.configuration.configured_providers import DEFAULT_SCOPES, ConfiguredProvider
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database
from gateway.transport.addresses import check_spelling, read_receiver

PREFIX = "idp"
MAX_PROVIDERS = 20  # of an organization
MAX_SCOPES = 20
MAX_ISSUER_LENGTH = 512
STORED = (
    "scopes",
    "groups_claim",
    "role",
    "trust_email",
    "link_by_email",
    "create_people",
    "for_owners",
    "attribute_claims",
)


@dataclass(frozen=True, slots=True)
class IdentityProvider:
    """An OpenID provider. `organization_id` is "" for one of the installation.

    The options are explained at `ConfiguredProvider`; `organizations` are those that its people may join. `domains` are
    verified. `trusted`: the operator configured it, so its issuer may be on a private network. `for_owners`: an owner
    allowed owners to sign in with it, and its groups to make owners.
    """

    id: str
    organization_id: str
    name: str
    issuer: str
    client_id: str
    client_secret: str = field(default="", repr=False)
    active: bool = True
    scopes: tuple[str, ...] = ()
    groups_claim: str = ""
    attribute_claims: Mapping[str, str] = field(default_factory=dict)
    role: Role | str = "developer"
    trust_email: bool = False
    link_by_email: bool = False
    create_people: bool = False
    domains: tuple[str, ...] = ()
    organizations: tuple[str, ...] = ()
    trusted: bool = False
    for_owners: bool = False
    created_at_us: int = 0


@dataclass(frozen=True, slots=True)
class ProviderDraft:
    """The content of an organization's provider. A `client_secret` of None stays as it is."""

    name: str
    issuer: str
    client_id: str
    client_secret: str | None = field(default=None, repr=False)
    active: bool = True
    options: Mapping[str, Any] = field(default_factory=dict)


class IdentityProviders:
    """All identity providers; changes of those of organizations are audited."""

    def __init__(
        self,
        database: Database,
        control: Control,
        vault: Vault,
        configured: Iterable[ConfiguredProvider],
        allow_private: bool,
    ) -> None:
        self._database = database
        self._control = control
        self._vault = vault
        self._allow_private = allow_private
        self._configured = {provider.id: _configured(provider) for provider in configured}

    @property
    def of_installation(self) -> list[IdentityProvider]:
        """Return the providers that the sign-in page offers to everybody: those that no domain limits."""
        return [provider for provider in self._configured.values() if not provider.domains]

    @property
    def configured(self) -> list[IdentityProvider]:
        """Return all providers of the installation."""
        return list(self._configured.values())

    def any_exists(self) -> bool:
        """Return whether the installation or an organization has an active provider."""
        if self._configured:
            return True
        return self._database.read(IdentityProviderRow.select().where(IdentityProviderRow.active == True).exists)  # noqa: E712

    def find(self, provider_id: str) -> IdentityProvider:
        """Return an active provider with its secret. Raises NotFound."""
        configured = self._configured.get(provider_id)
        if configured is not None:
            return configured
        provider = self._database.read(partial(self._load, provider_id))
        if not provider.active:
            raise NotFound(f"There is no identity provider {provider_id[:80]}.")
        return provider

    def for_domain(self, domain: str) -> list[IdentityProvider]:
        """Return the active providers for e-mail addresses of a domain."""
        domain = domain.strip().lower()[:255]

        def read() -> list[IdentityProvider]:
            rows = IdentityDomain.select(IdentityDomain.provider).where(
                IdentityDomain.domain == domain, IdentityDomain.verified_at.is_null(False)
            )
            return [self._load(row.provider) for row in rows.order_by(IdentityDomain.provider).limit(MAX_PROVIDERS)]

        stored = [provider for provider in self._database.read(read) if provider.active]
        return [*(provider for provider in self._configured.values() if domain in provider.domains), *stored]

    def list_providers(self, organization_id: str) -> list[IdentityProvider]:
        """Return the providers of an organization, inactive ones too, oldest first; without secrets."""

        def read() -> list[IdentityProvider]:
            rows = IdentityProviderRow.select(IdentityProviderRow.id).where(
                IdentityProviderRow.organization == organization_id
            )
            return [self._load(row.id) for row in rows.order_by(IdentityProviderRow.id)]

        return [replace(provider, client_secret="") for provider in self._database.read(read)]

    def list_required(self) -> list[IdentityProvider]:
        """Return the active providers with which organizations require single sign-on; without secrets."""
        rows: Any = Organization.select(Organization.id).where(Organization.sso_required == True)  # noqa: E712
        required: list[IdentityProvider] = []
        needs_installation = False
        for row in self._database.read(lambda: list(rows)):
            own = [provider for provider in self.list_providers(row.id) if provider.active]
            required += own
            needs_installation = needs_installation or not own
        if needs_installation:
            required += self.configured
        return required

    def find_of(self, organization_id: str, provider_id: str) -> IdentityProvider:
        """Return a provider of an organization, active or not. Raises NotFound."""
        return self._database.read(partial(self._load, provider_id, organization_id))

    def create(self, organization_id: str, draft: ProviderDraft, *, actor: str) -> IdentityProvider:
        """Add a provider to an organization. Raises InvalidRequest or NotFound."""
        draft = self._read(draft)
        provider_id = ids.new(PREFIX)
        sealed = self._vault.seal(draft.client_secret or "")

        def work(now: int) -> IdentityProvider:
            organizations.load_organization(organization_id)
            rows = IdentityProviderRow.select().where(IdentityProviderRow.organization == organization_id)
            changes.check_quota(rows, MAX_PROVIDERS, "identity providers")
            IdentityProviderRow.insert(
                id=provider_id,
                organization=organization_id,
                client_secret=sealed,
                created_at=now,
                **_values(draft, now),
            ).execute()
            return self._audited("identity_provider.create", self._load(provider_id), actor, now)

        return commit(self._database, self._control, work, confirm=False)

    def update(self, organization_id: str, provider_id: str, draft: ProviderDraft, *, actor: str) -> IdentityProvider:
        """Replace the content of a provider. Another issuer or client ends all of its sign-ins, as does switching it
        off. Raises InvalidRequest or NotFound."""
        draft = self._read(draft)
        secret = {}
        if draft.client_secret is not None:
            secret = {"client_secret": self._vault.seal(draft.client_secret)}

        def work(now: int) -> IdentityProvider:
            before = self._load(provider_id, organization_id)
            row = IdentityProviderRow.id == provider_id
            IdentityProviderRow.update(**_values(draft, now), **secret).where(row).execute()
            if not draft.active or (before.issuer, before.client_id) != (draft.issuer, draft.client_id):
                delete_logins(SsoLogin.provider == provider_id)
            if not draft.options.get("for_owners"):
                group_rules.distrust(provider_id)
            return self._audited("identity_provider.update", self._load(provider_id), actor, now)

        return commit(self._database, self._control, work)

    def delete(self, organization_id: str, provider_id: str, *, actor: str) -> None:
        """Delete a provider with its domains, linked identities and sign-ins. Raises NotFound."""

        def work(now: int) -> None:
            before = self._load(provider_id, organization_id)
            delete_logins(SsoLogin.provider == provider_id)
            UserIdentity.delete().where(UserIdentity.provider == provider_id).execute()
            IdentityDomain.delete().where(IdentityDomain.provider == provider_id).execute()
            IdentityProviderRow.delete().where(IdentityProviderRow.id == provider_id).execute()
            self._audited("identity_provider.delete", before, actor, now)

        commit(self._database, self._control, work)

    def _read(self, draft: ProviderDraft) -> ProviderDraft:
        name = draft.name.strip()
        if not 1 <= len(name) <= 80:
            raise InvalidRequest("name needs 1 to 80 characters.", param="name")
        issuer = read_receiver(draft.issuer, "issuer")
        parts = urlsplit(issuer)
        if parts.query or parts.fragment or len(issuer) > MAX_ISSUER_LENGTH:
            raise InvalidRequest("The issuer is an address without a query.", param="issuer")
        if not self._allow_private:
            if parts.scheme != "https":
                raise InvalidRequest("The issuer must be an https address.", param="issuer")
            check_spelling(issuer, "issuer")
        scopes = tuple(dict.fromkeys(("openid", *draft.options.get("scopes", DEFAULT_SCOPES))))
        if len(scopes) > MAX_SCOPES or any(not scope.isprintable() or " " in scope for scope in scopes):
            raise InvalidRequest(f"scopes is a list of at most {MAX_SCOPES} names.", param="scopes")
        client_id = draft.client_id.strip()
        if not client_id:
            raise InvalidRequest("clientId is missing.", param="clientId")
        return replace(
            draft, name=name, issuer=issuer, client_id=client_id, options={**draft.options, "scopes": scopes}
        )

    def _load(self, provider_id: str, organization_id: str = "") -> IdentityProvider:
        row = IdentityProviderRow.get_or_none(IdentityProviderRow.id == provider_id)
        if row is None or organization_id not in ("", row.organization):
            raise NotFound(f"There is no identity provider {provider_id[:80]}.")
        domains = IdentityDomain.select(IdentityDomain.domain).where(
            IdentityDomain.provider == provider_id, IdentityDomain.verified_at.is_null(False)
        )
        options = json.loads(row.settings)
        return IdentityProvider(
            row.id,
            row.organization,
            row.name,
            row.issuer,
            row.client_id,
            self._vault.open(row.client_secret),
            bool(row.active),
            **{**options, "scopes": tuple(options["scopes"])},
            domains=tuple(domain.domain for domain in domains.order_by(IdentityDomain.domain)),
            organizations=(row.organization,),
            created_at_us=row.created_at,
        )

    def _audited(self, action: str, provider: IdentityProvider, actor: str, now: int) -> IdentityProvider:
        detail = {
            "name": provider.name,
            "issuer": provider.issuer,
            "active": provider.active,
            "for_owners": provider.for_owners,
        }
        organization_id = provider.organization_id
        audit.append(action, provider.id, actor=actor, at_us=now, organization_id=organization_id, detail=detail)
        return provider


def _values(draft: ProviderDraft, now: int) -> dict[str, Any]:
    options = {name: draft.options[name] for name in STORED if name in draft.options}
    claims = {name: claim for name, claim in options.pop("attribute_claims", {}).items() if claim}
    if claims:  # the former release knows no such option
        options["attribute_claims"] = claims
    return {
        "name": draft.name,
        "issuer": draft.issuer,
        "client_id": draft.client_id,
        "settings": json.dumps(options, sort_keys=True),
        "active": draft.active,
        "updated_at": now,
    }


def _configured(provider: ConfiguredProvider) -> IdentityProvider:
    return IdentityProvider(
        provider.id,
        "",
        provider.name,
        provider.issuer,
        provider.client_id,
        provider.client_secret,
        scopes=provider.scopes,
        groups_claim=provider.groups_claim,
        attribute_claims=provider.attribute_claims,
        role=provider.role,
        trust_email=provider.trust_email,
        link_by_email=provider.link_by_email,
        create_people=provider.create_people,
        domains=provider.domains,
        organizations=provider.organizations,
        trusted=True,
        for_owners=True,
    )
