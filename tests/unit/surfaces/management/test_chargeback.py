"""Shares and FOCUS charges are what plain Python makes of the rows, and the charges of a month equal the ledger."""

import csv
import io
import json
import random
import re
from collections import defaultdict
from collections.abc import Callable, Iterator
from decimal import Decimal
from html import unescape

import pytest
from msgspec.structs import replace
from support.console import open_page
from support.management import Tenants
from support.usage import insert_rows, request_at, usage_row

from gateway.accounts.member_attributes import write_attributes
from gateway.clock import DAY_US, HOUR_US, from_datetime, to_datetime, to_iso
from gateway.metering.activity import Owners, measure, measure_held
from gateway.metering.models import BYOK, CREDITS
from gateway.metering.rollups.queries import at_once
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.money import NANO
from gateway.reports import focus, shares
from gateway.surfaces.visitors.report_windows import read_window

PEOPLE = ("acme owner", "acme developer", "acme colleague")
TEAMS = (None, "search", "ads", 'a "quoted" team')


class Case:
    """A month of an organization's usage with tags, sessions and two teams, of which one person is in both."""

    def __init__(self, tenants: Tenants) -> None:
        self.tenants = tenants
        self.owner = tenants["acme owner"]
        services = tenants.services
        dice = random.Random(7)
        now_us = services.clock.now_us()
        self.month = to_datetime(now_us - 40 * DAY_US).strftime("%Y-%m")
        self.span = focus.read_month(self.month)
        self.rows = [self._row(dice) for _ in range(400)]
        insert_rows(services.store.database, *self.rows)
        services.billing.rollups.catch_up()
        services.billing.ledger.post(self.owner.organization_id, "grant", NANO, "start")
        services.billing.ledger_close.close()
        org = f"/orgs/{self.owner.organization_id}"
        self.attributes = self._state_attributes()
        self.teams = {}
        for name, members in (("Red", PEOPLE[:2]), ("Blue", PEOPLE[1:2])):
            team = tenants.ok("POST", f"{org}/teams", self.owner, {"name": name})["team"]["id"]
            for member in members:
                tenants.ok("PUT", f"{org}/teams/{team}/members/{tenants[member].member_id}", self.owner)
                self.teams.setdefault(raw_id(tenants[member].member_id), []).append(team)

    def _state_attributes(self) -> dict[str, list[tuple[int, str]]]:
        """Give the people departments that change within the month; return them by member as (since hour, value)."""
        first = self.span.start_us // HOUR_US
        stated = {
            "acme owner": [(0, "Research")],
            "acme developer": [(first + 100, "Research"), (first + 101, "Sales"), (first + 400, "")],
            "acme colleague": [(first + 109, "Sales"), (first + 500, "Research"), (first + 5_000, "Later")],
        }
        for name, values in stated.items():
            member_id = self.tenants[name].member_id
            for hour, value in values:
                self.tenants.services.store.database.write(
                    lambda member_id=member_id, hour=hour, value=value: write_attributes(
                        member_id, {"department": value}, actor="test", now=hour * HOUR_US
                    )
                )
        return {raw_id(self.tenants[name].member_id): values for name, values in stated.items()}

    def department(self, row: UsageRecord) -> str:
        """Return the department of the person of a row in its hour."""
        held = [value for since, value in self.attributes[row.member] if since <= row.at // HOUR_US]
        return held[-1] if held else ""

    def _row(self, dice: random.Random) -> UsageRecord:
        who = self.tenants[dice.choice(PEOPLE)]
        team = dice.choice(TEAMS)
        return usage_row(
            self.span.start_us + dice.randrange(-2 * HOUR_US, self.span.end_us - self.span.start_us + HOUR_US),
            posted_at=self.tenants.services.clock.now_us() - 1,
            organization=raw_id(who.organization_id),
            project=raw_id(who.project_id),
            api_key=raw_id(who.key.info.id),
            member=raw_id(who.member_id),
            provider=dice.choice(("sandbox", "custom-one")),
            served=dice.choice(("a-model", "b-model")),
            operation="chat",
            cost_nusd=dice.randrange(10**9),
            mode=dice.choice((CREDITS, CREDITS, BYOK)),
            input=dice.randrange(100),
            cache_read=dice.randrange(100),
            output=dice.randrange(100),
            storage_nusd=dice.choice((None, None, 1000)),
            discount_nusd=dice.choice((None, 17)),
            session=dice.choice((None, "s-1", "s-2", "s-3")),
            tags=json.dumps({"team": team}) if team else None,
        )

    def within(self) -> list[UsageRecord]:
        return [row for row in self.rows if self.span.start_us <= row.at < self.span.end_us]

    def query(self) -> str:
        first = to_iso(self.span.start_us)[:10]
        last = to_iso(self.span.end_us - 1)[:10]
        return f"from={first}&to={last}"


@pytest.fixture(scope="module")
def case(open_tenants: Callable) -> Iterator[Case]:
    with open_tenants() as tenants:
        yield Case(tenants)


def summed(rows: list[UsageRecord], value: Callable[[UsageRecord], list[str]]) -> dict[str, tuple[int, int, int]]:
    sums: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for row in rows:
        for name in value(row):
            for place, amount in enumerate((1, row.input + row.cache_read, row.cost_nusd)):
                sums[name][place] += amount
    return {name: tuple(amounts) for name, amounts in sums.items()}


def read(case: Case, who: str, query: str) -> dict[str, tuple[int, int, int]]:
    found = case.tenants.ok("GET", f"/activity/shares?{case.query()}&{query}", case.tenants[who])["shares"]
    return {one["id"]: (one["requestCount"], one["inputTokens"], int(Decimal(one["cost"]) * NANO)) for one in found}


VALUES = {
    "groupBy=tag&tag=team": lambda case, row: [json.loads(row.tags)["team"] if row.tags else ""],
    "groupBy=tag&tag=unknown": lambda case, row: [""],
    "groupBy=session": lambda case, row: [row.session or ""],
    "groupBy=team": lambda case, row: case.teams.get(row.member) or [""],
    "groupBy=person": lambda case, row: [f"member_{row.member.hex()}"],
    "groupBy=key": lambda case, row: [f"key_{row.api_key.hex()}"],
    "groupBy=provider": lambda case, row: [row.provider],
    "groupBy=model": lambda case, row: [f"{row.provider}/{row.served}"],
    "groupBy=department": lambda case, row: [case.department(row)],
    "groupBy=costCenter": lambda case, row: [""],
    "groupBy=app": lambda case, row: [row.source],
}


@pytest.mark.parametrize("query", VALUES)
def test_shares_equal_the_rows(case: Case, query: str) -> None:
    assert read(case, "acme owner", query) == summed(case.within(), lambda row: VALUES[query](case, row))


@pytest.mark.parametrize("query", ["groupBy=tag&tag=team", "groupBy=session"])
def test_values_beyond_the_limit_are_one_row(case: Case, query: str, monkeypatch: pytest.MonkeyPatch) -> None:
    everything = summed(case.within(), lambda row: VALUES[query](case, row))
    monkeypatch.setattr(shares, "MAX_VALUES", 2)
    bounded = read(case, "acme owner", query)
    rest = bounded.pop(shares.OTHER)
    assert bounded.pop("") == everything.pop("")
    assert len(bounded) == 2 and bounded.items() <= everything.items()
    assert min(cost for _, _, cost in bounded.values()) >= max(
        cost for value, (_, _, cost) in everything.items() if value not in bounded
    )
    left = [figures for value, figures in everything.items() if value not in bounded]
    assert rest == tuple(map(sum, zip(*left, strict=True)))


@pytest.mark.parametrize("query", ["groupBy=session", "groupBy=tag&tag=team", "groupBy=person", "groupBy=department"])
def test_a_developer_sees_shares_of_their_own_keys(case: Case, query: str) -> None:
    own = [row for row in case.within() if row.member == raw_id(case.tenants["acme developer"].member_id)]
    assert read(case, "acme developer", query) == summed(own, lambda row: VALUES[query](case, row))


def test_values_beyond_the_bound_are_one_row(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shares, "MAX_VALUES", 2)
    found = read(case, "acme owner", "groupBy=session")
    assert len(found) == 4 and {"(other)", ""} <= set(found)
    assert sum(cost for _, _, cost in found.values()) == sum(row.cost_nusd for row in case.within())


def test_shares_are_exported_and_a_tag_needs_its_name(case: Case) -> None:
    owner = case.tenants["acme owner"]
    headers = {"Cookie": f"llmgateway.session_token={owner.token}"}
    path = f"/activity/shares/export?{case.query()}&groupBy=session"
    text = case.tenants.client.get(path, headers=headers).get_data(as_text=True)
    listed = case.tenants.ok("GET", f"/activity/shares?{case.query()}&groupBy=session", owner)["shares"]
    assert list(csv.DictReader(io.StringIO(text))) == [
        {name: str(value) for name, value in share.items()} for share in listed
    ]
    for query in ("groupBy=tag", "groupBy=team&tag=x"):
        assert case.tenants.call("GET", f"/activity/shares?timeRange=7d&{query}", owner)[0] == 400


def charges(case: Case, month: str) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(export(case, month, "csv"))))


