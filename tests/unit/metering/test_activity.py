import random
from collections import Counter

import orjson
import pytest
from support.usage import insert_rows

from gateway import ids
from gateway.metering.activity import Owners, Span, last_hours, measure
from gateway.metering.models import BYOK, CACHED, CREDITS, LATE_CORRECTION, RETRIED
from gateway.metering.rollups.job import Rollups
from gateway.metering.rollups.queries import at_once
from gateway.metering.usage_table import UsageRecord, raw_id

HOUR_US = 3_600_000_000
DAY_US = 24 * HOUR_US
DAY = 20_000
START = DAY * DAY_US
PROJECT, OTHER = ids.new("proj"), ids.new("proj")
MEMBER, KEY = ids.new("member"), ids.new("key")
ZERO = dict.fromkeys(UsageRecord._fields, 0) | dict.fromkeys(
    ("operation", "provider", "asked", "served", "source", "finish", "price_version"), ""
)
ZERO |= UsageRecord._field_defaults
MODEL = {"served": "small", "provider": "vendor", "source": "app"}


def row(**given) -> UsageRecord:
    base = {"request": bytes.fromhex(ids.new_hex()), "organization": b"o", "project": raw_id(PROJECT),
            "api_key": raw_id(KEY), "member": raw_id(MEMBER)}  # fmt: skip
    values = {**ZERO, **base, **MODEL, "at": START, "cost_nusd": 10, "input": 3, "output": 2, **given}
    return UsageRecord(**{**values, "posted_at": values["at"] + 5})


@pytest.fixture
def write(database):
    return lambda *rows: insert_rows(database, *rows)


def ask(database, owners, span, dimension):
    Rollups(database).catch_up()
    return at_once(database, lambda: measure(database, owners, span, dimension))


def day(database, dimension="model", owners=Owners((PROJECT,))):
    return ask(database, owners, Span(DAY * 24, DAY * 24 + 24, "day"), dimension)


def test_a_request_counts_once_by_its_last_attempt_and_costs_by_all(database, write) -> None:
    request = bytes.fromhex(ids.new_hex())
    failed = row(request=request, error="upstream_error", served="large", cost_nusd=4)
    write(failed, row(request=request, attempt=1, flags=RETRIED), row())
    rows = {one.value: one.figures for one in day(database)}
    assert (rows["large", "vendor"].requests, rows["large", "vendor"].errors, rows["large", "vendor"].cost_nusd) == (
        0,
        0,
        4,
    )
    assert (rows["small", "vendor"].requests, rows["small", "vendor"].errors) == (2, 0)


def test_a_request_that_failed_in_its_last_attempt_is_an_error(database, write) -> None:
    request = bytes.fromhex(ids.new_hex())
    write(row(request=request, error="timeout"), row(request=request, attempt=1, flags=RETRIED, error="client_error"))
    [found] = day(database)
    assert (found.figures.requests, found.figures.errors, found.figures.client_errors) == (1, 1, 1)


def test_a_later_correction_adds_cost_and_no_request(database, write) -> None:
    first = row(cost_nusd=10)
    write(first, first._replace(kind=LATE_CORRECTION, cost_nusd=7, input=1, output=0))
    [found] = day(database)
    assert (found.figures.requests, found.figures.cost_nusd, found.figures.input_tokens) == (1, 17, 4)


def test_credits_and_own_keys_and_replays_are_distinguished(database, write) -> None:
    write(row(mode=CREDITS), row(mode=BYOK, cost_nusd=3), row(flags=CACHED, cost_nusd=0))
    [found] = day(database)
    figures = found.figures
    assert (figures.requests, figures.byok_requests, figures.cached_requests) == (3, 1, 1)
    assert (figures.cost_nusd, figures.byok_nusd) == (13, 3)


def test_the_fee_for_storage_is_distinguished_and_by_who_paid_the_provider(database, write) -> None:
    write(row(storage_nusd=150), row(mode=BYOK, cost_nusd=3, storage_nusd=40), row(storage_nusd=None))
    [found] = day(database)
    figures = found.figures
    assert (figures.storage_nusd, figures.byok_storage_nusd) == (190, 40)
    assert (figures.cost_nusd, figures.byok_nusd) == (23, 3)


def test_counts_and_costs_without_a_column_are_added(database, write) -> None:
    extra = {"units": {"input_audio": 5, "output_image": 7}, "nusd": {"image_output": 11, "request": 2}}
    write(row(extra=orjson.dumps(extra).decode()), row())
    [found] = day(database)
    assert (found.figures.input_tokens, found.figures.output_tokens) == (11, 11)
    assert (found.figures.image_output_nusd, found.figures.request_nusd) == (11, 2)


def test_other_projects_keys_and_times_are_left_out(database, write) -> None:
    write(row(), row(project=raw_id(OTHER)), row(api_key=raw_id(ids.new("key"))))
    write(row(at=START - 1), row(at=START + DAY_US))
    assert [one.figures.requests for one in day(database, owners=Owners(key_ids=(KEY,)))] == [2]
    assert sum(one.figures.requests for one in day(database)) == 2
    assert day(database, owners=Owners()) == []


def test_a_row_has_the_time_at_which_it_was_summed(database, write) -> None:
    write(row())
    [found] = day(database, "total")
    assert 0 < found.updated_us <= database.now_us() and found.last_hour == DAY * 24


@pytest.mark.parametrize("dimension", ["total", "model", "api_key", "source"])
def test_every_cut_of_the_same_rows_has_the_same_sums(database, write, dimension) -> None:
    dice = random.Random(7)
    rows = [
        row(at=START + dice.randrange(DAY_US), cost_nusd=dice.randrange(10**12), served=dice.choice("abc"),
            source=dice.choice(("x", "")), api_key=raw_id(dice.choice((KEY, OTHER))), input=dice.randrange(9))
        for _ in range(300)
    ]  # fmt: skip
    write(*rows)
    owners = Owners(key_ids=(KEY, OTHER)) if dimension == "api_key" else Owners((PROJECT,))
    found = ask(database, owners, Span(DAY * 24, DAY * 24 + 24, "hour"), dimension)
    by_hour = Counter(r.at // HOUR_US for r in rows)
    assert sum(one.figures.cost_nusd for one in found) == sum(r.cost_nusd for r in rows)
    assert sum(one.figures.input_tokens for one in found) == sum(r.input for r in rows)
    counted: Counter[int] = Counter()
    for one in found:
        counted[one.step] += one.figures.requests
    assert counted == by_hour


@pytest.mark.parametrize("end", [24 * 64, 24 * 20 + 8], ids=["whole blocks", "a part of a day"])
def test_the_last_hour_of_a_source_is_that_of_its_rows_however_far_the_period_reaches(database, write, end) -> None:
    dice, first = random.Random(3), DAY * 24 // (24 * 32) * 24 * 32
    rows = [row(at=(first + dice.randrange(24 * 32)) * HOUR_US, source=dice.choice("abcdef")) for _ in range(60)]
    write(*rows)
    Rollups(database).catch_up()
    span = Span(first, first + end, "all")
    found = at_once(database, lambda: last_hours(database, Owners((PROJECT,)), span))
    wanted: dict[tuple[str], int] = {}
    for one in rows:
        if one.at < span.end_us:
            wanted[one.source,] = max(wanted.get((one.source,), 0), one.at // HOUR_US)
    assert found == wanted
