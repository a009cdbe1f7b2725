"""Pages of the management API's long lists: `limit` and `cursor` of the query, `next` of the answer."""

from collections.abc import Callable, Mapping, Sequence
from operator import attrgetter
from typing import Any, TypeVar

from msgspec import UNSET, UnsetType

from gateway.store.list_slices import ListSlice
from gateway.surfaces.visitors.validation_schemas import Body, QueryInteger, TextField

Row = TypeVar("Row")
MAX_PAGE_SIZE = 1000
PAGED = (
    "With `limit`, one page: `next` is the `cursor` of the following one, null at the end. Without it, the whole list."
)

find_id = attrgetter("id")


class ListPageQuery(Body):
    limit = QueryInteger(1, MAX_PAGE_SIZE, about="Maximum number of entries; default: all.")
    cursor = TextField(1, 80, about="`next` of the previous page.")


class ListPage:
    """The requested page of a list: the whole list without `limit` and `cursor`. `next` is the cursor of
    the following page once the rows were read: None at the end, UNSET for a whole list."""

    __slots__ = ("_asked", "next")

    def __init__(self, fields: Mapping[str, Any]) -> None:
        self._asked = ListSlice(fields.get("cursor", ""), fields.get("limit", 0))
        self.next: str | UnsetType | None = UNSET

    def read(self, read: Callable[[ListSlice], list[Row]]) -> list[Row]:
        """Return the rows of the page from a query of a slice. The query gets one row more than the page shows, which
        shows whether another page follows."""
        asked = self._asked
        return self._end(read(asked._replace(limit=asked.limit + 1 if asked.limit else 0)))

    def cut(self, rows: Sequence[Row], *, newest_first: bool = False) -> list[Row]:
        """Return the rows of the page, of a short list that is in memory. Pages are sorted by id."""
        after = self._asked.after
        if self._asked == ListSlice():
            return list(rows)
        ordered = sorted(rows, key=find_id, reverse=newest_first)
        if after:
            ordered = [row for row in ordered if (find_id(row) < after if newest_first else find_id(row) > after)]
        return self._end(ordered)

    def _end(self, rows: list[Row]) -> list[Row]:
        limit = self._asked.limit
        if self._asked == ListSlice():
            return rows
        self.next = None
        if limit and len(rows) > limit:
            rows = rows[:limit]
            self.next = find_id(rows[-1])
        return rows