def export(case: Case, month: str, form: str) -> str:
    headers = {"Cookie": f"llmgateway.session_token={case.owner.token}"}
    path = f"/orgs/{case.owner.organization_id}/focus?month={month}&format={form}"
    return case.tenants.client.get(path, headers=headers).get_data(as_text=True)


@pytest.mark.parametrize("path", ["/orgs/{organization}/focus?", "/activity/shares/export?{query}&groupBy=session&"])
def test_an_export_of_charges_is_one_of_the_exports_of_its_organization(case: Case, path: str) -> None:
    path = path.format(organization=case.owner.organization_id, query=case.query()) + "format=jsonl"
    header = {"Authorization": f"Bearer {case.owner.token}"}
    going = [case.tenants.client.get(path, headers=header) for _ in range(2)]
    assert case.tenants.refused("GET", path, case.owner) == "429 too_many_exports"
    for answer in going:
        answer.close()
    assert case.tenants.call("GET", path, case.owner)[0] == 200


def billed(rows: list[dict[str, str]]) -> int:
    return int(sum(Decimal(row["BilledCost"].removeprefix("'")) for row in rows) * NANO)


def booked(case: Case, condition: str, *params: object) -> int:
    database = case.tenants.services.store.database
    sql = f"SELECT -COALESCE(SUM(amount_nusd), 0) FROM ledger WHERE organization = ? AND {condition}"
    return int(database.read(lambda: database.execute(sql, (case.owner.organization_id, *params)).fetchone()[0]))


