"""Any input to the OAuth endpoints gets an exact OAuth error, never one of the gateway's own errors."""

import json
from typing import Any
from urllib.parse import urlencode

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from support.oauth import BACK, App, owner_of
from support.shared import ModuleShare
from werkzeug.test import Client

ERRORS = {
    *("invalid_request", "invalid_client", "invalid_grant", "unauthorized_client", "unsupported_grant_type"),
    *("invalid_scope", "invalid_target", "invalid_redirect_uri", "invalid_client_metadata", "temporarily_unavailable"),
}
NAMES = [
    *("grant_type", "code", "redirect_uri", "client_id", "client_secret", "code_verifier", "refresh_token", "scope"),
    *("resource", "token", "token_type_hint", "response_type", "state", "code_challenge", "code_challenge_method"),
]
WORDS = [
    *("authorization_code", "refresh_token", "client_credentials", "code", "S256", "plain", "mcp:tools", "none", BACK),
    *(
        "",
        " ",
        "\0",
        "ä",
        "\ud7ff",
        "🙂",
        '"',
        "\\",
        "%",
        "%00",
        "x" * 300,
        "a\r\nSet-Cookie: b=c",
        "llmgat_" + "x" * 40,
    ),
    *(
        "https://a.example/c",
        "javascript:alert(1)",
        "http://[::1",
        "http://localhost",
        "-1",
        "null",
        "llmgrt_x",
        "v" * 43,
    ),
]
TEXTS = st.sampled_from(WORDS) | st.text(max_size=40)
PAIRS = st.lists(st.tuples(st.sampled_from(NAMES) | st.text(max_size=8), TEXTS), max_size=12)
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS,
    lambda inner: st.lists(inner, max_size=4),
    max_leaves=8,
)
MEMBERS = [
    "redirect_uris",
    "client_name",
    "grant_types",
    "response_types",
    "token_endpoint_auth_method",
    "scope",
    "jwks",
]
METADATA = st.dictionaries(
    st.sampled_from([*MEMBERS, "client_uri", "api_key"]) | st.text(max_size=5), VALUES, max_size=6
)
CREDENTIALS = st.sampled_from(
    ["", "Basic", "Basic eDp5", "Basic /w==", "Basic Og==", "Bearer x", "basic =", "Digest a"]
)
EXAMPLES = settings().max_examples
KINDS = st.sampled_from(
    ["application/json", "application/x-www-form-urlencoded", "application/json; charset=utf-16", "", "a/b"]
)


class SignedInOwner:
    """The gateway's endpoints, called without a network in between and without the limit on attempts."""

    def __init__(self, shared: ModuleShare) -> None:
        self.gateway = shared.gateway("odd", {}).tenant("odd")
        self.person = owner_of(self.gateway)
        self.app = App(self.gateway.address)
        self.web = Client(self.gateway.app.flask, use_cookies=False)

    def send(self, method: str, path: str, **more: Any) -> Any:
        database = self.gateway.services.store.database
        database.write(lambda: database.execute("DELETE FROM attempt"))
        answer = self.web.open(path, method=method, **more)
        assert answer.status_code < 500, (method, path, more, answer.text)
        return answer


@pytest.fixture(scope="module")
def desk(module_share: ModuleShare) -> SignedInOwner:
    return SignedInOwner(module_share)


def encoded(pairs: list[tuple[str, str]]) -> str:
    return urlencode([(name.encode("utf-8", "replace"), value.encode("utf-8", "replace")) for name, value in pairs])


@settings(max_examples=2 * EXAMPLES)
@given(
    path=st.sampled_from(["/oauth/token", "/oauth/revoke"]), pairs=PAIRS, credentials=CREDENTIALS, known=st.booleans()
)
def test_any_form_gets_an_error_of_the_standard(
    desk: SignedInOwner, path: str, pairs: Any, credentials: str, known: bool
) -> None:
    pairs = [*pairs, ("client_id", desk.app.id)] if known else pairs
    headers = {"Authorization": credentials} if credentials else {}
    form = "application/x-www-form-urlencoded"
    answer = desk.send("POST", path, data=encoded(pairs), content_type=form, headers=headers)
    assert answer.status_code in (200, 400, 401)
    if answer.status_code != 200:
        body = answer.get_json()
        assert body["error"] in ERRORS and body["error_description"].isprintable()


@pytest.mark.parametrize("path", ["/oauth/none", "/.well-known/openid-configuration/a%0Ab"])
def test_a_path_of_no_operation_gets_an_error_of_the_standard(desk: SignedInOwner, path: str) -> None:
    answer = desk.send("GET", path)
    assert answer.status_code == 404 and answer.get_json()["error"] in ERRORS


@settings(max_examples=2 * EXAMPLES)
@given(path=st.sampled_from(["/oauth/token", "/oauth/revoke", "/oauth/register"]), body=METADATA | VALUES)
def test_any_json_gets_an_error_of_the_standard(desk: SignedInOwner, path: str, body: Any) -> None:
    answer = desk.send("POST", path, data=json.dumps(body), content_type="application/json")
    assert answer.status_code in (200, 201, 400, 401)
    assert answer.status_code < 300 or answer.get_json()["error"] in ERRORS


@settings(max_examples=2 * EXAMPLES)
@given(path=st.sampled_from(["/oauth/token", "/oauth/register"]), body=st.binary(max_size=200), kind=KINDS)
def test_any_bytes_get_an_error_of_the_standard(desk: SignedInOwner, path: str, body: bytes, kind: str) -> None:
    answer = desk.send("POST", path, data=body, content_type=kind)
    assert answer.status_code in (400, 401) and answer.get_json()["error"] in ERRORS


@settings(max_examples=2 * EXAMPLES)
@given(pairs=PAIRS, right=st.sets(st.sampled_from(["client_id", "redirect_uri", "response_type", "code_challenge"])))
def test_any_request_of_an_application_leads_nowhere_else(desk: SignedInOwner, pairs: Any, right: set[str]) -> None:
    good = {"client_id": desk.app.id, "redirect_uri": BACK, "response_type": "code", "code_challenge": "c" * 43}
    query = encoded([*pairs, *((name, good[name]) for name in sorted(right))])
    for method in ("GET", "POST"):
        given_by = {"query_string": query} if method == "GET" else {"data": {"request": query}}
        answer = desk.send(method, "/oauth/authorize", headers={"Origin": "http://localhost"}, **given_by)
        assert answer.status_code in (200, 302, 303, 400)
        leads = answer.headers.get("Location", BACK)
        assert leads.startswith((BACK, "http://localhost/console/login?")), leads
        assert "set-cookie" not in answer.headers
