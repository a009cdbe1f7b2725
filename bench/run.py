"""Run the benchmark: `python -m bench.run` (see --help)."""

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from bench import optimized, publish, report
from bench.peers import PEERS, describe_peer, install_available
from bench.processes import RIG_CORE, BenchError, cpu_seconds, pin, pss_mb
from bench.targets import OWN, ROOT, Target, add_headers, read_metric, start_targets, write_request

BUILD = ROOT / "bench" / "build"
FLAGS = ["-O2", "-Wall", "-Wextra", "-std=gnu11"]
STARTERS = PEERS | OWN | optimized.STARTERS
Write = Callable[[int, str, bool, str], bytes]
WARM_UP_S = 1.0
SPARE_S = 60.0


@dataclass(frozen=True, slots=True)
class Phase:
    """One kind of load. `rate` 0 is a closed loop; `gap_ms` paces the chunks of a stream."""

    name: str
    connections: int
    stream: bool = False
    rate: float = 0.0
    think_ms: int = 0
    gap_ms: int = 0


PHASES = (
    Phase("plain", 32),
    Phase("streams", 32, stream=True),
    Phase("paced-streams", 100, stream=True, gap_ms=20),
    Phase("50-rps", 200, rate=50),
    Phase("10-streams-per-s", 200, stream=True, rate=10, gap_ms=5),
    Phase("thinking-clients", 200, think_ms=200),
)


def main(arguments: list[str] | None = None) -> int:
    """0 when every answer was good, commits had as many requests as usual and ratios were in their limits; else 1."""
    options = read_options(arguments)
    try:
        results = measure(options)
    except BenchError as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    print(report.write_text(results))
    if options.publish:
        publish.write_page(results)
    if options.json:
        options.json.write_text(json.dumps(results, indent=2) + "\n")
    failed = report.count_errors(results) or report.shares_too_few(results) or report.misses_ratio(results)
    return 1 if failed else 0


def read_options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m bench.run", description=__doc__)
    names = [phase.name for phase in PHASES]
    parser.add_argument(
        "--targets", default="", help=f"comma-separated, of {', '.join(STARTERS)}; default: all that can be installed"
    )
    parser.add_argument("--phases", default=",".join(names), help="comma-separated; default: all")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that interleave all targets (3)")
    parser.add_argument("--seconds", type=float, default=3.0, help="length of one measurement (3)")
    parser.add_argument("--port", type=int, default=19400, help="first of the ports to use (19400)")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--publish", action="store_true", help="also write table and plot into docs/performance.md")
    options = parser.parse_args(arguments)
    options.targets = read_names(parser, options.targets, STARTERS)
    wanted = read_names(parser, options.phases, names)
    options.phases = [phase for phase in PHASES if phase.name in wanted]
    if options.rounds < 1 or options.seconds <= 0:
        parser.error("rounds and seconds must be positive")
    return options


def read_names(parser: argparse.ArgumentParser, text: str, known: Iterable[str]) -> list[str]:
    wanted = [name.strip() for name in text.split(",") if name.strip()]
    for name in wanted:
        if name not in known:
            parser.error(f"unknown name {name!r}; known are {', '.join(known)}")
    return wanted


def measure(options: argparse.Namespace) -> dict:
    """Every figure of the run, as the JSON report has it."""
    build()
    names = options.targets or list(STARTERS)
    left_out = install_available(names) | optimized.leave_out(names)
    starters = {name: STARTERS[name] for name in names if name not in left_out}
    load = os.getloadavg()[0]
    with tempfile.TemporaryDirectory(prefix="bench-") as name:
        folder = Path(name)
        with start_targets(starters, options.port, folder, BUILD / "mock") as targets:
            runs = run_rounds(options, targets, folder)
            about = report.describe(options.rounds, options.seconds, targets)
    peers = [pin for name in starters if name in PEERS for pin in describe_peer(name)]
    if optimized.NAME in starters:
        about["optimized"] = optimized.find_interpreter()[1]
    about |= {"load": round(load, 1), "load_after": round(os.getloadavg()[0], 1), "left_out": left_out, "peers": peers}
    return {"about": about, "runs": runs, "phases": report.summarize(runs)}


