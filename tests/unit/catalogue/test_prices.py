from datetime import UTC, datetime

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.catalogue.entries import Mapping
from gateway.catalogue.field_checks import read_prices
from gateway.catalogue.prices import COMPONENTS, Charge, cost_of, discounted, highest_rates, price_of, reduced
from gateway.clock import from_datetime
from gateway.money import MAX_CALL_NUSD, MILLION
from gateway.neutral.request import Options, Requirements
from gateway.neutral.units import UNITS
from gateway.neutral.usage import Usage
from gateway.routing.capabilities import read_demand


def priced(prices, **more) -> Mapping:
    return Mapping("p", "m", "m", prices=read_prices(prices), **more)


def at(text: str) -> int:
    return from_datetime(datetime.fromisoformat(text).replace(tzinfo=UTC))


NOON = at("2026-06-01T12:00")
PLAIN = priced({"prompt": "0.000001", "completion": "0.000002"})
FULL = priced(
    {
        "prompt": "0.000003",
        "completion": "0.000015",
        "input_cache_read": "0.0000003",
        "input_cache_write": "0.00000375",
        "input_cache_write_1h": "0.000006",
    }
)
TIERED = priced(
    {
        "prompt": "0.000001",
        "completion": "0.000002",
        "tiers": [{"up_to": 200000}, {"prompt": "0.000004", "completion": "0.000008"}],
    }
)


def test_each_bucket_is_charged_at_its_own_rate():
    usage = Usage(input=100, cache_read=1000, cache_write=10, cache_write_1h=20, output=50)
    charge = cost_of(usage, FULL, NOON)
    assert (charge.input, charge.cached_input, charge.cache_write, charge.cache_write_1h, charge.output) == (
        300_000,
        300_000,
        37_500,
        120_000,
        750_000,
    )
    assert charge.total == 1_507_500


@pytest.mark.parametrize("bucket", ["input", "cache_read", "cache_write", "cache_write_1h", "input_audio"])
def test_input_without_a_separate_rate_costs_the_prompt_rate(bucket):
    assert cost_of(Usage(**{bucket: 7}), PLAIN, NOON).total == 7_000


@pytest.mark.parametrize("bucket", ["output", "output_audio", "output_image"])
def test_output_without_a_separate_rate_costs_the_completion_rate(bucket):
    assert cost_of(Usage(**{bucket: 7}), PLAIN, NOON).total == 14_000


def test_an_hour_long_cache_write_falls_back_to_the_short_one():
    mapping = priced({"prompt": "0.000003", "input_cache_write": "0.00000375"})
    assert cost_of(Usage(cache_write_1h=1000), mapping, NOON).cache_write_1h == 3_750_000


def test_reasoning_is_part_of_the_output_and_not_charged_twice():
    assert cost_of(Usage(output=100, reasoning=60), PLAIN, NOON).total == 200_000


def test_reasoning_with_its_own_rate_is_split_off_the_output():
    mapping = priced({"completion": "0.000002", "internal_reasoning": "0.000003"})
    charge = cost_of(Usage(output=100, reasoning=60), mapping, NOON)
    assert (charge.output, charge.reasoning, charge.total) == (80_000, 180_000, 260_000)


@pytest.mark.parametrize(("tokens", "rate"), [(199_999, 1000), (200_000, 1000), (200_001, 4000)])
def test_the_tier_of_the_whole_request_follows_all_input_tokens(tokens, rate):
    usage = Usage(input=tokens - 1000, cache_read=1000)
    assert cost_of(usage, TIERED, NOON).total == tokens * rate


def test_a_price_change_leaves_requests_before_it_alone():
    mapping = priced([{"prompt": "0.000002"}, {"prompt": "0.000001", "from": "2026-06-01"}])
    before, after = at("2026-05-31T23:59:59"), at("2026-06-01T00:00")
    assert [cost_of(Usage(input=10), mapping, when).total for when in (before, after)] == [20_000, 10_000]


@pytest.mark.parametrize(
    ("clock", "cost"), [("16:29", 2000), ("16:30", 1000), ("23:59", 1000), ("00:29", 1000), ("00:30", 2000)]
)
def test_a_daily_peak_may_span_midnight(clock, cost):
    mapping = priced({"prompt": "0.000002", "peaks": [{"utc": "16:30-00:30", "prompt": "0.000001"}]})
    assert cost_of(Usage(input=1), mapping, at(f"2026-06-01T{clock}")).total == cost


