"""The services of single sign-on in a worker."""

from msgspec import Struct

from gateway.accounts.identity_domains import IdentityDomains
from gateway.admin.sso_checks import SsoChecks
from gateway.admin.sso_sign_in import SingleSignOnService


class SsoServices(Struct):
    """Sign-in with identity providers, the recurring checks of these sign-ins, and domains of providers."""

    service: SingleSignOnService
    checks: SsoChecks
    domains: IdentityDomains
