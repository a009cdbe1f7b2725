"""The caller's address is the one that trusted proxies saw, never the caller's own claim."""

import pytest

from gateway.surfaces.web.proxies import Proxies, read_address

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