@pytest.mark.parametrize(("thought", "cost"), [(0, 10 * 1_200), (1, 10 * 4_000), (10, 10 * 4_000)])
def test_answers_with_reasoning_may_have_a_separate_price(thought, cost):
    mapping = priced({"prompt": "0.0000004", "completion": "0.0000012", "thinking_completion": "0.000004"})
    charge = cost_of(Usage(output=10, reasoning=thought), mapping, NOON)
    assert (charge.output, charge.reasoning, charge.total) == (cost, 0, cost)
    assert highest_rates(mapping, NOON).output == 4 * 10**9


@pytest.mark.parametrize(
    ("moment", "cost"),
    [
        ("2026-11-20T02:00", 2000),  # a Friday
        ("2026-11-21T02:00", 1000),
        ("2026-11-22T02:00", 1000),
        ("2026-11-23T00:59", 1000),
        ("2026-11-23T01:00", 2000),
        ("2026-11-23T04:00", 1000),
        ("2026-11-24T02:00", 1000),  # a holiday
        ("2026-11-23T23:00", 3000),
        ("2026-11-24T00:29", 3000),  # of the span that began on Monday
        ("2026-11-24T23:00", 1000),
    ],
)
def test_a_peak_of_some_days_leaves_the_others_and_holidays_alone(moment, cost):
    peaks = [
        {"utc": "01:00-04:00", "days": "mon-fri", "except": ["2026-11-24"], "prompt": "0.000002"},
        {"utc": "22:30-00:30", "days": "mon", "prompt": "0.000003"},
    ]
    assert cost_of(Usage(input=1), priced({"prompt": "0.000001", "peaks": peaks}), at(moment)).total == cost


def test_several_service_tiers_at_once_multiply():
    mapping = priced({"prompt": "0.000005", "web_search": "0.01"}, service_tiers={"fast": "2", "us": "1.1"})
    charge = cost_of(Usage(input=3, searches=1), mapping, NOON, service_tier="fast+us")
    assert (charge.input, charge.web_search) == (33_000, 10_000_000)
    assert highest_rates(mapping, NOON, "fast+us").input == 11 * 10**9


def test_each_component_is_rounded_once_and_half_up():
    mapping = priced({"prompt": "0.0000000005", "completion": "0.0000000004"})
    charge = cost_of(Usage(input=1, output=1), mapping, NOON)
    assert (charge.input, charge.output, charge.total) == (1, 0, 1)


def test_a_service_tier_multiplies_token_prices_only():
    mapping = priced({"prompt": "0.000001", "request": "0.01", "web_search": "0.02"}, service_tiers={"priority": "2.5"})
    charge = cost_of(Usage(input=3, searches=2), mapping, NOON, service_tier="priority")
    assert (charge.input, charge.request, charge.web_search) == (7_500, 10_000_000, 40_000_000)


def test_a_multiplier_and_a_price_are_rounded_together_once():
    mapping = priced({"prompt": "0.0000000005"}, service_tiers={"flex": "0.5"})
    assert cost_of(Usage(input=2), mapping, NOON, service_tier="flex").total == 1


@pytest.mark.parametrize("tier", ["", "default", "standard", "never-heard-of"])
def test_the_ordinary_tier_costs_the_listed_price(tier):
    mapping = priced({"prompt": "0.000001"}, service_tiers={"flex": "0.5"})
    assert cost_of(Usage(input=2), mapping, NOON, service_tier=tier).total == 2_000


def test_units_are_charged_by_their_own_prices():
    mapping = priced({"ocr_page": "0.002", "character": "0.000015", "per_second": {"default": "0.4"}})
    charge = cost_of(Usage(pages=3, characters=100, video_ms=2_500), mapping, NOON)
    assert (charge.ocr, charge.characters, charge.video_output) == (6_000_000, 1_500_000, 1_000_000_000)


def test_tools_that_the_provider_ran_are_charged_by_the_call_and_the_container():
    mapping = priced({"prompt": "0", "completion": "0", "file_search": "0.0025", "code_session": "0.03"})
    charge = cost_of(Usage(file_searches=3, code_sessions=2), mapping, NOON)
    assert (charge.file_search, charge.code, charge.total) == (7_500_000, 60_000_000, 67_500_000)


