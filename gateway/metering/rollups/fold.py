"""Groups of usage rows, folded into the series of the rollups."""

from collections.abc import Iterable, Mapping
from functools import lru_cache

import orjson

from gateway.metering.rollups.rollup_table import (
    OTHER,
    SESSION,
    Key,
    Series,
    Sums,
)
from gateway.metering.rollups.row_sums import Group

SOURCE = None  # the place of source names, among the tags of a project
MAX_NAME_LENGTH = 256  # characters of a value
# JSON texts of tags that are kept decoded. Requests of a client have the same few, or none has the same.
DECODED_TEXTS = 4_096

Place = tuple[bytes, int, str | None]  # project, hour, and tag
Names = dict[Place, set[str]]


def fold(groups: Iterable[Group], names: Mapping[Place, set[str]]) -> Sums:
    """Return the sums by row of the table. Groups with a source that is not in `names` are left out of the series of
    sources, those with a tag that has no names out of the series of tags; other values of a tag count as OTHER."""
    sums: Sums = {}
    for group in groups:
        hour, project, key, provider, model, source, session, tags, _, _, values = group
        places: list[Key] = [
            (Series.PROJECT, project, hour, "", ""),
            (Series.PROJECT_MODEL, project, hour, model, provider),
            (Series.KEY, key, hour, "", ""),
            (Series.KEY_MODEL, key, hour, model, provider),
        ]
        if source in names[project, hour, SOURCE]:
            places.append((Series.PROJECT_SOURCE, project, hour, source, ""))
            places.append((Series.KEY_SOURCE, key, hour, source, ""))
        if session or tags:
            for tag, name in list_tags(session, tags):
                admitted = names.get((project, hour, tag))
                if admitted is not None:
                    shown = name if name in admitted else OTHER
                    places.append((Series.PROJECT_TAG, project, hour, shown, tag))
                    places.append((Series.KEY_TAG, key, hour, shown, tag))
        for place in places:
            known = sums.get(place)
            if known is None:
                sums[place] = values
            else:
                sums[place] = [a + b for a, b in zip(known, values, strict=True)]
    return sums


def list_tags(session: str | None, tags: str | None) -> list[tuple[str, str]]:
    """Return the tags of a usage row with their values; the session has the tag SESSION."""
    listed = []
    if session:
        listed.append((SESSION, session))
    if tags:
        listed += _read_tags(tags)
    return listed


@lru_cache(DECODED_TEXTS)
def _read_tags(text: str) -> tuple[tuple[str, str], ...]:
    """Return the tags in a JSON object of strings. PostgreSQL stores no NUL."""
    pairs = ((_clean(name), _clean(str(value))) for name, value in orjson.loads(text).items())
    return tuple((name, value) for name, value in pairs if name and value)


def _clean(text: str) -> str:
    return text.replace("\0", "\N{REPLACEMENT CHARACTER}")[:MAX_NAME_LENGTH]


def ranges_of(groups: Iterable[Group]) -> dict[int, tuple[str, str]]:
    """Return the range of request ids of each hour."""
    ranges: dict[int, tuple[str, str]] = {}
    for group in groups:
        low, high = ranges.get(group.hour, (group.low, group.high))
        ranges[group.hour] = min(low, group.low), max(high, group.high)
    return ranges
