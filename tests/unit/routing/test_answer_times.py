"""Usual response times of a model by kind of request."""

import pytest

from gateway.neutral.request import Requirements
from gateway.routing.answer_times import MAX_KINDS, MAX_SAMPLES, MIN_SAMPLES, AnswerTimes

SHORT = Requirements(max_tokens=100, prompt_bytes=50)
LONG = Requirements(max_tokens=16_000, prompt_bytes=50)


def learned(requirements: Requirements, *seconds: float) -> AnswerTimes:
    times = AnswerTimes()
    for one in seconds:
        times.observe(requirements, one)
    return times


def test_no_usual_time_before_enough_responses() -> None:
    times = learned(SHORT, *[1.0] * (MIN_SAMPLES - 1))
    assert times.typical_s(SHORT) is None
    times.observe(SHORT, 1.0)
    assert times.typical_s(SHORT) == 1.0


def test_usual_time_covers_99_percent_of_responses() -> None:
    assert learned(SHORT, *[2.0] * 99, 200.0).typical_s(SHORT) == 2.0
    assert learned(SHORT, *[2.0] * 98, 100.0, 200.0).typical_s(SHORT) == pytest.approx(128.0)


@pytest.mark.parametrize("other", [LONG, Requirements(max_tokens=100, prompt_bytes=50, effort="high"), Requirements()])
def test_responses_of_another_size_or_effort_do_not_count(other: Requirements) -> None:
    assert learned(SHORT, *[1.0] * MIN_SAMPLES).typical_s(other) is None


def test_old_responses_lose_weight() -> None:
    times = learned(SHORT, *[100.0] * MAX_SAMPLES)
    for _ in range(8 * MAX_SAMPLES):
        times.observe(SHORT, 1.0)
    assert times.typical_s(SHORT) == 1.0


def test_a_time_beyond_the_longest_bound_is_not_usual() -> None:
    assert learned(SHORT, *[5_000.0] * MIN_SAMPLES).typical_s(SHORT) is None


def test_kinds_are_bounded() -> None:
    times = AnswerTimes()
    for number in range(MAX_KINDS + 1):
        for _ in range(MIN_SAMPLES):
            times.observe(Requirements(effort=str(number)), 1.0)
    assert times.typical_s(Requirements(effort="0")) == 1.0
    assert times.typical_s(Requirements(effort=str(MAX_KINDS))) is None
