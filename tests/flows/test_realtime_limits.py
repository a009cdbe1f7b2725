"""The callers, the keys and the ends of realtime sessions: rules, rates, own keys, time and money."""

from typing import Any

import gevent
import openai
import pytest
import websockets
from fakes.realtime import USAGE_NUSD, Answer, FakeRealtime
from support.gateways import LocalGateway
from support.limits import set_rate_limit
from support.realtime_sessions import MODEL, respond, session, upstream_settings
from support.shared import CREDITS_NUSD, Share, usage_of

from gateway.accounts import rules
from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.errors import Unavailable
from gateway.limits.ledger import LedgerBook
from gateway.limits.rate_rules import RateLimits
from gateway.metering.models import BYOK, CREDITS
from gateway.store.documents import Documents
from gateway.store.shared_slots import KIND


@pytest.fixture
def fake(share: Share) -> FakeRealtime:
    return share.fake(FakeRealtime)


@pytest.fixture
def gateway(share: Share, fake: FakeRealtime) -> LocalGateway:
    return share.gateway(upstream_settings(fake.url))


def code_of(event: Any) -> str:
    assert event.type == "error", event
    return event.error.code


def closed_with(connection: Any) -> int:
    with pytest.raises(websockets.ConnectionClosed) as ended:
        connection.recv()
    return ended.value.rcvd.code


def refused(gateway: LocalGateway) -> int:
    """The status that a handshake is refused with."""
    with pytest.raises(websockets.InvalidStatus) as caught, session(gateway):
        raise AssertionError("a session was opened")
    return caught.value.response.status_code


def caller_of(gateway: LocalGateway) -> Any:
    return gateway.services.accounts.authentication.caller(gateway.key)


def set_mode(gateway: LocalGateway, **change: Any) -> None:
    stores = gateway.services.store.database, gateway.services.store.control
    update_project(*stores, gateway.project_id, ProjectChange(**change), actor="operator")


def test_an_own_provider_key_opens_the_session_and_no_credits_pay_for_it(gateway, fake) -> None:
    draft = ProviderKeyDraft("openai", "sk-own", "own", base_url=fake.url)
    gateway.services.management.provider_keys.add(gateway.organization_id, draft, actor="operator")
    set_mode(gateway, mode="api-keys")
    with session(gateway) as connection:
        assert respond(connection).type == "response.done"
    assert fake.last.headers["authorization"] == "Bearer sk-own"
    (row,) = usage_of(gateway)
    assert (row.mode, row.cost_nusd) == (BYOK, USAGE_NUSD)
    set_mode(gateway, mode="hybrid")
    with session(gateway) as connection:
        assert respond(connection).type == "response.done"
    assert usage_of(gateway)[1].mode == BYOK


def test_a_provider_key_that_is_refused_is_followed_by_the_next(gateway, fake) -> None:
    for label in ("first", "second"):
        draft = ProviderKeyDraft("openai", f"sk-{label}", label, base_url=fake.url)
        gateway.services.management.provider_keys.add(gateway.organization_id, draft, actor="operator")
    set_mode(gateway, mode="api-keys")
    fake.refused_keys = {"Bearer sk-first"}
    for _ in range(2):  # whichever comes first in turn
        with session(gateway) as connection:
            assert respond(connection).type == "response.done"
    assert {session.headers["authorization"] for session in fake.sessions} == {"Bearer sk-second"}
    costs = sorted(row.cost_nusd for row in usage_of(gateway))
    assert costs[-2:] == [USAGE_NUSD] * 2 and set(costs[:-2]) <= {0}


