"""The TLS session of an origin: new connections resume it, which saves the certificates and their check."""

from collections.abc import Callable
from typing import Any

from gevent.ssl import SSLContext, SSLSocket

# Certificates are checked again after this time.
VERIFICATION_LIFETIME_S = 3600.0


class TlsSession:
    """The session of the last full handshake with one origin. `now` returns monotonic seconds."""

    __slots__ = ("_now", "_session", "_verified_at")

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._session: Any = None
        self._verified_at = 0.0

    def secure(self, sock: Any, tls: SSLContext, host: str) -> SSLSocket:
        """Return the socket after a handshake with `host`, always with the same `tls` and host. OSError."""
        if self._now() >= self._verified_at + VERIFICATION_LIFETIME_S:
            self._session = None
        return tls.wrap_socket(sock, server_hostname=host, session=self._session)

    def keep(self, sock: SSLSocket) -> None:
        """Keep the session of a connection that received a response: TLS 1.3 sends tickets after the handshake.

        That of a resumed one is not kept: copying it costs a tenth of the handshake.
        """
        if not sock.session_reused:
            self._verified_at = self._now()
            self._session = sock.session
