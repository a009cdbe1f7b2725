"""The way to each destination: the forward proxy, and the certificates of TLS."""

import base64
import ipaddress
import re
from collections.abc import Callable, Sequence
from typing import Any

from gevent.ssl import SSLContext, create_default_context
from msgspec import Struct

from gateway.configuration.outgoing_settings import DEFAULT_PORT, DIRECT, Outgoing, proxy_credentials, split_proxy
from gateway.errors import ConnectFailed
from gateway.transport.request_bytes import Origin

ROUTES_KEPT = 1000
NO_OUTGOING = Outgoing("", "", (), True, "")
ANY = "*"


class ForwardProxy(Struct, frozen=True):
    """A proxy that forwards requests for http and tunnels TLS (RFC 9110, 9.3.6). `authorization` is the value of
    Proxy-Authorization, "" without credentials."""

    host: str
    port: int
    authorization: str = ""

    @property
    def name(self) -> str:
        """The proxy for messages, without credentials."""
        return f"{self.host}:{self.port}"

    def __repr__(self) -> str:
        return f"ForwardProxy({self.name})"


class ProviderRoute(Struct, frozen=True):
    """The way to one provider: to all hosts that match `hosts`.

    `proxy` None: that of all destinations; "direct": none. The client certificate is sent with the platform's
    credentials alone.
    """

    hosts: re.Pattern[str]
    proxy: str | None = None
    ca_file: str = ""
    certificate_file: str = ""
    key_file: str = ""


class Route(Struct, frozen=True):
    """The way to one destination. `tls` returns the context for TLS with it."""

    proxy: ForwardProxy | None
    tls: Callable[[], SSLContext]


class OutgoingRoutes:
    """Chooses the way to each destination. `tls` replaces the context with the system's authorities."""

    def __init__(self, settings: Outgoing = NO_OUTGOING, tls: SSLContext | None = None) -> None:
        self.checks_names = settings.check_names
        self._ca_file = settings.ca_file
        self._direct = DirectDestinations(settings.no_proxy)
        self._proxies = {
            scheme: read_proxy(value)
            for scheme, value in (("https", settings.https_proxy), ("http", settings.http_proxy))
            if value
        }
        self._providers: Sequence[ProviderRoute] = ()
        self._given_tls = tls
        self._contexts: dict[tuple[str, str, str], SSLContext] = {}
        self._routes: dict[Origin, Route] = {}

    def use(self, providers: Sequence[ProviderRoute]) -> None:
        """Set the ways of single providers, before the first call."""
        self._providers = providers
        self._routes.clear()

    def find(self, origin: Origin) -> Route:
        """Return the way to a destination."""
        route = self._routes.get(origin)
        if route is None:
            if len(self._routes) >= ROUTES_KEPT:  # callers choose addresses
                self._routes.clear()
            route = self._routes[origin] = self._choose(origin)
        return route

    def _choose(self, origin: Origin) -> Route:
        own = next((route for route in self._providers if route.hosts.fullmatch(origin.host)), None)
        certificate, key, ca_file = "", "", ""
        proxy = None
        if not is_local(origin.host):
            if own is not None and own.proxy is not None:
                proxy = None if own.proxy == DIRECT else read_proxy(own.proxy)
            elif not self._direct.covers(origin.host, origin.port):
                proxy = self._proxies.get(origin.scheme)
        if own is not None:
            ca_file = own.ca_file
            if origin.trusted:
                certificate, key = own.certificate_file, own.key_file
        return Route(proxy, lambda: self._context(ca_file, certificate, key))

    def _context(self, ca_file: str, certificate: str, key: str) -> SSLContext:
        """Return a context; each is created on first use, since reading the system's authorities takes some 20 ms."""
        wanted = ca_file, certificate, key
        context = self._contexts.get(wanted)
        if context is None:
            if self._given_tls is not None and not any(wanted):
                return self._given_tls
            context = self._contexts[wanted] = make_context((self._ca_file, ca_file), certificate, key)
        return context


def make_context(ca_files: Sequence[str], certificate: str = "", key: str = "") -> SSLContext:
    """Return a TLS context with the system's authorities, those of the files, and a client certificate. OSError for a
    file that cannot be read (ssl.SSLError, a subclass, for one without certificates)."""
    context = create_default_context()
    context.set_alpn_protocols(["http/1.1"])
    for path in ca_files:
        if path:
            context.load_verify_locations(cafile=path)
    if certificate:
        context.load_cert_chain(certificate, key or None)
    return context


