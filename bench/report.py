"""The figures of a run as medians, ratios and text."""

import os
import platform
import shutil
import statistics
import subprocess
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import metadata
from pathlib import Path

from bench.targets import ROOT, Target

PACKAGES = ("gunicorn", "gevent", "httptools", "flask", "orjson", "msgspec", "peewee")
COLUMNS = (
    "target",
    "rps",
    "p50 µs",
    "p99 µs",
    "added p50",
    "delay p50",
    "added",
    "CPU µs",
    "core",
    "PSS MB",
    "a commit",
    "errors",
)
# Aims for the gateway, one worker on one core: (name, phase, figure, must, good); lower is better.
AIMS = (
    ("CPU µs a request", "plain", "cpu_us", 150, 60),
    ("CPU µs a stream of 50 events", "streams", "cpu_us", 500, 260),
    ("added p50 µs at 50 rps", "50-rps", "added_p50", 1000, 400),
    ("added p50 µs of a chunk, 100 paced streams", "paced-streams", "added_delay", 1000, 300),
    ("PSS MB", "plain", "pss_mb", 120, 80),
)
GO_PEER = "ferrogw"
GATEWAYS = ("gateway", "gateway-optimized")  # the second one on another interpreter, see optimized.py
OWN_TARGETS = ("direct", "relay", *GATEWAYS)


@dataclass(frozen=True, slots=True)
class RatioAim:
    """Limits of a figure relative to the Go peer in the same run; above `must` a run fails."""

    name: str
    phase: str
    figure: str
    must: float
    goal: float


RATIO_AIMS = (
    RatioAim("CPU of a request", "plain", "cpu_us", 0.9, 0.7),
    RatioAim("CPU of a stream of 50 events", "streams", "cpu_us", 0.38, 0.33),
    RatioAim("added p50 at 50 rps", "50-rps", "added_p50", 1.9, 1.2),
    RatioAim("added time to the first token", "10-streams-per-s", "added_first", 1.0, 0.8),
)
# Requests of the phase `plain` that share a commit: CPU depends on it, and counted bytecodes do not show it.
PER_COMMIT = 31
MIN_PER_COMMIT = PER_COMMIT * 2 / 3
# Where other programs took more of the gateway's core, fewer requests are ready at the same time.
MIN_CORE = 0.75
BUSY = 0.95  # below it a peer's core was not the limit, so only CPU µs compare
LEFT_OUT = "Left out: TLS to the upstream, several workers, a real network, PostgreSQL, Redis."


def describe(rounds: int, seconds: float, targets: list[Target]) -> dict:
    """The context of the figures: versions, commit, processor, settings, start-up times."""
    return {
        "commit": _commit(),
        "python": platform.python_version(),
        "packages": {name: _version(name) for name in PACKAGES},
        "compiler": _first_line(["cc", "--version"]),
        "kernel": platform.release(),
        "cpu": _cpu(),
        "cores": len(os.sched_getaffinity(0)),
        "pinned": len(os.sched_getaffinity(0)) > 1 and bool(shutil.which("taskset")),
        "rounds": rounds,
        "seconds": seconds,
        "start_s": {target.name: round(target.start_s, 3) for target in targets if target.process},
    }


def summarize(runs: list[dict]) -> dict[str, dict[str, dict]]:
    """Phase → target → medians over the rounds; what a target adds is its p50 less the direct one of that round."""
    found: dict[str, dict[str, dict]] = {}
    for phase in dict.fromkeys(run["phase"] for run in runs):
        mine = [run for run in runs if run["phase"] == phase]
        direct = {run["round"]: run for run in mine if run["target"] == "direct"}
        names = dict.fromkeys(run["target"] for run in mine)
        found[phase] = {name: _medians([run for run in mine if run["target"] == name], direct) for name in names}
    return found


def _medians(runs: list[dict], direct: dict[int, dict]) -> dict:
    base = [direct[run["round"]] for run in runs]
    row = {
        "rps": _median(run["rps"] for run in runs),
        "p50": _median(run["whole"]["p50"] for run in runs),
        "p99": _median(run["whole"]["p99"] for run in runs),
        "added_p50": _median(run["whole"]["p50"] - b["whole"]["p50"] for run, b in zip(runs, base, strict=True)),
        "added_first": _median(run["first"]["p50"] - b["first"]["p50"] for run, b in zip(runs, base, strict=True)),
        "errors": sum(run["errors"] for run in runs),
        "good": sum(run["good"] for run in runs),
    }
    # Without pauses the age of a chunk is the length of the generator's queue, not the target's doing.
    if all(run["paced"] and run["delay"]["count"] for run in runs):
        row["delay_p50"] = _median(run["delay"]["p50"] for run in runs)
        row["added_delay"] = _median(run["delay"]["p50"] - b["delay"]["p50"] for run, b in zip(runs, base, strict=True))
    for name in ("cpu_us", "core", "pss_mb", "per_commit"):
        values = [run[name] for run in runs if run.get(name) is not None]
        if values:
            row[name] = _median(values)
    return row


def count_errors(results: dict) -> int:
    """Answers of the gateway, the relay and the mock that were not good; anything but 0 spoils the figures.

    A peer that cannot keep up with a phase has errors too; its row names them.
    """
    return sum(run["errors"] for run in results["runs"] if run["target"] in OWN_TARGETS)


def ratio_to_go(phases: dict[str, dict[str, dict]], phase: str, figure: str, gateway: str = "gateway") -> float | None:
    """The figure of a gateway relative to the Go peer's; None where one of them is missing or not positive."""
    rows = phases.get(phase, {})
    ours, peers = rows.get(gateway, {}).get(figure), rows.get(GO_PEER, {}).get(figure)
    return ours / peers if ours and peers and peers > 0 else None


