import dataclasses

from support.billing import target

from gateway.engine.wire_capture import WireCapture
from gateway.providers.protocol import Credential

SECRET = "sk-1234567890"


def tap(room: int = 1000, source: str = "byok") -> WireCapture:
    return WireCapture(dataclasses.replace(target(), credential=Credential(SECRET, source)), room)


def test_an_exchange_is_kept_without_the_query_and_the_credential() -> None:
    one = tap()
    one.sent("POST", f"https://api.example/v1/chat?key={SECRET}", b'{"a": 1}')
    one.answered(401)
    one.received(b"Incorrect API key: sk-1234")
    one.received(b"567890.")
    shown = one.show()
    assert (shown["url"], shown["status"], shown["request"]) == ("https://api.example/v1/chat", 401, '{"a": 1}')
    assert shown["response"] == "Incorrect API key: [secret]." and shown["truncated"] is False


def test_where_the_operators_own_upstreams_are_is_not_told() -> None:
    one = tap(source="platform")
    one.sent("POST", "http://inner.example:8000/v1/chat", b"{}")
    assert one.show()["url"] == "" and one.show()["request"] == "{}"


def test_both_bodies_share_the_room() -> None:
    one = tap(room=10)
    one.sent("POST", "https://api.example/", b"1234567")
    one.received(b"abcdef")
    shown = one.show()
    assert (shown["request"], shown["response"], shown["truncated"]) == ("1234567", "abc", True)
    assert one.size == 10


def test_a_cut_leaves_no_beginning_of_the_credential() -> None:
    one = tap(room=20)
    one.received(b"key: " + SECRET.encode()[:15] + b"!!!")
    assert one.show()["response"] == "key: [secret]!!"
    cut = tap(room=14)
    cut.received(b"key: " + SECRET.encode())
    assert cut.show()["response"] == "key: [secret]"


def test_bytes_that_are_no_text_are_shown_as_such() -> None:
    one = tap()
    one.received(b"\xff\x00ok")
    assert one.show()["response"] == "\ufffd\x00ok"
