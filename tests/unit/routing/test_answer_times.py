"""Usual response times of a model by kind of request."""

import pytest

from gateway.neutral.request import Requirements
from gateway.routing.answer_times import LEAST_SEEN, MOST_KINDS, MOST_SEEN, AnswerTimes

SHORT = Requirements(max_tokens=100, prompt_bytes=50)
LONG = Requirements(max_tokens=16_000, prompt_bytes=50)


def learned(requirements: Requirements, *seconds: float) -> AnswerTimes:
    times = AnswerTimes()
    for one in seconds:
        times.observe(requirements, one)
    return times


def test_no_usual_time_before_enough_responses() -> None:
    times = learned(SHORT, *[1.0] * (LEAST_SEEN - 1))
    assert times.usual_s(SHORT) is None
    times.observe(SHORT, 1.0)
    assert times.usual_s(SHORT) == 1.0


def test_usual_time_covers_99_percent_of_responses() -> None:
    assert learned(SHORT, *[2.0] * 99, 200.0).usual_s(SHORT) == 2.0
    assert learned(SHORT, *[2.0] * 98, 100.0, 200.0).usual_s(SHORT) == pytest.approx(128.0)


@pytest.mark.parametrize("other", [LONG, Requirements(max_tokens=100, prompt_bytes=50, effort="high"), Requirements()])
def test_responses_of_another_size_or_effort_do_not_count(other: Requirements) -> None:
    assert learned(SHORT, *[1.0] * LEAST_SEEN).usual_s(other) is None


def test_old_responses_lose_weight() -> None:
    times = learned(SHORT, *[100.0] * MOST_SEEN)
    for _ in range(8 * MOST_SEEN):
        times.observe(SHORT, 1.0)
    assert times.usual_s(SHORT) == 1.0


def test_a_time_beyond_the_longest_bound_is_not_usual() -> None:
    assert learned(SHORT, *[5_000.0] * LEAST_SEEN).usual_s(SHORT) is None


def test_kinds_are_bounded() -> None:
    times = AnswerTimes()
    for number in range(MOST_KINDS + 1):
        for _ in range(LEAST_SEEN):
            times.observe(Requirements(effort=str(number)), 1.0)
    assert times.usual_s(Requirements(effort="0")) == 1.0
    assert times.usual_s(Requirements(effort=str(MOST_KINDS))) is None
