"""Two hundred realtime sessions of five responses at once: a thousand exact rows, and nothing stays reserved. Then
sessions that are killed at any moment."""

import random
from collections import Counter

import gevent
import pytest
import websockets
from fakes.realtime import USAGE_NUSD, FakeRealtime
from openai import OpenAI
from support.gateways import GatewayProcess, Start
from support.spending import query, reserved_nusd, until

pytestmark = pytest.mark.soak

SESSIONS, RESPONSES = 200, 5
KILLS, TALKS = 6, 8
MODEL = "gpt-realtime"


def talk(gateway: GatewayProcess, number: int) -> int:
    """One session to its end; how many responses it had."""
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    headers = {"x-request-id": f"session-{number}"}
    done = 0
    with client.realtime.connect(model=MODEL, extra_headers=headers) as connection:
        for _ in range(RESPONSES):
            connection.response.create()
            while (event := connection.recv()).type != "response.done":
                assert event.type != "error", event
            done += 1
    return done


def test_a_thousand_responses_of_two_hundred_sessions_have_a_thousand_exact_rows(start: Start) -> None:
    with FakeRealtime() as provider:
        gateway = start(
            workers=2,
            LLM_OPENAI_API_KEY="sk-upstream",
            LLM_OPENAI_BASE_URL=provider.url,
            GATEWAY_REALTIME_ORGANIZATION_SESSIONS="0",
            GATEWAY_REALTIME_KEY_SESSIONS="0",
            GATEWAY_BOOTSTRAP_CREDITS_USD="1000",
        )
        talks = [gevent.spawn(talk, gateway, number) for number in range(SESSIONS)]
        gevent.joinall(talks, timeout=300)
        assert [one.value for one in talks] == [RESPONSES] * SESSIONS
        assert len(provider.sessions) == SESSIONS
        assert sum(len(session.named("response.create")) for session in provider.sessions) == SESSIONS * RESPONSES
        assert [session.problems for session in provider.sessions] == [[]] * SESSIONS
    rows = query(gateway, "SELECT operation, cost_nusd, finish, label FROM usage")
    assert len(rows) == SESSIONS * RESPONSES
    assert {row[:3] for row in rows} == {("realtime", USAGE_NUSD, "stop")}
    assert set(Counter(row[3] for row in rows).values()) == {RESPONSES}
    assert until(lambda: reserved_nusd(gateway) == 0)
    gateway.manage("doctor")


def talk_until_killed(gateway: GatewayProcess, label: str) -> int:
    """One session until its connection breaks; how many responses ended before the caller's eyes."""
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    done = 0
    try:
        with client.realtime.connect(model=MODEL, extra_headers={"x-request-id": label}) as connection:
            while True:
                connection.response.create()
                while connection.recv().type != "response.done":
                    continue
                done += 1
    except (websockets.WebSocketException, OSError):
        return done


def test_kills_at_any_moment_lose_no_response_that_ended_and_bill_none_twice(start: Start) -> None:
    with FakeRealtime() as provider:
        gateway = start(
            LLM_OPENAI_API_KEY="sk-upstream",
            LLM_OPENAI_BASE_URL=provider.url,
            GATEWAY_BOOTSTRAP_CREDITS_USD="1000",
        )
        counts: dict[str, int] = {}
        for number in range(KILLS):
            labels = [f"round-{number}-{session}" for session in range(TALKS)]
            talks = [gevent.spawn(talk_until_killed, gateway, label) for label in labels]
            gevent.sleep(0.4 + random.random() / 2)
            gateway.kill()
            gevent.joinall(talks, timeout=30)
            counts |= {label: one.value for label, one in zip(labels, talks, strict=True)}
            gateway.start()
        requested = sum(len(session.named("response.create")) for session in provider.sessions)
    assert sum(counts.values()) > KILLS * TALKS
    assert until(lambda: reserved_nusd(gateway) == 0)
    rows = query(gateway, "SELECT label, finish, cost_nusd FROM usage WHERE operation = 'realtime'")
    ended = Counter(label for label, finish, _ in rows if finish == "stop")
    assert {cost for _, finish, cost in rows if finish == "stop"} == {USAGE_NUSD}
    # Every response that a caller saw has a row; at most one more has a row, because its end was on its way.
    assert all(count <= ended[label] <= count + 1 for label, count in counts.items())
    assert {finish for _, finish, _ in rows} <= {"stop", "interrupted"} and len(rows) <= requested + len(counts)
    gateway.manage("doctor")
