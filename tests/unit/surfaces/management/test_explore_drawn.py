"""Explore on both stores: drawn measures, groups, filters and periods have the same sums on the page, in the file and
in the API as `/activity`, the ledger and the rows, to the nano-dollar."""

import csv
import io
import random
import re
from collections.abc import Callable, Iterator
from datetime import UTC, date, datetime, timedelta
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from support.console import open_page
from support.management import Tenants
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, SECOND_US
from gateway.metering.models import CACHED, CREDITS, SETTLEMENT
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.money import NANO, parse_usd
from gateway.surfaces.console.grouping import GROUPS
from gateway.surfaces.console.usage_measures import MEASURES

PEOPLE = ("acme owner", "acme developer", "acme colleague")
DAYS = 40
TODAY = date.today()
MODELS = ("openai/gpt-5", "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "mistral/<i>large</i>")
SPEND = re.compile(r'data-label="Spend"><span title="\$([\d.]+)"')
STAT = re.compile(r'<dt>Spend</dt><dd><span title="\$([\d.]+)"')
QUOTED = 'te"am'  # the name of a tag that a path of JSON cannot quote
TAGS = (None, '{"team":"ads"}', '{"team":"search","user":"ann"}', '{"te\\"am":"x","user":"bob"}')
Filter = tuple[str, str, Callable[[UsageRecord], bool]]
FILTERS: tuple[Filter, ...] = (
    ("model", "openai/gpt-5", lambda row: row.served == "gpt-5"),
    ("provider", "openai", lambda row: row.provider == "openai"),
    ("source", "codex", lambda row: row.source == "codex"),
    ("session", "first", lambda row: row.session == "first"),
    ("operation", "images", lambda row: row.operation == "images"),
    ("errorCode", "upstream_timeout", lambda row: row.error == "upstream_timeout"),
    ("metadata", "team:ads", lambda row: row.tags == TAGS[1]),
    ("metadata", f"{QUOTED}:x", lambda row: row.tags == TAGS[3]),
)
# Of many draws a handful run in each test; `make extended` runs the others.
SEEDS = [*range(6), *(pytest.param(seed, marks=pytest.mark.extended) for seed in range(6, 60))]

Site = tuple[Tenants, list[UsageRecord]]


@pytest.fixture(scope="module", params=["sqlite", "postgresql"])
def site(request: pytest.FixtureRequest, make_tenants: Callable[..., Any]) -> Iterator[Site]:
    """A gateway on each store with drawn usage of three people on days that the ledger has closed."""
    settings = {}
    if request.param == "postgresql":
        settings["GATEWAY_DATABASE_URL"] = request.getfixturevalue("postgres_databases").take()
        settings["GATEWAY_API_KEY_HASH_SECRET"] = "hash-secret-of-the-tests-that-is-long"
        settings["GATEWAY_ENCRYPTION_KEY"] = "encryption-key-of-the-tests-that-is-long"
    with make_tenants(**settings) as gateway:
        gateway.app.background.stop()  # its rounds of the rollups would meet those of this test
        tenants = Tenants(gateway)
        yield tenants, fill(tenants, random.Random(7))


def fill(tenants: Tenants, dice: random.Random) -> list[UsageRecord]:
    owner = tenants["acme owner"]
    tenants.services.billing.ledger.grant(owner.organization_id, 10**15, "sums")
    end = int(datetime.combine(TODAY - timedelta(days=1), datetime.min.time(), UTC).timestamp()) * SECOND_US
    rows = []
    for _ in range(300):
        person = tenants[dice.choice(PEOPLE)]
        provider, _, served = dice.choice(MODELS).partition("/")
        at = end - 1 - dice.randrange((DAYS - 1) * DAY_US)
        fields: dict[str, Any] = {
            "organization": raw_id(person.organization_id),
            "project": raw_id(person.project_id),
            "api_key": raw_id(person.key.info.id),
            "member": raw_id(person.member_id),
            "kind": SETTLEMENT,
            "operation": dice.choice(("chat", "chat", "embeddings", "images")),
            "mode": CREDITS,
            "provider": provider,
            "asked": served,
            "served": served,
            "source": dice.choice(("", "codex", "cursor")),
            "session": dice.choice((None, "first", "second")),
            "tags": dice.choice(TAGS),
            "cost_nusd": dice.randrange(10**12),
            "input": dice.randrange(100),
            "output": dice.randrange(100),
            "finish": dice.choice(("stop", "tool_calls")),
            "ttft_ms": dice.choice((0, dice.randrange(1, 900))),
            "duration_ms": dice.randrange(900, 90_000),
            "error": dice.choice((None, None, "upstream_timeout", "client_error")),
            "flags": dice.choice((0, CACHED)),
        }
        row = usage_row(at, **fields)
        rows.append(row._replace(posted_at=row.at + 5))
        if dice.random() < 0.2:  # a second attempt, which represents the request
            second = {**fields, "error": None, "attempt": 1, "cost_nusd": dice.randrange(10**12)}
            rows.append(usage_row(at, request=row.request, **second)._replace(posted_at=row.at + 6))
    insert_rows(tenants.services.store.database, *sorted(rows, key=lambda row: row.posted_at))
    tenants.services.billing.rollups.catch_up()
    tenants.services.billing.ledger_close.close()
    return rows


def draw(dice: random.Random) -> tuple[dict[str, str], list[Filter]]:
    """Return the parameters of a question, and its filters."""
    measure = dice.choice(list(MEASURES))
    group = dice.choice(list(GROUPS))
    split = dice.choice(["", *(name for name in GROUPS if name != group)])
    filters = dice.sample(FILTERS, dice.choice((0, 0, 1, 2)))
    filters = list({name: one for one in filters for name in (one[0],)}.values())
    first = dice.randrange(2, DAYS)
    days = (TODAY - timedelta(days=first), TODAY - timedelta(days=dice.randrange(1, first + 1)))
    period = {"timeRange": "custom", "from": str(days[0]), "to": str(days[1])}
    question = {"measure": measure, "groupBy": group, "splitBy": split, "tag": dice.choice(("team", QUOTED)), **period}
    question |= {name: value for name, value, _ in filters}
    return {name: value for name, value in question.items() if value}, filters


@pytest.mark.parametrize("seed", SEEDS)
def test_a_drawn_question_has_the_same_sums_everywhere(site: Site, seed: int) -> None:
    tenants, rows = site
    tenants.services.store.database.bind()
    owner = tenants["acme owner"]
    question, filters = draw(random.Random(seed))
    first, last = (date.fromisoformat(question[name]) for name in ("from", "to"))
    within = [row for row in rows if first <= datetime.fromtimestamp(row.at / SECOND_US, UTC).date() <= last]
    total = sum(row.cost_nusd for row in within if all(matches(row) for _, _, matches in filters))
    query = urlencode(question)
    page = unescape(open_page(tenants, owner, f"/console/explore?{query}"))
    assert "no sums of this combination" not in page
    shown, listed = page.split('id="list"')
    assert parse_usd(STAT.findall(shown)[0]) == total, "the page"
    assert sum(map(parse_usd, SPEND.findall(listed))) == total or "page=2" in listed, "the names of the page"
    assert sum(map(parse_usd, SPEND.findall(shown))) == total, "the bars of the page"
    figures = tenants.ok("GET", f"/activity/explore?{query}", owner)
    assert parse_usd(figures["cost"]) == total, "the API"
    assert sum(parse_usd(one["cost"]) for one in figures["names"]) == total, "the names of the API"
    assert sum(parse_usd(one["cost"]) for one in figures["steps"]) == total, "the steps of the API"
    assert sum(one["requestCount"] for one in figures["names"]) == figures["requestCount"]
    headers = {"Authorization": f"Bearer {owner.token}"}
    text = tenants.client.get(f"/activity/explore/export?{query}", headers=headers)
    table = list(csv.DictReader(io.StringIO(text.get_data(as_text=True))))
    assert sum(parse_usd(line["cost"]) for line in table) == total, "the file"
    assert len(table) == len(figures["names"])
    if MEASURES[question["measure"]].figures == ("cost_nusd",) and "value" in figures:
        assert round((figures["value"] or 0) * NANO) in (total, round(total / max(1, figures["requestCount"]))) or (
            question["measure"] == "tokenCost"
        )
    days = tenants.client.get(f"/activity?from={question['from']}&to={question['to']}", headers=headers).json[
        "activity"
    ]
    if not filters:
        assert sum(round(day["cost"] * NANO) for day in days) == total, "/activity"


@pytest.mark.parametrize("group", ["model", "user", "team", "costCenter", "session", "error"])
def test_answers_that_call_tools_are_those_of_the_rows(site: Site, group: str) -> None:
    tenants, rows = site
    tenants.services.store.database.bind()
    last = {row.request: row for row in sorted(rows, key=lambda row: row.attempt)}
    expected = sum(row.finish == "tool_calls" for row in last.values())
    period = {"timeRange": "custom", "from": str(TODAY - timedelta(days=DAYS + 1)), "to": str(TODAY)}
    query = urlencode({**period, "groupBy": group, "measure": "toolAnswers"})
    figures = tenants.ok("GET", f"/activity/explore?{query}", tenants["acme owner"])
    assert figures["value"] == sum(one["value"] for one in figures["names"]) == expected > 0
    assert sum(one["value"] for one in figures["steps"]) == expected


def test_all_usage_is_in_the_ledger(site: Site) -> None:
    tenants, rows = site
    tenants.services.store.database.bind()
    owner = tenants["acme owner"]
    entries = tenants.services.billing.ledger.entries(owner.organization_id, 5_000)
    assert -sum(one.amount_nusd for one in entries if one.kind == "usage") == sum(row.cost_nusd for row in rows)
    period = {"timeRange": "custom", "from": str(TODAY - timedelta(days=DAYS + 1)), "to": str(TODAY)}
    query = urlencode({**period, "groupBy": "model", "splitBy": "error"})
    figures = tenants.ok("GET", f"/activity/explore?{query}", owner)
    assert parse_usd(figures["cost"]) == sum(row.cost_nusd for row in rows)
    repeated = {row.request for row in rows if row.attempt}
    errors = {row.request for row in rows if row.error and row.attempt == 0} - repeated
    failed = [one for one in figures["names"] if one["names"][1] != "No error"]
    assert sum(one["requestCount"] for one in failed) == len(errors), "a request counts by its last attempt"
