"""A key in the address becomes a header, and is in no other part of the environ."""

import pytest

from gateway.surfaces.query_keys import hide_key


@pytest.mark.parametrize("path", ["/v1beta/models/x:generateContent", "/v1/models", "//v1beta/models"])
@pytest.mark.parametrize(
    ("query", "left"), [("key=s%2Bcret", ""), ("alt=sse&key=s%2Bcret", "alt=sse"), ("key=s%2Bcret&a=1&key=o", "a=1")]
)
def test_a_key_is_moved(path: str, query: str, left: str) -> None:
    environ = {"PATH_INFO": path, "QUERY_STRING": query, "RAW_URI": f"{path}?{query}"}
    hide_key(environ)
    assert environ["HTTP_X_GOOG_API_KEY"] == "s+cret" and environ["QUERY_STRING"] == left
    assert environ["RAW_URI"] == (f"{path}?{left}" if left else path)


def test_a_key_in_a_header_takes_precedence() -> None:
    environ = {"PATH_INFO": "/v1beta/models", "QUERY_STRING": "key=a", "HTTP_X_GOOG_API_KEY": "b"}
    hide_key(environ)
    assert environ["HTTP_X_GOOG_API_KEY"] == "b" and environ["QUERY_STRING"] == ""


def test_other_paths_and_names_stay() -> None:
    for path, query in (("/activity", "key=a"), ("/v1beta/models", "monkey=a")):
        environ = {"PATH_INFO": path, "QUERY_STRING": query}
        hide_key(environ)
        assert environ == {"PATH_INFO": path, "QUERY_STRING": query}
