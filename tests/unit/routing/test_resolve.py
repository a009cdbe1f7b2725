import pytest

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Model
from gateway.errors import NotFound, UnknownModel
from gateway.routing.resolve import CustomModel, resolve

TODAY = "2026-01-15"


class Routes:
    """The custom models and routes of one organization."""

    def __init__(self, offer=None):
        self._custom_model = offer

    def custom_model(self, name, model):
        return self._custom_model if self._custom_model and name == self._custom_model.provider.id else None


@pytest.fixture
def catalogue(make_world, mapping):
    rows = (mapping("a"), mapping("b"), mapping("b", region="eu"), mapping("b", region="us"))
    return make_world(
        *rows, mapping("a", "old"), mapping("a", "tag:free"), models={"old": {"deactivated": "2026-01-15"}}
    ).catalogue


@pytest.fixture
def own(provider, mapping):
    return CustomModel(Model("any"), provider("house"), mapping("house", "any"))


def test_a_bare_id_or_alias_is_open_to_all_providers(catalogue):
    for text in ("m", "nick", " m "):
        found = resolve(text, catalogue, TODAY)
        assert (found.kind, found.model.id, found.provider, len(found.candidates)) == ("canonical", "m", "", 4)


def test_a_provider_prefix_pins_it_with_all_its_regions(catalogue):
    found = resolve("b/nick", catalogue, TODAY)
    assert (found.kind, found.provider, found.region) == ("pinned", "b", "")
    assert [candidate.key for candidate in found.candidates] == ["b/m", "b/m:eu", "b/m:us"]
    assert [one.key for one in found.others] == ["a/m"]


def test_a_region_suffix_pins_the_region(catalogue):
    found = resolve("b/m:eu", catalogue, TODAY)
    assert found.region == "eu" and [candidate.key for candidate in found.candidates] == ["b/m:eu"]


def test_a_colon_may_belong_to_the_model(catalogue):
    assert resolve("a/tag:free", catalogue, TODAY).model.id == "tag:free"


def test_an_unknown_region_is_refused_with_the_known_ones(catalogue):
    with pytest.raises(UnknownModel, match="eu, us") as caught:
        resolve("b/m:mars", catalogue, TODAY)
    assert (caught.value.status, caught.value.param, caught.value.code) == (400, "model", "unknown_region")


def test_an_unknown_model_is_refused_with_near_matches(make_world, mapping):
    catalogue = make_world(mapping("a", "gpt-example-large")).catalogue
    for text in ("gpt-example-larg", "a/gpt-example-larg", "nobody/gpt-example-larg"):
        with pytest.raises(UnknownModel, match="Did you mean gpt-example-large") as caught:
            resolve(text, catalogue, TODAY)
        assert (caught.value.param, caught.value.code) == ("model", "model_not_found")


def test_a_provider_that_does_not_serve_the_model_is_named_with_those_that_do(catalogue):
    with pytest.raises(UnknownModel, match="'b' does not serve 'tag:free'; it is served by: a") as caught:
        resolve("b/tag:free", catalogue, TODAY)
    assert caught.value.code == "model_not_served"


def test_a_provider_is_found_in_any_case_as_a_model_is(catalogue):
    assert resolve("A/M", catalogue, TODAY).provider == resolve("a/m", catalogue, TODAY).provider == "a"
    assert resolve("B/m:eu", catalogue, TODAY).region == "eu"


@pytest.mark.parametrize(("day", "refused"), [("2026-01-14", False), ("2026-01-15", True)])
def test_a_model_that_ended_at_the_named_provider_is_reported_with_who_still_serves_it(
    make_world, mapping, day, refused
):
    world = make_world(mapping("a", deactivated="2026-01-15"), mapping("b")).catalogue
    assert resolve("m", world, day).model.id == "m" == resolve("b/m", world, day).model.id
    if not refused:
        assert resolve("a/m", world, day).provider == "a"
        return
    with pytest.raises(UnknownModel, match="at a on 2026-01-15; it is still served by: b") as caught:
        resolve("a/m", world, day)
    assert caught.value.code == "model_deactivated"


def test_a_deactivated_model_is_refused_from_its_day_on(catalogue):
    assert resolve("old", catalogue, "2026-01-14").model.id == "old"
    for text in ("old", "a/old"):
        with pytest.raises(UnknownModel, match="2026-01-15") as caught:
            resolve(text, catalogue, TODAY)
        assert caught.value.code == "model_deactivated"


@pytest.mark.parametrize("text", ["auto", "llmgateway/auto"])
def test_auto_leaves_the_model_open(catalogue, text):
    assert resolve(text, catalogue, TODAY).kind == "auto"


