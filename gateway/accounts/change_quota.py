"""How many changes an organization may make in a day: each adds an entry to the audit log, and many add rows."""

from gateway.accounts.members import MemberInfo
from gateway.callers.throttle import Throttle, ThrottleGate

DAY_S = 86_400
CODE = "too_many_changes"
# One member fills a quarter of it, developers together three: who has to undo what they did still can.
MEMBER_PART = 4
DEVELOPERS_PART = (3, 4)
ADVICE = (
    "as many as there may be here: go on when the day is over, or ask the operator of this installation to raise "
    "limits.max_changes. What is there can be deleted."
)


class ChangePace:
    """Changes of members over the management API, by day from the first one on; `maximum` in an organization, 0 = no
    cap. A change that only deletes is not counted, because the creation was."""

    def __init__(self, throttle: Throttle, maximum: int) -> None:
        self._throttle = throttle
        self._maximum = maximum

    def take(self, member: MemberInfo) -> None:
        """Count one change. RateLimited (code too_many_changes, with the seconds to wait)."""
        if not self._maximum:
            return
        if member.role not in ("owner", "admin"):
            part, whole = DEVELOPERS_PART
        else:
            part, whole = (1, 1)
        self._throttle.take(
            self._gate("a member", member.user_id, self._maximum // MEMBER_PART, "You have"),
            self._gate(
                "an organization", member.organization_id, self._maximum * part // whole, "Your organization has"
            ),
        )

    @staticmethod
    def _gate(owner: str, subject: str, maximum: int, subject_text: str) -> ThrottleGate:
        maximum = max(1, maximum)
        refusal = f"{subject_text} made {maximum:,} changes within a day, {ADVICE}"
        return ThrottleGate(f"changes of {owner}", subject, maximum, DAY_S, refusal, CODE)