def test_the_charges_of_a_month_equal_the_ledger(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(focus, "PAGE", 37)
    rows = charges(case, case.month)
    assert billed(rows) == booked(case, "ref LIKE ?", f"%:{case.month}-%") > 0
    own = sum(row.cost_nusd for row in case.within() if row.mode == BYOK)
    assert sum(int(Decimal(row["x_OwnKeyCost"]) * NANO) for row in rows) == own
    calls = [row for row in rows if row["PricingUnit"] == "Tokens"]
    versions = {row.price_version for row in case.within()}
    assert {row["x_PriceVersion"] for row in calls} == versions
    for row in calls:
        assert row["SkuId"] == f"{row['ProviderName']}/{row['ServiceName']}"
        assert row["PublisherName"] == row["ProviderName"] and row["ChargeDescription"] == f"chat with {row['SkuId']}"
    assert len(calls) == len(case.within()) and {row["x_Session"] for row in calls} == {"", "s-1", "s-2", "s-3"}
    assert all(row["BillingPeriodStart"] <= row["ChargePeriodStart"] < row["BillingPeriodEnd"] for row in rows)


def test_charges_have_the_attributes_of_their_time(case: Case) -> None:
    found = charges(case, case.month)
    calls = {row["x_RequestId"]: row for row in found if row["PricingUnit"] == "Tokens"}
    for row in case.within():
        charge = calls[row.label or row.request.hex()]
        assert (charge["x_Department"], charge["x_CostCenter"]) == (case.department(row), "")
    costs: dict[str, int] = defaultdict(int)
    for charge in calls.values():
        billed_usd = Decimal(charge["BilledCost"]) + Decimal(charge["x_OwnKeyCost"])
        costs[charge["x_Department"]] += int(billed_usd * NANO)
    assert costs == {name: cost for name, (_, _, cost) in read(case, "acme owner", "groupBy=department").items()}


@pytest.mark.parametrize("zone", ["UTC", "Pacific/Auckland"])
@pytest.mark.parametrize("step", ["hour", "day", "week", "all"])
def test_steps_have_the_value_of_their_time(case: Case, step: str, zone: str) -> None:
    first, last = case.query().replace("&", " ").split()
    fields = {"from": first.removeprefix("from="), "to": last.removeprefix("to="), "timezone": zone}
    window = read_window(fields, case.tenants.services.clock.now_us())
    span = replace(window.span, step=step)
    keys = {case.tenants[who].key.info.id: case.tenants[who].key.info for who in PEOPLE}
    database = case.tenants.services.store.database
    held = shares.read_held(database, keys, "department")
    assert held is not None
    found = at_once(database, lambda: measure_held(database, held, span, ("cost_nusd",)))
    expected: dict[str, int] = defaultdict(int)
    for row in case.rows:
        if span.first <= row.at // HOUR_US < span.end:
            expected[case.department(row)] += row.cost_nusd
    sums: dict[str, int] = defaultdict(int)
    for one in found:
        sums[one.value[0]] += one.figures.cost_nusd
    assert sums == expected
    totals = at_once(database, lambda: measure(database, Owners(key_ids=tuple(keys)), span, "total", ("cost_nusd",)))
    of_steps: dict[int, int] = defaultdict(int)
    for one in found:
        of_steps[one.step] += one.figures.cost_nusd
    assert of_steps == {row.step: row.figures.cost_nusd for row in totals}


@pytest.mark.parametrize("who", ["acme owner", "acme developer"])
def test_the_page_of_usage_shows_the_departments_of_the_time(case: Case, who: str) -> None:
    query = f"timeRange=custom&{case.query()}&groupBy=department"
    page = open_page(case.tenants, case.tenants[who], f"/console/explore?{query}")
    shown = read(case, who, "groupBy=department")
    for name, (count, _, _) in shown.items():
        row = page.partition(f"<td>{name or 'Not stated'}</td>")[2].partition("</tr>")[0]
        assert f">{count}<" in row, name
    (export_link,) = re.findall(r'href="([^"]*/export\?[^"]*)"[^>]*>CSV<', unescape(page))
    assert {*case.query().split("&"), "groupBy=department"} <= set(export_link.partition("?")[2].split("&"))


def test_charges_of_usage_have_what_the_specification_requires(case: Case) -> None:
    moment = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
    rows = [row for row in charges(case, case.month) if row["ChargeCategory"] == "Usage"]
    assert {row["PricingUnit"] for row in rows} == {"Tokens", "Requests"}
    for row in rows:
        assert all(
            moment.fullmatch(value) for name, value in row.items() if name.endswith(("PeriodStart", "PeriodEnd"))
        )
        assert row["SkuId"] == row["SkuPriceId"] and all(row[name] for name in ("SkuId", "PricingQuantity"))
        assert (row["ConsumedQuantity"], row["ConsumedUnit"]) == (row["PricingQuantity"], row["PricingUnit"])


def test_the_two_formats_have_the_same_columns_and_values(case: Case) -> None:
    lines = list(map(json.loads, export(case, case.month, "jsonl").splitlines()))
    rows = charges(case, case.month)
    assert set().union(*lines) == set(rows[0])
    for line, row in zip(lines, rows, strict=True):
        assert {name: text for name, text in row.items() if text} == {
            name: str(value) for name, value in line.items() if value is not None
        }


def test_a_request_may_have_more_rows_than_a_page(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    owner = case.owner
    at_us = case.span.start_us - 40 * DAY_US
    rows = [
        usage_row(
            at_us,
            request=request_at(at_us)[:6] + bytes(10),
            attempt=attempt,
            project=raw_id(owner.project_id),
            organization=raw_id(owner.organization_id),
            cost_nusd=3,
            mode=CREDITS,
        )
        for attempt in range(20)
    ]
    insert_rows(case.tenants.services.store.database, *rows)
    monkeypatch.setattr(focus, "PAGE", 7)
    assert billed(charges(case, to_datetime(at_us).strftime("%Y-%m"))) == 60


def test_removed_rows_are_one_charge_an_hour(case: Case) -> None:
    hour = (case.span.start_us - 75 * DAY_US) // HOUR_US
    database = case.tenants.services.store.database
    rows = [(raw_id(case.owner.organization_id).hex(), hour, kind, 40) for kind in ("credits", "storage")]
    sql = "INSERT INTO removed_spend (owner, hour, kind, nusd) VALUES (?, ?, ?, ?)"
    database.write(lambda: database.execute_many(sql, rows))
    found = charges(case, to_datetime(hour * HOUR_US).strftime("%Y-%m"))
    assert billed(found) == 80
    assert {row["SkuId"] for row in found} == {"removed-usage", "payload-storage"}
    assert {(row["PricingQuantity"], row["PricingUnit"]) for row in found} == {("1", "Hours")}
    assert {row["ChargeDescription"] for row in found} == {
        "Usage whose rows were removed",
        "Storage of retained payloads",
    }
    for row in found:
        check_gateway_charge(case, row, hour)
        assert (row["ChargeCategory"], row["ChargeFrequency"]) == ("Usage", "Usage-Based")


def check_gateway_charge(case: Case, row: dict[str, str], hour: int) -> None:
    """Check the columns of a charge that no provider of models caused."""
    assert {row[name] for name in ("ProviderName", "PublisherName", "ServiceName")} == {"LLM Gateway"}
    assert row["BillingAccountId"] == case.owner.organization_id and row["BillingCurrency"] == "USD"
    period = [f"{to_iso(moment * HOUR_US)[:19]}Z" for moment in (hour, hour + 1)]
    assert [row["ChargePeriodStart"], row["ChargePeriodEnd"]] == period


def test_adjustments_are_charges_of_their_month_and_grants_are_not(case: Case) -> None:
    month = to_datetime(case.tenants.services.clock.now_us()).strftime("%Y-%m")
    before = billed(charges(case, month))
    case.tenants.services.billing.ledger.post(case.owner.organization_id, "adjustment", -25, "re-rate:1", "re-rated")
    [row] = [row for row in charges(case, month) if row["ChargeCategory"] == "Adjustment"]
    assert row["ChargeDescription"] == "re-rated" and billed(charges(case, month)) == before + 25
    (entry,) = case.tenants.services.store.database.query_rows("SELECT id, at FROM ledger WHERE kind = 'adjustment'")
    check_gateway_charge(case, row, entry[1] // HOUR_US)
    assert row["x_RequestId"] == entry[0] and row["ChargeFrequency"] == "One-Time"


def test_only_managers_read_charges_and_a_month_is_checked(case: Case) -> None:
    path = f"/orgs/{case.owner.organization_id}/focus?month="
    assert case.tenants.call("GET", f"{path}2026-01", case.tenants["acme developer"])[0] == 403
    assert case.tenants.call("GET", f"{path}2026-13", case.owner)[0] == 400


def test_the_forecast_continues_the_last_complete_days(case: Case) -> None:
    clock = case.tenants.services.clock
    rival = case.tenants["rival owner"]
    today_us = clock.now_us() // DAY_US * DAY_US
    rows = [
        usage_row(
            today_us - day * DAY_US,
            posted_at=clock.now_us() - 1,
            project=raw_id(rival.project_id),
            api_key=raw_id(rival.key.info.id),
            cost_nusd=NANO,
        )
        for day in range(1, 8)
    ]
    insert_rows(case.tenants.services.store.database, *rows)
    case.tenants.services.billing.rollups.catch_up()
    found = case.tenants.ok("GET", f"/activity/forecast?projectId={rival.project_id}", rival)["forecast"]
    month = focus.read_month(found["month"])
    spent = sum(NANO for row in rows if row.at >= month.start_us)
    left_us = month.end_us - clock.now_us()
    assert int(Decimal(found["daily"]) * NANO) == NANO and int(Decimal(found["spent"]) * NANO) == spent
    assert int(Decimal(found["expected"]) * NANO) == pytest.approx(spent + NANO * left_us / DAY_US, rel=1e-3)
    assert from_datetime(to_datetime(month.start_us)) == month.start_us
