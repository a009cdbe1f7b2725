"""The names of sources, sessions and tags that are counted separately. Callers choose them, so their number is limited
for each project and hour."""

from collections.abc import Iterable, Sequence

from msgspec import Struct, field

from gateway.metering.rollups.fold import SOURCE, Names, Place, list_tags
from gateway.metering.rollups.rollup_table import (
    MAX_SESSIONS,
    MAX_SOURCES,
    MAX_TAGS,
    MAX_VALUES,
    OTHER,
    SESSION,
    Series,
)
from gateway.metering.rollups.row_sums import Group
from gateway.store.database import Database

FirstRequests = dict[Place, dict[str, str]]  # place → name → the first request id (hex) with it
NAMES_PER_STATEMENT = 500

OF_HOUR = "FROM rollup WHERE series = ? AND owner = ? AND hour = ?"


class KnownTagNames(Struct):
    """The names in the table: of each place how many there are, and those of interest; of each project and hour the
    tags."""

    counts: dict[Place, int] = field(default_factory=dict)
    names: Names = field(default_factory=dict)
    tags: dict[tuple[bytes, int], set[str]] = field(default_factory=dict)


def read_known(database: Database, first: FirstRequests, only: str = "") -> KnownTagNames:
    """Return the names in the table that belong to places of `first`; `only` is one more condition. Inside a
    report."""
    known = KnownTagNames()
    for project, hour in {place[:2] for place in first}:
        sql = f"SELECT name {OF_HOUR} {only}"
        names = {str(name) for (name,) in database.fetch(sql, (Series.PROJECT_SOURCE, project, hour))}
        known.names[project, hour, SOURCE] = names
        known.counts[project, hour, SOURCE] = len(names - {""})
    for project, hour in {place[:2] for place in first if place[2] is not SOURCE}:
        sql = f"SELECT provider, COUNT(DISTINCT name) {OF_HOUR} AND name <> ? {only} GROUP BY provider"
        for tag, count in database.fetch(sql, (Series.PROJECT_TAG, project, hour, OTHER)):
            known.counts[project, hour, str(tag)] = int(count)
            if tag:
                known.tags.setdefault((project, hour), set()).add(str(tag))
    for place, requests in first.items():
        # As long as all names of the place are admitted, it does not matter which of them are known.
        if place[2] is not SOURCE and known.counts.get(place, 0) + len(requests) > max_names(place[2]):
            known.names[place] = _read_names(database, place, list(requests), only)
    return known


def _read_names(database: Database, place: Place, names: Sequence[str], only: str) -> set[str]:
    """Return those of the names that are in the table."""
    project, hour, tag = place
    found: set[str] = set()
    for start in range(0, len(names), NAMES_PER_STATEMENT):
        some = names[start : start + NAMES_PER_STATEMENT]
        sql = f"SELECT name {OF_HOUR} AND provider = ? AND name IN ({', '.join('?' * len(some))}) {only}"
        found.update(str(name) for (name,) in database.fetch(sql, (Series.PROJECT_TAG, project, hour, tag, *some)))
    return found


def find_first(groups: Iterable[Group]) -> FirstRequests:
    """Return the names of sources, sessions and tags in the groups. Groups without a source ("") have that name."""
    first: FirstRequests = {}
    for group in groups:
        pairs: list[tuple[str | None, str]] = [(SOURCE, group.source)]
        if group.session or group.tags:
            pairs += list_tags(group.session, group.tags)
        for tag, name in pairs:
            of_place = first.setdefault((group.project, group.hour, tag), {})
            low = of_place.get(name)
            if low is None or group.low < low:
                of_place[name] = group.low
    return first


def admit_names(first: FirstRequests, known: KnownTagNames) -> Names:
    """Return the names that are counted separately, for each place: known names first, then the earliest new ones, as
    many as `max_names` allows. MAX_TAGS tags of a project and hour have names. Groups without a source always
    count."""
    tags = {place: set(names) for place, names in known.tags.items()}
    admitted: Names = {}
    for place, requests in sorted(first.items(), key=_first_request):
        project, hour, tag = place
        if tag:
            of_hour = tags.setdefault((project, hour), set())
            if tag not in of_hour and len(of_hour) >= MAX_TAGS:
                continue
            of_hour.add(tag)
        names = {name for name in requests if name in known.names.get(place, ())}
        room = max_names(tag) - known.counts.get(place, 0)
        if tag is SOURCE:
            names.add("")
        for name in sorted(requests, key=lambda name: (requests[name], name)):
            if name not in names and room > 0:
                names.add(name)
                room -= 1
        admitted[place] = names
    return admitted


def _first_request(item: tuple[Place, dict[str, str]]) -> tuple[str, str]:
    place, requests = item
    return min(requests.values()), place[2] or ""


def max_names(tag: str | None) -> int:
    """Return how many names a place has at most."""
    if tag is SOURCE:
        return MAX_SOURCES
    if tag == SESSION:
        return MAX_SESSIONS
    return MAX_VALUES
