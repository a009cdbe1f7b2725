"""One of two providers fails in every way: no whole answer and no stream that had not begun may suffer.

    pytest tests/drills -s

prints success rates, the latency that the fault added on average, and the longest that anybody waited.
"""

import re
import time

import pytest
from support import drilling
from support.drilling import Report, Row, Tally, drill
from support.gateways import local_gateway
from support.two_providers import write_twins

pytestmark = pytest.mark.extended

WAYS = {False: "whole", True: "stream"}
FAULTS = {
    "status storm 500": drilling.status(500),
    "status storm 503": drilling.status(503),
    "status storm 429": drilling.status(429),
    "credential refused 401": drilling.status(401),
    "account empty 402": drilling.status(402),
    "model unknown 404": drilling.status(404),
    "connection refused": drilling.refused,
    "connection reset": drilling.reset(),
    "name not found": drilling.unknown_name,
    "silence": drilling.silence(),
    "slow trickle of headers": drilling.trickle(),
    "wrong content type": drilling.wrong_type(),
    "cut before the first content": drilling.cut_before(),
}
# The longest delay of any caller by the fault: the timeout for a silent provider plus the time of a busy machine.
MAX_DURATION_S = 4.0


def note(report: Report, name: str, stream: bool, tally: Tally, usual: Tally) -> None:
    total = len(tally.good) + len(tally.bad)
    added = (sum(tally.good) / len(tally.good) - usual.median_s) * 1000 if tally.good else float("nan")
    report.rows.append(Row(name, WAYS[stream], total, len(tally.good), added, max(tally.good, default=0) * 1000))


@pytest.mark.parametrize("stream", [False, True], ids=WAYS.values())
@pytest.mark.parametrize("name", FAULTS)
def test_one_healthy_provider_of_two_is_enough(name, stream, make_settings, tmp_path, healthy, report):
    with FAULTS[name]() as address:
        environment = write_twins(tmp_path / "catalogue", address, healthy.url)
        with local_gateway(make_settings, **environment, GATEWAY_TIMEOUTS_PLAIN_S="3") as gateway:
            tally = drill(gateway, stream)
            usual = drill(gateway, stream, 8)
    note(report, name, stream, tally, usual)
    assert tally.bad == [] and max(tally.good) < MAX_DURATION_S


def test_a_stream_cut_after_its_first_content_breaks_openly_and_moves_nowhere(make_settings, tmp_path, healthy, report):
    with drilling.cut_after()() as address:
        environment = write_twins(tmp_path / "catalogue", address, healthy.url)
        with local_gateway(make_settings, **environment) as gateway:
            tally = drill(gateway, True)
    note(report, "cut after the first content", True, tally, tally)
    assert set(tally.bad) == {"an error event"}
    # After five in a row the circuit is open and the others are served.
    assert len(tally.bad) < 12 and tally.good


def test_a_provider_that_recovers_is_used_again(make_settings, tmp_path, healthy):
    with drilling.refused() as address:
        environment = write_twins(tmp_path / "catalogue", address, healthy.url)
        with local_gateway(make_settings, **environment | {"GATEWAY_ROUTING_EXPLORATION_RATE": "0.3"}) as gateway:
            assert drill(gateway, False, 4).bad == []
            port = int(re.search(r":(\d+)/", address)[1])
            with drilling.answering(port) as calls, drilling.open_client() as http:
                until = time.monotonic() + 6
                while not calls and time.monotonic() < until:
                    assert drilling.send_chat(gateway, False, http) == ""
    assert calls
