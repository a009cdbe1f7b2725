"""The part of a long list that one query reads."""

from typing import Any, NamedTuple


class ListSlice(NamedTuple):
    """At most `limit` rows of a list (0: all), those that follow the row with the id `after` ("": from the start). The
    row itself may have been deleted in the meantime."""

    after: str = ""
    limit: int = 0

    def narrow(self, query: Any, ident: Any, *, newest_first: bool = False) -> Any:
        """Return the query, which is sorted by the column `ident`, for these rows only."""
        if self.after:
            query = query.where(ident < self.after if newest_first else ident > self.after)
        if self.limit:
            query = query.limit(self.limit)
        return query


WHOLE = ListSlice()
