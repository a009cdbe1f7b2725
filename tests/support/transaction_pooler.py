"""A strict stand-in for PgBouncer in transaction mode: each transaction of a client runs on another server connection,
and statements that were prepared on one are unknown on the next. It counts round trips.
"""

import contextlib
import itertools
import socket
import struct
from collections.abc import Iterator

from gevent.server import StreamServer
from psycopg.conninfo import conninfo_to_dict

SERVERS = 3  # server connections of each client
REFUSALS = {80877103, 80877104}  # SSLRequest and GSSENCRequest
CANCEL = 80877102
IDLE = b"I"


class TransactionPooler:
    """Relays to a PostgreSQL server on a Unix socket. `round_trips` counts the answers that end with ReadyForQuery,
    `transactions` those that end a transaction."""

    def __init__(self, url: str, servers: int = SERVERS) -> None:
        facts = conninfo_to_dict(url)
        folder = facts["host"]
        self._path = f"{folder}/.s.PGSQL.{facts.get('port', 5432)}"
        self._database = facts["dbname"]
        self._servers = servers
        self._open: set[socket.socket] = set()
        self.round_trips = self.transactions = self.clients = 0
        self._server = StreamServer(("127.0.0.1", 0), self._serve)
        self._server.start()
        self.port = self._server.server_port

    @property
    def url(self) -> str:
        return f"postgresql://postgres@127.0.0.1:{self.port}/{self._database}"

    def restart(self) -> None:
        """End every connection, as a restart does, and accept new ones at once."""
        for end in list(self._open):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._server.stop(timeout=0.1)
        self.restart()

    def _serve(self, client: socket.socket, _address: object) -> None:
        with contextlib.suppress(OSError, EOFError), contextlib.ExitStack() as stack:
            self._keep(stack, client)
            startup = _read_startup(client)
            if startup is None:
                return
            self.clients += 1
            servers = [
                self._connect(stack, startup, client if number == 0 else None) for number in range(self._servers)
            ]
            for server in itertools.cycle(servers):
                self._relay_transaction(client, server)

    def _keep(self, stack: contextlib.ExitStack, end: socket.socket) -> None:
        self._open.add(end)
        stack.callback(self._open.discard, end)
        stack.callback(end.close)

    def _connect(self, stack: contextlib.ExitStack, startup: bytes, client: socket.socket | None) -> socket.socket:
        """Open a server connection; the first greets the client."""
        server = socket.socket(socket.AF_UNIX)
        self._keep(stack, server)
        server.connect(self._path)
        server.sendall(startup)
        for kind, message in _messages(server):
            if client is not None:
                client.sendall(message)
            if kind == b"Z":
                break
        return server

    def _relay_transaction(self, client: socket.socket, server: socket.socket) -> None:
        for kind, message in _messages(client):
            if kind == b"X":
                raise EOFError
            server.sendall(message)
            if kind not in b"SQ":
                continue
            status = self._relay_answer(client, server)
            if status == IDLE:
                self.transactions += 1
                return

    def _relay_answer(self, client: socket.socket, server: socket.socket) -> bytes:
        answer = b""
        for kind, message in _messages(server):
            answer += message
            if kind == b"Z":
                break
        self.round_trips += 1
        client.sendall(answer)
        return answer[-1:]


def _read_startup(client: socket.socket) -> bytes | None:
    """Return the startup message, after refusing encryption; None for a request to cancel."""
    while True:
        head = _receive(client, 8)
        length, code = struct.unpack("!II", head)
        rest = _receive(client, length - 8)
        if code == CANCEL:
            return None
        if code not in REFUSALS:
            return head + rest
        client.sendall(b"N")


def _messages(end: socket.socket) -> Iterator[tuple[bytes, bytes]]:
    """Yield the kind and the bytes of each message. EOFError at the end of the connection."""
    while True:
        head = _receive(end, 5)
        yield head[:1], head + _receive(end, struct.unpack("!I", head[1:])[0] - 4)


def _receive(end: socket.socket, size: int) -> bytes:
    data = b""
    while len(data) < size:
        part = end.recv(size - len(data))
        if not part:
            raise EOFError
        data += part
    return data
