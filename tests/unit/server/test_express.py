"""The express lane takes plain hot requests and leaves everything else to the application behind it."""

import io

import pytest

from gateway.server.express import ExpressLane
from gateway.surfaces.web.http import Outbound


def behind(environ, start_response):
    start_response("200 OK", [])
    return [b"long way"]


def answer(inbound):
    if inbound.body == b"crash":
        raise RuntimeError("secret")
    return Outbound(200, [("Content-Type", "text/plain")], b"express " + inbound.body)


def call(method="POST", path="/hot", body=b"hi", **more):
    lane = ExpressLane(
        behind,
        {("POST", "/hot"): answer, ("GET", "/hot"): answer},
        lambda inbound, error: Outbound(500, [], type(error).__name__.encode()),
        max_body=10,
    )
    environ = {"REQUEST_METHOD": method, "PATH_INFO": path, "wsgi.input": io.BytesIO(body)}
    if body:
        environ["CONTENT_LENGTH"] = str(len(body))
    seen = []
    result = lane(environ | more, lambda status, headers: seen.append((status, dict(headers))))
    return seen[0], b"".join(result)


def test_plain_request_is_answered_with_its_length():
    (status, headers), body = call()
    assert (status, body, headers["Content-Length"]) == ("200 OK", b"express hi", "10")


def test_get_without_body_is_answered():
    assert call(method="GET", body=b"")[1] == b"express "


@pytest.mark.parametrize(
    "odd",
    [
        {"path": "/hot/"},
        {"path": "/HOT"},
        {"method": "OPTIONS"},
        {"body": b""},
        {"body": b"longer than ten"},
        {"method": "GET"},
        {"CONTENT_LENGTH": "x"},
        {"HTTP_CONTENT_ENCODING": "gzip"},
        {"HTTP_TRANSFER_ENCODING": "chunked"},
        {"HTTP_EXPECT": "100-continue"},
        {"HTTP_UPGRADE": "websocket"},
    ],
)
def test_anything_odd_takes_the_long_way(odd):
    assert call(**odd)[1] == b"long way"


def test_crash_of_a_handler_is_answered_by_the_given_function():
    (status, _), body = call(body=b"crash")
    assert (status, body) == ("500 Internal Server Error", b"RuntimeError")
