"""Effects of the recurring jobs that callers and operators notice, seconds after a change at one worker."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import pytest
from support.billing import DOLLAR, BillingIdentity, BillingProcess, target
from support.usage import insert_rows, stored_sums, sum_up, usage_row

from gateway.accounts.models import MODELS as ACCOUNT_MODELS
from gateway.catalogue.entries import Mapping
from gateway.clock import HOUR_US
from gateway.configuration.settings import Settings
from gateway.errors import ConnectFailed
from gateway.limits.models import MODELS as LIMIT_MODELS
from gateway.metering.models import MODELS as METERING_MODELS
from gateway.metering.usage_table import find
from gateway.oauth.models import MODELS as OAUTH_MODELS
from gateway.providers.protocol import Credential
from gateway.runtime.state_changes import StateChange
from gateway.runtime.threads import Threads
from gateway.store.database import Database
from gateway.store.outage_journal import REMEMBERED_US
from gateway.telemetry.model_watch import ModelWatch
from gateway.telemetry.presence import read_presence
from gateway.worker.recurring_jobs import TABLE
from gateway.worker.services import Services
from gateway.worker.wiring import build


@pytest.fixture
def make_worker(settings: Callable[..., Settings], sqlite_url: str) -> Iterator[Callable[[], Services]]:
    """A factory: each call starts another worker of the same installation."""
    with ExitStack() as stack:

        def make() -> Services:
            worker = build(settings(DATABASE_URL=sqlite_url, GATEWAY_SERVER_WORKERS="2", LLM_OPENAI_API_KEY="x"))
            stack.callback(worker.close)
            worker.start()
            return worker

        yield make


@pytest.fixture
def worker(make_worker: Callable[[], Services]) -> Services:
    return make_worker()


def pass_time(worker: Services, seconds: float) -> None:
    """Run the jobs that run at least once in this time; a process has the models of one worker."""
    worker.store.database.bind([*ACCOUNT_MODELS, *LIMIT_MODELS, *METERING_MODELS, *OAUTH_MODELS])
    for job in TABLE:
        if job.every_s <= seconds:
            job.function(worker, lambda: True)


def changes_of(worker: Services) -> list[StateChange]:
    changes: list[StateChange] = []
    worker.telemetry.states.subscribe(changes.append)
    return changes


def test_a_provider_that_is_down_is_avoided_by_all_workers_a_second_later(make_worker: Callable[[], Services]) -> None:
    first, second = make_worker(), make_worker()
    pass_time(second, 1)
    first.routing.health.sample(Mapping("p", "m", "m"), Credential("", ident="k"), error=ConnectFailed("refused"))
    pass_time(first, 1)
    pass_time(second, 1)
    assert second.routing.health.view("p/m", "p").cooldown == "the provider accepts no connections"


def test_operators_see_each_worker_after_some_seconds(make_worker: Callable[[], Services]) -> None:
    workers = [make_worker(), make_worker()]
    for worker in workers:
        pass_time(worker, 5)
    assert set(read_presence(worker.store.documents)) == {worker.store.control.epoch for worker in workers}


def test_calls_of_a_killed_worker_are_billed_a_second_later(
    worker: Services, sqlite_url: str, open_store: Callable[..., Database], tmp_path: Path, threads: Threads, clock
) -> None:
    account = BillingIdentity()
    killed = BillingProcess(open_store(sqlite_url), open_store(sqlite_url), clock, tmp_path / "data", threads)
    killed.ledger.grant(account.organization, DOLLAR, "start")
    killed.admit(account).begin(0, target())
    killed.die()
    pass_time(worker, 1)
    (row,) = find(worker.store.database, killed.context.request_id)
    assert (row.finish, row.cost_nusd) == ("interrupted", 100_000)


def test_usage_is_summed_for_reports_within_half_a_minute(worker: Services) -> None:
    database = worker.store.database
    yesterday = database.now_us() - 24 * HOUR_US
    row = usage_row(yesterday, cost_nusd=7)
    insert_rows(database, row)
    pass_time(worker, 30)
    pass_time(worker, 30)
    assert stored_sums(database) == sum_up([row])


def test_a_model_in_use_is_reported_before_it_ends(worker: Services, clock) -> None:
    mappings = [each for model in worker.routing.catalogue.current().models.values() for each in model.mappings]
    ending = next(each for each in mappings if each.deactivated)
    worker.routing.health.sample(ending, Credential("", ident="k"))
    worker.telemetry.model_watch = ModelWatch(worker.telemetry.states, clock, 100_000)
    changes = changes_of(worker)
    pass_time(worker, 3600)
    assert [change.facts["model"] for change in changes if change.event == "model.retiring"] == [ending.key]


def test_credits_near_their_end_are_reported_within_half_a_minute(worker: Services) -> None:
    worker.billing.ledger.grant("org_1", 1, "start")
    changes = changes_of(worker)
    pass_time(worker, 30)
    assert [(change.event, change.facts["id"]) for change in changes] == [("credits.low", "org_1")]


def test_marks_of_workers_that_ended_months_ago_are_removed(worker: Services) -> None:
    database = worker.store.database
    old_us = database.now_us() - REMEMBERED_US - 1
    database.change_rows("INSERT INTO journal (writer, seq, at) VALUES (1, 1, ?)", (old_us,))
    pass_time(worker, 600)
    assert database.read(partial(database.fetch, "SELECT COUNT(*) FROM journal WHERE at <= ?", (old_us,))) == [(0,)]