@pytest.mark.parametrize("text", ["dynamic/none", "smart", "llmgateway/Smart[1m]"])
def test_a_route_is_no_model_and_not_found_among_models(catalogue, text):
    with pytest.raises(NotFound, match="no published route") as caught:
        resolve(text, catalogue, TODAY, Routes())
    assert (caught.value.status, caught.value.code) == (404, "dynamic_route_not_found")


def test_a_custom_provider_serves_any_model_text(catalogue, own):
    found = resolve("house/anything/at:all", catalogue, TODAY, Routes(own))
    assert (found.kind, found.provider, found.custom_model) == ("custom", "house", own)


def test_a_known_provider_wins_over_a_custom_one_of_that_name(catalogue, provider, mapping):
    routes = Routes(CustomModel(Model("any"), provider("a"), mapping("a", "any")))
    assert resolve("a/m", catalogue, TODAY, routes).kind == "pinned"


def test_custom_without_a_custom_provider_is_refused(catalogue):
    with pytest.raises(UnknownModel, match="No custom provider"):
        resolve("llmgateway/custom", catalogue, TODAY)


@pytest.mark.parametrize("text", ["a" * 256, "own/" + "x" * 10_000_000, "gpt\0x"])
def test_a_model_text_that_no_row_could_hold_is_refused_briefly(text: str) -> None:
    with pytest.raises(UnknownModel) as refused:
        resolve(text, Catalogue((), (), {}), "2026-01-01")
    assert len(refused.value.message) < 300


def test_a_pinned_model_may_be_named_as_its_provider_names_it(make_world, mapping):
    rows = (mapping("a", external_id="vendor/M-0125"), mapping("a", region="eu", external_id="eu.vendor.m-v1:0"))
    world = make_world(*rows, mapping("b", external_id="own")).catalogue
    found = resolve("a/vendor/m-0125", world, TODAY)
    assert (found.model.id, found.provider, len(found.candidates)) == ("m", "a", 2)
    assert [candidate.region for candidate in resolve("a/eu.vendor.m-v1:0", world, TODAY).candidates] == ["eu"]
    for text in ("b/vendor/m-0125", "vendor/m-0125"):
        with pytest.raises(UnknownModel):
            resolve(text, world, TODAY)


@pytest.fixture
def versions(make_world, mapping):
    rows = [
        mapping("a", name) for name in ("big-4-5", "big-3-20240101", "big-3-20250101", "mini-2.5", "x-1.0", "x-1-0")
    ]
    return make_world(*rows, mapping("b", "big-4-5", region="eu"), mapping("b", "mini-2.5")).catalogue


@pytest.mark.parametrize(
    ("text", "model"),
    [
        ("big-4-5[1m]", "big-4-5"),
        ("big-4.5[1M][1m]", "big-4-5"),
        ("big_4.5", "big-4-5"),
        ("mini-2-5", "mini-2.5"),
        ("big-4-5-latest", "big-4-5"),
        ("big-4.5-20250929", "big-4-5"),
        ("big-4-5@20250929", "big-4-5"),
        ("big-4-5-2025-09-29", "big-4-5"),
        ("big-3-latest", "big-3-20250101"),
        ("big-3-20240101", "big-3-20240101"),
        ("a/big-4.5[1m]", "big-4-5"),
        ("b/big-4.5:eu", "big-4-5"),
        ("a/big-4-5-latest", "big-4-5"),
    ],
)
def test_another_spelling_of_a_known_model_is_that_model(versions, text: str, model: str) -> None:
    resolution = resolve(text, versions, TODAY)
    assert (resolution.model.id, resolution.requested_model) == (model, text)
    assert all(candidate.provider == text[0] for candidate in resolution.candidates if "/" in text)


@pytest.mark.parametrize(
    "text", ["big-4", "big-4-5-mini", "big-4-5-20259999", "x_1.0", "big-3", "big-4-5[2]", "latest"]
)
def test_a_name_that_is_close_but_no_spelling_of_one_model_stays_unknown(versions, text: str) -> None:
    with pytest.raises(UnknownModel):
        resolve(text, versions, TODAY)


def test_a_dated_name_is_passed_on_where_the_provider_may_know_it(versions, own) -> None:
    class Passing(Routes):
        def unlisted_model(self, provider, model):
            return CustomModel(Model(model), own.provider, own.mapping)

    assert resolve("a/big-4-5-20260101[1m]", versions, TODAY, Passing()).model.id == "big-4-5-20260101"
    assert resolve("a/big-4.5", versions, TODAY, Passing()).model.id == "big-4-5"


@pytest.mark.parametrize("text", ["auto[1m]", "llmgateway/auto[1m]"])
def test_the_mark_of_a_long_context_leaves_auto_as_it_is(versions, text: str) -> None:
    assert resolve(text, versions, TODAY).kind == "auto"
