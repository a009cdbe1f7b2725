"""What the request line costs: `python -m bench.lines [--seconds 3] [--rounds 5]`.

Two gateways side by side, one with `GATEWAY_LOG_REQUESTS=json` and one without, take the same plain requests in turns;
told is the CPU of each for a request, and what the line adds. A third, with the readable form, is compared too. Ends
with status 1 where a form adds more than 10 µs (median of the rounds).
"""

import argparse
import contextlib
import sys
import tempfile
from pathlib import Path
from statistics import median

from bench.processes import BenchError, refuse_taken, running, wait_for_port
from bench.run import BUILD, PHASES, WARM_UP_S, build, run_load, run_once
from bench.targets import MOCK_PORTS, Target, check_answers, start_gateway

FORMS = ("off", "json", "text")
MOST_US = 10.0


def main(arguments: list[str] | None = None) -> int:
    """0 when no form adds more than MOST_US."""
    parser = argparse.ArgumentParser(prog="python -m bench.lines", description=__doc__.partition("\n")[0])
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (3)")
    parser.add_argument("--rounds", type=int, default=5, help="rounds in which all take turns (5)")
    parser.add_argument("--port", type=int, default=19_600, help="first of seven ports (19600)")
    options = parser.parse_args(arguments)
    try:
        found = measure(options.rounds, options.seconds, options.port)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    added = {form: median(a - b for a, b in zip(found[form], found["off"], strict=True)) for form in FORMS[1:]}
    print(f"off    {median(found['off']):7.1f} µs of CPU a request")
    for form, more in added.items():
        print(f"{form:6} {median(found[form]):7.1f} µs, which is {more:+.1f} µs (at most {MOST_US:g})")
    return 0 if max(added.values()) <= MOST_US else 1


def measure(rounds: int, seconds: float, port: int) -> dict[str, list[float]]:
    """CPU µs a request of each form, by round. BenchError when an answer is not good."""
    build()
    plain, ports = PHASES[0], range(port + MOCK_PORTS, port + MOCK_PORTS + len(FORMS))
    for one in (*range(port, port + MOCK_PORTS), *ports):
        refuse_taken(one)
    found: dict[str, list[float]] = {form: [] for form in FORMS}
    with tempfile.TemporaryDirectory(prefix="bench-") as name, contextlib.ExitStack() as stack:
        folder = Path(name)
        wait_for_port(stack.enter_context(running("mock", [str(BUILD / "mock"), str(port)], 1, folder)), port)
        targets: dict[str, Target] = {}
        for form, own in zip(FORMS, ports, strict=True):
            (folder / form).mkdir()
            started = start_gateway(own, port, folder / form, {"GATEWAY_LOG_REQUESTS": form})
            targets[form] = stack.enter_context(started)
            check_answers(targets[form])
            run_load(plain, targets[form], WARM_UP_S, folder)
        for _ in range(rounds):
            for form, target in targets.items():
                figures = run_once(plain, target, seconds, folder)
                if figures["cpu_us"] is None:
                    raise BenchError(f"{form}: no request was answered")
                found[form].append(figures["cpu_us"])
    return found


if __name__ == "__main__":
    sys.exit(main())
