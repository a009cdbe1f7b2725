"""A client of many marked requests and the provider that counts them, both in C (marked_calls.c), so that gateways
and not the test limit the rate."""

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from support.gateways import GatewayProcess, free_port

from bench.run import FLAGS

SOURCE = Path(__file__).with_suffix(".c")


class MarkedAnswers(NamedTuple):
    """The result of a run. `calls` has the provider's calls of each mark, `whole` 1 for each whole answer with status
    200."""

    seconds: float
    longest_ms: int
    calls: bytes
    whole: bytes


class MarkedCalls:
    """The compiled program in `folder`. `url` is the address of its provider, which answers while `run` runs."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._port = free_port()
        self._binary = folder / "marked_calls"
        subprocess.run(["cc", *FLAGS, "-o", self._binary, SOURCE], check=True)
        self.url = f"http://127.0.0.1:{self._port}/v1"

    def run(self, nodes: list[GatewayProcess], connections: int, requests: int, tokens: int) -> MarkedAnswers:
        """Send `requests` marks to the nodes; a connection goes to the next node after a failure."""
        file = self._folder / "counts"
        sizes = (self._port, connections, requests, tokens)
        command = [self._binary, *map(str, sizes), nodes[0].key, file, *(str(node.port) for node in nodes)]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            seconds, longest_ms = process.stdout.readline().split()
            process.stdin.close()
        assert process.returncode == 0
        counts = file.read_bytes()
        return MarkedAnswers(float(seconds), int(longest_ms), counts[:requests], counts[requests:])

    @contextmanager
    def provide(self, marks: int, tokens: int) -> Iterator[bytearray]:
        """Answer and count the marks of requests that others send. At the end of the context the yielded array has the
        calls of each mark."""
        file = self._folder / "counts"
        calls = bytearray()
        # The key and the ports of gateways are those of a client, which does not run.
        command = [self._binary, *map(str, (self._port, 0, marks, tokens)), "none", file, "1"]
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdin is not None and process.stdout is not None
            process.stdout.readline()
            try:
                yield calls
            finally:
                process.stdin.close()
                process.wait()
        assert process.returncode == 0
        calls += file.read_bytes()[:marks]
