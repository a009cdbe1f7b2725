"""How long a conversation's prompt is kept: by its pauses, across workers, and only where providers offer a choice."""

from dataclasses import replace

import pytest
from support.clock import FakeClock

from gateway.catalogue.entries import Mapping, Prices, TokenRates
from gateway.errors import Unavailable
from gateway.neutral.chat import ChatRequest, Conversation, Native, Requirements
from gateway.neutral.parts import Message, Text
from gateway.neutral.usage import Usage
from gateway.routing.cache_lifetimes import CacheLifetimes

RATES = TokenRates(prompt=300, input_cache_read=30, input_cache_write=375, input_cache_write_1h=600)
CLAUDE = Mapping("a", "claude", "claude", prices=(Prices(RATES),))
MINUTE_S = 60.0


class SharedStore:
    def __init__(self) -> None:
        self.values: dict[str, str] = {}
        self.away = False
        self.reads = self.writes = 0

    def get(self, key: str) -> str | None:
        self.reads += 1
        if self.away:
            raise Unavailable()
        return self.values.get(key)

    def put(self, key: str, value: str, ttl_s: float) -> None:
        self.writes += 1
        if self.away:
            raise Unavailable()
        self.values[key] = value


def request(task: str = "Mend it.", instruction: str = "You code.", messages: int = 3) -> ChatRequest:
    talk = Conversation((Message("system", (Text(instruction),)), Message("user", (Text(task),))))
    return ChatRequest("m", Requirements(messages=messages), lambda: talk)


def turn(
    lifetimes: CacheLifetimes, tokens: int = 10_000, mapping: Mapping = CLAUDE, session: str = "session", **asked
) -> str:
    """Serve a turn of the session and return the lifetime of its marks."""
    begun = lifetimes.begin("project", session, mapping, request(**asked))
    lifetimes.served(begun, mapping, Usage(input=tokens))
    return begun.ttl


@pytest.fixture
def clock() -> FakeClock:
    clock = FakeClock()
    clock.freeze()
    return clock


def lives(lifetimes: CacheLifetimes, clock: FakeClock, *pauses_min: float) -> list[str]:
    found = []
    for minutes in pauses_min:
        clock.advance(minutes * MINUTE_S)
        found.append(turn(lifetimes))
    return found


def test_a_conversation_that_pauses_is_kept_for_an_hour_from_a_loss_on(clock: FakeClock) -> None:
    found = lives(CacheLifetimes(clock, None, b"key"), clock, 0, 1, 10, 1, 10, 59, 1)
    assert found == ["", "", "", "", "1h", "1h", "1h"]


def test_an_hour_does_not_pay_without_pauses_or_beyond_them(clock: FakeClock) -> None:
    assert lives(CacheLifetimes(clock, None, b"key"), clock, *[4.0] * 20) == [""] * 20
    assert lives(CacheLifetimes(clock, None, b"key"), clock, *[61.0] * 20) == [""] * 20


def test_the_growth_of_a_conversation_counts_against_the_hour(clock: FakeClock) -> None:
    lifetimes = CacheLifetimes(clock, None, b"key")
    for number in range(12):  # one pause in six turns, each of which doubles the prompt
        clock.advance((10 if number % 6 == 5 else 1) * MINUTE_S)
        assert turn(lifetimes, 1000 * 2**number) == ""


def test_an_hour_ends_where_its_pauses_became_longer(clock: FakeClock) -> None:
    lifetimes = CacheLifetimes(clock, None, b"key")
    assert lives(lifetimes, clock, 0, 10, 10, 10, 10)[-1] == "1h"
    assert lives(lifetimes, clock, *[70.0] * 20)[-1] == ""


