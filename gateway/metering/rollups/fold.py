"""Groups of usage rows, folded into the series of the rollups."""

from collections.abc import Iterable, Mapping

from gateway.metering.rollups.rollup_table import MOST_SOURCES, Key, Series, Sums
from gateway.metering.rollups.row_sums import Group

Names = dict[tuple[bytes, int], set[str]]  # source names by project and hour


def fold(groups: Iterable[Group], names: Mapping[tuple[bytes, int], set[str]]) -> Sums:
    """Return the sums by row of the table; groups with a source that is not in `names` are left out of the source
    series."""
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
    """Return the source names that are counted separately, for each project and hour of the groups: known names first,
    then the earliest new ones, at most MOST_SOURCES. Groups without a source ("") always count."""
    first: dict[tuple[bytes, int], dict[str, str]] = {}
    for group in groups:
        first_requests = first.setdefault((group.project, group.hour), {})
        first_requests[group.source] = min(first_requests.get(group.source, group.low), group.low)
    admitted: Names = {}
    for place, first_requests in first.items():
        names = {"", *known.get(place, ())}
        for name in sorted(first_requests, key=lambda source: (first_requests[source], source)):
            if len(names) <= MOST_SOURCES:
                names.add(name)
        admitted[place] = names
    return admitted


def ranges_of(groups: Iterable[Group]) -> dict[int, tuple[str, str]]:
    """Return the range of request ids of each hour."""
    ranges: dict[int, tuple[str, str]] = {}
    for group in groups:
        low, high = ranges.get(group.hour, (group.low, group.high))
        ranges[group.hour] = min(low, group.low), max(high, group.high)
    return ranges
