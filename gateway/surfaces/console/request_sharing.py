"""`/console/shared/<link>`: requests and sessions that members showed to colleagues, and the buttons that make and end
such links.

A link opens for members of the organization who may read requests there, be it only their own ones. It shows a payload
only as long as the project retains payloads and no policy of the organization forbids it.
"""

from typing import Any

from gateway.accounts import request_shares
from gateway.accounts.members import find_member
from gateway.accounts.organizations import find_organization
from gateway.accounts.projects import find_project
from gateway.accounts.request_shares import REQUEST, RequestShare
from gateway.callers.access import logs_text
from gateway.callers.compliance import read_policy
from gateway.callers.rule_values import compile_levels
from gateway.engine.retention import RETAIN
from gateway.errors import Forbidden, NotFound
from gateway.metering.log.archived_requests import find_logged, search_log
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter, LogScope, is_seen
from gateway.surfaces.console.page_calls import PageCall
from gateway.surfaces.management.share_routes import PATH, may_end

ENDED = "There is no such link, or it has ended."
MAX_TURNS = 200


def show_links(call: PageCall, draft: RequestShare) -> list[dict[str, Any]]:
    """Return the links to a request or session that the visitor may end: their own, and those of others for people who
    see all requests of the organization."""
    database = call.services.store.database
    listed = request_shares.list_shares(database, draft.organization_id, draft.project_id, draft.kind, draft.subject)
    return [
        {
            "id": share.id,
            "url": f"{call.inbound.base_url}{PATH}/{share.id}",
            "expires_us": share.expires_at_us,
            "is_own": share.user_id == draft.user_id,
            "by": _name_of(call, share),
        }
        for share in listed
        if may_end(call.visitor, share)
    ]


def make_link(call: PageCall, draft: RequestShare) -> str:
    """Make the visitor's link, or keep it for longer."""
    call.visitor.member(draft.organization_id)
    request_shares.add(call.services.store.database, draft)
    return "Members of the organization who may read requests can open the link below for 30 days."


def end_link(call: PageCall, draft: RequestShare) -> str:
    """End the link that the form names."""
    call.visitor.member(draft.organization_id)
    known = {link["id"] for link in show_links(call, draft)}
    share = request_shares.find(call.services.store.database, call.form.get("share", ""), [draft.organization_id])
    if share.id not in known:
        raise NotFound(ENDED)
    request_shares.remove(call.services.store.database, share, call.visitor.user_id)
    return "The link has ended."


def find_share(call: PageCall) -> RequestShare:
    """Return the link that the path names. Raises NotFound, also if the person who made it is no active member any
    more, and Forbidden for a visitor who may not read requests there."""
    visitor = call.visitor
    database = call.services.store.database
    share = request_shares.find(database, call.params["share_id"][:80], visitor.memberships.keys())
    if not visitor.may("logs:read", share.organization_id):
        raise Forbidden("Your role does not allow to read requests of this organization.")
    if find_member(database, share.organization_id, share.user_id).status != "active":
        raise NotFound(ENDED)
    return share


def describe_share(call: PageCall, share: RequestShare) -> dict[str, Any]:
    """Return what a page says of the link by which it was opened."""
    return {"by": _name_of(call, share), "expires_us": share.expires_at_us, "path": f"{PATH}/{share.id}"}


def may_show_payload(call: PageCall, share: RequestShare) -> bool:
    """Return whether a link shows payloads: the project retains them, and no policy forbids it."""
    database = call.services.store.database
    policy = read_policy(find_organization(database, share.organization_id).policy)
    try:
        project = find_project(database, share.project_id)
    except NotFound:
        return False
    return project.retention == RETAIN and logs_text(compile_levels(share.organization_id, policy, []))


def find_shared_request(call: PageCall, share: RequestShare, request_id: str) -> LoggedRequest:
    """Return a request that a link shows. Raises NotFound."""
    request = find_logged(call.services.store.database, request_id)
    scope = LogScope(share.project_id, share.member_id)
    if request is None or not is_seen(request, [scope]):
        raise NotFound(ENDED)
    if share.subject not in ((request.request_id,) if share.kind == REQUEST else (request.session,)):
        raise NotFound(ENDED)
    return request


def list_shared_turns(call: PageCall, share: RequestShare) -> Any:
    """Return the requests of a shared session. Raises NotFound without any."""
    scopes = [LogScope(share.project_id, share.member_id)]
    filters = LogFilter(session=share.subject)
    page = search_log(call.services.store.database, scopes, filters, None, MAX_TURNS)
    if not page.requests:
        raise NotFound(ENDED)
    return page


def _name_of(call: PageCall, share: RequestShare) -> str:
    try:
        member = find_member(call.services.store.database, share.organization_id, share.user_id)
    except NotFound:
        return "a former member"
    return member.name or member.email
