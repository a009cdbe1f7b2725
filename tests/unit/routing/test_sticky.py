import pytest

from gateway.errors import Unavailable
from gateway.routing.sticky import Sticky, StickyMemory


class CacheStore:
    """A store in memory that counts calls and can be unavailable."""

    def __init__(self):
        self.values, self.puts, self.away = {}, 0, False

    def get(self, key):
        if self.away:
            raise Unavailable()
        return self.values.get(key)

    def put(self, key, value, ttl_s):
        if self.away:
            raise Unavailable()
        self.puts += 1
        self.values[key] = value


@pytest.fixture
def shelf():
    return CacheStore()


def test_a_pin_holds_for_its_time_and_use_refreshes_it(clock):
    sticky = Sticky(clock, 3600)
    sticky.pin("p", "s", "m", "a/m")
    clock.advance(3000)
    sticky.pin("p", "s", "m", "a/m")
    clock.advance(3000)
    assert sticky.pin_of("p", "s", "m") == "a/m"
    clock.advance(601)
    assert sticky.pin_of("p", "s", "m") is None


def test_a_pin_belongs_to_one_project_session_and_model(clock):
    sticky = Sticky(clock, 3600)
    sticky.pin("p", "s", "m", "a/m")
    assert [sticky.pin_of(*key) for key in (("q", "s", "m"), ("p", "t", "m"), ("p", "s", "n"))] == [None] * 3


def test_a_time_of_zero_switches_pins_off(clock):
    sticky = Sticky(clock, 0)
    sticky.pin("p", "s", "m", "a/m")
    assert sticky.pin_of("p", "s", "m") is None


def test_a_full_memory_forgets_the_oldest(clock):
    memory = StickyMemory(clock, 60, capacity=3)
    for name in "abcd":
        memory.put(name, name)
    assert len(memory) == 3 and memory.get("a") is None and memory.get("d") == "d"


def test_pins_are_shared_through_the_store_without_names_of_sessions(clock, shelf):
    Sticky(clock, 3600, shelf).pin("p", "alice@example.com", "m", "a/m")
    assert Sticky(clock, 3600, shelf).pin_of("p", "alice@example.com", "m") == "a/m"
    assert "alice" not in "".join(shelf.values)


def test_the_store_is_written_for_new_moved_and_ageing_pins_only(clock, shelf):
    sticky = Sticky(clock, 3600, shelf)
    for mapping in ("a/m", "a/m", "b/m", "b/m"):
        sticky.pin("p", "s", "m", mapping)
    assert shelf.puts == 2
    clock.advance(1801)
    sticky.pin("p", "s", "m", "b/m")
    assert shelf.puts == 3


def test_without_its_store_a_pin_holds_in_this_worker(clock, shelf):
    shelf.away = True
    sticky = Sticky(clock, 3600, shelf)
    assert sticky.pin_of("p", "s", "m") is None
    sticky.pin("p", "s", "m", "a/m")
    assert sticky.pin_of("p", "s", "m") == "a/m"


def test_a_preference_is_not_prolonged_by_being_chosen_again(clock):
    sticky = Sticky(clock, 3600)
    sticky.prefer("p", "m", "a/m")
    clock.advance(3000)
    sticky.prefer("p", "m", "a/m")
    clock.advance(601)
    assert sticky.preference_of("p", "m") is None
