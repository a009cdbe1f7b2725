"""Domains of e-mail addresses for which an organization's identity provider may speak.

A domain counts once it is verified: its web server shows the token of the claim, or an operator of the installation
added it. It is verified for one organization only.
"""

import secrets
from collections.abc import Callable
from functools import partial

from msgspec import Struct

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.accounts.models import IdentityDomain, IdentityProviderRow
from gateway.configuration.configured_providers import domain_problem
from gateway.control.version import Control
from gateway.errors import Conflict, GatewayError, InvalidRequest, NotFound
from gateway.store.database import Database

MAX_DOMAINS = 50  # of a provider
PATH = "/.well-known/llmgateway-domain"

# fetch(url) → (status, body): a guarded GET without redirects, with a size limit. Raises GatewayError.
Fetch = Callable[[str], tuple[int, bytes]]


class ClaimedDomain(Struct, frozen=True):
    """A domain of a provider. `token` is what the address at `PATH` must show; `verified_at_us` is None before."""

    provider_id: str
    organization_id: str
    domain: str
    token: str
    verified_at_us: int | None
    created_at_us: int

    @property
    def address(self) -> str:
        return f"https://{self.domain}{PATH}"


class IdentityDomains:
    """The domains of all providers of organizations. Changes are audited."""

    def __init__(self, database: Database, control: Control, fetch: Fetch) -> None:
        self._database = database
        self._control = control
        self._fetch = fetch

    def list_domains(self, provider_id: str) -> list[ClaimedDomain]:
        """Return the domains of a provider in alphabetical order."""
        rows = IdentityDomain.select().where(IdentityDomain.provider == provider_id).order_by(IdentityDomain.domain)
        return self._database.read(lambda: [_info(row) for row in rows])

    def claim(
        self, organization_id: str, provider_id: str, domain: str, *, verified: bool, actor: str
    ) -> ClaimedDomain:
        """Add a domain to a provider; `verified`: an operator does it.

        Raises InvalidRequest, NotFound, or Conflict (verified for another organization, or added before).
        """
        domain = domain.strip().lower().removeprefix("@")
        if problem := domain_problem(domain):
            raise InvalidRequest(problem, param="domain")
        token = f"llmgateway-domain={secrets.token_urlsafe(24)}"

        def work(now: int) -> ClaimedDomain:
            _check_provider(organization_id, provider_id)
            count = IdentityDomain.select().where(IdentityDomain.provider == provider_id).count()
            if count >= MAX_DOMAINS:
                raise InvalidRequest(f"A provider has at most {MAX_DOMAINS} domains.", code="too_many")
            if _select(provider_id, domain) is not None:
                raise Conflict("This domain was added before.")
            is_own = _verified_for(domain) == organization_id
            if verified:
                _check_free(organization_id, domain)
            IdentityDomain.insert(
                provider=provider_id,
                domain=domain,
                organization=organization_id,
                token=token,
                verified_at=now if verified or is_own else None,
                created_at=now,
            ).execute()
            return self._audited("identity_domain.create", provider_id, domain, actor, now)

        return commit(self._database, self._control, work, confirm=False)

    def verify(
        self, organization_id: str, provider_id: str, domain: str, *, confirmed: bool, actor: str
    ) -> ClaimedDomain:
        """Verify a domain by the token that its web server shows; `confirmed`: an operator does it without the token.

        Raises NotFound, Conflict (verified for another organization) or InvalidRequest (the token is not shown).
        """
        claimed = self._database.read(partial(_load, organization_id, provider_id, domain))
        if not confirmed and claimed.verified_at_us is None:
            self._check_token(claimed)

        def work(now: int) -> ClaimedDomain:
            _load(organization_id, provider_id, domain)
            _check_free(organization_id, domain)
            row = (IdentityDomain.provider == provider_id) & (IdentityDomain.domain == domain)
            IdentityDomain.update(verified_at=now).where(row).execute()
            return self._audited("identity_domain.verify", provider_id, domain, actor, now)

        return commit(self._database, self._control, work, confirm=False)

    def remove(self, organization_id: str, provider_id: str, domain: str, *, actor: str) -> None:
        """Remove a domain; linked identities stay. Raises NotFound."""

        def work(now: int) -> None:
            _load(organization_id, provider_id, domain)
            self._audited("identity_domain.delete", provider_id, domain, actor, now)
            row = (IdentityDomain.provider == provider_id) & (IdentityDomain.domain == domain)
            IdentityDomain.delete().where(row).execute()

        commit(self._database, self._control, work, confirm=False)

    def _check_token(self, claimed: ClaimedDomain) -> None:
        try:
            status, body = self._fetch(claimed.address)
        except GatewayError as error:
            raise InvalidRequest(f"{claimed.address} cannot be loaded: {error.message}", param="domain") from None
        if status != 200 or claimed.token.encode() not in body.split():
            raise InvalidRequest(f"{claimed.address} does not show {claimed.token}.", param="domain")

    def _audited(self, action: str, provider_id: str, domain: str, actor: str, now: int) -> ClaimedDomain:
        row = _select(provider_id, domain)
        assert row is not None
        claimed = _info(row)
        detail = {"domain": domain, "verified": claimed.verified_at_us is not None}
        audit.append(
            action, provider_id, actor=actor, at_us=now, organization_id=claimed.organization_id, detail=detail
        )
        return claimed


def _check_provider(organization_id: str, provider_id: str) -> None:
    row = IdentityProviderRow.get_or_none(IdentityProviderRow.id == provider_id)
    if row is None or row.organization != organization_id:
        raise NotFound(f"There is no identity provider {provider_id[:80]}.")


def _verified_for(domain: str) -> str:
    """Return the organization for which a domain is verified, "" for none."""
    row = IdentityDomain.select().where(IdentityDomain.domain == domain, IdentityDomain.verified_at.is_null(False))
    found = row.first()
    return "" if found is None else found.organization


def _check_free(organization_id: str, domain: str) -> None:
    if _verified_for(domain) not in ("", organization_id):
        raise Conflict("This domain is verified for another organization.", code="domain_taken")


def _select(provider_id: str, domain: str) -> IdentityDomain | None:
    return IdentityDomain.get_or_none(IdentityDomain.provider == provider_id, IdentityDomain.domain == domain)


def _load(organization_id: str, provider_id: str, domain: str) -> ClaimedDomain:
    _check_provider(organization_id, provider_id)
    row = _select(provider_id, domain)
    if row is None:
        raise NotFound(f"The identity provider has no domain {domain[:80]}.")
    return _info(row)


def _info(row: IdentityDomain) -> ClaimedDomain:
    return ClaimedDomain(row.provider, row.organization, row.domain, row.token, row.verified_at, row.created_at)
