"""Explained decisions equal the actual ones in ten thousand seeded markets, and stored decisions stay small."""

import json
import random
from functools import partial

import pytest
from support.steps import count_steps

from gateway.errors import ConnectFailed, GatewayError, UpstreamFailed, UpstreamRateLimited, UpstreamRefused
from gateway.neutral.chat import Options, Requirements
from gateway.routing.candidate_filter import BUDGET, PAYMENT, STAGES, Excluded
from gateway.routing.record import pack, unpack, write_record

CASES, MARKETS = 10_000, 100
STRATEGIES = ("", "", "", "auto", "price", "throughput", "latency")
FAULTS = (
    UpstreamFailed("it failed"),
    ConnectFailed("nobody"),
    UpstreamRateLimited("slow down"),
    UpstreamRefused("no such file", upstream_status=404),
)
ORGANIZATIONS = ("one", "two", "three")
ASKED = ("m", "m", "m", "p0/m", "p1/m", "p2/m:r2", "auto", "nick")


def make_market(roll, world, mapping):
    rows = []
    for number in range(roll.randint(2, 9)):
        more = {"tools": roll.random() < 0.7, "vision": roll.random() < 0.6, "streaming": roll.random() < 0.9}
        rows.append(mapping(f"p{number}", price=roll.randint(1, 10**10), context_length=128_000, **more))
        if roll.random() < 0.3:
            rows.append(mapping(f"p{number}", price=roll.randint(1, 10**10), region=f"r{number}", **more))
    made = world(*rows, providers={"p0": {"priority": roll.choice([0.0, 0.5, 1.0])}})
    made.keys["p3"] = ()
    for row in rows:
        for _ in range(roll.randint(0, 12)):
            error = roll.choice(FAULTS) if roll.random() < 0.2 else None
            key = made.keys[row.provider][0] if made.keys[row.provider] else None
            whose = roll.choice(ORGANIZATIONS[:2])
            facts = {"ttft_ms": roll.random() * 3000, "tokens": 50, "duration_ms": 900, "organization": whose}
            made.health.sample(row, key, error=error, **facts)
    return made


def make_ask(roll):
    needs = Requirements(
        stream=roll.random() < 0.5,
        tools=roll.random() < 0.3,
        vision=roll.random() < 0.2,
        prompt_bytes=roll.choice([10, 400, 30_000]),
        max_tokens=roll.choice([None, 10, 4000]),
    )
    return roll.choice(ASKED), needs, Options(routing=roll.choice(STRATEGIES))


def outcome(step, *args, **more):
    """Return the first target and the order, or the error message."""
    try:
        found = step(*args, **more)
    except GatewayError as error:
        return error.message
    if isinstance(found, dict):
        return found["order"], found["selectedProvider"], found["selectionReason"]
    return [one.key for one in found.order], found.first.candidate.provider.id, found.reason


def explain(made, *args, **more):
    return write_record(made.plan(*args, explore=0.0, **more))


@pytest.mark.extended
@pytest.mark.slow
def test_an_explanation_equals_the_provider_really_chosen_in_ten_thousand_cases(make_world, mapping):
    roll, served = random.Random(20_260_101), 0
    for _ in range(MARKETS):
        market = make_market(roll, make_world, mapping)
        for _ in range(CASES // MARKETS):
            asked, needs, options = make_ask(roll)
            more = {
                "session": roll.choice(["", "", "s", "t"]),
                "no_fallback": roll.random() < 0.1,
                "organization": roll.choice(ORGANIZATIONS),
            }
            explained = outcome(explain, market, asked, needs, options, **more)
            assert outcome(market.plan, asked, needs, options, **more) == explained
            if isinstance(explained, tuple):
                plan = market.plan(asked, needs, options, **more)
                market.router.served(plan, roll.choice(plan.order))
                served += 1
    assert served > CASES // 2


def keys_of(made, mapping):
    return made.keys[mapping.provider]


def allow(mapping, provider):
    return None


def test_the_fast_path_of_the_filter_equals_the_full_checks(make_world, mapping):
    roll = random.Random(7)
    for _ in range(50):
        market = make_market(roll, make_world, mapping)
        ask, usable = ("m", make_ask(roll)[1], Options()), partial(keys_of, market)
        short = outcome(market.router.plan, *ask, None, usable)
        assert outcome(market.router.plan, *ask, allow, usable) == short


def test_a_kept_decision_reads_back_as_it_was_explained(make_world, mapping):
    roll = random.Random(3)
    for _ in range(50):
        market = make_market(roll, make_world, mapping)
        try:
            plan = market.plan("m", Requirements(stream=True))
        except GatewayError:
            continue
        assert unpack(json.loads(json.dumps(pack(plan)))) == json.loads(json.dumps(write_record(plan)))


def test_the_stage_of_each_excluded_provider_is_stored_also_that_of_a_spent_budget(make_world, mapping):
    plan = make_world(mapping("a")).plan()
    excluded = [Excluded("a/m", stage, "a reason", plan.order[0].candidate) for stage in STAGES]
    stored = unpack(json.loads(json.dumps(pack(plan._replace(excluded=excluded)))))
    assert [candidate["stage"] for candidate in stored["excluded"]] == list(STAGES)
    assert STAGES[7:] == (BUDGET, PAYMENT)  # stored decisions refer to them by position


def test_a_decision_among_four_providers_and_five_without_a_key_stays_below_300_bytes(make_world, mapping):
    names = [
        "openai",
        "azure",
        "groq",
        "deepinfra",
        "novita",
        "cerebras",
        "together",
        "parasail",
        "nebius",
        "fireworks",
    ]
    rows = [mapping(name, model="gpt-oss-120b", price=10**8 * (n + 1)) for n, name in enumerate(names)]
    world = make_world(*rows)
    world.keys |= {name: () for name in names[4:]}
    for row in rows[:4]:
        for _ in range(5):
            world.health.sample(row, world.keys[row.provider][0], ttft_ms=312, tokens=80, duration_ms=700)
    packed = pack(world.plan("gpt-oss-120b", Requirements(stream=True)))
    assert len(json.dumps(packed, separators=(",", ":"))) < 300


def test_a_decision_of_another_release_is_not_guessed_at(make_world, mapping):
    packed = pack(make_world(mapping("a")).plan())
    with pytest.raises(ValueError, match="another release"):
        unpack([99, *packed[1:]])


def test_packing_a_decision_is_cheap(make_world, mapping):
    plan = make_world(*(mapping(f"p{n}", price=10**9 + n) for n in range(10))).plan()
    assert count_steps(lambda: pack(plan)) < 400
