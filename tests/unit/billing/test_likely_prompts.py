"""The likely cost of large prompts, and limits that reserve it."""

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from gateway.billing.bounds import compute_bound
from gateway.billing.likely_prompts import LARGE_BYTES, LikelyPrompts
from gateway.callers.credential_sources import OWN_SOURCE, PLATFORM_SOURCE
from gateway.catalogue.entries import Mapping, Prices, Tier, TokenRates
from gateway.catalogue.prices import cost_of
from gateway.limits.cost_bound import CostBound, fit_modes
from gateway.money import NANO
from gateway.neutral.chat import ChatRequest, Requirements
from gateway.neutral.usage import Usage

AT_US = 1_780_000_000_000_000
USUAL = TokenRates(
    prompt=3 * NANO,
    completion=15 * NANO,
    input_cache_read=3 * NANO // 10,
    input_cache_write=15 * NANO // 4,
    input_cache_write_1h=6 * NANO,
)
LONG = TokenRates(
    prompt=6 * NANO,
    completion=45 * NANO // 2,
    input_cache_read=6 * NANO // 10,
    input_cache_write=15 * NANO // 2,
    input_cache_write_1h=12 * NANO,
)
SONNET = Mapping(
    "anthropic",
    "sonnet",
    "x",
    prices=(Prices(LONG, tiers=(Tier(200_000, USUAL), Tier(None, LONG))),),
    max_output=64_000,
)
BYTES = 200_000
TOKENS = 52_000  # of 200 KB of source code


def chat(size: int = BYTES, max_tokens: int | None = 32_000, **more: object) -> ChatRequest:
    return ChatRequest(
        "m", Requirements(prompt_bytes=size, messages=60, tools=True, max_tokens=max_tokens, **more), None
    )


def context(
    session: str = "", started: float = 0.0, organization: str = "org", request: str = "r", marks: str = "client"
) -> SimpleNamespace:
    caller = SimpleNamespace(project_id=f"project of {organization}", organization_id=organization, cache_markers=marks)
    return SimpleNamespace(caller=caller, session=session, started=started, at_us=AT_US, request_id=request)


def settled(usage: Usage, ended: float = 0.0, source: str = PLATFORM_SOURCE) -> SimpleNamespace:
    target = SimpleNamespace(mapping=SONNET, credential=SimpleNamespace(source=source))
    return SimpleNamespace(target=target, usage=usage, ended=ended)


def exact(request: ChatRequest) -> CostBound:
    return compute_bound(request, (SONNET,), 4096, AT_US)


def likely_cost(
    prompts: LikelyPrompts, request: ChatRequest, session: str = "", started: float = 0.0, organization: str = "org"
) -> int:
    bound = prompts.apply(context(session, started, organization), request, exact(request), (SONNET,))
    return bound.fixed_nusd - bound.unlikely_nusd


def test_the_likely_cost_of_an_unknown_prompt_is_between_its_cost_and_the_bound() -> None:
    request = chat()
    likely = likely_cost(LikelyPrompts(), request)
    assert cost_of(Usage(cache_write=TOKENS), SONNET, AT_US).total < likely < exact(request).fixed_nusd / 3


def test_measured_prompts_lower_the_likely_cost_and_never_below_what_they_cost() -> None:
    prompts = LikelyPrompts()
    before = likely_cost(prompts, chat())
    for _ in range(5):
        prompts.learn(context(), chat(), settled(Usage(cache_write=TOKENS)))
    after = likely_cost(prompts, chat())
    assert cost_of(Usage(cache_write=TOKENS), SONNET, AT_US).total < after < before / 2
    prompts.learn(context(), chat(), settled(Usage(cache_write_1h=TOKENS)))
    assert cost_of(Usage(cache_write_1h=TOKENS), SONNET, AT_US).total < likely_cost(prompts, chat()) < before


