"""The simulation of a limit: what it would have done with the usage of the last days."""

import random
from collections.abc import Callable

import orjson
import pytest
from support.usage import insert_rows, usage_row

from gateway import ids
from gateway.accounts import organizations, projects
from gateway.accounts.members import add_member
from gateway.clock import DAY_US, HOUR_US, SECOND_US, Clock
from gateway.control.version import Control
from gateway.limits.limit_rules import LimitAction, LimitRule, Subject, read_subject
from gateway.metering.usage_table import raw_id
from gateway.reports import simulated_days
from gateway.reports.limit_simulation import LimitSimulation, simulate_limit
from gateway.store.database import Database

CENT = 10**7
REFUSE = (LimitAction(100, "refuse"),)
CUSTOMER = {"served": "gpt-4o", "provider": "openai"}


class Company:
    """An organization with two projects and three people, and the usage that a test gives it."""

    def __init__(self, database: Database, control: Control) -> None:
        self.database = database
        stores = database, control
        self.id = organizations.create_organization(*stores, "Acme", actor="test").id
        self.projects = [projects.create_project(*stores, self.id, name, actor="test").id for name in ("A", "B")]
        self.people = {
            name: add_member(*stores, self.id, f"{name}@a.example", "developer", actor="test").id
            for name in ("ann", "bob", "eve")
        }
        self.now = database.now_us()
        self.rows = []

    def use(
        self, who: str, *ages_us: int, cents: int = 1, project: int = 0, tags: dict[str, str] | None = None, **more
    ):
        """Add requests of a person, so long ago."""
        for age_us in ages_us:
            self.rows.append(
                usage_row(
                    self.now - age_us,
                    organization=raw_id(self.id),
                    project=raw_id(self.projects[project]),
                    member=raw_id(self.people[who]),
                    cost_nusd=cents * CENT,
                    tags=orjson.dumps(tags).decode() if tags else None,
                    **{**CUSTOMER, **more},
                )
            )

    def simulate(self, *subjects: str, cents: int, period: str = "", actions=REFUSE, days: int = 30) -> LimitSimulation:
        insert_rows(self.database, *self.rows)
        self.rows = []
        rule = LimitRule("", "draft", tuple(map(read_subject, subjects)), cents * CENT, period, actions)
        if "organization" in subjects:
            rule = LimitRule("", "draft", (Subject("organization", self.id),), cents * CENT, period, actions)
        return simulate_limit(self.database, self.id, rule, days)


@pytest.fixture
def company(database_url: str, open_store: Callable[..., Database], clock: Clock) -> Company:
    database = open_store(database_url)
    database.bind()
    return Company(database, Control.observer(database, clock))


def hours(*numbers: float) -> tuple[int, ...]:
    return tuple(int(number * HOUR_US) for number in numbers)


def test_requests_beyond_the_amount_would_have_been_refused(company: Company) -> None:
    company.use("ann", *hours(5, 4, 3))
    company.use("bob", *hours(2, 1), project=1)
    done = company.simulate("organization", cents=3)
    assert (done.requests, done.cost_nusd, done.refused_requests, done.refused_cost_nusd) == (5, 5 * CENT, 2, 2 * CENT)
    assert done.people_count == 1
    assert [(one.email, one.requests) for one in done.people] == [("bob@a.example", 2)]
    assert done.first_refused_at_us // SECOND_US == (company.now - 2 * HOUR_US) // SECOND_US
    assert done.complete and done.until_us - done.since_us == 30 * DAY_US


def test_a_refused_request_leaves_room_for_a_smaller_one(company: Company) -> None:
    company.use("ann", *hours(3), cents=2)
    company.use("ann", *hours(2), cents=5)
    company.use("bob", *hours(1))
    done = company.simulate("organization", cents=3)
    assert (done.requests, done.refused_requests, done.refused_cost_nusd) == (3, 1, 5 * CENT)


def test_a_window_that_ended_leaves_room_again(company: Company) -> None:
    company.use("ann", *hours(60, 59, 30, 29, 1))
    assert company.simulate("organization", cents=1, period="1d").refused_requests == 2
    assert company.simulate("organization", cents=1).refused_requests == 4


def test_each_member_has_the_amount_and_those_without_one_share_it(company: Company) -> None:
    for user in ("x", "y"):
        company.use("ann", *hours(3, 2), tags={"user": user})
    company.use("bob", *hours(5, 1))
    done = company.simulate("each user", cents=1)
    assert (done.requests, done.refused_requests, done.people_count) == (6, 3, 2)


@pytest.mark.parametrize(
    ("subject", "counted"),
    [
        ("project={project}", 2),
        ("member={bob}", 1),
        ("model=gpt-*", 3),
        ("provider=anthropic", 1),
        ("tag:team=search", 1),
        ("no tag:team", 3),
        ("application=cursor", 1),
        ("session=s1", 1),
        ("user=u1", 1),
        ("run=r1", 1),
        ("provider_key=pkey_1", 1),
        ("team={team}", 0),
    ],
)
def test_requests_count_by_their_subject(subject: str, counted: int, company: Company) -> None:
    company.use("ann", *hours(4), source="cursor", session="s1", tags={"team": "search", "user": "u1", "run": "r1"})
    company.use("ann", *hours(3), extra='{"provider_key":"pkey_1"}')
    company.use("bob", *hours(2), project=1)
    company.use("eve", *hours(1), project=1, served="claude", provider="anthropic")
    named = subject.format(project=company.projects[1], bob=company.people["bob"], team=ids.new("team"))
    assert company.simulate(named, cents=100).requests == counted


def test_attempts_of_a_request_are_one_request(company: Company) -> None:
    company.use("ann", *hours(2, 1))
    [first, second] = company.rows
    company.rows.append(second._replace(attempt=1))
    done = company.simulate("organization", cents=1)
    assert (done.requests, done.cost_nusd, done.refused_requests) == (2, 3 * CENT, 1)
    assert first.request != second.request


def test_warnings_and_other_models_are_counted(company: Company) -> None:
    company.use("ann", *hours(4, 3, 2, 1))
    actions = (LimitAction(25, "warn"), LimitAction(75, "model", "small"))
    done = company.simulate("organization", cents=4, actions=actions)
    assert (done.refused_requests, done.warned_requests, done.substituted_requests) == (0, 2, 1)


def test_much_usage_is_read_from_the_newest(company: Company, monkeypatch: pytest.MonkeyPatch) -> None:
    dice = random.Random(1)
    for number in range(150):
        company.use("ann", int((200 - number) * HOUR_US), project=dice.randrange(2))
    monkeypatch.setattr(simulated_days, "MAX_ROWS", 100)
    done = company.simulate("organization", cents=10)
    assert not done.complete
    assert 99 <= done.requests <= 101 and done.refused_requests == done.requests - 10
    assert abs(done.since_us - (company.now - 151 * HOUR_US)) < 2 * HOUR_US


def test_only_the_requested_days_count(company: Company) -> None:
    company.use("ann", *hours(24 * 40, 24 * 8, 24 * 6))
    assert [company.simulate("organization", cents=1, days=days).requests for days in (7, 30, 90)] == [1, 2, 3]
