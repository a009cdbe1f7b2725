"""What is over of the authorization server goes: grants whose tokens can be refreshed no more, codes and tokens past
their time, applications that nobody uses. In small steps, safe to repeat, and for several workers at once."""

from collections.abc import Callable
from typing import Any

from gateway.accounts.models import ApiKey
from gateway.clock import SECOND_US
from gateway.oauth import grant_rows
from gateway.oauth.models import OAuthClient, OAuthCode, OAuthGrant, OAuthToken
from gateway.runtime.threads import pause
from gateway.store.database import Database

STEP_ROWS = 200
ROUND_STEPS = 400
PAUSE_S = 0.02
UNUSED_S = 86_400  # how long a registration waits for its first consent
IDLE_S = 90 * 86_400  # and is kept after the last use of its last grant
# A used code shows that it was stolen when it comes again: for so long after its time.
CODE_KEPT_S = 86_400

GoOn = Callable[[], bool]


class OAuthCleanup:
    """One for a worker; the methods give the number of rows that went. Unavailable: the next round does it."""

    def __init__(self, database: Database) -> None:
        self._database = database

    def forget(self, go_on: GoOn = lambda: True) -> int:
        """Everything that is over."""
        steps = (self._grants, self._ended_grants, self._codes, self._tokens, self._clients)
        return sum(self._repeat(step, go_on) for step in steps)

    def _grants(self, now: int) -> int:
        over = OAuthGrant.select(OAuthGrant.id).where(OAuthGrant.expires_at <= now).limit(STEP_ROWS)
        return grant_rows.delete_grants([row.id for row in over])

    def _ended_grants(self, now: int) -> int:
        """Those whose key was rolled, switched off or deleted: nobody can use them again."""
        ended = (
            OAuthGrant.select(OAuthGrant.id)
            .join(ApiKey)
            .where(OAuthGrant.generation != ApiKey.generation)
            .limit(STEP_ROWS)
        )
        return grant_rows.delete_grants([row.id for row in ended])

    def _codes(self, now: int) -> int:
        return _delete(OAuthCode, OAuthCode.expires_at <= now - CODE_KEPT_S * SECOND_US)

    def _tokens(self, now: int) -> int:
        return _delete(OAuthToken, OAuthToken.expires_at <= now)

    def _clients(self, now: int) -> int:
        held = OAuthGrant.select(OAuthGrant.client)
        unused = (OAuthClient.used_at == 0) & (OAuthClient.created_at <= now - UNUSED_S * SECOND_US)
        idle = (OAuthClient.used_at > 0) & (OAuthClient.used_at <= now - IDLE_S * SECOND_US)
        return _delete(OAuthClient, (unused | idle) & OAuthClient.id.not_in(held))

    def _repeat(self, step: Callable[[int], int], go_on: GoOn) -> int:
        gone = 0
        for _ in range(ROUND_STEPS):
            if go_on():
                count = self._database.write(lambda: step(self._database.now_us()))
            else:
                count = 0
            gone += count
            if count < STEP_ROWS:
                break
            pause(PAUSE_S)
        return gone


def _delete(table: Any, over: Any) -> int:
    found = [row.id for row in table.select(table.id).where(over).limit(STEP_ROWS)]
    if found:
        return table.delete().where(table.id.in_(found)).execute()
    return 0
