"""Deletes expired grants, codes and tokens and unused applications of the authorization server.

Works in small transactions. Several workers may run it at the same time, and a repeated run is harmless.
"""

from collections.abc import Callable
from typing import Any

from gateway.accounts.models import ApiKey
from gateway.clock import SECOND_US
from gateway.oauth import grant_rows
from gateway.oauth.models import OAuthClient, OAuthCode, OAuthGrant, OAuthToken
from gateway.runtime.stepwise import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database

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
        return grant_rows.delete_grants([row.id for row in expired])

    def _ended_grants(self, now: int) -> int:
        """Delete grants of keys that were rolled, deactivated or deleted."""
        ended = (
            OAuthGrant.select(OAuthGrant.id)
            .join(ApiKey)
            .where(OAuthGrant.generation != ApiKey.generation)
            .limit(STEP_ROWS)
        )
        return grant_rows.delete_grants([row.id for row in ended])

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
        return table.delete().where(table.id.in_(row_ids)).execute()
    return 0
