"""Reservations of realtime turns when events arrive in an unexpected order."""

from types import SimpleNamespace
from typing import Any

from gateway.engine.realtime.books import SessionBooks, Turn
from gateway.engine.realtime.session_turns import SessionTurns
from gateway.limits.cost_bound import CostBound
from gateway.neutral.realtime import ServerEvent

PLACE: Any = SimpleNamespace(
    target=SimpleNamespace(mapping=SimpleNamespace(context_length=0, max_output=0, key="openai/live")),
    requested_model="live",
)
PARTS: Any = SimpleNamespace(default_output=100, cap_nusd=0)


class Books:
    """Books of a session that opens every turn, and knows those that hold something."""

    def __init__(self) -> None:
        self.holding: list[Turn] = []

    def open_late(self, request: Any, place: Any) -> tuple[Turn, None]:
        turn = Turn(None, None, None, place, 0, 0)  # type: ignore[arg-type]
        self.holding.append(turn)
        return turn, None

    def begin(self, turn: Turn) -> None: ...
    def void(self, turn: Turn) -> None:
        self.holding.remove(turn)

    def settle(self, turn: Turn, *how: Any) -> None:
        self.holding.remove(turn)


def test_what_was_said_is_transcribed_once_however_often_the_provider_tells_of_it() -> None:
    turns = SessionTurns(PARTS, None, PLACE, None, lambda *asked: PLACE)  # type: ignore[arg-type]
    turns.books = books = Books()  # type: ignore[assignment]
    turns.settings = SimpleNamespace(heard=PLACE, expected=PLACE)  # type: ignore[assignment]
    for _ in range(2):
        turns.take(ServerEvent("committed", "item_1"))
    assert len(books.holding) == 1
    turns.take(ServerEvent("heard", "item_1", text_length=8))
    turns.take(ServerEvent("committed", "item_1"))
    assert books.holding == []


def test_a_turn_that_ends_while_more_is_reserved_for_it_holds_nothing_of_its_session() -> None:
    books = SessionBooks(PARTS, None, None)  # type: ignore[arg-type]
    books._bound = lambda request, place: CostBound(100, 0, 0, True)  # type: ignore[method-assign]
    settlement, attempt = SimpleNamespace(close=lambda: None), SimpleNamespace(charge=SimpleNamespace(total=0))
    turn = Turn(None, settlement, attempt, PLACE, 10, 0)  # type: ignore[arg-type]
    books._held_nusd = 10
    settlement.enlarge = lambda nusd: books._end(turn)
    books.grow(turn, None)  # type: ignore[arg-type]
    assert books._held_nusd == 0
