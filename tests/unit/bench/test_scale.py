"""The simulation of commits on one PostgreSQL server."""

import pytest

from bench import scale
from bench.scale import Costs, draw_count, simulate

COSTS = Costs(commit_s=0.0003, row_s=0.00002, flush_s=0.002)


def test_a_lone_request_waits_for_its_commit_alone():
    made = simulate(rate=1.0, workers=1, cores=1, costs=COSTS, seconds=2_000)
    assert made.rows_a_commit < 1.05
    assert made.wait_ms == pytest.approx(1000 * (COSTS.commit_s + COSTS.row_s + COSTS.flush_s))


def test_a_busy_worker_gathers_the_requests_of_one_commit_in_the_next():
    made = simulate(rate=10_000, workers=2, cores=4, costs=COSTS)
    each = 10_000 / 2
    assert made.rows_a_commit == pytest.approx(each * (COSTS.commit_s + COSTS.flush_s * 1.5), rel=0.5)
    rows = 10_000 * COSTS.row_s
    assert made.cores == pytest.approx(rows + 10_000 / made.rows_a_commit * COSTS.commit_s, rel=0.1)


def test_too_few_cores_make_answers_wait():
    enough = simulate(rate=40_000, workers=16, cores=8, costs=COSTS)
    scarce = simulate(rate=40_000, workers=16, cores=1, costs=COSTS)
    assert scarce.wait_ms > enough.wait_ms


@pytest.mark.parametrize("expected", [0.5, 5, 100])
def test_arrivals_have_their_expected_number(expected):
    chance = scale.random.Random(3)
    drawn = [draw_count(chance, expected) for _ in range(4_000)]
    assert sum(drawn) / len(drawn) == pytest.approx(expected, rel=0.1)
