import json

import pytest

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Model, Prices, Tier, TokenRates
from gateway.errors import (
    ConnectFailed,
    ConnectTimeout,
    Forbidden,
    GatewayError,
    InvalidRequest,
    NoProviderLeft,
    NotSupported,
    UpstreamFailed,
    UpstreamRateLimited,
    UpstreamRefused,
    UpstreamTimeout,
)
from gateway.neutral.chat import Options, Requirements
from gateway.neutral.request import Mistake
from gateway.routing import candidate_filter
from gateway.routing.candidate_filter import NoCredential
from gateway.routing.candidates import OBSERVED, TokenMix
from gateway.routing.plan import exploration_chance
from gateway.routing.record import write_record
from gateway.routing.resolve import CustomModel

FAILED = UpstreamFailed("it failed")


def providers(plan):
    return [one.candidate.provider.id for one in plan.order]


@pytest.fixture
def trio(make_world, mapping):
    """Return providers a, b, c of one model, at prices 1, 1.05 and 3."""
    rows = (mapping("a", price=10**9), mapping("b", price=1_050_000_000), mapping("c", price=3 * 10**9))
    return lambda **more: make_world(*rows, **more)


def test_the_cheapest_goes_first_when_all_else_is_equal(trio):
    plan = trio().plan()
    assert providers(plan) == ["a", "b", "c"] and plan.reason == "weighted-score"


@pytest.fixture
def cached_pair(make_world, mapping):
    """Providers of one model: `plain` is cheaper without a cache, `cached` where most input is read from it."""
    plain = TokenRates(prompt=1_000_000_000, completion=5_000_000_000)
    cached = TokenRates(prompt=1_300_000_000, completion=7_000_000_000, input_cache_read=100_000_000)
    return make_world(
        mapping("plain", prices=(Prices(plain),), tools=True), mapping("cached", prices=(Prices(cached),), tools=True)
    )


def test_agents_go_to_the_provider_that_is_cheap_for_cached_prompts(cached_pair):
    tools = Requirements(tools=True)
    assert providers(cached_pair.plan(needs=tools, scope="p")) == ["plain", "cached"]
    assert providers(cached_pair.plan(session="s", scope="p")) == ["plain", "cached"]
    assert providers(cached_pair.plan(needs=tools, session="s", scope="p")) == ["cached", "plain"]


def test_the_observed_mix_of_the_project_and_model_comes_before_that_of_agents(cached_pair):
    tools = Requirements(tools=True)
    router = cached_pair.router
    router.observed_mixes = {"p": {"m": TokenMix(0.0, 0.5, OBSERVED), "other": TokenMix(0.9, 0.02, OBSERVED)}}
    plan = cached_pair.plan(needs=tools, session="s", scope="p")
    assert providers(plan) == ["plain", "cached"] and router.explain_mix(plan.request, "m").source == OBSERVED
    plan = cached_pair.plan(needs=tools, session="s", scope="another")
    assert providers(plan) == ["cached", "plain"] and router.explain_mix(plan.request, "m").source == "agents"


def test_a_large_prompt_without_a_session_has_the_general_or_the_observed_mix(cached_pair):
    large = Requirements(prompt_bytes=200_000)
    router = cached_pair.router
    plan = cached_pair.plan(needs=large, scope="p")
    assert providers(plan) == ["plain", "cached"] and router.explain_mix(plan.request, "m").source == "general"
    router.observed_mixes = {"p": {"m": TokenMix(0.9, 0.02, OBSERVED)}}
    assert providers(cached_pair.plan(needs=large, scope="p")) == ["cached", "plain"]
    assert router.explain_mix(cached_pair.plan(scope="p").request, "m") is None


def test_bad_uptime_sends_requests_elsewhere(trio):
    world = trio()
    world.outcomes("a", 5, 4, FAILED)
    assert providers(world.plan())[0] == "b"


def test_a_single_provider_is_named_as_such(make_world, mapping):
    assert make_world(mapping("a")).plan().reason == "single-provider-available"


def test_no_fallback_leaves_one_provider(trio):
    assert providers(trio().plan(no_fallback=True)) == ["a"]


