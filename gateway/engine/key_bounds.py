"""Spending limits of organizations' own provider keys: a plan skips keys whose limit is used up."""

from collections.abc import Iterable
from typing import NamedTuple

from gateway.billing.bounds import compute_bound
from gateway.errors import GatewayError
from gateway.limits.budgets import Budgets
from gateway.limits.cost_bound import Shortage, fit
from gateway.limits.models import PROVIDER_KEY, TOTAL
from gateway.neutral.request import Request
from gateway.routing.candidate_filter import BUDGET, Excluded
from gateway.routing.decision import Plan
from gateway.routing.score import Scored


class Passed(NamedTuple):
    """A provider key that is skipped at a mapping (by its key), and the reason."""

    mapping: str
    credential: str
    error: GatewayError


class KeyBounds:
    """Checks without reserving: what is sent is reserved by the settlement."""

    def __init__(self, budgets: Budgets, default_output: int) -> None:
        self._budgets = budgets
        self._default_output = default_output

    def sift(self, plan: Plan, request: Request, at_us: int) -> Plan:
        """The plan without the keys whose limit cannot cover the request; raises the refusal of the last of them when
        nothing else is left. Reads nothing when no key has a limit."""
        bounded = {one.ident for scored in plan.order for one in scored.credentials if one.bounded}
        if not bounded:
            return plan
        states = self._budgets.statuses(bounded)
        passed = []
        for scored in plan.order:
            ask = compute_bound(request, (scored.candidate.mapping,), self._default_output, at_us)
            for credential in scored.credentials:
                if not credential.bounded:
                    continue
                most = states[credential.ident].limits.total_nusd
                spent = states[credential.ident].usage_nusd
                if most is not None and fit(ask, most - spent) is None:
                    short = Shortage(PROVIDER_KEY, TOTAL, most, most - spent, ask.least_nusd)
                    passed.append(Passed(scored.key, credential.ident, short.error()))
        if passed and not _left(plan, passed):
            raise passed[-1].error
        return leave_out(plan, passed)


def leave_out(plan: Plan, passed: Iterable[Passed]) -> Plan:
    """The plan with the skipped keys among its exclusions; a candidate without any other key is no longer tried, unless
    it is the only one."""
    passed = list(passed)
    candidates = {scored.key: scored.candidate for scored in plan.order}
    excluded = [
        Excluded(one.mapping, BUDGET, f"{one.credential}: {one.error.message}", candidates[one.mapping])
        for one in passed
    ]
    left = _left(plan, passed)
    return plan._replace(order=left or plan.order, excluded=[*plan.excluded, *excluded])


def _left(plan: Plan, passed: list[Passed]) -> tuple[Scored, ...]:
    gone = {(one.mapping, one.credential) for one in passed}
    return tuple(s for s in plan.order if any((s.key, one.ident) not in gone for one in s.credentials))
