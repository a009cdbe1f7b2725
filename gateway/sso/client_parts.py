"""The parts of the OpenID client that outlive a request: guarded requests, discovery documents and cached keys."""

from collections.abc import Callable, Mapping
from functools import partial

from msgspec import Struct

from gateway.accounts.identity_providers import IdentityProvider, IdentityProviders
from gateway.accounts.issuer_keys import IssuerKeys, KeyStore, fetch_over
from gateway.clock import Clock
from gateway.sso.discovery import GuardedTransport, ProviderDiscovery, ProviderRequests


class ClientParts(Struct, frozen=True):
    """`keys` caches keys of guarded issuers; `trusted_keys` those of each provider of the operator, by its id."""

    requests: ProviderRequests
    discovery: ProviderDiscovery
    keys: IssuerKeys
    trusted_keys: Mapping[str, IssuerKeys]
    clock: Clock


def make_client_parts(
    transport: GuardedTransport,
    store: KeyStore,
    clock: Clock,
    providers: IdentityProviders,
    *,
    timeout_s: float,
    allow_private: bool,
    owner_of: Callable[[IdentityProvider], str],
) -> ClientParts:
    """Return the parts of a worker. `allow_private`: addresses of organizations may be http and private;
    `owner_of` as in ProviderRequests."""
    requests = ProviderRequests(transport, timeout_s, owner_of)
    trusted = {
        provider.id: IssuerKeys(partial(_fetch, requests, provider), store, clock) for provider in providers.configured
    }
    return ClientParts(
        requests,
        ProviderDiscovery(requests, clock, allow_private),
        IssuerKeys(fetch_over(transport), store, clock),
        trusted,
        clock,
    )


def _fetch(requests: ProviderRequests, provider: IdentityProvider, url: str) -> tuple[int, bytes]:
    return requests.send(provider, "GET", url)
