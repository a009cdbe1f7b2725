"""Warnings about budgets and credits near their end: fired once by the leading worker, shown by all workers."""

from collections import Counter
from collections.abc import Sequence
from datetime import date, timedelta
from operator import attrgetter

import orjson

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Model
from gateway.clock import Clock
from gateway.configuration.settings import MANAGE
from gateway.errors import GatewayError
from gateway.limits.budgets import NEARLY, SpentBudget, find_spent
from gateway.limits.models import CREDITS, LIMIT
from gateway.money import NANO, format_usd, round_usd
from gateway.routing.provider_health import Health
from gateway.runtime.plurals import many
from gateway.runtime.state_changes import INFO, StateChange, StateLog
from gateway.store.database import Database
from gateway.store.documents import Documents

# Warnings about models in use that will soon be retired.

RETIREMENT_REMEDY = "move its callers to another model: GET /v1/models tells what replaces it"


class ModelWatch:
    """Watches the end of models. `scan` runs only in the leading worker, which knows what all workers served."""

    def __init__(self, states: StateLog, clock: Clock, days: int) -> None:
        self._states = states
        self._clock = clock
        self._days = days

    def scan(self, health: Health, catalogue: Catalogue) -> None:
        """Fire a state change once for each mapping in use that ends soon."""
        today = self._clock.now().date()
        used = {key for key in health.windows if "#" not in key}
        for model in catalogue.models.values():
            for mapping in model.mappings:
                end = _read_day(mapping.deactivated)
                if mapping.key in used and end is not None and today <= end <= today + timedelta(days=self._days):
                    successor = catalogue.successor(model, today.isoformat())
                    self._states.fire(_change_of(mapping.key, end, (end - today).days, successor))


def _change_of(key: str, end: date, days: int, successor: Model | None) -> StateChange:
    facts: dict[str, object] = {"model": key, "ends": end.isoformat(), "days": days}
    message = f"{key} ends on {end}, in {many(days, 'day')}"
    if successor is not None:
        facts["successor"] = successor.id
        message = f"{message}; its successor is {successor.id}"
    return StateChange("model.retiring", f"model {key}", message, remedy=RETIREMENT_REMEDY, facts=facts)


def _read_day(text: str) -> date | None:
    try:
        if text:
            return date.fromisoformat(text[:10])
        return None
    except ValueError:
        return None


KIND = "gauge"
KEY = "budgets"
TTL_S = 600.0
RAISE = f"raise it with {MANAGE} limits set; callers are refused (402) once it is spent"
RAISE_LIMIT = f"raise it for a time with {MANAGE} limits raise, or set another amount with {MANAGE} limits put"
FUND = f"add credits with {MANAGE} credits grant, or let it be unlimited with {MANAGE} credits unlimited"
Samples = dict[tuple[str, ...], float]


class BudgetWatch:
    """Finds such budgets. `scan` runs only in the leading worker and stores its result for the other workers."""

    def __init__(
        self,
        database: Database,
        documents: Documents,
        states: StateLog,
        credits_low_nusd: int,
        thresholds: Sequence[int] = NEARLY,
    ) -> None:
        self._database = database
        self._documents = documents
        self._states = states
        self._low_nusd = credits_low_nusd
        self._thresholds = thresholds
        self._known: dict[str, SpentBudget] = {}

    def scan(self) -> None:
        """Find budgets that are nearly spent, and fire state changes for each threshold that they newly reached.
        Unavailable when the store is down."""
        spent = find_spent(self._database, self._low_nusd, self._thresholds)
        budgets = _by_subject(spent)
        self._continue_scans()
        for subject, budget in budgets.items():
            known = self._known.get(subject)
            if known is None or known.reached <= budget.reached:
                self._states.fire(change_of(subject, budget))
        for subject in self._known.keys() - budgets.keys():
            self._states.resolve(_recovered(subject, self._known[subject]))
        self._known = budgets
        self._documents.put(KIND, KEY, orjson.dumps([tuple(budget) for budget in budgets.values()]), TTL_S)

    def _continue_scans(self) -> None:
        """Take over what the leading worker found last, so that another leader does not report it again."""
        stored = self._documents.get(KIND, KEY)
        found = _by_subject(_decode(stored)) if stored else {}
        if found != self._known:
            for subject, budget in found.items():
                self._states.adopt(change_of(subject, budget))
            self._known = found

    def shown(self) -> list[SpentBudget]:
        """Return the latest result of any worker, [] when the store is down."""
        try:
            stored = self._documents.get(KIND, KEY)
        except GatewayError:
            return []
        return _decode(stored) if stored else []


def _decode(stored: bytes) -> list[SpentBudget]:
    return [SpentBudget(*row) for row in orjson.loads(stored)]


def _by_subject(budgets: Sequence[SpentBudget]) -> dict[str, SpentBudget]:
    return {f"{budget.scope} {budget.scope_id} {budget.kind}": budget for budget in budgets}


def counts_of(budgets: list[SpentBudget]) -> Samples:
    """Return the number of budgets by scope and by whether they are completely spent: a bounded number of samples."""
    counted = Counter((budget.scope, "spent" if budget.wholly else "nearly") for budget in budgets)
    return {labels: float(count) for labels, count in counted.items()}


def balances_of(budgets: list[SpentBudget], maximum: int = 100) -> Samples:
    """Return the remaining credits in dollars by organization, for those with the least."""
    credits = sorted((budget for budget in budgets if budget.kind == CREDITS), key=attrgetter("left_nusd"))
    return {(budget.organization,): budget.left_nusd / NANO for budget in credits[:maximum]}


def change_of(subject: str, budget: SpentBudget) -> StateChange:
    """Return the state change of a budget that is nearly or completely spent."""
    facts: dict[str, object] = {
        "scope": budget.scope,
        "id": budget.scope_id,
        "organization": budget.organization,
        "left_usd": format_usd(budget.left_nusd),
        "limit_usd": format_usd(budget.limit_nusd),
    }
    if budget.reached:
        facts["threshold_percent"] = budget.reached
    if budget.resets_at:
        facts["resets_at"] = budget.resets_at
    if budget.kind == CREDITS:
        event = "credits.spent" if budget.wholly else "credits.low"
        state = "has no credits left" if budget.wholly else f"has {round_usd(budget.left_nusd)} of credits left"
        return StateChange(event, subject, f"organization {budget.scope_id} {state}", remedy=FUND, facts=facts)
    event = "budget.spent" if budget.wholly else "budget.nearly_spent"
    period = "period " if budget.resets_at else ""
    state = f"{budget.percent} % of its {period}limit of {round_usd(budget.limit_nusd)}"
    stage = str(budget.reached)
    if budget.scope == LIMIT:
        facts["limit"] = budget.name
        message = f"limit {budget.name} of organization {budget.organization} spent {state}"
        return StateChange(event, subject, message, remedy=RAISE_LIMIT, facts=facts, stage=stage)
    message = f"{budget.scope} {budget.scope_id} spent {state}"
    return StateChange(event, subject, message, remedy=RAISE, facts=facts, stage=stage)


def _recovered(subject: str, budget: SpentBudget) -> StateChange:
    facts: dict[str, object] = {"scope": budget.scope, "id": budget.scope_id, "organization": budget.organization}
    event = "credits.back" if budget.kind == CREDITS else "budget.back"
    return StateChange(event, subject, f"{budget.scope} {budget.scope_id} has room again", INFO, facts=facts)
