"""Rate limits that accounts set for their own projects and keys, below the operator's."""

from collections.abc import Mapping

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.control.version import Control
from gateway.limits.rate_rules import RateLimits
from gateway.store.database import Database

ACTION = "rate_limit.update"


def change(
    database: Database,
    control: Control,
    limits: RateLimits,
    place: tuple[str, str],
    organization_id: str,
    amounts: Mapping[str, int | None],
    *,
    actor: str,
) -> None:
    """Set or remove (None) limits of a place ("project" or "key", and its id) by kind. They are in force on every
    worker on return. Raises InvalidRequest (rate_limit_above_operators) and then changes none."""
    scope, subject = place

    def work(now: int) -> None:
        for kind, amount in amounts.items():
            limits.write_own(scope, subject, kind, amount)
        detail = {"scope": scope, "own": True, **amounts}
        audit.append(ACTION, subject, actor=actor, at_us=now, organization_id=organization_id, detail=detail)

    commit(database, control, work)
