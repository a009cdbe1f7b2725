"""The gunicorn worker: gunicorn's arbiter and signals, with our own connections, timeouts and graceful shutdown."""

import os
import socket
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any

import gevent.event
from gevent.pool import Pool
from gunicorn.http.wsgi import base_environ
from gunicorn.sock import ssl_context

from gateway.clock import Clock
from gateway.configuration import settings
from gateway.errors import GatewayError, Internal, Overloaded, Unavailable
from gateway.ids import new_hex
from gateway.runtime.byte_budget import UNATTRIBUTED, ByteBudget
from gateway.runtime.large_files import StoredFile
from gateway.runtime.loop_turns import low_priority, until_tick
from gateway.server.boot import BootingWorker, PausableServer, stop_accepting
from gateway.server.connection import ANSWERING, CallerConnection, ClientGone, ServerStopping, WorkerState
from gateway.server.connection_timeouts import TimeoutSweeper
from gateway.server.drain import Drain, make_plan
from gateway.server.request_bodies import ConnectionCounts, RequestBodies
from gateway.server.request_heads import RequestHead
from gateway.server.response_writer import HEAD_END, AccessLine, EarlyWriter, ResponseWriter, secure_end, write_refusal
from gateway.server.watchdog import Gauges, Watchdog
from gateway.surfaces.web.origins import Proxies
from gateway.surfaces.web.wsgi import CHANNEL, HELD_KEY, REFUSAL

if TYPE_CHECKING:
    from gateway.transport.websockets import Handshake, WebSocket


# A caller's connection after an upgrade from HTTP: bytes in both directions.


class CallerChannel:
    """The channel of a WebSocket (transport/websockets.py) over a caller's connection. The worker closes it.

    Long messages count as bodies of the worker and of the `owner`, an organization, until they are processed.
    """

    def __init__(self, connection: CallerConnection, bodies: ByteBudget) -> None:
        self._connection = connection
        self._bodies = bodies
        self.owner = UNATTRIBUTED
        self._charged = ""
        self._held = 0

    def open(self, handshake: "Handshake", subprotocol: str | None, headers: Sequence[tuple[str, str]]) -> "WebSocket":
        """Answer the caller's handshake. SocketClosed."""
        return handshake.accept(self, subprotocol, headers)

    def receive(self) -> bytes:
        """Wait for bytes of the caller and return them, b"" at the end."""
        return self._connection.take_some()

    def send(self, data: bytes) -> None:
        """Send all of `data`, as fast as the caller reads. BrokenPipeError when the caller disconnected."""
        try:
            self._connection.send(data)
        except ClientGone:
            raise BrokenPipeError from None

    def linger(self) -> None:
        """Give the caller time to read the last message."""
        if not self._connection.state.leaving:
            self._connection.linger()

    def hold(self, size: int) -> None:
        """Set the number of bytes that a message holds. Overloaded, without a change, when that is too much."""
        charged = self._charged if self._held else self.owner
        self._bodies.grow(charged, size - self._held)
        self._charged = charged
        self._held = size

    def close(self) -> None:
        """Close the connection in both directions, which also ends a waiting receive or send."""
        self.hold(0)
        self._connection.expire()
        self._connection.shut(socket.SHUT_RDWR)


CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
ACCEPTS_PER_TURN = 4  # new connections accepted before existing ones are served again
# A keep-alive caller that always has the next request ready never yields, so after this many requests other callers
# get a turn.
REQUESTS_PER_TURN = 64
TICKS_PER_NOTIFY = 4
# The key of a connection's environ for the last lines of a response head, plain and behind TLS.
HEAD_ENDS_KEY = "gateway.ends"
# Share of all connections that a worker accepts: above it, connections without a request in progress are closed for new
# ones.
ROOM = 0.9
TOO_MANY_CONNECTIONS = "Too many connections from this address; use fewer, or reuse them for several requests."
# A second SIGINT or SIGQUIT after this time means that the operator is in a hurry; before, one signal came twice.
SECOND_SIGNAL_AFTER_S = 1.0


