from gateway.catalogue.entries import Mapping
from gateway.catalogue.lifecycle import dates_of, shown_on, state_on
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
