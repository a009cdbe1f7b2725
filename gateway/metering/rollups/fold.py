"""Groups of usage rows folded into the series of the rollups."""

from collections.abc import Iterable, Mapping

from gateway.metering.rollups.rollup_table import MOST_SOURCES, Key, Series, Sums
from gateway.metering.rollups.row_sums import Group

Names = dict[tuple[bytes, int], set[str]]  # names of sources by project and hour


def fold(groups: Iterable[Group], names: Mapping[tuple[bytes, int], set[str]]) -> Sums:
    """The sums by row of the table; what has a source that is not among `names` is left out of the series of those."""
    sums: Sums = {}
    for group in groups:
        hour, project, key, provider, model, source, _, _, values = group
        places: list[Key] = [
            (Series.PROJECT, project, hour, "", ""),
            (Series.PROJECT_MODEL, project, hour, model, provider),
            (Series.KEY, key, hour, "", ""),
            (Series.KEY_MODEL, key, hour, model, provider),
        ]
        if source in names[project, hour]:
            places.append((Series.PROJECT_SOURCE, project, hour, source, ""))
            places.append((Series.KEY_SOURCE, key, hour, source, ""))
        for place in places:
            known = sums.get(place)
            if known is None:
                sums[place] = values
            else:
                sums[place] = [a + b for a, b in zip(known, values, strict=True)]
    return sums


def admit_names(groups: Iterable[Group], known: Names) -> Names:
    """The names of sources that count, of each project and hour of the groups: those that are known, then those that
    came first, MOST_SOURCES in all. No name ("") always counts."""
    first: dict[tuple[bytes, int], dict[str, str]] = {}
    for group in groups:
        seen = first.setdefault((group.project, group.hour), {})
        seen[group.source] = min(seen.get(group.source, group.low), group.low)
    admitted: Names = {}
    for place, seen in first.items():
        names = {"", *known.get(place, ())}
        for name in sorted(seen, key=lambda one: (seen[one], one)):
            if len(names) <= MOST_SOURCES:
                names.add(name)
        admitted[place] = names
    return admitted


def ranges_of(groups: Iterable[Group]) -> dict[int, tuple[str, str]]:
    """The range of request ids of each hour."""
    ranges: dict[int, tuple[str, str]] = {}
    for group in groups:
        low, high = ranges.get(group.hour, (group.low, group.high))
        ranges[group.hour] = min(low, group.low), max(high, group.high)
    return ranges
