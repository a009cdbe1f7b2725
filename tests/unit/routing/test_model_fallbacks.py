import pytest

from gateway.billing.bounds import Bounds, compute_bound
from gateway.errors import ConnectFailed, InvalidRequest, UnknownModel, UpstreamFailed
from gateway.neutral.chat import ChatRequest, Options, Requirements
from gateway.neutral.request import Mistake
from gateway.routing.model_fallbacks import list_models, other_models, plan_list
from gateway.routing.record import write_record

FAILED = UpstreamFailed("it failed")


def keys(plan):
    return [scored.key for scored in plan.order]


@pytest.fixture
def pair(make_world, mapping):
    """Return a world with model m at a and b, and the dearer model n at c and d."""
    rows = (mapping("a"), mapping("b", price=2 * 10**9), mapping("c", "n", 5 * 10**9), mapping("d", "n", 4 * 10**9))
    return lambda **more: make_world(*rows, **more)


def test_models_are_tried_in_the_callers_order_and_each_ones_providers_by_score(pair):
    world = pair()
    assert keys(plan_list(("m", "n"), world.plan)) == ["a/m", "b/m", "d/n", "c/n"]
    assert keys(plan_list(("n", "m"), world.plan)) == ["d/n", "c/n", "a/m", "b/m"]


def test_an_unknown_and_a_forbidden_model_are_skipped_with_a_warning(pair):
    world = pair(denied={"a": "rule 7", "b": "rule 7"})
    plan = plan_list(("gone", "m", "n"), world.plan)
    assert keys(plan) == ["d/n", "c/n"]
    assert [model for model, _ in plan.skipped] == ["gone", "m"]
    assert plan.request.ignored[0].startswith("The model gone was skipped: There is no model 'gone'.")
    assert "rule 7" in plan.request.ignored[1]
    assert plan.request.requested_model == "gone"


def test_an_unpublished_dynamic_route_is_skipped_with_a_warning(pair):
    assert keys(plan_list(("dynamic/gone", "n"), pair().plan)) == ["d/n", "c/n"]


def test_the_error_is_that_of_the_first_model_when_none_is_left(pair):
    with pytest.raises(UnknownModel, match="'gone'"):
        plan_list(("gone", "lost"), pair().plan)


def test_a_model_whose_providers_all_cool_down_comes_last(pair):
    world = pair()
    for provider in "ab":
        world.outcomes(provider, 0, 6, FAILED)
    assert keys(plan_list(("m", "n"), world.plan))[:2] == ["d/n", "c/n"]


def test_without_fallback_only_the_first_provider_of_the_first_model_is_tried(pair):
    world = pair()
    assert keys(plan_list(("m", "n"), lambda model: world.plan(model, no_fallback=True))) == ["a/m"]


def test_a_mapping_that_two_names_lead_to_is_tried_once(pair):
    assert keys(plan_list(("b/m", "nick"), pair().plan)) == ["b/m", "a/m"]


def test_a_model_at_an_unreachable_provider_is_skipped_while_another_request_tries_it(make_world, mapping):
    make_world = make_world(mapping("a"), mapping("c", "n"))
    make_world.outcomes("a", 0, 1, ConnectFailed("no connection"))
    make_world.health.begin(make_world.mapping("a"), make_world.keys["a"][0])
    assert keys(plan_list(("m", "n"), make_world.plan))[0] == "c/n"


def test_an_invalid_preference_is_an_error_of_every_model(pair):
    options = Options(mistakes=(Mistake("routing", "it is wrong", "routing"),))
    with pytest.raises(InvalidRequest, match="it is wrong"):
        plan_list(("m", "n"), lambda model: pair().plan(model, options=options))


def test_the_bound_covers_the_dearest_model(pair, clock):
    plan = plan_list(("m", "n"), pair().plan)
    mappings = tuple(scored.candidate.mapping for scored in plan.order)
    request = ChatRequest("m", Requirements(prompt_bytes=400, max_tokens=100), lambda: None)
    dearest = [mapping for mapping in mappings if mapping.provider == "c"]
    bound = Bounds(mappings).compute(request, 4096, clock.now_us())
    assert bound == compute_bound(request, tuple(dearest), 4096, clock.now_us())


def test_the_record_names_all_models(pair):
    record = write_record(plan_list(("m", "gone", "n"), pair().plan))
    assert record["requestedModel"] == "m" and record["models"] == ["m", "n"]
    assert record["skippedModels"][0]["model"] == "gone"
    assert record["order"] == ["a/m", "b/m", "d/n", "c/n"]
    assert {score["modelId"] for score in record["providerScores"]} == {"m", "n"}


def test_a_session_stays_with_the_provider_of_the_model_that_served(pair):
    world = pair()

    def plan(model):
        return world.plan(model, session="s", scope="p")

    first = plan_list(("m", "n"), plan)
    second_model = next(scored for scored in first.order if scored.key == "c/n")
    world.router.served(first, second_model)
    assert keys(plan_list(("m", "n"), plan)) == ["a/m", "b/m", "c/n", "d/n"]


def test_each_model_is_listed_once():
    assert list_models("a", ("b", "a", "c", "b")) == ("a", "b", "c")


def test_the_other_models_are_named_by_what_the_caller_wrote_and_by_id(pair):
    world = pair()
    assert other_models(plan_list(("m", "d/n", "nick"), world.plan)) == ("d/n", "n", "nick")
    assert other_models(world.plan("m")) == ()