def test_what_the_provider_has_in_its_cache_costs_a_tenth_within_its_lifetime() -> None:
    prompts = LikelyPrompts()
    for _ in range(3):
        prompts.learn(context("s"), chat(), settled(Usage(cache_read=TOKENS - 2000, cache_write=2000)))
    likely = likely_cost(prompts, chat(BYTES + 4000), "s", 10.0)
    cost = cost_of(Usage(cache_read=TOKENS, cache_write=1000), SONNET, AT_US).total
    assert cost < likely < 10 * cost
    assert likely_cost(prompts, chat(BYTES + 4000), "s", 1000.0) > 2 * likely
    assert likely_cost(prompts, chat(BYTES + 4000), "another", 10.0) > 2 * likely
    assert likely_cost(prompts, chat(BYTES // 2), "s", 10.0) > likely  # another conversation


@pytest.mark.parametrize("size", [BYTES, BYTES + 4000])
def test_prompt_of_a_new_conversation_is_reserved_for_added_marks_of_an_hour(size: int) -> None:
    prompts = LikelyPrompts()
    for _ in range(5):
        prompts.learn(context("s"), chat(BYTES + 2000), settled(Usage(cache_write=TOKENS)))
    # A new session, and a shorter prompt in a known one, such as that of a sub-agent.
    new = context("s" if size == BYTES else "new", marks="automatic")
    bound = prompts.apply(new, chat(size), exact(chat(size)), (SONNET,))
    assert bound.fixed_nusd - bound.unlikely_nusd > cost_of(Usage(cache_write_1h=TOKENS), SONNET, AT_US).total
    assert likely_cost(prompts, chat(size), "new") < bound.fixed_nusd - bound.unlikely_nusd


def session_in_cache() -> LikelyPrompts:
    """Measurements of a session whose last prompt is in the provider's cache."""
    prompts = LikelyPrompts()
    for _ in range(3):
        prompts.learn(context("s"), chat(), settled(Usage(cache_read=TOKENS - 2000, cache_write=2000)))
    return prompts


def admitted_cost(prompts: LikelyPrompts, number: int, session: str = "s") -> int:
    """What a limit reserves for one of several requests in progress."""
    request, started = chat(), context(session, 10.0, request=str(number))
    bound = prompts.apply(started, request, exact(request), (SONNET,))
    prompts.rely(started, (SONNET,))
    return bound.fixed_nusd - bound.unlikely_nusd


def test_parallel_requests_of_a_session_exceed_a_limit_by_the_cached_share_of_one() -> None:
    """Each of them believed that the provider had the prompt in its cache: twenty at once cost ten times as much as a
    limit had reserved for them."""
    prompts = session_in_cache()
    reserved = [admitted_cost(prompts, number) for number in range(20)]
    uncached = cost_of(Usage(cache_write=TOKENS), SONNET, AT_US).total
    assert reserved[0] < uncached / 3
    assert sum(reserved) >= 19 * uncached


@pytest.mark.parametrize("end", ["learned", "learned without usage", "released"])
def test_the_next_request_relies_on_the_cache_when_the_one_before_it_has_ended(end: str) -> None:
    prompts = session_in_cache()
    first = admitted_cost(prompts, 1)
    assert admitted_cost(prompts, 2) > 3 * first
    one, other = context("s", request="1"), context("s", request="2")
    prompts.release(other)  # it relies on nothing
    assert admitted_cost(prompts, 3) > 3 * first
    if end == "released":
        prompts.release(one)
    else:
        usage = Usage(cache_read=TOKENS) if end == "learned" else None
        prompts.learn(one, chat(), settled(usage))
    assert admitted_cost(prompts, 4) <= first
    assert admitted_cost(prompts, 5) > 3 * first


def test_sessions_rely_on_their_own_turns() -> None:
    prompts = session_in_cache()
    prompts.learn(context("other"), chat(), settled(Usage(cache_read=TOKENS - 2000, cache_write=2000)))
    assert admitted_cost(prompts, 1) == admitted_cost(prompts, 2, "other")


@pytest.mark.parametrize("reported", [1, TOKENS // 10, BYTES, 200_000_000])
def test_answers_at_own_provider_keys_change_nothing_for_other_organizations(reported: int) -> None:
    prompts = LikelyPrompts()
    for _ in range(3):
        prompts.learn(context(), chat(), settled(Usage(input=TOKENS)))
    before = likely_cost(prompts, chat(), organization="other")
    for _ in range(500):
        prompts.learn(context(organization="hostile"), chat(), settled(Usage(input=reported), source=OWN_SOURCE))
    assert likely_cost(prompts, chat(), organization="other") == before
    assert likely_cost(prompts, chat(), organization="hostile") >= before  # for platform keys it is as measured there


def test_organization_with_own_provider_keys_alone_has_its_own_measurements() -> None:
    prompts = LikelyPrompts()
    before = likely_cost(prompts, chat())
    for _ in range(3):
        prompts.learn(context(), chat(), settled(Usage(input=TOKENS), source=OWN_SOURCE))
    assert likely_cost(prompts, chat()) < before == likely_cost(prompts, chat(), organization="other")


@pytest.mark.parametrize("session", ["", "s"])
def test_prompts_of_blanks_make_dense_prompts_little_cheaper_than_usual_text(session: str) -> None:
    prompts = LikelyPrompts()
    for _ in range(500):
        prompts.learn(context(session), chat(), settled(Usage(input=BYTES // 100)))
    assert likely_cost(prompts, chat(), session) >= cost_of(Usage(input=BYTES // 6), SONNET, AT_US).total


@pytest.mark.parametrize("more", [{"n": 2}, {"web_search": True}, {"unseen_media": 1}, {"hosted": "web_search"}])
def test_a_prompt_that_only_the_provider_sees_has_no_likely_cost(more: dict) -> None:
    request = chat(**more)
    assert LikelyPrompts().apply(context(), request, exact(request), (SONNET,)).unlikely_nusd == 0


@given(st.integers(LARGE_BYTES, 2_000_000), st.integers(0, 2_000_000), st.integers(0, 40))
def test_the_likely_cost_is_never_above_the_bound(size: int, cached: int, media: int) -> None:
    prompts = LikelyPrompts()
    request = chat(size, media=media, media_tokens=media * 1500)
    for _ in range(4):
        prompts.learn(context("s"), request, settled(Usage(input=size, cache_read=cached)))
    bound = prompts.apply(context("s"), request, exact(request), (SONNET,))
    assert 0 <= bound.unlikely_nusd <= bound.fixed_nusd


@given(
    st.integers(0, 10**10),
    st.integers(0, 10**10),
    st.integers(0, 10**10),
    st.integers(0, 10**12),
    st.integers(0, 10**5),
    st.booleans(),
)
def test_a_likely_limit_is_exceeded_by_no_more_than_the_unlikely_part(
    left: int, fixed: int, unlikely: int, rate: int, output: int, explicit: bool
) -> None:
    """The cost of an admitted request is at most the amount; the limit had all of it but the unlikely part."""
    bound = CostBound(fixed, rate, output, explicit, unlikely_nusd=min(unlikely, fixed))
    size = fit_modes(bound, None, left, True)
    if size is not None:
        assert size.amount_nusd - bound.unlikely_nusd <= left or not size.amount_nusd
        tokens = output if size.output_cap is None else size.output_cap
        assert bound.priced(tokens) <= size.amount_nusd
    both = fit_modes(bound, left, left, True)
    if both is not None and both.amount_nusd:
        assert both.amount_nusd <= left


def test_an_agents_day_of_a_dollar_eighty_fits_a_key_of_two_dollars() -> None:
    """Turns of 200 KB, mostly read from the cache, each within what its limit has left."""
    prompts = LikelyPrompts()
    limit = 2 * NANO
    spent = turns = 0
    size = BYTES
    session = 0
    now = 0.0
    while spent < 1.8 * NANO:
        cached = TOKENS if turns % 20 else 0  # a new session each twenty turns
        session += not cached
        request = chat(size)
        bound = prompts.apply(context(f"s{session}", now), request, exact(request), (SONNET,))
        need = fit_modes(bound, 100 * NANO, limit - spent, True)
        assert need is not None, f"refused at {spent / NANO:.2f} USD in turn {turns}"
        usage = Usage(cache_read=cached, cache_write=1500 if cached else TOKENS, output=400)
        assert need.output_cap is None or need.output_cap >= 400
        spent += cost_of(usage, SONNET, AT_US).total
        now += 30
        prompts.learn(context(f"s{session}", now), request, settled(usage, now))
        turns += 1
    assert turns > 40
    assert fit_modes(replace(bound, unlikely_nusd=0), 100 * NANO, limit, True) is None  # with exact reservations
