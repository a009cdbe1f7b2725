"""Plots of stacked bars or lines as inline SVG, which needs no script. The template `plot.html` draws them."""

import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
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
COLOURS = 24  # classes of the style sheet for names: c0 to c23
BEFORE = "Before"  # the values of another period in the title of a bar
MARKED = "◆ "  # before what happened in the step of a bar
MARK_TEXTS = 4  # in the title of a bar
NO_COLOURS: Mapping[str, str] = MappingProxyType({})


class Segment(Struct, frozen=True):
    """A rectangle of a bar."""

    css_class: str
    y: float
    height: float


class BarLink(Struct, frozen=True):
    """The first and last day or hour of a bar, and the query that finds its requests; "" without one."""

    first: str
    last: str
    query: str


class Bar(Struct, frozen=True):
    """The bar of one step. `title` describes it in words; `at` is the time of a minute or hour in UTC, "" for a day."""

    title: str
    x: float
    segments: tuple[Segment, ...]
    at: str = ""
    link: BarLink | None = None


class PlotMark(Struct, frozen=True):
    """A mark on the step at an index: the `texts` say what happened. `kind` is a class of the style sheet."""

    place: int
    kind: str
    texts: tuple[str, ...]


class DrawnMark(Struct, frozen=True):
    """A mark at the middle of its bar."""

    kind: str
    x: float


class PlotLine(Struct, frozen=True):
    """A line over all steps as the path of a drawing."""

    css_class: str
    path: str


class Plot(Struct, frozen=True):
    """A bar chart for the template. `place` and `width` are the widths of a bar with and without its gaps; `scale` are
    the labels of the vertical axis from the top, `top` its end, `ticks` the steps that the horizontal axis names;
    `legend` are the class and name of each series. `before` is the line of another period, "" for none."""

    bars: tuple[Bar, ...]
    place: float
    width: float
    scale: tuple[str, str, str]
    ticks: tuple[str, ...]
    legend: tuple[tuple[str, str], ...]
    top: int = 0
    lines: tuple[PlotLine, ...] = ()
    before: str = ""
    marks: tuple[DrawnMark, ...] = ()


def build_plot(
    steps: Sequence[str],
    series: Mapping[str, Sequence[int | None]],
    write: Callable[[int], str],
    colours: Mapping[str, str] = NO_COLOURS,
    links: Sequence[BarLink] = (),
    before: Sequence[int | None] = (),
    marks: Sequence[PlotMark] = (),
) -> Plot:
    """Return the plot of `series`: a name and a value for each step, a day or a time in UTC. The series OTHER_SERIES,
    if there is one, holds the sums of others already. `write` formats a value; `colours` are the CSS classes of series
    that do not get that of their rank. `before` are the values of another period, which are a line. `marks` are what
    happened, in words in the title of a bar."""
    stacked = {name: [value or 0 for value in values] for name, values in series.items()}
    named = [item for item in stacked.items() if item[0] != OTHER_SERIES]
    ranked = sorted(named, key=lambda item: (-sum(item[1]), item[0]))
    shown = {name: list(values) for name, values in ranked[:MAX_SERIES]}
    others = [values for _, values in ranked[MAX_SERIES:]]
    if OTHER_SERIES in stacked:
        others.append(stacked[OTHER_SERIES])
    if others:
        shown[OTHER_SERIES] = [sum(column) for column in zip(*others, strict=True)]
    classes = _choose_classes(shown, colours)
    totals = [sum(values[index] for values in shown.values()) for index in range(len(steps))]
    top = round_up(max([*totals, *(value or 0 for value in before)], default=0))
    place = WIDTH / max(1, len(steps))
    bars = []
    for index, step in enumerate(steps):
        values = {name: column[index] for name, column in shown.items() if column[index] > 0}
        parts = [f"{name}: {write(value)}" for name, value in values.items()]
        label, at = _read_step(step)
        title = f"{label}: {write(totals[index])}"
        if len(shown) > 1 and parts:
            title = "\n".join([title, *parts])
        title += _write_before(before, index, write) + _write_marks(marks, index)
        link = links[index] if links else None
        bars.append(Bar(title, round(index * place, 2), _stack(values, classes, top), at, link))
    return Plot(
        tuple(bars),
        round(place, 2),
        round(place * (1 - GAP), 2),
        _write_scale(top, write),
        _choose_ticks(steps),
        tuple((classes[name], name) for name in shown),
        top,
        before=_draw_line(before, place, top),
        marks=_draw_marks(marks, place),
    )


