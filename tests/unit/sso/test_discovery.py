"""Discovery of identity providers: what documents are accepted, what is cached, and which addresses are guarded."""

import json
from dataclasses import dataclass, field
from typing import Any

import gevent
import gevent.event
import pytest

from gateway.accounts.identity_providers import IdentityProvider
from gateway.errors import Unavailable, UpstreamUnreachable
from gateway.sso.discovery import (
    MAX_AGE_S,
    MAX_BYTES,
    REFRESH_AFTER_S,
    RETRY_INTERVAL_S,
    ProviderDiscovery,
    ProviderRequests,
)

ISSUER = "https://id.example"


@dataclass
class Answer:
    status: int
    body: bytes


@dataclass
class Web:
    """Answers of an issuer. `asked` holds each request with the flag that it was trusted."""

    document: dict[str, Any] = field(default_factory=dict)
    status: int = 200
    is_away: bool = False
    asked: list[tuple[str, bool]] = field(default_factory=list)

    def request(self, method: str, url: str, headers: Any = (), body: bytes = b"", **more: Any) -> Answer:
        self.asked.append((url, more["trusted"]))
        assert more["max_bytes"] == MAX_BYTES and more["timeout_s"] == 5
        if self.is_away:
            raise UpstreamUnreachable("No connection.")
        return Answer(self.status, json.dumps(self.document).encode())


def document(issuer: str = ISSUER, **changes: Any) -> dict[str, Any]:
    return {
        "issuer": issuer,
        "authorization_endpoint": f"{issuer}/authorize",
        "token_endpoint": f"{issuer}/token",
        "jwks_uri": f"{issuer}/keys",
        **changes,
    }


def provider(issuer: str = ISSUER, trusted: bool = False) -> IdentityProvider:
    return IdentityProvider("idp_1", "" if trusted else "org_1", "Acme", issuer, "gateway", trusted=trusted)


@pytest.fixture
def web() -> Web:
    return Web(document())


@pytest.fixture
def discovery(web: Web, clock: Any) -> ProviderDiscovery:
    return ProviderDiscovery(ProviderRequests(web, 5, lambda provider: provider.organization_id), clock, False)


def test_a_document_is_loaded_once_an_hour(discovery: ProviderDiscovery, web: Web, clock: Any) -> None:
    for _ in range(3):
        assert discovery.find(provider()).token == f"{ISSUER}/token"
    assert web.asked == [(f"{ISSUER}/.well-known/openid-configuration", False)]
    clock.advance(REFRESH_AFTER_S)
    discovery.find(provider())
    assert len(web.asked) == 2


def test_an_outage_of_the_issuer_is_bridged_for_a_day(discovery: ProviderDiscovery, web: Web, clock: Any) -> None:
    discovery.find(provider())
    web.is_away = True
    clock.advance(REFRESH_AFTER_S)
    assert discovery.find(provider()).keys == f"{ISSUER}/keys"
    clock.advance(MAX_AGE_S)
    with pytest.raises(Unavailable):
        discovery.find(provider())


def test_a_failed_fetch_is_not_repeated_at_once(discovery: ProviderDiscovery, web: Web, clock: Any) -> None:
    web.status = 500
    for _ in range(3):
        with pytest.raises(Unavailable):
            discovery.find(provider())
    assert len(web.asked) == 1
    web.status = 200
    clock.advance(RETRY_INTERVAL_S)
    assert discovery.find(provider()).issuer == ISSUER


@pytest.mark.parametrize(
    "changed",
    [
        {"issuer": "https://other.example"},
        {"issuer": f"{ISSUER}/"},
        {"token_endpoint": "http://id.example/token"},
        {"token_endpoint": None},
        {"jwks_uri": "file:///etc/passwd"},
        {"authorization_endpoint": "javascript:alert(1)"},
        {"userinfo_endpoint": "http://169.254.169.254/"},
    ],
)
def test_documents_with_other_issuers_or_unusual_addresses_are_refused(
    discovery: ProviderDiscovery, web: Web, changed: dict[str, Any]
) -> None:
    web.document = document(**changed)
    with pytest.raises(Unavailable):
        discovery.find(provider())


def test_only_the_issuers_host_of_an_operators_provider_may_be_private(web: Web) -> None:
    requests = ProviderRequests(web, 5, lambda provider: provider.organization_id)
    own = provider("http://keycloak.internal:8080/realms/acme", trusted=True)
    for url in (f"{own.issuer}/token", "http://keycloak.internal:9000/token", "https://169.254.169.254/"):
        requests.send(own, "GET", url)
    requests.send(provider(), "GET", f"{ISSUER}/token")
    assert [trusted for _, trusted in web.asked] == [True, False, False, False]


def test_documents_of_organizations_do_not_mix(discovery: ProviderDiscovery, web: Web) -> None:
    discovery.find(provider())
    web.document = document(token_endpoint=f"{ISSUER}/other")
    assert discovery.find(provider(trusted=True)).token == f"{ISSUER}/other"
    assert discovery.find(provider()).token == f"{ISSUER}/token"


def test_one_person_with_many_organizations_delays_nobody_else() -> None:
    """Fifteen organizations of one person with silent providers took all slots of the worker."""
    hangs = gevent.event.Event()

    class HangingWeb:
        def request(self, method: str, url: str, *given: Any, **more: Any) -> Answer:
            if "hanging" in url:
                hangs.wait()
            return Answer(200, b"{}")

    owners = {f"org_eve_{number}": "user_eve" for number in range(15)}
    requests = ProviderRequests(HangingWeb(), 5, lambda provider: owners.get(provider.organization_id, "user_ada"))
    hanging = [
        gevent.spawn(requests.send, IdentityProvider("idp", name, "Eve", "https://hanging.example", "c"), "GET", url)
        for name in owners
        for url in ["https://hanging.example/token"] * 4
    ]
    gevent.sleep(0)
    with gevent.Timeout(2):
        assert requests.send(provider(), "GET", f"{ISSUER}/token")[0] == 200
    hangs.set()
    assert [one.get()[0] for one in hanging] == [200] * 60
