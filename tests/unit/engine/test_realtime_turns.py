"""Reservations of realtime turns when events arrive in an unexpected order."""

from types import SimpleNamespace
from typing import Any

from gateway.engine.realtime.books import SessionAccounting, Turn
from gateway.engine.realtime.session_turns import SessionTurns, transcription_usage
from gateway.limits.cost_bound import CostBound
from gateway.neutral.realtime import ServerEvent
from gateway.neutral.usage import Usage

PLACE: Any = SimpleNamespace(
    target=SimpleNamespace(mapping=SimpleNamespace(context_length=0, max_output=0, key="openai/live")),
    requested_model="live",
)
PARTS: Any = SimpleNamespace(default_output=100, cap_nusd=0)


class Books:
    """Books of a session that opens every turn, and knows those that hold something."""

    def __init__(self) -> None:
        self.holding: list[Turn] = []
        self.recorded: list[int] = []

    def open_late(self, request: Any, place: Any) -> tuple[Turn, None]:
        turn = Turn(None, None, None, place, 0, 0)  # type: ignore[arg-type]
        self.holding.append(turn)
        return turn, None

    def begin(self, turn: Turn) -> None: ...
    def note(self, turn: Turn, text: int, sound: int) -> None:
        turn.text_bytes += text

    def record_progress(self, turn: Turn, usage: Usage) -> None:
        self.recorded.append(usage.output or usage.input_audio)

    def void(self, turn: Turn) -> None:
        self.holding.remove(turn)

    def settle(self, turn: Turn, *how: Any) -> None:
        self.holding.remove(turn)


def test_repeated_transcripts_of_an_item_are_billed_once() -> None:
    turns = SessionTurns(PARTS, None, PLACE, None, lambda *asked: PLACE)  # type: ignore[arg-type]
    turns.books = books = Books()  # type: ignore[assignment]
    turns.settings = SimpleNamespace(transcriber=PLACE, expected_transcriber=PLACE)  # type: ignore[assignment]
    for _ in range(2):
        turns.take(ServerEvent("committed", "item_1"))
    assert len(books.holding) == 1
    turns.take(ServerEvent("transcribed", "item_1", text_length=8))
    turns.take(ServerEvent("committed", "item_1"))
    assert books.holding == []


def test_a_turn_that_ends_while_more_is_reserved_for_it_holds_nothing_of_its_session() -> None:
    books = SessionAccounting(PARTS, None, None)  # type: ignore[arg-type]
    books._bound = lambda request, place: CostBound(100, 0, 0, True)  # type: ignore[method-assign]
    settlement = SimpleNamespace(close=lambda: None)
    attempt = SimpleNamespace(charge=SimpleNamespace(total=0))
    turn = Turn(None, settlement, attempt, PLACE, 10, 0)  # type: ignore[arg-type]
    books._held_nusd = 10
    settlement.enlarge = lambda nusd: books._end(turn)
    books.grow(turn, None)  # type: ignore[arg-type]
    assert books._held_nusd == 0


def test_a_running_answer_and_committed_sound_are_recorded_for_a_recovery() -> None:
    """After `kill -9` a response had cost its prompt alone, however much was said."""
    turns = SessionTurns(PARTS, None, PLACE, None, lambda *asked: PLACE)  # type: ignore[arg-type]
    turns.books = books = Books()  # type: ignore[assignment]
    turns.take(ServerEvent("started", "resp_1"))
    turns._active["resp_1"].output = 10_000
    for _ in range(100):
        turns.take(ServerEvent("", "resp_1", text_length=400))
    assert books.recorded[0] == 300 and 5000 <= books.recorded[-1] <= 10_000 and len(books.recorded) < 8
    turns.settings = SimpleNamespace(transcriber=PLACE, expected_transcriber=PLACE)  # type: ignore[assignment]
    turns._uncommitted_bytes = 48_000  # bytes, a second
    turns.take(ServerEvent("committed", "item_1"))
    assert books.recorded[-1] == transcription_usage(48_000, 48_000).output > 0
