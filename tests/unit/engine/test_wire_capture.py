import dataclasses
from typing import Any

from support.billing import target

from gateway.engine.payload_collection import WireCapture
from gateway.providers.protocol import Call, Credential

SECRET = "sk-1234567890"


def tap(room: int = 1000, source: str = "byok") -> WireCapture:
    return WireCapture(dataclasses.replace(target(), credential=Credential(SECRET, source)), room)


def test_an_exchange_is_kept_without_the_query_and_the_credential() -> None:
    capture = tap()
    capture.sent("POST", f"https://api.example/v1/chat?key={SECRET}", b'{"a": 1}')
    capture.answered(401)
    capture.received(b"Incorrect API key: sk-1234")
    capture.received(b"567890.")
    exchange = capture.show()
    assert (exchange["url"], exchange["status"], exchange["request"]) == (
        "https://api.example/v1/chat",
        401,
        '{"a": 1}',
    )
    assert exchange["response"] == "Incorrect API key: [secret]." and exchange["truncated"] is False


def test_addresses_of_the_operators_upstreams_are_not_shown() -> None:
    capture = tap(source="platform")
    capture.sent("POST", "http://inner.example:8000/v1/chat", b"{}")
    assert capture.show()["url"] == "" and capture.show()["request"] == "{}"


def test_both_bodies_share_the_room() -> None:
    capture = tap(room=10)
    capture.sent("POST", "https://api.example/", b"1234567")
    capture.received(b"abcdef")
    exchange = capture.show()
    assert (exchange["request"], exchange["response"], exchange["truncated"]) == ("1234567", "abc", True)
    assert capture.size == 10


def test_a_cut_leaves_no_beginning_of_the_credential() -> None:
    capture = tap(room=20)
    capture.received(b"key: " + SECRET.encode()[:15] + b"!!!")
    assert capture.show()["response"] == "key: [secret]!!"
    cut = tap(room=14)
    cut.received(b"key: " + SECRET.encode())
    assert cut.show()["response"] == "key: [secret]"


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    capture = tap()
    capture.received(b"\xff\x00ok")
    assert capture.show()["response"] == "\ufffd\x00ok"


class RenewedIdentity:
    """A workload identity with the given token."""

    def __init__(self, secret: str) -> None:
        self.secret = secret


def test_a_token_that_was_renewed_during_the_call_is_removed_too() -> None:
    identity: Any = RenewedIdentity("token-of-the-call")
    credential = Credential("", "platform", identity=identity)
    capture = WireCapture(dataclasses.replace(target(), credential=credential), 1000)
    capture.sending(Call("POST", "https://api.example/", {}, b"{}"))
    identity.secret = "token-after-the-call"
    capture.received(b"token-of-the-call and token-after-the-call")
    assert capture.show()["response"] == "[secret] and [secret]"


def test_the_session_token_of_a_signing_key_is_removed() -> None:
    session = "IQoJb3JpZ2luX2VjEJr//////////wEaCXVz"
    credential = Credential(f"AKIAIOSFODNN7EXAMPLE:secret-of-forty-characters-that-is-signed:{session}", "platform")
    capture = WireCapture(dataclasses.replace(target(), credential=credential), 1000)
    capture.received(f"x-amz-security-token:{session}\nhost:x".encode())
    assert capture.show()["response"] == "x-amz-security-token:[secret]\nhost:x"
