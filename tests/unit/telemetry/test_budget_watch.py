"""Budgets and credits near their end are reported before callers are refused."""

from collections.abc import Callable

import pytest

from gateway.limits.budgets import find_spent
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.store.database import Database
from gateway.store.documents import Documents
from gateway.telemetry.alert_delivery import event_of
from gateway.telemetry.budget_watch import BudgetWatch, balances_of, counts_of

DOLLAR = 10**9
LOW_NUSD = 5 * DOLLAR


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database]) -> Database:
    opened = open_store(database_url)
    opened.bind()
    return opened


@pytest.fixture
def told() -> list[StateChange]:
    return []


@pytest.fixture
def watch(database: Database, told: list[StateChange]) -> BudgetWatch:
    states = StateLog()
    states.subscribe(told.append)
    return BudgetWatch(database, Documents(database), states, LOW_NUSD)


def budget(database: Database, scope: str, kind: str, limit: int | None, spent: int, **more: object) -> None:
    values = {"period": "", "window_start": None, **more}
    database.write(
        lambda: database.execute(
            "INSERT INTO budget (id, scope, scope_id, kind, limit_nusd, settled_nusd, leased_nusd, period, "
            "window_start, generation) VALUES (?, ?, ?, ?, ?, ?, 0, ?, ?, 0)",
            (f"{scope}_1:{kind}", scope, f"{scope}_1", kind, limit, spent, values["period"], values["window_start"]),
        )
    )


def spend(database: Database, ident: str, spent: int) -> None:
    database.write(lambda: database.execute("UPDATE budget SET settled_nusd = ? WHERE id = ?", (spent, ident)))


def test_a_limit_is_reported_when_nearly_when_wholly_spent_and_when_it_has_room_again(database, watch, told) -> None:
    budget(database, "key", "total", 10 * DOLLAR, 7 * DOLLAR)
    watch.scan()
    assert told == []
    for spent in (8, 9, 10, 10, 1):
        spend(database, "key_1:total", spent * DOLLAR)
        watch.scan()
    assert [one.event for one in told] == ["budget.nearly_spent", "budget.spent", "budget.back"]
    assert told[0].facts["left_usd"] == "2" and "limits set" in told[0].remedy


def test_credits_are_reported_by_what_is_left_and_not_by_what_was_ever_granted(database, watch, told) -> None:
    budget(database, "organization", "credits", 1000 * DOLLAR, 990 * DOLLAR)
    watch.scan()
    assert told == []
    spend(database, "organization_1:credits", 996 * DOLLAR)
    watch.scan()
    spend(database, "organization_1:credits", 1000 * DOLLAR)
    watch.scan()
    assert [one.event for one in told] == ["credits.low", "credits.spent"]


def test_limits_without_an_end_and_unlimited_organizations_are_never_near_it(database, watch, told) -> None:
    budget(database, "key", "total", None, 10**17)
    budget(database, "organization", "credits", None, 10**17)
    watch.scan()
    assert told == []


def test_a_window_that_is_over_counts_for_nothing(database, clock) -> None:
    long_ago = database.now_us() - 3 * 86_400_000_000
    budget(database, "member", "window", DOLLAR, DOLLAR, period="1d", window_start=long_ago)
    budget(database, "team", "window", DOLLAR, DOLLAR, period="1w", window_start=long_ago)
    (found,) = find_spent(database, LOW_NUSD)
    assert found.scope == "team" and found.resets_at.endswith("Z")


def test_every_worker_shows_the_findings_of_one(database, watch) -> None:
    budget(database, "key", "total", DOLLAR, DOLLAR)
    budget(database, "organization", "credits", 3 * DOLLAR, DOLLAR)
    watch.scan()
    shown = BudgetWatch(database, Documents(database), StateLog(), LOW_NUSD).shown()
    assert counts_of(shown) == {("key", "spent"): 1.0, ("organization", "nearly"): 1.0}
    assert balances_of(shown) == {("organization_1",): 2.0}


def test_each_threshold_of_a_budget_is_reported_once_and_on_the_way_up_only(database, told) -> None:
    states = StateLog()
    states.subscribe(told.append)
    watch = BudgetWatch(database, Documents(database), states, LOW_NUSD, (50, 80))
    budget(database, "key", "total", 10 * DOLLAR, 4 * DOLLAR)
    for spent in (4, 5, 6, 8, 8, 6, 10):
        spend(database, "key_1:total", spent * DOLLAR)
        watch.scan()
    reached = [(one.event, one.facts["threshold_percent"]) for one in told]
    assert reached == [("budget.nearly_spent", 50), ("budget.nearly_spent", 80), ("budget.spent", 100)]
    assert len({event_of(one, 0, 0)["id"] for one in told}) == 3, "an alert is not taken for a repetition of another"


def test_a_budgets_own_thresholds_take_the_place_of_the_usual_ones(database, watch, told) -> None:
    budget(database, "key", "total", 10 * DOLLAR, 3 * DOLLAR)
    budget(database, "team", "total", 10 * DOLLAR, 8 * DOLLAR)
    database.write(lambda: database.execute("UPDATE budget SET alert_at = '25,95' WHERE scope = 'key'"))
    database.write(lambda: database.execute("UPDATE budget SET alert_at = '95' WHERE scope = 'team'"))
    watch.scan()
    assert [(one.facts["scope"], one.facts["threshold_percent"]) for one in told] == [("key", 25)]


def test_a_new_leader_reports_only_what_changed_since_the_last_scan_of_the_former_one(database, watch, told) -> None:
    budget(database, "key", "total", 10 * DOLLAR, 9 * DOLLAR)
    budget(database, "team", "total", 10 * DOLLAR, 9 * DOLLAR)
    watch.scan()
    assert len(told) == 2
    states = StateLog()
    states.subscribe(told.append)
    leader = BudgetWatch(database, Documents(database), states, LOW_NUSD)
    leader.scan()
    assert len(told) == 2
    spend(database, "key_1:total", 10 * DOLLAR)
    spend(database, "team_1:total", DOLLAR)
    leader.scan()
    assert [(one.event, one.facts["scope"]) for one in told[2:]] == [("budget.spent", "key"), ("budget.back", "team")]
