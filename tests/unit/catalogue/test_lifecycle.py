import pytest

from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model
from gateway.catalogue.lifecycle import dates_of, name_series, shown_on, state_on
from gateway.catalogue.loader import load

DAY = "2026-06-01"


def mapping(deprecated: str = "", deactivated: str = "") -> Mapping:
    return Mapping("p", "m", "m", deprecated=deprecated, deactivated=deactivated)


def test_a_model_lives_as_long_as_its_last_provider():
    assert dates_of([mapping("2026-01-01"), mapping()]) == ("", "")
    assert dates_of([mapping("2026-01-01"), mapping("2026-03-01")]) == ("2026-03-01", "")
    assert dates_of([mapping("2026-01-01"), mapping("", "2025-05-01")]) == ("2026-01-01", "")
    assert dates_of([mapping("", "2026-01-01"), mapping("", "2026-02-01")]) == ("", "2026-02-01")


def test_filters_decide_by_the_mappings_that_are_shown():
    kept, old, ended = mapping(), mapping("2026-01-01"), mapping("", "2026-01-01")
    plain = {"include_deactivated": False, "exclude_deprecated": False}
    strict = {"include_deactivated": False, "exclude_deprecated": True}
    assert shown_on([kept, old, ended], DAY, **plain) == [kept, old]
    assert shown_on([old, ended], DAY, **plain) == [old]
    assert shown_on([old, ended], DAY, **strict) == []
    assert shown_on([kept, ended], DAY, **strict) == [kept]


def test_every_model_of_the_catalogue_has_the_state_of_its_providers():
    for model in load(sandbox=False).models.values():
        assert state_on(model, DAY) == state_on(dates_of(model.mappings), DAY), model.id


def model(ident: str, released: str, operation: str = "chat", **fields) -> Model:
    return Model(
        ident,
        family="acme",
        released=released,
        context_length=fields.pop("context_length", 100_000),
        mappings=(Mapping("p", ident, ident, operations=(operation,)),),
        **fields,
    )


def successor(*models: Model) -> str | None:
    """Return the id of the successor of the first model."""
    found = Catalogue(models, (), {}).successor(models[0], DAY)
    return None if found is None else found.id


OLD = model("acme-3-5-swift-20250101", "2025-01-01", deactivated="2026-01-01")


def test_the_successor_is_the_newest_model_of_the_series():
    assert successor(OLD, model("acme-swift-4", "2025-06-01"), model("acme-swift-5", "2026-02-01")) == "acme-swift-5"


@pytest.mark.parametrize(
    "other",
    [
        model("acme-swift-mini-5", "2026-02-01"),
        model("acme-swift-8b", "2026-02-01"),
        model("acme-swift-5", "2024-01-01"),
        model("acme-swift-5", "2026-02-01", deprecated="2026-05-01"),
        model("acme-swift-5", "2026-02-01", context_length=32_000),
        model("acme-swift-5", "2026-02-01", "images"),
        model("acme-swift-5", "2026-02-01", output_modalities=("image",)),
    ],
    ids=["another word", "a size", "older", "deprecated", "small context", "another operation", "another modality"],
)
def test_a_model_that_cannot_do_as_much_is_no_successor(other: Model):
    assert successor(OLD, other) is None


def test_a_stable_model_comes_before_a_newer_preview():
    preview = model("acme-swift-6-preview", "2026-05-01", stability="beta")
    assert successor(OLD, model("acme-swift-5", "2026-02-01"), preview) == "acme-swift-5"


def test_vectors_have_no_successor():
    old, new = (model(f"acme-embed-{year}", f"{year}-01-01", "embeddings") for year in (2025, 2026))
    assert successor(old, new) is None


def test_sizes_and_words_distinguish_series():
    ids = ("acme-swift-8b", "acme-swift-70b", "acme-swift", "acme-swift-mini")
    assert len({name_series(model(ident, "")) for ident in ids}) == len(ids)


def test_retired_models_of_the_catalogue_lead_to_current_ones_of_their_maker():
    catalogue = load()
    found = {one.id: catalogue.successor(one, "2026-11-29") for one in catalogue.models.values() if one.deactivated}
    known = {ident: one for ident, one in found.items() if one is not None}
    assert len(known) >= 15
    assert all(one.family == catalogue.models[ident].family and not one.deactivated for ident, one in known.items())
