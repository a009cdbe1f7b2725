"""Spending limits as coding agents read them."""

from types import SimpleNamespace
from typing import Any

from gateway.limits.budgets import Limits, Status
from gateway.limits.periods import UNITS, Period
from gateway.surfaces.anthropic.usage_limits import read_states


def test_a_limit_of_each_period_has_a_name_that_agents_know() -> None:
    """The protocol knows daily, weekly and monthly limits."""
    caller: Any = SimpleNamespace(key_id="key_1", member_id="", teams=())
    names = {}
    for unit in UNITS:
        status = Status(Limits(None, 10, Period(1, unit)), 0, 1, 0, 1)
        budgets: Any = SimpleNamespace(statuses=lambda ids, status=status: {"key_1": status})
        (state,) = read_states(budgets, caller)
        names[unit] = state.group
    assert names == {"hour": "daily", "day": "daily", "week": "weekly", "month": "monthly"}
