"""The dry run of a route: what it would have chosen for stored requests, and what that would have cost."""

import time
from collections.abc import Callable
from typing import Any

import orjson
import pytest
from support.usage import insert_rows, insert_series, usage_row

from gateway.accounts import organizations, projects
from gateway.catalogue import loader
from gateway.catalogue.prices import cost_of
from gateway.clock import DAY_US, HOUR_US, SECOND_US, Clock
from gateway.configuration.settings import CONFIG
from gateway.control.version import Control
from gateway.metering.usage_table import UsageRecord, raw_id
from gateway.neutral.usage import Usage
from gateway.reports import simulated_days
from gateway.reports.route_simulation import RouteSimulation, simulate_route
from gateway.routes.compiled import compile_route
from gateway.routes.route_document import read_document
from gateway.routes.route_prices import RoutePrices
from gateway.store.database import Database

SMALL, LARGE = "gpt-4o-mini", "gpt-4o"
COST = 10**7


class Company:
    """An organization with a project, and the usage that a test gives it."""

    def __init__(self, database: Database, control: Control) -> None:
        self.database = database
        stores = database, control
        self.id = organizations.create_organization(*stores, "Acme", actor="test").id
        self.project = projects.create_project(*stores, self.id, "A", actor="test").id
        catalogue = loader.load(CONFIG / "catalogue", sandbox=False)
        self.model = catalogue.models[SMALL]
        self.prices = RoutePrices(lambda: catalogue)

    def row(self, age_us: int = HOUR_US, **more: Any) -> UsageRecord:
        fields = {"operation": "chat", "provider": "openai", "served": LARGE, "asked": LARGE, "cost_nusd": COST}
        fields |= {"input": 1_000, "cache_read": 3_000, "output": 100, "price_version": "1"}
        owners = {"organization": raw_id(self.id), "project": raw_id(self.project)}
        return usage_row(self.database.now_us() - age_us, **{**fields, **owners, **more})

    def simulate(
        self, *rows: UsageRecord, days: int = 7, requested: tuple[str, ...] = (), **document: Any
    ) -> RouteSimulation:
        insert_rows(self.database, *rows)
        route = compile_route("draft", 0, read_document({"otherwise": SMALL, **document}))
        return simulate_route(self.database, self.id, route, self.prices, 7, frozenset(requested))


@pytest.fixture
def company(database_url: str, open_store: Callable[..., Database], clock: Clock) -> Company:
    database = open_store(database_url)
    database.bind()
    return Company(database, Control.observer(database, clock))


def test_another_model_costs_its_own_price_and_the_same_model_what_it_cost(company: Company) -> None:
    done = company.simulate(company.row(), company.row(served=SMALL, cost_nusd=77))
    mapping = next(one for one in company.model.mappings if one.provider == "openai")
    expected = cost_of(Usage(input=1_000, cache_read=3_000, output=100), mapping, 0).total
    assert (done.requests, done.changed, done.undecided) == (2, 1, 0)
    assert (done.cost_nusd, done.new_cost_nusd) == (COST + 77, expected + 77)
    [choice] = done.choices
    assert (choice.rule, choice.model, choice.requests, choice.changed) == ("otherwise", SMALL, 2, 1)


def test_rules_read_the_columns_of_usage_rows(company: Company) -> None:
    rules = [
        {"name": "codex", "when": {"applications": ["codex"]}, "use": LARGE},
        {"name": "long", "when": {"promptTokens": {"atLeast": 50_000}}, "use": LARGE},
    ]
    rows = [company.row(source="codex"), company.row(input=60_000), company.row()]
    done = company.simulate(*rows, rules=rules)
    assert {choice.rule: choice.requests for choice in done.choices} == {"codex": 1, "long": 1, "otherwise": 1}


def test_request_is_undecided_where_a_rule_needs_a_value_that_no_row_has(company: Company) -> None:
    rules = [{"when": {"headers": {"x-tier": "gold"}, "applications": ["codex"]}, "use": LARGE}]
    done = company.simulate(company.row(source="codex"), company.row(source="other"), rules=rules)
    # The second one cannot fulfil the rule, whatever its headers were.
    assert (done.requests, done.undecided) == (2, 1) and done.new_cost_nusd > COST


def test_verdicts_that_a_route_noted_decide_rules_about_turns(company: Company) -> None:
    rules = [{"name": "hard", "when": {"difficulty": ["large"]}, "use": LARGE}]
    noted = [orjson.dumps({"route_seen": ["work", "main", level]}).decode() for level in ("large", "small", "")]
    done = company.simulate(*[company.row(extra=extra) for extra in noted], rules=rules)
    assert {choice.rule: choice.requests for choice in done.choices} == {"hard": 1, "otherwise": 1}
    assert done.undecided == 1


def test_only_answered_chat_requests_of_the_days_and_names_count(company: Company) -> None:
    rows = [
        company.row(8 * DAY_US),
        company.row(error="upstream_error"),
        company.row(operation="embeddings"),
        company.row(asked="smart"),
        company.row(),
    ]
    assert company.simulate(*rows, requested=("smart",)).requests == 1
    assert company.simulate().requests == 2


def test_more_rows_than_are_read_at_once_shorten_the_days(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(simulated_days, "MAX_ROWS", 30)
    done = company.simulate(*[company.row(number * HOUR_US) for number in range(1, 50)])
    assert not done.complete and done.requests == 31
    assert done.until_us - done.since_us < 2 * DAY_US


@pytest.mark.extended
def test_hundred_thousand_rows_take_less_than_a_minute(company: Company) -> None:
    insert_series(company.database, company.row(SECOND_US), 100_000, SECOND_US)
    rules = [{"when": {"applications": [f"app-{number}"]}, "use": LARGE} for number in range(10)]
    began = time.monotonic()
    assert company.simulate(rules=rules).requests == 100_000
    took_s = time.monotonic() - began
    print(f"{took_s:.1f} s")
    assert took_s < 60
