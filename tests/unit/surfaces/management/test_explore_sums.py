"""Explore: every grouping, pair of groups and filter adds up to the reports and to the ledger, to the nano-dollar."""

import random
import re
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager
from datetime import UTC, date, datetime, timedelta
from html import unescape
from urllib.parse import quote, urlencode

import gevent
import pytest
from gevent.event import Event
from support.console import open_page
from support.management import Tenants
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, SECOND_US
from gateway.metering.models import CACHED, CREDITS, SETTLEMENT
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.money import NANO, parse_usd
from gateway.store.database import Database
from gateway.surfaces.console.grouping import GROUPS, split_groups
from gateway.surfaces.console.usage_measures import MEASURES
from gateway.surfaces.console.usage_reader import PeriodUsage, UsageQuestion, read_usage

pytestmark = pytest.mark.slow

PEOPLE = ("acme owner", "acme developer", "acme colleague")
DAYS = 12
MODELS = ("openai/gpt-5", "openai/gpt-4o", "anthropic/claude-sonnet-4-5", "mistral/mistral-large")
TODAY = date.today()
PERIOD = {
    "timeRange": "custom",
    "from": str(TODAY - timedelta(days=DAYS + 2)),
    "to": str(TODAY - timedelta(days=2)),
}
SPEND = re.compile(r'data-label="Spend"><span title="\$([\d.]+)"')
STAT = re.compile(r'<dt>Spend</dt><dd><span title="\$([\d.]+)"')
# Groups, and all pairs of them: of statistics, and of usage rows.
PAIRS = [(group, split) for group in GROUPS for split in ("", *split_groups(group))]


@pytest.fixture(scope="module")
def rows() -> list[UsageRecord]:
    return []


@pytest.fixture(scope="module")
def used(open_tenants: Callable[..., AbstractContextManager[Tenants]], rows: list[UsageRecord]) -> Iterator[Tenants]:
    """Tenants with random usage of three people on days that the ledger has closed."""
    dice = random.Random(3)
    with open_tenants() as tenants:
        owner = tenants["acme owner"]
        tenants.services.billing.ledger.grant(owner.organization_id, 10**15, "sums")
        team = tenants.ok("POST", f"/orgs/{owner.organization_id}/teams", owner, {"name": "Search"})["team"]["id"]
        member = tenants["acme developer"].member_id
        tenants.ok("PUT", f"/orgs/{owner.organization_id}/teams/{team}/members/{member}", owner)
        end = int(datetime.combine(TODAY - timedelta(days=1), datetime.min.time(), UTC).timestamp()) * SECOND_US
        for _ in range(400):
            person = tenants[dice.choice(PEOPLE)]
            provider, _, served = dice.choice(MODELS).partition("/")
            row = usage_row(
                end - 1 - dice.randrange((DAYS - 1) * DAY_US),
                organization=raw_id(person.organization_id),
                project=raw_id(person.project_id),
                api_key=raw_id(person.key.info.id),
                member=raw_id(person.member_id),
                kind=SETTLEMENT,
                operation=dice.choice(("chat", "chat", "embeddings", "images")),
                mode=CREDITS,
                provider=provider,
                asked=served,
                served=served,
                source=dice.choice(("", "codex", "cursor")),
                session=dice.choice((None, "first", "second")),
                tags=dice.choice((None, '{"team":"ads"}', '{"team":"search","user":"ann"}')),
                cost_nusd=dice.randrange(10**9),
                input=dice.randrange(100),
                output=dice.randrange(100),
                ttft_ms=dice.choice((0, dice.randrange(1, 900))),
                duration_ms=dice.randrange(900, 90_000),
                error=dice.choice((None, None, "upstream_timeout", "client_error")),
                flags=dice.choice((0, CACHED)),
            )
            rows.append(row._replace(posted_at=row.at + 5))
        insert_rows(tenants.services.store.database, *sorted(rows, key=lambda row: row.posted_at))
        tenants.services.billing.rollups.catch_up()
        tenants.services.billing.ledger_close.close()
        yield tenants


def read(tenants: Tenants, **query: str) -> str:
    # Tables belong to the store that was opened last, which may be another module's.
    tenants.services.store.database.bind()
    return unescape(open_page(tenants, tenants["acme owner"], f"/console/explore?{urlencode({**PERIOD, **query})}"))


