"""Responses over WebSockets, with the official SDK in its default settings, against a strict fake of the chat API."""

import contextlib
import json
import sqlite3
import types
from collections.abc import Callable, Iterator
from typing import Any

import gevent
import pytest
import websockets
from fakes.openai import Answer, FakeOpenAI
from openai import OpenAI
from openai.lib.responses_websocket import ResponsesWebSocketLimits, ResponsesWebSocketSession
from support.gateways import GatewayProcess, LocalGateway
from support.shared import Tenant
from websockets.sync.client import connect

from gateway.accounts import keys
from gateway.limits.budgets import Limits
from gateway.metering.models import SETTLEMENT
from gateway.metering.usage_table import raw_id
from gateway.store.shared_slots import KIND

MODEL = "openai/gpt-4o-mini"
ENDS = ("response.completed", "response.failed", "response.incomplete", "error")
WEATHER = {
    "type": "function",
    "name": "weather",
    "description": "The weather of a city.",
    "parameters": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
    "strict": False,
}


@contextlib.contextmanager
def connected(gateway: LocalGateway | GatewayProcess) -> Iterator[Any]:
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    with client.responses.connect() as connection:
        yield connection


def turn(connection: Any, **body: Any) -> list[Any]:
    """The events of a turn, to its end."""
    connection.response.create(**{"model": MODEL} | body)
    return events_of_turn(connection)


def events_of_turn(connection: Any) -> list[Any]:
    events = [connection.recv()]
    while events[-1].type not in ENDS:
        events.append(connection.recv())
    return events


def completed(connection: Any, **body: Any) -> Any:
    """The response of a turn that succeeded."""
    last = turn(connection, **body)[-1]
    assert last.type == "response.completed", last
    return last.response


def rows(gateway: LocalGateway) -> list[tuple[int, int, int]]:
    """(input, output, nano-dollars) of the organization's requests, oldest first."""
    gateway.services.store.journal.flush(5.0)
    sql = f"SELECT input, output, cost_nusd FROM usage WHERE organization = ? AND kind = {SETTLEMENT} ORDER BY at"
    return gateway.services.store.database.query_rows(sql, [raw_id(gateway.organization_id)])


def sent(upstream: FakeOpenAI, call: int = -1) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in upstream.calls[call].body["messages"]]


@pytest.mark.parametrize("store", [True, False])
def test_a_chain_of_twenty_turns_is_the_whole_conversation(gateway: Tenant, upstream: FakeOpenAI, store: bool) -> None:
    upstream.script(*(Answer(f"Answer {number}.", prompt=100, completion=10) for number in range(20)))
    said, previous, ids = [], None, set()
    with connected(gateway) as connection:
        for number in range(20):
            chained = {"previous_response_id": previous} if previous else {}
            events = turn(connection, input=f"Question {number}", store=store, **chained)
            assert [event.sequence_number for event in events] == list(range(len(events)))
            response = events[-1].response
            assert (response.output_text, response.store) == (f"Answer {number}.", store)
            previous = response.id
            ids.add(response.llmgateway["log_id"])
            said += [("user", f"Question {number}"), ("assistant", f"Answer {number}.")]
    assert sent(upstream) == said[:-1]
    assert len(ids) == 20 and len(rows(gateway)) == 20
    assert {row[:2] for row in rows(gateway)} == {(100, 10)}


def test_tools_are_called_over_the_socket(gateway: Tenant, upstream: FakeOpenAI) -> None:
    upstream.script(Answer(tools=(("weather", '{"city": "Oslo"}'),)), Answer("It rains."))
    with connected(gateway) as connection:
        first = completed(connection, input="Hello", tools=[WEATHER], store=False)
        (call,) = first.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "rain"}
        second = completed(connection, input=[result], tools=[WEATHER], store=False, previous_response_id=first.id)
    assert (json.loads(call.arguments), second.output_text) == ({"city": "Oslo"}, "It rains.")
    assert [message["role"] for message in upstream.calls[1].body["messages"]] == ["user", "assistant", "tool"]


