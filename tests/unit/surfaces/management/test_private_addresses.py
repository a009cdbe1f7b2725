"""Addresses that organizations name: where private ones are not allowed, those are refused when they are named."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from support.management import Tenants
from support.management_bodies import BODIES, fill_path, furnish, title

from gateway.surfaces.management.table import OPERATIONS
from gateway.surfaces.web.http import Operation

# Fields of bodies with an address that the gateway calls.
ADDRESSES = ("url", "baseUrl", "issuer", "jwksUrl")
NAMED = [
    (row, name)
    for row in OPERATIONS
    if row.about and row.about.request
    for name in row.about.request().fields
    if name in ADDRESSES
]
HOSTS = ("10.0.0.7", "[::ffff:10.0.0.7]", "0x0a000007", "167772167", "localhost", "[fd00:ec2::254]", "10.0.0.7.")


@pytest.fixture(scope="module")
def guarded(make_tenants: Callable[..., Any]) -> Iterator[Tenants]:
    with make_tenants(GATEWAY_ALLOW_PRIVATE_UPSTREAMS="false") as gateway:
        yield Tenants(gateway)


@pytest.fixture(scope="module")
def things(guarded: Tenants) -> dict[str, str]:
    return furnish(guarded, "acme")


@pytest.mark.parametrize("operation, name", NAMED, ids=title)
def test_a_private_address_is_refused_when_it_is_named(
    guarded: Tenants, things: dict[str, str], operation: Operation, name: str
) -> None:
    owner = guarded["acme owner"]
    assert operation.about and operation.about.request
    ids = {**things, "key_id": things["provider_key"]}
    path = fill_path(operation.path, ids)
    for host in HOSTS:
        body = {**BODIES[operation.about.request.__name__](owner), name: f"https://{host}/v1"}
        status, answer = guarded.call(operation.method, path, owner, body)
        assert (status, answer["code"], answer["param"]) == (400, "address_not_allowed", name), (host, answer)


def test_a_private_address_may_be_named_where_they_are_allowed(shared_tenants: Tenants) -> None:
    owner = shared_tenants["acme owner"]
    address = "https://10.0.0.7/v1"
    provider = {"name": "own", "baseUrl": address}
    shared_tenants.ok("POST", f"/orgs/{owner.organization_id}/alerts", owner, {"url": address})
    shared_tenants.ok("POST", f"/orgs/{owner.organization_id}/custom-providers", owner, provider)


def test_a_provider_that_does_not_exist_is_refused_with_the_one_that_was_meant(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    body = {"organizationId": owner.organization_id, "provider": "opnai", "token": "sk-own-key"}
    status, told = shared_tenants.call("POST", "/keys/provider", owner, body)
    assert status == 400 and "There is no provider opnai; did you mean openai" in told["message"]
