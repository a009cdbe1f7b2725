"""Savings and waste, with cause and remedy, from the prices of the rows themselves."""

from collections.abc import Iterator
from typing import Any

import pytest
from support.management import Person, Tenants
from support.usage import insert_rows, usage_row

from gateway import ids
from gateway.clock import DAY_US, HOUR_US
from gateway.metering import route_usage
from gateway.metering.models import CACHED
from gateway.metering.usage_table import raw_id
from gateway.money import NANO
from gateway.telemetry.cache_watch import LOSS, PREFIX, REMEDIES

PATH = "/activity/savings?timeRange=7d"


@pytest.fixture
def tenants(open_tenants) -> Iterator[Tenants]:
    with open_tenants() as opened:
        yield opened


def record(tenants: Tenants, person: Person, request: bytes = b"", **fields: Any) -> None:
    owners = {
        "organization": raw_id(person.organization_id),
        "project": raw_id(person.project_id),
        "api_key": raw_id(person.key.info.id),
        "member": raw_id(person.member_id),
    }
    at_us = tenants.services.store.database.now_us() - HOUR_US
    values = {"provider": "house", "served": "m", "operation": "chat", **fields}
    row = usage_row(at_us, request=request or bytes.fromhex(ids.new_hex()), **owners, **values)
    insert_rows(tenants.services.store.database, row)


def read(tenants: Tenants, person: Person, path: str = PATH) -> tuple[dict[str, Any], dict[tuple[str, str], Any]]:
    tenants.services.billing.rollups.catch_up()
    answer = tenants.ok("GET", path, person)
    saved = {one["kind"]: one for one in answer["saved"]}
    return saved, {(one["kind"], one["cause"]): one for one in answer["wasted"]}


def test_prompt_caches_save_the_difference_to_fresh_input_in_the_prices_of_the_rows(tenants: Tenants) -> None:
    """1,000 fresh tokens cost 3,000 nano-dollars; 9,000 cached ones 2,700 instead of 27,000; 500 were written for 1,875
    instead of 1,500."""
    person = tenants["acme developer"]
    costs = {"input_nusd": 3_000, "cached_nusd": 2_700, "cache_write_nusd": 1_875, "cost_nusd": 7_575}
    record(tenants, person, input=1_000, cache_read=9_000, cache_write=500, **costs)
    saved, wasted = read(tenants, person)
    assert saved["prompt_cache"]["amount"] == "0.000023925"  # 27,000 − 2,700 − (1,875 − 1,500)
    assert (saved["prompt_cache"]["count"], saved["prompt_cache"]["estimated"]) == (9_000, False)
    assert wasted == {}


def test_what_is_written_to_a_cache_and_not_read_is_a_waste(tenants: Tenants) -> None:
    person = tenants["acme developer"]
    record(
        tenants, person, input=1_000, input_nusd=3_000, cache_write=10_000, cache_write_nusd=37_500, cost_nusd=40_500
    )
    saved, wasted = read(tenants, person)
    assert saved == {}
    assert wasted["cache_unread", ""]["amount"] == "0.0000075" and "cache marks" in wasted["cache_unread", ""]["remedy"]


def test_the_response_cache_saves_about_what_other_requests_cost(tenants: Tenants) -> None:
    person = tenants["acme developer"]
    for _ in range(2):
        record(tenants, person, input=10, input_nusd=NANO, cost_nusd=NANO)
    record(tenants, person, input=10, cost_nusd=0, flags=CACHED)
    saved, _ = read(tenants, person)
    assert (saved["response_cache"]["amount"], saved["response_cache"]["estimated"]) == ("1", True)


def test_discounts_and_routes_are_savings(tenants: Tenants) -> None:
    person, owner, rival = (tenants[name] for name in ("acme developer", "acme owner", "rival owner"))
    record(tenants, person, input=1, cost_nusd=NANO, discount_nusd=NANO // 4)
    database = tenants.services.store.database
    key = (bytes(16), 0, raw_id(person.organization_id), raw_id(person.project_id))
    row = (*key, "house", 1, "hard", "m", "stop", 0, 900, NANO, 3 * NANO, database.now_us() - HOUR_US)
    database.write(lambda: database.execute(route_usage.RECORD.sql, row))
    saved, _ = read(tenants, owner)
    assert (saved["discounts"]["amount"], saved["routes"]["amount"], saved["routes"]["count"]) == ("0.25", "2", 1)
    assert read(tenants, rival) == ({}, {})
    assert "routes" not in read(tenants, person)[0]  # they are not split by key


def test_failed_attempts_that_were_billed_are_wasted_by_cause(tenants: Tenants) -> None:
    person, colleague, owner = (tenants[f"acme {name}"] for name in ("developer", "colleague", "owner"))
    again = bytes.fromhex(ids.new_hex())
    record(tenants, person, again, error="upstream_error", cost_nusd=NANO, attempt=0)
    record(tenants, person, again, cost_nusd=NANO, attempt=1)
    record(tenants, person, error="upstream_error", cost_nusd=2 * NANO)
    record(tenants, person, error="request_cancelled", cost_nusd=3 * NANO)
    record(tenants, person, error="rate_limited", cost_nusd=0)  # nothing was billed
    record(tenants, colleague, error="upstream_error", cost_nusd=50 * NANO)
    _, wasted = read(tenants, person)
    assert {name: one["amount"] for name, one in wasted.items()} == {
        ("failed", "request_cancelled"): "3",
        ("failed", "upstream_error"): "2",
        ("retried", "upstream_error"): "1",
    }
    assert "stream" in wasted["failed", "request_cancelled"]["remedy"]
    assert "explain" in wasted["retried", "upstream_error"]["remedy"]
    _, whole = read(tenants, owner)
    assert whole["failed", "upstream_error"]["amount"] == "52"
    assert read(tenants, tenants["rival owner"]) == ({}, {})


def test_turns_without_their_prompt_cache_are_wasted_with_the_cause(tenants: Tenants) -> None:
    person = tenants["acme developer"]
    database = tenants.services.store.database
    owners = (raw_id(person.project_id), raw_id(person.key.info.id))
    for days in (0, 30):
        at_us = database.now_us() - HOUR_US - days * DAY_US
        row = (bytes.fromhex(ids.new_hex()), *owners, "s", PREFIX, 9_000, NANO, at_us)
        database.write(lambda row=row: database.execute(LOSS, row))
    _, wasted = read(tenants, person)
    lost = wasted["cache_lost", PREFIX]
    assert (lost["amount"], lost["count"]) == ("1", 1)
    assert lost["remedy"].lower().startswith(REMEDIES[PREFIX][:20])
    assert read(tenants, tenants["rival owner"]) == ({}, {})