def listed_nusd(page: str) -> int:
    """Return the sum of the spend of the names below the plot."""
    return sum(parse_usd(cost) for cost in SPEND.findall(page.partition('id="list"')[2]))


@pytest.mark.parametrize(("group", "split"), PAIRS)
def test_all_names_add_up_to_the_report_and_the_ledger(
    used: Tenants, rows: list[UsageRecord], group: str, split: str
) -> None:
    used.services.store.database.bind()
    total = sum(row.cost_nusd for row in rows)
    owner = used["acme owner"]
    booked = [one for one in used.services.billing.ledger.entries(owner.organization_id, 1_000) if one.kind == "usage"]
    assert -sum(one.amount_nusd for one in booked) == total
    days = used.ok("GET", f"/activity?from={PERIOD['from']}&to={PERIOD['to']}", owner)["activity"]
    assert sum(round(day["cost"] * NANO) for day in days) == total
    page = read(used, groupBy=group, splitBy=split, tag="team")
    assert parse_usd(STAT.findall(page)[0]) == total
    assert listed_nusd(page) == total
    assert sum(parse_usd(cost) for cost in SPEND.findall(page.partition('id="list"')[0])) == total


FILTERS: dict[str, tuple[str, Callable[[UsageRecord], bool]]] = {
    "model": ("openai/gpt-5", lambda row: row.served == "gpt-5"),
    "provider": ("openai", lambda row: row.provider == "openai"),
    "source": ("codex", lambda row: row.source == "codex"),
    "session": ("first", lambda row: row.session == "first"),
    "operation": ("images", lambda row: row.operation == "images"),
    "errorCode": ("upstream_timeout", lambda row: row.error == "upstream_timeout"),
    "metadata": ("team:ads", lambda row: row.tags == '{"team":"ads"}'),
}


@pytest.mark.parametrize("name", FILTERS)
@pytest.mark.parametrize(("group", "split"), [("user", ""), ("apiKey", "team"), ("project", "")])
def test_a_filter_shows_the_usage_of_one_name(
    used: Tenants, rows: list[UsageRecord], name: str, group: str, split: str
) -> None:
    value, matches = FILTERS[name]
    total = sum(row.cost_nusd for row in rows if matches(row))
    page = read(used, groupBy=group, splitBy=split, **{name: value})
    assert parse_usd(STAT.findall(page)[0]) == listed_nusd(page) == total > 0
    developer = used["acme developer"]
    own = [row for row in rows if row.member == raw_id(developer.member_id) and matches(row)]
    page = read(used, groupBy=group, splitBy=split, userId=developer.user_id, **{name: value})
    assert parse_usd(STAT.findall(page)[0]) == listed_nusd(page) == sum(row.cost_nusd for row in own) > 0
    of_team = read(used, groupBy=group, splitBy=split, team="Search", **{name: value})
    assert listed_nusd(of_team) == sum(row.cost_nusd for row in own)
    assert f"{name}={quote(value, safe='')}" in of_team, "the links keep the filter"


def test_each_measure_is_that_of_the_rows(used: Tenants, rows: list[UsageRecord]) -> None:
    failed = [row for row in rows if row.error]
    of_callers = [row for row in failed if row.error == "client_error"]
    tokens = sum(row.input + row.output for row in rows)
    expected = {
        "spend": sum(row.cost_nusd for row in rows),
        "requestCost": round(sum(row.cost_nusd for row in rows) / len(rows)),
        "tokenCost": round(sum(row.cost_nusd for row in rows) * 1_000_000 / tokens),
        "requests": len(rows),
        "errors": len(failed),
        "callerErrors": len(of_callers),
        "providerErrors": len(failed) - len(of_callers),
        "errorRate": f"{len(failed) * 100 / len(rows):.3g} %",
        "cached": sum(row.flags == CACHED for row in rows),
        "tokens": tokens,
    }
    for name, value in expected.items():
        measure = MEASURES[name]
        page = read(used, measure=name, groupBy="user")
        label = "Tokens in / out" if name == "tokens" else measure.label
        [shown] = re.findall(rf"<dt>{label}</dt><dd[^>]*>(?:<span title=\"\$?([^\"]*)\">|([^<]*))", page)
        if name == "tokens":
            assert f'/ <span title="{sum(row.output for row in rows):,}"' in page
        elif measure.kind == "usd":
            assert parse_usd(shown[0]) == value, name
        else:
            assert (shown[0].replace(",", "") or shown[1]) == str(value), name
    assert len(MEASURES) > len(expected)
    for name in MEASURES:
        assert f'<option value="{name}" selected>' in read(used, measure=name, splitBy="user")


