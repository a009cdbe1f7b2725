"""The caller's address behind proxies: taken from the headers of trusted peers only, from the right."""

from collections.abc import Iterable, Mapping
from functools import lru_cache
from ipaddress import ip_address, ip_network

from gateway.configuration.settings import Server

ANY_PROXY = "*"
CACHE_SIZE = 4096


class Proxies:
    """The trusted proxies. `header` (lower case, "" = none) is where each proxy appends the address that it saw, `hops`
    the number of proxies in a row: entries further to the left are the caller's own claims."""

    def __init__(self, header: str = "", networks: Iterable[str] = (), hops: int = 1) -> None:
        self._header = header.lower()
        self.named = bool(header)
        self._hops = max(1, hops)
        given = tuple(networks)
        self._open = ANY_PROXY in given
        self._networks = tuple(ip_network(network, strict=False) for network in given if network != ANY_PROXY)
        self.trusts = lru_cache(CACHE_SIZE)(self._trusts)

    def caller(self, peer: str, headers: Mapping[str, str]) -> str:
        """Return the caller's address; "" if it cannot be determined, which fails every rule on addresses. `peer` is
        the socket's address: the caller itself, unless it is a trusted proxy that reports another one."""
        named = headers.get(self._header) if self._header else None
        if named is None or not self.trusts(peer):
            return peer
        entries = named.split(",")
        if len(entries) >= self._hops:
            return read_address(entries[-self._hops])
        return ""

    def _trusts(self, peer: str) -> bool:
        """Return whether `peer` is a trusted proxy. A Unix socket has no address and is trusted."""
        if self._open or not peer:
            return True
        text = read_address(peer)
        if not text:
            return False
        address = ip_address(text)
        return any(address in network for network in self._networks)


def make_proxies(server: Server) -> Proxies:
    """Return the trusted proxies from the settings."""
    return Proxies(server.client_ip_header, server.trusted_proxies, server.proxy_hops)


def read_address(text: str) -> str:
    """Return an address without port, brackets or zone, an IPv4-mapped IPv6 address as IPv4; "" for any other text."""
    text = text.strip().strip('"')
    if text.startswith("["):
        text = text[1:].partition("]")[0]
    elif text.count(":") == 1:
        text = text.partition(":")[0]
    try:
        address = ip_address(text.partition("%")[0])
    except ValueError:
        return ""
    return str(getattr(address, "ipv4_mapped", None) or address)