def build() -> None:
    """Compile the mock and the generator when their sources are newer. BenchError when the compiler refuses."""
    BUILD.mkdir(exist_ok=True)
    for name in ("mock", "load"):
        source, binary = ROOT / "bench" / f"{name}.c", BUILD / name
        if binary.exists() and binary.stat().st_mtime > source.stat().st_mtime:
            continue
        try:
            done = subprocess.run(["cc", *FLAGS, "-o", binary, source], capture_output=True, text=True)
        except OSError as error:
            raise BenchError(f"the C compiler cc cannot be run: {error.strerror}") from None
        if done.returncode:
            raise BenchError(f"cc refused {source.name}:\n{done.stderr}")


def run_rounds(options: argparse.Namespace, targets: list[Target], folder: Path) -> list[dict]:
    """One entry a round, phase and target. Targets take turns within a phase, so drift meets all alike."""
    for phase in options.phases:
        for target in targets:
            run_load(phase, target, WARM_UP_S, folder)
    runs = []
    for number in range(options.rounds):
        for phase in options.phases:
            for target in targets:
                figures = run_once(phase, target, options.seconds, folder)
                about = {"round": number, "phase": phase.name, "target": target.name, "paced": phase.gap_ms > 0}
                runs.append(about | figures)
                print(report.write_progress(runs[-1]), file=sys.stderr)
    return runs


def run_once(phase: Phase, target: Target, seconds: float, folder: Path, write: Write = write_request) -> dict:
    """Return the generator's figures and those of the target's process tree.

    The latter are the CPU time of a good answer in µs, the load of the core and the PSS. For the gateway, the number of
    requests that shared a commit is added.
    """
    if target.process is None:
        return run_load(phase, target, seconds, folder)
    commits = count_commits(target)
    began, before = time.monotonic(), cpu_seconds(target.process.pid)
    figures = run_load(phase, target, seconds, folder, write=write)
    used, passed = cpu_seconds(target.process.pid) - before, time.monotonic() - began
    figures["cpu_us"] = round(used * 1e6 / figures["good"], 1) if figures["good"] else None
    figures["core"] = round(used / passed, 3)
    figures["pss_mb"] = round(pss_mb(target.process.pid), 1)
    commits = count_commits(target) - commits
    if commits:
        figures["per_commit"] = round(figures["good"] / commits, 1)
    return figures


def count_commits(target: Target) -> float:
    """Commits of the gateway's journal since its start; 0 for the other targets, which have none."""
    return read_metric(target.port, "llmgateway_journal_commits") if target.name in report.GATEWAYS else 0.0


def run_load(
    phase: Phase, target: Target, seconds: float, folder: Path, model: str = "", write: Write = write_request
) -> dict:
    """Run the generator once with requests that `write` makes. Raises BenchError when it fails."""
    prompt = f"count=50 gap={phase.gap_ms}" if phase.stream else ""
    path = folder / "request"
    path.write_bytes(add_headers(write(target.port, prompt, phase.stream, model or target.model), target))
    shape = [phase.connections, seconds, phase.rate, phase.think_ms, int(phase.stream)]
    command = [str(BUILD / "load"), str(target.port), str(path), *map(str, shape)]
    try:
        done = subprocess.run(pin(command, RIG_CORE), capture_output=True, text=True, timeout=seconds + SPARE_S)
    except subprocess.TimeoutExpired:
        raise BenchError(f"the generator did not end in {phase.name} against {target.name}") from None
    if done.returncode:
        raise BenchError(f"the generator failed in {phase.name} against {target.name}: {done.stderr}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    sys.exit(main())