def test_failover_tries_every_provider_before_another_region(make_world, mapping):
    rows = (mapping("a", price=1), mapping("a", price=2, region="eu"), mapping("a", price=3, region="us"))
    world = make_world(*rows, mapping("b", price=4), mapping("c", price=5))
    assert [one.key for one in world.plan().order] == ["a/m", "b/m", "c/m", "a/m:eu", "a/m:us"]


def test_denied_incapable_and_keyless_candidates_are_excluded_with_reasons(make_world, mapping, key):
    rows = (mapping("a"), mapping("b"), mapping("c", tools=True), mapping("d", tools=True), mapping("e", prices=()))
    world = make_world(*rows, keys={"a": (key(),), "d": (key(),)}, denied={"a": "denied by team rule"})
    plan = world.plan(needs=Requirements(tools=True))
    found = {one.key: (one.stage, one.reason) for one in plan.excluded}
    assert providers(plan) == ["d"] and found["a/m"] == ("access", "denied by team rule")
    assert found["b/m"] == ("ability", "lacks tools") and found["c/m"] == ("credential", "no credential")
    assert found["e/m"] == ("catalogue", "unpriced")


def test_priority_zero_switches_a_provider_off(trio):
    assert providers(trio(providers={"a": {"priority": 0}}).plan()) == ["b", "c"]


def test_an_unsupported_request_names_what_is_missing(trio):
    with pytest.raises(NotSupported, match="vision") as caught:
        trio().plan(needs=Requirements(vision=True))
    assert (caught.value.status, caught.value.code) == (400, "model_not_supported")


def test_a_model_denied_everywhere_is_forbidden(trio):
    with pytest.raises(Forbidden, match=r"^Access denied: by rule") as caught:
        trio(denied=dict.fromkeys("abc", "by rule")).plan()
    assert caught.value.code == "model_not_allowed"


def test_the_error_lists_only_a_few_of_many_reasons(trio, monkeypatch):
    monkeypatch.setattr(candidate_filter, "MAX_LISTED", 2)
    with pytest.raises(Forbidden) as caught:
        trio(denied={name: f"by rule {name}" for name in "abc"}).plan()
    assert caught.value.message.startswith("Access denied: by rule a; by rule b and 1 more (model ")


def test_a_model_without_any_credential_is_refused_by_name(trio):
    with pytest.raises(InvalidRequest, match="a, b, c") as caught:
        trio(keys={}).plan()
    assert (caught.value.status, caught.value.code) == (400, "no_provider_credential")


def test_a_model_without_any_credential_names_suitable_providers(trio):
    with pytest.raises(NoCredential) as caught:
        trio(keys={}).plan()
    assert [provider.id for provider in caught.value.providers] == ["a", "b", "c"]


def test_the_error_names_missing_credentials_and_missing_capabilities(make_world, mapping, key):
    rows = (mapping("a"), mapping("b", vision=True))
    with pytest.raises(
        NoCredential, match=r"with a credential supports .*vision.* Other providers may.*\(b\)"
    ) as caught:
        make_world(*rows, keys={"a": (key(),)}).plan(needs=Requirements(vision=True))
    assert caught.value.code == "model_not_supported"


def test_a_key_that_does_not_fit_the_tier_serves_without_it(make_world, mapping, key):
    rows = (mapping("a", service_tiers={"flex": "0.5"}),)
    world = make_world(*rows, keys={"a": (key(base_url="https://own.example"),)})
    assert world.plan(options=Options(service_tier="flex")).waived == ("service tier",)


def test_an_operation_that_the_model_lacks_names_those_it_has(make_world, mapping):
    with pytest.raises(NotSupported, match="embeddings") as caught:
        make_world(mapping("a", operations=("embeddings",))).plan()
    assert caught.value.details == {"operations": "embeddings"}


