import dataclasses

import pytest
from support.billing import DOLLAR, attempt_at, target

from gateway.billing.reconciliation import doctor
from gateway.billing.rerating import post, rerate
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Model, Prices, TokenRates
from gateway.errors import UpstreamFailed
from gateway.money import MILLION
from gateway.neutral.usage import NO_USAGE, Units, Usage

AT = 1_750_000_000_000_000  # when the attempts of these tests began: 2025-06-15
USED = Usage(input=10, output=5, cache_read=3, cache_write=2, cache_write_1h=1, reasoning=4, searches=2)
DATED = (
    Prices(TokenRates(prompt=1000 * MILLION, completion=2000 * MILLION)),
    Prices(TokenRates(prompt=1500 * MILLION, completion=2000 * MILLION), from_date="2025-07-01"),
)


@pytest.fixture
def process(start_billing, account):
    started = start_billing()
    started.ledger.grant(account.organization, 10 * DOLLAR, "start")
    return started


def place(source: str = "platform", **changes):
    found = target(source)
    return dataclasses.replace(found, mapping=dataclasses.replace(found.mapping, **changes))


def serve(process, account, where, units=None, **facts):
    settlement = process.admit(account, units=units)
    settlement.begin(0, where)
    settle = settlement.failed if "error" in facts else settlement.settle
    settle(attempt_at(where, **({"usage": USED, "finish": "stop"} | facts)))
    settlement.close()
    process.rest()


def catalogue(*mappings):
    return Catalogue([Model("m-1", mappings=mappings)], [], {}, "v1")


def lines(report):
    return {place[1:]: (line.rows, line.recorded_nusd, line.rated_nusd) for place, line in report.lines.items()}


def test_the_prices_of_its_time_give_what_was_billed(process, account):
    where = place(prices=DATED, service_tiers={"flex": "0.5"})
    serve(process, account, where)
    serve(process, account, where, service_tier="flex")
    billed = 16 * 1000 + 5 * 2000
    report = rerate(process.database, catalogue(where.mapping), AT, AT + 1)
    assert lines(report) == {("mock/m-1", True): (2, billed * 3 // 2, billed * 3 // 2)}
    assert report.adjustments() == {} and report.left == {}


def test_the_prices_of_now_show_the_difference(process, account):
    where = place(prices=DATED)
    serve(process, account, where)
    serve(process, account, place("byok", prices=DATED))
    report = rerate(process.database, catalogue(where.mapping), AT, AT + 1, now_us=AT + 40 * 86_400_000_000)
    assert lines(report) == {("mock/m-1", True): (1, 26_000, 34_000), ("mock/m-1", False): (1, 26_000, 34_000)}
    assert report.adjustments() == {account.organization: 8000}


def test_a_difference_is_posted_once_and_the_books_agree(process, account):
    where = place(prices=DATED)
    serve(process, account, where)
    report = rerate(process.database, catalogue(where.mapping), AT, AT + 1, now_us=AT + 40 * 86_400_000_000)
    assert post(process.ledger, report, "june") == {account.organization: -8000}
    assert post(process.ledger, report, "june") == {}
    assert process.ledger.balance(account.organization).balance_nusd == 10 * DOLLAR - 34_000
    assert doctor(process.database) == []


def test_a_period_has_a_beginning_and_an_end(process, account):
    where = place()
    serve(process, account, where)
    for span in ((AT - 10, AT), (AT + 1, AT + 10)):
        assert rerate(process.database, catalogue(where.mapping), *span).lines == {}


def test_rows_that_cannot_be_priced_again_are_reported_by_reason(process, account):
    where = place()
    serve(process, account, where)
    serve(process, account, where, usage=None, finish="", error=UpstreamFailed("no"))
    serve(process, account, where, usage=Usage(input=1, images=2))
    assert rerate(process.database, catalogue(), AT, AT + 1).left["not in the catalogue"] == 2
    other_mapping = dataclasses.replace(where.mapping, price_version="p2")
    left = rerate(process.database, catalogue(other_mapping), AT, AT + 1).left
    assert left == {"priced by another version": 2, "nothing was billed": 1}
    older = """UPDATE usage SET extra = '{"units":{"images":2}}' WHERE extra LIKE ?"""
    process.database.write(lambda: process.database.execute(older, ("%images%",)))
    report = rerate(process.database, catalogue(where.mapping), AT, AT + 1)
    assert report.left == {"nothing was billed": 1, "size not recorded": 1}


IN_UNITS = TokenRates(
    prompt=1000 * MILLION,
    output_image=9000 * MILLION,
    ocr_page=10**6 * MILLION,
    character=15_000 * MILLION,
    input_audio_hour=360 * 10**6 * MILLION,
    web_search=10**7 * MILLION,
    image_tool_output={"default": 30_000 * MILLION, "gpt-image-1": 40_000 * MILLION},
    per_image={"low/1024x1024": 11 * 10**6 * MILLION, "high/1024x1024": 167 * 10**6 * MILLION},
)


@pytest.mark.parametrize(
    ("usage", "nusd"),
    [
        (Usage(images=3, price_key="low/1024x1024"), 33_000_000),
        (Usage(input=7, images=2, price_key="high/1024x1024"), 334_007_000),
        (Usage(images=1, price_key="odd/1x1"), 167_000_000),
        (Usage(pages=29), 29_000_000),
        (Usage(characters=4096), 61_440_000),
        (Usage(audio_ms=95_500), 9_550_000),
        (Usage(searches=2), 20_000_000),
        (Usage(image_tool_output=1056, price_key="gpt-image-1"), 42_240_000),
        (Usage(image_tool_output=1056), 31_680_000),
    ],
)
def test_every_unit_is_priced_again_to_what_was_billed(process, account, usage, nusd):
    where = place(prices=(Prices(IN_UNITS),))
    serve(process, account, where, units=Units(NO_USAGE, NO_USAGE), usage=usage)
    report = rerate(process.database, catalogue(where.mapping), AT, AT + 1)
    assert lines(report) == {("mock/m-1", True): (1, nusd, nusd)} and report.left == {}


def test_a_sum_of_several_calls_is_priced_again(process, account):
    where = place(prices=(Prices(TokenRates(request=10**6 * MILLION)),))
    serve(process, account, where, units=Units(NO_USAGE, NO_USAGE), usage=Usage(input=7, calls=3))
    report = rerate(process.database, catalogue(where.mapping), AT, AT + 1)
    assert lines(report) == {("mock/m-1", True): (1, 3_000_000, 3_000_000)}


def test_images_billed_by_tokens_are_priced_again(process, account):
    where = place(prices=(Prices(TokenRates(prompt=1000 * MILLION, output_image=9000 * MILLION)),))
    serve(process, account, where, usage=Usage(input=2, output_image=4160, images=1, price_key="high/1024x1024"))
    report = rerate(process.database, catalogue(where.mapping), AT, AT + 1)
    assert lines(report) == {("mock/m-1", True): (1, 37_442_000, 37_442_000)}


def test_a_region_has_its_own_prices(process, account):
    where = place(region="eu")
    serve(process, account, where)
    dear = dataclasses.replace(where.mapping, prices=DATED[1:])
    report = rerate(process.database, catalogue(place().mapping, dear), AT, AT + 1)
    assert list(lines(report)) == [("mock/m-1:eu", True)]
    assert lines(report)["mock/m-1:eu", True][2] == 34_000
