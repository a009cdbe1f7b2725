from gateway.runtime import allowances
from gateway.runtime.allowances import Allowances


def test_an_owner_has_a_burst_and_then_a_rate(clock) -> None:
    free = Allowances(3, 0.5, 100, 100, clock.monotonic)
    assert [free.take("a") for _ in range(4)] == [True, True, True, False]
    assert free.take("b")
    clock.advance(4)
    assert [free.take("a") for _ in range(3)] == [True, True, False]


def test_all_owners_together_have_less_than_the_sum_of_their_bursts(clock) -> None:
    free = Allowances(10, 1, 25, 0, clock.monotonic)
    assert sum(free.take(str(number // 10)) for number in range(100)) == 25


def test_amounts_are_taken_whole_or_not_at_all(clock) -> None:
    free = Allowances(100, 0, 1000, 0, clock.monotonic)
    assert free.take("a", 60) and not free.take("a", 60) and free.take("a", 40)


def test_the_owners_that_were_quiet_longest_are_forgotten(clock, monkeypatch) -> None:
    monkeypatch.setattr(allowances, "MAX_OWNERS", 2)
    free = Allowances(1, 0, 100, 0, clock.monotonic)
    assert free.take("a") and free.take("b") and not free.take("a")
    assert free.take("c")  # b is forgotten, since a came later
    assert not free.take("a") and free.take("b")
