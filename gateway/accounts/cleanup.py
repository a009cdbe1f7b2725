"""What is over in the accounts goes: sessions, device codes, invitations, and the oldest of the audit log.

Each in small steps with pauses, so that no other writer waits long; safe to repeat, and for several workers at once.
"""

from collections.abc import Callable

from gateway.accounts import audit
from gateway.accounts.models import DeviceCode, Invitation, Session
from gateway.clock import DAY_US
from gateway.configuration.settings import RetentionSettings
from gateway.runtime.threads import pause
from gateway.store.database import Database

STEP_ROWS = 500
# A round ends after so many steps; the next one goes on.
ROUND_STEPS = 400
PAUSE_S = 0.02
ACTOR = "gateway"

GoOn = Callable[[], bool]
Ending = type[Session] | type[DeviceCode] | type[Invitation]
# Deletes at most STEP_ROWS within a transaction; how many.
Step = Callable[[], int]


class AccountCleanup:
    """One for a worker. Every method gives the number of rows that went; Unavailable: the next round does it."""

    def __init__(self, database: Database, settings: RetentionSettings) -> None:
        self._database = database
        self._audit_days = settings.audit_days
        self._invitation_days = settings.invitation_days

    def forget_sessions(self, go_on: GoOn = lambda: True) -> int:
        """Sessions that are over."""
        return self._repeat(lambda: self._delete(Session, 0), go_on)

    def forget_devices(self, go_on: GoOn = lambda: True) -> int:
        """Device codes that nobody approved or collected in time."""
        return self._repeat(lambda: self._delete(DeviceCode, 0), go_on)

    def forget_invitations(self, go_on: GoOn = lambda: True) -> int:
        """Invitations that were over, used or revoked for as long as the settings say."""
        if not self._invitation_days:
            return 0
        return self._repeat(lambda: self._delete(Invitation, self._invitation_days * DAY_US), go_on)

    def shorten_audit(self, go_on: GoOn = lambda: True) -> int:
        """The oldest entries of the audit log; that they went is an entry. What is left is a chain as before."""
        if not self._audit_days:
            return 0
        oldest = self._database.now_us() - self._audit_days * DAY_US
        gone = self._repeat(lambda: audit.shorten(oldest, STEP_ROWS), go_on)
        if gone:
            self._database.write(lambda: self._record(oldest, gone))
        return gone

    def _record(self, oldest: int, gone: int) -> None:
        detail = {"entries": gone, "days": self._audit_days}
        audit.append("audit.shorten", f"before {oldest}", actor=ACTOR, at_us=self._database.now_us(), detail=detail)

    def _delete(self, table: Ending, retention_us: int) -> int:
        over = table.expires_at <= self._database.now_us() - retention_us
        rows = [row.id for row in table.select(table.id).where(over).limit(STEP_ROWS)]
        if rows:
            return table.delete().where(table.id.in_(rows)).execute()
        return 0

    def _repeat(self, step: Step, go_on: GoOn) -> int:
        gone = 0
        for _ in range(ROUND_STEPS):
            if go_on():
                count = self._database.write(step)
            else:
                count = 0
            gone += count
            if count < STEP_ROWS:
                break
            pause(PAUSE_S)
        return gone
