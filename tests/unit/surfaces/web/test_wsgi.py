"""An environ becomes an Inbound within its limits; an Outbound becomes headers and a body."""

import gzip
import io
import zlib
from typing import ClassVar

import pytest

from gateway.errors import InvalidRequest, RequestTooLarge, Unauthenticated, UnsupportedMediaType
from gateway.runtime.zstd import zstd
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.surfaces.web.origins import Proxies
from gateway.surfaces.web.request_decompression import decode_body
from gateway.surfaces.web.wsgi import FREE_BODY, HELD_KEY, read_inbound, start

BARE = zlib.compressobj(wbits=-15)
BARE_DEFLATE = BARE.compress(b"hello") + BARE.flush()


def environ(body=b"", **more):
    made = {"REQUEST_METHOD": "POST", "PATH_INFO": "/v1/x", "wsgi.input": io.BytesIO(body), "HTTP_HOST": "here:1"}
    return made | {"CONTENT_LENGTH": str(len(body)), "wsgi.url_scheme": "https", "REMOTE_ADDR": "10.0.0.1"} | more


def test_request_is_read_with_lower_case_headers():
    inbound = read_inbound(environ(b"hi", HTTP_X_API_KEY="k", CONTENT_TYPE="a/b", QUERY_STRING="a=1"), {"id": "7"})
    assert inbound.headers == {"host": "here:1", "x-api-key": "k", "content-type": "a/b", "content-length": "2"}
    assert (inbound.body, inbound.query, inbound.params) == (b"hi", "a=1", {"id": "7"})
    assert (inbound.base_url, inbound.peer) == ("https://here:1", "10.0.0.1")


def test_base_url_has_the_mount_point_and_yields_to_the_public_one():
    assert read_inbound(environ(SCRIPT_NAME="/llm")).base_url == "https://here:1/llm"
    assert read_inbound(environ(), public_url="https://llm.example/").base_url == "https://llm.example"


def test_the_peer_comes_from_the_configured_header_of_a_trusted_proxy():
    made = environ(HTTP_X_FORWARDED_FOR="1.2.3.4, 5.6.7.8")
    proxies = Proxies("X-Forwarded-For", ["10.0.0.0/8"])
    assert read_inbound(made).peer == "10.0.0.1"
    assert read_inbound(made, proxies=proxies).peer == "5.6.7.8"
    assert read_inbound(environ(), proxies=proxies).peer == "10.0.0.1"


def test_path_of_other_letters_is_text():
    assert read_inbound(environ(PATH_INFO="/é".encode().decode("latin-1"))).path == "/é"


@pytest.mark.parametrize(
    ("coding", "body"),
    [
        ("gzip", gzip.compress(b"hello", mtime=0)),
        ("X-GZIP", gzip.compress(b"hel", mtime=0) + gzip.compress(b"lo", mtime=0)),
        ("deflate", zlib.compress(b"hello")),
        ("deflate", BARE_DEFLATE),
        ("identity", b"hello"),
    ],
)
def test_an_encoded_body_is_decoded_and_its_header_removed(coding, body):
    inbound = read_inbound(environ(body, HTTP_CONTENT_ENCODING=coding))
    assert inbound.body == b"hello" and "content-encoding" not in inbound.headers
    assert inbound.headers["content-length"] == "5"


@pytest.mark.parametrize(
    "body", [b"no gzip", gzip.compress(b"hello", mtime=0)[:-3], gzip.compress(b"hello", mtime=0) + b"junk"]
)
def test_broken_encoding_is_refused(body):
    with pytest.raises(InvalidRequest):
        read_inbound(environ(body, HTTP_CONTENT_ENCODING="gzip"))


def test_unknown_encoding_is_refused_as_such():
    with pytest.raises(UnsupportedMediaType):
        read_inbound(environ(b"x", HTTP_CONTENT_ENCODING="br"))


def test_cap_holds_for_the_sent_and_the_decoded_size():
    bomb = gzip.compress(bytes(100_000), mtime=0)
    assert len(read_inbound(environ(bomb, HTTP_CONTENT_ENCODING="gzip"), max_body=100_000).body) == 100_000
    with pytest.raises(RequestTooLarge):
        read_inbound(environ(bomb, HTTP_CONTENT_ENCODING="gzip"), max_body=99_999)
    with pytest.raises(RequestTooLarge):
        read_inbound(environ(b"abc"), max_body=2)


