"""The wiring of single sign-on."""

from functools import partial

from gateway.accounts.identity_domains import IdentityDomains
from gateway.accounts.identity_providers import IdentityProvider, IdentityProviders
from gateway.accounts.issuer_keys import fetch_over
from gateway.accounts.members import find_first_owner
from gateway.accounts.sso_logins import SsoLogins
from gateway.admin.account_changes import Management
from gateway.admin.sso_accounts import SsoAccounts
from gateway.admin.sso_checks import SsoChecks
from gateway.admin.sso_services import SsoServices
from gateway.admin.sso_sign_in import SingleSignOnService
from gateway.sso.client_parts import make_client_parts
from gateway.store.database import Database
from gateway.worker.service_base import WorkerBase
from gateway.worker.services import AccountServices


def open_single_sign_on(base: WorkerBase, accounts: AccountServices, management: Management) -> SsoServices:
    """Return the services of single sign-on."""
    store = base.store
    settings = base.settings
    allow_private = settings.security.allow_private_upstreams
    providers = IdentityProviders(
        store.database, store.control, store.vault, settings.identity_providers, allow_private
    )
    owner_of = partial(_owner_of, store.database)
    logins = SsoLogins(store.database, store.vault, settings.sso)
    parts = make_client_parts(
        base.transport,
        store.documents,
        base.clock,
        providers,
        timeout_s=settings.sso.timeout_s,
        allow_private=allow_private,
        owner_of=owner_of,
    )
    service = SingleSignOnService(
        store.database,
        store.documents,
        store.vault,
        base.hash_key,
        accounts.throttle,
        management.sessions,
        providers,
        logins,
        SsoAccounts(store.database, store.control, management.second_factors, management.group_grants),
        parts,
    )
    domains = IdentityDomains(store.database, store.control, fetch_over(base.transport))
    return SsoServices(
        service, SsoChecks(service, logins, accounts.oauth.grants, owner_of, base.clock.monotonic), domains
    )


def _owner_of(database: Database, provider: IdentityProvider) -> str:
    """Return the owner of the requests to an identity provider: a person, or the operators for their provider."""
    if not provider.organization_id:
        return provider.id
    return find_first_owner(database, provider.organization_id) or provider.organization_id
