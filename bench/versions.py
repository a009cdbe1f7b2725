"""Checkouts of the gateway against each other: `python -m bench.versions BASE OTHER… [--only PHASE] [--rounds 12]`.

`FOLDER@INTERPRETER` runs a checkout with another interpreter, in which requirements.txt is installed.
All of them run at once and take turns in many short rounds, so that other work on the machine meets each alike. A
figure is the CPU time of a good answer, or at a low rate the p50 that the gateway adds. The median of a round's ratios
and the quartiles around it show whether a difference is more than noise. "Quiet" compares the first deciles.
"""

import argparse
import contextlib
import statistics
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.processes import BenchError, thread_seconds
from bench.run import BUILD, PHASES, Phase, build, run_load
from bench.targets import MOCK_PORTS, Target, check_answers, start_gateway, start_targets

SHOWN = {"plain": "CPU µs", "streams": "CPU µs", "50-rps": "added p50 µs", "10-streams-per-s": "added p50 µs"}
WARM_UP_S = 2.0


def main(arguments: list[str] | None = None) -> int:
    """Return 0 after the figures were printed; 1 with the reason when they could not be measured."""
    parser = argparse.ArgumentParser(prog="python -m bench.versions", description=__doc__.partition("\n")[0])
    parser.add_argument("checkouts", nargs="+", help="FOLDER or FOLDER@INTERPRETER; the first is the base")
    parser.add_argument("--only", choices=SHOWN, action="append", help="phases (plain and streams)")
    parser.add_argument("--rounds", type=int, default=12, help="rounds in which all take turns (12)")
    parser.add_argument("--seconds", type=float, default=0.5, help="length of one measurement (0.5)")
    parser.add_argument("--port", type=int, default=19_600, help="first of the ports to use (19600)")
    options = parser.parse_args(arguments)
    phases = [phase for phase in PHASES if phase.name in (options.only or ("plain", "streams"))]
    try:
        build()
        with tempfile.TemporaryDirectory(prefix="versions-") as name, start(options, Path(name)) as (mock, gateways):
            for phase in phases:
                figures = measure(phase, mock, gateways, options, Path(name))
                print(write_figures(phase, options.checkouts, figures), flush=True)
    except BenchError as error:
        print(f"versions: {error}", file=sys.stderr)
        return 1
    return 0


@contextlib.contextmanager
def start(options: argparse.Namespace, folder: Path) -> Iterator[tuple[Target, list[Target]]]:
    """Start the mock and a gateway of each checkout."""
    with contextlib.ExitStack() as stack:
        (mock,) = stack.enter_context(start_targets({}, options.port, folder, BUILD / "mock"))
        gateways = []
        for number, checkout in enumerate(options.checkouts):
            own = folder / f"gateway-{number}"
            own.mkdir()
            root, _, python = checkout.partition("@")
            port = options.port + MOCK_PORTS + number
            gateway = start_gateway(port, mock.port, own, root=Path(root).resolve(), python=python or sys.executable)
            gateways.append(stack.enter_context(gateway))
            check_answers(gateways[-1])
        yield mock, gateways


def measure(
    phase: Phase, mock: Target, gateways: list[Target], options: argparse.Namespace, folder: Path
) -> list[list[float]]:
    """Return the figures of each round: one a gateway, in µs."""
    for gateway in gateways:
        run_load(phase, gateway, WARM_UP_S, folder)
    rounds = []
    for number in range(options.rounds):
        base = run_load(phase, mock, options.seconds, folder)["whole"]["p50"] if phase.rate else 0.0
        order = range(len(gateways)) if number % 2 else reversed(range(len(gateways)))
        figures = {place: measure_once(phase, gateways[place], options.seconds, folder) - base for place in order}
        rounds.append([figures[place] for place in range(len(gateways))])
    return rounds


def measure_once(phase: Phase, gateway: Target, seconds: float, folder: Path) -> float:
    """Return the CPU time of a good answer, or the p50 at a low rate, in µs. BenchError when an answer was not good."""
    before = thread_seconds(gateway.process.pid)
    answers = run_load(phase, gateway, seconds, folder)
    used = thread_seconds(gateway.process.pid) - before
    if answers["errors"] or not answers["good"]:
        raise BenchError(f"port {gateway.port}: {answers['errors']} answers were not good")
    return answers["whole"]["p50"] if phase.rate else used * 1e6 / answers["good"]


def write_figures(phase: Phase, checkouts: list[str], rounds: list[list[float]]) -> str:
    """Return a line for each checkout: the median, and the quartiles of its ratio to the base in the same round."""
    lines = []
    for place, checkout in enumerate(checkouts):
        line = f"{phase.name}, {SHOWN[phase.name]}: {checkout}: {statistics.median(r[place] for r in rounds):.1f}"
        if place:
            low, middle, high = statistics.quantiles((figures[place] / figures[0] for figures in rounds), n=4)
            line += f", × {middle:.3f} ({low:.3f} to {high:.3f})"
            line += f", quiet × {quiet(rounds, place) / quiet(rounds, 0):.3f}"
        lines.append(line)
    return "\n".join(lines)


def quiet(rounds: list[list[float]], place: int) -> float:
    """Return the first decile of a gateway's figures: those of rounds in which little else ran."""
    return statistics.quantiles((figures[place] for figures in rounds), n=10)[0]


if __name__ == "__main__":
    sys.exit(main())