def misses_ratio(results: dict) -> bool:
    """Whether a figure is above its limit relative to the Go peer. CPU and latency are compared within the run."""
    ratios = [(ratio_to_go(results["phases"], aim.phase, aim.figure), aim.must) for aim in RATIO_AIMS]
    return any(ratio is not None and ratio > must for ratio, must in ratios)


def shares_too_few(results: dict) -> bool:
    """Whether fewer requests share a commit than two thirds of what is usual."""
    return _per_commit(results["phases"]) < MIN_PER_COMMIT


def _per_commit(phases: dict[str, dict[str, dict]]) -> float:
    """Requests a commit at 32 connections; PER_COMMIT in a run that did not measure it separately."""
    row = phases.get("plain", {}).get("gateway", {})
    return row.get("per_commit", PER_COMMIT) if row.get("core", 0.0) >= MIN_CORE else PER_COMMIT


def write_progress(run: dict) -> str:
    cpu = f"{run['cpu_us']:>9} µs" if run.get("cpu_us") else " " * 12
    where = f"round {run['round'] + 1} {run['phase']:<17} {run['target']:<8}"
    return f"{where} {run['rps']:>9} rps {cpu} {run['errors']} errors"


def write_text(results: dict) -> str:
    """The report for people."""
    lines = _write_about(results["about"])
    for phase, rows in results["phases"].items():
        lines += ["", f"{phase} (medians; times in µs)", _row(COLUMNS)]
        lines += [_row(_cells(name, row)) for name, row in rows.items()]
        lines += _write_ratios(rows)
    lines += ["", *_write_aims(results["phases"]), LEFT_OUT]
    if shares_too_few(results):
        few = _per_commit(results["phases"])
        lines.append(f"{few:g} requests share a commit at 32 connections; usual are {PER_COMMIT}.")
    lines += [f"{name} is left out: {reason}" for name, reason in results["about"]["left_out"].items()]
    errors = count_errors(results)
    if errors:
        lines.append(f"{errors} answers were not good: the figures do not count.")
    return "\n".join(lines)


def _write_about(about: dict) -> list[str]:
    packages = " ".join(f"{name} {version}" for name, version in about["packages"].items())
    starts = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in about["start_s"].items())
    return [
        f"commit {about['commit']}, Python {about['python']}, {packages}",
        f"{about['cpu']}, {about['cores']} cores{', pinned' if about['pinned'] else ''}, kernel {about['kernel']}"
        + f", load before the run {about['load']:g}",
        f"peers: {', '.join(about['peers']) or 'none'}",
        f"{about['rounds']} rounds of {about['seconds']:g} s; ready after: {starts or 'nothing to start'}",
    ]


def _cells(name: str, row: dict) -> tuple[str, ...]:
    keys = (
        "rps",
        "p50",
        "p99",
        "added_p50",
        "delay_p50",
        "added_delay",
        "cpu_us",
        "core",
        "pss_mb",
        "per_commit",
        "errors",
    )
    return (name, *(f"{row[key]:,.10g}" if key in row else "" for key in keys))


def _row(cells: Iterable[str]) -> str:
    first, *rest = cells
    return f"  {first:<8}" + "".join(f"{cell:>13}" for cell in rest)


def _write_ratios(rows: dict[str, dict]) -> list[str]:
    gateway = rows.get("gateway")
    lines = []
    for peer, row in rows.items():
        if peer in GATEWAYS or not gateway or not gateway.get("cpu_us") or not row.get("cpu_us"):
            continue
        text = f"  gateway / {peer}: CPU µs × {gateway['cpu_us'] / row['cpu_us']:.2f}"
        if row["core"] > BUSY and row["rps"]:
            text += f", rps × {gateway['rps'] / row['rps']:.3f}"
        lines.append(text)
    return lines


def _write_aims(phases: dict[str, dict[str, dict]]) -> list[str]:
    lines = []
    for name, phase, figure, must, good in AIMS:
        value = phases.get(phase, {}).get("gateway", {}).get(figure)
        if value is not None:
            lines.append(f"aim: {name}: {value:g}{judge(value, must, good)}")
    for aim in RATIO_AIMS:
        for name in GATEWAYS:
            ratio = ratio_to_go(phases, aim.phase, aim.figure, name)
            if ratio is not None:
                lines.append(f"aim: {name}: {aim.name} / {GO_PEER}: {ratio:.2f}{judge(ratio, aim.must, aim.goal)}")
    return lines


def judge(value: float, must: float, goal: float) -> str:
    """Return the limit and target of a figure and whether it is within them; "" for a figure without a limit."""
    if not must:
        return ""
    verdict = "MISSED"
    if value <= goal:
        verdict = "good"
    elif value <= must:
        verdict = "as it must"
    return f" (must {must:g}, good {goal:g}): {verdict}"


def _median(values: Iterable[float]) -> float:
    return round(statistics.median(values), 3)


def _commit() -> str:
    commit = _first_line(["git", "-C", str(ROOT), "rev-parse", "--short", "HEAD"])
    changed = _first_line(["git", "-C", str(ROOT), "status", "--porcelain", "--untracked-files=no"])
    return f"{commit or 'unknown'}{' with changes' if changed else ''}"


def _first_line(command: list[str]) -> str:
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=10)
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = (done.stdout or done.stderr).splitlines()
    return lines[0].strip() if lines and not done.returncode else ""


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "absent"


def _cpu() -> str:
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            return line.split(":", 1)[1].strip()
    return platform.machine()
