"""Lists of users and groups: filters, paging and the selection of attributes."""

import re
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from msgspec import Struct

from gateway.errors import InvalidRequest
from gateway.runtime.threads import compute
from gateway.surfaces.scim.attributes import ScimResourceType
from gateway.surfaces.scim.filters import FilterNode, equalities, matches, parse_filter
from gateway.surfaces.scim.scim_answers import LIST_URN, ScimList, ScimListQuery, ScimSearch, read_members
from gateway.surfaces.scim.scim_call import ScimCall
from gateway.surfaces.web.http import Outbound

WHOLE = re.compile(r"\s*[+-]?\d+\s*", re.ASCII)
MAX_RESULTS = 200  # resources of one page
DEFAULT_RESULTS = 100
Json = dict[str, Any]


class ScimQuery(Struct, frozen=True):
    """The query of a list. `start` counts from 1; `node` is the filter, None without."""

    node: FilterNode | None
    start: int
    count: int
    attributes: str
    excluded: str

    def equalities(self) -> dict[str, str]:
        """Return the texts that attributes must equal, by lower-case path."""
        if self.node is None:
            return {}
        return equalities(self.node)


def read_query(call: ScimCall) -> ScimQuery:
    """Return the query of a list: the parameters of a GET, or the body of a search. Raises InvalidRequest."""
    given: ScimListQuery | ScimSearch
    if call.inbound.method == "GET":
        given = read_members(ScimListQuery, call.inbound.arguments())
    else:
        given = read_members(ScimSearch, call.body())
    text = _read_text("filter", given.get("filter")).strip()
    node = parse_filter(text) if text else None
    start = max(1, _read_number("startIndex", given.get("startIndex"), 1))
    count = min(MAX_RESULTS, max(0, _read_number("count", given.get("count"), DEFAULT_RESULTS)))
    selected = _read_text("attributes", given.get("attributes"))
    excluded = _read_text("excludedAttributes", given.get("excludedAttributes"))
    return ScimQuery(node, start, count, selected, excluded)


def select(
    kind: ScimResourceType, query: ScimQuery, pieces: Iterable[Sequence[Any]], show: Callable[[Any], Json]
) -> tuple[int, list[Any]]:
    """Return how many resources of all pieces fulfil the filter, and those of the page."""
    node = query.node
    total = 0
    page: list[Any] = []
    for piece in pieces:
        matching = list(piece) if node is None else compute(_filter, kind, node, piece, show)
        for resource in matching:
            total += 1
            if total >= query.start and len(page) < query.count:
                page.append(resource)
    return total, page


def reply_list(call: ScimCall, query: ScimQuery, total: int, shown: list[Json]) -> Outbound:
    """Return the response with a page of resources."""
    body: ScimList = {
        "schemas": [LIST_URN],
        "totalResults": total,
        "startIndex": query.start,
        "itemsPerPage": len(shown),
        "Resources": shown,
    }
    return call.reply(body)


def _filter(kind: ScimResourceType, node: FilterNode, piece: Sequence[Any], show: Callable[[Any], Json]) -> list[Any]:
    return [resource for resource in piece if matches(node, kind, show(resource))]


def _read_text(name: str, value: Any) -> str:
    """Return a text, or the names in a list joined by commas."""
    value = value or ""
    if isinstance(value, list):
        value = ",".join(name for name in value if isinstance(name, str))
    if not isinstance(value, str):
        raise InvalidRequest(f"{name} must be a text.", param=name)
    return value


def _read_number(name: str, value: Any, usual: int) -> int:
    if value is None or value == "":
        return usual
    text = str(value)[:12]
    if not WHOLE.fullmatch(text):
        raise InvalidRequest(f"{name} must be a whole number.", param=name)
    return int(text)
