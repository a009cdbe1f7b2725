import pytest

from gateway.errors import InvalidRequest, UpstreamFailed
from gateway.neutral.chat import Options
from gateway.neutral.request import ProviderPreferences
from gateway.routing.plan import remembers_provider

FAILED = UpstreamFailed("it failed")


def providers(plan):
    return [one.candidate.provider.id for one in plan.order]


def prefer(**members):
    return Options(provider=ProviderPreferences(**members))


@pytest.fixture
def trio(make_world, mapping):
    """Return a world with providers a, b, c of one model, the cheapest first; c is named "Sea"."""
    rows = (mapping("a"), mapping("b", price=2 * 10**9), mapping("c", price=3 * 10**9))
    return lambda **more: make_world(*rows, **more)


def test_providers_in_order_are_tried_first(trio):
    assert providers(trio().plan(options=prefer(order=("C", "b")))) == ["c", "b", "a"]


def test_names_and_ids_are_compared_without_case(trio):
    world = trio(providers={"c": {"name": "Deep Sea"}})
    assert providers(world.plan(options=prefer(order=("deep sea",)))) == ["c", "a", "b"]


def test_only_and_ignore_leave_providers_out_with_their_reason(trio):
    plan = trio().plan(options=prefer(only=("b", "c")))
    assert providers(plan) == ["b", "c"]
    assert [(row.key, row.reason) for row in plan.excluded] == [("a/m", "is not in provider.only")]
    assert providers(trio().plan(options=prefer(ignore=("a", "c")))) == ["b"]


@pytest.mark.parametrize("members", ({"only": ("x",)}, {"ignore": ("a", "b", "c")}))
def test_a_preference_that_leaves_nothing_is_named(trio, members):
    member = next(iter(members))
    with pytest.raises(InvalidRequest, match="a, b, c") as caught:
        trio().plan(options=prefer(**members))
    assert caught.value.param == f"provider.{member}"


def test_without_fallbacks_only_the_first_or_the_ordered_serve(trio):
    assert providers(trio().plan(options=prefer(allow_fallbacks=False))) == ["a"]
    assert providers(trio().plan(options=prefer(order=("c", "b"), allow_fallbacks=False))) == ["c", "b"]
    with pytest.raises(InvalidRequest) as caught:
        trio().plan(options=prefer(order=("x",), allow_fallbacks=False))
    assert caught.value.param == "provider.order"


def test_no_fallback_takes_the_first_of_the_order(trio):
    plan = trio().plan(options=prefer(order=("c",)), no_fallback=True)
    assert providers(plan) == ["c"] and plan.request.no_fallback


def test_an_ordered_provider_in_cooldown_comes_last(trio):
    world = trio()
    world.outcomes("c", 0, 6, FAILED)
    assert providers(world.plan(options=prefer(order=("c",)))) == ["a", "b", "c"]


def test_preferences_choose_among_the_models_of_auto(make_world, mapping):
    make_world = make_world(mapping("a"), mapping("c", "n", 5 * 10**9), auto_models=("m", "n"))
    assert providers(make_world.plan("auto", options=prefer(only=("c",)))) == ["c"]


def test_a_choice_of_the_caller_is_not_remembered_for_its_project(trio):
    assert not remembers_provider(trio().plan(options=prefer(only=("b",))))


def test_members_without_effect_are_warnings(trio):
    plan = trio().plan(options=prefer(unread=("quantizations",)))
    assert plan.request.ignored == ("provider.quantizations was left out: the gateway does not support it.",)
