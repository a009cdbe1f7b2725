"""Rounds of work for several owners: an owner that never answers delays no other, and takes only its own places."""

from collections.abc import Callable, Iterator
from functools import partial

import pytest
from gevent.event import Event

from gateway.clock import Clock
from gateway.jobs import rounds
from gateway.jobs.rounds import Rounds


@pytest.fixture
def answered(monkeypatch: pytest.MonkeyPatch) -> Iterator[Event]:
    """Set when the silent provider answers."""
    monkeypatch.setattr(rounds, "ROUND_TIMEOUT_S", 0.01)
    event = Event()
    yield event
    event.set()


def always() -> bool:
    return True


def test_an_owner_that_never_answers_delays_no_other(answered: Event) -> None:
    under_test, done = Rounds(2, 10, Clock()), list[str]()
    hanging: list[tuple[str, Callable[[], None]]] = [("silent", answered.wait)] * 3
    for number in range(3):
        under_test.run([*hanging, ("other", partial(done.append, f"round {number}"))], always)
    assert done == ["round 0", "round 1", "round 2"]


def test_an_owner_has_its_places_and_again_when_its_works_are_over(answered: Event) -> None:
    under_test, begun = Rounds(2, 10, Clock()), list[int]()

    def work(number: int) -> None:
        begun.append(number)
        answered.wait()

    under_test.run([("silent", partial(work, number)) for number in range(4)], always)
    under_test.run([("silent", partial(work, 4))], always)
    assert begun == [0, 1]
    answered.set()
    under_test.run([], always)
    under_test.run([("silent", partial(work, 5))], always)
    assert begun == [0, 1, 5]


def test_all_kinds_together_have_their_places(answered: Event) -> None:
    under_test, begun = Rounds(2, 3, Clock()), list[int]()

    def work(number: int) -> None:
        begun.append(number)
        answered.wait()

    under_test.run([(f"owner {number}", partial(work, number)) for number in range(5)], always)
    assert begun == [0, 1, 2]


def test_a_round_that_shall_end_begins_nothing(answered: Event) -> None:
    begun: list[str] = []
    Rounds(2, 3, Clock()).run([("one", partial(begun.append, "one"))], lambda: False)
    assert begun == []
