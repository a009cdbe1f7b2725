"""A plan ranked again with other weights, to see what they would change."""

from gateway.routing.decision import Plan
from gateway.routing.score import Weights, rank


def reweigh(plan: Plan, weights: Weights) -> Plan:
    """Return the plan with its candidates in the order that `weights` give. Those that cool down stay last. The plan
    of a list of models is returned as it is, because the order of the list decides."""
    if plan.parts:
        return plan
    tried = {scored.key for scored in plan.order}
    ranked = rank((scored.entry for scored in plan.ranked), weights)
    order = sorted((scored for scored in ranked if scored.key in tried), key=lambda scored: scored.key in plan.cooling)
    return plan._replace(ranked=ranked, order=tuple(order), weights=weights)
