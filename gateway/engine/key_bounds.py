"""Spending limits of organizations' own provider keys: a plan skips keys that have reached their limit."""

from collections.abc import Iterable
from typing import NamedTuple

from gateway.billing.bounds import compute_bound
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.errors import GatewayError
from gateway.limits.budgets import Budgets
from gateway.limits.cost_bound import Shortage, fit
from gateway.limits.models import PROVIDER_KEY, TOTAL, budget_id
from gateway.neutral.request import Request
from gateway.routing.candidate_filter import BUDGET, Excluded
from gateway.routing.decision import Plan
from gateway.routing.provider_health import KnownCredential
from gateway.routing.score import Scored


class SkippedKey(NamedTuple):
    """A provider key that is skipped at a mapping (by the mapping's key), and the reason."""

    mapping: str
    credential: KnownCredential
    error: GatewayError

    @property
    def reason(self) -> str:
        """The reason as the organization may see it: with the id of the key only if the key is its own."""
        if self.credential.source == OWN_SOURCE:
            return f"{self.credential.ident}: {self.error.message}"
        return self.error.message


class KeyBounds:
    """Checks the limits without reserving; the settlement reserves when a call is sent."""

    def __init__(self, budgets: Budgets, default_output: int) -> None:
        self._budgets = budgets
        self._default_output = default_output

    def keep_usable(self, plan: Plan, request: Request, at_us: int) -> Plan:
        """Return the plan without the keys that have too low a limit left for the request.

        Raises the error of the last key when no key is left. Reads nothing when no key has a limit.
        """
        bounded = {key.ident for scored in plan.order for key in scored.credentials if key.bounded}
        if not bounded:
            return plan
        states = self._budgets.statuses(bounded)
        passed = []
        for scored in plan.order:
            cost_bound = compute_bound(request, (scored.candidate.mapping,), self._default_output, at_us)
            for credential in scored.credentials:
                if not credential.bounded:
                    continue
                maximum = states[credential.ident].total_nusd
                spent = states[credential.ident].usage_nusd
                if maximum is not None and fit(cost_bound, maximum - spent) is None:
                    left = maximum - spent
                    short = Shortage(PROVIDER_KEY, TOTAL, maximum, left, cost_bound.min_nusd, unspent_nusd=left)
                    short = short._replace(limit_id=budget_id(credential.ident, TOTAL))
                    passed.append(SkippedKey(scored.key, credential, short.error()))
        if passed and not _left(plan, passed):
            raise passed[-1].error
        return leave_out(plan, passed)


def leave_out(plan: Plan, passed: Iterable[SkippedKey]) -> Plan:
    """Move the skipped keys to the plan's exclusions. A candidate without another key is removed from the order, unless
    that would leave the order empty."""
    passed = list(passed)
    candidates = {scored.key: scored.candidate for scored in plan.order}
    excluded = [Excluded(skipped.mapping, BUDGET, skipped.reason, candidates[skipped.mapping]) for skipped in passed]
    left = _left(plan, passed)
    return plan._replace(order=left or plan.order, excluded=[*plan.excluded, *excluded])


def _left(plan: Plan, passed: list[SkippedKey]) -> tuple[Scored, ...]:
    skipped = {(key.mapping, key.credential.ident) for key in passed}
    return tuple(s for s in plan.order if any((s.key, key.ident) not in skipped for key in s.credentials))
