"""The entries of models that the catalogue does not list."""

import pytest

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Prices, TokenRates
from gateway.catalogue.unlisted_entries import OWN_KEYS, PRICED_AS, PROVISIONAL, find_nearest, fine_tuned, make_unlisted


def model(name: str, released: str, dollars: int, provider: str = "a", **more) -> Model:
    prices = (Prices(TokenRates(prompt=dollars, completion=dollars)),)
    return Model(name, released=released, mappings=(Mapping(provider, name, name, prices=prices, **more),))


TUNED = (Prices(TokenRates(prompt=50, completion=60)),)
CATALOGUE = Catalogue(
    [
        model("big-3", "2025-01-01", 30),
        model("big-4", "2026-01-01", 20, fine_tune_prices=TUNED, price_version="p1"),
        model("big-4-pro", "2026-02-01", 90),
        model("big-4-mini", "2026-02-01", 2),
        model("odd", "2020-01-01", 100),
        model("draw", "2026-02-01", 999, operations=("images",)),
        model("big-5", "2026-03-01", 1, provider="b"),
    ],
    [],
    {},
)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [
        ("big-9-preview", "big-4"),  # the newest without a further word
        ("big-9-mini", "big-4-mini"),
        ("big-4-2026-05-01", "big-4"),
        ("models/big-5", "big-4"),  # prices of other providers do not count
        ("new", "odd"),  # nothing is alike: the dearest
    ],
)
def test_the_price_is_that_of_the_nearest_model(name: str, nearest: str) -> None:
    mapping = find_nearest(CATALOGUE, "a", name)
    assert mapping is not None and mapping.model == nearest


@pytest.mark.parametrize("word", ["preview", "latest", "beta", "exp", "experimental"])
def test_a_preview_of_a_model_is_as_near_as_the_model_itself(word: str) -> None:
    models = [model("new-1", "2025-01-01", 7), model(f"new-1-{word}", "2026-01-01", 5)]
    mapping = find_nearest(Catalogue(models, [], {}), "a", "new-2")
    assert mapping is not None and mapping.model == f"new-1-{word}"  # the newest


def test_a_new_model_has_all_abilities_and_a_provisional_price() -> None:
    made = make_unlisted(CATALOGUE, "a", "big-9", OWN_KEYS)
    assert made is not None
    (mapping,) = made.mappings
    assert (mapping.price_version, mapping.extra[PRICED_AS]) == (PROVISIONAL, "a/big-4")
    assert mapping.tools and mapping.vision and mapping.supports_n and mapping.operations == ("chat", "embeddings")
    assert mapping.verbosity and mapping.parallel_tool_calls


def test_a_provider_without_prices_serves_no_unlisted_model() -> None:
    assert make_unlisted(CATALOGUE, "c", "big-9", OWN_KEYS) is None


def test_a_fine_tuned_model_is_its_base_at_the_price_of_fine_tuned_models() -> None:
    tuned = fine_tuned(CATALOGUE, "a", "ft:big-4:org::id")
    assert tuned is not None and (tuned.prices, tuned.price_version) == (TUNED, "p1")
    unknown = fine_tuned(CATALOGUE, "a", "ft:big-3:org::id")
    assert unknown is not None and unknown.price_version == PROVISIONAL
    assert fine_tuned(CATALOGUE, "a", "ft:none:org::id") is None and fine_tuned(CATALOGUE, "a", "big-4") is None


@pytest.mark.parametrize(
    "name", ["../files", "a/../../v1/files", "..", "a/./b", "a//b", "/a", "a/", "a\r\nb", "ft:big:x/../y"]
)
def test_a_name_that_leads_elsewhere_in_a_path_is_no_model(name: str) -> None:
    assert make_unlisted(CATALOGUE, "a", name, OWN_KEYS) is None


def test_a_name_with_a_slash_and_dots_is_a_model() -> None:
    assert make_unlisted(CATALOGUE, "a", "maker/big-9.5..x", OWN_KEYS) is not None