def test_the_error_describes_the_candidates_that_came_furthest(make_world, mapping, key):
    stages = (
        (mapping("a", prices=()), "model_not_served"),
        (mapping("b", operations=("embeddings",), tools=True), "model_not_supported"),
        (mapping("c", tools=True), "model_not_allowed"),
        (mapping("d"), "model_not_supported"),
        (mapping("e", tools=True), "no_provider_credential"),
    )
    messages = []
    for count, (_, code) in enumerate(stages, 1):
        rows = [row for row, _ in stages[:count]]
        world = make_world(*rows, keys={name: (key(),) for name in "abc"}, denied={"c": "denied by team rule"})
        with pytest.raises(GatewayError) as caught:
            world.plan(needs=Requirements(tools=True))
        assert caught.value.code == code
        messages.append(caught.value.message)
    assert "unpriced" in messages[0] and "serves embeddings" in messages[1] and "team rule" in messages[2]
    assert "tools" in messages[3] and "credential" in messages[4]


def test_rested_providers_are_left_out_and_come_back(trio, clock):
    world = trio()
    world.outcomes("a", 0, 1, ConnectFailed("refused"))
    assert providers(world.plan()) == ["b", "c"]
    clock.advance(1.1)
    assert "a" in providers(world.plan())


def test_a_limited_provider_is_tried_last(trio):
    world = trio()
    world.outcomes("a", 0, 1, UpstreamRateLimited("slow", retry_after=30, upstream_status=429))
    assert providers(world.plan()) == ["b", "c", "a"]


def test_a_sole_provider_serves_whatever_rests_there(make_world, mapping):
    world = make_world(mapping("a"))
    errors = (
        UpstreamRateLimited("slow", retry_after=600, upstream_status=429),
        UpstreamRefused("no", upstream_status=401),
        UpstreamRefused("unknown", upstream_status=404),
        *[UpstreamFailed("broken", upstream_status=500)] * 9,
        *[UpstreamTimeout("silent")] * 9,
    )
    for error in errors:
        world.outcomes("a", 0, 1, error)
        assert providers(world.plan()) == providers(world.plan("a/m")) == ["a"]


def test_when_all_rest_the_one_that_returns_first_is_tried_first(make_world, mapping):
    world = make_world(mapping("a"), mapping("b"), mapping("c"))
    for provider, seconds in (("a", 30), ("b", 7), ("c", 12)):
        world.outcomes(provider, 0, 1, UpstreamRateLimited("slow", retry_after=seconds, upstream_status=429))
    assert providers(world.plan()) == ["b", "c", "a"]


@pytest.mark.parametrize("error", [ConnectFailed("refused"), ConnectTimeout("late")], ids=str)
def test_where_nothing_answers_one_request_a_second_tries_and_others_are_refused_at_once(
    make_world, mapping, key, clock, error
):
    world = make_world(mapping("a"))
    world.outcomes("a", 0, 1, error)
    for _ in range(3):
        with pytest.raises(NoProviderLeft, match="the provider accepts no connections") as caught:
            world.plan()
        assert caught.value.status == 503 and caught.value.retry_after == pytest.approx(1)
        clock.advance(1.01)
        assert providers(world.plan()) == ["a"]
        world.health.begin(world.mapping("a"), key())
        world.outcomes("a", 0, 1, error)


def test_where_nothing_answers_tries_that_still_wait_do_not_put_off_the_next_one(make_world, mapping, key, clock):
    made, tried = make_world(mapping("a")), 0
    made.outcomes("a", 0, 1, ConnectTimeout("late"))
    for step in range(60):  # a tenth of a second each
        clock.advance(0.1)
        if step % 10 == 5:
            made.outcomes("a", 0, 1, ConnectTimeout("late"))  # failure of a request that began earlier
        try:
            made.plan()
        except NoProviderLeft:
            continue
        made.health.begin(made.mapping("a"), key())
        tried += 1
    assert tried in (5, 6)


def test_a_key_that_rests_is_tried_after_the_other_keys_of_its_provider(make_world, mapping, key):
    world = make_world(mapping("a"), keys={"a": (key("k1"), key("k2"))})
    world.health.sample(world.mapping("a"), key("k1"), error=UpstreamRefused("no", upstream_status=401))
    plan = world.plan()
    assert [credential.ident for credential in plan.first.credentials] == ["k2", "k1"]
    assert [credential.ident for credential in plan.cooling["a/m"].credentials] == ["k1"] and not plan.cooling[
        "a/m"
    ].whole


