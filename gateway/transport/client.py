"""The HTTP client: opens calls to upstreams within deadlines, over guarded connections from the keep-alive pool of each
origin."""

import re
import ssl
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import urljoin

import gevent
from gevent import socket as sockets
from gevent.lock import BoundedSemaphore
from gevent.ssl import SSLContext

from gateway.clock import Clock
from gateway.configuration.settings import Security, Timeouts
from gateway.errors import ConnectFailed, ConnectTimeout, UpstreamFailed, UpstreamTimeout, UpstreamUnreachable
from gateway.runtime.large_files import MessageBody
from gateway.runtime.lazy_import import LazyImport
from gateway.runtime.loop_turns import bulk_turn
from gateway.transport.addresses import CallerNameLookups, Resolver, check_host, check_public, resolve
from gateway.transport.answer_room import AnswerRoom, KeptBytes
from gateway.transport.connections import HEAD_END, MIN_TIMEOUT_S, NO_DEADLINE, TlsSession, UpstreamConnection
from gateway.transport.outgoing_routes import ForwardProxy, OutgoingRoutes, open_tunnel
from gateway.transport.request_bytes import (
    JOIN_BYTES,
    LOOP_HEADER,
    PRODUCT,
    CallHead,
    Origin,
    UpstreamAddress,
    read_url,
    slices,
    write_head,
)
from gateway.transport.upstream_responses import BODY_LIMIT, Answer, Pending, Reply, TimeLimits, too_late
from gateway.transport.websocket_channels import SocketChannel

# The keep-alive pool of one origin.

KEEP_ALIVE_TIMEOUT = re.compile(rb"\r\nkeep-alive:[^\r\n]*?timeout=(\d{1,6})", re.IGNORECASE)
CLOSING_S = 1.0
# Connections that were idle for less are reused without a poll, because the event loop reports their end. During a
# longer pause the loop may have been stopped. Without the poll a plain request takes 0.97 of the CPU, and a
# lone one 0.95 of the added time.
WATCHED_S = 1.0


class ConnectionPool:
    """Connections to one origin: at most `size` at once; the last used is lent first, and old ones are closed.

    A borrower holds one slot with a connection and returns both once, with `take_back` or `drop`. A wait for a free
    slot lasts at most `wait_s`. `now` returns monotonic seconds.
    """

    def __init__(
        self, host: str, size: int, wait_s: float, idle_size: int, idle_s: float, now: Callable[[], float]
    ) -> None:
        self._host = host
        self._size = size
        self._wait_s = wait_s
        self._idle_size = idle_size
        self._idle_s = idle_s
        self._now = now
        self._slots = BoundedSemaphore(size)
        self._idle: deque[UpstreamConnection] = deque()
        self.tls_session = TlsSession(now)

    @property
    def unused(self) -> bool:
        return not self._idle and self._slots.counter == self._size

    def borrow(self, now: float, seconds: float, fresh: bool) -> UpstreamConnection | None:
        """Take a slot and the most recently used idle connection that is usable, or None without one or if `fresh`.

        Unusable connections are closed. UpstreamUnreachable (with retry_after) when no slot became free in `seconds`.
        """
        if not self._slots.acquire(False) and not self._slots.acquire(timeout=min(seconds, self._wait_s)):
            raise UpstreamUnreachable(f"All {self._size} connections to {self._host} are in use.", retry_after=1)
        idle = self._idle
        while idle and not fresh:
            connection = idle.pop()
            idle_s = now - connection.since
            if idle_s < connection.idle_s and ((connection.watched and idle_s < WATCHED_S) or not connection.poll(0)):
                return connection
            connection.close()
        return None

    def take_back(self, connection: UpstreamConnection) -> None:
        """Return a connection; it is kept if its response is complete, else closed."""
        if not connection.since:
            connection.keep_session(self.tls_session)
        if not connection.done or not connection.keep:
            self.drop(connection)
            return
        if not connection.since:
            connection.idle_s = min(self._idle_s, announced_idle_s(connection.received))
        connection.since = self._now()
        idle = self._idle
        idle.append(connection)
        if len(idle) > self._idle_size:
            idle.popleft().close()
        self._slots.release()

    def drop(self, connection: UpstreamConnection | None) -> None:
        """Return a slot and close its connection, if it has one."""
        if connection is not None:
            connection.close()
        self._slots.release()

    def trim(self, now: float) -> None:
        """Close connections that have been idle for too long."""
        while self._idle and now - self._idle[0].since >= self._idle_s:
            self._idle.popleft().close()

    def clear(self) -> None:
        while self._idle:
            self._idle.pop().close()


