"""Exports of providers, in the forms of their APIs and consoles, compared with usage rows."""

import json
from decimal import Decimal
from importlib import import_module

import pytest
from support.management import Tenants
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, SECOND_US, from_datetime, to_datetime, to_iso
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


def openai_csv(tokens: int) -> bytes:
    """The usage of completions as the dashboard exports it, with a day without usage."""
    header = (
        "start_time,end_time,start_time_iso,end_time_iso,project_id,num_model_requests,user_id,api_key_id,model,batch"
    )
    more = "service_tier,input_tokens,output_tokens,input_cached_tokens,input_uncached_tokens"
    times = f"{SECONDS},{SECONDS + 86_400},{DATE}T00:00:00+00:00,,"
    used = f"proj_1,1.0,user-1,key_1,gpt-4o-2024-08-06,FALSE,default,{tokens + 20}.0,5.0,20.0,{tokens}.0"
    empty = f"{SECONDS - 86_400},{SECONDS},,,,,,,,,,,,,"
    return f"{header},{more}\r\n{times[:-1]},{used}\r\n{empty}\r\n".encode()


def openai_costs_csv(usd: str) -> bytes:
    header = "start_time,end_time,start_time_iso,end_time_iso,amount_value,amount_currency,line_item,project_id"
    day = f"{SECONDS},{SECONDS + 86_400},{DATE}T00:00:00+00:00,,{Decimal(usd):.16f},usd,,"
    empty = f"{SECONDS - 86_400},{SECONDS},{to_iso((DAY - 1) * DAY_US)[:10]}T00:00:00+00:00,,,,,"
    return f"{header}\r\n{day}\r\n{empty}\r\n".encode()


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


def anthropic_analytics_usage(tokens: int) -> bytes:
    usage = {
        "uncached_input_tokens": tokens, "cache_read_input_tokens": 20, "output_tokens": 5, "total_tokens": tokens + 32,
        "cache_creation": {"ephemeral_5m_input_tokens": 3, "ephemeral_1h_input_tokens": 4},
    }  # fmt: skip
    item = {"starting_at": f"{DATE}T00:00:00Z", "group": {"model": "claude-sonnet-4-5-20250929"}, "usage": usage}
    return json.dumps({"data": [item], "next_page": None}).encode()


def anthropic_analytics_costs(cents: str) -> bytes:
    cost = {"amount": "1", "currency": "USD", "list_amount": cents}
    item = {"starting_at": f"{DATE}T00:00:00Z", "group": {"model": None}, "cost": cost}
    return json.dumps({"data": [item], "next_page": None}).encode()


def anthropic_costs_by_bucket(cents: str) -> bytes:
    result = {"amount": "1", "currency": "USD", "list_amount": cents, "model": None}
    return json.dumps({"data": [{"starting_at": f"{DATE}T00:00:00Z", "results": [result]}]}).encode()


def anthropic_costs_csv(usd: str) -> bytes:
    header = (
        "usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,list_price_usd,cost_type"
    )
    row = f"{DATE},Claude Sonnet 4.5,Default,key,message,≤ 200k,input_no_cache,1.00,{usd}"
    return f"{header}\r\n{row}\r\n".encode()


def anthropic_old_costs_csv(usd: str) -> bytes:
    header = "usage_date_utc,model,workspace,api_key,usage_type,context_window,token_type,cost_usd,cost_type"
    row = f"{DATE},Claude Sonnet 4.5,Default,key,message,≤ 200k,input_no_cache,{usd},token"
    return f"{header}\r\n{row}\r\n".encode()


@pytest.fixture
def recorded(tenants: Tenants) -> Tenants:
    """A call at each provider, and one with an organization's own key, which is on no invoice of the installation."""
    at_us = DAY * DAY_US + 5
    counts = {"input": 100, "cache_read": 20, "output": 5, "cost_nusd": 9_000_000_000, "discount_nusd": 10**9}
    database = tenants.services.store.database
    database.write(lambda: database.execute("DELETE FROM usage"))
    insert_rows(
        database,
        usage_row(at_us, provider="openai", served="gpt-4o", operation="chat", **counts),
        usage_row(at_us, provider="openai", served="text-embedding-3-small", operation="embeddings", input=70),
        usage_row(at_us, provider="anthropic", served="claude-sonnet-4-5", cache_write=7, **counts),
        usage_row(at_us, provider="openai", served="gpt-4o", **(counts | {"mode": BYOK})),
    )
    assert from_datetime(to_datetime(at_us)) == at_us
    return tenants


def compare(tenants: Tenants, text: bytes) -> list[tuple]:
    catalogue = tenants.services.routing.catalogue.current()
    return [tuple(one) for one in compare_invoice(tenants.services.store.database, catalogue, read_invoice(text))]


USAGE = [
    *((export, "gpt-4o") for export in (openai_usage, openai_csv)),
    *((export, "claude-sonnet-4-5") for export in (anthropic_usage, anthropic_analytics_usage, anthropic_csv)),
]
DOLLARS = [openai_costs, openai_costs_csv, anthropic_costs_csv, anthropic_old_costs_csv]
CENTS = [anthropic_costs, anthropic_analytics_costs, anthropic_costs_by_bucket]
COSTS = [(export, "10", "10.5") for export in DOLLARS] + [(export, "1000", "1050") for export in CENTS]


