"""Conversations that a WebSocket keeps."""

import gc
import tracemalloc
from types import SimpleNamespace

import pytest

from gateway.engine.stored_responses import ConversationLoad, OwnerTurns
from gateway.errors import NotFound, Overloaded
from gateway.runtime.byte_budget import ByteBudget
from gateway.surfaces.responses.socket_memory import SocketMemory, TurnMemory

OWNER = "org_1"


class Stored:
    """No response is stored, and any conversation may be continued."""

    def find(self, caller: object, ident: str, load: ConversationLoad, param: str, code: str) -> None:
        raise NotFound("There is none.", param=param, code=code)

    def check_size(self, size: int, param: str) -> None:
        return


def make(maximum: int = 10_000) -> SocketMemory:
    return SocketMemory(ByteBudget(maximum, maximum), OWNER)


def answer(number: int) -> dict:
    return {"id": f"resp_{number}", "output": [{"type": "message", "text": "x" * 100}], "tools": ["y" * 5000]}


def load_of(memory: SocketMemory) -> ConversationLoad:
    return ConversationLoad(memory.budget, OwnerTurns(1), OWNER)


def find(memory: SocketMemory, ident: str, stream: str = "", rules: tuple = ()) -> TurnMemory:
    turn = TurnMemory(memory, stream, Stored())
    caller = SimpleNamespace(rules=rules)
    turn.find(caller, ident, load_of(memory), "previous_response_id", "previous_response_not_found")
    return turn


def test_the_last_response_of_each_stream_is_kept_with_the_turns_before_it() -> None:
    memory = make()
    TurnMemory(memory, "", Stored()).keep(answer(1), [{"n": 1}], "", 200)
    turn = find(memory, "resp_1")
    turn.keep(answer(2), [{"n": 2}], "resp_1", 200)
    kept = memory.find("resp_2")
    assert [(past.ident, past.items) for past in kept.load().turns] == [("resp_1", [{"n": 1}]), ("resp_2", [{"n": 2}])]
    assert memory.find("resp_1") is None  # the stream continued
    find(memory, "resp_2", "fork").keep(answer(3), [], "resp_2", 200)
    assert memory.find("resp_2") and memory.find("resp_3").size > kept.size > 400


def test_kept_bytes_count_against_the_budget_until_the_socket_closes() -> None:
    memory = make()
    TurnMemory(memory, "", Stored()).keep(answer(1), [], "", 300)
    assert memory.budget.held_by(OWNER) == memory.find("resp_1").size > 200
    TurnMemory(memory, "", Stored()).keep(answer(2), [], "", 200)
    assert memory.budget.held_by(OWNER) == memory.find("resp_2").size
    memory.close()
    assert (memory.budget.held, memory.find("resp_2")) == (0, None)


def test_a_conversation_without_room_is_not_kept() -> None:
    memory = make(500)
    TurnMemory(memory, "", Stored()).keep(answer(1), [], "", 200)
    assert memory.find("resp_1")
    TurnMemory(memory, "", Stored()).keep(answer(2), [{"n": "x" * 900}], "", 900)
    assert memory.budget.held == 0
    for ident in ("resp_1", "resp_2"):
        with pytest.raises(NotFound) as caught:
            find(memory, ident)
        assert caught.value.code == "previous_response_not_found"


@pytest.mark.parametrize("text", ["x", "a longer text of a message " * 20])
def test_a_kept_conversation_takes_the_memory_that_is_counted(text: str) -> None:
    memory = make(1 << 30)
    gc.collect()
    tracemalloc.start()
    try:
        for number in range(20):
            parts = [{"type": "input_text", "text": text + str(place)} for place in range(2000)]
            turn = TurnMemory(memory, str(number), Stored())
            turn.keep(answer(number), [{"type": "message", "role": "user", "content": parts}], "", 200)
        del parts, turn
        gc.collect()
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    counted = memory.budget.held_by(OWNER)
    assert counted > 20 * 2000 * len(text)
    assert taken < 1.5 * counted


def test_a_kept_conversation_is_weighed_as_objects_before_it_is_decoded() -> None:
    memory = make(3_000_000)
    items = [{"type": "message", "role": "user", "content": "x"}] * 10_000
    TurnMemory(memory, "", Stored()).keep(answer(1), items, "", 200)
    assert memory.find("resp_1").size < 1_000_000
    with pytest.raises(Overloaded):
        find(memory, "resp_1")
    gc.collect()
    assert memory.budget.held == memory.find("resp_1").size