TIMED: dict[str, Callable[[UsageRecord], int]] = {
    "wait": lambda row: row.ttft_ms,
    "duration": lambda row: row.duration_ms,
}
NAMES: dict[str, Callable[[UsageRecord, Tenants], str]] = {
    "model": lambda row, tenants: f"{row.provider}/{row.served}",
    "app": lambda row, tenants: row.source or "No app named",
    "session": lambda row, tenants: row.session or "No session",
    "tag": lambda row, tenants: row.tags.split('"')[3] if row.tags else "Without this tag",
    "endUser": lambda row, tenants: "ann" if row.tags and "ann" in row.tags else "No end user named",
    "operation": lambda row, tenants: row.operation,
}


@pytest.mark.parametrize("group", NAMES)
@pytest.mark.parametrize(("timed", "percent"), [("wait", 95), ("duration", 50), ("duration", 99)])
def test_times_are_percentiles_of_answered_calls(
    used: Tenants, rows: list[UsageRecord], timed: str, percent: int, group: str
) -> None:
    answered = [row for row in rows if row.error is None and row.flags != CACHED and TIMED[timed](row)]
    page = read(used, measure=f"{timed}{percent}", groupBy=group, tag="team")
    [whole] = re.findall(r'<dt>(?:Time|Duration)[^<]*</dt><dd><span title="([\d,]+) ms"', page)
    assert int(whole.replace(",", "")) == nearest_rank([TIMED[timed](row) for row in answered], percent)
    listed = page.partition('id="list"')[2]
    shown = re.findall(r'>([^<>]*)(?:</a>)?</td>\s*<td class="number top"[^>]*><span title="([\d,]+) ms"', listed)
    names = {NAMES[group](row, used) for row in answered}
    assert {name: int(ms.replace(",", "")) for name, ms in shown} == {
        name: nearest_rank([TIMED[timed](row) for row in answered if NAMES[group](row, used) == name], percent)
        for name in names
    }
    own = read(used, measure=f"{timed}{percent}", groupBy="apiKey", userId=used["acme developer"].user_id)
    [value] = re.findall(r'<dt>(?:Time|Duration)[^<]*</dt><dd><span title="([\d,]+) ms"', own)
    mine = [row for row in answered if row.member == raw_id(used["acme developer"].member_id)]
    assert int(value.replace(",", "")) == nearest_rank([TIMED[timed](row) for row in mine], percent)


def nearest_rank(values: list[int], percent: int) -> int:
    return next(one for one in sorted(values) if sum(value <= one for value in values) * 100 >= percent * len(values))


PAIRED = [(one, other) for one in FILTERS for other in FILTERS if one < other]


@pytest.mark.parametrize(("one", "other"), PAIRED)
def test_filters_of_several_kinds_count_together(used: Tenants, rows: list[UsageRecord], one: str, other: str) -> None:
    chosen = {name: FILTERS[name][0] for name in (one, other)}
    total = sum(row.cost_nusd for row in rows if all(FILTERS[name][1](row) for name in chosen))
    page = read(used, groupBy="app", splitBy="user", **chosen)
    assert parse_usd(STAT.findall(page)[0]) == total
    assert listed_nusd(page) == total


def test_strange_parameters_are_shown_as_text_or_left_out(used: Tenants) -> None:
    for strange in ("<script>alert(1)</script>", "x" * 5_000, "nothing/of-this-name", "\x00", "%"):
        for name in (*FILTERS, "userId", "team", "groupBy", "splitBy", "measure", "compare", "tag"):
            read(used, **{name: strange})
            assert "<script>alert" not in open_raw(used, **{name: strange})


