"""The saved views of Explore and of the list of requests: their list, the form that saves one, and their removal."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from gateway.accounts import saved_views
from gateway.accounts.saved_views import EXPLORE, SavedView
from gateway.errors import Forbidden, NotFound
from gateway.surfaces.console.grouping import FILTERS
from gateway.surfaces.console.page_calls import PageCall

# The parameters of the page that a view keeps. It keeps no page and no search.
KEPT = (
    *("measure", "groupBy", "splitBy", "timeRange", "from", "to", "compare", "compareModel", "projectId", "apiKeyId"),
    *("tag", "sort"),
    *(one.parameter for one in FILTERS),
)


def find_view(call: PageCall, page: str = EXPLORE) -> SavedView:
    """Return the view that the path names. Raises NotFound, also for a view of another page."""
    visitor = call.visitor
    database = call.services.store.database
    view = saved_views.find(database, call.params["view_id"], visitor.memberships.keys(), visitor.user_id)
    if view.page != page:
        raise NotFound("There is no such view of this page.")
    return view


def read_view(view: SavedView, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a page that shows a view, of which it was opened with some others."""
    return {**dict(parse_qsl(view.query)), **arguments}


def show_views(
    call: PageCall,
    arguments: Mapping[str, str],
    view: SavedView | None,
    page: str = EXPLORE,
    kept: Sequence[str] = KEPT,
) -> dict[str, Any]:
    """Return what the template shows of the views of a page, which keep the parameters `kept`."""
    visitor = call.visitor
    listed = saved_views.list_views(call.services.store.database, visitor.memberships.keys(), visitor.user_id, page)
    organizations = [(one.id, one.name) for one in visitor.organizations()]
    return {
        "views": [{"id": one.id, "name": one.name, "shared": one.shared} for one in listed],
        "view": None if view is None else {"name": view.name, "removable": _may_remove(call, view)},
        "saved_query": urlencode({name: arguments[name] for name in kept if name in arguments}),
        "view_organizations": organizations if len(organizations) > 1 else [],
    }


def save(call: PageCall, page: str = EXPLORE, kept: Sequence[str] = KEPT) -> str:
    """Save the view that a page shows, for its visitor or for all members of an organization."""
    visitor, form, arguments = call.visitor, call.form, call.arguments
    organization_id = form.get("organization", "") or next(iter(visitor.memberships), "")
    visitor.permitted(organization_id, "account:use")
    view = saved_views.add(
        call.services.store.database,
        organization_id,
        visitor.user_id,
        form.get("name", ""),
        urlencode({name: arguments[name] for name in kept if name in arguments}),
        "shared" in form,
        page,
    )
    return f"The view “{view.name}” is saved{' for all members' if view.shared else ''}."


def remove(call: PageCall, page: str = EXPLORE) -> str:
    """Remove the view that the path names. Shared views of others are removed by owners and admins."""
    view = find_view(call, page)
    if not _may_remove(call, view):
        raise Forbidden("Only the person who saved a view, owners and admins may remove it.")
    saved_views.remove(call.services.store.database, view)
    return f"The view “{view.name}” is removed."


def _may_remove(call: PageCall, view: SavedView) -> bool:
    visitor = call.visitor
    return view.user_id == visitor.user_id or visitor.manages("organization:write", view.organization_id)
