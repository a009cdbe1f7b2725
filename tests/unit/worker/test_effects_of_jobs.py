"""Effects of the recurring jobs that callers and operators notice, seconds after a change at one worker."""

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import gevent
import pytest
from fakes.engines import OLLAMA, FakeEngine
from fakes.identity_services import FakeGoogleIdentity
from support import prepared
from support.billing import DOLLAR, BillingIdentity, BillingProcess, admission_of, target
from support.limits import set_rate_limit
from support.usage import insert_rows, stored_sums, sum_up, usage_row

from gateway import ids
from gateway.accounts.organizations import create_organization
from gateway.catalogue.entries import Mapping
from gateway.clock import HOUR_US
from gateway.configuration.settings import Settings
from gateway.engine.cache import AnswerOrigin, CachedAnswer
from gateway.engine.idempotency import KeyedRequest, StoredReply
from gateway.errors import ConnectFailed, OutOfCredits, RateLimited
from gateway.limits.cost_bound import CostBound
from gateway.limits.lease_keeping import RETURN_AFTER_S
from gateway.metering.usage_table import find
from gateway.neutral.usage import Usage
from gateway.providers.protocol import Credential
from gateway.runtime import threads as threads_module
from gateway.runtime.state_changes import StateChange
from gateway.runtime.threads import Threads
from gateway.store.database import Database
from gateway.store.outage_journal import DEDUPLICATION_US
from gateway.telemetry.alert_delivery import KIND as ALERTS
from gateway.telemetry.budget_watch import ModelWatch
from gateway.telemetry.presence import read_presence
from gateway.telemetry.request_observers import FinishedRequest
from gateway.worker.recurring_jobs import JOB_TABLE
from gateway.worker.services import Services
from gateway.worker.wiring import build


@pytest.fixture
def make_worker(settings: Callable[..., Settings], sqlite_url: str) -> Iterator[Callable[..., Services]]:
    """A factory: each call starts another worker of the same installation."""
    with ExitStack() as stack:

        def make(**environment: str) -> Services:
            base = {"DATABASE_URL": sqlite_url, "GATEWAY_SERVER_WORKERS": "2", "LLM_OPENAI_API_KEY": "x"}
            worker = build(settings(**base, **prepared.SECRETS, **environment))
            stack.callback(worker.close)
            worker.start()
            return worker

        yield make


@pytest.fixture
def worker(make_worker: Callable[[], Services]) -> Services:
    return make_worker()


def pass_time(worker: Services, seconds: float) -> None:
    """Run the jobs that run at least once in this time; a process has the models of one worker."""
    worker.store.database.bind()
    for job in JOB_TABLE:
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
    old_us = database.now_us() - DEDUPLICATION_US - 1
    database.change_rows("INSERT INTO journal (writer, seq, at) VALUES (1, 1, ?)", (old_us,))
    pass_time(worker, 600)
    assert database.read(partial(database.fetch, "SELECT COUNT(*) FROM journal WHERE at <= ?", (old_us,))) == [(0,)]


def test_credits_that_one_worker_left_unused_serve_another_a_second_later(make_worker: Callable[[], Services]) -> None:
    first, second = make_worker(), make_worker()
    account = BillingIdentity()
    first.billing.ledger.grant(account.organization, 100_000, "start")
    admission = admission_of(account.context(), CostBound(100_000, 0, 0, True))
    first.billing.settlements.admit(admission).close()
    gevent.sleep(RETURN_AFTER_S)
    pass_time(first, 1)
    second.billing.settlements.admit(admission).close()


def test_a_new_worker_gets_its_share_of_a_rate_limit_a_second_later(make_worker: Callable[[], Services]) -> None:
    first = make_worker()
    set_rate_limit(first.billing.rate_limits, "key", "key_1", "requests", 4)
    rates = first.billing.settlements.rates
    rates.enter("org_1", "proj_1", "key_1", "m-1", 10)
    make_worker()
    pass_time(first, 1)
    rates.enter("org_1", "proj_1", "key_1", "m-1", 10)
    with pytest.raises(RateLimited):
        rates.enter("org_1", "proj_1", "key_1", "m-1", 10)


