"""The network addresses that an untrusted URL may lead to, and the lookup of names."""

import ipaddress
import re
from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlsplit

from gevent import socket
from gevent.monkey import get_original

from gateway.errors import ConnectFailed, InvalidRequest, UpstreamUnreachable
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.fair_threads import FairSlots
from gateway.runtime.threads import Threads, work_owner

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], list[str]]

# The system's resolver, which blocks the calling thread.
system_look_up = get_original("socket", "getaddrinfo")
NETWORK_BITS = 64  # bits of an IPv6 network: a caller with one address of a network can use all of them
WIDE_BITS = {4: 24, 6: 48}  # bits of a network in `wide_network_of`
MAX_URL_LENGTH = 2_000  # characters of a webhook address
# Simultaneous lookups of callers' names in all, of one organization, and of one zone. A caller with an unresponsive
# name server occupies its threads for as long as the system's resolver waits, which is ten seconds and more.
CONCURRENT_LOOKUPS = 32
OF_OWNER = 16
OF_ZONE = 2
MAX_WAITING = 1 << 20  # more than there are requests

GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Numerically within the public ranges, but not public: IETF protocol assignments (RFC 6890; some clouds' metadata
# services), the retired 6to4 relays (RFC 7526), a cloud's host services, Teredo (RFC 4380), 6to4 (RFC 3056) and the
# second documentation prefix (RFC 9637).
REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16", "3fff::/20")
)
LOCALHOST = re.compile(r"(?:^|\.)localhost\.?$", re.IGNORECASE)  # RFC 6761, section 6.3
# The "ends in a number" rule of the WHATWG URL standard, section 3.5: such a host is an IPv4 address or a mistake.
NUMERIC_END = re.compile(r"(?:^|\.)(?:\d+|0[xX][0-9a-fA-F]*)\.?$")


def resolve(host: str, port: int) -> list[str]:
    """Return the addresses of `host` in the system's order, without duplicates. UpstreamUnreachable without any."""
    return _resolve(host, port, socket.getaddrinfo)


class CallerNameLookups:
    """Looks up names that callers chose, in separate threads. A name server that never answers delays only names of its
    zone, and many of them only the names of one organization."""

    def __init__(self) -> None:
        self._threads = Threads(CONCURRENT_LOOKUPS)
        self._zones = FairSlots(MAX_WAITING, each=OF_ZONE)
        self._owners = FairSlots(CONCURRENT_LOOKUPS, each=OF_OWNER)
        self._running: SharedCalls[tuple[Any, ...], Any] = SharedCalls()

    def resolve(self, host: str, port: int) -> list[str]:
        """Return the addresses like `resolve`. Waits for one of the OF_ZONE simultaneous lookups of a zone; calls for
        the same name share a lookup."""
        return _resolve(host, port, self._share_lookup)

    def _share_lookup(self, *query: Any) -> Any:
        return self._running.run(query, partial(self._look_up, *query))

    def _look_up(self, host: str, *more: Any) -> Any:
        zone = zone_of(host)
        owner = work_owner()
        self._zones.enter(zone)
        try:
            self._owners.enter(owner)
        except BaseException:
            self._zones.leave(zone)
            raise

        def give_back() -> None:
            self._owners.leave(owner)
            self._zones.leave(zone)

        # The thread of a caller that gave up stays occupied, so the place is free only when the lookup has ended.
        return self._threads.finish(partial(_system_addresses, host, *more), give_back)


def zone_of(host: str) -> str:
    """Return the last labels of a name, roughly the part that one owner registers: two, or three below a short label of
    a country ("co.uk")."""
    labels = host.lower().rstrip(".").split(".")
    short = len(labels) > 2 and len(labels[-1]) == 2 and len(labels[-2]) <= 3
    return ".".join(labels[-3:] if short else labels[-2:])


def _system_addresses(*query: Any) -> Any:
    """Return the addresses that the system finds; none for an error, which the thread would log as uncaught."""
    try:
        return system_look_up(*query)
    except (OSError, ValueError):
        return ()


