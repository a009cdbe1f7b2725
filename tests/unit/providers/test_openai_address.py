import pytest

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest, Conversation, Native, Requirements
from gateway.providers.openai.address import address_of, endpoint_of
from gateway.providers.openai.chat import OpenAIChat
from gateway.providers.protocol import Credential, Target

ACCOUNT = '{"type": "service_account", "private_key": "-----BEGIN"}'


def target(secret: str, auth: str = "google-oauth") -> Target:
    provider = Provider("vertex-openai", "Vertex", "openai", auth=auth)
    return Target(provider, Mapping("vertex-openai", "glm", "glm-maas"), Credential(secret), "https://up.example/v1")


def test_a_service_account_goes_out_as_its_access_token_only() -> None:
    _, headers = address_of(target(ACCOUNT), "/chat/completions", lambda secret: f"token-of-{len(secret)}")
    assert headers["authorization"] == f"Bearer token-of-{len(ACCOUNT)}"


def test_an_access_token_is_sent_unchanged() -> None:
    assert address_of(target("ya29.own"), "/chat/completions")[1]["authorization"] == "Bearer ya29.own"


def test_without_a_token_service_a_service_account_never_leaves() -> None:
    with pytest.raises(NotSupported):
        address_of(target(ACCOUNT), "/chat/completions")


def test_a_bearer_key_that_looks_like_json_is_no_service_account() -> None:
    assert address_of(target("{x}", auth="bearer"), "/chat/completions")[1]["authorization"] == "Bearer {x}"


def test_a_way_is_made_once_for_a_target_and_never_shared_with_another() -> None:
    one, other = target("k1", auth="bearer"), target("k2", auth="bearer")
    plain = endpoint_of(one, "/chat/completions", False)
    streamed = endpoint_of(one, "/chat/completions", True)
    assert endpoint_of(one, "/chat/completions", False) is plain
    assert (plain.headers["accept"], streamed.headers["accept"]) == ("application/json", "text/event-stream")
    assert endpoint_of(other, "/chat/completions", False).headers["authorization"] == "Bearer k2"


def test_a_service_account_is_exchanged_for_a_token_at_each_call() -> None:
    place, tokens = target(ACCOUNT), iter(("t1", "t2"))
    sent = [endpoint_of(place, "/chat/completions", False, lambda secret: next(tokens)).headers for _ in range(2)]
    assert [headers["authorization"] for headers in sent] == ["Bearer t1", "Bearer t2"]


def test_chat_with_a_service_account_asks_for_its_token_at_each_call() -> None:
    tokens = iter(("first", "second"))
    protocol, at = OpenAIChat(lambda account: next(tokens)), target(ACCOUNT)
    native = Native("openai", {"messages": []})
    request = ChatRequest("m", Requirements(), lambda: Conversation(()), native=native)
    sent = [protocol.relay(native, request, at).headers["authorization"] for _ in range(2)]
    assert sent == ["Bearer first", "Bearer second"]
