"""Refused and failed requests, and callers' metadata, become log entries; a flood of them stays bounded."""

import json
import tracemalloc
from pathlib import Path
from types import SimpleNamespace

import pytest
from support.clock import FakeClock

from gateway import ids
from gateway.billing.context import RequestContext
from gateway.callers.authentication import Caller
from gateway.errors import Cancelled, InvalidRequest, OutOfCredits, Unauthenticated, Unavailable, UpstreamFailed
from gateway.metering.counters import Counters
from gateway.metering.log.log_entries import STORE, LogEntry
from gateway.telemetry import request_log_writer
from gateway.telemetry.request_log_writer import KEY_BURST, MAX_PENDING, WORKER_BURST, RequestLog
from gateway.telemetry.request_observers import FinishedRequest

OPERATION = "POST /v1/chat/completions"
BODY = json.dumps({"model": "small\0", "messages": 7}).encode()


class Tables:
    """The tables from which entries are purged."""

    def purge(self, now_us, wanted):
        return 7


class Journal:
    """Keeps what is appended."""

    def __init__(self) -> None:
        self.rows: list = []
        self.pending, self.full = 0, False

    def append(self, *rows) -> None:
        if self.full:
            raise Unavailable
        self.rows += rows

    @property
    def entries(self) -> list[LogEntry]:
        return [LogEntry(*params) for statement, params in self.rows if statement is STORE]


def caller_of(key: str = "key_" + "1" * 32) -> Caller:
    organization, project, member = "org_" + "2" * 32, "proj_" + "3" * 32, "member_" + "4" * 32
    return Caller(key, "user", "", organization, project, "", member, "developer", "credits")


def context_of(caller: Caller, attempts: list | None = None, **tags: str) -> RequestContext:
    context = RequestContext(ids.new_hex(), caller, 0, 0.0, 0.0, operation="chat", source="app", metadata=tags)
    context.outcome = SimpleNamespace(attempts=attempts or [])
    return context


def ended(error=None, status: int | None = None, caller: Caller | None = None, context=None, **more) -> FinishedRequest:
    number = ids.new_hex()
    status = (error.status if error else 200) if status is None else status
    who = caller if caller is not None else caller_of()
    usual = {"paid": True, "body": BODY, "shown_id": number} | more
    return FinishedRequest(OPERATION, status, 0, 0.1, number, error=error, caller=who, context=context, **usual)


@pytest.fixture
def journal() -> Journal:
    return Journal()


@pytest.fixture
def log(journal: Journal, tmp_path: Path) -> RequestLog:
    clock = FakeClock()
    clock.freeze()
    return RequestLog(journal, clock, Counters(tmp_path), Tables())


def test_a_refused_request_is_kept_with_its_code_model_and_label(log, journal) -> None:
    finished = ended(InvalidRequest("no"), shown_id="theirs\0")
    log.failed(finished)
    [entry] = journal.entries
    assert entry.request.hex() == finished.request_id and entry.label == "theirs" and entry.asked == "small"
    assert (entry.status, entry.error, entry.path, entry.requests) == (
        400, "invalid_parameters", "/v1/chat/completions", 1,
    )  # fmt: skip
    assert entry.project.hex() == "3" * 32 and entry.metadata is None


def test_only_the_beginning_of_a_long_model_name_is_read(log, journal) -> None:
    finished = ended(InvalidRequest("no"), body=b'{"model": "' + b"a/" * 1_000_000 + b'"}')
    tracemalloc.start()
    try:
        log.failed(finished)
        maximum = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert journal.entries[0].asked == ("a/" * 128)[:255] and maximum < 5_000_000  # the name once, as it was decoded


@pytest.mark.parametrize(
    "finished",
    [
        ended(Unauthenticated("who?")), ended(), ended(InvalidRequest("no"), paid=False),
        FinishedRequest(OPERATION, 413, 0, 0.1, ids.new_hex(), "x", error=InvalidRequest("no"), paid=True),
    ],
    ids=["nobody", "good", "free", "unknown"],
)  # fmt: skip
def test_requests_without_a_key_or_with_a_usage_row_leave_no_entry(log, journal, finished) -> None:
    log.failed(finished)
    log.marked(finished)
    assert journal.rows == []


def test_failed_attempts_keep_only_the_error_of_the_caller(log, journal) -> None:
    begun, silent = SimpleNamespace(first_at=1.0), SimpleNamespace(first_at=0.0)
    error = UpstreamFailed("all failed", code="all_providers_failed")
    for attempts, status, problem in (
        ([silent], 502, error), ([silent], 200, error), ([begun], 200, error), ([silent], 499, Cancelled("gone")),
    ):  # fmt: skip
        log.failed(ended(problem, status, context=context_of(caller_of(), attempts)))
    assert [(entry.status, entry.error, entry.asked) for entry in journal.entries] == [
        (502, "all_providers_failed", ""), (200, "all_providers_failed", ""),
    ]  # fmt: skip


def test_metadata_is_kept_once_whether_the_request_went_well_or_not(log, journal) -> None:
    context = context_of(caller_of(), team="search")
    for error in (None, OutOfCredits("none")):
        finished = ended(error, context=context)
        if error:
            log.failed(finished)
        log.marked(finished)
    assert [(entry.status, entry.tags) for entry in journal.entries] == [
        (200, {"team": "search"}),
        (402, {"team": "search"}),
    ]
    assert len(journal.rows) == 4


def test_a_flood_of_refusals_writes_little_and_is_reported_in_full(log, journal) -> None:
    for _ in range(5_000):
        log.failed(ended(OutOfCredits("none")))
    assert len(journal.entries) == KEY_BURST
    log.flush()
    last = journal.entries[-1]
    assert last.requests == 5_000 - KEY_BURST and (last.error, last.status) == ("insufficient_credits", 402)
    assert len(journal.entries) == KEY_BURST + 1 and sum(entry.requests for entry in journal.entries) == 5_000
    log.flush()
    assert len(journal.entries) == KEY_BURST + 1


def test_many_keys_together_write_no_more_than_a_worker_may(log, journal) -> None:
    for number in range(2_000):
        log.failed(ended(OutOfCredits("none"), caller=caller_of(f"key_{number:032x}")))
    assert len(journal.entries) == WORKER_BURST
    log.flush()
    assert len(journal.entries) == WORKER_BURST + request_log_writer.MAX_REFUSAL_KINDS
    unlogged = log._counters.totals()["requests_unlogged_total"][()]
    assert sum(entry.requests for entry in journal.entries) + unlogged == 2_000


def test_after_a_while_a_key_may_write_again(log, journal) -> None:
    for _ in range(KEY_BURST + 1):
        log.failed(ended(OutOfCredits("none")))
    log._clock.advance(3.0)
    log.failed(ended(OutOfCredits("none")))
    assert len(journal.entries) == KEY_BURST + 1


def test_the_books_come_first_when_the_store_is_slow_or_away(log, journal) -> None:
    journal.pending = MAX_PENDING + 1
    log.failed(ended(OutOfCredits("none")))
    journal.pending, journal.full = 0, True
    log.failed(ended(OutOfCredits("none")))
    assert journal.rows == [] and log._counters.totals()["requests_unlogged_total"] == {(): 2}


@pytest.mark.parametrize("body", [b"", b"[", b"[" * 100_000, b'{"model": 7}', b"\xff", b'{"model": "' + b"x" * 10**6])
def test_a_body_that_names_no_model_is_no_trouble(log, journal, body: bytes) -> None:
    log.failed(ended(InvalidRequest("no"), body=body))
    assert journal.entries[0].asked == ""
