"""Warnings about budgets and credits near their end: fired once by the leading worker, shown by every worker."""

from collections import Counter
from collections.abc import Sequence

import orjson

from gateway.configuration.settings import MANAGE
from gateway.errors import GatewayError
from gateway.limits.models import CREDITS
from gateway.limits.thresholds import NEARLY, SpentBudget, find_spent
from gateway.money import NANO, format_usd
from gateway.runtime.state_changes import INFO, StateChange, StateLog
from gateway.store.database import Database
from gateway.store.documents import Documents

KIND = "gauge"
KEY = "budgets"
TTL_S = 600.0
RAISE = f"raise it with {MANAGE} limits set; callers are refused (402) once it is spent"
FUND = f"add credits with {MANAGE} credits grant, or let it be unlimited with {MANAGE} credits unlimited"
Samples = dict[tuple[str, ...], float]


class BudgetWatch:
    """`look` runs in the leading worker only; its findings are a document, so that any worker can show them."""

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

    def look(self) -> None:
        """Find budgets that are nearly spent, and fire state changes for each threshold that they newly reached.
        Unavailable when the store is away."""
        spent = find_spent(self._database, self._low_nusd, self._thresholds)
        found = {f"{one.scope} {one.scope_id} {one.kind}": one for one in spent}
        for subject, one in found.items():
            known = self._known.get(subject)
            if known is None or known.reached <= one.reached:
                self._states.fire(change_of(subject, one))
        for subject in self._known.keys() - found.keys():
            self._states.resolve(_mended(subject, self._known[subject]))
        self._known = found
        self._documents.put(KIND, KEY, orjson.dumps([tuple(one) for one in found.values()]), TTL_S)

    def shown(self) -> list[SpentBudget]:
        """The latest findings, by whichever worker; [] when the store is away."""
        try:
            stored = self._documents.get(KIND, KEY)
        except GatewayError:
            return []
        if stored:
            return [SpentBudget(*row) for row in orjson.loads(stored)]
        return []


def counts_of(found: list[SpentBudget]) -> Samples:
    """How many by scope and by whether they are completely spent: a bounded number of samples."""
    counted = Counter((one.scope, "spent" if one.wholly else "nearly") for one in found)
    return {labels: float(count) for labels, count in counted.items()}


def balances_of(found: list[SpentBudget], most: int = 100) -> Samples:
    """Remaining credits in dollars by organization, for those with the least."""
    low = sorted((one for one in found if one.kind == CREDITS), key=lambda one: one.left_nusd)[:most]
    return {(one.organization,): one.left_nusd / NANO for one in low}


def change_of(subject: str, one: SpentBudget) -> StateChange:
    """The state change of a budget that is nearly or completely spent."""
    left = format_usd(one.left_nusd)
    limit = format_usd(one.limit_nusd)
    facts: dict[str, object] = {
        "scope": one.scope,
        "id": one.scope_id,
        "organization": one.organization,
        "left_usd": left,
        "limit_usd": limit,
    }
    facts |= {"threshold_percent": one.reached} if one.reached else {}
    facts |= {"resets_at": one.resets_at} if one.resets_at else {}
    if one.kind == CREDITS:
        if one.wholly:
            event = "credits.spent"
        else:
            event = "credits.low"
        if one.wholly:
            state = "has no credits left"
        else:
            state = f"has {left} USD of credits left"
        return StateChange(event, subject, f"organization {one.scope_id} {state}", remedy=FUND, facts=facts)
    if one.wholly:
        event = "budget.spent"
    else:
        event = "budget.nearly_spent"
    state = f"{one.percent} % of its {'period ' if one.resets_at else ''}limit of {limit} USD"
    message = f"{one.scope} {one.scope_id} spent {state}"
    stage = str(one.reached)
    return StateChange(event, subject, message, remedy=RAISE, facts=facts, stage=stage)


def _mended(subject: str, one: SpentBudget) -> StateChange:
    facts: dict[str, object] = {"scope": one.scope, "id": one.scope_id, "organization": one.organization}
    if one.kind == CREDITS:
        event = "credits.back"
    else:
        event = "budget.back"
    return StateChange(event, subject, f"{one.scope} {one.scope_id} has room again", INFO, facts=facts)