def test_a_rate_limit_refuses_the_response_and_not_the_session(gateway, fake) -> None:
    limits = RateLimits(gateway.services.store.database, gateway.services.store.control)
    set_rate_limit(limits, "key", caller_of(gateway).key_id, "requests", 3)  # the handshake is one
    with session(gateway) as connection:
        assert [respond(connection).type for _ in range(2)] == ["response.done"] * 2
        assert code_of(respond(connection)) == "rate_limit_exceeded"
        set_rate_limit(limits, "key", caller_of(gateway).key_id, "requests", None)
        assert respond(connection).type == "response.done"
    assert len(fake.last.named("response.create")) == len(usage_of(gateway)) == 3
    set_rate_limit(limits, "key", caller_of(gateway).key_id, "requests", 0)
    assert refused(gateway) == 429


def test_a_rule_that_denies_the_model_ends_its_sessions_and_opens_none(gateway, fake) -> None:
    stores = gateway.services.store.database, gateway.services.store.control
    with session(gateway) as connection:
        place = ("organization", gateway.organization_id)
        rules.add_rule(*stores, *place, "deny_models", {"models": [MODEL]}, actor="operator")
        assert code_of(connection.recv()) == "model_not_allowed"
        assert closed_with(connection) == 1008
    assert refused(gateway) == 403


def test_credits_that_are_spent_stop_the_next_response(gateway, fake) -> None:
    left_nusd = 330_000_000  # of which one response may cost some 300
    ledger: LedgerBook = gateway.services.billing.ledger
    ledger.post(gateway.organization_id, "adjustment", left_nusd - CREDITS_NUSD, f"test:{gateway.organization_id}:left")
    with session(gateway) as connection:
        event = respond(connection)
        while event.type == "response.done":
            event = respond(connection)
        assert code_of(event) == "insufficient_credits" and closed_with(connection) == 1008
    assert {row.mode for row in usage_of(gateway)} == {CREDITS}
    assert sum(row.cost_nusd for row in usage_of(gateway)) <= left_nusd


@pytest.fixture
def poor(share: Share, fake: FakeRealtime) -> LocalGateway:
    """A session may cost a tenth of a dollar; a response may cost three, and a third of one with a low output limit."""
    limits = {"GATEWAY_REALTIME_SESSION_USD": "0.1"}
    return share.gateway({"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": fake.url} | limits)


LOW = {"type": "realtime", "max_output_tokens": 100}


def test_a_session_reserves_less_once_its_provider_took_the_lower_output_limit(poor, fake) -> None:
    with session(poor) as connection:
        connection.session.update(session=LOW)
        assert connection.recv().type == "session.updated"
        assert respond(connection).type == "response.done"


def test_an_output_limit_that_the_provider_refused_reserves_nothing_less(poor, fake) -> None:
    fake.refuses_changes = True
    with session(poor) as connection:
        connection.session.update(session=LOW)
        assert code_of(connection.recv()) == "invalid_value"
        assert code_of(respond(connection)) == "session_spending_limit_reached"


@pytest.mark.parametrize("limit", ["inf", 4096])
@pytest.mark.parametrize("holder", ["session", "response"])
def test_an_output_limit_that_is_lifted_again_is_reserved(poor, fake, holder: str, limit: Any) -> None:
    with session(poor) as connection:
        connection.session.update(session=LOW)
        assert connection.recv().type == "session.updated"
        if holder == "session":
            connection.session.update(session=LOW | {"max_output_tokens": limit})
            connection.response.create()
        else:
            connection.response.create(response={"max_output_tokens": limit})
        while (event := connection.recv()).type == "session.updated":
            continue
        assert code_of(event) == "session_spending_limit_reached"


def test_items_added_after_the_sound_are_reserved_too(poor, fake) -> None:
    fake.listens = True
    text = {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "\U0001f600" * 1_000}]}
    with session(poor) as connection:
        connection.session.update(session=LOW)
        assert connection.recv().type == "session.updated"
        connection.input_audio_buffer.append(audio="AAAA")
        connection.conversation.item.create(item=text)
        while (event := connection.recv()).type != "error":
            continue
        assert code_of(event) == "session_spending_limit_reached"


