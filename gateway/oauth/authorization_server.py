"""All of the authorization server that a worker has."""

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
    """Applications that people let act for them (`clients`), what they were allowed (`grants`), who calls with it
    (`callers`), and what goes when it is over (`cleanup`)."""

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
        """What answers requests for tokens; made on first use, since its library serves nobody who has an API key. Its
        reading takes some 100 ms, beside the loop."""
        find = self.clients.find_asking
        made: OAuthServer = compute(lambda: server.OAuthServer(find, self.grants, self._authentication))
        return made
