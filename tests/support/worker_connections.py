"""Connections to known workers of a gateway, so that a test can send requests to each worker."""

import http.client
import json
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from support.gateways import GatewayProcess

MAX_TRIES = 400
ESTABLISHED = "01"


class Line:
    """A connection kept open to one worker."""

    def __init__(self, gateway: GatewayProcess) -> None:
        self._port = gateway.port
        self._connection = http.client.HTTPConnection("127.0.0.1", gateway.port, timeout=30)
        self._connection.connect()

    def worker(self, pids: list[int]) -> int:
        """Return the process that accepted the connection; 0 before one did."""
        inode = _inode(self._port, self._connection.sock.getsockname()[1])
        return next((pid for pid in pids if inode and _holds(pid, inode)), 0)

    def post(self, path: str, body: dict[str, Any], key: str) -> tuple[int, Any]:
        """Send POST to this worker and return status and decoded body."""
        headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
        self._connection.auto_open = 0  # a new connection could lead to another worker
        self._connection.request("POST", path, json.dumps(body), headers)
        answer = self._connection.getresponse()
        return answer.status, json.loads(answer.read() or b"null")

    def get(self, path: str, key: str = "") -> int:
        """Send GET and return the status."""
        headers = {}
        if key:
            headers["Authorization"] = f"Bearer {key}"
        self._connection.request("GET", path, headers=headers)
        answer = self._connection.getresponse()
        answer.read()
        return answer.status

    def close(self) -> None:
        self._connection.close()


def open_lines(gateway: GatewayProcess) -> list[Line]:
    """Return a connection to each worker of the gateway."""
    pids = gateway.workers()
    found: dict[int, Line] = {}
    spare: list[Line] = []
    for _ in range(MAX_TRIES):
        connection = Line(gateway)
        connection.get("/healthz")
        pid = connection.worker(pids)
        if pid and pid not in found:
            found[pid] = connection
        else:
            spare.append(connection)  # kept open, so that its worker has more connections than others
        if len(found) == len(pids):
            break
    for connection in spare:
        connection.close()
    assert len(found) == len(pids), f"{len(found)} of {len(pids)} workers took a connection"
    return list(found.values())


def _inode(server_port: int, client_port: int) -> str:
    """Return the inode of the server's socket of a loopback connection; "" when there is none."""
    for row in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        cells = row.split()
        local, remote = (int(cells[place].rpartition(":")[2], 16) for place in (1, 2))
        if (local, remote, cells[3]) == (server_port, client_port, ESTABLISHED):
            return cells[9]
    return ""


def _holds(pid: int, inode: str) -> bool:
    for entry in Path(f"/proc/{pid}/fd").iterdir():
        with suppress(OSError):
            if os.readlink(entry) == f"socket:[{inode}]":
                return True
    return False
