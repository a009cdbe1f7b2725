"""Every request has one end: it is counted there, and reported to the observers."""

from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest

from gateway.billing.context import RequestContext
from gateway.clock import Clock
from gateway.errors import GatewayError, NotFound, OutOfCredits
from gateway.metering.counters import Counters
from gateway.surfaces.web.http import Inbound
from gateway.telemetry.request_observers import ClosingBody, FinishedRequest, RequestObservers

OPERATION = "POST /v1/chat/completions"


@pytest.fixture
def requests(tmp_path: Path) -> RequestObservers:
    return RequestObservers(Counters(tmp_path), Clock())


def test_an_end_is_counted_by_status_kind_of_error_and_time(requests: RequestObservers) -> None:
    end = requests.of(OPERATION)
    request = Inbound("POST", "/v1/chat/completions", {})
    end(request, 200, Clock.monotonic() - 0.2)
    end(request, 402, Clock.monotonic(), OutOfCredits("none left"))
    totals, rows = requests.counters.totals(), requests.counters.histograms()
    assert totals["requests_total"] == {(OPERATION, "200"): 1, (OPERATION, "402"): 1}
    assert totals["errors_total"] == {(OPERATION, "out_of_credits"): 1}
    row = rows["request_seconds"][(OPERATION,)]
    assert sum(row[:-1]) == 2 and 0.2 <= row[-1] < 1


def test_own_times_from_half_a_millisecond_to_a_second_are_known_to_a_factor_of_two_and_a_half(
    requests: RequestObservers,
) -> None:
    """Two that differ by more are counted in two buckets."""
    for number in range(20):
        operation = f"POST /{number}"
        own_s = [0.0003 * 1.05**number]
        while own_s[-1] <= 1:
            own_s.append(own_s[-1] * 2.55)
        for seconds in own_s:
            request = Inbound("POST", "/", {})
            request.context = cast(RequestContext, SimpleNamespace(own_s=seconds, metadata={}))
            requests.of(operation)(request, 200, Clock.monotonic())
        row = requests.counters.histograms()["overhead_seconds"][(operation,)]
        assert max(row[:-1]) == 1 and sum(row[:-1]) == len(own_s)


def test_an_attempt_that_runs_on_when_its_caller_leaves_is_no_time_of_the_gateway(
    requests: RequestObservers,
) -> None:
    now = Clock.monotonic()
    running = SimpleNamespace(started=now - 0.9, ended=0.0, error=None)
    request = Inbound("POST", "/v1/chat/completions", {})
    outcome = SimpleNamespace(attempts=[running])
    request.context = cast(RequestContext, SimpleNamespace(started=now - 1, outcome=outcome, metadata={}, own_s=0.0))
    requests.of(OPERATION).of_stream(request, 200, now - 1)
    assert 0.09 < requests.counters.histograms()["overhead_seconds"][(OPERATION,)][-1] < 0.2


def test_observers_of_failures_get_nothing_else(requests: RequestObservers) -> None:
    failed: list[FinishedRequest] = []
    requests.observe_failures(failed.append)
    end = requests.of(OPERATION)
    request = Inbound("POST", "/v1/chat/completions", {"x-request-id": "theirs"})
    end(request, 200, 0.0)
    end(request, 402, 0.0, OutOfCredits("none left"))
    (told,) = failed
    assert told.refused and told.operation == OPERATION and told.shown_id == "theirs"


def test_paths_without_an_operation_share_one_label(requests: RequestObservers) -> None:
    every: list[FinishedRequest] = []
    requests.observe(every.append)
    for number in range(3):
        requests.refused(NotFound(f"There is nothing at /{number}."), "id", "203.0.113.9")
    assert requests.counters.totals()["requests_total"] == {("unmatched", "404"): 3}
    assert [one.peer for one in every] == ["203.0.113.9"] * 3


def test_a_streamed_body_ends_once_and_passes_its_pieces_on_as_they_are() -> None:
    ended: list[str] = []
    pieces = iter([b"a", b"b"])
    body = ClosingBody(pieces, lambda: ended.append("end"))
    assert iter(body) is pieces and list(body) == [b"a", b"b"] and ended == []
    body.close()
    body.close()
    assert ended == ["end"]


def test_a_body_whose_close_fails_has_ended_all_the_same() -> None:
    ended: list[str] = []

    class Broken:
        def __iter__(self) -> "Broken":
            return self

        def __next__(self) -> bytes:
            raise StopIteration

        def close(self) -> None:
            raise GatewayError("no")

    body = ClosingBody(Broken(), lambda: ended.append("end"))
    with pytest.raises(GatewayError):
        body.close()
    assert ended == ["end"]