def test_rejections_caused_by_one_organization_do_not_affect_others(trio):
    world = trio()
    world.outcomes("a", 0, 9, UpstreamRefused("no such file", upstream_status=404), organization_id="one")
    assert providers(world.plan(organization="two")) == ["a", "b", "c"]
    assert providers(world.plan(organization="one")) == ["b", "c", "a"]
    world.outcomes("a", 0, 1, UpstreamRefused("no such model", upstream_status=404), organization_id="two")
    assert providers(world.plan(organization="three")) == ["b", "c", "a"]


def test_own_keys_at_own_addresses_serve_while_the_provider_rests(make_world, mapping, key):
    world = make_world(mapping("a"), keys={"a": (key("own", "byok", "https://own.example", elsewhere=True), key())})
    world.outcomes("a", 0, 1, ConnectFailed("refused"))
    assert [credential.ident for credential in world.plan().first.credentials] == ["own"]


def test_a_service_tier_leaves_keys_with_own_addresses_out(make_world, mapping, key):
    own = key("own", "byok", "https://own.example", elsewhere=True)
    world = make_world(mapping("a", service_tiers={"flex": "0.5"}), keys={"a": (own, key())})
    plan = world.plan(options=Options(service_tier="flex"))
    assert [credential.ident for credential in plan.first.credentials] == ["k1"]


def test_providers_that_fulfil_an_option_come_before_others(make_world, mapping):
    world = make_world(mapping("a", price=1), mapping("b", parallel_tool_calls=True))
    assert providers(world.plan(needs=Requirements(parameters=frozenset(("parallel tools",))))) == ["b", "a"]


def test_neither_preference_nor_chance_put_a_lacking_provider_first(make_world, mapping):
    world = make_world(mapping("a", price=1), mapping("b", reasoning=True), exploration=1.0, rolls=[0.0, 0.0])
    world.sticky.prefer("", "m", "a/m")
    assert providers(world.plan(needs=Requirements(reasoning=True), explore=1.0)) == ["b", "a"]


def test_an_option_without_any_support_does_not_reject_the_request(make_world, mapping):
    world = make_world(mapping("a", max_output=100))
    wishes = Requirements(max_tokens=200, reasoning=True, parameters=frozenset(("verbosity", "parallel tools")))
    plan = world.plan(needs=wishes, options=Options(service_tier="flex"))
    assert set(write_record(plan)["waived"]) == {
        "max_tokens",
        "reasoning",
        "verbosity",
        "parallel tools",
        "service tier",
    }


def test_a_forced_tool_without_any_support_is_rejected(make_world, mapping):
    world = make_world(mapping("a", tools=True, supported_tool_choices=("auto",)))
    with pytest.raises(NotSupported) as caught:
        world.plan(needs=Requirements(tools=True, forced_tool="required"))
    assert (caught.value.status, caught.value.param) == (400, "tool_choice")


def test_a_pinned_provider_is_used_though_another_is_better(trio):
    plan = trio().plan("c/m")
    assert providers(plan) == ["c"] and plan.reason == "direct-provider-specified"


def test_a_pinned_provider_at_ninety_percent_is_still_used(trio):
    world = trio()
    world.outcomes("c", 9, 1, FAILED)
    assert providers(world.plan("c/m")) == ["c"]


def test_a_pinned_provider_below_ninety_percent_is_rerouted_to_the_best(trio):
    world = trio()
    world.outcomes("c", 17, 3, FAILED)
    plan = world.plan("c/m")
    assert providers(plan) == ["a", "b", "c"] and plan.reason == "low-uptime-fallback"


def test_a_few_faults_say_nothing_of_a_pinned_provider(trio):
    world = trio()
    world.outcomes("c", 10, 4, FAILED)
    assert providers(world.plan("c/m")) == ["c"]


def test_others_serve_after_a_pinned_provider_with_five_faults_and_before_it_during_its_cooldown(trio, clock):
    world = trio()
    world.outcomes("c", 0, 5, FAILED)
    plan = world.plan("c/m")
    assert providers(plan) == ["a", "b", "c"] and plan.reason == "low-uptime-fallback"
    clock.advance(6)
    plan = world.plan("c/m")
    assert providers(plan) == ["c", "a", "b"] and plan.reason == "direct-provider-specified"
    assert providers(world.plan("c/m", no_fallback=True)) == ["c"]
    world.outcomes("c", 45, 0, FAILED)
    assert providers(world.plan("c/m")) == ["c"]


