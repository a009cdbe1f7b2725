"""The caller's address is the one that trusted proxies saw, never the caller's own claim."""

import pytest

from gateway.surfaces.web.origins import Hosts, Proxies, read_address, takes_keys

HEADER = "x-forwarded-for"


@pytest.mark.parametrize(
    ("peer", "hops", "named", "address"),
    [
        ("127.0.0.1", 1, "9.9.9.9", "9.9.9.9"),
        ("127.0.0.1", 1, "1.1.1.1, 9.9.9.9", "9.9.9.9"),
        ("127.0.0.1", 2, "1.1.1.1, 9.9.9.9, 10.0.0.2", "9.9.9.9"),
        ("127.0.0.1", 2, "9.9.9.9", ""),
        ("127.0.0.1", 1, "unknown", ""),
        ("127.0.0.1", 1, "", ""),
        ("127.0.0.1", 1, "1.1.1.1,", ""),
        ("127.0.0.1", 1, "9.9.9.9:443", "9.9.9.9"),
        ("127.0.0.1", 1, "[2001:db8::1]:443", "2001:db8::1"),
        ("127.0.0.1", 1, "::ffff:9.9.9.9", "9.9.9.9"),
        ("127.0.0.1", 1, None, "127.0.0.1"),
        ("::ffff:127.0.0.1", 1, "9.9.9.9", "9.9.9.9"),
        ("8.8.8.8", 1, "9.9.9.9", "8.8.8.8"),
        ("10.1.2.3", 1, "9.9.9.9", "9.9.9.9"),
        ("", 1, "9.9.9.9", "9.9.9.9"),
    ],
)
def test_entries_are_counted_from_the_right_and_believed_of_trusted_peers(peer, hops, named, address):
    proxies = Proxies(HEADER, ("127.0.0.1", "10.0.0.0/8"), hops)
    assert proxies.caller(peer, {} if named is None else {HEADER: named}) == address


def test_without_a_header_the_peer_is_the_caller():
    assert Proxies("", ("*",)).caller("8.8.8.8", {HEADER: "9.9.9.9"}) == "8.8.8.8"


@pytest.mark.parametrize("text", ["", "localhost", "1.2.3", "[::1", "a:b:c", "1.2.3.4.5:1"])
def test_an_invalid_address_is_empty(text):
    assert read_address(text) in ("", "::1")


# The gateway accepts its own host names.

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


# The paths that pages of other origins may call: those with keys, and no path with a session of the console.


@pytest.mark.parametrize(
    "path",
    [
        *("/v1/chat/completions", "/v1/ai/language-model", "/v3/ai/language-model", "/v4/ai/language-model"),
        *("/v1beta/models/gemini:generateContent", "/mcp", "/mcp/.well-known/openid-configuration"),
        *("/oauth/register", "/oauth/token", "/oauth/revoke", "/.well-known/oauth-authorization-server"),
    ],
)
def test_a_page_may_call_operations_that_take_keys(path: str) -> None:
    assert takes_keys(path)


@pytest.mark.parametrize("path", ["/console/keys", "/orgs", "/auth/login", "/oauth/authorize", "/metrics"])
def test_a_page_may_not_call_operations_that_take_sessions(path: str) -> None:
    assert not takes_keys(path)
