"""Sessions whose prompt cache hits collapse are reported once, with the cause."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from gateway import ids
from gateway.clock import MINUTE_US, SECOND_US
from gateway.metering.models import CACHED
from gateway.metering.usage_table import UsageRecord, raw_id, write_row
from gateway.runtime.state_changes import StateChange, StateLog
from gateway.store.database import Database
from gateway.store.journal import Journal
from gateway.telemetry import cache_watch
from gateway.telemetry.cache_watch import CacheWatch

OWNERS = {name: raw_id(ids.new("x")) for name in ("organization", "project", "api_key", "member")}
WARM = {"input": 500, "cache_read": 9500}
COLD = {"input": 9000, "cache_read": 1000}


@pytest.fixture
def database(database_url: str, open_store: Callable[..., Database]) -> Database:
    opened = open_store(database_url)
    opened.bind()
    return opened


@pytest.fixture
def published() -> list[StateChange]:
    return []


@pytest.fixture
def states(published: list[StateChange]) -> StateLog:
    log = StateLog()
    log.subscribe(published.append)
    return log


@pytest.fixture
def watch(database: Database, states: StateLog, clock: Any) -> CacheWatch:
    return CacheWatch(database, states, clock, 20)


@pytest.fixture
def turns(database: Database, clock: Any) -> Iterator[Callable[..., None]]:
    """Record turns of the session "s", one each `every_us`; the last ends now."""
    journal = Journal(database, clock)

    def write(count: int, counts: dict[str, int], every_us: int = 10 * SECOND_US, **more: Any) -> None:
        for _ in range(count):
            clock.advance(every_us / SECOND_US)
            at = clock.now_us()
            values: dict[str, Any] = dict.fromkeys(UsageRecord._fields[:20], 0) | OWNERS | counts
            values |= {"at": at, "posted_at": at, "request": bytes.fromhex(ids.new_hex()), "operation": "chat"}
            values |= {"provider": "anthropic", "asked": "opus", "served": "opus", "source": "", "finish": "stop"}
            values |= {"price_version": "", "session": "s"}
            journal.append(write_row(UsageRecord(**values | more))).wait(60)
        clock.advance(10)

    yield write
    journal.close()


def test_a_collapse_is_reported_once_and_its_end_too(watch, turns, published) -> None:
    turns(10, WARM)
    watch.scan()
    assert published == []
    turns(6, COLD)
    watch.scan()
    turns(3, COLD)
    watch.scan()
    (lost,) = published
    assert (lost.event, lost.subject) == ("session.cache_lost", f"session proj_{OWNERS['project'].hex()} s")
    assert lost.facts["organization"] == f"org_{OWNERS['organization'].hex()}"
    assert (lost.facts["hits_before_percent"], lost.facts["hits_percent"]) == (95, 10)
    turns(8, WARM)
    watch.scan()
    assert [change.event for change in published] == ["session.cache_lost", "session.cache_back"]


@pytest.mark.parametrize(
    ("more", "cause"),
    [
        ({}, cache_watch.PREFIX),
        ({"provider": "aws-bedrock"}, cache_watch.PROVIDER),
        ({"served": "sonnet"}, cache_watch.MODEL),
        ({"every_us": 6 * MINUTE_US}, cache_watch.PAUSES),
    ],
)
def test_the_cause_is_the_change(watch, turns, published, more, cause) -> None:
    turns(10, WARM)
    watch.scan()
    turns(6, COLD, **more)
    watch.scan()
    (lost,) = published
    assert lost.facts["cause"] == cause and cause in lost.message and lost.remedy


def test_turns_that_alternate_between_providers_name_the_provider(watch, turns, published) -> None:
    turns(10, WARM)
    for number in range(6):
        turns(1, COLD, provider=("anthropic", "aws-bedrock")[number % 2])
    watch.scan()
    assert [change.facts["cause"] for change in published] == [cache_watch.PROVIDER]


def test_a_session_that_never_had_hits_is_not_reported(watch, turns, published) -> None:
    turns(20, COLD)
    watch.scan()
    assert published == []


def test_first_turns_of_parallel_sub_agents_are_no_collapse(watch, turns, published) -> None:
    turns(10, WARM)
    turns(10, COLD, every_us=SECOND_US)
    turns(12, WARM, every_us=SECOND_US)
    watch.scan()
    assert published == []


@pytest.mark.parametrize(
    "more", [{"flags": CACHED}, {"error": "upstream_error"}, {"session": None}, {"operation": "ocr"}]
)
def test_rows_that_say_nothing_about_the_cache_are_ignored(watch, turns, published, more) -> None:
    turns(10, WARM)
    turns(8, COLD, **more)
    watch.scan()
    assert published == []


def test_small_prompts_are_ignored(watch, turns, published) -> None:
    turns(10, WARM)
    turns(8, {"input": 900, "cache_read": 0})
    watch.scan()
    assert published == []


def test_sessions_of_different_names_are_judged_apart(watch, turns, published) -> None:
    turns(10, WARM)
    turns(10, COLD, session="other")
    watch.scan()
    assert published == []


def test_zero_reports_nothing_and_reads_nothing(database, states, clock, turns, published) -> None:
    turns(10, WARM)
    turns(6, COLD)
    CacheWatch(database, states, clock, 0).scan()
    assert published == []


def test_a_run_reads_page_by_page_and_continues_after_it(watch, turns, published, monkeypatch) -> None:
    monkeypatch.setattr(cache_watch, "PAGE", 3)
    turns(10, WARM)
    watch.scan(lambda: False)
    turns(6, COLD)
    watch.scan()
    assert [change.event for change in published] == ["session.cache_lost"]


def test_the_number_of_sessions_in_memory_is_limited(watch, turns, monkeypatch) -> None:
    monkeypatch.setattr(cache_watch, "MAX_SESSIONS", 2)
    for name in ("a", "b", "c"):
        turns(1, WARM, session=name)
    watch.scan()
    assert [session for _, session in watch._sessions] == ["b", "c"]


def losses(database: Database) -> list[tuple]:
    return database.query_rows("SELECT cause, tokens, cost_nusd, session FROM cache_loss ORDER BY at")


def test_turns_without_the_usual_hits_are_kept_with_what_they_cost_more(
    watch: CacheWatch, turns: Callable[..., None], database: Database, states: StateLog, clock: Any
) -> None:
    """Usually 95 % of the input is a hit for 1 nano-dollar a token; then 10 %, and the rest costs 10 a token."""
    warm = WARM | {"input_nusd": 5_000, "cached_nusd": 9_500}
    cold = COLD | {"input_nusd": 90_000, "cached_nusd": 1_000}
    turns(10, warm)
    turns(6, cold)
    watch.scan()
    CacheWatch(database, states, clock, 20).scan()  # a new leader reads the same turns
    missed = 9_500 - 1_000
    assert losses(database) == [(cache_watch.PREFIX, missed, missed * 10 - missed, "s")] * 6
    turns(1, cold)
    watch.scan()
    assert len(losses(database)) == 7
    turns(30, warm)
    watch.scan()
    assert len(losses(database)) == 7


def test_old_losses_are_deleted(watch, turns, database: Database) -> None:
    turns(10, WARM | {"input_nusd": 5_000, "cached_nusd": 9_500})
    turns(6, COLD | {"input_nusd": 90_000, "cached_nusd": 1_000})
    watch.scan()
    cache_watch.forget_losses(database, 400)
    assert len(losses(database)) == 6
    database.change_rows("UPDATE cache_loss SET at = 1")
    cache_watch.forget_losses(database, 400)
    assert losses(database) == []
