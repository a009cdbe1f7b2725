"""The saved views of Explore and of the list of requests: their list, the form that saves one, and their removal."""

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import parse_qsl, urlencode

from gateway.accounts import saved_views
from gateway.accounts.alert_hooks import EMAIL, MAILTO, PAGERDUTY, AlertHook
from gateway.accounts.members import list_members
from gateway.accounts.saved_views import EXPLORE, SavedView
from gateway.accounts.view_subscriptions import LAST_HOUR, WEEKDAYS, list_subscriptions
from gateway.errors import Forbidden, NotFound
from gateway.surfaces.console.grouping import FILTERS
from gateway.surfaces.console.page_calls import ManagementCall, PageCall

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
        "view": None
        if view is None
        else {"name": view.name, "removable": _may_remove(call, view), "path": f"/console/explore/views/{view.id}"},
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
    saved_views.remove(call.services.store.database, view, actor=call.visitor.user_id)
    return f"The view “{view.name}” is removed."


def _may_remove(call: PageCall, view: SavedView) -> bool:
    visitor = call.visitor
    return view.user_id == visitor.user_id or visitor.manages("organization:write", view.organization_id)


# The subscriptions of a view: where it is sent each week. The page runs the operations of the management API.

SUBSCRIBE = ManagementCall("POST /orgs/<organization_id>/view-subscriptions")
UNSUBSCRIBE = ManagementCall("DELETE /orgs/<organization_id>/view-subscriptions/<subscription_id>")
SEND = ManagementCall("POST /orgs/<organization_id>/view-subscriptions/<subscription_id>/send")
TO_SELF = "me"


def show_subscriptions(call: PageCall, view: SavedView | None) -> dict[str, Any]:
    """Return what the page of a view shows of its subscriptions: the visitor's own, for owners and admins all, and the
    choices of a new one."""
    if view is None:
        return {"subscriptions": [], "receivers": []}
    visitor, organization_id = call.visitor, view.organization_id
    database, telemetry = call.services.store.database, call.services.telemetry
    hooks = {}
    if visitor.manages("alerts:read", organization_id):
        hooks = {hook.id: _name_hook(hook) for hook in telemetry.hooks.list_hooks(organization_id)}
    person = "" if visitor.manages("organization:write", organization_id) else visitor.user_id
    listed = list_subscriptions(database, organization_id, person, view.id)
    others = {one.user_id for one in listed} - {visitor.user_id}
    names = {one.user_id: one.name or one.email for one in list_members(database, organization_id)} if others else {}
    names[visitor.user_id] = "you"
    receivers = {TO_SELF: "Me, by e-mail"} if telemetry.weekly_views.mails else {}
    if visitor.manages("alerts:write", organization_id):
        usable = [hook for hook in telemetry.hooks.list_hooks(organization_id) if hook.form != PAGERDUTY]
        receivers |= {hook.id: _name_hook(hook) for hook in usable}
    return {
        "subscriptions": [
            {
                "id": one.id,
                "to": hooks.get(one.hook_id, "an address for alerts") if one.hook_id else "e-mail",
                "by": names.get(one.user_id, "a former member"),
                "when": f"{WEEKDAYS[one.schedule.weekday].capitalize()} {one.schedule.hour}:00",
                "zone": one.schedule.timezone,
                "next_us": one.next_at_us,
                "sent_us": one.sent_at_us,
                "problem": one.problem,
            }
            for one in listed
        ],
        "receivers": list(receivers.items()),
        "weekdays": [(name, name.capitalize()) for name in WEEKDAYS],
        "hours": [(str(hour), f"{hour}:00") for hour in range(LAST_HOUR + 1)],
    }


def _name_hook(hook: AlertHook) -> str:
    """Return an address for alerts as people know it. The path of a webhook is a secret."""
    if hook.form == EMAIL:
        return hook.url.removeprefix(MAILTO)
    return f"{hook.form.capitalize()} {hook.url.split('/')[2]} ({hook.id[-4:]})"


def subscribe(call: PageCall) -> str:
    """Let the view that the path names be sent each week."""
    view, form = find_view(call), call.form
    to = form.get("to", TO_SELF)
    fields: dict[str, Any] = {"viewId": view.id, **({} if to == TO_SELF else {"hookId": to[:40]})}
    hour = form.get("hour", "")
    fields |= {"hour": int(hour)} if hour.isascii() and hour.isdigit() else {}
    fields |= {name: form[name][:64] for name in ("weekday", "timezone") if form.get(name)}
    call.run(SUBSCRIBE, fields, organization_id=view.organization_id)
    return f"The view “{view.name}” is sent each week."


def unsubscribe(call: PageCall) -> str:
    """End the subscription that the form names."""
    view = find_view(call)
    ident = call.form.get("subscription", "")[:40]
    call.run(UNSUBSCRIBE, organization_id=view.organization_id, subscription_id=ident)
    return "The view is not sent there any more."


def send_now(call: PageCall) -> str:
    """Send the view now to where a subscription sends it."""
    view = find_view(call)
    ident = call.form.get("subscription", "")[:40]
    call.run(SEND, organization_id=view.organization_id, subscription_id=ident)
    return "The view is sent within a minute."
