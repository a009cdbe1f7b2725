import pytest

from bench.flat_memory import MOST_GROWTH, Sample, growth_of_last_quarter


def samples_of(*memory: float) -> list[Sample]:
    return [Sample(1000 * (number + 1), value) for number, value in enumerate(memory)]


def test_growth_before_the_last_quarter_does_not_count():
    assert growth_of_last_quarter(samples_of(*range(50, 64), 100, 100, 100, 100, 100, 100)) == 0


def test_a_leak_in_the_last_quarter_is_found_and_one_slice_with_garbage_is_not():
    steady = [100.0] * 30
    leaking = [*steady, *(100 + 0.4 * number for number in range(10))]
    assert growth_of_last_quarter(samples_of(*leaking)) == pytest.approx(0.036, rel=0.2)
    assert growth_of_last_quarter(samples_of(*steady, *[100.0] * 5, 104.0, *[100.0] * 4)) < MOST_GROWTH
