"""Turns of sessions are read in the order in which they were recorded, page by page."""

from gateway import ids
from gateway.metering.usage_table import UsageRecord, raw_id, write_row
from gateway.store.journal import Journal
from gateway.telemetry.cache_watch import TurnPosition, read_turns

OWNERS = {name: raw_id(ids.new("x")) for name in ("organization", "project", "api_key", "member")}


def turn(number: int, posted_at: int, **more: object) -> UsageRecord:
    values = dict.fromkeys(UsageRecord._fields[:20], 0) | OWNERS | {"request": bytes([number]) * 16, "at": number}
    values |= {"posted_at": posted_at, "operation": "chat", "provider": "p", "asked": "m", "served": "m", "source": ""}
    values |= {"finish": "stop", "price_version": "", "session": "s", "input": 1, "cache_read": 2, "cache_write": 3}
    return UsageRecord(**values | more)


def test_pages_contain_each_turn_once_also_of_one_moment(database, clock):
    journal = Journal(database, clock)
    rows = [turn(1, 10), turn(3, 10), turn(2, 10), turn(4, 11), turn(5, 30), turn(6, 11, session=None)]
    journal.append(*map(write_row, rows)).wait(60)
    position = TurnPosition(10)
    found = []
    for _ in range(4):
        page = read_turns(database, position, 20, 2)
        position = page.position
        found += page.turns
    assert [found_turn.at_us for found_turn in found] == [1, 2, 3, 4] and not page.full
    assert (found[0].fresh, found[0].cached, found[0].written, found[0].input_tokens) == (1, 2, 3, 6)
    assert found[0].project_id == f"proj_{OWNERS['project'].hex()}"
    journal.close()