def test_a_combination_that_cannot_be_summed_says_why(used: Tenants, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("gateway.metering.cross_sums.MAX_ROWS", 10)
    page = read(used, groupBy="model", splitBy="error")
    assert "at most 10, and this period has 400" in page and "<dt>Spend</dt>" not in page
    assert '<option value="error" selected>' in page, "the question stays, so that a part of it can be changed"
    assert "<dt>Spend</dt>" in read(used, groupBy="model", splitBy="user"), "statistics answer this one"
    query = urlencode({**PERIOD, "groupBy": "model", "splitBy": "error"})
    status, answer = used.call("GET", f"/activity/explore?{query}", used["acme owner"])
    assert status == 400 and "at most 10" in answer["message"]
    assert 'id="histogram"' not in open_page(used, used["acme owner"], "/console/logs?provider=openai&session=first")
    monkeypatch.undo()
    monkeypatch.setattr("gateway.metering.cross_sums.MAX_GROUPS", 10)
    assert "more than 10 sums" in read(used, groupBy="model", splitBy="error")
    monkeypatch.undo()
    monkeypatch.setattr("gateway.metering.cross_sums.rows_begin_us", lambda database: used.services.clock.now_us())
    page = read(used, groupBy="model", splitBy="error")
    assert f"are stored since {TODAY + timedelta(days=1)}" in page or f"are stored since {TODAY}" in page


def test_many_people_who_sum_single_requests_leave_room_for_others(
    used: Tenants, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, running, most = Event(), 0, 0
    path = f"/activity/explore?{urlencode({**PERIOD, 'groupBy': 'model', 'splitBy': 'error'})}"

    def sum_slowly(database: Database, question: UsageQuestion) -> PeriodUsage:
        nonlocal running, most
        running += 1
        most = max(most, running)
        slow.wait(10)
        running -= 1
        return read_usage(database, question)

    owners = [used["acme owner"], used["acme developer"], used["acme colleague"], used["rival owner"]]
    waiting = used.services.background.row_sums
    monkeypatch.setattr(waiting, "_max_waiting", 1)
    monkeypatch.setattr("gateway.surfaces.console.explore_questions.read_usage", sum_slowly)
    asked = [gevent.spawn(used.call, "GET", path, person) for person in owners]
    gevent.joinall(asked, timeout=2, count=1)
    assert sorted(one.value[0] for one in asked if one.value is not None) == [529], "the fourth one"
    refused = next(person for person, one in zip(owners, asked, strict=True) if one.value is not None)
    late = open_page(used, refused, f"/console{path.removeprefix('/activity')}")
    assert "Try again in some seconds" in late
    slow.set()
    gevent.joinall(asked, raise_error=True)
    assert sorted(one.value[0] for one in asked) == [200, 200, 200, 529] and most == 2


def open_raw(tenants: Tenants, **query: str) -> str:
    headers = {"Cookie": f"llmgateway.session_token={tenants['acme owner'].token}"}
    return str(tenants.client.get(f"/console/explore?{urlencode({**PERIOD, **query})}", headers=headers).text)


def test_a_period_is_compared_with_the_same_weekdays_or_with_nothing(used: Tenants) -> None:
    last = TODAY - timedelta(days=2)
    period = {"from": str(last - timedelta(days=2)), "to": str(last)}
    before = read(used, **period)
    assert 'class="before"' in before and "the period before" in before.lower()
    weekdays = read(used, **period, compare="weekdays")
    assert 'class="before"' in weekdays and "same weekdays before" in weekdays
    costs = {
        kind: re.findall(r'title="(\$[\d.]+) in the [a-z ]+">[^<]*</span> than', page)
        for kind, page in (("before", before), ("weekdays", weekdays))
    }
    assert costs["before"] != costs["weekdays"] and all(len(found) == 1 for found in costs.values())
    nothing = read(used, **period, compare="none")
    assert 'class="before"' not in nothing and "Change</a></th>" not in nothing


def test_a_model_is_compared_with_another_one_in_the_same_period(used: Tenants, rows: list[UsageRecord]) -> None:
    other = "anthropic/claude-sonnet-4-5"
    cost = {name: sum(row.cost_nusd for row in rows if row.served == name.partition("/")[2]) for name in MODELS}
    chosen = {"compare": "model", "compareModel": other, "model": "openai/gpt-5"}
    page = read(used, **chosen, groupBy="user")
    assert parse_usd(STAT.findall(page)[0]) == cost["openai/gpt-5"]
    assert parse_usd(re.findall(rf'title="\$([\d.]+) with {other}"', page)[0]) == cost[other]
    by_person = re.findall(rf'data-label="Change"><span class="change" title="\$([\d.]+) with {other}"', page)
    assert sum(map(parse_usd, by_person)) == cost[other] and len(by_person) == len(PEOPLE)
    assert 'class="before"' in page and f"</svg>{other}</li>" in page
    assert "Change</a></th>" not in read(used, **chosen, groupBy="model")
    busiest = max(MODELS, key=lambda name: sum(row.served == name.partition("/")[2] for row in rows))
    assert f'<option value="{busiest}" selected>' in read(used, compare="model")
    page = read(used, **chosen, groupBy="app")
    assert parse_usd(STAT.findall(page)[0]) == cost["openai/gpt-5"]
    assert parse_usd(re.findall(rf'title="\$([\d.]+) with {other}"', page)[0]) == cost[other]


def test_hours_between_two_times_are_shown_with_their_requests(used: Tenants, rows: list[UsageRecord]) -> None:
    day = TODAY - timedelta(days=5)
    inside = [row for row in rows if "06" <= hour_of(row, day) <= "17"]
    page = read(used, **{"from": f"{day}T06", "to": f"{day}T17", "groupBy": "user"})
    assert parse_usd(STAT.findall(page)[0]) == sum(row.cost_nusd for row in inside)
    links = re.findall(r'href="http://localhost(/console/logs\?from=[^"]*)"', page)
    assert f"/console/logs?from={day}T06%3A00%3A00&to={day}T07%3A00%3A00" in links
    found = open_page(used, used["acme owner"], f"/console/logs?from={day}T06%3A00%3A00&to={day}T18%3A00%3A00")
    assert found.count('class="open"') == len(inside)


def hour_of(row: UsageRecord, day: date) -> str:
    """Return the hour of a row on this day, "" on another."""
    at = datetime.fromtimestamp(row.at / SECOND_US, UTC)
    return f"{at:%H}" if at.date() == day else ""


def test_a_plot_above_the_requests_counts_those_that_the_filters_find(used: Tenants, rows: list[UsageRecord]) -> None:
    owner, developer = used["acme owner"], used["acme developer"]
    own = [row for row in rows if row.api_key == raw_id(developer.key.info.id)]
    chosen = [
        ({}, rows),
        ({"apiKeyId": developer.key.info.id}, own),
        ({"userId": developer.user_id, "model": "openai/gpt-5"}, [row for row in own if row.served == "gpt-5"]),
        ({"metadata": "team:ads"}, [row for row in rows if row.tags == '{"team":"ads"}']),
    ]
    for filters, found in chosen:
        page = open_page(used, owner, f"/console/logs?{urlencode({'timeRange': '30d', **filters})}")
        assert f'<h2 id="histogram"><span title="{len(found)}"' in page, filters
        failed = [int(count) for count in re.findall(r"\nFailed: (\d+)", page)]
        assert sum(failed) == sum(row.error is not None for row in found)
        links = re.findall(
            r'<a href="http://localhost(/console/logs\?[^"]*)" tabindex="-1"><title>([\d-]+): (\d+)', page
        )
        assert sum(int(count) for *_, count in links) == len(found) and len(links) == 30
        if "metadata" not in filters:  # the log finds tags by its own entries, which these rows do not have
            link, day, count = next(one for one in links if int(one[2]))
            assert open_page(used, owner, link).count('class="open"') == int(count), day
    for lacking in ("status=200", "errorCode=x", "model=gpt-5", "session=first&metadata=team:ads", "from=2026-01-01"):
        assert 'id="histogram"' not in open_page(used, owner, f"/console/logs?timeRange=30d&{lacking}")
    assert 'id="histogram"' not in open_page(used, used["rival owner"], "/console/logs?timeRange=30d")
    foreign = open_page(used, used["rival owner"], f"/console/logs?apiKeyId={developer.key.info.id}")
    assert 'id="histogram"' not in foreign


def test_the_former_address_leads_to_the_same_figures(used: Tenants) -> None:
    headers = {"Cookie": f"llmgateway.session_token={used['acme owner'].token}"}
    answer = used.client.get("/console/usage?groupBy=user&timeRange=30d", headers=headers)
    assert answer.status_code == 308
    assert answer.headers["Location"].endswith("/console/explore?groupBy=user&timeRange=30d")
