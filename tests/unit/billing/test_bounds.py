"""The bound of a request is never below what it may really cost."""

from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from gateway.billing.bounds import Bounds, compute_bound
from gateway.billing.unit_estimates import units_at
from gateway.catalogue.entries import Mapping, Peak, Prices, Tier, TokenRates
from gateway.catalogue.prices import cost_of
from gateway.dialects.hosted_tools import tool_uses
from gateway.limits.cost_bound import CostBound
from gateway.money import MILLION
from gateway.neutral.chat import ChatRequest, Requirements
from gateway.neutral.usage import Units, Usage
from gateway.neutral.videos import VideosInput, VideosRequest, units_of

AT_US = 1_780_000_000_000_000
RATE = st.integers(0, 10**11) | st.none()
RATES = st.builds(TokenRates, prompt=RATE, completion=RATE, input_cache_read=RATE, input_cache_write=RATE, request=RATE)
PRICES = st.one_of(
    st.builds(Prices, base=RATES),
    st.builds(lambda a, b: Prices(b, tiers=(Tier(1000, a), Tier(None, b))), RATES, RATES),
    st.builds(lambda a, b: Prices(b, peaks=(Peak(60, 600, a),)), RATES, RATES),
)


def request(prompt_bytes: int, max_tokens: int | None = None, n: int = 1) -> ChatRequest:
    needs = Requirements(prompt_bytes=prompt_bytes, messages=1, max_tokens=max_tokens, n=n)
    return ChatRequest("m", needs, lambda: None)


