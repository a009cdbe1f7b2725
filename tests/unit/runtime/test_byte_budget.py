"""The budget of a worker's memory for large bodies."""

import pytest

from gateway.errors import Overloaded
from gateway.runtime.byte_budget import ByteBudget


def test_a_budget_refuses_what_is_too_much_in_all_or_for_one_owner():
    budget = ByteBudget(100, 60)
    budget.grow("one", 60)
    for owner, size in (("one", 1), ("two", 41)):
        with pytest.raises(Overloaded):
            budget.grow(owner, size)
    assert budget.held == 60 and not budget.has_room("two", 41) and budget.has_room("two", 40)
    assert not budget.has_room("two", 1, share=0.5)
