"""Plots of stacked bars as inline SVG, which needs no script. The template `plot.html` draws them."""

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

from msgspec import Struct

from gateway.surfaces.console.shown_figures import round_count

MAX_SERIES = 6  # the others are summed up
OTHER_SERIES = "Other"
OTHER_CLASS = "s7"
FAILED = "Failed"
FAILED_CLASS = "s4"
WIDTH, HEIGHT = 1000, 240  # of the drawing, which is stretched to the page
GAP = 0.25  # share of a bar's place that stays empty
STEPS = (1, 1.5, 2, 3, 4, 5, 6, 8, 10)  # an axis ends at one of these times a power of ten
TICKS = 4
NO_COLOURS: Mapping[str, str] = MappingProxyType({})


class Segment(Struct, frozen=True):
    """A rectangle of a bar."""

    css_class: str
    y: float
    height: float


class Bar(Struct, frozen=True):
    """The bar of one step. `title` describes it in words; `at` is the time of a minute or hour in UTC, "" for a day."""

    title: str
    x: float
    segments: tuple[Segment, ...]
    at: str = ""


class Plot(Struct, frozen=True):
    """A bar chart for the template. `place` and `width` are the widths of a bar with and without its gaps; `scale` are
    the labels of the vertical axis from the top, `ticks` the steps that the horizontal axis names; `legend` are the
    class and name of each series."""

    bars: tuple[Bar, ...]
    place: float
    width: float
    scale: tuple[str, str, str]
    ticks: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]


def build_plot(
    steps: Sequence[str],
    series: Mapping[str, Sequence[int]],
    write: Callable[[int], str],
    colours: Mapping[str, str] = NO_COLOURS,
) -> Plot:
    """Return the plot of `series`: a name and a value for each step, a day or a time in UTC. The series OTHER_SERIES,
    if there is one, holds the sums of others already. `write` formats a value; `colours` are the CSS classes of series
    that do not get that of their rank."""
    named = [item for item in series.items() if item[0] != OTHER_SERIES]
    ranked = sorted(named, key=lambda item: (-sum(item[1]), item[0]))
    shown = {name: list(values) for name, values in ranked[:MAX_SERIES]}
    others = [values for _, values in ranked[MAX_SERIES:]]
    if OTHER_SERIES in series:
        others.append(series[OTHER_SERIES])
    if others:
        shown[OTHER_SERIES] = [sum(column) for column in zip(*others, strict=True)]
    classes = {name: f"s{index}" for index, name in enumerate(shown)}
    if others:
        classes[OTHER_SERIES] = OTHER_CLASS
    classes |= {name: css_class for name, css_class in colours.items() if name in classes}
    totals = [sum(values[index] for values in shown.values()) for index in range(len(steps))]
    top = round_up(max(totals, default=0))
    place = WIDTH / max(1, len(steps))
    bars = []
    for index, step in enumerate(steps):
        values = {name: column[index] for name, column in shown.items() if column[index] > 0}
        parts = [f"{name}: {write(value)}" for name, value in values.items()]
        label, at = _read_step(step)
        title = f"{label}: {write(totals[index])}"
        if len(shown) > 1 and parts:
            title = "\n".join([title, *parts])
        bars.append(Bar(title, round(index * place, 2), _stack(values, classes, top), at))
    return Plot(
        tuple(bars),
        round(place, 2),
        round(place * (1 - GAP), 2),
        _write_scale(top, write),
        _choose_ticks(steps),
        tuple((classes[name], name) for name in shown),
    )


def plot_outcomes(steps: Sequence[str], answered: Sequence[int], failed: Sequence[int]) -> Plot:
    """Return the plot of answered and failed requests."""
    return build_plot(steps, {"Answered": answered, FAILED: failed}, round_count, {FAILED: FAILED_CLASS})


def _write_scale(top: int, write: Callable[[int], str]) -> tuple[str, str, str]:
    """Return the labels of the top, the middle and the bottom; the middle has none where rounding would repeat one."""
    middle = write(top // 2)
    if top % 2 or middle == write(top):
        middle = ""
    return write(top), middle, write(0)


def _choose_ticks(steps: Sequence[str]) -> tuple[str, ...]:
    """Return evenly spaced steps, with the first and the last one."""
    last = len(steps) - 1
    indexes = dict.fromkeys(round(number * last / (TICKS - 1)) for number in range(TICKS))
    return tuple(steps[index] for index in indexes if 0 <= index <= last)


def _read_step(step: str) -> tuple[str, str]:
    """Return the name of a step and, unless it is a day, its time as a browser reads it."""
    if len(step) == len("2026-01-31"):
        return step, ""
    at = datetime.fromisoformat(step)
    return f"{at:%Y-%m-%d %H:%M} UTC", f"{at.isoformat()}Z"


def round_up(maximum: int) -> int:
    """Return the end of an axis for values up to `maximum`."""
    if maximum <= 0:
        return 1
    power: float = 10 ** (len(str(maximum)) - 1)
    return round(next(step * power for step in STEPS if step * power >= maximum))


def _stack(values: Mapping[str, int], classes: Mapping[str, str], top: int) -> tuple[Segment, ...]:
    segments = []
    bottom = float(HEIGHT)
    for name, value in values.items():
        height = value / top * HEIGHT
        bottom -= height
        segments.append(Segment(classes[name], round(bottom, 2), round(height, 2)))
    return tuple(segments)
