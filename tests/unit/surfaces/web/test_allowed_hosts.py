"""The gateway accepts its own host names."""

import pytest

from gateway.surfaces.web.allowed_hosts import Hosts

LISTED = Hosts(("llm.example.com", "*.gate.example"), "https://public.example:8443/llm")


@pytest.mark.parametrize(
    ("host", "allowed"),
    [
        ("llm.example.com", True),
        ("LLM.example.com:4001", True),
        ("public.example", True),
        ("a.gate.example", True),
        ("gate.example", False),
        ("evilgate.example", False),
        ("evil.example", False),
        ("llm.example.com.evil.example", False),
        ("", False),
        ("[::1]:4001", False),
    ],
)
def test_names_are_distinguished(host, allowed):
    assert LISTED.allows(host, "/v1/models") == allowed
    assert Hosts().allows(host, "/")


@pytest.mark.parametrize("path", ["/livez", "/healthz", "/health/liveliness", "/readyz", "/health/readiness"])
def test_load_balancers_need_no_name(path):
    assert LISTED.allows("10.0.0.7:4001", path) and not LISTED.allows("10.0.0.7:4001", f"{path}/x")


def test_an_address_of_ipv6_may_be_a_name():
    assert Hosts(("::1",)).allows("[::1]:4001", "/")
