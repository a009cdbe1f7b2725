"""A key in the address leaves it everywhere, and opens only Gemini's paths."""

import pytest

from gateway.surfaces.web.query_keys import hide_credentials

OPENED = (
    "/v1beta/models/x:generateContent",
    "/v1/models",
    "///v1beta//models",
    "/V1Beta/models",
    "/v1beta/models/%2e",
)
OTHERS = ("/", "/x/../v1beta/models", "/activity", "/v1/chat/completions", "/mcp", "/auth/get-session")
QUERIES = [
    ("key=s%2Bcret", ""),
    ("alt=sse&key=s%2Bcret", "alt=sse"),
    ("key=s%2Bcret&a=1&key=o", "a=1"),
    ("KEY=s%2Bcret", ""),
    ("%6bey=s%2Bcret&b", "b"),
]


@pytest.mark.parametrize("path", [*OPENED, *OTHERS])
@pytest.mark.parametrize(("query", "left"), QUERIES)
def test_a_key_is_taken_out_of_the_address(path: str, query: str, left: str) -> None:
    environ = {"PATH_INFO": path, "QUERY_STRING": query, "RAW_URI": f"{path}?{query}"}
    hide_credentials(environ)
    assert environ.get("HTTP_X_GOOG_API_KEY") == ("s+cret" if path in OPENED else None)
    assert environ["QUERY_STRING"] == left
    assert environ["RAW_URI"] == (f"{path}?{left}" if left else path)


def test_a_key_in_a_header_takes_precedence() -> None:
    environ = {"PATH_INFO": "/v1beta/models", "QUERY_STRING": "key=a", "HTTP_X_GOOG_API_KEY": "b"}
    hide_credentials(environ)
    assert environ["HTTP_X_GOOG_API_KEY"] == "b" and environ["QUERY_STRING"] == ""


def test_other_names_stay() -> None:
    for path, query in (("/activity", "keys=a"), ("/v1beta/models", "monkey=a&model=%6bey")):
        environ = {"PATH_INFO": path, "QUERY_STRING": query}
        hide_credentials(environ)
        assert environ == {"PATH_INFO": path, "QUERY_STRING": query}


def test_tokens_in_headers_without_credentials_are_hidden() -> None:
    token = "llmgtwy_" + "a1-_" * 10
    environ = {"HTTP_X_REQUEST_ID": f"job {token}", "HTTP_AUTHORIZATION": f"Bearer {token}", "HTTP_COOKIE": token}
    hide_credentials(environ)
    assert environ["HTTP_X_REQUEST_ID"] == "job llmgtwy_[hidden]"
    assert environ["HTTP_AUTHORIZATION"] == f"Bearer {token}" and environ["HTTP_COOKIE"] == token
