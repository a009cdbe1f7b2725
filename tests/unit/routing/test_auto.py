import pytest

from gateway.errors import GatewayError, InvalidRequest, NotSupported, UpstreamRateLimited
from gateway.neutral.chat import Options, Requirements
from gateway.routing.record import write_record

LIMITED = UpstreamRateLimited("slow", retry_after=30, upstream_status=429)


def chosen(plan):
    return [one.key for one in plan.order]


@pytest.fixture
def market(make_world, mapping):
    """Return models with prices small < big < other < built-in; small and big are listed."""

    def make(**more):
        rows = (
            mapping("a", "small", price=1000, context_length=8000),
            mapping("b", "small", price=1500, context_length=8000),
            mapping("a", "big", price=3000, reasoning=True, vision=True),
            mapping("c", "other", price=5000, vision=True, audio=True),
            mapping("toy", "toy-echo", price=1, vision=True, audio=True, protocol="sandbox"),
        )
        return make_world(*rows, auto_models=("big", "small", "unknown"), **more)

    return make


def test_auto_takes_the_cheapest_listed_model_and_all_its_providers_then_the_next(market):
    plan = market().plan("auto")
    assert chosen(plan) == ["a/small", "b/small", "a/big"] and write_record(plan)["selectedModel"] == "small"


def test_auto_takes_the_cheapest_that_is_capable(market):
    assert chosen(market().plan("auto", Requirements(vision=True))) == ["a/big"]


def test_auto_leaves_room_for_an_answer_when_no_limit_is_named(market):
    world = market()
    assert chosen(world.plan("auto", Requirements(prompt_bytes=31_000, max_tokens=100)))[0] == "a/small"
    assert chosen(world.plan("auto", Requirements(prompt_bytes=31_000)))[0] == "a/big"


def test_auto_takes_a_listed_model_without_an_option_only_where_no_model_fulfils_it(market):
    world = market()
    assert chosen(world.plan("auto", Requirements(reasoning=True)))[0] == "a/big"
    plan = world.plan("auto", Requirements(parameters=frozenset(("verbosity",))))
    assert chosen(plan)[0] == "a/small" and plan.waived == ("verbosity",)


def test_auto_goes_beyond_its_list_rather_than_fail(market):
    plan = market().plan("auto", Requirements(audio=True))
    assert chosen(plan) == ["c/other"]


def test_auto_uses_whatever_has_a_credential(market, key):
    plan = market(keys={"c": (key(),), "toy": (key(),)}).plan("auto")
    assert chosen(plan) == ["c/other"]


def test_auto_takes_the_built_in_provider_only_when_no_other_has_a_credential(market, key):
    assert chosen(market(keys={"toy": (key(),)}).plan("auto")) == ["toy/toy-echo"]
    with pytest.raises(NotSupported):
        market().plan("auto", Requirements(documents=True))


def test_among_equally_cheap_models_the_first_of_the_catalogue_is_chosen(make_world, mapping):
    world = make_world(*(mapping("toy", name, price=5, protocol="sandbox") for name in ("toy-sound", "toy-broken")))
    assert chosen(world.plan("auto"))[0] == "toy/toy-sound"


def test_a_listed_built_in_model_waits_until_no_other_has_a_credential(make_world, mapping, key):
    rows = [mapping("toy", name, price=5, protocol="sandbox") for name in ("toy-a", "toy-b")]
    world = make_world(*rows, mapping("a", "real"), auto_models=("toy-b", "real"))
    assert chosen(world.plan("auto")) == ["a/real"]
    world.keys = {"toy": (key(),)}
    assert chosen(world.plan("auto")) == ["toy/toy-b"]


def test_a_model_of_which_everything_rests_follows_the_others(market):
    world = market()
    for provider in ("a", "b"):
        world.outcomes(provider, 0, 1, LIMITED, "small")
    assert chosen(world.plan("auto")) == ["a/big", "a/small", "b/small"]
    world.outcomes("a", 0, 1, LIMITED, "big")
    assert chosen(world.plan("auto")) == ["c/other", "a/small", "b/small", "a/big"]


def test_auto_goes_through_three_models_at_most(make_world, mapping):
    world = make_world(*(mapping("a", f"m{price}", price=price) for price in range(1, 7)))
    assert chosen(world.plan("auto")) == ["a/m1", "a/m2", "a/m3"]


