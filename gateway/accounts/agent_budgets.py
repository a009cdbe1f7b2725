"""Budgets of each session and each run, set for a key or a project."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.models import SessionBudget
from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.store.database import Database


class AgentBudgets(NamedTuple):
    """The most that a session and a run may cost, in nano-dollars; None: no limit."""

    session_nusd: int | None = None
    run_nusd: int | None = None


def find_agent_budgets(database: Database, scope_id: str) -> AgentBudgets:
    """Return the budgets that a key or project sets."""
    return database.read(partial(_find, scope_id))


def set_agent_budgets(
    database: Database,
    control: Control,
    scope_id: str,
    organization_id: str,
    changes: dict[str, Any],
    *,
    action: str,
    actor: str,
    check: Callable[[dict[str, Any]], None] = lambda before: None,
) -> AgentBudgets:
    """Change the budgets in `changes` of a key or project; in force on every worker on return. `check` gets the present
    budgets, and raises within the transaction if `actor` may not change them. InvalidRequest."""
    for name, nusd in changes.items():
        if nusd is not None and nusd < 0:
            raise InvalidRequest("A budget cannot be negative.", param=name)

    def work(now: int) -> AgentBudgets:
        before = _find(scope_id)
        check(before._asdict())
        limits = before._replace(**changes)
        SessionBudget.delete().where(SessionBudget.scope_id == scope_id).execute()
        if limits != AgentBudgets():
            SessionBudget.insert(scope_id=scope_id, **limits._asdict()).execute()
        audit.append(action, scope_id, actor=actor, at_us=now, organization_id=organization_id, detail=limits._asdict())
        return limits

    return commit(database, control, work)


def _find(scope_id: str) -> AgentBudgets:
    row = SessionBudget.get_or_none(SessionBudget.scope_id == scope_id)
    if row is None:
        return AgentBudgets()
    return AgentBudgets(row.session_nusd, row.run_nusd)
