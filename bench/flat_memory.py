"""Memory over many mixed requests: `python -m bench.flat_memory [--requests 500000] [--store sqlite|postgresql]`.

A gateway answers plain requests, streams, long prompts and requests in other callers' formats, one kind after the
other, while other callers abort streams at random bytes. The memory of master and worker is read after each slice. It
ends with status 1 when memory grows by 2 % or more from the third to the last quarter of the requests, on either store.
"""

import argparse
import contextlib
import itertools
import random
import socket
import statistics
import sys
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from bench.pairs import import_from_tests, use_database
from bench.processes import BenchError, pss_mb
from bench.run import BUILD, PHASES, Write, build, run_load
from bench.targets import KEY, Target, start_gateway, start_targets, write_ai_request, write_request

MAX_GROWTH = 0.02
SLICE_S = 2.0
ABORTING_CALLERS = 4
# About what an aborted stream would have; some offsets are beyond its end.
MAX_BYTES = 12_000
STORES = ("sqlite", "postgresql")


class Sample(NamedTuple):
    requests: int
    memory_mb: float


def write_long(port: int, prompt: str, stream: bool, model: str) -> bytes:
    return write_request(port, "word " * 2000 + prompt, stream, model)


def write_messages(port: int, prompt: str, stream: bool, model: str) -> bytes:
    """The question in Anthropic's format."""
    body = (
        f'{{"model":"{model}","stream":{str(stream).lower()},"max_tokens":200,'
        f'"messages":[{{"role":"user","content":"Say hello. {prompt}"}}]}}'
    )
    head = (
        f"POST /v1/messages HTTP/1.1\r\nhost: 127.0.0.1:{port}\r\nauthorization: Bearer {KEY}\r\nuser-agent: bench\r\n"
        f"content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
    )
    return (head + body).encode()


# Phases of `bench.run` (plain, streams) with a writer. A stream of another format has no [DONE], so those are plain.
KINDS: tuple[tuple[int, Write], ...] = (
    (0, write_request),
    (1, write_request),
    (0, write_long),
    (0, write_messages),
    (0, write_ai_request),
)


class Aborts:
    """Callers that hang up in the middle of a stream."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._run, args=(number,)) for number in range(ABORTING_CALLERS)]
        self.counts = [0] * ABORTING_CALLERS

    def __enter__(self) -> "Aborts":
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        for thread in self._threads:
            thread.join()

    def _run(self, number: int) -> None:
        chance = random.Random(number)
        request = write_request(self._port, "gap=2", True)
        while not self._over.is_set():
            with (
                contextlib.suppress(OSError),
                socket.create_connection(("127.0.0.1", self._port), timeout=30) as caller,
            ):
                caller.sendall(request)
                left = chance.randint(0, MAX_BYTES)
                while left > 0 and (piece := caller.recv(min(left, 1024))):
                    left -= len(piece)
                self.counts[number] += 1


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when memory stays flat on each store; otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.flat_memory", description=__doc__.partition("\n")[0])
    parser.add_argument("--requests", type=int, default=500_000, help="requests on each store (500000)")
    parser.add_argument("--store", choices=STORES, help="only this store")
    parser.add_argument("--port", type=int, default=19_560, help="first of the ports to use (19560)")
    options = parser.parse_args(arguments)
    failed = False
    try:
        build()
        for store in (options.store,) if options.store else STORES:
            growth = growth_of_last_quarter(measure(store, options.requests, options.port))
            failed = failed or growth >= MAX_GROWTH
            verdict = "MISSED" if growth >= MAX_GROWTH else "good"
            print(f"{store}: {growth:+.1%} in the last quarter (must be below {MAX_GROWTH:.0%}): {verdict}", flush=True)
    except BenchError as error:
        print(f"flat_memory: {error}", file=sys.stderr)
        return 1
    return int(failed)


def measure(store: str, requests: int, port: int) -> list[Sample]:
    """Return the memory after each slice until so many requests were answered or aborted. Raises BenchError."""
    samples: list[Sample] = []
    with tempfile.TemporaryDirectory(prefix="flat-") as name, start(store, port, Path(name)) as gateway:
        answered = 0
        for phase, write in itertools.cycle(KINDS):
            with Aborts(gateway.port) as aborts:
                figures = run_load(PHASES[phase], gateway, SLICE_S, Path(name), write=write)
            if figures["errors"]:
                raise BenchError(f"{figures['errors']} answers to {write.__name__} were not good")
            answered += figures["good"] + sum(aborts.counts)
            samples.append(Sample(answered, pss_mb(gateway.process.pid)))
            print(f"{store}: {answered:,} requests, {samples[-1].memory_mb:.1f} MB", file=sys.stderr)
            if answered >= requests:
                return samples
    raise AssertionError("the kinds of requests repeat without end")


@contextlib.contextmanager
def start(store: str, port: int, folder: Path) -> Iterator[Target]:
    """Start the mock, and a gateway on the store."""
    with contextlib.ExitStack() as stack:
        (direct,) = stack.enter_context(start_targets({}, port, folder, BUILD / "mock"))
        more: dict[str, str] = {}
        if store == "postgresql":
            servers = import_from_tests("servers")
            more = use_database(stack.enter_context(servers.run_postgres(servers.DEFAULTS)))
        yield stack.enter_context(start_gateway(port + 3, direct.port, folder, more))


def growth_of_last_quarter(samples: list[Sample]) -> float:
    """Return the relative growth from the third quarter of the requests to the last, of the medians.

    Memory rises by some megabytes and falls again each time free pages are returned; a line through the samples of one
    quarter would take half of such a period for growth.
    """
    last = samples[-1].requests
    third = [sample.memory_mb for sample in samples if last * 0.5 <= sample.requests < last * 0.75]
    fourth = [sample.memory_mb for sample in samples if sample.requests >= last * 0.75]
    return statistics.median(fourth) / statistics.median(third or fourth) - 1


if __name__ == "__main__":
    sys.exit(main())
