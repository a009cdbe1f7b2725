import gc
import os
import tracemalloc
import zlib
from collections.abc import Callable
from types import SimpleNamespace

import gevent
import orjson
import pytest

from gateway.callers.vault import Vault
from gateway.configuration.settings import Responses
from gateway.engine import stored_responses
from gateway.engine.stored_responses import StoredResponse, StoredResponses
from gateway.errors import InvalidRequest, NotFound, Overloaded
from gateway.runtime.byte_budget import ByteBudget
from gateway.runtime.threads import Threads
from gateway.store.conversation_turns import Turns
from gateway.store.database import Database
from gateway.store.documents import Documents

PICTURE = "data:image/png;base64," + os.urandom(150_000).hex()
DAY_S = 86_400


def caller(organization: str = "org_1") -> SimpleNamespace:
    return SimpleNamespace(organization_id=organization, project_id="p", key_kind="user", key_id="k", rules=())


@pytest.fixture
def open_responses(database: Database, threads: Threads) -> Callable[..., StoredResponses]:
    def make(most_mb: int = 64, conversation_mb: int = 64) -> StoredResponses:
        settings = Responses(most_mb, conversation_mb, 0)
        return StoredResponses(Turns(database), Documents(database), Vault(["k"]), b"s", threads, settings)

    return make


@pytest.fixture
def stored(open_responses: Callable[..., StoredResponses]) -> StoredResponses:
    return open_responses()


def turn(number: int, *texts: str, answer: str = "Fine.") -> StoredResponse:
    content = [{"type": "input_text", "text": text} for text in texts]
    said = {"type": "message", "role": "assistant", "content": [{"type": "output_text", "text": answer}]}
    items = [{"type": "message", "role": "user", "content": content}]
    return StoredResponse({"id": f"resp_{number}", "output": [said]}, [], items)


def chain(stored: StoredResponses, *turns: StoredResponse) -> None:
    previous = ""
    for turn in turns:
        stored.keep(caller(), turn, previous)
        previous = turn.response["id"]


def texts_of(found: StoredResponse) -> list[str]:
    return [part["text"] for said in found.turns for item in (*said.items, *said.output) for part in item["content"]]


def total(database: Database, organization: str = "org_1") -> int:
    return Turns(database).total(organization)


def count(database: Database, table: str) -> int:
    return database.read(lambda: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0])


def test_a_turn_stores_what_is_new_and_not_the_conversation_before_it(
    stored: StoredResponses, database: Database
) -> None:
    chain(stored, turn(0, "Look:", PICTURE))
    first = total(database)
    before = "resp_0"
    for number in range(1, 11):
        stored.keep(caller(), turn(number, f"And {number}?"), before)
        before = f"resp_{number}"
    assert total(database) - first < 10 * 1000
    found = texts_of(stored.find(caller(), "resp_10", stored.load_for(caller())))
    assert found[:2] == ["Look:", PICTURE] and found[-2:] == ["And 10?", "Fine."]


def test_repeated_items_are_stored_once(stored: StoredResponses, database: Database) -> None:
    """Clients that send the whole conversation each time, and name no response before."""
    said: list[str] = ["Look:", PICTURE, *(f"{n} " + "word " * 60 for n in range(200))]
    stored.keep(caller(), turn(0, *said))
    first = total(database)
    for number in range(1, 6):
        said += ["More", "Fine."]
        stored.keep(caller(), turn(number, *said))
    assert total(database) - first < 5 * 8000
    assert texts_of(stored.find(caller(), "resp_5", stored.load_for(caller()))) == [*said, "Fine."]


def test_another_organization_shares_nothing(stored: StoredResponses, database: Database) -> None:
    for organization in ("org_1", "org_2"):
        response = turn(0, PICTURE)
        response.response["id"] = f"resp_{organization}"
        stored.keep(caller(organization), response)
    assert total(database, "org_2") > 150_000
    with pytest.raises(NotFound):
        other = SimpleNamespace(project_id="q", key_kind="user", key_id="k", rules=())
        stored.find(other, "resp_org_1", stored.load_for(caller("org_2")))


