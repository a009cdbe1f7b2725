"""Misspelled paths lead to the intended operation, and to no other."""

import time

import pytest

from gateway.surfaces.web.request_targets import Addresses, hide_credentials

ADDRESSES = Addresses(
    ("/", "/keys", "/v1/keys/all", "/v1/chat/completions", "/v1/models", "/v1/models/<path:model>", "/v1/x/<id>/end"),
    {
        "/of/<path:model>/end": "/v1/x/1/end",
        "/acme/v1": "/v1",
        "/acme": "/v1",
        "/v1beta/acme": "/v1",
        "/v2/chat": "/v1/chat/completions",
    },
)


@pytest.mark.parametrize(
    ("asked", "served"),
    [
        ("/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/chat/completions/", "/v1/chat/completions"),
        ("//v1//chat/completions//", "/v1/chat/completions"),
        ("/chat/completions", "/v1/chat/completions"),
        ("/chat/completions/", "/v1/chat/completions"),
        ("/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/v1/v1/chat/completions", "/v1/chat/completions"),
        ("/models/openai/gpt-5", "/v1/models/openai/gpt-5"),
        ("/v1/v1/models/gpt-5/", "/v1/models/gpt-5"),
        ("/x/one/end", "/v1/x/one/end"),
        ("/acme/v1/chat/completions", "/v1/chat/completions"),
        ("/v1/acme/v1/models/acme/v1", "/v1/models/acme/v1"),
        ("/acme/models", "/v1/models"),
        ("/v1beta/acme/models", "/v1/models"),
        ("/v1/acme/chat/completions", "/v1/chat/completions"),
        ("/of/one/end", "/v1/x/1/end"),
        ("/of/one/and/two/end/", "/v1/x/1/end"),
        ("/v2/chat/", "/v1/chat/completions"),
        ("/v1/v2/chat", "/v1/chat/completions"),
        ("/keys/", "/keys"),
        ("/keys", "/keys"),
        ("", "/"),
    ],
)
def test_the_intended_path_is_found(asked: str, served: str) -> None:
    assert ADDRESSES.settle(asked) == served


@pytest.mark.parametrize(
    "path",
    [
        "/v1/nothing",
        "/v1",
        "/v2/chat/completions",
        "/CHAT/completions",
        "/v1/x/a/b/end",
        "/v1v1/chat/completions",
        "/acme/v12/models",
        "/acmes/models",
        "/of/end",
    ],
)
def test_an_unknown_path_stays_unchanged(path: str) -> None:
    assert ADDRESSES.settle(path) == path


@pytest.mark.parametrize(
    ("path", "model"),
    [
        ("/of/gpt-5/end", "gpt-5"),
        ("/v1/of//openai/gpt-5/end/", "openai/gpt-5"),
        ("/acme/models", ""),
        ("/v1/models/gpt-5", ""),
        ("/v1/x/one/end", ""),
    ],
)
def test_the_model_in_an_alias_is_found(path: str, model: str) -> None:
    assert ADDRESSES.model_of(path) == model


def test_a_doubled_version_takes_time_by_how_often_it_stands_there() -> None:
    def took(times: int) -> float:
        path = "/v1" * times + "/models"
        began = time.process_time()
        for _ in range(5):
            assert ADDRESSES.settle(path) == "/v1/models"
        return time.process_time() - began

    assert min(took(20_000) for _ in range(3)) < 40 * min(took(2_000) for _ in range(3))


@pytest.mark.parametrize(
    ("asked", "meant"),
    [
        ("/v1/chat/completion", "/v1/chat/completions"),
        ("/chat/Completion", "/v1/chat/completions"),
        ("/v1/model", "/v1/models"),
        ("/v1/files", ""),
        ("/wp-login.php", ""),
        ("/v1/chat/completion" + "s" * 100, ""),
    ],
)
def test_a_similar_path_is_suggested(asked: str, meant: str) -> None:
    assert ADDRESSES.nearest(asked) == meant


# A key in the address leaves it everywhere, and opens only Gemini's paths.

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
