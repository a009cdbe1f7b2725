import pytest

from bench.flat_memory import MAX_GROWTH, Sample, growth_of_last_quarter


def samples_of(*memory: float) -> list[Sample]:
    return [Sample(1000 * (number + 1), value) for number, value in enumerate(memory)]


def test_growth_before_the_third_quarter_does_not_count():
    assert growth_of_last_quarter(samples_of(*range(50, 60), *[100.0] * 10)) == 0


def test_a_leak_is_found_and_returned_pages_are_not_growth():
    leaking = [100 + 0.2 * number for number in range(40)]
    assert growth_of_last_quarter(samples_of(*leaking)) == pytest.approx(0.019, rel=0.1)
    rising = [100 + 0.5 * (number % 10) for number in range(40)]
    assert growth_of_last_quarter(samples_of(*rising)) < MAX_GROWTH