class GatewayWorker(BootingWorker):
    """Serves one WSGI callable over HTTP/1.1; the package's docstring lists the attributes that the callable may
    have."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._clock = Clock()
        self._connections: set[CallerConnection] = set()
        self._leaving_since: float | None = None
        self._second_signal = False
        self._left = gevent.event.Event()

    # Signals and the main loop.

    def handle_exit(self, sig: int, frame: Any) -> None:
        """Drain on SIGTERM."""
        self._leave()

    def handle_quit(self, sig: int, frame: Any) -> None:
        """Drain on SIGINT and SIGQUIT, since cancelling requests at once would lose their accounting; hurry on the
        second one."""
        since = self._leaving_since
        if since is not None and self._clock.monotonic() - since > SECOND_SIGNAL_AFTER_S:
            self._second_signal = True
        self._leave()

    def notify(self) -> None:
        """Signal to the arbiter that this worker is alive; without an arbiter shut down gracefully."""
        self.tmp.notify()
        if self.ppid != os.getppid():
            self._leave()

    def run(self) -> None:
        """Serve until a signal, then drain within gunicorn's graceful_timeout."""
        self._prepare()
        self._watchdog.start()
        servers = self._servers = [self._serve_listener(listener) for listener in self.sockets]
        while self._leaving_since is None:
            self._share()
            self._beat()
            self._watchdog.tick(len(self._connections))
            self._left.wait(until_tick())
        grace_s = float(self.cfg.graceful_timeout)
        drain = Drain(
            self.log,
            self._clock,
            make_plan(self._leaving_since, grace_s),
            self._connections,
            self._beat,
            self._is_busy,
            self._is_hurried,
        )
        drain.run(self._announce, partial(stop_accepting, servers), self._close_application)

    def _is_busy(self) -> bool:
        return len(self._pool) > 0 or getattr(self.wsgi, "busy", bool)()

    def _is_hurried(self) -> bool:
        return self._second_signal

    def _leave(self) -> None:
        if self._leaving_since is None:
            self._leaving_since = self._clock.monotonic()
            self._left.set()
        self.alive = False

    def _prepare(self) -> None:
        self._state = WorkerState(self._clock)
        limits = getattr(self.wsgi, "limits", None) or settings.load().server
        head_s = limits.head_timeout_s
        self._sweeper = TimeoutSweeper(
            self._state,
            self.cfg.keepalive or head_s,
            head_s,
            body_s=limits.body_timeout_s,
            min_rate=limits.body_least_rate,
            stall_s=limits.answer_stall_s,
            answer_rate=limits.answer_least_rate,
        )
        self._head_s = head_s
        self._tls = ssl_context(self.cfg) if self.cfg.is_ssl else None
        self._pool = Pool(self.worker_connections)
        self._room = round(self.worker_connections * ROOM)
        self._proxies = Proxies(networks=limits.trusted_proxies)
        shared = Proxies(networks=(*limits.trusted_proxies, *limits.shared_addresses))
        self._addresses = ConnectionCounts(limits.address_connections, shared.trusts)
        self._bodies = RequestBodies(limits)
        self._secure = self.cfg.is_ssl or limits.public_url.startswith("https:")
        self._make_reply = (
            partial(EarlyWriter, seconds=limits.early_blank_s) if limits.early_blank_s else ResponseWriter
        )
        self._secure_end = secure_end(limits.hsts_s)
        self._keepalive = self.cfg.keepalive > 0
        self._logs_access = self.cfg.accesslog is not None
        self._watchdog = Watchdog(limits.loop_lag_ms / 1000)
        self._environs = {listener: self._make_environ(listener) for listener in self.sockets}
        self._take_application()

    def _gauges(self) -> Gauges:
        answering = sum(connection.phase == ANSWERING for connection in self._connections)
        connections = {
            "connections": ("Connections of callers.", len(self._connections)),
            "in_flight": ("Requests that are being answered.", answering),
        }
        return self._watchdog.gauges() | connections | self._bodies.gauges()

    def _make_environ(self, listener: Any) -> dict[str, Any]:
        """Return the part of the environ that all requests of one listener share."""
        name = listener.getsockname()
        host, port = name[:2] if isinstance(name, tuple) else (name, "")
        environ: dict[str, Any] = base_environ(self.cfg) | {
            "wsgi.multithread": True,
            "wsgi.url_scheme": "https" if self.cfg.is_ssl else "http",
            "SCRIPT_NAME": "",
            "SERVER_NAME": host,
            "SERVER_PORT": str(port),
        }
        return environ

    def _serve_listener(self, listener: Any) -> PausableServer:
        listener.setblocking(True)
        server = PausableServer(listener, handle=partial(self.handle, listener), spawn=self._pool)
        # Few per turn, so that a burst of connections spreads over the workers and does not delay existing connections.
        server.max_accept = 1 if self.cfg.workers > 1 else ACCEPTS_PER_TURN
        server.start()
        return server

    def _beat(self) -> None:
        self._sweeper.sweep(self._connections)
        if len(self._connections) > self._room:
            self._sweeper.close_idle(self._connections, self._room)
        if self._state.tick % TICKS_PER_NOTIFY == 0:
            self.notify()

    def _announce(self) -> None:
        self._state.leaving = True
        self.log.info("Worker shuts down after its %d connections", len(self._pool))
        announce = getattr(self.wsgi, "draining", None)
        if announce is not None:
            announce(True)

    def _close_application(self) -> None:
        self._watchdog.stop()
        close = getattr(self.wsgi, "close", None)
        if close is not None:
            close()

    # One connection.

    def handle(self, listener: Any, client: Any, addr: Any) -> None:
        """Serve one connection until it ends; errors do not leave this method."""
        self._watchdog.speed_up()
        address = addr[0] if isinstance(addr, tuple) else ""
        entered = self._addresses.enter(address)
        try:
            if self._tls is not None:
                if not entered:
                    return
                # Counted and timed like all others, since nothing is known about the peer before the handshake.
                with gevent.Timeout(self._head_s, TimeoutError):
                    client = self._tls.wrap_socket(client, server_side=True)
            self._serve_caller(listener, client, addr, entered)
        except (OSError, gevent.GreenletExit) as end:
            self.log.debug("Connection ended: %r", end)
        finally:
            if entered:
                self._addresses.leave(address)
            client.close()

    def _serve_caller(self, listener: Any, client: Any, addr: Any, entered: bool) -> None:
        """`entered`: whether the connection is within its address's limit."""
        weigh = self._bodies.weigh
        hold = self._bodies.answer
        connection = CallerConnection(client, addr, self._state, self._tls is None, weigh, hold)
        self._connections.add(connection)
        try:
            if not entered:
                connection.send(write_refusal(Overloaded(TOO_MANY_CONNECTIONS, retry_after=1.0), self._state.date))
                return
            if client.family != socket.AF_UNIX:
                client.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._serve_connection(connection, self._make_peer_environ(listener, addr))
        finally:
            self._connections.discard(connection)
            connection.close()

    def _make_peer_environ(self, listener: Any, addr: Any) -> dict[str, Any]:
        base = dict(self._environs[listener])
        if isinstance(addr, tuple):
            base["REMOTE_ADDR"] = addr[0]
            base["REMOTE_PORT"] = str(addr[1])
        else:
            base["REMOTE_ADDR"] = ""
        trusted_peer = self._proxies.trusts(base["REMOTE_ADDR"])  # whether X-Forwarded-Proto is believed
        base["gateway.trusted_peer"] = trusted_peer
        plain_end = self._secure_end if self._secure else HEAD_END
        # Indexed by whether a proxy says that its caller used TLS.
        base[HEAD_ENDS_KEY] = (plain_end, self._secure_end if trusted_peer else plain_end)
        return base

    def _serve_connection(self, connection: CallerConnection, base: dict[str, Any]) -> None:
        served = 0
        while True:
            head = taken = None  # an idle connection holds no head
            try:
                taken = self._heads.take(connection)
                if taken is None:
                    return
                head, length = taken
                if 0 < length <= self._bodies.free and not head.odd:
                    # No variable of this method holds the body while its response is streamed.
                    goes_on = self._answer(connection, base, head, connection.take(length), length)
                elif length:
                    goes_on = self._serve_weighed(connection, base, head, length)
                else:
                    goes_on = self._answer(connection, base, head, b"", 0)
            except GatewayError as error:
                self._refuse(connection, base, head, error)
                connection.linger()  # the caller may not read the response before it has sent everything
                return
            if not goes_on:
                return
            connection.wait()
            served += 1
            if served % REQUESTS_PER_TURN == 0:
                gevent.sleep(0)

    def _serve_weighed(
        self, connection: CallerConnection, base: dict[str, Any], head: RequestHead, length: int
    ) -> bool:
        """Serve a request with a long or encoded body: its head must identify the owner, and there must be room.

        Returns whether the connection can carry another request, which it cannot after an unread body.
        """
        with self._bodies.hold(head, length, partial(self._ask_owner, head)) as held:
            try:
                self._bodies.check(head, length)
                held.grow(max(0, length))
                if head.expects and not connection.surplus:
                    connection.send(CONTINUE)
                base = {**base, HELD_KEY: held}
                return self._answer(connection, base, head, self._bodies.take(connection, head, length, held), length)
            except GatewayError as error:
                self._refuse(connection, base, head, error)
                connection.linger()
                return False

    def _ask_owner(self, head: RequestHead) -> str:
        if self._owner_of is None:
            return ""
        owner: str = self._owner_of(head.headers, head.sender)
        return owner

    def _refuse(
        self, connection: CallerConnection, base: dict[str, Any], head: RequestHead | None, error: GatewayError
    ) -> None:
        """Respond with an error of the server, in the dialect of the request's path if the application knows it. `head`
        is None when it could not be read."""
        if head is None or self._owner_of is None:
            if self._on_refusal is not None:
                self._on_refusal(error, new_hex(), base)
            connection.send(write_refusal(error, self._state.date, head is not None and head.bare))
        else:
            connection.answer()
            reply = ResponseWriter(connection, False, head.modern, head.bare, base[HEAD_ENDS_KEY][head.secure])
            result = self.wsgi(head.environ_for({**base, REFUSAL: error}, b"", 0), reply.start)
            try:
                reply.deliver(result)
            finally:
                self._close_body(result, head)

    def _answer(
        self,
        connection: CallerConnection,
        base: dict[str, Any],
        head: RequestHead,
        body: bytes | StoredFile,
        length: int,
    ) -> bool:
        """Answer a request that was read completely; returns whether the connection can carry another."""
        connection.answer()
        keep_alive = head.keep_alive and self._keepalive and not connection.expired
        reply = self._make_reply(connection, keep_alive, head.modern, head.bare, base[HEAD_ENDS_KEY][head.secure])
        began_at = self._clock.monotonic() if self._logs_access else 0.0
        result = None
        try:
            handler = head.handler
            if handler is not None and isinstance(body, bytes) and bool(body) is head.filled:
                outbound = self._lane.answer(handler, head, body, base)
                body = b""  # a streamed response may take long
                result = outbound.body
                reply.answer(outbound)
            else:
                result = self._call(connection, base, head, body, length, reply)
                body = b""
                if result is None:
                    return False
                reply.deliver(result)
        except ServerStopping:
            if "upgrade" not in head.headers:
                reply.fail(Unavailable("The server is restarting; try again."))
            raise
        except Overloaded as error:  # there is no room for the response
            self._refuse(connection, base, head, error)
            return False
        except (Exception, gevent.Timeout, SystemExit):
            self.log.exception("Error handling request %s %s", head.method, head.path)
            reply.fail(Internal("An unexpected error occurred."))
        finally:
            if type(result) is not bytes:
                self._close_body(result, head)
            if self._logs_access:
                self._log_access(reply, head, began_at, base)
            self.nr += 1
            if self.nr >= self.max_requests:
                self._leave()
        return reply.keep_alive

    def _call(
        self,
        connection: CallerConnection,
        base: dict[str, Any],
        head: RequestHead,
        body: bytes | StoredFile,
        length: int,
        reply: ResponseWriter,
    ) -> Any:
        """Return the application's response body; None after it took over the socket (a WebSocket) and ended."""
        environ = head.environ_for(base, body, length)
        environ["gunicorn.socket"] = connection.socket
        if "upgrade" in head.headers:
            environ[CHANNEL] = CallerChannel(connection, self._bodies.memory)
        try:
            with low_priority():
                return self.wsgi(environ, reply.start)
        except StopIteration:
            if "upgrade" not in head.headers:
                raise
            return None

    def _log_access(self, reply: ResponseWriter, head: RequestHead, began_at: float, base: dict[str, Any]) -> None:
        took = timedelta(seconds=self._clock.monotonic() - began_at)
        self.log.access(AccessLine(reply), [], {**base, **head.environ}, took)

    def _close_body(self, result: Any, head: RequestHead) -> None:
        close = getattr(result, "close", None)
        if close is not None:
            try:
                close()
            except Exception:
                self.log.exception("Error closing the answer to %s", head.path)
