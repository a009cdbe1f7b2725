"""Operational counters of this worker, and their sums over the workers of this node, exchanged through small files.

A metrics scrape reaches one worker at random. Each worker therefore writes its counters to a file every few seconds,
and the scraped worker adds up all files. File names contain the id of the serving process, so that a restart begins at
zero and replaced workers still count.
"""

import os
from bisect import bisect_right
from collections.abc import Callable
from pathlib import Path
from typing import Any

import orjson

# Seconds; the last bucket has no end.
BUCKETS = (0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0, 300.0)

MAX_SERIES = 2_000
OTHER = "other"

Labels = tuple[str, ...]
GaugeRow = tuple[str, Labels, float]
Totals = dict[str, dict[Labels, float]]
Histograms = dict[str, dict[Labels, list[float]]]


class Count:
    """A counter of one set of labels. Code that counts often keeps it and adds to `value`."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value: float = 0


class Durations:
    """A histogram of one set of labels. `observe(seconds)` only appends; observations are sorted into buckets when the
    row is read, which keeps the cost per request small."""

    __slots__ = ("_buckets", "_row", "fresh", "observe")

    def __init__(self, buckets: tuple[float, ...] = BUCKETS) -> None:
        self._buckets = buckets
        self.fresh = list[float]()
        self._row = list[float]()
        self.observe: Callable[[float], None] = self.fresh.append

    @property
    def row(self) -> list[float]:
        """Counts by bucket, the overflow, then the sum of seconds; empty before the first observation."""
        fresh = self.fresh
        if not fresh:
            return self._row
        row = self._row = self._row or [0.0] * (len(self._buckets) + 2)
        before = 0
        fresh.sort()
        for place, bound in enumerate(self._buckets):
            within = bisect_right(fresh, bound)
            row[place] += within - before
            before = within
        row[-2] += len(fresh) - before
        row[-1] += sum(fresh)
        fresh.clear()
        return row


FOLDER = "metrics"  # in the data folder


class Counters:
    """Counters and histograms by name and labels. The caller must bound the label values; beyond MAX_SERIES of one
    name all further labels are counted as OTHER. `gauges` returns this worker's gauges as (name, labels, value)."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._totals: dict[str, dict[Labels, Count]] = {}
        self._histograms: dict[str, dict[Labels, Durations]] = {}
        self._fresh: dict[int, list[float]] = {}  # the new observations of each histogram
        self._rows: list[tuple[str, Labels, list[float]]] = []
        self._file = folder / f"{os.getppid()}-{os.getpid()}.json"
        self.gauges: Callable[[], list[GaugeRow]] = list

    def add(self, name: str, labels: Labels = (), amount: float = 1) -> None:
        self.count(name, labels).value += amount

    def count(self, name: str, labels: Labels = ()) -> Count:
        """Return the counter `name` of these labels; code that counts often should keep it."""
        series = self._totals.setdefault(name, {})
        count = series.get(labels)
        if count is None:
            labels = _within(series, labels)
            count = series.setdefault(labels, Count())
        return count

    def durations(self, name: str, labels: Labels, buckets: tuple[float, ...] = BUCKETS) -> Durations:
        """Return the histogram `name` of these labels; code that counts often should keep it."""
        series = self._histograms.setdefault(name, {})
        durations = series.get(labels)
        if durations is None:
            labels = _within(series, labels)
            durations = series.setdefault(labels, Durations(buckets))
            self._fresh[id(durations)] = durations.fresh
        return durations

    def start(self) -> None:
        """Create the folder, and delete files of servers that no longer run."""
        self._folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        for file in self._folder.glob("*.json"):
            if not _alive(file.name.partition("-")[0]):
                file.unlink(missing_ok=True)

    def stop(self) -> None:
        self.write()

    def totals(self) -> Totals:
        """Return every counter, summed over all workers of this server."""
        summed: Totals = {}
        for body in self._all():
            for name, labels, amount in body["totals"]:
                series = summed.setdefault(name, {})
                series[tuple(labels)] = series.get(tuple(labels), 0) + amount
        return summed

    def histograms(self) -> Histograms:
        """Return counts by bucket (not cumulative), the overflow, then the sum of seconds, over all workers."""
        summed: Histograms = {}
        for body in self._all():
            for name, labels, row in body["histograms"]:
                series = summed.setdefault(name, {})
                known = series.get(tuple(labels), [0.0] * len(row))
                series[tuple(labels)] = [a + b for a, b in zip(known, row, strict=True)]
        return summed

    def node_gauges(self) -> dict[str, dict[Labels, list[float]]]:
        """Return every gauge of the live workers of this server: name → labels → the value of each worker."""
        gauges: dict[str, dict[Labels, list[float]]] = {}
        rows = list(self.gauges())
        for file in self._folder.glob(f"{os.getppid()}-*.json"):
            if file != self._file and _alive(file.stem.rpartition("-")[2]):
                rows += [row for body in _read(file) for row in body.get("gauges", ())]
        for name, labels, value in rows:
            gauges.setdefault(name, {}).setdefault(tuple(labels), []).append(value)
        return gauges

    def _all(self) -> list[dict[str, Any]]:
        bodies = [self._body()]
        for file in self._folder.glob(f"{os.getppid()}-*.json"):
            if file != self._file:
                bodies += _read(file)
        return bodies

    def _body(self) -> dict[str, Any]:
        return {
            "totals": [(n, labels, c.value) for n, series in self._totals.items() for labels, c in series.items()],
            "histograms": self._histogram_rows(),
        }

    def _histogram_rows(self) -> list[tuple[str, Labels, list[float]]]:
        """Return the histograms with observations. A worker has hundreds without any, one for each operation, which an
        idle worker would look at again and again."""
        if any(self._fresh.values()):
            self._rows = [
                (name, labels, row)
                for name, series in self._histograms.items()
                for labels, durations in series.items()
                if (row := durations.row)
            ]
        return self._rows

    def write(self) -> None:
        """Write this worker's counters to its file, for the other workers."""
        try:
            fresh = self._file.with_suffix(".new")
            fresh.write_bytes(orjson.dumps({**self._body(), "gauges": self.gauges()}))
            fresh.replace(self._file)
        except OSError:
            return  # a full disk costs a metric, never a request


def _within(series: dict[Labels, Any], labels: Labels) -> Labels:
    if len(series) < MAX_SERIES:
        return labels
    return (OTHER,) * len(labels)


def _read(file: Path) -> list[dict[str, Any]]:
    try:
        return [orjson.loads(file.read_bytes())]
    except (OSError, orjson.JSONDecodeError):
        return []


def _alive(pid: str) -> bool:
    try:
        os.kill(int(pid), 0)
    except (ProcessLookupError, ValueError):
        return False
    except PermissionError:
        return True
    return True


def provider_label(provider: str) -> str:
    """Return a provider as a metric label. All custom providers of organizations share one label: their number is
    unbounded, and their names are private."""
    return provider.partition(":")[0]
