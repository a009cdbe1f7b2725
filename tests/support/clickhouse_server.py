"""A ClickHouse server of a test: the real engine behind its HTTP interface (clickhouse_front.py), in a process."""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import orjson
import pytest

ROOT = Path(__file__).resolve().parents[2]
ENGINE = ROOT / ".venv" / "clickhouse"
FRONT = Path(__file__).with_name("clickhouse_front.py")
USER, PASSWORD, DATABASE = "gateway", "ge@heim", "statistics"
WAIT_S = 120.0


class ClickHouseServer:
    """A running server. `url` is its address in the gateway's settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        port_file = folder / "port"
        command = [sys.executable, str(FRONT), str(port_file), str(folder), USER, PASSWORD]
        environment = {**os.environ, "PYTHONPATH": str(ENGINE)}
        self._process = subprocess.Popen(command, env=environment)
        end = time.monotonic() + WAIT_S
        while not port_file.exists() or not port_file.read_text():
            assert self._process.poll() is None and time.monotonic() < end, "ClickHouse did not start"
            time.sleep(0.05)
        self.origin = f"http://127.0.0.1:{port_file.read_text()}"
        self.url = f"http://{USER}:{PASSWORD.replace('@', '%40')}@{self.origin[7:]}/{DATABASE}"

    def query(self, sql: str) -> list[list[Any]]:
        """Return the rows of a query, as another client of the server."""
        return [orjson.loads(line) for line in self.execute(f"{sql} FORMAT JSONCompactEachRow").splitlines()]

    def execute(self, sql: str) -> bytes:
        """Run a statement and return its answer."""
        options = {"database": DATABASE, "wait_end_of_query": 1, "output_format_json_quote_64bit_integers": 0}
        headers = {"x-clickhouse-user": USER, "x-clickhouse-key": PASSWORD}
        with httpx.Client(timeout=60) as http:
            answer = http.post(self.origin, params=options, headers=headers, content=sql)
        assert answer.status_code == 200, answer.text
        return answer.content

    def fail(self, fault: str) -> None:
        """Let the next inserts fail: "refuse 2", "lose 1"."""
        (self.folder / "faults").write_text(fault)

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """Let the server accept connections without an answer."""
        self._process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self._process.pid, os.WSTOPPED | os.WNOWAIT)
        try:
            yield
        finally:
            self._process.send_signal(signal.SIGCONT)

    def stop(self) -> None:
        self._process.kill()
        self._process.wait()


@contextlib.contextmanager
def run_clickhouse(folder: Path) -> Iterator[ClickHouseServer]:
    """Start a server with its data in `folder`. Skips where the engine does not exist."""
    if not (ENGINE / "chdb").exists():
        pytest.skip("ClickHouse's engine is not installed (make .venv/clickhouse.stamp)")
    server = ClickHouseServer(folder)
    try:
        yield server
    finally:
        server.stop()