@pytest.mark.parametrize("error", [UpstreamRefused("no", upstream_status=401), UpstreamRateLimited("slow")])
def test_a_bad_key_of_two_or_a_limit_does_not_send_a_pinned_request_elsewhere(make_world, mapping, key, error):
    world = make_world(mapping("a"), mapping("c"), keys={"a": (key(),), "c": (key("good"), key("bad"))})
    for _ in range(30):
        world.health.sample(world.mapping("c"), key("bad"), error=error)
        world.health.sample(world.mapping("c"), key("good"))
    plan = world.plan("c/m")
    assert providers(plan) == ["c"] and [credential.ident for credential in plan.first.credentials] == ["good", "bad"]


def test_no_fallback_keeps_a_failing_pinned_provider(trio):
    world = trio()
    world.outcomes("c", 17, 3, FAILED)
    assert providers(world.plan("c/m", no_fallback=True)) == ["c"]


def test_a_failing_pinned_provider_without_others_is_still_used(make_world, mapping):
    world = make_world(mapping("a"))
    world.outcomes("a", 0, 4, FAILED)
    assert providers(world.plan("a/m")) == ["a"]


def test_a_pinned_provider_that_does_not_answer_is_rerouted(trio):
    world = trio()
    world.outcomes("c", 0, 1, ConnectFailed("refused"))
    assert providers(world.plan("c/m"))[0] == "a"
    with pytest.raises(NoProviderLeft):
        world.plan("c/m", no_fallback=True)


def test_a_request_that_tries_a_pinned_provider_where_nothing_answers_is_served_by_others(trio, clock):
    world = trio()
    world.outcomes("c", 0, 1, ConnectFailed("refused"))
    clock.advance(0.9)
    assert providers(world.plan("c/m"))[0] == "a"
    world.outcomes("c", 0, 1, ConnectFailed("refused"))
    clock.advance(0.15)
    world.outcomes("c", 0, 1, ConnectFailed("refused"))
    assert world.plan("c/m").reason == "direct-provider-specified"
    world.health.begin(world.mapping("c"), None)
    clock.advance(1.01)
    assert providers(world.plan("c/m")) == ["c", "a", "b"]
    assert providers(world.plan("c/m", no_fallback=True)) == ["c"]


def test_cooldowns_are_reported_in_the_record(trio):
    world = trio()
    world.outcomes("a", 0, 1, UpstreamRateLimited("slow", retry_after=30, upstream_status=429))
    record = write_record(world.plan())
    assert record["resting"] == [
        {"key": "a/m", "reason": "cooling down for 30 s: the provider limits the request rate"}
    ]
    assert record["order"] == ["b/m", "c/m", "a/m"] and record["excluded"] == []


def test_a_limited_pinned_provider_is_not_rerouted(trio):
    world = trio()
    world.outcomes("c", 0, 1, UpstreamRateLimited("slow", retry_after=9))
    assert providers(world.plan("c/m")) == ["c"]


def test_a_strategy_has_no_effect_with_a_pinned_provider(trio):
    plan = trio().plan("c/m", options=Options(routing="price"))
    assert providers(plan) == ["c"] and plan.request.options.routing == ""
    assert plan.request.ignored == ("routing was left out: c/m names its provider.",)
    assert trio().plan("c/m", options=Options(routing="auto")).request.ignored == ()


def test_no_reasoning_has_no_effect_with_a_named_model(trio):
    plan = trio().plan(options=Options(no_reasoning=True))
    assert plan.request.ignored[0].startswith("no_reasoning was left out") and not plan.request.options.no_reasoning


def test_free_models_alone_are_a_promise_that_a_named_model_cannot_keep(trio):
    with pytest.raises(InvalidRequest, match="free_models_only"):
        trio().plan(options=Options(free_models_only=True))


