"""Applications described at an address: fetched guarded and short, kept an hour, right to the letter."""

import json
from dataclasses import dataclass
from types import SimpleNamespace

import pytest

from gateway.configuration.settings import Security, Timeouts
from gateway.errors import GatewayError, InvalidRequest, UpstreamUnreachable
from gateway.oauth.client_documents import MAX_AGE_S, MAX_BYTES, TTL_S, ClientDocuments, may_be_client
from gateway.store.documents import Documents
from gateway.transport import Transport

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


def test_clients_whose_host_may_not_be_called_get_the_stored_document(found, web, clock) -> None:
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
