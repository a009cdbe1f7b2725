"""The authorization server's objects of a worker."""

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any

from gateway.callers.authentication import Authentication, TokenCallers
from gateway.callers.models import ApiKey, OAuthClient, OAuthCode, OAuthGrant, OAuthToken
from gateway.callers.throttle import Throttle
from gateway.clock import SECOND_US, Clock
from gateway.control.version import Control
from gateway.oauth import grants
from gateway.oauth.clients import ClientDocuments, Clients, DocumentFetcher
from gateway.oauth.grants import Grants
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import compute, pause
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.store.installation_identity import Secrets

if TYPE_CHECKING:
    from gateway.oauth.token_endpoint import OAuthServer


# Deletes expired grants, codes and tokens and unused applications of the authorization server.
#
# Works in small transactions. Several workers may run it at the same time, and a repeated run is harmless.

STEP_ROWS = 200
ROUND_STEPS = 400
PAUSE_S = 0.02
UNUSED_LIFETIME_S = 86_400  # lifetime of a registration without a first consent
IDLE_LIFETIME_S = 90 * 86_400  # lifetime of a registration after the last use of its last grant
# Used codes are kept for a day after expiry: a second use shows that the code was stolen.
USED_CODE_RETENTION_S = 86_400


class OAuthCleanup:
    """Cleanup job of a worker. Methods return the number of deleted rows. Raises Unavailable."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def forget(self, should_continue: ShouldContinue = always) -> int:
        """Delete everything that has expired."""
        steps = (self._grants, self._ended_grants, self._codes, self._tokens, self._clients)
        return sum(self._repeat(step, should_continue) for step in steps)

    def _grants(self, now: int) -> int:
        expired = OAuthGrant.select(OAuthGrant.id).where(OAuthGrant.expires_at <= now).limit(STEP_ROWS)
        return grants.delete_grants([row.id for row in expired])

    def _ended_grants(self, now: int) -> int:
        """Delete grants of keys that were rolled, deactivated or deleted."""
        ended = (
            OAuthGrant.select(OAuthGrant.id)
            .join(ApiKey)
            .where(OAuthGrant.generation != ApiKey.generation)
            .limit(STEP_ROWS)
        )
        return grants.delete_grants([row.id for row in ended])

    def _codes(self, now: int) -> int:
        return _delete(OAuthCode, OAuthCode.expires_at <= now - USED_CODE_RETENTION_S * SECOND_US)

    def _tokens(self, now: int) -> int:
        return _delete(OAuthToken, OAuthToken.expires_at <= now)

    def _clients(self, now: int) -> int:
        held = OAuthGrant.select(OAuthGrant.client)
        unused = (OAuthClient.used_at == 0) & (OAuthClient.created_at <= now - UNUSED_LIFETIME_S * SECOND_US)
        idle = (OAuthClient.used_at > 0) & (OAuthClient.used_at <= now - IDLE_LIFETIME_S * SECOND_US)
        return _delete(OAuthClient, (unused | idle) & OAuthClient.id.not_in(held))

    def _repeat(self, step: Callable[[int], int], should_continue: ShouldContinue) -> int:
        def delete() -> int:
            return step(self._database.now_us())

        total = 0
        for _ in range(ROUND_STEPS):
            if not should_continue():
                break
            count = self._database.write(delete)
            total += count
            if count < STEP_ROWS:
                break
            pause(PAUSE_S)
        return total


def _delete(table: Any, expired: Any) -> int:
    row_ids = [row.id for row in table.select(table.id).where(expired).limit(STEP_ROWS)]
    if row_ids:
        deleted: int = table.delete().where(table.id.in_(row_ids)).execute()
        return deleted
    return 0


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
