"""Requests a second of two workers relative to one: `python -m bench.workers [--rounds 3]`.

Each worker has a core, and the load generator shares a further core with the mock. On a machine with fewer cores
nothing is measured, which the output says. It ends with status 1 when the ratio is below its limit.
"""

import argparse
import contextlib
import os
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.processes import RIG_CORE, BenchError, tree
from bench.run import BUILD, PHASES, WARM_UP_S, build, run_load
from bench.targets import Target, check_answers, start_gateway, start_targets

FULL_SPEED = PHASES[0]
WORKERS = (1, 2)
CORES = max(WORKERS) + 1
MIN_RATIO = 1.7


def main(arguments: list[str] | None = None) -> int:
    """Return 0 when two workers answer enough requests, or when the machine has too few cores; otherwise 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.workers", description=__doc__.partition("\n")[0])
    parser.add_argument("--rounds", type=int, default=3, help="rounds in which both take turns (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (3)")
    parser.add_argument("--port", type=int, default=19_560, help="first of the ports to use (19560)")
    options = parser.parse_args(arguments)
    cores = len(os.sched_getaffinity(0))
    if cores < CORES:
        print(f"two workers relative to one: not measured; this machine has {cores} cores, and {CORES} are needed")
        return 0
    try:
        build()
        rounds = measure(options)
    except BenchError as error:
        print(f"workers: {error}", file=sys.stderr)
        return 1
    ratio = statistics.median(two / one for one, two in rounds)
    one, two = (statistics.median(rates) for rates in zip(*rounds, strict=True))
    verdict = "as it must" if ratio >= MIN_RATIO else "MISSED"
    print(
        f"two workers relative to one, {cores} cores: {one:.0f} and {two:.0f} requests a second: × {ratio:.2f} "
        f"(must {MIN_RATIO:g}): {verdict}"
    )
    return int(ratio < MIN_RATIO)


def measure(options: argparse.Namespace) -> list[tuple[float, float]]:
    """Return the requests a second of one and of two workers in each round. Raises BenchError."""
    with tempfile.TemporaryDirectory(prefix="workers-") as name, start(options.port, Path(name)) as gateways:
        folder = Path(name)
        for gateway in gateways:
            check_answers(gateway)
            run_load(FULL_SPEED, gateway, WARM_UP_S, folder)
        rounds = []
        for _ in range(options.rounds):
            one, two = (run_load(FULL_SPEED, gateway, options.seconds, folder) for gateway in gateways)
            if one["errors"] or two["errors"]:
                raise BenchError("some answers were not good")
            rounds.append((one["rps"], two["rps"]))
        return rounds


@contextlib.contextmanager
def start(port: int, folder: Path) -> Iterator[list[Target]]:
    """Start the mock and a gateway for each number of workers, on as many cores."""
    cores = sorted(os.sched_getaffinity(0))
    del cores[RIG_CORE]
    with contextlib.ExitStack() as stack:
        (mock,) = stack.enter_context(start_targets({}, port, folder, BUILD / "mock"))
        gateways = []
        for workers in WORKERS:
            own = folder / f"workers-{workers}"
            own.mkdir()
            more = {"WEB_CONCURRENCY": str(workers)}
            gateway = stack.enter_context(start_gateway(port + 2 + workers, mock.port, own, more))
            spread(gateway.process.pid, cores[:workers])
            gateways.append(gateway)
        yield gateways


def spread(master: int, cores: list[int]) -> None:
    """Let all threads of the master and its workers run on these cores."""
    for process in tree(master):
        for thread in os.listdir(f"/proc/{process}/task"):
            with contextlib.suppress(ProcessLookupError):
                os.sched_setaffinity(int(thread), cores)


if __name__ == "__main__":
    sys.exit(main())