@pytest.mark.parametrize(
    ("model", "field", "refused"),
    [
        ("c/m", "routing", False),
        ("m", "routing", True),
        ("m", "no_reasoning", False),
        ("auto", "no_reasoning", True),
        ("m", "image_config", False),
    ],
)
def test_a_wrong_value_is_an_error_where_the_preference_has_an_effect(trio, model, field, refused):
    options = Options(mistakes=(Mistake(field, f"Invalid value for '{field}'.", field),))
    if refused:
        with pytest.raises(InvalidRequest) as caught:
            trio().plan(model, options=options)
        assert caught.value.param == field
    else:
        (warning,) = trio().plan(model, options=options).request.ignored
        assert warning.startswith(f"{field} was left out")


def test_a_session_stays_with_what_served_it(trio):
    world = trio()
    plan = world.plan(session="s", scope="p")
    world.router.served(plan, plan.order[2])
    again = world.plan(session="s", scope="p")
    assert providers(again) == ["c", "a", "b"] and again.reason == "session-sticky"
    assert providers(world.plan(session="s", scope="q"))[0] == "a"


@pytest.mark.parametrize(("keep", "first"), [(False, "a"), (True, "c")])
def test_a_session_leaves_an_unreliable_provider_unless_it_must_keep_it(make_world, mapping, keep, first):
    world = make_world(mapping("a"), mapping("c", extra={"keep_session": keep}))
    world.sticky.pin("", "s", "m", "c/m")
    world.outcomes("c", 5, 2, FAILED)
    assert providers(world.plan(session="s"))[0] == first


def test_a_session_leaves_a_mapping_that_is_no_longer_eligible(trio):
    world = trio()
    world.sticky.pin("", "s", "m", "c/m")
    world.denied["c"] = "denied"
    assert providers(world.plan(session="s")) == ["a", "b"]


def test_a_preferred_provider_is_kept_against_a_slightly_better_one(trio):
    world = trio()
    world.sticky.prefer("p", "m", "b/m")
    plan = world.plan(scope="p")
    assert providers(plan)[0] == "b" and plan.reason == "stable-preferred"


def test_a_preferred_provider_yields_to_a_much_better_one(trio):
    world = trio()
    world.sticky.prefer("p", "m", "c/m")
    assert providers(world.plan(scope="p"))[0] == "a"


def test_a_preferred_provider_below_85_percent_is_given_up(make_world, mapping):
    world = make_world(mapping("a"), mapping("b"))
    world.outcomes("a", 0, 3, FAILED)
    world.outcomes("b", 5, 1, FAILED)
    world.sticky.prefer("", "m", "a/m")
    assert providers(world.plan())[0] == "b"


def test_exploration_picks_at_random_and_is_not_remembered(trio):
    world = trio(exploration=0.01, rolls=[0.005, 0.7, 0.99])
    plan = world.plan()
    assert providers(plan) == ["c", "a", "b"] and plan.reason == "random-exploration"
    world.router.served(plan, plan.first)
    assert providers(world.plan())[0] == "a"


@pytest.mark.parametrize("more", [{"no_fallback": True}, {"session": "s"}, {"options": Options(routing="price")}])
def test_requests_with_explicit_routing_are_not_explored(trio, more):
    world = trio(exploration=1.0, rolls=[0.0, 0.9])
    assert providers(world.plan(**more))[0] == "a"


def test_each_request_of_a_kept_plan_has_its_own_chance_of_exploration(trio):
    world = trio(exploration=0.01, rolls=[0.5, 0.005, 0.01, 0.9])
    plan = world.plan()
    assert [world.router.should_explore(exploration_chance(plan)) for _ in range(2)] == [True, False]


@pytest.mark.parametrize("more", [{"no_fallback": True}, {"session": "s"}, {"options": Options(routing="price")}])
def test_cached_plans_with_explicit_routing_are_never_explored(trio, more):
    world = trio(exploration=1.0, rolls=[0.0, 0.0])
    assert not exploration_chance(world.plan(**more))


def test_a_chance_of_one_is_a_random_choice_whatever_the_setting(trio):
    plan = trio(exploration=0.0, rolls=[0.9, 0.7]).plan(explore=1.0)
    assert plan.reason == "random-exploration" and providers(plan)[0] == "c"


