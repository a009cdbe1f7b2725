"""Lists of a page: words of a search, orders and pages of rows."""

from gateway.surfaces.console.lists import PAGE_ROWS, Column, arrange

COLUMNS = (Column("Name", "name"), Column("Spent", "spent", numeric=True))
ROWS = [{"name": "Beta one", "spent": 3}, {"name": "alpha one", "spent": None}, {"name": "Gamma", "spent": 9}]


def names_of(**arguments: str) -> list[str]:
    return [row["name"] for row in arrange(ROWS, COLUMNS, arguments, searched=("name",), sort="name").rows]


def test_all_words_of_a_search_must_occur() -> None:
    assert names_of(q="ONE be") == ["Beta one"]
    assert names_of() == ["alpha one", "Beta one", "Gamma"]


def test_rows_without_a_value_come_last_and_unknown_columns_are_ignored() -> None:
    assert names_of(sort="spent") == ["Beta one", "Gamma", "alpha one"]
    assert names_of(sort="-spent") == ["Gamma", "Beta one", "alpha one"]
    assert names_of(sort="secret") == ["alpha one", "Beta one", "Gamma"]


def test_a_page_beyond_the_end_is_the_last_page() -> None:
    rows = [{"name": f"{number:03}", "spent": 0} for number in range(PAGE_ROWS + 1)]
    shown = arrange(rows, COLUMNS, {"page": "99", "q": "0"}, searched=("name",), sort="name")
    assert (shown.page, shown.first, shown.last, shown.total) == (2, PAGE_ROWS + 1, PAGE_ROWS + 1, PAGE_ROWS + 1)
    assert shown.link(page=1, q="") == "?page=1"
    assert shown.sort_link("name") == "?q=0&sort=-name"
    assert shown.page_link(1) == "?page=1&q=0"


def test_the_link_that_clears_a_search_shows_the_first_page_in_the_same_order() -> None:
    arguments = {"q": "nowhere", "page": "2", "sort": "-name"}
    assert arrange(ROWS, COLUMNS, arguments, searched=("name",), sort="name").clear_link() == "?sort=-name"
