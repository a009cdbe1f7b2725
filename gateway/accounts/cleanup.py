"""Deletes expired sessions, device codes and invitations, and the oldest entries of the audit log.

Each in small steps with pauses, so that no other writer waits long; safe to repeat, and for several workers at once.
"""

from collections.abc import Callable
from functools import partial

from gateway.accounts import audit
from gateway.callers.models import DeviceCode, GuardrailFinding, Invitation, Session
from gateway.clock import DAY_US
from gateway.configuration.settings import RetentionSettings
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.runtime.threads import pause
from gateway.store.database import Database

STEP_ROWS = 500
# Steps of a run; the next run continues.
ROUND_STEPS = 400
PAUSE_S = 0.02
ACTOR = "gateway"
FINDING_DAYS = 90  # how long findings of guardrails are kept

Ending = type[Session] | type[DeviceCode] | type[Invitation]
# Deletes at most STEP_ROWS rows within a transaction and returns their number.
Step = Callable[[], int]


class AccountCleanup:
    """Cleanup jobs of a worker. Methods return the number of deleted rows and raise Unavailable."""

    def __init__(self, database: Database, settings: RetentionSettings) -> None:
        self._database = database
        self._audit_days = settings.audit_days
        self._invitation_days = settings.invitation_days

    def forget_sessions(self, should_continue: ShouldContinue = always) -> int:
        """Delete expired sessions."""
        return self._repeat(partial(self._delete, Session, 0), should_continue)

    def forget_devices(self, should_continue: ShouldContinue = always) -> int:
        """Delete expired device codes."""
        return self._repeat(partial(self._delete, DeviceCode, 0), should_continue)

    def forget_invitations(self, should_continue: ShouldContinue = always) -> int:
        """Delete ended invitations after the configured number of days."""
        if not self._invitation_days:
            return 0
        return self._repeat(partial(self._delete, Invitation, self._invitation_days * DAY_US), should_continue)

    def forget_findings(self, should_continue: ShouldContinue = always) -> int:
        """Delete old findings of guardrails."""
        return self._repeat(self._delete_findings, should_continue)

    def shorten_audit(self, should_continue: ShouldContinue = always) -> int:
        """Delete the oldest entries of the audit log and record the deletion. The remaining chain stays verifiable."""
        if not self._audit_days:
            return 0
        oldest = self._database.now_us() - self._audit_days * DAY_US
        deleted = self._repeat(partial(audit.shorten, oldest, STEP_ROWS), should_continue)
        if deleted:
            self._database.write(partial(self._record, oldest, deleted))
        return deleted

    def _record(self, oldest: int, deleted: int) -> None:
        detail = {"entries": deleted, "days": self._audit_days}
        audit.append("audit.shorten", f"before {oldest}", actor=ACTOR, at_us=self._database.now_us(), detail=detail)

    def _delete(self, table: Ending, retention_us: int) -> int:
        over = table.expires_at <= self._database.now_us() - retention_us
        rows = [row.id for row in table.select(table.id).where(over).limit(STEP_ROWS)]
        if rows:
            deleted: int = table.delete().where(table.id.in_(rows)).execute()
            return deleted
        return 0

    def _delete_findings(self) -> int:
        finding = GuardrailFinding
        over = finding.at <= self._database.now_us() - FINDING_DAYS * DAY_US
        query = finding.select(finding.request_id).where(over).order_by(finding.at).limit(STEP_ROWS)
        rows = [row.request_id for row in query]
        if rows:
            finding.delete().where(finding.request_id.in_(rows), over).execute()
        return len(rows)

    def _repeat(self, step: Step, should_continue: ShouldContinue) -> int:
        deleted = 0
        for _ in range(ROUND_STEPS):
            count = self._database.write(step) if should_continue() else 0
            deleted += count
            if count < STEP_ROWS:
                break
            pause(PAUSE_S)
        return deleted
