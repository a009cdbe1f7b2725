"""`/orgs/…/shares`: links by which members show a request or a session to colleagues in the console."""

from typing import Annotated

from msgspec import Meta

from gateway.accounts import request_shares
from gateway.accounts.request_shares import REQUEST, SESSION, RequestShare
from gateway.clock import to_iso
from gateway.errors import Forbidden, InvalidRequest, NotFound
from gateway.metering.log.archived_requests import search_log
from gateway.metering.log.records import LoggedRequest
from gateway.metering.log.search import LogFilter
from gateway.surfaces.management.access_groups import in_part
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors import request_log_reader as request_log_reader_module
from gateway.surfaces.visitors.validation_schemas import StrictBody, TextField
from gateway.surfaces.visitors.visitor import Visitor
from gateway.surfaces.web.answer_structs import Answer, Time
from gateway.surfaces.web.http import Operation

TAG = "Shares"
PATH = "/console/shared"
READERS = in_part("logs:read")
MAX_SESSION_LENGTH = 64


class NewShare(StrictBody):
    """Either `requestId`, or `session` with `projectId`."""

    requestId = TextField(1, 80, about="The id of a request that you see.")
    session = TextField(1, MAX_SESSION_LENGTH, about="The name of a session; the link shows its requests that you see.")
    projectId = TextField(1, 80, about="The project of the session.")


class SharedLinkAnswer(Answer):
    """`subject` is the id of a request or the name of a session, `url` the link for members of the organization."""

    columns = ("id", "kind", "subject", "project_id", "user_id", "expires_at", "url")
    id: str
    kind: Annotated[str, Meta(examples=["request"])]
    subject: str
    project_id: str
    user_id: str
    expires_at: Time
    url: str


def draft_of_request(request: LoggedRequest, visitor: Visitor) -> RequestShare:
    """Return the link that the visitor would make to a request."""
    organization_id = f"org_{request.owner.organization.hex()}"
    project_id = f"proj_{request.owner.project.hex()}"
    return RequestShare("", organization_id, project_id, visitor.user_id, "", REQUEST, request.request_id, 0)


def draft_of_session(project_id: str, session: str, visitor: Visitor) -> RequestShare:
    """Return the link that the visitor would make to a session. It shows the requests that the visitor may see. Raises
    NotFound, Forbidden."""
    organization_id = visitor.project(project_id, "logs:read").organization_id
    scopes = request_log_reader_module.scopes_of(visitor, project_id)
    sees_all = any(not scope.member_id and not scope.key_ids for scope in scopes)
    member_id = "" if sees_all else visitor.memberships[organization_id].id
    return RequestShare("", organization_id, project_id, visitor.user_id, member_id, SESSION, session, 0)


def may_end(visitor: Visitor, share: RequestShare) -> bool:
    """Return whether a visitor sees and ends a link: their own, and those of others for people who see all requests of
    the organization."""
    return share.user_id == visitor.user_id or visitor.manages("logs:read", share.organization_id)


def _show(call: ManagedCall[str], share: RequestShare) -> SharedLinkAnswer:
    return SharedLinkAnswer(
        share.id,
        share.kind,
        share.subject,
        share.project_id,
        share.user_id,
        to_iso(share.expires_at_us),
        f"{call.inbound.base_url}{PATH}/{share.id}",
    )


def list_shares(call: ManagedCall[str]) -> list[SharedLinkAnswer]:
    """Your links that have not expired; for people who see all requests of the organization, those of all members."""
    listed = request_shares.list_of_organization(call.database, call.subject)
    return [_show(call, share) for share in listed if may_end(call.visitor, share)]


def create(call: ManagedCall[str]) -> SharedLinkAnswer:
    """Make a link to a request or session for 30 days, or keep yours for another 30 days. Members of the organization
    open it in the console if their role may read requests there, be it only their own ones."""
    fields, visitor = call.fields, call.visitor
    if ("requestId" in fields) == ("session" in fields) or ("session" in fields) != ("projectId" in fields):
        raise InvalidRequest("Give either requestId, or session with projectId.")
    draft = _draft_session(call) if "session" in fields else _draft_request(call)
    if draft.organization_id != call.subject:
        raise NotFound("There is no such request or session in this organization.")
    visitor.member(call.subject)
    return _show(call, request_shares.add(call.database, draft))


def _draft_request(call: ManagedCall[str]) -> RequestShare:
    return draft_of_request(request_log_reader_module.find_one(call.visitor, call.fields["requestId"]), call.visitor)


def _draft_session(call: ManagedCall[str]) -> RequestShare:
    project_id, session = call.fields["projectId"], call.fields["session"]
    draft = draft_of_session(project_id, session, call.visitor)
    scopes = request_log_reader_module.scopes_of(call.visitor, project_id)
    if not search_log(call.database, scopes, LogFilter(session=session), None, 1).requests:
        raise NotFound("There is no such request or session in this organization.")
    return draft


def revoke(call: ManagedCall[str]) -> None:
    """The link opens nothing any more."""
    share = request_shares.find(call.database, call.params["share_id"], [call.subject])
    if not may_end(call.visitor, share):
        raise Forbidden("Only the person who made a link, and people who see all requests, may end it.")
    call.visitor.member(call.subject)
    request_shares.remove(call.database, share, call.actor)


SHARES = "/orgs/<organization_id>/shares"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", SHARES, list_shares, "List links to requests and sessions", tag=TAG, who=READERS, inside="shares",
            commands=("shares list",)),
    managed("POST", SHARES, create, "Share a request or session", tag=TAG, who=READERS, request=NewShare,
            inside="share", success=201, audit="request.share"),
    managed("DELETE", f"{SHARES}/<share_id>", revoke, "End a link", tag=TAG, who=READERS,
            message="The link has ended.", audit="request.unshare", commands=("shares revoke <share_id>",)),
)  # fmt: skip
