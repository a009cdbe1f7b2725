"""Checks whether an address can be listened on, and explains in one line why not."""

import errno
import socket
from contextlib import closing

REASONS = {
    errno.EADDRINUSE: "is in use by another program; end that program (ss -ltnp shows it), or set PORT to a free port",
    errno.EACCES: "needs more rights than this user has; set PORT to 1024 or more",
    errno.EADDRNOTAVAIL: "is on no network interface of this machine; set HOST to one of its addresses, or 0.0.0.0",
}


def problem_of(host: str, port: int) -> str:
    """Return why `host` and `port` cannot be bound, "" when they can. Nothing stays bound."""
    bare = host.removeprefix("[").removesuffix("]")
    where = f"{host}:{port}"
    if not 0 <= port <= 65535:
        return f"PORT {port} is no port; use 1 to 65535"
    try:
        family = socket.AF_INET6 if ":" in bare else socket.AF_INET
        with closing(socket.socket(family, socket.SOCK_STREAM)) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((bare, port))
            probe.listen(1)
    except socket.gaierror:
        return f"HOST {host} is not known; use an address of this machine, or 0.0.0.0 for all"
    except OSError as error:
        reason = REASONS.get(error.errno or 0, f"cannot be listened on: {error.strerror}")
        return f"{where} {reason}"
    return ""