def test_sound_by_the_hour_is_charged_by_its_length_and_not_by_tokens_too():
    mapping = priced({"input_audio_hour": "0.36", "prompt": "0.000001"})
    charge = cost_of(Usage(input_audio=500, audio_ms=60_000), mapping, NOON)
    assert (charge.audio_seconds, charge.total) == (6_000_000, 6_000_000)


def test_an_image_size_without_a_price_costs_the_dearest_listed():
    mapping = priced({"per_image": {"low/1024x1024": "0.01", "high/1024x1024": "0.04"}})
    assert cost_of(Usage(images=2, price_key="ultra/9x9"), mapping, NOON).images == 80_000_000
    assert cost_of(Usage(images=2, price_key="low/1024x1024"), mapping, NOON).images == 20_000_000


def test_an_image_priced_by_the_piece_is_not_charged_by_tokens_too():
    mapping = priced({"completion": "0.00001", "per_image": {"default": "0.04"}})
    assert cost_of(Usage(images=1, output_image=4000), mapping, NOON).total == 40_000_000


def test_an_unpriced_mapping_and_no_usage_cost_nothing():
    assert cost_of(Usage(input=5), Mapping("p", "m", "m"), NOON) == Charge(plain=True)
    assert cost_of(Usage(), FULL, NOON) == Charge(plain=True)