def build_lines(
    steps: Sequence[str],
    series: Mapping[str, Sequence[int | None]],
    write: Callable[[int], str],
    colours: Mapping[str, str] = NO_COLOURS,
    links: Sequence[BarLink] = (),
    before: Sequence[int | None] = (),
    marks: Sequence[PlotMark] = (),
) -> Plot:
    """Return the plot of `series` that do not add up, as lines with gaps where there is no value; see `build_plot`."""
    classes = _choose_classes(series, colours)
    known = [value for values in (*series.values(), before) for value in values if value is not None]
    top = round_up(max(known, default=0))
    place = WIDTH / max(1, len(steps))
    bars = []
    for index, step in enumerate(steps):
        label, at = _read_step(step)
        values = {name: column[index] for name, column in series.items()}
        parts = [f"{name}: {write(value)}" for name, value in values.items() if value is not None]
        title = "\n".join([label, *parts]) + _write_before(before, index, write) + _write_marks(marks, index)
        link = links[index] if links else None
        bars.append(Bar(title, round(index * place, 2), (), at, link))
    return Plot(
        tuple(bars),
        round(place, 2),
        round(place * (1 - GAP), 2),
        _write_scale(top, write),
        _choose_ticks(steps),
        tuple((classes[name], name) for name in series),
        top,
        tuple(PlotLine(classes[name], _draw_line(values, place, top)) for name, values in series.items()),
        _draw_line(before, place, top),
        _draw_marks(marks, place),
    )


def choose_colours(names: Iterable[str]) -> dict[str, str]:
    """Return the CSS class of each name, which follows from the name. If names have the same one, all but one get the
    next that is free, so that a set of names has the same colours on each page."""
    taken: dict[str, str] = {}
    free = list(range(COLOURS))
    for number, name in sorted((zlib.crc32(name.encode()), name) for name in names if name != OTHER_SERIES):
        first = number % COLOURS
        place = next((place for place in free if place >= first), free[0] if free else first)
        if place in free:
            free.remove(place)
        taken[name] = f"c{place}"
    return taken


def _choose_classes(names: Iterable[str], colours: Mapping[str, str]) -> dict[str, str]:
    """Return the CSS class of each series: that of `colours`, else that of its rank."""
    classes = {name: f"s{index}" for index, name in enumerate(names)}
    if OTHER_SERIES in classes:
        classes[OTHER_SERIES] = OTHER_CLASS
    return classes | {name: css_class for name, css_class in colours.items() if name in classes}


def _write_before(before: Sequence[int | None], index: int, write: Callable[[int], str]) -> str:
    value = before[index] if index < len(before) else None
    return "" if value is None else f"\n{BEFORE}: {write(value)}"


def _write_marks(marks: Sequence[PlotMark], index: int) -> str:
    texts = next((mark.texts for mark in marks if mark.place == index), ())
    more = f"\n{MARKED}and {len(texts) - MARK_TEXTS} more" if len(texts) > MARK_TEXTS else ""
    return "".join(f"\n{MARKED}{text}" for text in texts[:MARK_TEXTS]) + more


def _draw_marks(marks: Sequence[PlotMark], place: float) -> tuple[DrawnMark, ...]:
    return tuple(DrawnMark(mark.kind, round((mark.place + 0.5) * place, 1)) for mark in marks)


def _draw_line(values: Sequence[int | None], place: float, top: int) -> str:
    """Return the path of values through the middles of the bars; a value between two gaps is a point."""
    path, draws = [], False
    for index, value in enumerate(values):
        if value is None:
            draws = False
            continue
        x, y = round((index + 0.5) * place, 1), round(HEIGHT - value / top * HEIGHT, 1)
        path.append(f"{'L' if draws else 'M'}{x:g} {y:g}{'' if draws else 'h0'}")
        draws = True
    return "".join(path)


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