class DirectDestinations:
    """The destinations without a proxy (NO_PROXY): `example.com` with all names below it, `.example.com` for these
    alone, addresses and networks, each also with a port, and `*`."""

    def __init__(self, entries: Sequence[str]) -> None:
        self._all = ANY in entries
        # The ending of names below it, whether the name itself belongs to it, the port.
        self._names: list[tuple[str, bool, int | None]] = []
        self._networks: list[tuple[ipaddress.IPv4Network | ipaddress.IPv6Network, int | None]] = []
        for entry in entries:
            self._add(entry.strip().lower())

    def covers(self, host: str, port: int) -> bool:
        """Whether a destination is reached directly."""
        if self._all:
            return True
        address = _read_address(host)
        if address is not None:
            return any(address in network and wanted in (None, port) for network, wanted in self._networks)
        name = host.lower().rstrip(".")
        return any(
            wanted in (None, port) and (name.endswith(ending) or (name == ending[1:] and whole))
            for ending, whole, wanted in self._names
        )

    def _add(self, entry: str) -> None:
        text, port = _split_port(entry)
        try:
            self._networks.append((ipaddress.ip_network(text.strip("[]"), strict=False), port))
        except ValueError:
            name = text.removeprefix("*").rstrip(".")
            if name.strip("."):
                self._names.append(("." + name.lstrip("."), name[0] != ".", port))


def _split_port(entry: str) -> tuple[str, int | None]:
    """Split `name:port`; an IPv6 address has its port behind brackets."""
    text, colon, port = entry.rpartition(":")
    if colon and port.isascii() and port.isdigit() and (":" not in text or text.endswith("]")):
        return text, int(port)
    return entry, None


def _read_address(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def is_local(host: str) -> bool:
    """Whether a host is this machine or its link, such as the metadata service of a cloud: no proxy leads there."""
    address = _read_address(host)
    if address is None:
        return host.lower().rstrip(".") == "localhost"
    return address.is_loopback or address.is_link_local


def read_proxy(value: str) -> ForwardProxy:
    """Return the proxy at a valid address."""
    parts = split_proxy(value)
    authorization = ""
    credentials = proxy_credentials(value)
    if credentials is not None:
        authorization = "Basic " + base64.b64encode(":".join(credentials).encode()).decode()
    return ForwardProxy(parts.hostname or "", parts.port or DEFAULT_PORT, authorization)


# A tunnel through a forward proxy by CONNECT (RFC 9110, section 9.3.6).

MAX_CONNECT_HEAD_BYTES = 65_536
RECEIVE_BYTES = 4_096
STATUS_LINE = re.compile(rb"HTTP/1\.[01] (\d{3})(?: ([^\r\n]{0,100}))?")
PROXY_AUTHENTICATION_REQUIRED = 407


def open_tunnel(sock: Any, proxy: ForwardProxy, origin: Origin) -> None:
    """Ask the proxy at `sock` to connect to `origin`; from then on the socket leads there.

    ConnectFailed with the proxy's name if it refuses; OSError as the socket.
    """
    host = f"[{origin.host}]" if ":" in origin.host else origin.host
    lines = [f"CONNECT {host}:{origin.port} HTTP/1.1", f"host: {host}:{origin.port}"]
    if proxy.authorization:
        lines.append(f"proxy-authorization: {proxy.authorization}")
    sock.sendall(("\r\n".join(lines) + "\r\n\r\n").encode("ascii"))
    head = _receive_head(sock, proxy)
    match = STATUS_LINE.match(head)
    if match is None:
        raise ConnectFailed(f"The proxy {proxy.name} does not speak HTTP.")
    status = int(match[1])
    if 200 <= status < 300:
        return
    if status == PROXY_AUTHENTICATION_REQUIRED:
        wrong = "refused the user and password" if proxy.authorization else "requires a user and password"
        raise ConnectFailed(f"The proxy {proxy.name} {wrong} (407).")
    raise ConnectFailed(f"The proxy {proxy.name} refused a connection to {origin.host} ({status}).")


def _receive_head(sock: Any, proxy: ForwardProxy) -> bytes:
    """Return the head of the response. No byte of the tunnel can follow it, since TLS begins with the client."""
    received = bytearray()
    while b"\r\n\r\n" not in received:
        data = sock.recv(RECEIVE_BYTES)
        received += data
        if not data or len(received) > MAX_CONNECT_HEAD_BYTES:
            raise ConnectFailed(f"The proxy {proxy.name} closed the connection.")
    return bytes(received)
