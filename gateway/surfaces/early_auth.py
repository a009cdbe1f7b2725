"""Authentication from the headers alone, before the body of a request is received or decompressed.

Short plain bodies skip it: they cost less than the check. All other requests need a valid API key, access token,
service account or live session, so that an unknown caller cannot make this process hold or work on more than a few
kilobytes.
"""

from collections.abc import Mapping

from gateway.accounts.provisioning.scim_tokens import is_scim_token
from gateway.accounts.service_accounts import is_service_account_token
from gateway.accounts.sessions import PREFIX
from gateway.callers.authentication import is_access_token
from gateway.runtime.threads import work_for
from gateway.surfaces.visitors.visitor import COOKIE, read_cookie, visit
from gateway.surfaces.web.auth import caller_of, token_of
from gateway.surfaces.web.http import Inbound, Sender
from gateway.worker.services import Services

TLS = "https:"  # cookie name prefix for base URLs behind TLS


class EarlyAuth:
    """Finds the owner of a request by its headers."""

    def __init__(self, services: Services) -> None:
        self._services = services

    def owner(self, headers: Mapping[str, str], sender: Sender | None = None) -> str:
        """Return the organization, or the user of a session, that a request with `headers` belongs to.

        Raises Unauthenticated, Forbidden, Gone or Unavailable. `sender` is the cached result for the same headers.
        """
        services = self._services
        known = sender.caller if sender is not None else None
        if known is not None and services.accounts.authentication.holds(known):
            work_for(known.organization_id)
            return known.organization_id
        inbound = Inbound("", "", headers)
        token = (
            token_of(inbound)
            or read_cookie(inbound, COOKIE)
            or read_cookie(Inbound("", "", headers, base_url=TLS), COOKIE)
        )
        if token.startswith(PREFIX):
            return visit(services, token).user_id
        if is_service_account_token(token):  # the handler checks scope and address
            return services.accounts.service_accounts.check(token).info.organization_id
        if is_scim_token(token):
            return services.accounts.scim_tokens.find(token).organization_id
        if is_access_token(token):  # the handler checks whether the session may use this path
            return services.accounts.oauth.callers.caller(token).organization_id
        return caller_of(services, inbound).organization_id