def test_no_fallback_keeps_auto_at_its_first_choice(market):
    assert chosen(market().plan("auto", no_fallback=True)) == ["a/small"]


def test_no_reasoning_leaves_reasoning_models_out(market):
    assert chosen(market().plan("auto", Requirements(vision=True), Options(no_reasoning=True))) == ["c/other"]


def test_free_models_only_takes_any_free_model_or_refuses(market):
    free = market(models={"other": {"free": True}})
    assert chosen(free.plan("auto", options=Options(free_models_only=True))) == ["c/other"]
    with pytest.raises(NotSupported) as caught:
        market().plan("auto", options=Options(free_models_only=True))
    assert (caught.value.status, caught.value.param) == (400, "free_models_only")


def test_deprecated_and_unstable_models_are_not_chosen(market):
    world = market(models={"small": {"deprecated": "2020-01-01"}, "other": {"stability": "unstable"}})
    assert chosen(world.plan("auto")) == ["a/big"]
    with pytest.raises(NotSupported):
        world.plan("auto", Requirements(audio=True))


def test_beta_models_are_chosen(market):
    world = market(models={"other": {"stability": "beta"}})
    assert chosen(world.plan("auto", Requirements(audio=True))) == ["c/other"]


def test_a_session_keeps_its_model(market):
    world = market()
    plan = world.plan("auto", Requirements(vision=True), session="s")
    world.router.served(plan, plan.first)
    again = world.plan("auto", session="s")
    assert chosen(again) == ["a/big", "a/small", "b/small"]


def test_auto_requests_the_least_effort_of_a_model_that_reasons(market, mapping):
    plan = market().plan("auto")
    assert plan.effort_for(mapping("a", reasoning=True, reasoning_efforts=("minimal", "high"))) == "minimal"
    assert plan.effort_for(mapping("a", reasoning=True, reasoning_efforts=("low",))) == "low"
    assert plan.effort_for(mapping("a")) == ""


def test_auto_without_any_credential_says_so(market):
    with pytest.raises(InvalidRequest) as caught:
        market(keys={}).plan("auto")
    assert caught.value.code == "no_provider_credential"


@pytest.fixture
def media(make_world, mapping):
    """Return models for other operations; those of the built-in provider are cheapest."""
    vectors, speech = {"operations": ("embeddings",)}, {"operations": ("speech",)}
    rows = (
        mapping("a", "writer", price=10),
        mapping("a", "small-vectors", price=20, **vectors),
        mapping("b", "small-vectors", price=25, **vectors),
        mapping("a", "large-vectors", price=90, **vectors),
        *(mapping("a", f"voice-{n}", price=n, **speech) for n in range(1, 6)),
        mapping("toy", "toy-vectors", price=1, protocol="sandbox", **vectors),
        mapping("toy", "toy-reader", price=1, protocol="sandbox", operations=("ocr",)),
    )
    names = dict.fromkeys(row.model for row in rows)
    outputs = {name: {"output_modalities": ("text" if name == "writer" else "other",)} for name in names}
    return make_world(*rows, models=outputs, auto_models=("writer",))


def test_auto_takes_the_cheapest_model_that_serves_the_operation(media):
    assert chosen(media.plan("auto", operation="embeddings")) == ["a/small-vectors", "b/small-vectors"]
    assert chosen(media.plan("auto", operation="chat")) == ["a/writer"]


def test_vectors_come_from_the_same_model_while_it_cools_down(media):
    slow = UpstreamRateLimited("slow", retry_after=30, upstream_status=429)
    for provider in "ab":
        media.outcomes(provider, 0, 1, slow, model="small-vectors")
    assert {one.partition("/")[2] for one in chosen(media.plan("auto", operation="embeddings"))} == {"small-vectors"}


def test_other_operations_go_on_to_every_model_since_one_may_lack_the_voice_or_size(media):
    assert [one.partition("-")[2] for one in chosen(media.plan("auto", operation="speech"))] == list("12345")


def test_auto_invents_nothing_where_other_providers_have_keys(media, key):
    with pytest.raises(GatewayError):
        media.plan("auto", operation="ocr")
    media.keys = {"toy": (key(),)}
    assert chosen(media.plan("auto", operation="ocr")) == ["toy/toy-reader"]
    assert chosen(media.plan("auto", operation="embeddings")) == ["toy/toy-vectors"]
