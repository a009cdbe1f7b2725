"""Estimated usage: the prompt with its media, hidden reasoning, and the limit of the reservation."""

from dataclasses import replace

import pytest
from support.billing import DOLLAR, admission_of, attempt_at, target

from gateway.billing.context import terms_of
from gateway.billing.estimates import estimate, learn_speed
from gateway.catalogue.prices import cost_of
from gateway.errors import Cancelled, StreamTruncated
from gateway.limits.cost_bound import CostBound
from gateway.money import MILLION
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.neutral.request import Requirements
from gateway.neutral.usage import Usage


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return started


def reasoning_target(**more):
    place = target()
    return replace(place, mapping=replace(place.mapping, reasoning=True, **more))


def request_of(account, **needs):
    """A context of a request with these requirements."""
    context = account.context()
    requirements = Requirements(stream=True, messages=1, prompt_bytes=400, **needs)
    context.request = ChatRequest("m", requirements, lambda: Conversation(()))
    return context


def terms_asked(account, **requirements):
    context = request_of(account, **requirements)
    return terms_of(context, context.request)


def left(place, **facts):
    return attempt_at(place, error=Cancelled("gone"), finish="client_disconnect", **facts)


def test_the_media_of_the_prompt_count(account):
    """A prompt of 1,000 pages was estimated by its text alone."""
    terms = terms_asked(account, media=1, media_tokens=5_000_000, likely_media_tokens=780_000)
    used = estimate(terms, left(target(), output_length=40))
    assert (used.input, used.output, used.basis) == (780_100, 10, "estimated")


def test_what_a_stream_reported_before_its_caller_left_counts(account):
    """Hidden reasoning and media that each event reports were estimated by the visible text."""
    terms = terms_asked(account)
    reported = Usage(input=1_400, output=900, reasoning=880)
    used = estimate(terms, left(target(), output_length=40, used=lambda: reported))
    assert used == reported
    assert estimate(terms, left(target(), output_length=40, used=lambda: None)).basis == "estimated"


@pytest.mark.parametrize(
    ("efforts", "needs", "thought"),
    [
        ((), {}, 5_000),
        ((), {"effort": "none"}, 0),
        (("none", "low", "high"), {}, 0),
        (("none", "low", "high"), {"effort": "high", "reasoning": True}, 5_000),
    ],
)
def test_hidden_reasoning_counts_by_the_time_before_the_first_content(account, efforts, needs, thought):
    """102 seconds: 50 tokens for each beyond the first two."""
    terms = terms_asked(account, **needs)
    attempt = left(reasoning_target(reasoning_efforts=efforts), output_length=40, first_at=102.0)
    used = estimate(terms, attempt)
    assert (used.output, used.reasoning) == (10 + thought, thought)


def test_hidden_reasoning_counts_at_the_speed_of_the_target(account):
    """A model that writes 250 tokens a second was billed a fifth of its hidden reasoning."""
    terms = terms_asked(account)
    place = reasoning_target()
    for _ in range(2):
        measured = attempt_at(place)
        measured.ended = measured.started + 10.0
        learn_speed(measured, Usage(output=2_500, reasoning=2_000))
    used = estimate(terms, left(place, output_length=40, first_at=102.0))
    assert (used.output, used.reasoning) == (10 + 25_000, 25_000)


def test_reported_counts_stand_and_missing_ones_are_estimated(account):
    terms = terms_asked(account)
    assert estimate(terms, left(target(), output_length=40, usage=Usage(input=7, output=50))) == Usage(
        input=7, output=50
    )
    used = estimate(terms, left(target(), output_length=400, usage=Usage(output=3)))
    assert (used.input, used.output, used.basis) == (100, 100, "estimated")


@pytest.mark.parametrize("error", [Cancelled("gone"), StreamTruncated("cut")])
def test_an_estimate_never_passes_the_reservation(process, account, error):
    settlement = process.admit(account, cost_bound=CostBound(100_000, 2000 * MILLION, 100, True))
    settlement.begin(0, target())
    finish = "client_disconnect" if isinstance(error, Cancelled) else "error"
    attempt = attempt_at(target(), error=error, finish=finish, output_length=1_000_000, first_at=1.0)
    settlement.abandon(attempt)
    settlement.close()
    process.rest()
    (row,) = process.rows()
    assert 290_000 <= row.cost_nusd <= 300_000 and not attempt.overrun
    assert row.cost_nusd == cost_of(attempt.usage, target().mapping, 0).total


def test_a_killed_worker_bills_the_media_of_the_prompt(process, account):
    context = request_of(account, media=1, likely_media_tokens=1_000)
    bound = CostBound(10_000_000, 2000 * MILLION, 100, True)
    settlement = process.settlements.admit(admission_of(context, bound))
    settlement.begin(0, target())
    process.context = context
    process.die()
    process.recovery.run()
    (row,) = process.rows()
    assert (row.finish, row.input, row.cost_nusd) == ("interrupted", 1_100, 1_100_000)
