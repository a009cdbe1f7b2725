"""Exports of providers, in the forms of their APIs and consoles, compared with usage rows."""

import json

import pytest
from support.management import Tenants
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, from_datetime, to_datetime, to_iso
from gateway.errors import InvalidRequest
from gateway.metering.models import BYOK
from gateway.reports.invoices import compare_invoice, read_invoice

DAY = 20_500
SECONDS = DAY * 86_400
DATE = to_iso(DAY * DAY_US)[:10]


def openai_usage(tokens: int) -> bytes:
    result = {"input_tokens": tokens + 20, "input_cached_tokens": 20, "output_tokens": 5, "model": "gpt-4o-2024-08-06"}
    bucket = {"object": "bucket", "start_time": SECONDS, "end_time": SECONDS + 86_400, "results": [result]}
    return json.dumps({"object": "page", "data": [bucket]}).encode()


def openai_costs(usd: str) -> bytes:
    amount = {"value": usd, "currency": "usd"}
    bucket = {"start_time": SECONDS, "end_time": SECONDS + 86_400, "results": [{"amount": amount, "line_item": None}]}
    return json.dumps({"object": "page", "data": [bucket]}).encode()


def anthropic_usage(tokens: int) -> bytes:
    result = {
        "uncached_input_tokens": tokens, "cache_read_input_tokens": 20, "output_tokens": 5,
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
        "model": "claude-sonnet-4-5-20250929",
    }  # fmt: skip
    return json.dumps({"data": [{"starting_at": f"{DATE}T00:00:00Z", "results": [result]}]}).encode()


def anthropic_costs(cents: str) -> bytes:
    result = {"currency": "USD", "amount": cents}
    return json.dumps({"data": [{"starting_at": f"{DATE}T00:00:00Z", "results": [result]}]}).encode()


def anthropic_csv(tokens: int) -> bytes:
    header = "usage_date_utc,model_version,usage_input_tokens_no_cache,usage_input_tokens_cache_write_5m"
    more = "usage_input_tokens_cache_write_1h,usage_input_tokens_cache_read,usage_output_tokens"
    return f"{header},{more}\r\n{DATE},claude-sonnet-4-5-20250929,{tokens},3,4,20,5\r\n".encode()


@pytest.fixture
def recorded(tenants: Tenants) -> Tenants:
    """A call at each provider, and one with an organization's own key, which is on no invoice of the installation."""
    at_us = DAY * DAY_US + 5
    counts = {"input": 100, "cache_read": 20, "output": 5, "cost_nusd": 9_000_000_000, "discount_nusd": 10**9}
    database = tenants.services.store.database
    database.write(lambda: database.execute("DELETE FROM usage"))
    insert_rows(
        database,
        usage_row(at_us, provider="openai", served="gpt-4o", **counts),
        usage_row(at_us, provider="anthropic", served="claude-sonnet-4-5", cache_write=7, **counts),
        usage_row(at_us, provider="openai", served="gpt-4o", **(counts | {"mode": BYOK})),
    )
    assert from_datetime(to_datetime(at_us)) == at_us
    return tenants


def compare(tenants: Tenants, text: bytes) -> list[tuple]:
    catalogue = tenants.services.routing.catalogue.current()
    return [tuple(one) for one in compare_invoice(tenants.services.store.database, catalogue, read_invoice(text))]


@pytest.mark.parametrize("export", [openai_usage, anthropic_usage, anthropic_csv])
def test_tokens_that_differ_are_listed_by_day_and_model(recorded: Tenants, export) -> None:
    assert compare(recorded, export(100)) == []
    [(day, _, figure, invoiced, own)] = compare(recorded, export(130))
    assert (day, figure, invoiced, own) == (DATE, "input", 130, 100)


@pytest.mark.parametrize(("export", "equal", "more"), [(openai_costs, "10", "10.5"), (anthropic_costs, "1000", "1050")])
def test_costs_that_differ_are_listed_by_day(recorded: Tenants, export, equal: str, more: str) -> None:
    assert compare(recorded, export(equal)) == []
    assert compare(recorded, export(more)) == [(DATE, "", "cost", 10_500_000_000, 10**10)]


@pytest.mark.parametrize("text", [b"", b"a,b\r\n1,2\r\n", b"{", b"[1]", b'{"data": []}'])
def test_a_file_that_is_no_export_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_invoice(text)
