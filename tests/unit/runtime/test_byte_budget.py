"""The budget of a worker's memory for large bodies."""

import pytest

from gateway.errors import Overloaded
from gateway.runtime.byte_budget import ByteBudget


def test_a_budget_refuses_what_is_too_much_in_all_or_for_one_owner():
    budget = ByteBudget(100, 60)
    budget.grow("one", 60)
    for owner, size in (("one", 1), ("two", 25)):
        with pytest.raises(Overloaded):
            budget.grow(owner, size)
    assert budget.held == 60 and not budget.has_room("two", 25) and budget.has_room("two", 24)
    assert not budget.has_room("two", 1, share=0.5)


@pytest.mark.parametrize("greedy", [1, 2, 5, 20])
def test_owners_who_take_all_that_they_may_leave_room_for_another(greedy):
    budget = ByteBudget(1_000, 500)
    for _ in range(1_000):
        for owner in range(greedy):
            if budget.has_room(str(owner), 1):
                budget.grow(str(owner), 1)
    with pytest.raises(Overloaded):
        budget.grow("0", 1)
    budget.grow("another", 1_000 // (greedy + 1) // 2)


def test_an_owner_for_whom_all_is_meant_gets_all():
    budget = ByteBudget(100, 100)
    budget.grow("one", 100)
    assert budget.held == 100