def test_nothing_that_is_stored_can_be_read_in_the_database(stored: StoredResponses, database: Database) -> None:
    chain(stored, turn(0, "marked-secret", "marked-secret" * 1000))
    for table, column in (("stored_response", "body"), ("stored_value", "value")):
        sql = f"SELECT {column} FROM {table}"
        for (value,) in database.read(lambda sql=sql: database.execute(sql).fetchall()):
            assert b"marked" not in bytes(value)


def test_a_chain_outlives_its_earlier_links_and_then_all_of_it_goes(
    stored: StoredResponses, database: Database
) -> None:
    chain(stored, turn(0, PICTURE), turn(1, "One"), turn(2, "Two"))
    stored.delete(caller(), "resp_0")
    stored.delete(caller(), "resp_1")
    with pytest.raises(NotFound):
        stored.find(caller(), "resp_1", stored.load_for(caller()))
    assert texts_of(stored.find(caller(), "resp_2", stored.load_for(caller())))[0] == PICTURE
    stored.delete(caller(), "resp_2")
    assert [count(database, name) for name in ("stored_response", "stored_piece", "stored_value")] == [0, 0, 0]
    assert total(database) == 0


def test_expired_responses_are_deleted_with_all_pieces(
    stored: StoredResponses, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stored_responses, "RETENTION_S", -1.0)
    chain(stored, *(turn(number, PICTURE, str(number)) for number in range(150)))
    with pytest.raises(NotFound):
        stored.find(caller(), "resp_149", stored.load_for(caller()))
    assert stored.purge() == 150
    assert (count(database, "stored_response"), count(database, "stored_value"), total(database)) == (0, 0, 0)


def test_a_turn_keeps_its_text_when_its_predecessor_is_deleted_meanwhile(stored: StoredResponses) -> None:
    chain(stored, turn(0, "First"))
    found = stored.find(caller(), "resp_0", stored.load_for(caller()))
    stored.delete(caller(), "resp_0")
    second = turn(1, "Second")
    stored.keep(caller(), StoredResponse(second.response, found.turns, second.items), "resp_0")
    assert texts_of(stored.find(caller(), "resp_1", stored.load_for(caller()))) == ["First", "Fine.", "Second", "Fine."]


def test_an_organization_with_full_storage_is_refused_before_it_pays(
    open_responses: Callable[..., StoredResponses],
) -> None:
    stored = open_responses(most_mb=1)
    for number in range(6):
        stored.check_quota(caller())
        stored.keep(caller(), turn(number, os.urandom(100_000).hex()))
    with pytest.raises(InvalidRequest) as caught:
        for number in range(6, 20):
            stored.keep(caller(), turn(number, os.urandom(100_000).hex()))
    assert caught.value.code == "response_storage_full"
    stored.check_quota(caller("org_2"))
    for number in range(6):
        stored.delete(caller(), f"resp_{number}")
    stored.check_quota(caller())


def test_the_door_names_the_cap_and_its_setting(open_responses: Callable[..., StoredResponses]) -> None:
    open_responses(most_mb=0).keep(caller(), turn(0, os.urandom(1 << 20).hex()))
    with pytest.raises(InvalidRequest, match=r"1 MB .responses.max_organization_mb") as caught:
        open_responses(most_mb=1).check_quota(caller())
    assert (caught.value.status, caught.value.code) == (400, "response_storage_full")


def test_a_conversation_over_its_cap_is_not_loaded(open_responses: Callable[..., StoredResponses]) -> None:
    """A picture costs its room once, yet each turn that repeats it makes the conversation longer."""
    stored = open_responses(conversation_mb=1)
    chain(stored, *(turn(number, PICTURE) for number in range(4)))
    with pytest.raises(InvalidRequest) as caught:
        stored.find(caller(), "resp_3", stored.load_for(caller()), "previous_response_id")
    assert (caught.value.code, caught.value.param) == ("conversation_too_long", "previous_response_id")
    assert stored.find(caller(), "resp_3", stored.load_for(caller()), whole=False).response["id"] == "resp_3"


