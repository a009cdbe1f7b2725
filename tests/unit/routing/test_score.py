import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.catalogue.entries import Mapping, Model, Prices, Provider, TokenRates
from gateway.providers.protocol import Credential
from gateway.routing.candidates import (
    MIN_OBSERVED_TOKENS,
    OBSERVED,
    HealthFigures,
    TokenMix,
    blend,
    make_candidate,
    observe_mix,
)
from gateway.routing.score import ScoreEntry, penalty, rank, weigh


def entry(provider="a", price=100.0, uptime=100.0, latency=1000.0, throughput=50.0, priority=1.0, source="platform"):
    mapping = Mapping(provider, "m", "m", prices=(Prices(TokenRates(prompt=1, completion=1)),))
    candidate = make_candidate(mapping, Provider(provider, provider, "x", priority=priority), Model("m"), 0)
    return ScoreEntry(candidate, (Credential("", source),), price * 1e9, uptime, latency, throughput)


def scores(entries, strategy="", stream=True):
    return {one.entry.candidate.provider.id: one.score for one in rank(entries, weigh(strategy, stream))}


@pytest.mark.parametrize(
    ("uptime", "expected"), [(100, 0), (95, 0), (90, 0.07), (80, 0.62), (70, 1.73), (50, 5.61), (0, 25.0)]
)
def test_penalty_has_the_documented_values(uptime, expected):
    assert penalty(uptime) == pytest.approx(expected, abs=0.005)


def test_weights_of_a_stream_are_shared_among_four_factors():
    total = 0.6 + 0.5 + 0.05 + 0.025
    assert weigh("", True) == pytest.approx((0.6 / total, 0.5 / total, 0.05 / total, 0.025 / total))


def test_latency_is_dropped_and_its_share_redistributed_without_a_stream():
    assert weigh("auto", False) == pytest.approx((0.6 / 1.15, 0.5 / 1.15, 0.05 / 1.15, 0))


def test_image_price_weighs_more_than_token_price():
    assert weigh("", False, image=True).price == pytest.approx(1.0 / 1.55)


@pytest.mark.parametrize(
    ("strategy", "stream", "expected"),
    [
        ("price", True, (0.9, 0.1, 0, 0)),
        ("throughput", True, (0, 0.1, 0.9, 0)),
        ("latency", True, (0, 0.1, 0, 0.9)),
        ("latency", False, (0, 1, 0, 0)),
    ],
)
def test_strategies_weigh_one_factor_against_uptime(strategy, stream, expected):
    assert weigh(strategy, stream) == pytest.approx(expected)


def test_twice_the_cheapest_price_costs_the_whole_price_weight():
    found = scores([entry("a", price=100), entry("b", price=200)])
    assert found == pytest.approx({"a": 0, "b": 0.6 / 1.175})


def test_an_own_key_comes_before_cheaper_keys_of_the_platform_and_after_fulfilled_preferences():
    entries = [entry("cheap"), entry("own", price=900, source="byok"), entry("dear", price=300)]
    ranked = rank([*entries, entry("unable", source="byok")._replace(lacking=("reasoning",))], weigh("price", True))
    assert [one.candidate.provider.id for one in ranked] == ["own", "cheap", "dear", "unable"]


def test_twice_the_latency_and_half_the_throughput_cost_their_weights():
    found = scores([entry("a"), entry("b", latency=2000), entry("c", throughput=25)])
    assert found == pytest.approx({"a": 0, "b": 0.025 / 1.175, "c": 0.05 / 1.175})


def test_low_uptime_costs_its_ratio_and_the_penalty():
    found = scores([entry("a"), entry("b", uptime=80)])
    assert found["b"] == pytest.approx(0.5 / 1.175 * (100 / 80 - 1) + penalty(80))


def test_missing_priority_is_added():
    assert scores([entry("a", priority=0.8)]) == pytest.approx({"a": 0.2})


def test_penalty_applies_under_a_strategy():
    found = scores([entry("cheap", price=99, uptime=50), entry("sound", price=100)], strategy="price")
    assert found["sound"] < found["cheap"]


def test_free_beats_every_price_and_nothing_divides_by_zero():
    found = rank([entry("paid", price=0.01), entry("free", price=0), entry("dead", price=0, uptime=0)], weigh("", True))
    assert [one.entry.candidate.provider.id for one in found] == ["free", "paid", "dead"]


def test_equal_scores_are_ordered_by_key():
    assert [one.key for one in rank([entry("b"), entry("a"), entry("c")], weigh("", True))] == ["a/m", "b/m", "c/m"]


def test_no_entries_rank_to_nothing():
    assert rank([], weigh("", True)) == []


def test_the_price_of_large_prompts_is_mostly_that_of_input():
    figures = HealthFigures(input=1000, output=5000, cache_read=100, mean=3000, image=0)
    assert blend(figures) == pytest.approx((1000 * 0.9 + 100 * 0.1 + 5000 * 0.2) / 1.2)


def test_an_observed_mix_weighs_the_prices_as_its_tokens_were():
    figures = HealthFigures(input=1000, output=5000, cache_read=100, mean=3000, image=0)
    mix = observe_mix(10 * MIN_OBSERVED_TOKENS, 9 * MIN_OBSERVED_TOKENS, MIN_OBSERVED_TOKENS // 5)
    assert mix == TokenMix(0.9, 0.02, OBSERVED)
    assert blend(figures, mix) == pytest.approx((1000 * 0.1 + 100 * 0.9 + 5000 * 0.02) / 1.02)


def test_few_tokens_are_no_mix():
    assert observe_mix(MIN_OBSERVED_TOKENS - 1, 0, 10**9) is None


def test_prices_without_tokens_are_not_blended():
    assert blend(HealthFigures(0, 0, 0, 77.0, 0)) == 77.0


PERCENT = st.floats(0, 100)
OTHERS = st.lists(st.tuples(st.floats(0, 1000), PERCENT, st.floats(1, 9000), st.floats(1, 500)), min_size=1, max_size=8)


@given(OTHERS, st.floats(0, 1), st.sampled_from(["", "price", "throughput", "latency"]), st.booleans())
def test_a_cheaper_provider_never_ranks_worse(rows, factor, strategy, stream):
    entries = [entry(f"p{n}", *row) for n, row in enumerate(rows)]
    cheaper = [entries[0]._replace(price=entries[0].price * factor), *entries[1:]]
    places = [[one.key for one in rank(group, weigh(strategy, stream))].index("p0/m") for group in (entries, cheaper)]
    assert places[1] <= places[0]


@given(OTHERS, PERCENT)
def test_a_more_reliable_provider_never_ranks_worse(rows, uptime):
    entries = [entry(f"p{n}", *row) for n, row in enumerate(rows)]
    better = [entries[0]._replace(uptime=max(uptime, entries[0].uptime)), *entries[1:]]
    places = [[one.key for one in rank(group, weigh("", True))].index("p0/m") for group in (entries, better)]
    assert places[1] <= places[0]