def test_a_new_session_is_kept_as_the_earlier_ones_were_worth(clock: FakeClock) -> None:
    lifetimes = CacheLifetimes(clock, None, b"key")
    for number in range(6):
        for minutes in (0, 1, 10, 1, 10):
            clock.advance(minutes * MINUTE_S)
            turn(lifetimes, session=f"s{number}")
    assert turn(lifetimes, session="new", messages=1) == "1h"
    assert turn(lifetimes, session="new", task="Other.", instruction="You search.", messages=1) == ""


def test_a_provider_with_one_lifetime_has_no_choice(clock: FakeClock) -> None:
    store = SharedStore()
    lifetimes = CacheLifetimes(clock, store, b"key")
    only = Mapping("n", "nova", "nova", prices=(Prices(TokenRates(prompt=300, input_cache_write=0)),))
    for _ in range(4):
        assert turn(lifetimes, mapping=only) == ""
        clock.advance(10 * MINUTE_S)
    assert (store.reads, store.writes) == (0, 0)


def test_the_turns_of_other_workers_are_no_pauses(clock: FakeClock) -> None:
    store = SharedStore()
    one, other = CacheLifetimes(clock, store, b"key"), CacheLifetimes(clock, store, b"key")
    assert lives(one, clock, 0) == [""]
    for _ in range(5):
        assert lives(other, clock, 4) == [""]
    assert lives(one, clock, 4) == [""]


def test_the_lifetime_of_a_conversation_is_known_to_all_workers(clock: FakeClock) -> None:
    store = SharedStore()
    one, other = CacheLifetimes(clock, store, b"key"), CacheLifetimes(clock, store, b"key")
    assert lives(one, clock, 0, 10, 10, 10, 10)[-1] == "1h"
    assert lives(other, clock, 10) == ["1h"]


def test_without_the_store_each_worker_knows_its_own_turns(clock: FakeClock) -> None:
    store = SharedStore()
    store.away = True
    assert lives(CacheLifetimes(clock, store, b"key"), clock, 0, 10, 10, 10, 10)[-1] == "1h"


def test_the_store_is_read_after_pauses_and_written_once_a_minute(clock: FakeClock) -> None:
    store = SharedStore()
    lifetimes = CacheLifetimes(clock, store, b"key")
    turn(lifetimes, messages=1)
    assert store.reads == 0  # a first turn has no turn before it
    for _ in range(60):
        clock.advance(2)
        turn(lifetimes)
    assert store.reads == 0 and store.writes <= 4


def test_names_of_sessions_and_texts_reach_the_store_as_digests(clock: FakeClock) -> None:
    store = SharedStore()
    turn(CacheLifetimes(clock, store, b"one"), task="Secret plan")
    turn(CacheLifetimes(clock, store, b"two"), task="Secret plan")
    assert len(store.values) == 2  # with the installation's key, so that nobody else can try whether it is a plan
    assert not [name for name in store.values if "session" in name or "Secret" in name or len(name) != 32]


def test_a_conversation_is_identified_by_project_session_model_and_opening(clock: FakeClock) -> None:
    lifetimes = CacheLifetimes(clock, None, b"key")

    def key(scope: str = "p", session: str = "s", mapping: Mapping = CLAUDE, task: str = "t") -> str:
        return lifetimes.begin(scope, session, mapping, request(task)).key

    other = replace(CLAUDE, provider="b")
    keys = [key(), key(scope="q"), key(session="x"), key(mapping=other), key(task="u")]
    assert len(set(keys)) == 5 and key() == keys[0]


def test_a_relayed_body_is_not_decoded_for_its_opening(clock: FakeClock) -> None:
    def decode() -> Conversation:
        raise AssertionError("decoded")

    def key(content: object) -> str:
        native = Native("x", {"messages": [{"role": "system", "content": "S"}, {"role": "user", "content": content}]})
        asked = ChatRequest("m", Requirements(), decode, native=native)
        return CacheLifetimes(clock, None, b"key").begin("p", "s", CLAUDE, asked).key

    assert key("Mend it.") == key([{"type": "text", "text": "Mend it."}]) != key("Break it.")