def announced_idle_s(received: bytes) -> float:
    """Return how long a server says that it keeps an idle connection (RFC 2068, 19.7.1.1), less a margin.

    A request that is sent while the server closes is lost, and a paid request must not be sent again.
    """
    match = KEEP_ALIVE_TIMEOUT.search(received, 0, received.find(HEAD_END))
    if match is not None:
        return max(0.0, int(match[1]) - CLOSING_S)
    return NO_DEADLINE


if TYPE_CHECKING:
    from gateway.transport import websockets
    from gateway.transport.websockets import WebSocket
else:
    websockets = LazyImport("gateway.transport.websockets")

NO_HEADERS: Mapping[str, str] = {}
Piece = bytes | memoryview
PER_ORIGIN = 2000  # simultaneous connections to one origin
IDLE_PER_ORIGIN = 256
IDLE_TIMEOUT_S = 50.0  # below the 60 s at which common load balancers drop a silent connection
ORIGINS_KEPT = 1000
PLACES_KEPT = 1000
REDIRECTS = 5
# How long a name is looked up here before a proxy does so. Networks without names of the internet often do not answer.
NAME_CHECK_S = 1.0
REDIRECT_STATUSES = frozenset({301, 302, 303, 307, 308})


class Transport:
    """The only HTTP client of the gateway; each worker has one.

    `tls` and `resolver` replace the system's certificate store and name service. `routes` chooses the forward proxy and
    the certificates of each destination; with a proxy, addresses are checked as far as their spelling and our own name
    service tell, since the proxy looks up names itself. `loop_mark` is sent with every call to
    an address that is not trusted: a request with this mark comes from this installation. `trusted` calls go to
    addresses that the operator configured, which may be private. All others must lead to the public internet, unless
    settings allow private upstreams; a URL in a request (`fetch`) must too, unless settings allow private media.
    Redirects are never followed.
    """

    def __init__(
        self,
        timeouts: Timeouts,
        security: Security,
        *,
        clock: Clock | None = None,
        tls: SSLContext | None = None,
        resolver: Resolver | None = None,
        per_origin: int = PER_ORIGIN,
        room: AnswerRoom | None = None,
        loop_mark: str = PRODUCT,
        routes: OutgoingRoutes | None = None,
    ) -> None:
        self.loop_mark = loop_mark
        self._connect_s = timeouts.connect_s
        self._guarded = not security.allow_private_upstreams
        self._guards_named = not security.allow_private_media
        self._now = now = (clock or Clock()).monotonic
        self.routes = routes or OutgoingRoutes(tls=tls)
        self._resolve = resolver or resolve
        self._resolve_strangers = resolver or CallerNameLookups().resolve
        self._per_origin = per_origin
        self._pools: dict[Origin, ConnectionPool] = {}
        self._places: dict[tuple[str, bool, bool], UpstreamAddress] = {}
        self._trim_at = 0.0
        silence_s = timeouts.silence_s
        heartbeat_s = timeouts.wake_s
        self._streamed = TimeLimits(now, timeouts.stream_s, silence_s, silence_s, heartbeat_s, room)
        # A plain response is silent while the model computes, so only its deadline bounds it.
        self._plain = TimeLimits(now, timeouts.plain_s, timeouts.plain_s, silence_s, heartbeat_s, room)

    def open(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str],
        body: bytes = b"",
        *,
        stream: bool = False,
        deadline: float,
        trusted: bool = False,
    ) -> Reply:
        """Send a request and return the response once its head has arrived, whatever its status.

        `deadline` is in seconds of the monotonic clock; the limits of the settings for plain and streamed responses
        also apply. Raises UpstreamUnreachable (no name, connection or response; codes fetch_failed,
        address_not_allowed, invalid_address), UpstreamTimeout, UpstreamFailed (not HTTP). Read the reply to
        its end or close it.
        """
        return self._answer(self.transmit(self.prepare(method, url, headers, trusted), body, stream, deadline))

    def prepare(self, method: str, url: str, headers: Mapping[str, str], trusted: bool) -> CallHead:
        """Return what calls of a URL with the same headers share; `transmit` may send it any number of times.

        UpstreamUnreachable (invalid_address) for a URL or a header that cannot be sent.
        """
        return self._write_head(method, self._place(url, trusted), headers)

    def transmit(self, head: CallHead, body: bytes | MessageBody, stream: bool, deadline: float) -> Pending:
        """Send a prepared request without waiting, so that the caller can act while the upstream is silent.

        A body that is not bytes is sent in pieces. Deadline and errors as of `open`.
        """
        time_limits = self._streamed if stream else self._plain
        now = self._now()
        end = now + time_limits.total_s
        if deadline < end:
            end = deadline
        if isinstance(body, bytes) and len(body) <= JOIN_BYTES:
            message = head.with_body(body)
            connection = self._send(head, message, now, end)
        else:
            message = head.with_length(len(body))
            connection = self._send(head, message, now, end)
            # A long body is not copied behind its head, which would double its memory.
            pieces = slices(body) if isinstance(body, bytes) else body.pieces()
            self._send_pieces(connection, head.origin, pieces, end)
        first = now + time_limits.first_s
        resend = self._resender(head, message, end) if head.repeatable else None
        return Pending(connection, time_limits, first if first < end else end, end, resend)

    def request(
        self,
        method: str,
        url: str,
        headers: Mapping[str, str] = NO_HEADERS,
        body: bytes = b"",
        *,
        timeout_s: float = 30.0,
        max_bytes: int = BODY_LIMIT,
        trusted: bool = False,
    ) -> Answer:
        """Run a whole exchange for background work. Raises like `open`, and UpstreamFailed beyond `max_bytes`."""
        deadline = self._now() + timeout_s
        reply = self.open(method, url, headers, body, deadline=deadline, trusted=trusted)
        try:
            return Answer(reply.status, reply.headers, reply.read_all(max_bytes))
        finally:
            reply.close()

    def notify(self, url: str, headers: Mapping[str, str], body: bytes, *, timeout_s: float) -> int:
        """POST to a webhook and return the status of its response, whose body is not read. Raises like `open`."""
        reply = self.open("POST", url, headers, body, deadline=self._now() + timeout_s)
        reply.close()
        return reply.status

    def fetch(
        self,
        url: str,
        max_bytes: int,
        *,
        timeout_s: float = 30.0,
        headers: Mapping[str, str] = NO_HEADERS,
        redirects: int = REDIRECTS,
    ) -> Answer:
        """GET a URL from a request; each of at most `redirects` redirects passes the address guard again.

        Raises like `open`; UpstreamFailed for too many redirects (too_many_redirects) or bytes (response_too_large).
        """
        deadline = self._now() + timeout_s
        for _ in range(redirects + 1):
            head = self._write_head("GET", self._place(url, False, True), headers)
            reply = self._answer(self.transmit(head, b"", False, deadline))
            try:
                if reply.status not in REDIRECT_STATUSES or "location" not in reply.headers:
                    _refuse_announced(reply, max_bytes)
                    return Answer(reply.status, reply.headers, reply.read_all(max_bytes))
            finally:
                reply.close()
            url = _follow(url, reply.headers["location"])
        raise UpstreamFailed("The URL redirects too often.", code="too_many_redirects")

    def keep(self) -> KeptBytes:
        """Return a count of the bytes that a request of this greenlet keeps of what it fetched."""
        room = self._plain.room
        return KeptBytes(room.budget if room else None)

    def open_websocket(
        self, url: str, headers: Mapping[str, str], *, deadline: float, trusted: bool = False
    ) -> "WebSocket":
        """Open a WebSocket to an http or https URL under the same guard and TLS as other calls.

        Its connection belongs to no pool, since it is long-lived. HandshakeRefused with the response of a server that
        refuses; else like `open`.
        """
        place = read_url(url, trusted)
        headers = self._marked(place, headers)
        write_head("GET", place, headers)  # refuses a header that could break out of its line
        origin = place.origin
        channel = SocketChannel(self._reach(origin, deadline, TlsSession(self._now), tunnel=True))
        try:
            with gevent.Timeout(max(deadline - self._now(), MIN_TIMEOUT_S), TimeoutError):
                return websockets.request(channel, place.host, place.target, {"user-agent": PRODUCT, **headers})
        except BaseException as error:
            channel.close()
            if isinstance(error, TimeoutError):
                raise UpstreamTimeout(f"{origin.host} did not open the WebSocket in time.") from None
            if isinstance(error, OSError):
                raise UpstreamUnreachable(f"{origin.host} closed the connection in the handshake.") from None
            raise

    def close(self) -> None:
        """Close every idle connection; connections in use end with their replies."""
        for pool in self._pools.values():
            pool.clear()

    @staticmethod
    def _answer(pending: Pending) -> Reply:
        reply = pending.wait()
        assert reply is not None  # without a time limit `wait` returns a reply or raises
        return reply

    def _write_head(self, method: str, place: UpstreamAddress, headers: Mapping[str, str]) -> CallHead:
        return write_head(method, place, self._marked(place, headers))

    def _marked(self, place: UpstreamAddress, headers: Mapping[str, str]) -> Mapping[str, str]:
        return headers if place.origin.trusted else {**headers, LOOP_HEADER: self.loop_mark}

    def _place(self, url: str, trusted: bool, named: bool = False) -> UpstreamAddress:
        place = self._places.get((url, trusted, named))
        if place is None:
            place = read_url(url, trusted, named)
            proxy = self.routes.find(place.origin).proxy
            if proxy is not None and place.origin.scheme == "http":
                place = place.through_proxy(proxy.authorization)
            if len(self._places) >= PLACES_KEPT:
                self._places.clear()
            self._places[url, trusted, named] = place
        return place

    def _send(self, head: CallHead, message: bytes, now: float, end: float, fresh: bool = False) -> UpstreamConnection:
        """Send over a pooled connection, or over a new one when the pooled one accepts no byte."""
        origin = head.origin
        left = end - now
        if left <= 0:
            raise too_late(origin.host)
        pool = self._pools.get(origin)
        if pool is None or now >= self._trim_at:
            pool = self._find_pool(origin, now)
        connection = pool.borrow(now, left, fresh)
        try:
            if connection is None:
                connection = self._connect(pool, origin, end)
            while not connection.send(message, head.bodiless, left):
                if not connection.since:
                    raise UpstreamUnreachable(f"{origin.host} closed the connection before it took the request.")
                connection.close()
                connection = self._connect(pool, origin, end)
        except BaseException as error:
            pool.drop(connection)
            if isinstance(error, TimeoutError):
                raise UpstreamTimeout(f"{origin.host} did not take the request in time.") from None
            raise
        return connection

    def _send_pieces(self, connection: UpstreamConnection, origin: Origin, pieces: Iterable[Piece], end: float) -> None:
        """Send the body after its head, until `end` (monotonic)."""
        try:
            for piece in pieces:
                if not connection.send_more(piece, max(end - self._now(), MIN_TIMEOUT_S)):
                    return  # the peer stopped reading; its response explains why
                bulk_turn()  # a fast peer must not keep other greenlets from running
        except BaseException as error:
            connection.pool.drop(connection)
            if isinstance(error, TimeoutError):
                raise UpstreamTimeout(f"{origin.host} did not take the request in time.") from None
            raise

    def _resender(self, head: CallHead, message: bytes, end: float) -> Callable[[], UpstreamConnection]:
        return partial(self._send_again, head, message, end)

    def _send_again(self, head: CallHead, message: bytes, end: float) -> UpstreamConnection:
        return self._send(head, message, self._now(), end, fresh=True)

    def _find_pool(self, origin: Origin, now: float) -> ConnectionPool:
        if now >= self._trim_at:
            self._trim(now)
        pool = self._pools.get(origin)
        if pool is None:
            pool = self._pools[origin] = ConnectionPool(
                origin.host, self._per_origin, self._connect_s, IDLE_PER_ORIGIN, IDLE_TIMEOUT_S, self._now
            )
        return pool

    def _trim(self, now: float) -> None:
        self._trim_at = now + IDLE_TIMEOUT_S
        for pool in self._pools.values():
            pool.trim(now)
        if len(self._pools) > ORIGINS_KEPT:
            self._pools = {origin: pool for origin, pool in self._pools.items() if not pool.unused}

    def _connect(self, pool: ConnectionPool, origin: Origin, end: float) -> UpstreamConnection:
        return UpstreamConnection(self._reach(origin, end, pool.tls_session), origin.host, pool, self._now)

    def _reach(self, origin: Origin, end: float, session: TlsSession, tunnel: bool = False) -> Any:
        """Connect to an address that was looked up and checked here, so that no second lookup can change it, or to the
        proxy of the origin. Over a proxy `tunnel` requires a tunnel for http too."""
        now = self._now()
        if now >= end:
            raise too_late(origin.host)
        end = min(end, now + self._connect_s)
        route = self.routes.find(origin)
        proxy = route.proxy
        if proxy is None:
            return self._dial_any(origin, self._look_up(origin, end), end, partial(self._secure, origin, session))
        self._check_name(origin, end)
        place = Origin("http", proxy.host, proxy.port, trusted=True)

        def enter(sock: Any, end: float) -> Any:
            return self._pass_proxy(sock, proxy, origin, session, end, tunnel)

        return self._dial_any(place, self._look_up(place, end), end, enter, f"the proxy {proxy.name}")

    def _dial_any(
        self, origin: Origin, addresses: list[str], end: float, enter: Callable[[Any, float], Any], name: str = ""
    ) -> Any:
        """Connect to the first of the addresses that accepts; `enter` prepares its socket. `name` is for messages."""
        failure: Exception = ConnectFailed(f"The name {origin.host} has no address.")
        for index, address in enumerate(addresses):
            # Each address gets a share of the remaining time, so that an unreachable first one cannot use it up.
            seconds = (end - self._now()) / (len(addresses) - index)
            try:
                return self._dial(origin, address, max(seconds, MIN_TIMEOUT_S), enter, name or origin.host)
            except (UpstreamUnreachable, UpstreamTimeout) as error:
                failure = error
        raise failure

    def _secure(self, origin: Origin, session: TlsSession, sock: Any, end: float) -> Any:
        """Return the socket after the handshake of TLS, if the origin has it."""
        if origin.scheme != "https":
            return sock
        sock.settimeout(max(end - self._now(), MIN_TIMEOUT_S))
        try:
            return session.secure(sock, self.routes.find(origin).tls(), origin.host)
        except OSError as error:
            raise _explain(error, origin.host) from None

    def _pass_proxy(
        self, sock: Any, proxy: ForwardProxy, origin: Origin, session: TlsSession, end: float, tunnel: bool
    ) -> Any:
        """Return a socket to the origin behind the proxy; for http without a tunnel to the proxy itself."""
        if origin.scheme == "https" or tunnel:
            sock.settimeout(max(end - self._now(), MIN_TIMEOUT_S))
            open_tunnel(sock, proxy, origin)
        return self._secure(origin, session, sock, end)

    def _look_up(self, origin: Origin, end: float) -> list[str]:
        seconds = max(end - self._now(), MIN_TIMEOUT_S)
        try:
            with gevent.Timeout(seconds, TimeoutError):
                look_up = self._resolve if origin.trusted else self._resolve_strangers
                addresses = look_up(origin.host, origin.port)
        except TimeoutError:
            raise ConnectTimeout(f"The name {origin.host} was not resolved in time.") from None
        if self._is_guarded(origin):
            check_public(origin.host, addresses)
        return addresses

    def _is_guarded(self, origin: Origin) -> bool:
        if origin.named:
            return self._guards_named
        return self._guarded and not origin.trusted

    def _check_name(self, origin: Origin, end: float) -> None:
        """Check a destination behind a proxy, which looks up its name: the spelling, and addresses if we find any."""
        if not self._is_guarded(origin):
            return
        check_host(origin.host)
        if not self.routes.checks_names:
            return
        seconds = max(min(NAME_CHECK_S, end - self._now()), MIN_TIMEOUT_S)
        try:
            with gevent.Timeout(seconds, TimeoutError):
                addresses = self._resolve_strangers(origin.host, origin.port)
        except (TimeoutError, UpstreamUnreachable):
            return  # only the proxy knows the name
        check_public(origin.host, addresses)

    def _dial(self, origin: Origin, address: str, seconds: float, enter: Callable[[Any, float], Any], name: str) -> Any:
        end = self._now() + seconds
        family = sockets.AF_INET6 if ":" in address else sockets.AF_INET
        sock = sockets.socket(family, sockets.SOCK_STREAM)
        try:
            sock.settimeout(seconds)
            sock.connect((address, origin.port))
            return enter(sock, end)
        except BaseException as error:
            sock.close()
            if isinstance(error, OSError):
                raise _explain(error, name) from None
            raise


def _explain(error: OSError, host: str) -> UpstreamUnreachable | UpstreamTimeout:
    """Return the error for a failed connection, without any address."""
    if isinstance(error, TimeoutError):
        return ConnectTimeout(f"No connection to {host} could be made in time.")
    if isinstance(error, ssl.SSLCertVerificationError):
        return UpstreamUnreachable(f"The TLS certificate of {host} is not valid: {error.verify_message.rstrip('.')}.")
    if isinstance(error, ssl.SSLError):
        return UpstreamUnreachable(f"TLS with {host} failed: {error.reason or 'connection closed'}.")
    return ConnectFailed(f"No connection to {host} could be made: {error.strerror or 'connection closed'}.")


def _refuse_announced(reply: Reply, max_bytes: int) -> None:
    size = reply.headers.get("content-length", "")
    if size.isascii() and size.isdigit() and int(size) > max_bytes:
        reply.close()
        raise UpstreamFailed(f"The URL leads to more than {max_bytes} bytes.", code="response_too_large")


def _follow(url: str, location: str) -> str:
    try:
        return urljoin(url, location)
    except ValueError:
        raise UpstreamFailed("The URL redirects to an invalid address.", code="invalid_address") from None
