"""Never worse than calling the provider directly: providers without a second one, beside calls to them themselves.

The same drill goes to the provider and through the gateway; the gateway may lose nothing by standing between.
"""

import time

import pytest
from support import drilling
from support.drilling import Direct, Report, Row, Tally, drill
from support.gateways import LocalGateway, free_port, local_gateway
from support.two_providers import write_line, write_twins

pytestmark = pytest.mark.extended

WAYS = {False: "whole", True: "stream"}
# Every third request fails.
FAULTS = {
    "limit 429, Retry-After: 30": drilling.refusal(429, "Retry-After: 30"),
    "credential refused 401": drilling.refusal(401),
    "account empty 402": drilling.refusal(402),
    "forbidden 403": drilling.refusal(403),
    "unknown 404": drilling.refusal(404),
    "failed 500": drilling.refusal(500),
    "overloaded 503": drilling.refusal(503, "Retry-After: 30"),
    "connection closed": drilling.close,
    "cut before the first content": drilling.send_cut,
    "garbage": drilling.send_garbage,
    "silence": drilling.hang,
}
PROVOKED = (401, 403, 404, 405)
SILENCE = {"GATEWAY_TIMEOUTS_PLAIN_S": "1", "GATEWAY_TIMEOUTS_SILENCE_S": "1"}
NOWHERE = "http://127.0.0.1:9/v1"


@pytest.fixture
def sole(settings, tmp_path):
    """A gateway that knows `twin` at one address only: south has no key."""

    def start(address: str, **more: str):
        environment = write_twins(tmp_path / "catalogue", address, NOWHERE)
        return local_gateway(settings, **environment | {"SOUTH_KEYS": ""} | SILENCE | more)

    return start


def note(report: Report, name: str, stream: bool, tally: Tally, direct: Tally) -> None:
    waits = [sum(one.good) / len(one.good) if one.good else float("nan") for one in (tally, direct)]
    total = len(tally.good) + len(tally.bad)
    worst = max(tally.good, default=0) * 1000
    added = (waits[0] - waits[1]) * 1000
    report.rows.append(Row(name, WAYS[stream], total, len(tally.good), added, worst, len(direct.good)))


@pytest.mark.parametrize("stream", [False, True], ids=WAYS.values())
@pytest.mark.parametrize("name", FAULTS)
def test_a_sole_provider_serves_as_many_as_without_a_gateway(name, stream, sole, report):
    fault = drilling.failing(FAULTS[name], lambda number, body: number % 3 == 0)
    with fault() as address:
        direct = drill(Direct(address), stream, timeout_s=1)
    with fault() as address, sole(address) as gateway:
        tally = drill(gateway, stream)
    note(report, f"sole provider, a third: {name}", stream, tally, direct)
    assert len(tally.good) >= len(direct.good) == 16


@pytest.mark.parametrize("status", PROVOKED)
def test_failures_of_one_organization_cost_another_nothing(status, sole, report):
    fault = drilling.failing(drilling.refusal(status), lambda number, body: b"lost-file" in body)
    own = {"messages": [{"role": "user", "content": "Read lost-file"}]}
    with fault() as address, sole(address) as gateway:
        other_caller = Direct(gateway.url, gateway.add_organization("other"))
        for _ in range(4):
            assert drill(gateway, False, 4, **own).good == []
            tally = drill(other_caller, False, 24)
            assert tally.bad == []
        direct = drill(Direct(address), False, 24)
    note(report, f"another organization provokes {status}", False, tally, direct)


def test_one_organization_does_not_lead_another_to_a_dearer_provider(settings, tmp_path, healthy):
    fault = drilling.failing(drilling.refusal(404), lambda number, body: b"lost-file" in body)
    own = {"messages": [{"role": "user", "content": "Read lost-file"}]}
    with fault() as address:
        environment = write_twins(tmp_path / "catalogue", address, healthy.url)
        with local_gateway(settings, **environment) as gateway:
            other_caller = Direct(gateway.url, gateway.add_organization("other"))
            assert drill(gateway, False, 8, **own).bad == []
            served = len(healthy.calls)
            assert drill(other_caller, False, 8, routing="price").bad == []
    assert served == len(healthy.calls) == 8


@pytest.mark.parametrize("stream", [False, True], ids=WAYS.values())
def test_auto_serves_though_its_first_two_models_are_down(stream, settings, tmp_path, healthy, report):
    with drilling.status(500)() as broken, drilling.refused() as down:
        environment = write_line(tmp_path / "catalogue", broken, down, healthy.url)
        with local_gateway(settings, **environment) as gateway:
            tally = drill(gateway, stream, model="auto")
            direct = drill(gateway, stream, model="m2")
    note(report, "auto, its first two models down", stream, tally, direct)
    assert tally.bad == []


def test_a_provider_that_accepts_and_says_nothing_is_left_for_the_other(settings, tmp_path, healthy, report):
    with drilling.silence()() as address:
        direct = drill(Direct(address), True, 4, timeout_s=1)
        environment = write_twins(tmp_path / "catalogue", address, healthy.url)
        with local_gateway(settings, **environment, GATEWAY_TIMEOUTS_FIRST_BYTE_S="0.5") as gateway:
            tally = drill(gateway, True)
    tally_direct = Tally(good=[], bad=direct.bad * 6)
    note(report, "accepts and says nothing, one of two", True, tally, tally_direct)
    assert tally.bad == [] and max(tally.good) < 4


def test_where_nothing_answers_callers_wait_for_nothing_and_are_served_when_it_is_back(sole, report):
    port = free_port()
    with sole(f"http://127.0.0.1:{port}/v1") as gateway:
        began = time.monotonic()
        lost = drill(gateway, False, 24)
        assert len(lost.bad) == 24 and time.monotonic() - began < 4
        assert any(text.startswith("503") for text in lost.bad)
        with drilling.answering(port):
            took = wait_until_served(gateway)
            tally = drill(gateway, False)
    report.rows.append(Row("nothing answered, back again", "whole", 24, len(tally.good), took * 1000, took * 1000))
    assert tally.bad == [] and took < 2


def wait_until_served(gateway: LocalGateway) -> float:
    began = time.monotonic()
    with drilling.open_client() as http:
        while drilling.send_chat(gateway, False, http):
            time.sleep(0.05)
    return time.monotonic() - began