def test_a_charge_is_limited_before_its_discount():
    usage = Usage(output=250_000_000)
    dear = priced({"prompt": "0.0001", "completion": "0.0001"})
    charge, is_capped = price_of(usage, dear, NOON, 500_000)
    assert (charge.total, charge.output, is_capped) == (MAX_CALL_NUSD // 2, MAX_CALL_NUSD // 2, True)
    assert price_of(usage, PLAIN, NOON, 0) == (cost_of(usage, PLAIN, NOON), False)


TEXT = ("input", "cache_read", "cache_write", "output", "reasoning", "basis", "price_key")


@pytest.mark.parametrize("name", [name for name in Usage.__struct_fields__ if name not in TEXT])
def test_a_charge_is_plain_where_nothing_but_text_was_counted_priced_or_not(name):
    assert cost_of(Usage(input=5, cache_read=1, cache_write=1, output=2, reasoning=1), FULL, NOON).plain
    assert not cost_of(Usage(input=5, output=2, **{name: 1}), PLAIN, NOON).plain


def test_a_price_of_the_request_itself_is_not_plain():
    assert not cost_of(Usage(input=5), priced({"request": "0.01"}), NOON).plain


def test_rates_are_steady_without_dates_tiers_and_peaks_only():
    assert PLAIN.steady is PLAIN.prices[0].base
    assert TIERED.steady is None and Mapping("p", "m", "m").steady is None
    assert priced([{"prompt": "0.1"}, {"from": "2026-01-01", "prompt": "0.2"}]).steady is None
    assert priced({"prompt": "0.1", "peaks": [{"utc": "08:00-09:00", "prompt": "0.2"}]}).steady is None


COUNTS = st.integers(0, 300_000)
RATE = st.integers(0, 10**9).map(lambda n: f"{n / 10**15:.15f}")


@st.composite
def mappings(draw):
    names = ["prompt", "completion", "input_cache_read", "input_cache_write_1h", "input_audio", "internal_reasoning"]
    prices = {name: draw(RATE) for name in draw(st.sets(st.sampled_from(names)))}
    kind = draw(st.sampled_from(["plain", "tiers", "peaks"]))
    if kind == "tiers":
        prices["tiers"] = [{"up_to": draw(COUNTS), "prompt": draw(RATE)}, {"completion": draw(RATE)}]
    if kind == "peaks":
        prices["peaks"] = [{"utc": "01:00-04:00", "prompt": draw(RATE)}]
    return priced(prices, service_tiers={"flex": "0.5", "priority": "1.75"})


def bound_of(mapping, input_tokens, output_tokens, service_tier="", media=True, **units):
    """Return the highest cost that admission reserves for such a request."""
    maximum = highest_rates(mapping, NOON, service_tier, media, Usage(**units))
    return maximum.fixed - (-input_tokens * maximum.input // MILLION) - (-output_tokens * maximum.output // MILLION)


@settings(max_examples=4 * settings().max_examples, deadline=None)
@given(mappings(), st.lists(COUNTS, min_size=5, max_size=5), COUNTS, COUNTS, st.sampled_from(["", "flex", "priority"]))
def test_no_real_cost_is_above_the_bound(mapping, parts, output, reasoning, tier):
    usage = Usage(
        input=parts[0],
        cache_read=parts[1],
        cache_write=parts[2],
        cache_write_1h=parts[3],
        input_audio=parts[4],
        output=output,
        reasoning=min(reasoning, output),
        searches=2,
    )
    bound = bound_of(mapping, sum(parts), output, service_tier=tier, searches=2)
    for hour in range(0, 24, 2):
        assert cost_of(usage, mapping, NOON + hour * 3_600_000_000 // 24, service_tier=tier).total <= bound


def test_the_bound_of_a_text_request_leaves_sound_out():
    mapping = priced({"prompt": "0.000001", "input_audio": "0.00004"})
    assert bound_of(mapping, 1000, 0, media=False) < bound_of(mapping, 1000, 0) // 10


def test_the_bound_takes_the_dearest_tier():
    assert bound_of(TIERED, 200_001, 0) >= 200_001 * 4000


@pytest.mark.parametrize(
    ("prices", "units"),
    [
        ({"web_search": "0.01"}, {"searches": 3}),
        ({"ocr_page": "0.001"}, {"pages": 70}),
        ({"character": "0.000015"}, {"characters": 4096}),
        ({"input_audio_hour": "0.36"}, {"audio_ms": 90_000}),
        ({"per_image": {"1024x1024": "0.04", "default": "0.08"}}, {"images": 4, "price_key": "1024x1024"}),
        ({"per_image": {"1024x1024": "0.04"}}, {"images": 4, "price_key": "unknown"}),
        ({"per_second": {"720p": "0.1"}}, {"video_ms": 8000, "price_key": "720p"}),
    ],
)
def test_every_unit_counts_in_the_bound(prices, units):
    mapping = priced(prices)
    real = cost_of(Usage(**units), mapping, NOON).total
    assert 0 < real <= bound_of(mapping, 0, 0, **units) <= real + 16


def test_units_that_share_a_component_are_added():
    each = [unit for unit in UNITS if unit.billed == "each"]
    mapping = priced({unit.price: "0.001" for unit in each})
    charge = cost_of(Usage(**{unit.count: 2 for unit in each}), mapping, NOON)
    assert charge.total == len(each) * 2_000_000
    assert bound_of(mapping, 0, 0, **{unit.count: 2 for unit in each}) >= charge.total


def test_the_bound_of_an_unnamed_size_is_that_of_the_dearest():
    mapping = priced({"per_image": {"low/1024x1024": "0.01", "high/1024x1024": "0.20", "default": "0.04"}})
    assert cost_of(Usage(images=1, price_key="auto/auto"), mapping, NOON).total == 40_000_000
    assert bound_of(mapping, 0, 0, images=1, price_key="auto/auto") >= 200_000_000


def test_the_bound_counts_a_price_that_begins_tomorrow():
    mapping = priced([{"prompt": "0.000001"}, {"prompt": "0.000009", "from": "2026-06-02"}])
    assert bound_of(mapping, 1000, 0) >= 9_000_000


def test_the_bound_of_a_free_model_is_nothing():
    assert bound_of(priced({"prompt": "0", "completion": "0"}), 10**6, 10**6) == 0


def test_a_discount_by_hand():
    # 100 × 3,000 + 3 × 300 + 1 × 3,750 + 7 × 15,000 = 300,000 + 900 + 3,750 + 105,000; a third off each, half up.
    listed = cost_of(Usage(input=100, cache_read=3, cache_write=1, output=7), FULL, NOON)
    less = discounted(listed, 333_333)
    assert (less.input, less.cached_input, less.cache_write, less.output) == (200_000, 600, 2500, 70_000)
    assert (less.total, less.saved, less.discount_ppm) == (273_100, 136_550, 333_333)


@pytest.mark.parametrize(
    ("nusd", "ppm", "left"),
    [
        (1, 500_000, 1),  # a half is rounded up, in the gateway's favour, but never above the list price
        (1, 500_001, 0),
        (3, 500_000, 2),
        (1_000_000, 1, 999_999),
        (10, 200_000, 8),
        (7, 999_999, 0),
        (0, 200_000, 0),
        (2**62, 1, 2**62 - 4_611_686_018_427),
    ],
)
def test_remainders_of_an_amount_are_rounded_half_up(nusd: int, ppm: int, left: int):
    assert reduced(nusd, ppm) == left


AMOUNTS = st.integers(0, 10**15)


@given(st.lists(AMOUNTS, min_size=len(COMPONENTS), max_size=len(COMPONENTS)), st.integers(1, 999_999))
def test_a_discounted_charge_adds_up_and_is_never_above_the_list_price(amounts, ppm):
    listed = Charge(**dict(zip(COMPONENTS, amounts, strict=True)), total=sum(amounts))
    less = discounted(listed, ppm)
    parts = [getattr(less, name) for name in COMPONENTS]
    assert sum(parts) == less.total and less.total + less.saved == listed.total
    assert all(0 <= part <= before for part, before in zip(parts, amounts, strict=True))
    assert abs(less.saved * 10**6 - listed.total * ppm) <= 500_000 * len(COMPONENTS)
    assert discounted(listed, ppm) == less


def test_without_a_discount_a_charge_is_unchanged():
    charge = cost_of(Usage(input=100), FULL, NOON)
    assert discounted(charge, 0) is charge and charge.saved == 0


def test_several_equal_calls_are_priced_as_each_of_them():
    """The tier is that of one prompt, and the price of a request applies to each call."""
    mapping = priced({"prompt": "0.000002", "request": "0.01", "tiers": [{"up_to": 1000}, {"prompt": "0.000004"}]})
    single = cost_of(Usage(input=800), mapping, NOON)
    three = cost_of(Usage(input=2400, calls=3), mapping, NOON)
    assert (three.input, three.request, three.total) == (3 * single.input, 3 * single.request, 3 * single.total)


def test_every_name_of_the_usual_service_tier_is_served_and_billed_as_none() -> None:
    def demand(tier: str) -> object:
        return read_demand(Requirements(), Options(service_tier=tier))

    for tier in ("auto", "default", "standard", "standard_only", "on_demand"):  # of OpenAI, Claude, Gemini and Groq
        assert demand(tier) == demand("")
    assert demand("flex") != demand("")


BATCHED = {"prompt": "0.000003", "completion": "0.000015", "input_cache_read": "0.0000003"}


def test_a_batch_multiplies_every_token_price_and_no_other():
    mapping = priced({**BATCHED, "web_search": "0.01"}, batch_multiplier="0.5")
    usage = Usage(input=1001, cache_read=333, output=777, searches=2)
    listed, batched = cost_of(usage, mapping, NOON), cost_of(usage, mapping, NOON, "batch")
    assert (batched.input, batched.output, batched.cached_input) == (1_501_500, 5_827_500, 49_950)
    assert batched.total == 1_501_500 + 5_827_500 + 49_950 + 20_000_000
    assert listed.total == 2 * (1_501_500 + 5_827_500 + 49_950) + 20_000_000


def test_cached_input_of_a_batch_has_its_own_price_where_its_provider_states_one():
    mapping = priced(BATCHED, batch_multiplier="0.5", batch_cache_multiplier="1")
    charge = cost_of(Usage(input=1000, cache_read=333, output=10), mapping, NOON, "batch")
    assert (charge.input, charge.cached_input, charge.output) == (1_500_000, 99_900, 75_000)
    assert charge.total == 1_674_900
    assert cost_of(Usage(cache_read=333), mapping, NOON).total == 99_900


def test_a_batch_multiplies_the_price_of_a_region_and_of_a_long_prompt():
    mapping = priced(
        {
            "prompt": "0.000001",
            "completion": "0.000002",
            "tiers": [{"up_to": 1000, "prompt": "0.000001"}, {"prompt": "0.000004"}],
        },
        batch_multiplier="0.5",
        service_tiers={"us": "1.1"},
    )
    assert cost_of(Usage(input=1000), mapping, NOON, "batch").total == 500_000
    assert cost_of(Usage(input=2000), mapping, NOON, "batch").total == 4_000_000
    assert cost_of(Usage(input=2000), mapping, NOON, "batch+us").total == 4_400_000


def test_the_bound_of_a_batch_is_that_of_its_price():
    mapping = priced(BATCHED, batch_multiplier="0.5")
    listed, batched = highest_rates(mapping, NOON), highest_rates(mapping, NOON, "batch")
    assert (batched.input, batched.output) == (listed.input // 2, listed.output // 2)


def test_a_model_without_a_batch_price_costs_the_list_price():
    assert cost_of(Usage(input=1000), PLAIN, NOON, "batch") == cost_of(Usage(input=1000), PLAIN, NOON)
