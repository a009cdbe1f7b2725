"""The saved views of Explore: their list, the form that saves one, and their removal."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import parse_qsl, urlencode

from gateway.accounts import saved_views
from gateway.accounts.saved_views import SavedView
from gateway.errors import Forbidden
from gateway.surfaces.console.grouping import FILTERS
from gateway.surfaces.console.page_calls import PageCall

# The parameters of the page that a view keeps. It keeps no page and no search.
KEPT = (
    *("measure", "groupBy", "splitBy", "timeRange", "from", "to", "compare", "projectId", "apiKeyId", "tag", "sort"),
    *(one.parameter for one in FILTERS),
)


def find_view(call: PageCall) -> SavedView:
    """Return the view that the path names. Raises NotFound."""
    visitor = call.visitor
    return saved_views.find(
        call.services.store.database, call.params["view_id"], visitor.memberships.keys(), visitor.user_id
    )


def read_view(view: SavedView, arguments: Mapping[str, str]) -> dict[str, str]:
    """Return the parameters of a page that shows a view, of which it was opened with some others."""
    return {**dict(parse_qsl(view.query)), **arguments}


def show_views(call: PageCall, arguments: Mapping[str, str], view: SavedView | None) -> dict[str, Any]:
    """Return what the template shows of views."""
    visitor = call.visitor
    listed = saved_views.list_views(call.services.store.database, visitor.memberships.keys(), visitor.user_id)
    organizations = [(one.id, one.name) for one in visitor.organizations()]
    return {
        "views": [{"id": one.id, "name": one.name, "shared": one.shared} for one in listed],
        "view": None if view is None else {"name": view.name, "removable": _may_remove(call, view)},
        "saved_query": urlencode({name: arguments[name] for name in KEPT if name in arguments}),
        "view_organizations": organizations if len(organizations) > 1 else [],
    }


def save(call: PageCall) -> str:
    """Save the view that the page shows, for its visitor or for all members of an organization."""
    visitor, form, arguments = call.visitor, call.form, call.arguments
    organization_id = form.get("organization", "") or next(iter(visitor.memberships), "")
    visitor.permitted(organization_id, "account:use")
    view = saved_views.add(
        call.services.store.database,
        organization_id,
        visitor.user_id,
        form.get("name", ""),
        urlencode({name: arguments[name] for name in KEPT if name in arguments}),
        "shared" in form,
    )
    return f"The view “{view.name}” is saved{' for all members' if view.shared else ''}."


def remove(call: PageCall) -> str:
    """Remove the view of the page. Shared views of others are removed by owners and admins."""
    view = find_view(call)
    if not _may_remove(call, view):
        raise Forbidden("Only the person who saved a view, owners and admins may remove it.")
    saved_views.remove(call.services.store.database, view)
    return f"The view “{view.name}” is removed."


def _may_remove(call: PageCall, view: SavedView) -> bool:
    visitor = call.visitor
    return view.user_id == visitor.user_id or visitor.manages("organization:write", view.organization_id)