def test_a_response_without_its_caller_is_billed_at_its_cost(gateway, fake) -> None:
    fake.answers = [Answer(holds=True)]
    with session(gateway) as connection:
        connection.response.create()
        connection.close()
    for _ in range(200):
        if usage_of(gateway):
            break
        gevent.sleep(0.02)
    assert [(row.finish, row.cost_nusd) for row in usage_of(gateway)] == [("cancelled", USAGE_NUSD)]


def test_an_event_of_too_many_parts_is_refused_as_a_body_would_be(gateway, fake) -> None:
    parts = "{}," * 100_000 + "{}"
    with session(gateway) as connection:
        connection._connection.send(f'{{"type":"conversation.item.create","item":{{"content":[{parts}]}}}}')
        assert code_of(connection.recv()) == "request_too_complex"
    assert fake.last.events == []


def test_a_provider_that_sends_events_of_too_many_parts_ends_the_session(gateway, fake) -> None:
    fake.answers = [Answer(text="x", parts=300_000)]
    with session(gateway) as connection:
        connection.response.create()
        while (event := connection.recv()).type != "error":
            continue
        assert event.error.code == "upstream_error" and closed_with(connection) == 1011


def test_a_provider_that_begins_responses_without_an_end_loses_its_session(gateway, fake) -> None:
    fake.answers = [Answer(beside=100)]
    with session(gateway) as connection:
        connection.response.create()
        responses = []
        while (event := connection.recv()).type != "error":
            responses.append(event.type)
        assert event.error.code == "upstream_error" and closed_with(connection) == 1011
    assert responses.count("response.created") < 20


def test_speech_is_not_retained_where_payloads_are(gateway, fake) -> None:
    set_mode(gateway, retention="retain")
    with session(gateway) as connection:
        assert respond(connection).type == "response.done"
    (row,) = usage_of(gateway)
    assert row.cost_nusd == USAGE_NUSD and not row.storage_nusd


def test_a_response_without_usage_is_estimated_by_what_came(gateway, fake) -> None:
    fake.answers = [Answer(usage=None, text="x" * 400)]
    with session(gateway) as connection:
        assert respond(connection).type == "response.done"
    (row,) = usage_of(gateway)
    assert (row.basis, row.output, row.finish) == (2, 101, "stop")


def test_responses_that_a_provider_begins_unrequested_are_counted(gateway, fake) -> None:
    fake.listens = True
    with session(gateway) as connection:
        for _ in range(3):
            connection.input_audio_buffer.append(audio="AAAA")
        for _ in range(3):
            while connection.recv().type != "response.done":
                continue
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD] * 3


@pytest.fixture
def narrow(share: Share, fake: FakeRealtime) -> LocalGateway:
    """Sessions that end soon, by time or money."""
    limits = {"GATEWAY_REALTIME_SESSION_USD": "0.33", "GATEWAY_REALTIME_IDLE_S": "1"}
    return share.gateway({"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": fake.url} | limits)


def test_the_cap_of_a_session_stops_its_next_response(narrow, fake) -> None:
    with session(narrow) as connection:
        event = respond(connection)
        while event.type == "response.done":
            event = respond(connection)
        assert code_of(event) == "session_spending_limit_reached" and closed_with(connection) == 1008
    assert sum(row.cost_nusd for row in usage_of(narrow)) <= 330_000_000


def test_a_session_in_which_nothing_happens_ends(narrow, fake) -> None:
    with session(narrow) as connection:
        assert code_of(connection.recv()) == "session_idle" and closed_with(connection) == 1008


def test_sessions_can_be_switched_off(share: Share, fake: FakeRealtime) -> None:
    gateway = share.gateway({"REALTIME_INLINE": "false"})
    assert refused(gateway) == 503
    client = openai.OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    with pytest.raises(openai.InternalServerError) as caught:
        client.realtime.client_secrets.create(session={"type": "realtime", "model": MODEL})
    assert caught.value.code == "realtime_disabled"


