"""Measures memory and CPU of an idle gateway: `python -m bench.residence [--seconds 30] [--streams 2000]`.

It measures the memory of master and worker after load, the memory of a further worker, the CPU of an idle worker, and
the memory while that many silent streams are open. Memory is the proportional set size, in which shared pages are
split. It ends with status 1 when a figure is above its limit.
"""

import argparse
import resource
import socket
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

from bench.processes import BenchError, cpu_seconds, pss_mb, tree
from bench.report import judge
from bench.run import BUILD, PHASES, build, run_load
from bench.targets import Target, start_gateway, start_targets, write_request

LOAD_S, SETTLE_S = 2.0, 3.0
# Until then the first runs of rare jobs, the statistics of the load and the watchdog's frequent heartbeats are over.
QUIET_S = 20.0
FIRST_CHUNK_S = 60.0
# A pause between chunks longer than the run, so the streams are silent after their first chunk.
SILENT = "count=2 gap=600000"
# Figure → limit and target.
LIMITS = {
    "master and worker after load, MB": (110, 90),
    "idle worker, % of a core": (0.5, 0.3),
    "idle master, % of a core": (0, 0),
    "open silent streams, MB": (250, 150),
    "a further worker, MB": (40, 25),
}


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when every figure is within its limit; otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.residence", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=30.0, help="time of idleness (30)")
    parser.add_argument("--streams", type=int, default=2000, help="open streams (2000)")
    parser.add_argument("--port", type=int, default=19_540, help="first of the ports to use (19540)")
    options = parser.parse_args(arguments)
    failed = False
    try:
        build()
        for name, value in measure(options.port, options.seconds, options.streams):
            must, goal = LIMITS[name]
            failed = failed or bool(must and value > must)
            print(f"{name}: {value:.3g}{judge(value, must, goal)}", flush=True)
    except BenchError as error:
        print(f"residence: {error}", file=sys.stderr)
        return 1
    return int(failed)


def measure(port: int, seconds: float, streams: int) -> Iterator[tuple[str, float]]:
    """Yield the names and values of the figures. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="residence-") as name:
        folder = Path(name)
        with start_targets({}, port, folder, BUILD / "mock") as (direct,):
            with start_gateway(port + 3, direct.port, folder) as gateway:
                yield "master and worker after load, MB", memory_after_load(gateway, folder)
                worker = max(tree(gateway.process.pid))
                time.sleep(QUIET_S)
                master_s, worker_s = cpu_while_idle(gateway.process.pid, worker, seconds)
                yield "idle worker, % of a core", worker_s / seconds * 100
                yield "idle master, % of a core", master_s / seconds * 100
                yield "open silent streams, MB", memory_with_streams(gateway, streams)
            yield "a further worker, MB", measure_worker(port + 4, direct.port, folder)


def memory_after_load(gateway: Target, folder: Path) -> float:
    """MB of a gateway's processes after plain requests and streams."""
    for phase in PHASES[:2]:
        run_load(phase, gateway, LOAD_S, folder)
    time.sleep(SETTLE_S)
    return pss_mb(gateway.process.pid)


def cpu_while_idle(master: int, worker: int, seconds: float) -> tuple[float, float]:
    """CPU seconds of the master and of the worker within so many seconds."""
    before = cpu_seconds(master), cpu_seconds(worker)
    time.sleep(seconds)
    worker_s = cpu_seconds(worker) - before[1]
    return cpu_seconds(master) - before[0] - worker_s, worker_s


def memory_with_streams(gateway: Target, streams: int) -> float:
    """MB of a gateway's processes with open streams that have sent their first chunk and are silent."""
    allow_files(streams + 200)
    request = write_request(gateway.port, SILENT, True)
    with ExitStack() as stack:
        callers = []
        for _ in range(streams):
            caller = socket.create_connection(("127.0.0.1", gateway.port), timeout=FIRST_CHUNK_S)
            callers.append(stack.enter_context(caller))
            caller.sendall(request)
        for caller in callers:
            data = b""
            while b"data: " not in data:
                piece = caller.recv(65_536)
                if not piece:
                    raise BenchError(f"a stream ended before its first chunk: {data[:300]!r}")
                data += piece
            if not data.startswith(b"HTTP/1.1 200"):
                raise BenchError(f"a stream was refused: {data[:300]!r}")
        time.sleep(SETTLE_S)
        return pss_mb(gateway.process.pid)


def allow_files(count: int) -> None:
    """Raise this process's limit of open files to the count, which the gateway does for itself. Raises BenchError."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < count:
        if hard < count:
            raise BenchError(f"at most {hard} files may be open; {count} are needed")
        resource.setrlimit(resource.RLIMIT_NOFILE, (count, hard))


def measure_worker(port: int, mock: int, folder: Path) -> float:
    """MB that three workers take more than two, after load."""
    totals = []
    for workers in (2, 3):
        own = folder / f"workers-{workers}"
        own.mkdir()
        with start_gateway(port, mock, own, {"WEB_CONCURRENCY": str(workers)}) as gateway:
            totals.append(memory_after_load(gateway, own))
    return totals[1] - totals[0]


if __name__ == "__main__":
    sys.exit(main())
