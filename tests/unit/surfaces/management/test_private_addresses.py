"""Addresses that organizations name: where private ones are not allowed, those are refused when they are named."""

from collections.abc import Callable

import pytest
from support.gateways import local_gateway
from support.signed_in_owner import PASSWORD, SignedInOwner

from gateway.configuration.settings import Settings


@pytest.mark.parametrize("allowed", [False, True], ids=["guarded", "allowed"])
def test_a_private_address_is_refused_when_it_is_named(settings: Callable[..., Settings], allowed: bool) -> None:
    environment = {
        "GATEWAY_BOOTSTRAP_PASSWORD": PASSWORD,
        "GATEWAY_ALLOW_PRIVATE_UPSTREAMS": str(allowed).lower(),
    }
    with local_gateway(settings, **environment) as gateway:
        desk = SignedInOwner(gateway.address)
        organization = desk("GET", "/orgs")["organizations"][0]["id"]
        address = "https://10.0.0.7/v1"
        named = [
            (f"/orgs/{organization}/alerts", {"url": address}, "url"),
            (f"/orgs/{organization}/custom-providers", {"name": "own", "baseUrl": address}, "baseUrl"),
            (
                "/keys/provider",
                {"organizationId": organization, "provider": "openai", "token": "sk-own-key", "baseUrl": address},
                "baseUrl",
            ),
        ]
        for path, body, param in named:
            answer = desk.web.post(gateway.address + path, json=body, timeout=20)
            assert answer.status_code == (201 if allowed else 400), answer.text
            if not allowed:
                told = answer.json()
                assert (told["code"], told["param"]) == ("address_not_allowed", param)


def test_a_provider_that_does_not_exist_is_refused_with_the_one_that_was_meant(shared_tenants) -> None:
    owner = shared_tenants["acme owner"]
    body = {"organizationId": owner.organization_id, "provider": "opnai", "token": "sk-own-key"}
    status, told = shared_tenants.call("POST", "/keys/provider", owner, body)
    assert status == 400 and "There is no provider opnai; did you mean openai" in told["message"]
