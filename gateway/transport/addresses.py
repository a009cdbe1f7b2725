"""Which network addresses a URL that somebody else chose may lead to, and how names are looked up."""

import ipaddress
import re
from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

from gevent import socket
from gevent.monkey import get_original

from gateway.errors import ConnectFailed, InvalidRequest, UpstreamUnreachable
from gateway.runtime.call_merging import SharedCalls
from gateway.runtime.threads import Slots, Threads

Address = ipaddress.IPv4Address | ipaddress.IPv6Address
Resolver = Callable[[str, int], list[str]]

# The system's own, which waits in the thread that calls it.
system_look_up = get_original("socket", "getaddrinfo")
LONGEST_URL = 2_000  # of a receiver
# Lookups of callers' names at the same time, and those of one zone: a caller whose name service never answers holds its
# threads for as long as the system's resolver waits, ten seconds and more.
AT_ONCE = 32
OF_ZONE = 2

GLOBAL_V6 = ipaddress.IPv6Network("2000::/3")
NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
# Inside the public ranges by number, yet not public: IETF protocol assignments (RFC 6890; a cloud's metadata lives
# there), the retired 6to4 relays (RFC 7526), a cloud's host services, Teredo (RFC 4380), 6to4 (RFC 3056) and the
# second documentation prefix (RFC 9637).
REFUSED_NETWORKS = tuple(
    ipaddress.ip_network(text)
    for text in ("192.0.0.0/24", "192.88.99.0/24", "168.63.129.16/32", "2001::/23", "2002::/16", "3fff::/20")
)
HERE = re.compile(r"(?:^|\.)localhost\.?$", re.IGNORECASE)  # RFC 6761, section 6.3
# The "ends in a number" rule of the WHATWG URL standard, section 3.5: such a host is an IPv4 address or a mistake.
NUMERIC_END = re.compile(r"(?:^|\.)(?:\d+|0[xX][0-9a-fA-F]*)\.?$")


def resolve(host: str, port: int) -> list[str]:
    """Addresses of `host` in the system's order, each once. UpstreamUnreachable when there is none."""
    return _resolve(host, port, socket.getaddrinfo)


class StrangersNames:
    """Looks up names that callers chose, in threads of their own. A name service that never answers delays the names of
    its zone, neither those of other callers nor the providers'."""

    def __init__(self) -> None:
        self._threads = Threads(AT_ONCE)
        self._zones: dict[str, _Zone] = {}
        self._running: SharedCalls[tuple[Any, ...], Any] = SharedCalls()

    def resolve(self, host: str, port: int) -> list[str]:
        """As `resolve`; waits until a lookup of the same zone has ended where OF_ZONE are running. Calls for one name
        at the same time share its lookup."""
        return _resolve(host, port, lambda *asked: self._running.run(asked, lambda: self._look_up(*asked)))

    def _look_up(self, host: str, *more: Any) -> Any:
        name = zone_of(host)
        zone = self._zones.get(name)
        if zone is None:
            zone = self._zones[name] = _Zone()
        zone.users += 1

        def leave() -> None:
            zone.users -= 1
            if not zone.users:
                del self._zones[name]

        def give_back() -> None:
            zone.places.give()
            leave()

        try:
            zone.places.take(None)
        except BaseException:
            leave()
            raise
        # A caller that gave up leaves its thread occupied: the place is free when the lookup has ended.
        return self._threads.finish(lambda: _found(host, *more), give_back)


class _Zone:
    """The lookups of one zone: `users` are those that run or wait."""

    def __init__(self) -> None:
        self.places = Slots(OF_ZONE)
        self.users = 0


def zone_of(host: str) -> str:
    """The last labels of a name, roughly what one owner registers: two, three below a short label of a country
    ("co.uk")."""
    labels = host.lower().rstrip(".").split(".")
    short = len(labels) > 2 and len(labels[-1]) == 2 and len(labels[-2]) <= 3
    return ".".join(labels[-3:] if short else labels[-2:])


def _found(*asked: Any) -> Any:
    """The addresses that the system finds; none where that fails, since an error in the thread would be logged as
    uncaught."""
    try:
        return system_look_up(*asked)
    except (OSError, ValueError):
        return ()


def _resolve(host: str, port: int, look_up: Callable[..., Any]) -> list[str]:
    literal = read_literal(host)
    if literal is not None:
        return [str(literal)]
    try:
        found = look_up(host, port, 0, socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        found = ()
    if not found:
        raise ConnectFailed(f"The name {host} cannot be resolved.")
    return list(dict.fromkeys(entry[4][0] for entry in found))


def check_public(host: str, addresses: list[str]) -> None:
    """Refuse a host of odd spelling, or one of whose addresses is not public (so none can be swapped in later).

    Raises UpstreamUnreachable, code address_not_allowed; the text never tells the address that was found.
    """
    odd = NUMERIC_END.search(host) and read_literal(host) is None
    if odd or not addresses or not all(is_public(text) for text in addresses):
        raise UpstreamUnreachable(_refusal(host), code="address_not_allowed")


def read_receiver(url: str, param: str) -> str:
    """The address that somebody wants to be told at. InvalidRequest for what is no http or https address, or has a user
    or a password in it."""
    text = url.strip()
    try:
        parts = urlsplit(text)
        fine = parts.scheme in ("http", "https") and bool(parts.hostname) and parts.username is None
    except ValueError:
        fine = False
    if not fine or len(text) > LONGEST_URL or not text.isprintable() or " " in text:
        raise InvalidRequest("Give an http or https address without a user and password in it.", param=param)
    return text


def check_spelling(url: str, param: str) -> None:
    """Refuse the URL that somebody wants kept if its host is no public one as it is spelled; a name is looked up, and
    checked, whenever it is called.

    Raises InvalidRequest, code address_not_allowed.
    """
    host = urlsplit(url).hostname or ""
    literal = read_literal(host) is not None
    if HERE.search(host) or (literal and not is_public(host)) or (not literal and NUMERIC_END.search(host)):
        raise InvalidRequest(_refusal(host), param=param, code="address_not_allowed")


def _refusal(host: str) -> str:
    return (
        f"The host {host[:200]} does not lead to a public address. "
        "The operator can allow private ones with GATEWAY_ALLOW_PRIVATE_UPSTREAMS."
    )


def is_public(text: str) -> bool:
    """Whether an address belongs to the public internet; forms that wrap an IPv4 address in IPv6 do not.

    NAT64's well-known prefix (RFC 6052) is judged by what it wraps, since networks with IPv6 alone need it.
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
    """The address that `text` spells in its strict form (dotted quad, RFC 4291 without zone), else None."""
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return None
    if getattr(address, "scope_id", None):
        return None
    return address
