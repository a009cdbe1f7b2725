"""The status of the gateway on this node, for commands that cannot reach the database."""

from contextlib import closing
from http.client import HTTPConnection, HTTPException

from gateway.configuration.settings import Server
from gateway.operator.installation_commands import reachable

TIMEOUT_S = 5.0
MAX_BYTES = 2_000


def read_readiness(server: Server) -> tuple[int, str] | None:
    """Return status and lines of `/readyz` of the gateway on this host; None if none answers on its port."""
    try:
        with closing(HTTPConnection(reachable(server.host).strip("[]"), server.port, timeout=TIMEOUT_S)) as connection:
            connection.request("GET", "/readyz", headers={"accept": "text/plain"})
            answer = connection.getresponse()
            return answer.status, answer.read(MAX_BYTES).decode("utf-8", "replace").strip()
    except (OSError, HTTPException):
        return None
