"""The last visit of a person: pages within half an hour are one visit, and each organization has its own."""

from collections.abc import Callable

import pytest
from support.clock import FakeClock

from gateway.accounts import organizations
from gateway.accounts.last_visits import PAUSE_US, note_visit
from gateway.clock import MINUTE_US
from gateway.control.version import Control
from gateway.store.database import Database

BEGIN_US = 10**15


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database]) -> Database:
    opened = open_store(database_url)
    opened.bind()
    return opened


def test_a_visit_ends_with_a_pause_and_is_known_per_person_and_organization(
    database: Database, clock: FakeClock
) -> None:
    control = Control.observer(database, clock)
    first, second = (organizations.create_organization(database, control, name, actor="test").id for name in "ab")
    assert note_visit(database, "user_1", [], BEGIN_US) == 0
    assert note_visit(database, "user_1", [first], BEGIN_US) == 0
    assert note_visit(database, "user_1", [first], BEGIN_US + 20 * MINUTE_US) == 0, "the same visit"
    later_us = BEGIN_US + 20 * MINUTE_US + PAUSE_US + 1
    assert note_visit(database, "user_1", [first, second], later_us) == BEGIN_US + 20 * MINUTE_US
    assert note_visit(database, "user_1", [first, second], later_us + MINUTE_US) == BEGIN_US + 20 * MINUTE_US
    assert note_visit(database, "user_1", [second], later_us + MINUTE_US) == 0
    assert note_visit(database, "user_2", [first], later_us) == 0
    assert note_visit(database, "user_1", [first], BEGIN_US) == BEGIN_US + 20 * MINUTE_US, "a slow clock"
