import pytest

from gateway.errors import UpstreamUnreachable
from gateway.transport.request_bytes import read_url, write_head


@pytest.mark.parametrize(
    ("url", "host", "target"),
    [
        ("https://api.example.com/v1/chat?a=b%20c", "api.example.com", "/v1/chat?a=b%20c"),
        ("http://127.0.0.1:8080", "127.0.0.1:8080", "/"),
        ("https://API.Example.com:443/x#part", "api.example.com", "/x"),
        ("http://[::1]:9000/v1", "[::1]:9000", "/v1"),
        ("https://bücher.example/", None, None),
    ],
)
def test_url_comes_apart_or_is_refused(url, host, target):
    if host is None:
        with pytest.raises(UpstreamUnreachable):
            read_url(url, True)
        return
    place = read_url(url, True)
    assert (place.host, place.target) == (host, target)


@pytest.mark.parametrize(
    "url",
    ["", "api.example.com/v1", "ftp://x.example/", "https:///v1", "https://x:99999/", "https://u:secret@x.example/",
     "https://x.example/a b?key=secret", "https://x.example/?key=secret\r\nx: y", "http://[fe80::1%25eth0]/",
     "http://[::1/", "https://x.example/?key=secret" + "x" * 9000],
)  # fmt: skip
def test_bad_url_is_refused_without_being_shown(url):
    with pytest.raises(UpstreamUnreachable) as refusal:
        read_url(url, True)
    assert refusal.value.code == "invalid_address"
    assert "secret" not in refusal.value.message


def test_request_has_our_host_length_and_coding():
    place = read_url("https://api.example.com/v1", True)
    message = write_head("POST", place, {"Authorization": "Bearer k", "Content-Length": "9", "Host": "x"}).with_body(
        b"{}"
    )
    head = message.removesuffix(b"\r\n\r\n{}").decode().split("\r\n")
    assert head[:3] == ["POST /v1 HTTP/1.1", "host: api.example.com", "authorization: Bearer k"]
    assert head[3:] == ["accept-encoding: identity", "user-agent: llmgateway", "content-length: 2"]


@pytest.mark.parametrize(
    "name", ["Content-Length", "Transfer-Encoding", "Connection", "Expect", "TE", "Trailer", "Upgrade"]
)
def test_headers_of_a_caller_change_neither_the_framing_nor_the_connection(name):
    place = read_url("https://api.example.com/v1", True)
    head = write_head("POST", place, {name: "x-foreign"}).with_body(b"{}")
    assert b"x-foreign" not in head


def test_get_without_body_has_no_length_and_keeps_its_own_coding():
    place = read_url("https://api.example.com/v1", True)
    message = write_head("GET", place, {"Accept-Encoding": "gzip", "User-Agent": "me"}).with_body(b"")
    assert b"content-length" not in message
    assert message.count(b"accept-encoding") == message.count(b"user-agent") == 1


@pytest.mark.parametrize("value", ["secret\r\nx-admin: 1", "secret\n", "secret\r", "secret\0", "secret–"])
def test_header_that_could_leave_its_line_is_refused_without_being_shown(value):
    place = read_url("https://api.example.com/v1", True)
    with pytest.raises(UpstreamUnreachable) as refusal:
        write_head("POST", place, {"authorization": f"Bearer {value}"}).with_body(b"")
    assert "secret" not in refusal.value.message
