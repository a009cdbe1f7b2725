"""Views that people saved: a name and the query of a page, for its owner or for the whole organization."""

from collections.abc import Collection, Mapping
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from gateway import ids
from gateway.accounts import audit
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
    database: Database,
    organization_id: str,
    user_id: str,
    name: str,
    query: str,
    shared: bool,
    page: str = EXPLORE,
    *,
    actor: str = "",
) -> SavedView:
    """Save a view of a page; `actor` "" is its owner. InvalidRequest (name, query, too many)."""
    view = SavedView(ids.new("view"), organization_id, user_id, _read_name(name), _check_query(query), shared, page)

    def work() -> SavedView:
        counted = "SELECT COUNT(*) FROM saved_view WHERE organization_id = ? AND user_id = ?"
        if database.execute(counted, (organization_id, user_id)).fetchone()[0] >= MAX_VIEWS:
            raise InvalidRequest(f"A person has at most {MAX_VIEWS} views. Remove one first.", param="name")
        values = (view.id, organization_id, user_id, view.name, query, shared, page, database.now_us())
        database.execute(f"INSERT INTO saved_view ({COLUMNS}, created_at) VALUES ({', '.join('?' * 8)})", values)
        _note(database, "view.create", view, actor or user_id)
        return view

    return database.write(work)


def change(database: Database, view: SavedView, changes: Mapping[str, Any], *, actor: str) -> SavedView:
    """Change name, query or `shared` of a view. InvalidRequest (name, query), NotFound."""
    changed = replace(view, **changes)
    changed = replace(changed, name=_read_name(changed.name), query=_check_query(changed.query))

    def work() -> SavedView:
        sql = "UPDATE saved_view SET name = ?, query = ?, shared = ? WHERE id = ?"
        if not database.execute(sql, (changed.name, changed.query, changed.shared, view.id)).rowcount:
            raise NotFound("There is no such view, or it is not shared with you.")
        _note(database, "view.update", changed, actor)
        return changed

    return database.write(work)


def _read_name(text: str) -> str:
    name = " ".join(text.split())
    if not 0 < len(name) <= MAX_NAME_LENGTH or not name.isprintable():
        raise InvalidRequest(f"The name of a view has 1 to {MAX_NAME_LENGTH} characters.", param="name")
    return name


def _check_query(query: str) -> str:
    if len(query) > MAX_QUERY_LENGTH:
        raise InvalidRequest("This view has too many filters to be saved.", param="query")
    return query


def remove(database: Database, view: SavedView, *, actor: str) -> None:
    """Delete a view with its subscriptions; nothing happens if it was already deleted."""

    def work() -> None:
        if database.execute("DELETE FROM saved_view WHERE id = ?", (view.id,)).rowcount:
            _note(database, "view.delete", view, actor)

    database.write(work)


def _note(database: Database, action: str, view: SavedView, actor: str) -> None:
    audit.append(
        action,
        view.id,
        actor=actor,
        at_us=database.now_us(),
        organization_id=view.organization_id,
        detail={"page": view.page, "shared": view.shared},  # its name may name a person
    )


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