def bound(bound: object, output: int) -> int:
    return bound.fixed_nusd - (-output * bound.output_rate // MILLION)


@given(
    PRICES,
    st.integers(0, 5000),
    st.integers(0, 5000),
    st.integers(0, 24 * 3600),
    st.sampled_from(["input", "cache_read", "cache_write"]),
)
def test_no_usage_within_the_counts_costs_more_than_the_bound(
    prices: Prices, tokens: int, output: int, second: int, bucket: str
) -> None:
    mapping = Mapping("p", "m", "x", prices=(prices,))
    at_us = AT_US + second * 1_000_000
    cost_bound = compute_bound(request(tokens), (mapping,), 4096, at_us)
    assert cost_of(Usage(**{bucket: tokens}, output=output), mapping, at_us).total <= bound(cost_bound, output)


def test_the_dearest_of_several_providers_counts() -> None:
    cheap = Mapping("a", "m", "x", prices=(Prices(TokenRates(prompt=10**9, completion=10**9)),))
    dear = Mapping("b", "m", "x", prices=(Prices(TokenRates(prompt=5 * 10**9, completion=10**10)),))
    assert compute_bound(request(100), (cheap, dear), 10, AT_US).output_rate >= 10**10


@given(st.lists(PRICES, min_size=1, max_size=4), st.lists(st.integers(0, 5000), min_size=1, max_size=3))
def test_the_bound_of_several_providers_is_the_highest_of_theirs(prices: list[Prices], sizes: list[int]) -> None:
    mappings = tuple(Mapping("p", str(number), "x", prices=(price,)) for number, price in enumerate(prices))
    bounds = Bounds(mappings)
    for size in sizes:
        each = [compute_bound(request(size), (mapping,), 10, AT_US) for mapping in mappings]
        bound = bounds.compute(request(size), 10, AT_US)
        assert bound.fixed_nusd == max(one.fixed_nusd for one in each)
        assert bound.output_rate == max(one.output_rate for one in each)


def test_the_callers_own_limit_counts_for_every_choice() -> None:
    mapping = Mapping("a", "m", "x", prices=(Prices(TokenRates(prompt=1, completion=1)),), max_output=500)
    asked = compute_bound(request(10, max_tokens=20, n=3), (mapping,), 4096, AT_US)
    assert (asked.max_output, asked.explicit, asked.choices) == (60, True, 3)
    assert compute_bound(request(10), (mapping,), 4096, AT_US).max_output == 500


def test_an_unpriced_limit_falls_back_to_the_installations_default() -> None:
    assert compute_bound(request(10), (Mapping("a", "m", "x"),), 4096, AT_US).max_output == 4096


UNIT_PRICES = st.builds(
    TokenRates,
    prompt=RATE,
    completion=RATE,
    request=RATE,
    ocr_page=RATE,
    character=RATE,
    input_audio=RATE,
    input_audio_hour=RATE,
    output_audio=RATE,
    output_image=RATE,
    image=RATE,
    web_search=RATE,
    file_search=RATE,
    code_session=RATE,
    image_tool_output=st.dictionaries(st.sampled_from(["low/1x1", "default"]), st.integers(0, 10**9), min_size=1)
    | st.just({}),
    per_image=st.dictionaries(st.sampled_from(["low/1x1", "high/2x2", "default"]), st.integers(0, 10**11), min_size=1)
    | st.just({}),
)
COUNTS = st.fixed_dictionaries(
    {
        name: st.integers(0, 3000)
        for name in (
            "pages",
            "characters",
            "audio_ms",
            "searches",
            "file_searches",
            "code_sessions",
            "image_tool_output",
            "input_audio",
            "input_image",
            "output_audio",
        )
    }
    | {"images": st.integers(0, 10), "price_key": st.sampled_from(["low/1x1", "high/2x2", "auto/auto"])}
)


@given(
    UNIT_PRICES, COUNTS, st.integers(0, 500), st.dictionaries(st.sampled_from(["low/1x1", "x"]), st.integers(1, 9000))
)
def test_no_use_of_any_unit_costs_more_than_the_bound_of_its_operation(
    rates: TokenRates, counts: dict, text: int, tokens: dict
) -> None:
    mapping = Mapping("p", "m", "x", prices=(Prices(rates),), image_tokens=tokens)
    maximum = Usage(**counts)
    needs = Requirements(prompt_bytes=text, messages=1, units=Units(maximum, maximum))
    bound = Bounds((mapping,)).compute(ChatRequest("m", needs, lambda: None), 4096, AT_US)
    used = units_at(mapping, structs.replace(maximum, input=text))
    assert cost_of(used, mapping, AT_US).total <= bound.bound_nusd
    assert bound.bound_nusd == bound.min_nusd


def bound_with(tools: list[dict], rates: TokenRates, **more) -> CostBound:
    """The bound of a request of the Responses API with these tools."""
    uses = tuple(use for tool in tools for use in tool_uses("responses", tool["type"], tool))
    needs = Requirements(hosted="responses" if tools else "", hosted_uses=uses, **more)
    return Bounds((Mapping("p", "m", "x", prices=(Prices(rates),)),)).compute(
        ChatRequest("m", needs, lambda: None), 4096, AT_US
    )


def test_tools_that_the_provider_may_run_are_reserved_for() -> None:
    rates = TokenRates(prompt=0, completion=0, file_search=2_500_000 * 10**6, code_session=30_000_000 * 10**6)
    code = {"type": "code_interpreter", "container": {"type": "auto"}}
    assert bound_with([], rates).bound_nusd == 0
    assert bound_with([{"type": "file_search"}, code], rates).bound_nusd >= 5 * 2_500_000 + 30_000_000
    code["container"]["memory_limit"] = "64g"
    assert bound_with([code], rates).bound_nusd >= 64 * 30_000_000
    assert bound_with([code | {"container": "cntr_1"}], rates).bound_nusd >= 64 * 30_000_000


def test_the_calls_of_a_further_model_are_reserved_at_its_price() -> None:
    uses = tuple(tool_uses("anthropic", "advisor_20260301", {"model": "dear-20260205", "max_tokens": 1000}))
    tables = {"cheap": 10**9, "dear": 50 * 10**9}
    rates = TokenRates(prompt=10**9, completion=10**9, tool_model_cache_write_1h=tables, tool_model_output=tables)
    needs = Requirements(prompt_bytes=10_000, max_tokens=100, hosted_uses=uses)
    mapping = Mapping("p", "m", "x", prices=(Prices(rates),), context_length=200_000, max_output=4_000)
    bound = Bounds((mapping,)).compute(ChatRequest("m", needs, lambda: None), 4096, AT_US)
    assert bound.bound_nusd >= 3 * (11_000 + 1_000) * 50_000
    assert bound.min_nusd < bound.bound_nusd / 100  # a budget without room for it admits one such request at a time


def test_the_prompt_is_reserved_for_each_of_several_calls() -> None:
    rates = TokenRates(prompt=MILLION, request=MILLION)
    one_a_call = Mapping("p", "m", "m", prices=(Prices(rates),))
    all_in_one = Mapping("p", "m", "m", prices=(Prices(rates),), supports_n=True)
    single = compute_bound(request(1000, 10), (one_a_call,), 0, 0)
    assert compute_bound(request(1000, 10, n=3), (one_a_call,), 0, 0).fixed_nusd == 3 * single.fixed_nusd
    assert compute_bound(request(1000, 10, n=3), (all_in_one,), 0, 0).fixed_nusd == single.fixed_nusd
    assert compute_bound(request(1000, 10, n=3), (all_in_one, one_a_call), 0, 0).fixed_nusd == 3 * single.fixed_nusd


def test_the_bound_of_a_video_uses_its_length_at_any_supporting_mapping() -> None:
    def mapping_at(provider: str, cents: int, *durations: int) -> Mapping:
        rates = TokenRates(per_second={"default": cents * 10**7 * MILLION})
        return Mapping(provider, "m", "m", prices=(Prices(rates),), operations=("videos",), video_durations=durations)

    video = VideosInput("a cat", seconds=8)
    asked = VideosRequest("m", Requirements(units=units_of(video)), lambda: video)
    shorter = mapping_at("shorter", 90, 4)  # does not support eight seconds
    places = (mapping_at("cheap", 10, 8), mapping_at("dear", 20, 4, 8), shorter)
    assert 0 <= compute_bound(asked, places, 0, 0).bound_nusd - 8 * 20 * 10**7 <= 32
    assert compute_bound(asked, (shorter,), 0, 0).bound_nusd == 0
