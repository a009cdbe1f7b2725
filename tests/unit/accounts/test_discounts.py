import itertools

import pytest

from gateway.accounts import audit
from gateway.accounts.discounts import Discounts
from gateway.callers.discount_book import ALL_SCOPES, DiscountInfo
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.control.version import Control
from gateway.errors import InvalidRequest, NotFound, Unavailable

BY = {"actor": "operator"}
AT = 1_790_000_000_000_000
CATALOGUE = Catalogue(
    [
        Model("small", mappings=(Mapping("alpha", "small", "s"),)),
        Model("large", mappings=(Mapping("beta", "large", "l"),)),
    ],
    [Provider("alpha", "Alpha", "openai"), Provider("beta", "Beta", "openai")],
    {"tiny": "small"},
)


@pytest.fixture
def discounts(company) -> Discounts:
    return Discounts(company.database, company.control)


def put(discounts, organization, provider=ALL_SCOPES, model=ALL_SCOPES, ppm=100_000, **times):
    return discounts.put(DiscountInfo(organization, provider, model, ppm, **times), CATALOGUE, **BY)


def test_the_most_specific_discount_counts_alone(company, discounts) -> None:
    own = company.organization_id
    places = ((ALL_SCOPES, ALL_SCOPES), ("alpha", ALL_SCOPES), (ALL_SCOPES, "small"), ("alpha", "small"))
    # From the least specific to the most: each one added wins over all before it.
    for number, (organization, place) in enumerate(itertools.product((ALL_SCOPES, own), places), 1):
        put(discounts, organization, *place, ppm=number)
        assert discounts.fraction(own, "alpha", "small", AT) == number
    assert discounts.fraction(own, "beta", "small", AT) == 7
    assert discounts.fraction(own, "alpha", "large", AT) == 6
    assert discounts.fraction(own, "beta", "large", AT) == 5
    assert discounts.fraction("org_other", "alpha", "small", AT) == 4


def test_a_discount_counts_from_its_start_until_before_its_end(company, discounts) -> None:
    put(discounts, ALL_SCOPES, ppm=5)
    put(discounts, company.organization_id, ppm=7, starts_us=AT, ends_us=AT + 10)
    found = [discounts.fraction(company.organization_id, "alpha", "small", AT + n) for n in (-1, 0, 9, 10)]
    assert found == [5, 7, 7, 5]


def test_without_any_discount_no_lookup_is_made(company, discounts) -> None:
    assert discounts.fraction(company.organization_id, "alpha", "small", AT) == 0 and not discounts.any
    discount = put(discounts, ALL_SCOPES)
    assert discounts.any and discounts.fraction(company.organization_id, "alpha", "small", AT) == 100_000
    discounts.remove(discount.id, **BY)
    assert not discounts.any


def test_a_change_is_in_force_on_every_worker_when_it_returns(company, discounts) -> None:
    worker = Control(company.database, company.clock)
    worker.start()
    other = Discounts(company.database, worker)
    assert other.fraction(company.organization_id, "alpha", "small", AT) == 0
    discount = put(discounts, company.organization_id, ppm=3)
    assert other.any and other.fraction(company.organization_id, "alpha", "small", AT) == 3
    discounts.remove(discount.id, **BY)
    assert not other.any
    worker.stop()


def test_after_a_change_that_could_not_be_read_nothing_old_is_believed(company, discounts, monkeypatch) -> None:
    put(discounts, ALL_SCOPES, ppm=4)

    def away(work):
        raise Unavailable()

    with monkeypatch.context() as patched:
        patched.setattr(company.database, "read", away)
        company.control._call_back(company.control.version)
        with pytest.raises(Unavailable):
            discounts.fraction(company.organization_id, "alpha", "small", AT)
    assert discounts.fraction(company.organization_id, "alpha", "small", AT) == 4


def test_setting_a_place_again_replaces_its_discount_and_is_audited(company, discounts) -> None:
    own = company.organization_id
    first, second = (put(discounts, own, "alpha", "small", ppm=ppm) for ppm in (1000, 250_000))
    assert first.id == second.id and discounts.list_discounts() == [second]
    discounts.remove(first.id, **BY)
    newest = audit.list_entries(company.database, own, limit=3)
    assert [one.action for one in newest] == ["discount.remove", "discount.set", "discount.set"]
    assert '"fraction":"0.25"' in newest[1].detail and newest[1].actor == "operator"


def test_an_organization_sees_its_own_and_everyones(company, discounts) -> None:
    put(discounts, ALL_SCOPES, ppm=1)
    put(discounts, company.organization_id, ppm=2)
    assert [discount.fraction_ppm for discount in discounts.list_discounts(company.organization_id)] == [1, 2]
    assert [discount.fraction_ppm for discount in discounts.list_discounts("org_other")] == [1]


@pytest.mark.parametrize("ppm", [0, -1, 1_000_000])
def test_a_fraction_outside_of_0_and_1_is_refused(company, discounts, ppm: int) -> None:
    with pytest.raises(InvalidRequest, match="between 0 and 1"):
        put(discounts, ALL_SCOPES, ppm=ppm)


@pytest.mark.parametrize(
    ("place", "message"),
    [
        (("gamma", ALL_SCOPES), "no provider gamma"),
        ((ALL_SCOPES, "huge"), "no model with the id huge"),
        ((ALL_SCOPES, "tiny"), "its id is small"),
        (("beta", "small"), "does not serve"),
    ],
)
def test_a_place_that_nothing_can_match_is_refused(company, discounts, place: tuple, message: str) -> None:
    with pytest.raises(InvalidRequest, match=message):
        put(discounts, ALL_SCOPES, *place)


def test_unknown_subjects_and_empty_periods_of_discounts_are_refused(company, discounts) -> None:
    with pytest.raises(NotFound):
        put(discounts, "org_" + "0" * 32)
    with pytest.raises(NotFound):
        discounts.remove("disc_" + "0" * 32, **BY)
    with pytest.raises(InvalidRequest, match="end after"):
        put(discounts, ALL_SCOPES, starts_us=AT, ends_us=AT)