def _resolve(host: str, port: int, look_up: Callable[..., Any]) -> list[str]:
    literal = read_literal(host)
    if literal is not None:
        return [str(literal)]
    try:
        entries = look_up(host, port, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        entries = ()
    if not entries:
        raise ConnectFailed(f"The name {host} cannot be resolved.")
    return list(dict.fromkeys(entry[4][0] for entry in entries))


def check_public(host: str, addresses: list[str]) -> None:
    """Refuse a host with an unusual spelling or with an address that is not public, so that none can be swapped in.

    Raises UpstreamUnreachable, code address_not_allowed; the message never contains the address.
    """
    odd = NUMERIC_END.search(host) and read_literal(host) is None
    if odd or not addresses or not all(is_public(text) for text in addresses):
        raise UpstreamUnreachable(_refusal(host), code="address_not_allowed")


def check_host(host: str) -> None:
    """Refuse a host that is not public as spelled, when a proxy looks up its name. Raises as `check_public`."""
    if not _may_be_public(host):
        raise UpstreamUnreachable(_refusal(host), code="address_not_allowed")


def read_receiver(url: str, param: str) -> str:
    """Check and return a webhook address. InvalidRequest unless it is an http or https address without user and
    password."""
    text = url.strip()
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        fine = False
    if not fine or len(text) > MAX_URL_LENGTH or not text.isprintable() or " " in text:
        raise InvalidRequest("Give an http or https address without a user and password in it.", param=param)
    return text


def check_spelling(url: str, param: str) -> None:
    """Refuse a URL to be stored if its host is not public as spelled. A name is looked up and checked at each call.

    Raises InvalidRequest, code address_not_allowed.
    """
    host = urlsplit(url).hostname or ""
    if not _may_be_public(host):
        raise InvalidRequest(_refusal(host), param=param, code="address_not_allowed")


def _may_be_public(host: str) -> bool:
    """Return whether a host is a public address, or a name that may lead to one."""
    if read_literal(host) is not None:
        return is_public(host)
    return not LOCALHOST.search(host) and not NUMERIC_END.search(host)


def _refusal(host: str) -> str:
    return (
        f"The host {host[:200]} does not lead to a public address. "
        "The operator can allow private ones with GATEWAY_ALLOW_PRIVATE_UPSTREAMS."
    )


def is_public(text: str) -> bool:
    """Return whether an address belongs to the public internet; IPv6 forms that wrap an IPv4 address do not.

    Addresses with NAT64's well-known prefix (RFC 6052) are judged by the wrapped address, since IPv6-only networks need
    them.
    """
    address = read_literal(text)
    if address is None:
        return False
    if isinstance(address, ipaddress.IPv6Address) and address in NAT64:
        address = ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    if any(address in network for network in REFUSED_NETWORKS if network.version == address.version):
        return False
    if isinstance(address, ipaddress.IPv6Address) and address not in GLOBAL_V6:
        return False
    return address.is_global and not address.is_multicast and not address.is_reserved


def read_literal(text: str) -> Address | None:
    """Return the address that `text` spells strictly (dotted quad, RFC 4291 without zone), else None."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if getattr(address, "scope_id", None):
        return None
    return address


def wide_network_of(address: str) -> str:
    """Return the network by which entries of shared tables are counted, as one customer of a provider may have it: the
    /24 of an IPv4 address, the /48 of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        parsed = parsed.ipv4_mapped or parsed
    return str(ipaddress.ip_network((parsed, WIDE_BITS[parsed.version]), strict=False))


def network_of(address: str) -> str:
    """Return the address by which callers are counted: itself, or the network of an IPv6 address."""
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return address
    if not isinstance(parsed, ipaddress.IPv6Address) or parsed.ipv4_mapped:
        return str(getattr(parsed, "ipv4_mapped", None) or parsed)
    return f"net-{int(parsed) >> NETWORK_BITS:x}"
