"""Lists of a page: searched, sorted and divided into pages by the query. The template `lists.html` draws them."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple
from urllib.parse import urlencode

from msgspec import Struct

PAGE_ROWS = 50


class Column(NamedTuple):
    """A column; `key` is the member of a row that it is sorted by, "" for a column that cannot be sorted. An `extra`
    column is left out on narrow screens."""

    title: str
    key: str = ""
    numeric: bool = False
    extra: bool = False


class ShownList(Struct, frozen=True):
    """The rows of one page. `total` counts the rows that match the search; `page_name` is the parameter of the query
    that selects the page."""

    rows: list[dict[str, Any]]
    columns: tuple[Column, ...]
    total: int
    page: int
    sort: str
    arguments: Mapping[str, str]
    page_name: str = "page"

    @property
    def search(self) -> str:
        return self.arguments.get("q", "")

    @property
    def first(self) -> int:
        return (self.page - 1) * PAGE_ROWS + 1

    @property
    def last(self) -> int:
        return self.first + len(self.rows) - 1

    def link(self, **changes: str | int) -> str:
        """Return the query with changed parameters; an empty value removes one."""
        given = {**self.arguments, **changes}
        return "?" + urlencode({name: value for name, value in given.items() if value != ""})

    def page_link(self, page: int) -> str:
        """Return the query that shows another page."""
        return self.link(**{self.page_name: page})

    def sort_link(self, key: str) -> str:
        """Return the query that sorts by a column; another click reverses the order."""
        if self.sort == key:
            key = f"-{key}"
        return self.link(**{"sort": key, self.page_name: ""})

    def clear_link(self) -> str:
        """Return the query without the search."""
        return self.link(**{"q": "", self.page_name: ""})

    def order(self, key: str) -> str:
        """Return the value of aria-sort of a column."""
        return {key: "ascending", f"-{key}": "descending"}.get(self.sort, "none")


def arrange(
    rows: Sequence[dict[str, Any]],
    columns: tuple[Column, ...],
    arguments: Mapping[str, str],
    *,
    searched: tuple[str, ...],
    sort: str,
    page_name: str = "page",
) -> ShownList:
    """Return the page of `rows` that the query names. `searched` are the members in which its words are searched,
    `sort` is the order without a parameter: a key, with "-" for the highest first. Rows without a value (None)
    come last. A page with several lists gives each a `page_name`."""
    words = arguments.get("q", "").lower().split()
    found = [row for row in rows if _matches(row, words, searched)]
    keys = {column.key for column in columns if column.key}
    given = arguments.get("sort", "")
    if given.removeprefix("-") in keys:
        sort = given
    key = sort.removeprefix("-")
    known = [row for row in found if row[key] is not None]
    known.sort(key=lambda row: _order(row[key]), reverse=sort.startswith("-"))
    found = [*known, *(row for row in found if row[key] is None)]
    pages = max(1, -(-len(found) // PAGE_ROWS))
    number = min(pages, max(1, _read_number(arguments.get(page_name, ""))))
    shown = found[(number - 1) * PAGE_ROWS : number * PAGE_ROWS]
    return ShownList(shown, columns, len(found), number, sort, arguments, page_name)


def _matches(row: Mapping[str, Any], words: Sequence[str], searched: tuple[str, ...]) -> bool:
    text = " ".join(str(row[name]) for name in searched).lower()
    return all(word in text for word in words)


def _order(value: Any) -> Any:
    """Return the sort key of a value."""
    if isinstance(value, str):
        return value.lower()
    return value


def _read_number(text: str) -> int:
    if text.isascii() and text.isdigit():
        return int(text[:9])
    return 1
