"""`/keys/api/…/session-budget` and `/projects/…/session-budget`: the most that a session or run of agents may cost."""

from typing import Any

from gateway.accounts.agent_budgets import AgentBudgets, find_agent_budgets, set_agent_budgets
from gateway.accounts.keys import KeyInfo
from gateway.accounts.projects import ProjectInfo
from gateway.admin.held_limits import AmountHold
from gateway.surfaces.management.access_groups import in_project, of_key
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import StrictBody
from gateway.surfaces.visitors.validation_schemas import Usd as Amount
from gateway.surfaces.web.answer_structs import Answer, Usd
from gateway.surfaces.web.http import Operation

TAG = "Session budgets"
FIELDS = {"sessionBudget": "session_nusd", "runBudget": "run_nusd"}


class SessionBudgetChange(StrictBody):
    """Absent members stay unchanged, null removes a budget."""

    sessionBudget = Amount(allow_none=True, about="US dollars that each session may cost, or none.")
    runBudget = Amount(allow_none=True, about="US dollars that each run may cost, or none.")


class SessionBudgetAnswer(Answer):
    """The most that each session and run may cost; null: no budget."""

    columns = ("id", "session_budget", "run_budget")
    id: str
    session_budget: Usd | None = None
    run_budget: Usd | None = None


def find(call: ManagedCall[Any]) -> SessionBudgetAnswer:
    """The budgets that this key or project sets. A request has the lowest of its key, its project and its header."""
    return _show(call.subject.id, find_agent_budgets(call.database, call.subject.id))


def change_key(call: ManagedCall[KeyInfo]) -> SessionBudgetAnswer:
    """Set what each session and run with this key may cost. Earlier spending of a session counts too."""
    is_manager = call.visitor.manages("keys:restrict", call.subject.organization_id)
    return _change(call, "api_key.update_session_budget", is_manager)


def change_project(call: ManagedCall[ProjectInfo]) -> SessionBudgetAnswer:
    """Set what each session and run in this project may cost. Earlier spending of a session counts too."""
    is_manager = call.visitor.manages("projects:budget", call.subject.organization_id)
    return _change(call, "project.update_session_budget", is_manager)


def _change(
    call: ManagedCall[KeyInfo] | ManagedCall[ProjectInfo], action: str, is_manager: bool
) -> SessionBudgetAnswer:
    subject = call.subject
    changes = {column: call.fields[name] for name, column in FIELDS.items() if name in call.fields}
    hold = AmountHold(call.database, subject.organization_id, action, call.actor, is_manager)
    limits = set_agent_budgets(
        *call.stores,
        subject.id,
        subject.organization_id,
        changes,
        action=action,
        actor=call.actor,
        check=lambda before: hold.check(subject.id, before, changes),
    )
    return _show(subject.id, limits)


def _show(ident: str, limits: AgentBudgets) -> SessionBudgetAnswer:
    return SessionBudgetAnswer.of(id=ident, session_budget=limits.session_nusd, run_budget=limits.run_nusd)


KEY = "/keys/api/<key_id>/session-budget"
PROJECT = "/projects/<project_id>/session-budget"


def _commands(subject: str) -> tuple[str, ...]:
    """Return the commands; the prefix of the id decides between key and project."""
    cleared = " ".join(f"{name}=null" for name in FIELDS)
    return (
        f"session-budgets set <{subject}> --session=sessionBudget --run=runBudget",
        f"session-budgets clear <{subject}> {cleared}",
    )


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", KEY, find, "Show the budgets of sessions of an API key", tag=TAG,
            who=of_key("keys:read"), scope="keys:read",
            inside="sessionBudget", commands=("session-budgets show <key_id>",)),
    managed("PATCH", KEY, change_key, "Set the budgets of sessions of an API key", tag=TAG,
            who=of_key("keys:restrict"), scope="keys:write",
            request=SessionBudgetChange, inside="sessionBudget",
            audit="api_key.update_session_budget", commands=_commands("key_id")),
    managed("GET", PROJECT, find, "Show the budgets of sessions of a project", tag=TAG,
            who=in_project("projects:read"), scope="projects:read",
            inside="sessionBudget", commands=("session-budgets show <project_id>",)),
    managed("PATCH", PROJECT, change_project, "Set the budgets of sessions of a project", tag=TAG,
            who=in_project("projects:budget"), scope="projects:write", request=SessionBudgetChange,
            inside="sessionBudget",
            audit="project.update_session_budget", commands=_commands("project_id")),
)  # fmt: skip
