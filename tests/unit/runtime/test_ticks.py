import time

import pytest

from gateway.runtime.ticks import TICK_S, until_tick


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