def test_price_strategy_ignores_speed(make_world, mapping, key):
    world = make_world(mapping("a", price=10**9), mapping("b", price=1_010_000_000))
    for _ in range(3):
        world.health.sample(world.mapping("a"), key(), tokens=1, duration_ms=1000)
        world.health.sample(world.mapping("b"), key(), tokens=900, duration_ms=1000)
    assert providers(world.plan())[0] == "b"
    assert providers(world.plan(options=Options(routing="price")))[0] == "a"
    assert providers(world.plan(options=Options(routing="throughput")))[0] == "b"


@pytest.mark.parametrize("unit", ["ocr_page", "character", "input_audio_hour", "request"])
def test_price_strategy_compares_other_units_where_text_has_no_price(make_world, mapping, unit):
    dear, cheap = (Prices(TokenRates(**{unit: nusd})) for nusd in (3 * 10**6, 10**6))
    world = make_world(mapping("a", prices=(dear,)), mapping("b", prices=(cheap,)))
    assert providers(world.plan(options=Options(routing="price"))) == ["b", "a"]


def test_large_prompts_follow_the_price_of_input_and_cached_input(make_world, mapping):
    cached = Prices(TokenRates(prompt=5 * 10**8, completion=3 * 10**9, input_cache_read=5 * 10**7))
    world = make_world(mapping("a", price=10**9), mapping("b", prices=(cached,)))
    assert providers(world.plan(needs=Requirements(prompt_bytes=19_000)))[0] == "a"
    assert providers(world.plan(needs=Requirements(prompt_bytes=20_000)))[0] == "b"


def test_tiered_prices_count_for_the_size_of_the_prompt(make_world, mapping):
    small, large = TokenRates(prompt=10**8, completion=10**8), TokenRates(prompt=10**10, completion=10**10)
    tiered = Prices(small, tiers=(Tier(1000, small), Tier(None, large)))
    world = make_world(mapping("a", prices=(tiered,)), mapping("b", price=10**9))
    assert providers(world.plan(needs=Requirements(prompt_bytes=4_000)))[0] == "a"
    assert providers(world.plan(needs=Requirements(prompt_bytes=4_004)))[0] == "b"


def test_a_new_catalogue_counts_at_once(trio, mapping):
    world = trio()
    world.plan()
    world.catalogue = Catalogue([Model("m", mappings=(mapping("c"),))], world.providers, {}, "2")
    assert providers(world.plan()) == ["c"]


def test_a_mapping_ends_on_its_day(make_world, mapping, clock):
    world = make_world(mapping("a", deactivated="2030-05-02"), mapping("b"))
    clock.set(1_903_910_400_000_000 - 1)  # the last microsecond of 2030-05-01
    assert "a" in providers(world.plan())
    clock.set(1_903_910_400_000_000)
    assert providers(world.plan()) == ["b"]


def test_a_custom_provider_is_planned_without_the_catalogue(trio, mapping, provider, key):
    class Routes:
        def custom_model(self, name, model):
            return CustomModel(Model(model), provider(name), mapping(name, model))

    world = trio()
    world.keys["house"] = (key("own", "byok", "https://own.example"),)
    plan = world.plan("house/any", routes=Routes(), options=Options(routing="price"))
    assert providers(plan) == ["house"] and plan.resolution.kind == "custom"
    assert plan.request.ignored == ("routing was left out: house/any names its provider.",)


def test_the_record_shows_the_whole_decision_as_json(trio):
    world = trio(denied={"b": "by rule"})
    record = json.loads(json.dumps(write_record(world.plan(no_fallback=True))))
    assert record["selectedProvider"] == "a" and record["selectionReason"] == "weighted-score"
    assert record["availableProviders"] == ["a", "c"] and record["noFallback"] is True
    assert [(row["providerId"], row["price"]) for row in record["providerScores"]] == [("a", 1.0), ("c", 3.0)]
    assert record["excluded"] == [{"providerId": "b", "modelId": "m", "stage": "access", "reason": "by rule"}]


def test_failover_from_a_doubtful_pinned_provider_prefers_providers_that_do_not_cool_down(trio, clock):
    world = trio()
    world.outcomes("c", 0, 5, FAILED)
    clock.advance(6)
    world.outcomes("a", 200, 5, FAILED)
    assert "a/m" in world.plan("m").cooling
    assert providers(world.plan("c/m")) == ["c", "b", "a"]