def test_a_page_of_an_origin_that_is_not_let_in_opens_no_session(share: Share, fake: FakeRealtime) -> None:
    gateway = share.gateway({"GATEWAY_SECURITY_CORS_ORIGINS": "https://app.example"})
    for origin, opened in (
        ("https://app.example", True),
        ("https://elsewhere.example", False),
        (gateway.address, True),
    ):
        client = openai.OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
        connecting = client.realtime.connect(model="sandbox-realtime", extra_headers={"Origin": origin})
        if opened:
            with connecting as connection:
                assert connection.recv().type == "session.created"
            continue
        with pytest.raises(websockets.InvalidStatus) as caught, connecting:
            raise AssertionError("a session was opened")
        assert caught.value.response.status_code == 403 and b"origin_not_allowed" in caught.value.response.body


def test_the_sandbox_answers_in_sound_without_any_key(gateway) -> None:
    with session(gateway, model="sandbox-realtime") as connection:
        connection.session.update(session={"type": "realtime", "audio": {"output": {"voice": "bright"}}})
        connection.input_audio_buffer.append(audio="AAAA" * 1600)
        connection.input_audio_buffer.commit()
        connection.response.create(response={"metadata": {"client_event_id": "1"}})
        events = []
        while not events or events[-1].type != "response.done":
            events.append(connection.recv())
    # LiveKit Agents find their own response by it.
    named = [event.response.metadata for event in events if event.type in ("response.created", "response.done")]
    assert named == [{"client_event_id": "1"}] * 2
    kinds = {event.type for event in events}
    assert {"session.updated", "input_audio_buffer.committed", "response.output_audio.delta"} <= kinds
    for event in events:
        type(event).model_validate(event.to_dict())
    (row,) = usage_of(gateway)
    assert row.cost_nusd > 0 and row.served == "sandbox-realtime"


def test_items_of_a_sandbox_session_can_be_retrieved_and_deleted(gateway) -> None:
    with session(gateway, model="sandbox-realtime") as connection:
        connection.send({"type": "conversation.item.create", "item": 5})
        assert code_of(connection.recv()) == "invalid_value"
        connection.conversation.item.create(
            item={"id": "mine", "type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]}
        )
        assert [connection.recv().type for _ in range(2)] == ["conversation.item.added", "conversation.item.done"]
        connection.conversation.item.retrieve(item_id="mine")
        assert connection.recv().item.content[0].text == "Hi"
        connection.conversation.item.truncate(item_id="mine", content_index=0, audio_end_ms=5)
        assert connection.recv().type == "conversation.item.truncated"
        connection.conversation.item.delete(item_id="mine")
        assert connection.recv().item_id == "mine"
        connection.conversation.item.retrieve(item_id="mine")
        assert code_of(connection.recv()) == "item_not_found"
        connection.send({"type": "response.create", "response": {"output_modalities": 5}})
        assert code_of(connection.recv()) == "invalid_value"
        connection.response.cancel()
        assert code_of(connection.recv()) == "response_cancel_not_active"
        connection.send({"type": "response.create", "event_id": "again"})
        assert connection.recv().type == "response.created"


def test_a_session_that_is_refused_halfway_keeps_no_place(gateway, fake, monkeypatch) -> None:
    put = Documents.put_if_absent

    def away_for_keys(self: Documents, kind: str, key: str, *rest: Any) -> bool:
        if key.startswith("realtime key/"):
            raise Unavailable
        return put(self, kind, key, *rest)

    monkeypatch.setattr(Documents, "put_if_absent", away_for_keys)
    with pytest.raises(websockets.InvalidStatus) as caught, session(gateway):
        pass
    assert caught.value.response.status_code == 503
    held = [key for key, _ in gateway.services.store.documents.entries(KIND) if gateway.organization_id in key]
    assert held == []