def test_a_scrape_of_one_worker_has_the_counts_of_another_ten_seconds_later(worker: Services, tmp_path: Path) -> None:
    worker.background.counters.add("requests_total", ("chat", "200"))
    pass_time(worker, 10)
    [file] = (tmp_path / "data" / "metrics").glob("*.json")
    assert ["requests_total", ["chat", "200"], 1] in json.loads(file.read_bytes())["totals"]


def test_a_model_of_a_local_engine_can_be_called_within_half_a_minute(make_worker: Callable[..., Services]) -> None:
    with FakeEngine(OLLAMA) as ollama:
        worker = make_worker(LLM_OLLAMA_BASE_URL=ollama.url)
        pass_time(worker, 30)
        assert worker.routing.catalogue.current().find("ollama/qwen3:8b")


def test_the_token_of_a_workload_identity_is_fetched_before_the_first_request(
    make_worker: Callable[..., Services],
) -> None:
    with FakeGoogleIdentity() as google:
        worker = make_worker(LLM_GOOGLE_VERTEX_API_KEY="workload-identity", GCE_METADATA_HOST=google.host)
        pass_time(worker, 1)
        with gevent.Timeout(60):
            while not google.issued:
                gevent.sleep(0.001)


def test_a_full_response_cache_has_room_for_new_answers_ten_minutes_later(make_worker: Callable[..., Services]) -> None:
    worker = make_worker(GATEWAY_CACHE_MAX_BYTES="2000")
    answer = CachedAnswer(AnswerOrigin("0" * 32, "p/m", Usage(), "stop", "", "m", "up_1"), [(0, b'[""]')])
    for number in range(30):
        worker.engine.cache.put(f"k{number}", answer, 60)
    pass_time(worker, 600)
    worker.engine.cache.put("later", answer, 60)
    assert worker.engine.cache.get("later")


def test_room_for_answers_with_an_idempotency_key_is_found_again_ten_minutes_later(worker: Services) -> None:
    caller = BillingIdentity().context().caller
    answers = worker.engine.idempotency
    answers._room = 0  # as after half a gigabyte of answers

    def make() -> StoredReply:
        return StoredReply(200, [], b"{}")

    def answer() -> StoredReply:
        return answers.answer(KeyedRequest(caller, "k", "POST /v1/x", (b"{}",), ids.new_hex()), make)

    pass_time(worker, 600)
    answer()
    assert answer().replayed


def test_a_flood_of_refusals_is_counted_in_full_in_the_request_log_ten_seconds_later(worker: Services) -> None:
    caller = BillingIdentity().context().caller
    refused = {"error": OutOfCredits("none"), "caller": caller, "paid": True}
    for _ in range(100):
        request = ids.new_hex()
        worker.telemetry.request_log.failed(FinishedRequest("POST /v1/x", 402, 0, 0.1, request, request, **refused))
    pass_time(worker, 10)
    worker.store.journal.flush(60)
    database = worker.store.database
    assert database.read(partial(database.fetch, "SELECT SUM(requests) FROM log_entry")) == [(100,)]


def test_an_alert_waits_for_its_delivery_a_second_later(worker: Services) -> None:
    organization = create_organization(worker.store.database, worker.store.control, "Operators", actor="test").id
    worker.telemetry.hooks.add(organization, "https://alerts.example/", actor="test")
    worker.telemetry.states.fire(StateChange("credential.refused", "provider openai#k", "openai refused"))
    pass_time(worker, 1)
    assert len(list(worker.store.documents.entries(ALERTS))) == 1


def test_free_memory_is_returned_to_the_system_twice_a_minute(
    worker: Services, monkeypatch: pytest.MonkeyPatch
) -> None:
    returned: list[int] = []
    monkeypatch.setattr(threads_module, "_libc", SimpleNamespace(malloc_trim=returned.append))
    pass_time(worker, 30)
    assert returned == [0]
