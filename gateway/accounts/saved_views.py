"""Views that people saved: a name and the query of a page, for its owner or for the whole organization."""

from collections.abc import Collection
from typing import Any

from msgspec import Struct

from gateway import ids
from gateway.errors import InvalidRequest, NotFound
from gateway.store.database import Database

MAX_VIEWS = 50  # of a person in an organization
MAX_LISTED = 200  # a person may see those of thousands of colleagues
MAX_NAME_LENGTH = 80
MAX_QUERY_LENGTH = 2_000
COLUMNS = "id, organization_id, user_id, name, query, shared, page"
EXPLORE, LOGS = "explore", "logs"  # pages with views


class SavedView(Struct, frozen=True):
    """A view. A `shared` one is seen by all members of its organization, who see in it what they may see."""

    id: str
    organization_id: str
    user_id: str
    name: str
    query: str
    shared: bool
    page: str = EXPLORE


def add(
    database: Database, organization_id: str, user_id: str, name: str, query: str, shared: bool, page: str = EXPLORE
) -> SavedView:
    """Save a view of a page. InvalidRequest (name, query, too many)."""
    name = " ".join(name.split())
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(f"The name of a view has 1 to {MAX_NAME_LENGTH} characters.", param="name")
    if len(query) > MAX_QUERY_LENGTH:
        raise InvalidRequest("This view has too many filters to be saved.", param="query")
    view = SavedView(ids.new("view"), organization_id, user_id, name, query, shared, page)

    def work() -> SavedView:
        counted = "SELECT COUNT(*) FROM saved_view WHERE organization_id = ? AND user_id = ?"
        if database.execute(counted, (organization_id, user_id)).fetchone()[0] >= MAX_VIEWS:
            raise InvalidRequest(f"A person has at most {MAX_VIEWS} views. Remove one first.", param="name")
        values = (view.id, organization_id, user_id, name, query, shared, page, database.now_us())
        database.execute(f"INSERT INTO saved_view ({COLUMNS}, created_at) VALUES ({', '.join('?' * 8)})", values)
        return view

    return database.write(work)


def remove(database: Database, view: SavedView) -> None:
    """Delete a view; nothing happens if it was already deleted."""
    database.write(lambda: database.execute("DELETE FROM saved_view WHERE id = ?", (view.id,)))


def list_views(
    database: Database, organization_ids: Collection[str], user_id: str, page: str = EXPLORE
) -> list[SavedView]:
    """Return the views of a page that a person sees in these organizations, by name: their own, and the newest of those
    that are shared, MAX_LISTED in total."""
    if not organization_ids:
        return []
    places = ", ".join("?" * len(organization_ids))
    sql = (
        f"SELECT {COLUMNS} FROM saved_view WHERE organization_id IN ({places}) AND page = ? "
        "AND (user_id = ? OR shared) "
        "ORDER BY CASE WHEN user_id = ? THEN 0 ELSE 1 END, created_at DESC, id LIMIT ?"
    )
    rows = database.query_rows(sql, (*organization_ids, page, user_id, user_id, MAX_LISTED))
    return sorted(map(_read, rows), key=lambda view: (view.name.lower(), view.id))


def find(database: Database, view_id: str, organization_ids: Collection[str], user_id: str) -> SavedView:
    """Return a view that a person sees in these organizations. Raises NotFound."""
    row = database.query_row(f"SELECT {COLUMNS} FROM saved_view WHERE id = ?", (view_id,))
    view = None if row is None else _read(row)
    if view is not None and view.organization_id in organization_ids and (view.shared or view.user_id == user_id):
        return view
    raise NotFound("There is no such view, or it is not shared with you.")


def _read(row: Any) -> SavedView:
    ident, organization_id, user_id, name, query, shared, page = row
    return SavedView(ident, organization_id, user_id, name, query, bool(shared), page)
