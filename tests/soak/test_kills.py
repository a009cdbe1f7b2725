"""Workers killed at random moments under load: every upstream call has its one row, and nothing stays reserved."""

import random
from collections import Counter
from itertools import count

import gevent
import pytest
from fakes.upstream import FakeUpstream
from support.gateways import GatewayProcess, Start
from support.spending import TOKEN_NUSD, PaymentResult, at_once, pay, query, reserved_nusd, until
from support.worker_kills import kill_by_chance

pytestmark = pytest.mark.extended

WORKERS, CALLERS = 3, 12
ROWS = "SELECT label, finish, cost_nusd, output FROM usage"


def load(gateway: GatewayProcess, stopping: list[bool], results: dict[str, PaymentResult]) -> None:
    """Run callers that continue after any error, with streams and whole answers mixed at random.

    Each result is stored under the mark of its call."""
    marks = count()

    def caller(number: int) -> None:
        chance = random.Random(number)
        while not stopping:
            mark = f"k{next(marks)}"
            prompt = f"wait:{chance.choice((0, 0.01, 0.1))} gap:0.003"
            streamed = chance.random() < 0.5
            body = {"stream": True, "stream_options": {"include_usage": True}} if streamed else {}
            results[mark] = pay(gateway, mark, prompt, **body)
            if not results[mark].status:
                gevent.sleep(0.01)

    at_once(CALLERS, caller, 900)


def is_whole(payment: PaymentResult) -> bool:
    return payment.status == 200 and (not isinstance(payment.body, bytes) or payment.body.endswith(b"data: [DONE]\n\n"))


@pytest.mark.parametrize("rounds", [4, pytest.param(200, marks=pytest.mark.soak)])
def test_a_killed_worker_loses_and_doubles_nothing(start: Start, mint: FakeUpstream, rounds: int) -> None:
    gateway = start(workers=WORKERS, GATEWAY_BOOTSTRAP_CREDITS_USD="100000")
    stopping: list[bool] = []
    results: dict[str, PaymentResult] = {}
    running = gevent.spawn(load, gateway, stopping, results)
    kill_by_chance(gateway, rounds, WORKERS)
    stopping.append(True)
    running.join()
    assert until(lambda: reserved_nusd(gateway) == 0)
    rows = query(gateway, ROWS)
    marks = Counter(label for label, *_ in rows)
    called = Counter(mint.marks())
    whole = [mark for mark, one in results.items() if is_whole(one)]
    cut = [row for row in rows if row[1] == "interrupted"]
    print(
        f"{rounds} kills, {len(results)} requests, {len(whole)} whole, {len(called)} calls, {len(cut)} interrupted rows"
    )
    assert called.items() <= marks.items()  # each upstream call has exactly one row
    # A row without an upstream call was killed between the record that it starts and its first byte upstream.
    assert {mark for mark in marks if mark not in called} <= {label for label, *_ in cut}
    exact = {label for label, finish, cost, _ in rows if finish == "stop" and cost == 100 * TOKEN_NUSD}
    assert set(whole) <= exact
    assert all(cost <= 100 * TOKEN_NUSD for _, _, cost, _ in rows)
    assert query(gateway, "SELECT count(*) FROM lease WHERE granted_nusd > spent_nusd") == [(0,)]
    assert "The books agree." in gateway.manage("doctor")
