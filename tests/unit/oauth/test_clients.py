"""Registration keeps what it knows, in bounds; redirects are those of the application, to the letter."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from gateway.callers.models import OAuthClient
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import GatewayError, InvalidRequest, UpstreamUnreachable
from gateway.oauth import clients as module
from gateway.oauth.clients import (
    MAX_AGE_S,
    MAX_BYTES,
    MAX_URI_LENGTH,
    TTL_S,
    ClientDocuments,
    Clients,
    InvalidMetadata,
    host_of,
    matches,
    may_be_client,
    problem_of,
    read_metadata,
)
from gateway.store.documents import Documents
from gateway.store.installation_identity import Secrets
from gateway.transport import Transport

SECRETS = Secrets((b"newest-hash-key-of-tests", b"older-hash-key-of-tests"), ("newest-encryption-key", "older-one"))
WEB = {"redirect_uris": ["https://a.example/cb"]}

# Observed ways back of the clients that people use.
KNOWN = [
    "http://localhost:49152/callback",
    "https://claude.ai/api/mcp/auth_callback",
    "https://claude.com/api/mcp/auth_callback",
    "https://chatgpt.com/connector_platform_oauth_redirect",
    "https://chatgpt.com/connector/oauth/abc123",
    "cursor://anysphere.cursor-mcp/oauth/callback",
    "https://www.cursor.com/agents/mcp/oauth/callback",
    "http://127.0.0.1:33418/",
    "https://vscode.dev/redirect",
    "http://localhost:6274/oauth/callback/debug",
    "http://[::1]:8080/cb",
    "com.example.app:/callback",
    "warp://mcp/oauth2callback",
    "raycast://oauth?package_name=Extension",
    # An extension has the scheme of the editor in which it runs.
    *(f"{editor}://saoudrizwan.claude-dev/mcp-auth/callback/1" for editor in ("vscode", "vscode-insiders", "code-oss")),
    *(f"{editor}://saoudrizwan.claude-dev/mcp-auth/callback/1" for editor in ("vscodium", "windsurf", "windsurf-next")),
    *(f"{editor}://saoudrizwan.claude-dev/mcp-auth/callback/1" for editor in ("kiro", "trae", "antigravity")),
]


@pytest.fixture
def clients(small_office) -> Clients:
    return Clients(small_office.database, SECRETS, lambda address, ask: None)


@pytest.mark.parametrize("uri", KNOWN)
def test_redirect_addresses_of_real_clients_are_accepted(uri: str) -> None:
    assert problem_of(uri) == "" and matches(uri, uri) and host_of(uri)


@pytest.mark.parametrize(
    "uri",
    [
        *(
            "",
            "callback",
            "//a.example/",
            "https:///x",
            "https://",
            "http://a.example/",
            "http://localhost.evil.example/",
        ),
        *(
            "https://a.example/#x",
            "https://u:p@a.example/",
            "https://a.example/ x",
            "https://a.example/\n",
            "https://ä/",
        ),
        *("javascript:alert(1)", "data:text/html,x", "file:///etc/passwd", "vbscript:x", "blob:x", "about:blank"),
        *(
            "https://a.example/\\@evil",
            "https://[::1",
            "https://a.example:99999/",
            "https://a.example/" + "x" * MAX_URI_LENGTH,
        ),
    ],
)
def test_other_addresses_are_not(uri: str) -> None:
    assert problem_of(uri)


@pytest.mark.parametrize(
    ("registered", "given", "good"),
    [
        ("http://localhost/callback", "http://localhost:1234/callback", True),
        ("http://127.0.0.1:1/cb", "http://127.0.0.1:65535/cb", True),
        ("http://127.0.0.1", "http://127.0.0.1:9/", True),
        ("http://localhost/callback", "http://127.0.0.1/callback", False),
        ("http://localhost/callback", "http://localhost:1/callback/x", False),
        ("http://localhost/callback", "http://localhost:1/callback?x=1", False),
        ("http://localhost/callback", "http://localhost:1@evil.example/callback", False),
        ("https://a.example/cb", "https://a.example:444/cb", False),
        ("https://a.example/cb", "https://a.example/cb/", False),
        ("https://a.example/cb", "https://a.example/CB", False),
        ("cursor://x/cb", "cursor://x/cb2", False),
    ],
)
def test_a_redirect_is_the_registered_one_with_any_port_on_loopback(registered, given, good) -> None:
    assert matches(registered, given) is good


def test_a_client_is_found_as_it_registered_and_its_secret_is_kept_nowhere(clients, small_office) -> None:
    made, secret, at = clients.register({**WEB, "client_name": "An editor\u202e", "software_id": "x", "jwks": {}})
    found = clients.find(made.id)
    assert found == made and found.name == "An editor" and "jwks" not in found.metadata
    assert found.check_client_secret(secret) and not found.check_client_secret(secret + "x")
    assert found.grant_types == ("authorization_code", "refresh_token") and at > 1_700_000_000
    rows = small_office.database.read(lambda: list(OAuthClient.select().dicts()))
    assert secret not in str(rows) and secret not in repr(found)
    older = Clients(
        small_office.database, Secrets(SECRETS.hash_keys[1:], SECRETS.encryption_keys), lambda address, ask: None
    )
    by_older, secret, _ = older.register(WEB)
    assert clients.find(by_older.id).check_client_secret(secret)


def test_unknown_ids_have_no_client(clients) -> None:
    assert [clients.find(one) for one in ("", "client_x", "ä", "x" * 500, "a\0", "https://a.example/c")] == [None] * 6


def test_grants_that_are_not_served_are_left_out() -> None:
    asked = ["authorization_code", "refresh_token", "urn:ietf:params:oauth:grant-type:device_code"]
    kept = read_metadata({**WEB, "grant_types": asked, "scope": "openid", "client_uri": None, "contacts": ["x"]})
    assert kept["grant_types"] == asked[:2] and "client_uri" not in kept and "contacts" not in kept


@pytest.mark.parametrize(
    "more", [{"redirect_uris": ["https://a.example/"] * 99}, {"redirect_uris": [1]}, {"grant_types": "code"},
             {"token_endpoint_auth_method": 7}, {"grant_types": [None]}]
)  # fmt: skip
def test_wrong_metadata_is_refused(more) -> None:
    with pytest.raises(InvalidMetadata):
        read_metadata({**WEB, **more})


def test_the_oldest_unused_gives_way_where_there_is_no_room(clients, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 2)
    first, second, third = (clients.register(WEB, peer=f"198.51.{number}.1")[0] for number in range(3))
    assert [clients.find(one.id) is not None for one in (first, second, third)] == [False, True, True]


def test_registrations_of_one_network_do_not_displace_others(clients, monkeypatch) -> None:
    monkeypatch.setattr(module, "MAX_CLIENTS", 40)
    mine = clients.register(WEB, peer="198.51.100.1")[0]
    theirs = [clients.register(WEB, peer=f"2001:db8:1:{number:x}::1")[0] for number in range(100)]
    assert clients.find(mine.id) and sum(clients.find(one.id) is not None for one in theirs) == 2


def test_used_clients_without_grants_are_replaced(small_office, clients, clock, monkeypatch) -> None:
    """Twenty thousand clients, allowed by one person in turn, used to keep all others out for three months."""
    office = small_office
    monkeypatch.setattr(module, "MAX_CLIENTS", 3)
    monkeypatch.setattr("gateway.oauth.grants.MAX_GRANTS", 1)
    held, *mine = (clients.register(WEB, peer=f"198.51.{number}.1")[0] for number in range(3))
    for one in (*mine, held):  # a person's newest grant alone stays
        office.connect(client=one.id)
        clock.advance(1)
    clock.advance(1)
    fresh = clients.register(WEB)[0]
    assert [clients.find(one.id) is not None for one in (held, *mine, fresh)] == [True, False, True, True]


def test_requests_without_a_person_fetch_only_authorized_addresses(small_office) -> None:
    """Any caller could make the gateway send requests to any host, 300 times a minute."""
    asked = []
    clients = Clients(small_office.database, SECRETS, lambda address, ask: asked.append((address, ask)))
    for address in ("https://a.example/c", "https://b.example/c", "https://\ud800.example/c", "https://a\0.example/c"):
        if "b.example" in address:
            small_office.connect(client=address)
        assert clients.find_for_token_request(address) is None
    assert asked == [("https://a.example/c", False), ("https://b.example/c", True)]


# Applications described at an address: fetched guarded and short, kept an hour, right to the letter.

ADDRESS = "https://app.example/client.json"
RIGHT = {"client_id": ADDRESS, "client_name": "An app", "redirect_uris": ["http://localhost/cb"]}


@dataclass
class Web:
    """Answers every address with one document, and counts."""

    body: bytes = json.dumps(RIGHT).encode()
    status: int = 200
    asked: int = 0
    error: GatewayError | None = None

    def fetch(self, url, max_bytes, *, timeout_s, headers, redirects):
        assert max_bytes == MAX_BYTES and redirects == 0 and timeout_s <= 5
        assert headers["accept"] == "application/json" and headers["user-agent"]
        self.asked += 1
        if self.error is not None:
            raise self.error
        if not self.body:
            raise UpstreamUnreachable("Nothing answers.")
        return SimpleNamespace(status=self.status, body=self.body)


@pytest.fixture
def web() -> Web:
    return Web()


@pytest.fixture
def found(small_office, web, clock) -> ClientDocuments:
    return ClientDocuments(Documents(small_office.database), web, clock)


def test_a_document_is_fetched_once_an_hour_for_all_workers(small_office, found, web, clock) -> None:
    client = found.find(ADDRESS)
    assert (client.id, client.name, client.method) == (ADDRESS, "An app", "none")
    assert client.allows_redirect("http://localhost:7777/cb") and not client.allows_redirect("https://evil.example/")
    assert ClientDocuments(Documents(small_office.database), web, clock).find(ADDRESS) == client and web.asked == 1
    clock.advance(TTL_S + 1)
    assert found.find(ADDRESS) == client and web.asked == 2


@pytest.mark.parametrize(
    "document",
    [
        {**RIGHT, "client_id": ADDRESS + "/"},
        {**RIGHT, "client_id": None},
        {**RIGHT, "client_secret": "s"},
        {**RIGHT, "redirect_uris": []},
        {**RIGHT, "redirect_uris": ["javascript:x"]},
        {**RIGHT, "grant_types": ["client_credentials"]},
        [RIGHT],
        "",
        None,
    ],
)
def test_a_wrong_document_is_no_client_and_is_requested_again(found, web, document) -> None:
    web.body = json.dumps(document).encode()
    assert found.find(ADDRESS) is None
    web.body = json.dumps(RIGHT).encode()
    assert found.find(ADDRESS) is not None


@pytest.mark.parametrize(("status", "body"), [(404, b"{}"), (302, b""), (200, b"<html>"), (200, b"[" * 9000)])
def test_invalid_metadata_documents_are_no_clients(found, web, status, body) -> None:
    web.status, web.body = status, body
    assert found.find(ADDRESS) is None


@pytest.mark.parametrize(
    "address",
    [
        *("http://app.example/c", "https://app.example", "https://app.example/", "https://u@app.example/c"),
        *("https://app.example/a/../c", "https://app.example/c#f", "https://app.example/" + "x" * 500, "https:///c"),
    ],
)
def test_other_addresses_are_not_called(found, web, address) -> None:
    assert not may_be_client(address) and found.find(address) is None and web.asked == 0


@pytest.mark.parametrize("host", ["127.0.0.1", "169.254.169.254", "10.0.0.1", "[::1]", "localhost"])
def test_no_address_inside_the_network_is_called(small_office, clock, host) -> None:
    # The gateway's own client, which connects nowhere: the guard stands before.
    timeouts = Timeouts(plain_s=5, stream_s=5, request_s=5, connect_s=1, silence_s=5, heartbeat_s=5)
    security = Security(allow_private_upstreams=False, trusted_origins=(), cors_origins=())
    transport = Transport(timeouts, security)
    dialled = []
    transport._dial = lambda *given: dialled.append(given) or 1 / 0
    found = ClientDocuments(Documents(small_office.database), transport, clock)
    assert found.find(f"https://{host}/client.json") is None
    assert dialled == []
    transport.close()


def test_an_unreachable_host_keeps_sessions_and_a_removed_document_ends_them(found, web, clock) -> None:
    client = found.find(ADDRESS)
    clock.advance(TTL_S + 1)
    web.body, kept = b"", web.body
    assert found.find(ADDRESS) == client
    web.body, web.status = kept, 503
    assert found.find(ADDRESS) == client
    web.status = 404
    assert found.find(ADDRESS) is None
    web.body, web.status = b"", 200
    assert found.find(ADDRESS) is None
    web.body = kept
    assert found.find(ADDRESS) == client
    web.body = b""
    clock.advance(MAX_AGE_S + 1)
    assert found.find(ADDRESS) is None


def test_clients_on_a_forbidden_host_get_the_stored_document(found, web, clock) -> None:
    assert found.find(ADDRESS, False) is None and web.asked == 0
    client = found.find(ADDRESS)
    clock.advance(TTL_S + 1)
    assert found.find(ADDRESS, False) == client and web.asked == 1


@pytest.mark.parametrize(
    ("code", "is_client"),
    [
        ("too_many_redirects", False),
        ("response_too_large", False),
        ("address_not_allowed", False),
        ("invalid_address", False),
        ("timeout", True),
    ],
)
def test_a_document_that_moved_or_grew_ends_its_client_and_a_fault_does_not(found, web, clock, code, is_client) -> None:
    assert found.find(ADDRESS) is not None
    clock.advance(TTL_S + 1)
    web.error = InvalidRequest("It cannot be fetched.", code=code)
    assert (found.find(ADDRESS) is not None) == is_client