def test_body_without_length_is_read_only_where_the_server_ends_it():
    assert read_inbound(environ(b"abc", CONTENT_LENGTH="")).body == b""
    assert read_inbound(environ(b"abc", **{"CONTENT_LENGTH": "", "wsgi.input_terminated": True})).body == b"abc"
    with pytest.raises(RequestTooLarge):
        read_inbound(environ(b"abc", **{"CONTENT_LENGTH": "", "wsgi.input_terminated": True}), max_body=2)


@pytest.mark.parametrize("length", ["4", "-1", "3x"])
def test_wrong_length_is_refused(length):
    with pytest.raises(InvalidRequest):
        read_inbound(environ(b"abc", CONTENT_LENGTH=length))


def begin(outbound, **more):
    seen = []
    body = start(outbound, lambda status, headers: seen.extend((status, headers)), **more)
    return seen[0], seen[1], body


def test_bytes_are_sent_with_their_length_once():
    assert begin(Outbound(200, [], b"abc")) == ("200 OK", [("Content-Length", "3")], [b"abc"])
    assert begin(Outbound(200, [("content-length", "3")], b"abc"))[1] == [("content-length", "3")]
    assert begin(Outbound(204, []))[1] == []


def test_an_iterator_is_passed_on_unchanged():
    items = iter([b"a"])
    assert begin(Outbound(529, [], items)) == ("529 Overloaded", [], items)


def test_head_request_closes_the_iterator_unread():
    items = (item for item in [b"a"])
    assert begin(Outbound(200, [], items), head_only=True)[2] == []
    assert items.gi_frame is None


def test_a_zstd_body_is_unpacked_under_the_cap() -> None:
    packed = zstd.compress(b'{"a": 1}' * 1000)
    assert decode_body(packed, "zstd", 8000) == b'{"a": 1}' * 1000
    with pytest.raises(RequestTooLarge):
        decode_body(packed, "zstd", 7999)


def test_a_zstd_body_without_a_size_in_its_frame_is_unpacked() -> None:
    engine = zstd.ZstdCompressor()
    packed = engine.compress(b"x" * 5000) + engine.flush()
    assert decode_body(packed, "zstd", 5000) == b"x" * 5000


@pytest.mark.parametrize("broken", [b"nonsense", zstd.compress(b"x" * 5000)[:-3]])
def test_a_broken_zstd_body_is_distinguished_from_a_large_one(broken: bytes) -> None:
    with pytest.raises(InvalidRequest) as caught:
        decode_body(broken, "zstd", 10_000)
    assert caught.value.code == "malformed_request"


def refuse(headers):
    raise Unauthenticated("no key")


@pytest.mark.parametrize(
    "made",
    [
        environ(gzip.compress(b"hello"), HTTP_CONTENT_ENCODING="gzip"),
        environ(b"a" * (FREE_BODY + 1)),
        environ(b"abc", HTTP_TRANSFER_ENCODING="chunked", **{"CONTENT_LENGTH": "", "wsgi.input_terminated": True}),
    ],
)
def test_a_long_or_packed_body_is_not_touched_before_its_head_was_admitted(made):
    body = made["wsgi.input"]
    with pytest.raises(Unauthenticated):
        read_inbound(made, admit=refuse)
    assert body.tell() == 0


def test_a_short_plain_body_needs_no_admission():
    assert read_inbound(environ(b"a" * FREE_BODY), admit=refuse).body == b"a" * FREE_BODY


def test_memory_is_reserved_while_a_body_is_decompressed():
    class Held:
        sizes: ClassVar[list[int]] = []

        def grow(self, size):
            self.sizes.append(size)

    packed, held = gzip.compress(bytes(1_000_000)), Held()
    read_inbound(environ(packed, HTTP_CONTENT_ENCODING="gzip", **{HELD_KEY: held}))
    assert sum(held.sizes) == 1_000_000 and len(held.sizes) > 3


def test_a_query_has_so_many_parameters_at_most():
    assert Inbound("GET", "/", {}, query="a=1&a=2&b").arguments() == {"a": "2", "b": ""}
    with pytest.raises(InvalidRequest, match="1000"):
        Inbound("GET", "/", {}, query="a&" * 1001).arguments()
