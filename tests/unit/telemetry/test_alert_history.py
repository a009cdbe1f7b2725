"""Past alerts are one row for each problem, belong to their organization, and go by their age."""

from collections.abc import Callable

import pytest
from support.clock import FakeClock

from gateway.clock import DAY_US, SECOND_US
from gateway.runtime.state_changes import StateChange
from gateway.store.database import Database
from gateway.telemetry import alert_history
from gateway.telemetry.alert_history import AlertHistory


@pytest.fixture
def history(database_url: str, open_store: Callable[..., Database], clock: FakeClock) -> AlertHistory:
    return AlertHistory(open_store(database_url))


def spent(organization: str, subject: str = "budget key_1") -> StateChange:
    facts: dict[str, object] = {"organization": organization, "id": "key_1", "percent": 80}
    return StateChange("budget.spent", subject, "key key_1 spent its limit", facts=facts)


def test_a_problem_is_one_row_of_its_organization(history: AlertHistory) -> None:
    for _ in range(2):
        history.begin(spent("org_a"), 5 * SECOND_US)
    history.begin(spent("org_b", "budget key_2"), 6 * SECOND_US)
    [past] = history.read(["org_a"], 0, 10 * SECOND_US, 9)
    assert (past.organization_id, past.began_us, past.ended_us) == ("org_a", 5 * SECOND_US, 0)
    assert past.facts == {"id": "key_1", "percent": 80}
    history.end("budget key_1", ["budget.nearly_spent", "budget.spent"], 5 * SECOND_US, 8 * SECOND_US)
    ends = [one.ended_us for one in history.read(["org_a", "org_b"], 0, 10 * SECOND_US, 9)]
    assert ends == [0, 8 * SECOND_US]
    assert history.read(["org_a"], 0, 10 * SECOND_US, 9, ["provider.resting"]) == []
    assert history.read(["org_a"], 5 * SECOND_US + 1, 10 * SECOND_US, 9) == [] == history.read([], 0, 10**18, 9)


def test_old_problems_are_deleted(history: AlertHistory, clock: FakeClock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(alert_history, "STEP_ROWS", 2)
    now_us = history._database.now_us()
    for number in range(5):
        history.begin(spent("org_a", f"budget {number}"), now_us - (alert_history.DAYS + 1) * DAY_US - number)
    history.begin(spent("org_a"), now_us - DAY_US)
    assert history.forget() == 5
    assert len(history.read(["org_a"], 0, now_us, 9)) == 1
