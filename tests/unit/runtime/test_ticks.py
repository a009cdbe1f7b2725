import time

import pytest

from gateway.runtime.ticks import RESTING_TICK_S, TICK_S, rest, until_tick


@pytest.mark.parametrize("every_s", [TICK_S, 2 * TICK_S, 8 * TICK_S])
def test_a_loop_waits_for_a_tick_that_all_loops_share(every_s: float, monkeypatch: pytest.MonkeyPatch) -> None:
    moments = [1000.0 + number * 0.0371 for number in range(200)]
    ticks = []
    for moment in moments:
        monkeypatch.setattr(time, "monotonic", lambda moment=moment: moment)
        wait_s = until_tick(every_s)
        assert every_s / 2 <= wait_s <= every_s * 1.5
        ticks.append(moment + wait_s)
    monkeypatch.setattr(time, "monotonic", lambda: 500.0)
    first = 500.0 + until_tick()
    assert all(abs((tick - first + TICK_S / 2) % TICK_S - TICK_S / 2) < 1e-6 for tick in ticks)


def test_loops_wait_for_rarer_ticks_while_the_process_rests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 500.0)
    to_tick_s = until_tick(RESTING_TICK_S)
    assert until_tick() < RESTING_TICK_S / 2
    rest(True)
    try:
        assert until_tick() == until_tick(3 * TICK_S) == to_tick_s  # loops with different intervals share a tick
        assert until_tick(resting_s=TICK_S) < RESTING_TICK_S / 2
        assert until_tick(8 * TICK_S) >= 4 * TICK_S  # a longer interval stays
    finally:
        rest(False)
    assert until_tick() < RESTING_TICK_S / 2
