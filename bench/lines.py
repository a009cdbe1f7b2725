"""The cost of the request line: `python -m bench.lines [--seconds 60]`.

One worker under load switches its request line off, to JSON and to the readable form, a twentieth of a second each: two
processes that run the same are several µs apart already, and so are two minutes of one. Each round has an order of its
own, since a turn bears a part of what stood before it. Printed is the CPU of each form for a request, writing
included, and what a form adds. Ends with status 1 where one adds more than 10 µs (median of the rounds).
"""

import argparse
import json
import random
import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from bench.processes import BenchError, refuse_taken, running, wait_for_port
from bench.run import BUILD, PHASES, build, run_load
from bench.targets import MOCK_PORTS, PATH, check_answers, start_gateway
from gateway.configuration.settings import Log
from gateway.runtime.threads import pause, spawn
from gateway.server import logging_setup
from gateway.telemetry.request_observers import RequestObservers

FORMS = ("off", "json", "text")
TURN_S = 0.05
MIN_REQUESTS = 20  # requests of a turn that counts
MAX_US = 10.0


def main(arguments: list[str] | None = None) -> int:
    """0 when no form adds more than MAX_US."""
    parser = argparse.ArgumentParser(prog="python -m bench.lines", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=60.0, help="length of the measurement (60)")
    parser.add_argument("--port", type=int, default=19_600, help="first of four ports (19600)")
    options = parser.parse_args(arguments)
    try:
        rounds = measure(options.seconds, options.port)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    off = [one["off"] for one in rounds]
    print(f"off    {median(off):7.1f} µs of CPU a request, {len(rounds)} rounds")
    added = {form: median(one[form] - one["off"] for one in rounds) for form in FORMS[1:]}
    for form, more in added.items():
        found = median(one[form] for one in rounds)
        print(f"{form:6} {found:7.1f} µs, which is {more:+.1f} µs (at most {MAX_US:g})")
    return 0 if max(added.values()) <= MAX_US else 1


def measure(seconds: float, port: int) -> list[dict[str, float]]:
    """CPU µs a request of each form, by round. BenchError when there was no whole round."""
    build()
    own = port + MOCK_PORTS
    for one in range(port, own + 1):
        refuse_taken(one)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        found, settings = folder / "found", Path(__file__).with_name("lines.conf.py")
        with running("mock", [str(BUILD / "mock"), str(port)], 1, folder) as mock:
            wait_for_port(mock, port)
            with start_gateway(own, port, folder, {"BENCH_LINES": str(found)}, settings) as target:
                check_answers(target)
                run_load(PHASES[0], target, seconds, folder)
        rounds = [json.loads(line) for line in found.read_text().splitlines()] if found.exists() else []
    if not rounds:
        raise BenchError("no whole round was measured; let it run longer")
    return rounds


def install(requests: RequestObservers, found: Path) -> None:
    """In a worker: let the forms take turns, and write each round to `found`."""
    spawn(take_turns, requests, found)


def take_turns(requests: RequestObservers, found: Path) -> None:
    """For ever."""
    writers = {form: logging_setup.request_lines(Log("info", "text", form)) for form in FORMS}
    answered = requests.of(f"POST {PATH}").count(200, 0)
    with found.open("a") as file:
        while True:
            costs = {}
            for form, writer in random.sample(list(writers.items()), len(writers)):
                requests.observers[:] = [writer] if writer is not None else []
                before, used = answered.value, time.process_time()
                pause(TURN_S)
                if writer is not None:
                    writer.flush()
                used, count = time.process_time() - used, answered.value - before
                costs[form] = used * 1e6 / count if count >= MIN_REQUESTS else 0.0
            if all(costs.values()):
                file.write(json.dumps(costs) + "\n")
                file.flush()


if __name__ == "__main__":
    sys.exit(main())
