"""Every report says what plain Python makes of the rows, to each what they may see."""

import random
from collections import defaultdict
from datetime import UTC, date, datetime, time, timedelta

import pytest
from support.management import Tenants
from support.usage import insert_rows, usage_row

from gateway.clock import DAY_US, HOUR_US, from_datetime, to_datetime, to_iso
from gateway.errors import Forbidden, InvalidRequest, Unavailable
from gateway.metering.models import BYOK, CREDITS
from gateway.metering.usage_table import raw_id
from gateway.reports.usage_reports import Reports, scope_of_caller

METRICS = {
    *("requestCount", "errorCount", "cacheCount", "inputTokens", "outputTokens", "totalTokens", "reasoningTokens"),
    *("cachedTokens", "costUsd", "dataStorageCostUsd", "creditsCostUsd", "byokCostUsd", "discountSavingsUsd"),
}
PEOPLE = ("acme owner", "acme admin", "acme developer", "acme colleague", "rival owner", "rival developer")
SOURCES = ("", "codex", "open-code", "opencode", "Mine", "another")


class Case:
    """Tenants with usage of the last forty days."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants, self.services = tenants, tenants.services
        self.reports: Reports = tenants.services.billing.reports
        dice, now_us = random.Random(5), tenants.services.clock.now_us()
        self.today = to_datetime(now_us).date()
        self.rows = []
        for _ in range(600):
            who = tenants[dice.choice(PEOPLE)]
            at_us = now_us - dice.randrange(40 * DAY_US)
            self.rows.append(usage_row(
                at_us,
                posted_at=now_us - 1,
                organization=raw_id(who.organization_id),
                project=raw_id(who.project_id),
                api_key=raw_id(who.key.info.id),
                member=raw_id(who.member_id),
                provider=dice.choice(("sandbox", "custom-one")),
                served=dice.choice(("a-model", "b-model", "c-model")),
                source=dice.choice(SOURCES),
                cost_nusd=dice.randrange(10**9),
                mode=dice.choice((CREDITS, BYOK)),
                input=dice.randrange(100),
                output=dice.randrange(100),
                error=dice.choice((None, None, "timeout")),
                storage_nusd=dice.choice((None, 1000)),
            ))  # fmt: skip
        insert_rows(tenants.services.store.database, *self.rows)
        tenants.services.billing.rollups.catch_up()

    def scope(self, name: str):
        return scope_of_caller(self.services.accounts.authentication.caller(self.tenants[name].key.token))

    def seen(self, name: str, first: date, last: date) -> list:
        """The rows that a person may see of a period."""
        who, own = self.tenants[name], "developer" in name or "colleague" in name
        return [
            row
            for row in self.rows
            if row.project == raw_id(who.project_id)
            and (not own or row.member == raw_id(who.member_id))
            and first <= to_datetime(row.at).date() <= last
        ]


@pytest.fixture(scope="module")
def case(tenants: Tenants) -> Case:
    return Case(tenants)


def plain(rows) -> dict:
    cost = sum(r.cost_nusd for r in rows)
    byok = sum(r.cost_nusd for r in rows if r.mode == BYOK)
    tokens_in, tokens_out = sum(r.input for r in rows), sum(r.output for r in rows)
    return {
        "requestCount": len(rows),
        "errorCount": sum(r.error is not None for r in rows),
        "cacheCount": 0,
        "inputTokens": tokens_in,
        "outputTokens": tokens_out,
        "totalTokens": tokens_in + tokens_out,
        "reasoningTokens": 0,
        "cachedTokens": 0,
        "costUsd": cost / 1e9,
        "dataStorageCostUsd": sum(r.storage_nusd or 0 for r in rows) / 1e9,
        "creditsCostUsd": (cost - byok) / 1e9,
        "byokCostUsd": byok / 1e9,
        "discountSavingsUsd": 0.0,
    }


def app_of(row) -> str:
    return {"": "unknown", "open-code": "opencode"}.get(row.source, row.source)


GROUPS = {
    "provider": lambda row: row.provider,
    "model": lambda row: row.served,
    "app": app_of,
    "api_key": lambda row: f"key_{row.api_key.hex()}",
}
SIZES = {"requests": "requestCount", "cost": "costUsd", "tokens": "totalTokens"}


@pytest.mark.parametrize("name", PEOPLE)
def test_usage_is_that_of_the_rows_which_the_role_may_see(case: Case, name: str) -> None:
    first = case.today - timedelta(days=29)
    wanted = case.seen(name, first, case.today)
    for granularity, unit_us in (("day", DAY_US), ("hour", HOUR_US)):
        report = case.reports.get_usage(case.scope(name), granularity=granularity)
        assert set(report["totals"]) == METRICS and report["totals"] == plain(wanted)
        assert (report["from"], report["to"]) == (first.isoformat(), case.today.isoformat())
        buckets = defaultdict(list)
        for row in wanted:
            buckets[to_datetime(row.at // unit_us * unit_us).strftime("%Y-%m-%dT%H:00:00Z")].append(row)
        assert report["series"] == [{"date": day, **plain(rows)} for day, rows in sorted(buckets.items())]
    whole = name.split()[1] in ("owner", "admin")
    user = None if whole else case.tenants[name].user_id
    project = case.tenants[name].project_id
    assert report["scope"] == {"type": "project" if whole else "member", "projectId": project, "userId": user}
    assert report["updatedAt"].endswith("Z") and (report["timezone"], report["currency"]) == ("UTC", "USD")
    assert report["appUsageCoverage"] == {
        "requestCount": len(wanted), "totalRequestCount": len(wanted), "complete": True
    }  # fmt: skip


@pytest.mark.parametrize("group", GROUPS)
@pytest.mark.parametrize("name", ["acme owner", "acme developer"])
def test_a_breakdown_is_ranked_with_ties_by_id_and_paged(case: Case, name: str, group: str) -> None:
    first, last = case.today - timedelta(days=20), case.today - timedelta(days=2)
    found = defaultdict(list)
    for row in case.seen(name, first, last):
        found[GROUPS[group](row)].append(row)
    for sort_by, size in SIZES.items():
        ranked = sorted(
            ((ident, plain(rows)) for ident, rows in found.items()), key=lambda one: (-one[1][size], one[0])
        )
        given = {"group_by": group, "sort_by": sort_by, "from_date": first.isoformat(), "to_date": last.isoformat()}
        page = case.reports.get_usage_breakdown(case.scope(name), **given, limit=2)
        rest = case.reports.get_usage_breakdown(case.scope(name), **given, limit=100, offset=2)
        rows = [*page["rows"], *rest["rows"]]
        assert [(row["id"], {m: row[m] for m in METRICS}) for row in rows] == ranked
        assert page["pagination"] == {"limit": 2, "offset": 0, "hasMore": len(ranked) > 2}
        assert not rest["pagination"]["hasMore"] and page["coverage"]["complete"]
        assert (page["groupBy"], page["sortBy"]) == (group, sort_by)
    names = {row["id"]: row["name"] for row in rows}
    if group == "app":
        assert names["codex"] == "Codex CLI" and names["Mine"] == "Mine" and names["unknown"] == "unknown"
    if group == "api_key":
        assert names[case.tenants[name].key.info.id] == case.tenants[name].key.info.description
    if group == "provider":
        assert names["custom-one"] == "custom-one" and names["sandbox"] != "sandbox"


@pytest.mark.parametrize("days", [30, 40])
def test_apps_come_by_cost_under_their_names_of_today_with_their_last_hour(case: Case, days: int) -> None:
    owner = case.tenants["acme owner"]
    first = case.today - timedelta(days=days - 1)
    found = defaultdict(list)
    for row in case.seen("acme owner", first, case.today):
        found[app_of(row)].append(row)
    span = "timeRange=30d" if days == 30 else f"from={first}&to={case.today}"
    shown = case.tenants.ok("GET", f"/activity/sources?projectId={owner.project_id}&{span}", owner)["sources"]
    ranked = sorted(found.items(), key=lambda item: (-sum(row.cost_nusd for row in item[1]), item[0]))
    assert [one["source"] for one in shown] == [ident for ident, _ in ranked]
    for one, (_, rows) in zip(shown, ranked, strict=True):
        wanted = plain(rows)
        assert {name: one[name] for name in ("requestCount", "inputTokens", "outputTokens", "totalTokens")} == {
            name: wanted[name] for name in ("requestCount", "inputTokens", "outputTokens", "totalTokens")
        }
        assert (one["cost"], one["apiKeysCost"]) == (wanted["costUsd"], wanted["byokCostUsd"])
        assert one["lastUsedAt"] == to_iso(max(row.at for row in rows) // HOUR_US * HOUR_US)


def test_the_most_used_are_the_first_by_requests(case: Case) -> None:
    scope = case.scope("acme owner")
    report = case.reports.get_usage(scope)
    for member, group in (("mostUsedProvider", "provider"), ("mostUsedModel", "model"), ("mostUsedApp", "app")):
        assert report[member] == case.reports.get_usage_breakdown(scope, group)["rows"][0]


def test_an_empty_period_has_zero_totals_and_null_rankings(case: Case) -> None:
    scope = case.scope("acme owner")
    report = case.reports.get_usage(scope, "2001-01-01", "2001-12-31")
    assert set(report["totals"].values()) == {0} and report["series"] == [] and report["updatedAt"] is None
    assert (report["mostUsedProvider"], report["mostUsedModel"], report["mostUsedApp"]) == (None, None, None)
    assert report["appUsageCoverage"] == {"requestCount": 0, "totalRequestCount": 0, "complete": True}
    page = case.reports.get_usage_breakdown(scope, "app", from_date="2001-01-01", to_date="2001-12-31")
    assert page["rows"] == [] and page["coverage"] == report["appUsageCoverage"] and page["updatedAt"] is None


@pytest.mark.parametrize("newest_first, days_ago", [(False, 10), (True, 10), (False, 0)])
def test_a_report_was_updated_with_the_newest_sum_of_its_period(case: Case, newest_first: bool, days_ago: int) -> None:
    if not case.seen("acme owner", case.today - timedelta(days=days_ago), case.today):
        pytest.skip("the day has just begun")
    database, scope = case.services.store.database, case.scope("acme owner")
    parted = from_datetime(datetime.combine(case.today - timedelta(days=days_ago), time(), UTC)) // HOUR_US
    old, new = ("2026-01-01T00:00:00.000Z", "2026-01-01T00:00:07.000Z")[:: -1 if newest_first else 1]
    at_us = [from_datetime(datetime.fromisoformat(moment)) for moment in (old, new)]
    sql = "UPDATE rollup SET updated_at = CASE WHEN hour < ? THEN ? ELSE ? END"
    database.write(lambda: database.execute(sql, (parted, *at_us)))
    days = [(case.today - timedelta(days=back)).isoformat() for back in (25, days_ago + 1, days_ago, 0)]
    for first, last, wanted in ((0, 1, old), (2, 3, new), (0, 3, max(old, new))):
        assert case.reports.get_usage(scope, days[first], days[last])["updatedAt"] == wanted
        page = case.reports.get_usage_breakdown(scope, "model", from_date=days[first], to_date=days[last])
        assert page["updatedAt"] == wanted


def test_the_account_shows_the_owner_of_the_key_and_the_balance_to_managers_alone(case: Case) -> None:
    for name in ("acme owner", "acme developer"):
        person = case.tenants[name]
        report = case.reports.get_account(case.scope(name))
        assert report["apiKey"]["id"] == person.key.info.id and report["role"] == name.split()[1]
        assert report["apiKey"]["name"] == person.key.info.description and report["apiKey"]["usageLimitUsd"] is None
        assert set(report["apiKey"]) == {"id", "name", "usageUsd", "usageLimitUsd", "periodUsageUsd",
                                         "periodUsageLimitUsd", "periodStartedAt", "expiresAt"}  # fmt: skip
        assert (report["creditsBalanceUsd"] is None) == (name == "acme developer")
        assert (report["user"]["id"], report["organization"]["kind"]) == (person.user_id, "default")
        assert person.key.token not in str(report)


@pytest.mark.parametrize("given", [
    {"from_date": "2026-02-30"}, {"from_date": "2026-1-1"}, {"to_date": "yesterday"}, {"to_date": "20260101"},
    {"from_date": "2025-01-01", "to_date": "2026-01-02"}, {"from_date": "2026-01-02", "to_date": "2026-01-01"},
    {"from_date": "2026-01-01", "to_date": "2026-02-01", "granularity": "hour"}, {"granularity": "week"},
    {"from_date": 5},
], ids=str)  # fmt: skip
def test_impossible_arguments_are_refused(case: Case, given) -> None:
    with pytest.raises(InvalidRequest):
        case.reports.get_usage(case.scope("acme owner"), **given)


@pytest.mark.parametrize("given", [
    {"group_by": "user"}, {"group_by": "app", "sort_by": "errors"}, {"group_by": "app", "limit": 0},
    {"group_by": "app", "limit": 101}, {"group_by": "app", "offset": 10_001}, {"group_by": "app", "limit": True},
    {"group_by": "app", "offset": -1}, {"group_by": "app", "limit": "5"},
], ids=str)  # fmt: skip
def test_impossible_pages_are_refused(case: Case, given) -> None:
    with pytest.raises(InvalidRequest):
        case.reports.get_usage_breakdown(case.scope("acme owner"), **given)


def test_the_longest_periods_are_366_days_and_31_by_the_hour(case: Case) -> None:
    scope = case.scope("acme owner")
    assert case.reports.get_usage(scope, "2025-01-01", "2026-01-01")["from"] == "2025-01-01"
    assert case.reports.get_usage(scope, "2026-01-01", "2026-01-31", "hour")["granularity"] == "hour"


def test_a_key_of_a_customer_reads_nothing(case: Case) -> None:
    caller = case.services.accounts.authentication.caller(case.tenants["acme owner"].key.token)
    object.__setattr__(caller, "key_kind", "customer")
    try:
        with pytest.raises(Forbidden):
            scope_of_caller(caller)
    finally:
        object.__setattr__(caller, "key_kind", "user")


def test_history_of_inactive_and_deleted_keys_counts(case: Case) -> None:
    developer, owner = case.tenants["acme colleague"], case.tenants["acme owner"]
    scope = case.scope("acme colleague")
    before = case.reports.get_usage(scope)["totals"]
    case.tenants.ok("DELETE", f"/keys/api/{developer.key.info.id}", owner)
    assert before["requestCount"] and case.reports.get_usage(scope)["totals"] == before
    rows = case.reports.get_usage_breakdown(case.scope("acme owner"), "api_key", limit=100)["rows"]
    assert developer.key.info.id in {row["id"] for row in rows}


def test_while_the_rows_of_before_are_counted_coverage_says_so(case: Case) -> None:
    database, scope = case.services.store.database, case.scope("acme owner")
    database.write(lambda: database.execute("UPDATE rollup_state SET filled = ''"))
    try:
        assert not case.reports.get_usage(scope)["appUsageCoverage"]["complete"]
        assert not case.reports.get_usage_breakdown(scope, "model")["coverage"]["complete"]
    finally:
        database.write(lambda: database.execute("UPDATE rollup_state SET filled = NULL"))


def test_with_the_store_away_it_is_an_error(case: Case, monkeypatch) -> None:
    scope = case.scope("acme owner")

    def away(*_):
        raise Unavailable("away")

    for name in ("read", "report"):
        monkeypatch.setattr(case.services.store.database, name, away)
    for ask in (case.reports.get_account, case.reports.get_usage, lambda s: case.reports.get_usage_breakdown(s, "app")):
        with pytest.raises(Unavailable):
            ask(scope)


@pytest.mark.slow
def test_a_range_has_the_same_sum_in_every_zone(case: Case) -> None:
    owner, sums = case.tenants["acme owner"], []
    for zone in ("UTC", "Asia/Kolkata", "America/St_Johns", "Europe/Berlin", "Pacific/Apia"):
        for span in ("timeRange=24h", "timeRange=4h"):
            query = f"/activity?projectId={owner.project_id}&{span}&timezone={zone}"
            days = case.tenants.ok("GET", query, owner)["activity"]
            sums.append(
                (span, sum(day["requestCount"] for day in days), sum(len(d["modelBreakdown"]) > 0 for d in days))
            )
    assert len({one[:2] for one in sums}) == 2
    midnight = from_datetime(
        to_datetime(case.services.clock.now_us()).replace(hour=0, minute=0, second=0, microsecond=0)
    )
    wanted = [
        row for row in case.seen("acme owner", date(2000, 1, 1), date(2999, 1, 1)) if row.at >= midnight - 6 * DAY_US
    ]
    week = case.tenants.ok("GET", f"/activity?projectId={owner.project_id}&timeRange=7d", owner)["activity"]
    assert sum(day["requestCount"] for day in week) == len(wanted)
