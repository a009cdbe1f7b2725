"""The figures of a run as a table and a plot for docs/performance.md, between two markers."""

import math
import re
from collections import Counter
from html import escape
from pathlib import Path

from bench.report import GATEWAYS, GO_PEER, RATIO_AIMS, ratio_to_go
from bench.targets import ROOT

PAGE = ROOT / "docs" / "performance.md"
PLOT = ROOT / "docs" / "performance.svg"
BEGIN, END = "<!-- make bench writes this part -->", "<!-- end of this part -->"
# Title, phase, figure of its rows, divisor, decimals.
FIGURES = (
    ("CPU µs a request", "plain", "cpu_us", 1, 0),
    ("CPU µs a stream of 50 events", "streams", "cpu_us", 1, 0),
    ("requests a second", "plain", "rps", 1, 0),
    ("added p50 ms at 50 requests a second", "50-rps", "added_p50", 1000, 2),
    ("added p50 ms to the first token", "10-streams-per-s", "added_first", 1000, 2),
    ("added p50 ms of a chunk, 100 paced streams", "paced-streams", "added_delay", 1000, 2),
    ("PSS MB under load", "plain", "pss_mb", 1, 0),
)
PLOTTED = (0, 1, 3, 6)
NAMES = {
    "ferrogw": "Go peer (ferrogw)",
    "litellm": "LiteLLM",
    "portkey": "Portkey",
    "relay": "relay (own worker only)",
    "gateway-optimized": "gateway, optimized Python",
}
WIDTH, LABELS, BAR, GAP, HEAD = 720, 180, 16, 6, 34
OWN_COLOUR, PEER_COLOUR = "#1f6feb", "#9aa4b1"


def write_page(results: dict, page: Path = PAGE, plot: Path = PLOT) -> None:
    """Replace the part of the page between the markers, and the plot."""
    plot.write_text(write_plot(results["phases"]))
    part = f"{BEGIN}\n{write_part(results)}\n{END}"
    pattern = re.compile(re.escape(BEGIN) + ".*?" + re.escape(END), re.DOTALL)
    page.write_text(pattern.sub(lambda _: part, page.read_text()))


def write_part(results: dict) -> str:
    """The Markdown of a run: its circumstances, the table, the plot."""
    about = results["about"]
    lines = [
        f"Commit {about['commit']}, {about['cpu']}, {about['cores']} cores, Python {about['python']}, "
        f"{about['rounds']} rounds of {about['seconds']:g} s; load of the machine {about['load']:g} before and "
        f"{about['load_after']:g} at the end, of which 2 are the run's own. "
        f"Peers: {', '.join(about['peers']) or 'none'}.",
        *write_second(about.get("optimized", "")),
        "",
        *write_table(results["phases"]),
        "",
    ]
    failures = Counter({run["target"]: 0 for run in results["runs"]})
    for run in results["runs"]:
        failures[run["target"]] += run["errors"]
    if failures.total():
        names = ", ".join(f"{NAMES.get(name, name)} {count}" for name, count in failures.items() if count)
        lines += [f"Answers that did not arrive within five seconds after a measurement, or failed: {names}.", ""]
    if about["left_out"]:
        lines += [f"Left out, because they could not be installed: {', '.join(about['left_out'])}.", ""]
    return "\n".join([*lines, f"![Bars of the table's figures]({PLOT.name})"])


def write_second(version: str) -> list[str]:
    """Return the sentence on the second interpreter; nothing without one."""
    if not version:
        return []
    kind = "built with profile-guided optimization"
    return [f"The row with optimized Python is the same gateway on Python {version}, {kind}."]


def write_table(phases: dict[str, dict[str, dict]]) -> list[str]:
    """A row for each target, then the ratio of the gateway to the Go peer and its limit."""
    figures = [figure for figure in FIGURES if figure[1] in phases]
    lines = ["| | " + " | ".join(title for title, *_ in figures) + " |", "|---|" + "---:|" * len(figures)]
    for target in target_names(phases):
        cells = []
        for figure in figures:
            value = read_value(phases, target, figure)
            cells.append("" if value is None else f"{value:,.{figure[4]}f}")
        lines.append(f"| {NAMES.get(target, target)} | {' | '.join(cells)} |")
    keys = [(figure[1], figure[2]) for figure in figures]
    compared = False
    for gateway in GATEWAYS:
        ratios = [ratio_to_go(phases, phase, name, gateway) for phase, name in keys]
        if any(ratios):
            compared = True
            cells = [f"{ratio:.2f}" if ratio else "" for ratio in ratios]
            lines.append(f"| {NAMES.get(gateway, gateway)} / {GO_PEER} | {' | '.join(cells)} |")
    if compared:
        limits = {(aim.phase, aim.figure): f"{aim.must:g}, {aim.goal:g}" for aim in RATIO_AIMS}
        lines.append(f"| limit and target of this ratio | {' | '.join(limits.get(key, '') for key in keys)} |")
    return lines


def target_names(phases: dict[str, dict[str, dict]]) -> list[str]:
    names = dict.fromkeys(name for rows in phases.values() for name in rows)
    return [name for name in names if name != "direct"]


def read_value(phases: dict[str, dict[str, dict]], target: str, figure: tuple) -> float | None:
    """The value of a figure in its unit; None where a target has none or gave no good answer."""
    _, phase, name, divisor, _ = figure
    value = phases[phase].get(target, {}).get(name)
    return None if value is None else value / divisor


def write_plot(phases: dict[str, dict[str, dict]]) -> str:
    """An SVG with one panel of horizontal bars for each plotted figure; lengths are logarithmic."""
    parts: list[str] = []
    top = 10
    for number in PLOTTED:
        figure = FIGURES[number]
        if figure[1] not in phases:
            continue
        values = {name: read_value(phases, name, figure) for name in target_names(phases)}
        shown = {name: value for name, value in values.items() if value is not None and value > 0}
        parts.append(text(10, top + 16, f"{figure[0]} (logarithmic, shorter is better)", "bold"))
        top += HEAD
        parts += draw_bars(shown, figure[4], top)
        top += len(shown) * (BAR + GAP) + GAP
    head = f'<svg xmlns="http://www.w3.org/2000/svg" width="{WIDTH}" height="{top}" font-family="sans-serif" '
    head += f'font-size="12"><rect width="{WIDTH}" height="{top}" fill="#ffffff"/>'
    return "\n".join([head, *parts, "</svg>"]) + "\n"


def draw_bars(values: dict[str, float], decimals: int, top: int) -> list[str]:
    """Bars from half of the smallest value to the largest one, each with its name and value."""
    if not values:
        return []
    floor = min(values.values()) / 2
    scale = (WIDTH - LABELS - 80) / math.log(max(values.values()) / floor)
    parts: list[str] = []
    for row, (name, value) in enumerate(values.items()):
        y = top + row * (BAR + GAP)
        width = math.log(value / floor) * scale
        colour = OWN_COLOUR if name in GATEWAYS else PEER_COLOUR
        parts.append(text(10, y + BAR - 4, NAMES.get(name, name)))
        parts.append(f'<rect x="{LABELS}" y="{y}" width="{width:.1f}" height="{BAR}" fill="{colour}"/>')
        parts.append(text(LABELS + width + 6, y + BAR - 4, f"{value:,.{decimals}f}"))
    return parts


def text(x: float, y: float, words: str, weight: str = "normal") -> str:
    return f'<text x="{x:.1f}" y="{y}" font-weight="{weight}" fill="#1b1f24">{escape(words)}</text>'
