"""Budgets of sessions and runs: the lowest of key, project and header, counted for each of them in a project."""

from functools import partial
from hashlib import blake2b

from gateway.billing.context import RequestContext
from gateway.clock import DAY_US
from gateway.errors import InvalidRequest
from gateway.limits.cost_bound import Payer
from gateway.limits.leases import lock_budgets
from gateway.limits.models import RUN, SESSION, group_of
from gateway.metering.usage_table import raw_id
from gateway.runtime.loop_turns import ShouldContinue, always
from gateway.store.database import Database

# The headers that set a budget for one request, in US dollars.
SESSION_BUDGET = "x-llmgateway-session-budget"
RUN_BUDGET = "x-llmgateway-run-budget"
RUN_TAG = "run"  # the metadata that names a run: X-LLMGateway-Run
RETENTION_DAYS = 30
BATCH_SIZE = 200
OLD = "SELECT id FROM budget WHERE begun_at < ? AND leased_nusd = 0 ORDER BY begun_at LIMIT ?"
LEASED = "SELECT 1 FROM lease WHERE budget = ? LIMIT 1"


def with_sessions(payer: Payer, context: RequestContext) -> Payer:
    """Return the payer with the budgets of the request's session and run. InvalidRequest when a header sets a budget
    for a session or run that the request does not name."""
    caller = context.caller
    limits = []
    for scope, name, limit, header in (
        (SESSION, context.session, caller.session_nusd, context.options.session_nusd),
        (RUN, context.metadata.get(RUN_TAG, ""), caller.run_nusd, context.options.run_nusd),
    ):
        lowest = min((amount for amount in (limit, header) if amount is not None), default=None)
        if lowest is None:
            continue
        if name:
            limits.append((scope, budget_of(scope, caller.project_id, name), lowest))
        elif header is not None:
            raise InvalidRequest(
                f"The header X-LLMGateway-{scope.title()}-Budget limits a {scope} that the request does not name: "
                f"send the header X-LLMGateway-{scope.title()} too.",
                code="session_required",
            )
    if limits:
        return payer._replace(sessions=tuple(limits))
    return payer


def budget_of(scope: str, project_id: str, name: str) -> str:
    """Return the id of the budget of a project's session or run, which is also its id in usage rows of groups."""
    text = f"{scope}\0{project_id}\0{name}"
    return f"{scope}_{blake2b(text.encode(errors='replace'), digest_size=16).hexdigest()}"


def forget_old(database: Database, should_continue: ShouldContinue = always) -> int:
    """Delete budgets of sessions and runs that began more than RETENTION_DAYS ago and have no request in progress;
    return how many. A session that continues afterwards begins a new budget."""
    count = 0
    if not database.read(partial(_find_old, database)):  # usually there are none, and a write would block others
        return 0
    while should_continue():
        done = database.write(partial(_forget_some, database))
        count += done
        if done < BATCH_SIZE:
            break
    return count


def _find_old(database: Database) -> list[str]:
    before = database.now_us() - RETENTION_DAYS * DAY_US
    return [row[0] for row in database.execute(OLD, (before, BATCH_SIZE)).fetchall()]


def _forget_some(database: Database) -> int:
    rows = lock_budgets(database, _find_old(database))
    free = [budget for budget in rows if database.execute(LEASED, (budget,)).fetchone() is None]
    for budget in free:
        group = raw_id(group_of(budget))
        database.execute("DELETE FROM group_usage WHERE team = ?", (group,))
        database.execute("DELETE FROM removed_spend WHERE kind = 'team' AND owner = ?", (group.hex(),))
        database.execute("DELETE FROM budget WHERE id = ?", (budget,))
    return len(free)
