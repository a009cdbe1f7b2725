"""How many bytecodes a request takes, and where: `python -m bench.steps [--stream | --lane NAME] [--lone] [--modules]
[--lines [FORM]] [--limits N]`.

A measure that no noise touches, for work on the hot path on a machine with other work. It leaves out what the
interpreter does not do itself: C code, system calls, memory. One warm request is traced in a gateway under load, or
with --lone one of those that come one by one, where whatever is remembered for a moment only is made anew. With
--modules the result is the list of the gateway's modules that the request enters.
"""

import argparse
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from bench.lanes import LANES, Lane, run, start
from bench.processes import BenchError, refuse_taken, running, wait_for_port
from bench.run import BUILD, PHASES, build, run_load
from bench.targets import MOCK_PORTS, ROOT, clean_environment, start_gateway

SECONDS = 3.0
LIMITS = ("organization", "each model", "each application", "each project")
ROUNDS = 10
# Lone requests: the number of connections that take turns, and the minimum time between two requests in seconds.
LONE_CONNECTIONS, APART_S = 4, 0.01


def main(arguments: list[str] | None = None) -> int:
    """Return 0 if a request was traced; otherwise print the reason and return 1."""
    parser = argparse.ArgumentParser(prog="python -m bench.steps", description=__doc__.partition("\n")[0])
    parser.add_argument("--stream", action="store_true", help="trace a stream of 50 events")
    parser.add_argument("--lone", action="store_true", help="trace one of requests that come one by one")
    parser.add_argument("--modules", action="store_true", help="list the modules that the request enters")
    parser.add_argument(
        "--lines", nargs="?", const="json", default="off", choices=("json", "text"), help="with the request line (json)"
    )
    parser.add_argument("--port", type=int, default=19_480, help="first of four ports (default %(default)s)")
    parser.add_argument("--limits", type=int, default=0, choices=range(len(LIMITS) + 1), help="with so many limits")
    names = [lane.name for lane in LANES]
    parser.add_argument("--lane", choices=names, help="a request of bench.lanes instead, over its upstream")
    options = parser.parse_args(arguments)
    try:
        if options.lane:
            print(trace_lane(LANES[names.index(options.lane)], options.port), end="")
        else:
            flags = options.lines, options.lone, options.modules, options.limits
            print(trace(options.stream, options.port, *flags), end="")
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def trace(
    stream: bool, port: int, lines: str = "off", lone: bool = False, modules: bool = False, limits: int = 0
) -> str:
    """The tree of one request, with the request line in the form of `lines`, under so many limits of any subject.
    BenchError when none was traced."""
    build()
    own = port + MOCK_PORTS
    for one in range(port, own + 1):
        refuse_taken(one)
    phase = next(phase for phase in PHASES if phase.stream is stream and not phase.rate)
    sparse = next(phase for phase in PHASES if phase.stream is stream and phase.rate)
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        tree, settings = folder / "tree", Path(__file__).with_name("steps.conf.py")
        more = {"BENCH_STEPS": str(tree), "GATEWAY_LOG_REQUESTS": lines}
        more |= {"BENCH_STEPS_APART_S": str(APART_S)} if lone else {}
        more |= {"BENCH_STEPS_MODULES": "1"} if modules else {}
        with running("mock", [str(BUILD / "mock"), str(port)], 1, folder) as mock:
            wait_for_port(mock, port)
            with start_gateway(own, port, folder, more, settings) as target:
                for number in range(limits):
                    put_limit(f"limit-{number}", LIMITS[number], folder / "data")
                for _ in range(ROUNDS):
                    run_load(phase, target, SECONDS, folder)
                    if lone:
                        run_load(replace(sparse, connections=LONE_CONNECTIONS), target, SECONDS, folder)
                    if tree.exists():
                        return tree.read_text()
    raise BenchError("no request was traced")


def put_limit(name: str, subject: str, data: Path) -> None:
    """Set a limit of 1,000 dollars a day."""
    command = [sys.executable, "-m", "gateway.operator.command", "limits", "put", name, "1000"]
    environment = clean_environment() | {"GATEWAY_DATA_DIR": str(data), "PYTHONPATH": str(ROOT)}
    options = ["--subject", subject, "--period", "day"]
    subprocess.run([*command, *options], env=environment, cwd=ROOT, check=True, stdout=subprocess.DEVNULL)


def trace_lane(lane: Lane, port: int) -> str:
    """The tree of one request of a lane. BenchError when none was traced."""
    build()
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        tree, settings = folder / "tree", Path(__file__).with_name("steps.conf.py")
        with start(port, folder, {"BENCH_STEPS": str(tree)}, settings) as gateway:
            for _ in range(ROUNDS):
                run(gateway, lane, SECONDS, folder)
                if tree.exists():
                    return tree.read_text()
    raise BenchError("no request was traced")


if __name__ == "__main__":
    sys.exit(main())
