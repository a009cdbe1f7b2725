"""Two hundred realtime sessions of five responses at once: a thousand exact rows, and nothing stays reserved."""

from collections import Counter

import gevent
import pytest
from fakes.realtime import USAGE_NUSD, FakeRealtime
from openai import OpenAI
from support.gateways import GatewayProcess, Start
from support.spending import query, reserved_nusd, until

pytestmark = pytest.mark.soak

SESSIONS, RESPONSES = 200, 5
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
        assert sum(len(one.named("response.create")) for one in provider.sessions) == SESSIONS * RESPONSES
        assert [one.problems for one in provider.sessions] == [[]] * SESSIONS
    rows = query(gateway, "SELECT operation, cost_nusd, finish, label FROM usage")
    assert len(rows) == SESSIONS * RESPONSES
    assert {row[:3] for row in rows} == {("realtime", USAGE_NUSD, "stop")}
    assert set(Counter(row[3] for row in rows).values()) == {RESPONSES}
    assert until(lambda: reserved_nusd(gateway) == 0)
    gateway.manage("doctor")
