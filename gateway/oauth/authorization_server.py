"""The authorization server's objects of a worker."""

from functools import cached_property
from typing import TYPE_CHECKING

from gateway.accounts.authentication import Authentication
from gateway.accounts.throttle import Throttle
from gateway.clock import Clock
from gateway.control.version import Control
from gateway.oauth.access_tokens import TokenCallers
from gateway.oauth.client_documents import ClientDocuments, DocumentFetcher
from gateway.oauth.clients import Clients
from gateway.oauth.grant_cleanup import OAuthCleanup
from gateway.oauth.grants import Grants
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.threads import compute
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.installation_identity import Secrets

if TYPE_CHECKING:
    from gateway.oauth.token_endpoint import OAuthServer

server = LazyImport("gateway.oauth.token_endpoint")


class OAuth:
    """Clients, grants, callers of access tokens, and cleanup of expired rows."""

    def __init__(
        self,
        database: Database,
        control: Control,
        documents: Documents,
        secrets: Secrets,
        fetcher: DocumentFetcher,
        authentication: Authentication,
        throttle: Throttle,
        clock: Clock,
    ) -> None:
        self._authentication = authentication
        self.clients = Clients(database, secrets, ClientDocuments(documents, fetcher, clock).find)
        self.grants = Grants(database, control, secrets, throttle)
        self.cleanup = OAuthCleanup(database)
        self.callers = TokenCallers(authentication, control, secrets, clock)

    @cached_property
    def server(self) -> "OAuthServer":
        """The token and revocation endpoints.

        Created on first use and off the event loop: importing Authlib takes 100 ms, and requests with API keys do not
        need it.
        """
        return compute(self._create_server)

    def _create_server(self) -> "OAuthServer":
        created: OAuthServer = server.OAuthServer(
            self.clients.find_for_token_request, self.grants, self._authentication
        )
        return created
