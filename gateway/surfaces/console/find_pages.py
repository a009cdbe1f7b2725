"""`/console/find`: pages, keys, people, saved views and requests by words of their names, or by their ids. Ctrl+K opens
it on each page."""

from collections.abc import Iterable, Iterator

from msgspec import Struct

from gateway.accounts import saved_views
from gateway.accounts.members import list_members
from gateway.accounts.saved_views import EXPLORE, LOGS
from gateway.callers.permissions import Permission
from gateway.errors import GatewayError
from gateway.surfaces.console.organization_choice import list_visible_keys
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.pages import list_links
from gateway.surfaces.visitors.request_log_reader import find_one
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.http import LABEL_LENGTH, Operation, Outbound

TITLE = "Find"
PATH = "/console/find"
MAX_LENGTH = 200  # characters of what is searched
MOST = 8  # of each kind
VIEWS: tuple[tuple[Permission, str], ...] = (("usage:read", EXPLORE), ("logs:read", LOGS))
LEAST_ID = 6  # characters of something that may be the id of a request


class Found(Struct, frozen=True):
    """A search result; `about` distinguishes it from others of the same name."""

    kind: str
    name: str
    path: str
    about: str = ""


def show(call: PageCall) -> Outbound:
    """Show what the words of the query find; without any, the pages."""
    text = " ".join(call.arguments.get("q", "").split())[:MAX_LENGTH]
    return call.page("find.html", TITLE, path=PATH, text=text, found=find(call.visitor, text))


def find(visitor: Visitor, text: str) -> list[Found]:
    """Return results that the visitor may open, with all words of a text in their names."""
    words = text.lower().split()
    found = _choose(_list_pages(visitor), words, 0 if words else 100)
    if not words:
        return found
    found += _find_request(visitor, text)
    for listed in (_list_keys(visitor, words), _list_people(visitor), _list_views(visitor)):
        found += _choose(listed, words)
    return found


def _choose(listed: Iterable[Found], words: list[str], most: int = 0) -> list[Found]:
    met = []
    for one in listed:
        searched = f"{one.name} {one.about} {one.path.rpartition('/')[2]}".lower()
        if all(word in searched for word in words):
            met.append(one)
            if len(met) == (most or MOST):
                break
    return met


def _list_pages(visitor: Visitor) -> Iterator[Found]:
    for group, links in list_links(visitor):
        for link in links:
            yield Found("Page", link.name, link.path, group)


def _find_request(visitor: Visitor, text: str) -> list[Found]:
    """Return the request with this id or x-request-id."""
    if not LEAST_ID <= len(text) <= LABEL_LENGTH or " " in text or not visitor.may("logs:read"):
        return []
    try:
        request = find_one(visitor, text)
    except GatewayError as error:
        if error.blame != "caller":
            raise
        return []
    return [Found("Request", request.request_id, f"/console/logs/{request.request_id}", request.asked)]


def _list_keys(visitor: Visitor, words: list[str]) -> Iterator[Found]:
    if not visitor.may("keys:read"):
        return
    projects = visitor.projects()
    names = {project.id: project.name for project in projects}
    for key in list_visible_keys(visitor, projects, words, MOST):
        yield Found(
            "API key", key.description or key.id, f"/console/keys/{key.id}", f"{names[key.project_id]} {key.mask}"
        )


def _list_people(visitor: Visitor) -> Iterator[Found]:
    for organization_id in visitor.memberships:
        if visitor.manages("members:read", organization_id):
            for member in list_members(visitor.services.store.database, organization_id):
                path = f"/console/people/{organization_id}/{member.id}"
                yield Found("Person", member.name or member.email, path, member.email)


def _list_views(visitor: Visitor) -> Iterator[Found]:
    database = visitor.services.store.database
    for permission, page in VIEWS:
        if visitor.may(permission):
            for view in saved_views.list_views(database, visitor.memberships.keys(), visitor.user_id, page):
                yield Found("View", view.name, f"/console/{page}/views/{view.id}")


OPERATIONS: tuple[Operation, ...] = page_operations(PATH, show)