@pytest.mark.parametrize(("export", "model"), USAGE)
def test_tokens_that_differ_are_listed_by_day_and_model(recorded: Tenants, export, model: str) -> None:
    assert compare(recorded, export(100)) == []
    assert compare(recorded, export(130)) == [(DATE, model, "input", 130, 100)]


def test_input_of_openai_includes_what_was_written_into_its_cache(recorded: Tenants) -> None:
    later_us = (DAY + 3) * DAY_US
    row = usage_row(
        later_us,
        provider="openai",
        served="gpt-4o",
        operation="chat",
        input=100,
        cache_read=20,
        cache_write=7,
        output=5,
    )
    insert_rows(recorded.services.store.database, row)
    [bucket] = json.loads(openai_usage(100))["data"]
    bucket["start_time"] = later_us // SECOND_US
    [result] = bucket["results"]
    result |= {"input_tokens": 127, "input_cache_write_tokens": 7}
    assert compare(recorded, json.dumps({"data": [bucket]}).encode()) == []


@pytest.mark.parametrize(("export", "equal", "more"), COSTS)
def test_costs_that_differ_are_listed_by_day(recorded: Tenants, export, equal: str, more: str) -> None:
    assert compare(recorded, export(equal)) == []
    assert compare(recorded, export(more)) == [(DATE, "", "cost", 10_500_000_000, 10**10)]


@pytest.mark.parametrize("export", [anthropic_analytics_costs, anthropic_costs_by_bucket])
def test_costs_of_an_export_by_model_are_compared_by_model(recorded: Tenants, export) -> None:
    by_model = export("1050").replace(b'"model": null', b'"model": "claude-sonnet-4-5-20250929"')
    assert compare(recorded, by_model) == [(DATE, "claude-sonnet-4-5", "cost", 10_500_000_000, 10**10)]


def test_an_export_of_embeddings_is_compared_with_them_alone(recorded: Tenants) -> None:
    def export(tokens: int) -> bytes:
        result = {"input_tokens": tokens, "num_model_requests": 1, "model": "text-embedding-3-small"}
        return json.dumps({"data": [{"start_time": SECONDS, "results": [result]}]}).encode()

    assert compare(recorded, export(70)) == []
    assert compare(recorded, export(71)) == [(DATE, "text-embedding-3-small", "input", 71, 70)]


@pytest.mark.slow
def test_members_are_those_of_the_types_of_the_vendors_libraries() -> None:
    openai_types = import_module("openai.types.admin.organization")
    usage = import_module("openai.types.admin.organization.usage_completions_response")
    costs = import_module("openai.types.admin.organization.usage_costs_response")
    claude = import_module("anthropic.types.beta.organization.analytics")
    buckets = import_module("anthropic.types.beta.organization")
    assert openai_types.UsageCostsResponse is costs.UsageCostsResponse
    for model, names in (
        (usage.Data, {"start_time", "results"}),
        (
            usage.DataResultOrganizationUsageCompletionsResult,
            {"input_tokens", "input_cached_tokens", "input_cache_write_tokens", "output_tokens", "model"},
        ),
        (costs.DataResultOrganizationCostsResult, {"amount"}),
        (costs.DataResultOrganizationCostsResultAmount, {"value"}),
        (claude.BetaAnalyticsCostItem, {"starting_at", "group", "cost"}),
        (claude.BetaAnalyticsCostMetrics, {"list_amount"}),
        (claude.BetaAnalyticsUsageItem, {"starting_at", "group", "usage"}),
        (
            claude.BetaAnalyticsUsageMetrics,
            {"uncached_input_tokens", "cache_read_input_tokens", "cache_creation", "output_tokens"},
        ),
        (claude.BetaAnalyticsCostGroup, {"model"}),
        (claude.BetaAnalyticsUsageGroup, {"model"}),
        (buckets.BetaAnalyticsCostReportTimeBucket, {"starting_at", "results"}),
        (buckets.BetaAnalyticsCostBucketedResult, {"list_amount", "amount", "currency", "model"}),
    ):
        assert names <= set(model.model_fields), model


OTHER_EXPORTS = (
    f"start_time,start_time_iso,images\r\n{SECONDS},{DATE}T00:00:00+00:00,2\r\n",
    f"usage_date_utc,sessions\r\n{DATE},2\r\n",
    json.dumps({"data": [{"starting_at": f"{DATE}T00:00:00Z", "results": [{"sessions": 2}]}]}),
)


@pytest.mark.parametrize(
    "text",
    [b"", b"a,b\r\n1,2\r\n", b"{", b"[1]", b'{"data": []}', b'{"data": [1]}', *map(str.encode, OTHER_EXPORTS)],
)
def test_a_file_that_is_no_export_is_refused(text: bytes) -> None:
    with pytest.raises(InvalidRequest):
        read_invoice(text)