def test_responses_stored_by_an_earlier_release_can_be_continued(stored: StoredResponses, database: Database) -> None:
    old = turn(0, "Old")
    body = {"scope": "p", "response": old.response, "history": turn(9, "Older").items, "items": old.items}
    Documents(database).put("stored_response", "resp_0", zlib.compress(orjson.dumps(body)), DAY_S)
    found = stored.find(caller(), "resp_0", stored.load_for(caller()))
    assert texts_of(found) == ["Older", "Old", "Fine."]
    new = turn(1, "New")
    stored.keep(caller(), StoredResponse(new.response, found.turns, new.items), "resp_0")
    stored.delete(caller(), "resp_0")
    assert texts_of(stored.find(caller(), "resp_1", stored.load_for(caller()))) == [
        "Older",
        "Old",
        "Fine.",
        "New",
        "Fine.",
    ]
    with pytest.raises(NotFound):
        stored.find(caller(), "resp_0", stored.load_for(caller()))


class Refused(Exception):
    pass


def refuse() -> None:
    raise Refused


def long_chain(stored: StoredResponses) -> None:
    """Store a conversation of one-letter parts: its objects take ten times the bytes of its text."""
    chain(stored, *(turn(number, *(["x"] * 20_000)) for number in range(3)))


@pytest.fixture
def unread(stored: StoredResponses, monkeypatch: pytest.MonkeyPatch) -> StoredResponses:
    """The store, where reading the turns of a conversation is an error."""
    long_chain(stored)

    def read(ident: str, maximum: int) -> None:
        raise AssertionError(f"{ident} was read")

    monkeypatch.setattr(stored._turns, "chain", read)
    return stored


def test_the_checks_of_a_request_come_before_a_long_conversation_is_read(unread: StoredResponses) -> None:
    with pytest.raises(Refused):
        unread.find(caller(), "resp_2", unread.load_for(caller(), refuse))


def test_a_conversation_without_room_is_not_read(unread: StoredResponses) -> None:
    unread._budget = ByteBudget(1 << 20, 1 << 20)
    with pytest.raises(Overloaded):
        unread.find(caller(), "resp_2", unread.load_for(caller()))
    assert unread._budget.held == 0


def test_a_short_conversation_is_read_without_the_checks(stored: StoredResponses) -> None:
    chain(stored, turn(0, "Hello"))
    assert stored.find(caller(), "resp_0", stored.load_for(caller(), refuse)).response["id"] == "resp_0"


@pytest.mark.parametrize("whole", [True, False])
def test_a_loaded_conversation_takes_the_memory_that_is_counted(stored: StoredResponses, whole: bool) -> None:
    long_chain(stored)
    budget = stored._budget = ByteBudget(1 << 30, 1 << 30)
    gc.collect()
    tracemalloc.start()
    try:
        load = stored.load_for(caller())
        found = stored.find(caller(), "resp_2", load, whole=whole)
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found.earlier) == 2 * whole
    assert taken < 1.5 * budget.held
    del load
    assert budget.held == 0


def test_objects_of_a_conversation_are_weighed_before_they_are_made(stored: StoredResponses) -> None:
    long_chain(stored)
    stored._budget = ByteBudget(8 << 20, 8 << 20)  # for the text, and not for its objects
    load = stored.load_for(caller())
    with pytest.raises(Overloaded):
        stored.find(caller(), "resp_2", load)
    assert stored._turns.find("resp_2").chain_bytes < stored._budget._maximum


def test_an_organization_loads_one_long_conversation_at_a_time(
    stored: StoredResponses, monkeypatch: pytest.MonkeyPatch
) -> None:
    long_chain(stored)
    running: list[int] = [0, 0]
    read = stored._read

    def observe(*args: object) -> StoredResponse | None:
        running[0] += 1
        running[1] = max(running)
        gevent.sleep(0.01)
        try:
            return read(*args)
        finally:
            running[0] -= 1

    monkeypatch.setattr(stored, "_read", observe)
    loads = [gevent.spawn(lambda: stored.find(caller(), "resp_2", stored.load_for(caller()))) for _ in range(4)]
    gevent.joinall(loads, raise_error=True)
    assert running == [0, 1]
