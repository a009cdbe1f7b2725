"""Realtime sessions with a token of the gateway's host: a rejected token, and one that is renewed during a session."""

from collections.abc import Iterator
from contextlib import AbstractContextManager

import gevent
import openai
import pytest
from fakes.google_live import USAGE_NUSD, FakeLive
from fakes.identity_services import FakeGoogleIdentity
from openai.resources.realtime.realtime import RealtimeConnection
from support.gateways import LocalGateway
from support.shared import Share, usage_of

from gateway.providers.identities.upstream_identity import UpstreamIdentity

MODEL = "gemini-3.8-live"


@pytest.fixture
def fake(share: Share) -> Iterator[FakeLive]:
    live = share.fake(FakeLive)
    yield live
    assert live.problems == []


@pytest.fixture
def metadata(share: Share) -> FakeGoogleIdentity:
    return share.fake(FakeGoogleIdentity)


@pytest.fixture
def gateway(share: Share, fake: FakeLive, metadata: FakeGoogleIdentity) -> LocalGateway:
    return share.gateway(
        {
            "LLM_GOOGLE_AI_STUDIO_API_KEY": "workload-identity",
            "LLM_GOOGLE_AI_STUDIO_BASE_URL": fake.url,
            "GCE_METADATA_HOST": metadata.host,
        }
    )


@pytest.fixture
def identity(gateway: LocalGateway) -> UpstreamIdentity:
    """Return the identity of the gateway, which has no token yet."""
    identities = gateway.services.routing.identities._identities
    while not identities or not all(identity.secret for identity in identities.values()):
        gevent.sleep(0.01)
    (identity,) = identities.values()
    forget_token(identity)
    return identity


def forget_token(identity: UpstreamIdentity) -> None:
    identity._until = identity._retry_at = identity._replace_at = 0.0


def open_session(gateway: LocalGateway) -> AbstractContextManager[RealtimeConnection]:
    client = openai.OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    return client.realtime.connect(model=MODEL)


def request_response(session: RealtimeConnection) -> None:
    """Take one turn of text to its end."""
    content = [{"type": "input_text", "text": "Hello"}]
    session.conversation.item.create(item={"type": "message", "role": "user", "content": content})
    session.response.create()
    kind = ""
    while kind != "response.done":
        event = session.recv()
        kind = event.type
        assert kind != "error", event


def tokens_of(fake: FakeLive) -> list[str]:
    """Return the tokens of the accepted connections."""
    return [connection.headers["authorization"].removeprefix("Bearer ") for connection in fake.connections]


def test_session_with_a_rejected_token_is_opened_with_a_new_one(
    gateway: LocalGateway, fake: FakeLive, metadata: FakeGoogleIdentity, identity: UpstreamIdentity
) -> None:
    with open_session(gateway) as session:
        request_response(session)
    fake.rejected.add(metadata.issued[-1])
    with open_session(gateway) as session:
        request_response(session)
    assert tokens_of(fake) == metadata.issued[-2:]
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD] * 2


def test_session_is_refused_once_when_the_identity_has_no_other_token(
    gateway: LocalGateway, fake: FakeLive, metadata: FakeGoogleIdentity, identity: UpstreamIdentity
) -> None:
    metadata.repeats = True
    with open_session(gateway) as session:
        request_response(session)
    fake.rejected.add(metadata.issued[-1])
    with pytest.raises(Exception, match=r"HTTP (401|502|503)") as caught, open_session(gateway):
        pass
    assert metadata.issued[-1] not in str(caught.value) and len(fake.connections) == 1


def test_later_connection_of_a_session_has_the_current_token(
    gateway: LocalGateway, fake: FakeLive, metadata: FakeGoogleIdentity, identity: UpstreamIdentity
) -> None:
    fake.goes = "end"
    with open_session(gateway) as session:
        assert session.recv().type == "session.created"
        fake.rejected.add(metadata.issued[-1])
        forget_token(identity)
        request_response(session)
        request_response(session)
    assert tokens_of(fake) == metadata.issued[-2:]
    assert [row.cost_nusd for row in usage_of(gateway)] == [USAGE_NUSD] * 2
