"""How long a plain answer is waited for while another provider could give it."""

import math
import random

import pytest
from support.engine_runs import target_at

from gateway.engine.planning import ANSWER_TIME_FACTOR, MIN_TIMEOUT_S, SLOW, Planner
from gateway.metering.counters import Counters
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.request import Requirements
from gateway.routing.answer_times import MIN_SAMPLES
from gateway.routing.provider_health import Health

FIRST_BYTE_S = 30.0
NORTH, SOUTH = target_at("north"), target_at("south")


@pytest.fixture
def planner(clock, tmp_path) -> Planner:
    return Planner(None, None, Health(clock), Counters(tmp_path), None, None, None, None, None)


def request_of(max_tokens: int | None = None) -> EmbeddingsRequest:
    return EmbeddingsRequest(
        "m", Requirements(max_tokens=max_tokens, prompt_bytes=9), lambda: EmbeddingsInput(("one",))
    )


def learn(planner: Planner, max_tokens: int | None, *seconds: float) -> None:
    for duration_s in seconds:
        planner.answered(NORTH, request_of(max_tokens), duration_s)


def test_an_unknown_model_has_the_time_that_a_slow_one_needs_for_its_longest_answer(planner):
    assert planner.timeout_s(NORTH, request_of(100), FIRST_BYTE_S) == FIRST_BYTE_S + 100 / SLOW


def test_an_answer_of_which_neither_times_nor_a_limit_are_known_is_waited_for(planner):
    assert planner.timeout_s(NORTH, request_of(), FIRST_BYTE_S) == math.inf


def test_a_known_model_reserves_a_few_times_its_usual_answer(planner):
    learn(planner, 100, *[16.0] * MIN_SAMPLES)
    assert planner.timeout_s(NORTH, request_of(100), FIRST_BYTE_S) == ANSWER_TIME_FACTOR * 16.0
    assert planner.timeout_s(SOUTH, request_of(100), FIRST_BYTE_S) == FIRST_BYTE_S + 100 / SLOW


def test_a_fast_model_is_not_left_for_a_short_hiccup(planner):
    learn(planner, 100, *[0.4] * MIN_SAMPLES)
    assert planner.timeout_s(NORTH, request_of(100), FIRST_BYTE_S) == MIN_TIMEOUT_S


def test_a_long_answer_is_not_left_by_the_times_of_short_ones(planner):
    learn(planner, 100, *[0.4] * MIN_SAMPLES)
    learn(planner, 16_000, *[64.0] * MIN_SAMPLES)
    assert planner.timeout_s(NORTH, request_of(16_000), FIRST_BYTE_S) == ANSWER_TIME_FACTOR * 64.0


@pytest.mark.parametrize("spread", [0.3, 0.7, 1.2], ids=["even", "usual", "wide"])
def test_few_responses_of_a_healthy_provider_are_abandoned_and_paid_twice(planner, spread):
    dice = random.Random(1)
    request, left = request_of(100), 0
    for _ in range(5_000):
        took_s = dice.lognormvariate(math.log(4.0), spread)
        if took_s > planner.timeout_s(NORTH, request, FIRST_BYTE_S):
            left += 1
        planner.answered(NORTH, request, took_s)
    assert left / 5_000 < 0.002
