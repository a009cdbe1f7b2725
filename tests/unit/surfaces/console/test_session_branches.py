"""The branches of a session, and why a turn did not read the cache."""

from typing import Any

import orjson
import pytest
from support.demo_sessions import SUB_TASK, TASK, make_turns
from support.usage import usage_row

from gateway.clock import SECOND_US
from gateway.metering.log.records import LoggedRequest
from gateway.metering.route_usage import SEEN
from gateway.surfaces.console.session_branches import (
    CAUSES,
    SHORTENED,
    WIDTH,
    Branch,
    describe_branch,
    draw_lanes,
    find_branches,
    read_turns,
)
from gateway.telemetry.cache_watch import MODEL, PAUSES, PREFIX, PROVIDER


def turn(
    second: float, fresh: int, cached: int = 0, written: int = 0, seconds: float = 1, **fields: Any
) -> LoggedRequest:
    values = {"served": "m", "provider": "p", "operation": "chat", "status": 200, **fields}
    row = usage_row(
        round(second * SECOND_US) + 10**15,
        input=fresh,
        cache_read=cached,
        cache_write=written,
        duration_ms=round(seconds * 1_000),
        **values,
    )
    return LoggedRequest(row.request, (row,))


def branch(*requests: LoggedRequest) -> list[Branch]:
    return find_branches(read_turns(requests))


def sizes(branches: list[Branch]) -> list[list[int]]:
    return [[one.size for one in found.turns] for found in branches]


def test_a_sub_agent_is_a_branch_and_the_main_agent_continues_after_it() -> None:
    found = branch(turn(0, 50_000), turn(2, 12_000), turn(4, 15_000), turn(6, 52_000))
    assert sizes(found) == [[50_000, 52_000], [12_000, 15_000]]
    assert [one.kind for one in found] == ["main", "sub"]


def test_agents_that_work_at_the_same_time_are_branches() -> None:
    parallel = [turn(2, 9_000, seconds=5), turn(2.5, 11_000, seconds=5), turn(8, 9_900), turn(9.5, 11_800)]
    found = branch(turn(0, 50_000), *parallel, turn(12, 51_000))
    assert sizes(found) == [[50_000, 51_000], [9_000, 9_900], [11_000, 11_800]]


def test_a_shortened_conversation_continues_the_main_agent() -> None:
    found = branch(turn(0, 100, 90_000), turn(2, 100, 95_000), turn(5, 20_000), turn(7, 500, 20_000))
    assert sizes(found) == [[90_100, 95_100, 20_000, 20_500]]
    assert [one.cause for one in found[0].turns] == ["", "", SHORTENED, ""]


def test_what_a_route_saw_decides() -> None:
    extra = {"extra": orjson.dumps({SEEN: ["work", "sub", ""]}).decode()}
    title = {"extra": orjson.dumps({SEEN: ["title", "main", ""]}).decode()}
    found = branch(turn(0, 400, **title), turn(1, 5_000), turn(3, 5_500, **extra), turn(5, 6_000))
    assert sizes(found) == [[5_000, 6_000], [400], [5_500]]
    assert [(one.kind, one.is_known) for one in found] == [("main", True), ("side", True), ("sub", True)]


@pytest.mark.parametrize(
    ("changed", "pause", "cause"),
    [
        ({"provider": "other"}, 2.0, PROVIDER),
        ({"served": "other"}, 2.0, MODEL),
        ({}, 400.0, PAUSES),
        ({}, 2.0, PREFIX),
    ],
)
def test_a_lost_cache_has_its_likely_cause(changed: dict[str, Any], pause: float, cause: str) -> None:
    [found] = branch(turn(0, 100, 0, 20_000), turn(2, 100, 20_000), turn(4 + pause, 21_000, **changed))
    lost = found.turns[-1]
    assert (lost.lost, lost.cause) == (20_000, cause) and cause in CAUSES
    assert not any(one.lost for one in found.turns[:-1])


def test_a_sub_agent_loses_nothing_that_the_main_agent_had_in_the_cache() -> None:
    found = branch(turn(0, 0, 0, 50_000), turn(2, 0, 50_000), turn(4, 9_000), turn(6, 500, 50_500))
    assert not any(one.lost for part in found for one in part.turns)


def test_failed_turns_and_turns_without_tokens_are_kept() -> None:
    failed = LoggedRequest(usage_row(10**15 + 3 * SECOND_US).request, ())
    found = branch(turn(0, 5_000), failed, turn(5, 5_200))
    assert sizes(found) == [[5_000, 0, 5_200]]
    assert sizes(branch(failed)) == [[0]] and find_branches([]) == []


def test_lanes_shorten_pauses_and_stay_on_the_page() -> None:
    turns = read_turns([turn(0, 5_000, seconds=5), turn(100_000, 5_100, seconds=5), turn(100_002, 900, seconds=1)])
    lanes = draw_lanes(turns, find_branches(turns))
    assert [len(lane.bars) for lane in lanes] == [2, 1]
    bars = [bar for lane in lanes for bar in lane.bars]
    assert all(0 <= bar.x <= WIDTH and bar.x + bar.width <= WIDTH + 4 for bar in bars)
    assert lanes[0].bars[0].width > 100  # the pause of a day does not make it a line


def test_branches_are_named_by_their_task() -> None:
    turns = make_turns()
    for number, kind, name in ((1, "sub", TASK), (3, "sub", SUB_TASK), (0, "side", TASK)):
        found = Branch(read_turns([turn(0, 1)]))
        describe_branch(found, orjson.dumps(turns[number].body))
        assert found.name == name[:90]
        assert (found.kind, found.is_known) == (kind, number != 1)
    for sent in (b"", b"[]", b'{"messages": [null, {"content": 3}], "system": 4, "tools": [1]}'):
        describe_branch(Branch(read_turns([turn(0, 1)])), sent)