def test_streams_run_at_once_and_a_stream_can_continue_another_ones_response(
    gateway: Tenant, upstream: FakeOpenAI
) -> None:
    upstream.script(Answer("Slow answer.", gap_s=0.05, piece=1), Answer("Fast."), Answer("Forked."))
    with connected(gateway) as connection:
        connection.response.create(model=MODEL, input="Slow", stream_id="slow", store=False)
        while connection.recv().type != "response.output_text.delta":
            pass
        connection.response.create(model=MODEL, input="Fast", stream_id="fast", store=False)
        ends = []
        while len(ends) < 2:
            event = connection.recv()
            assert event.stream_id in ("slow", "fast")
            if event.type in ENDS:
                ends.append(event)
        assert [event.stream_id for event in ends] == ["fast", "slow"]
        slow = ends[1].response
        forked = completed(connection, input="Go on", stream_id="fast", store=False, previous_response_id=slow.id)
    assert forked.output_text == "Forked."
    assert sent(upstream) == [("user", "Slow"), ("assistant", "Slow answer."), ("user", "Go on")]


def test_a_prepared_turn_costs_nothing_and_is_continued(gateway: Tenant, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day."))
    with connected(gateway) as connection:
        prepared = completed(connection, input="Hello", store=False, generate=False)
        assert (prepared.output, prepared.usage.total_tokens, upstream.calls) == ([], 0, [])
        response = completed(connection, input=[], store=False, previous_response_id=prepared.id)
    assert response.output_text == "Good day." and sent(upstream) == [("user", "Hello")]
    assert len(rows(gateway)) == 1


def test_a_chain_continues_after_a_reconnect_where_it_was_stored(gateway: Tenant, upstream: FakeOpenAI) -> None:
    upstream.script(*(Answer("Good day.") for _ in range(3)))
    with connected(gateway) as connection:
        stored = completed(connection, input="Hello")
        kept = completed(connection, input="Hello", store=False)
    with connected(gateway) as connection:
        assert completed(connection, input="Go on", previous_response_id=stored.id).output_text == "Good day."
        (error,) = turn(connection, input="Go on", previous_response_id=kept.id, store=False)
        assert (error.type, error.error.code) == ("error", "previous_response_not_found")
        assert (error.status, error.error.param) == (404, "previous_response_id")


def test_a_key_with_room_for_three_turns_gets_three_and_the_socket_stays_open(
    gateway: Tenant, upstream: FakeOpenAI
) -> None:
    own = gateway.services.accounts.authentication.caller(gateway.key)
    gateway.services.billing.budgets.set_limits("key", own.key_id, Limits(total_nusd=3 * 450_000))
    upstream.script(*(Answer("Good day.", prompt=1000, completion=500) for _ in range(9)))
    with connected(gateway) as connection:
        ends = [turn(connection, input="Hello", store=False, max_output_tokens=500)[-1] for _ in range(5)]
        assert [end.type for end in ends] == ["response.completed"] * 3 + ["error"] * 2
        assert {(end.status, end.error.code) for end in ends[3:]} == {(402, "key_limit_reached")}
        (error,) = turn(connection, input="Hello", model="openai/nothing")
        assert error.error.code == "model_not_found"
    assert len(rows(gateway)) == 3 == len(upstream.calls)


def test_a_cut_answer_ends_once_and_the_next_turn_works(gateway: Tenant, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("A long answer that breaks off.", piece=4, cut=1200), Answer("Good day."))
    with connected(gateway) as connection:
        first = turn(connection, input="Hello")
        assert [event.type for event in first if event.type in ENDS] == ["response.failed"]
        assert first[-1].response.error.message
        second = turn(connection, input="Hello again")
        assert (second[0].type, second[-1].response.output_text) == ("response.created", "Good day.")
    assert len(rows(gateway)) == 2


def test_turns_of_one_stream_wait_for_each_other(gateway: Tenant, upstream: FakeOpenAI) -> None:
    upstream.script(*(Answer(f"Answer {number}.") for number in range(3)))
    with connected(gateway) as connection:
        for number in range(3):
            connection.response.create(model=MODEL, input=f"Question {number}")
        texts = [events_of_turn(connection)[-1].response.output_text for _ in range(3)]
    assert texts == ["Answer 0.", "Answer 1.", "Answer 2."]


def test_messages_that_are_no_turn_are_answered_and_cost_nothing(gateway: Tenant, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("Good day."))
    with connected(gateway) as connection:
        for text in ("{", "[]", '{"type": "nothing"}', '{"type": "response.create", "stream_id": "a b"}'):
            connection.send_raw(text)
            error = connection.recv()
            assert (error.type, error.status) == ("error", 400), text
        connection.send_raw('{"type": "response.processed", "response_id": "resp_1"}')
        connection.send_raw('{"type": "response.steer", "previous_response_id": "resp_1", "input": "Stop"}')
        steered = connection.recv()
        assert (steered.type, steered.error.code) == ("response.steer.failed", "steering_not_supported")
        assert steered.steer.input == "Stop"
        assert completed(connection, input="Hello").output_text == "Good day."
    assert len(rows(gateway)) == 1


def test_a_caller_who_leaves_is_billed_as_over_http(gateway: Tenant, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("A long answer, word by word.", piece=1, gap_s=0.02, prompt=1000, completion=500))
    with connected(gateway) as connection:
        connection.response.create(model=MODEL, input="Hello")
        while connection.recv().type != "response.output_text.delta":
            pass
    with gevent.Timeout(10):
        while not rows(gateway):
            gevent.sleep(0.02)
    assert len(rows(gateway)) == 1 and rows(gateway)[0][0] > 0


def test_a_revoked_key_ends_the_connection(gateway: Tenant) -> None:
    services = gateway.services
    own = services.accounts.authentication.caller(gateway.key)
    with connected(gateway) as connection:
        keys.revoke(services.store.database, services.store.control, own.key_id, actor="test")
        event = connection.recv()
        assert (event.type, event.status, event.error.code) == ("error", 401, "invalid_api_key")
        with pytest.raises(websockets.ConnectionClosed) as ended:
            connection.recv()
    assert ended.value.rcvd.code == 1008


def test_a_draining_worker_finishes_the_turn_and_closes(own_gateway: LocalGateway, upstream: FakeOpenAI) -> None:
    upstream.script(Answer("A long answer.", piece=1, gap_s=0.05))
    with connected(own_gateway) as connection:
        connection.response.create(model=MODEL, input="Hello", store=False)
        assert connection.recv().type == "response.created"
        own_gateway.services.drain()
        assert events_of_turn(connection)[-1].response.output_text == "A long answer."
        with pytest.raises(websockets.ConnectionClosed) as ended:
            connection.recv()
    assert ended.value.rcvd.code == 1001
    with pytest.raises(websockets.InvalidStatus) as refused, connected(own_gateway):
        pass
    assert refused.value.response.status_code == 503


@pytest.mark.parametrize(("headers", "status"), [({"Authorization": "Bearer llmgtwy_" + "0" * 40}, 401), ({}, 401)])
def test_a_handshake_is_refused_before_it_is_answered(gateway: Tenant, headers: dict[str, str], status: int) -> None:
    with pytest.raises(websockets.InvalidStatus) as refused:
        connect(f"{gateway.url.replace('http', 'ws', 1)}/responses", additional_headers=headers, proxy=None)
    assert refused.value.response.status_code == status


def test_a_key_and_an_organization_have_so_many_sockets_at_once_and_no_more(share: Any, upstream: FakeOpenAI) -> None:
    caps = {"GATEWAY_RESPONSES_KEY_SOCKETS": "2", "GATEWAY_RESPONSES_ORGANIZATION_SOCKETS": "3"}
    gateway = share.gateway({"LLM_OPENAI_BASE_URL": upstream.url, "LLM_OPENAI_API_KEY": "sk-openai", **caps})
    services = gateway.services
    own = keys.find(services.store.database, services.accounts.authentication.caller(gateway.key).key_id)
    draft = keys.Draft(own.project_id, own.member_id, "Other")
    other = services.management.create_key(draft, Limits(), actor=own.creator_id).token

    def refusal(key: str) -> tuple[int, str, str]:
        address = f"{gateway.url.replace('http', 'ws', 1)}/responses"
        with pytest.raises(websockets.InvalidStatus) as refused:
            connect(address, additional_headers={"Authorization": f"Bearer {key}"}, proxy=None)
        error = json.loads(refused.value.response.body)["error"]
        return refused.value.response.status_code, error["code"], error["message"]

    with connected(gateway), connected(gateway) as connection:
        status, code, message = refusal(gateway.key)
        assert (status, code) == (426, "too_many_websockets") and "This API key's 2 WebSockets" in message
        assert completed(connection, input="Hello", store=False)
        client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
        assert client.responses.create(model=MODEL, input="Hello", store=False).output_text
        with connected(types.SimpleNamespace(url=gateway.url, key=other)):
            assert "This organization's 3 WebSockets" in refusal(other)[2]
    while any(gateway.organization_id in name for name, _ in services.store.documents.entries(KIND)):
        gevent.sleep(0.02)
    with connected(gateway), connected(gateway):
        pass


def test_a_caller_who_leaves_is_billed_the_same_over_a_socket_and_over_http(
    process: Callable[..., GatewayProcess], upstream: FakeOpenAI, upstream_environment: dict[str, str]
) -> None:
    served = process(**upstream_environment)
    answer = Answer("A long answer, word by word.", piece=1, gap_s=0.02, prompt=1000, completion=500)
    upstream.script(answer, answer)
    with connected(served) as connection:
        connection.response.create(model=MODEL, input="Hello")
        while connection.recv().type != "response.output_text.delta":
            pass
    wait_for_rows(served, 1)
    with OpenAI(base_url=served.url, api_key=served.key, max_retries=0) as client:
        stream = client.responses.create(model=MODEL, input="Hello", stream=True)
        while next(stream).type != "response.output_text.delta":
            pass
        stream.close()
    first, second = wait_for_rows(served, 2)
    assert first == second and first[1] > 0


def test_chains_go_on_through_a_rolling_restart(
    process: Callable[..., GatewayProcess], upstream: FakeOpenAI, upstream_environment: dict[str, str]
) -> None:
    served = process(2, **upstream_environment)
    upstream.script(*(Answer("An answer of several words.", piece=4, gap_s=0.02) for _ in range(1000)))
    chains = [Chain(served, store) for store in (True, False, True, False)]
    tasks = [gevent.spawn(chain.run) for chain in chains]
    while min(len(chain.said) for chain in chains) < 4:
        gevent.sleep(0.02)
    served.hang_up()
    gevent.joinall(tasks, raise_error=True)
    turns = sum(len(chain.said) // 2 for chain in chains)
    assert len(wait_for_rows(served, turns)) == len(upstream.calls) == turns
    assert {row[2] for row in wait_for_rows(served, turns)} == {"stop"}
    longest = max(chains, key=lambda chain: len(chain.said))
    assert max(len(call.body["messages"]) for call in upstream.calls) == len(longest.said) - 1


class Chain:
    """A client that connects again when its connection ends, and sends everything when its response is unknown."""

    def __init__(self, served: GatewayProcess, store: bool) -> None:
        self.served, self.store = served, store
        self.said: list[dict[str, str]] = []
        self.previous: str | None = None
        self.connections = 0

    def run(self) -> None:
        """Take turns until the second connection had two."""
        left = 2
        while left:
            self.connections += 1
            with (
                contextlib.suppress(websockets.ConnectionClosed, websockets.InvalidStatus, OSError),
                connected(self.served) as connection,
            ):
                while left:
                    self.take_turn(connection)
                    left -= self.connections > 1
            gevent.sleep(0.05)

    def take_turn(self, connection: Any) -> None:
        question = {"role": "user", "content": f"Question {len(self.said) // 2}"}
        if self.previous is None:
            last = turn(connection, input=[*self.said, question], store=self.store)[-1]
        else:
            last = turn(connection, input=[question], store=self.store, previous_response_id=self.previous)[-1]
        if last.type == "error":
            assert last.error.code == "previous_response_not_found" and not self.store, last
            self.previous = None
            return
        assert last.type == "response.completed", last
        self.said += [question, {"role": "assistant", "content": last.response.output_text}]
        self.previous = last.response.id


def wait_for_rows(served: GatewayProcess, count: int) -> list[tuple[int, int, str]]:
    """(input, nano-dollars, finish) of each request, once there are so many."""
    with gevent.Timeout(20):
        while True:
            with contextlib.closing(sqlite3.connect(served.data / "gateway.db", timeout=10)) as database:
                found = database.execute("SELECT input, cost_nusd, finish FROM usage ORDER BY at").fetchall()
            if len(found) >= count:
                return found
            gevent.sleep(0.05)


def test_the_sdks_own_session_routes_streams(gateway: Tenant, upstream: FakeOpenAI) -> None:
    upstream.script(*(Answer("Good day.") for _ in range(3)))
    limits = ResponsesWebSocketLimits(
        max_lanes=4, max_events_per_lane=99, max_events=99, max_bytes_per_lane=1 << 20, max_bytes=1 << 20
    )
    with connected(gateway) as connection, ResponsesWebSocketSession(connection, limits=limits) as session:
        lanes = [session.default, session.lane("a"), session.lane("b")]
        for lane in lanes:
            lane.send({"type": "response.create", "model": MODEL, "input": "Hello", "store": False})
        texts = [lane.get_final_response(timeout=20).output_text for lane in lanes]
    assert texts == ["Good day."] * 3
