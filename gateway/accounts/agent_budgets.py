"""Budgets of each session and each run, set for a key or a project."""

from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.models import SessionBudget
from gateway.control.version import Control
from gateway.errors import InvalidRequest
from gateway.limits.owned_rows import PER_SESSION, BudgetTerms, OwnedTerms, keep_terms, name_owned, read_terms
from gateway.store.database import Database


class AgentBudgets(NamedTuple):
    """The most that a session and a run may cost, in nano-dollars; None: no limit."""

    session_nusd: int | None = None
    run_nusd: int | None = None


def find_agent_budgets(database: Database, scope_id: str) -> AgentBudgets:
    """Return the budgets that a key or project sets."""
    return database.read(partial(read_agent_budgets, database, scope_id))


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
        before = read_agent_budgets(database, scope_id)
        check(before._asdict())
        limits = before._replace(**changes)
        write_agent_budgets(database, scope_id, limits)
        audit.append(action, scope_id, actor=actor, at_us=now, organization_id=organization_id, detail=limits._asdict())
        return limits

    return commit(database, control, work)


def write_agent_budgets(database: Database, scope_id: str, limits: AgentBudgets) -> None:
    """Replace the budgets of a key or project; inside a transaction. Another amount ends the raise of a limit."""
    in_force = _find_in_force(scope_id)
    amounts: dict[str, int | None] = {}
    for part, column in PER_SESSION.items():
        amount = getattr(limits, column)
        known = getattr(in_force, column)
        name = name_owned(scope_id, part)
        if amount is None:
            amounts[column] = None
            keep_terms(database, name, None, BudgetTerms())
            continue
        terms = OwnedTerms(amount)
        if known is not None:
            before = read_terms(database, name, known)
            raised = (before.raise_nusd, before.raise_until_us) if before.amount_nusd == amount else (0, None)
            terms = OwnedTerms(amount, *raised, before.actions)
        amounts[column] = terms.limit_nusd
        keep_terms(database, name, terms, BudgetTerms())
    SessionBudget.delete().where(SessionBudget.scope_id == scope_id).execute()
    if limits != AgentBudgets():
        SessionBudget.insert(scope_id=scope_id, **amounts).execute()


def read_agent_budgets(database: Database, scope_id: str) -> AgentBudgets:
    """Return the set budgets, without raises. Inside a read."""
    in_force = _find_in_force(scope_id)
    amounts = {}
    for part, column in PER_SESSION.items():
        nusd = getattr(in_force, column)
        if nusd is not None:
            nusd = read_terms(database, name_owned(scope_id, part), nusd).amount_nusd
        amounts[column] = nusd
    return AgentBudgets(**amounts)


def _find_in_force(scope_id: str) -> AgentBudgets:
    row = SessionBudget.get_or_none(SessionBudget.scope_id == scope_id)
    if row is None:
        return AgentBudgets()
    return AgentBudgets(row.session_nusd, row.run_nusd)
