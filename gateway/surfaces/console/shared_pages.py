"""`/console/shared/<link>`: a request or a session that a member showed to colleagues."""

from gateway.accounts.request_shares import SESSION
from gateway.errors import NotFound
from gateway.surfaces.console.agent_session_pages import show_session_turns
from gateway.surfaces.console.page_calls import PageCall, page_operations
from gateway.surfaces.console.request_details import show_found
from gateway.surfaces.console.request_sharing import (
    ENDED,
    describe_share,
    find_share,
    find_shared_request,
    list_shared_turns,
    may_show_payload,
)
from gateway.surfaces.management.share_routes import PATH
from gateway.surfaces.web.http import Operation, Outbound


def show(call: PageCall) -> Outbound:
    """Show what a link shares."""
    share = find_share(call)
    shared = describe_share(call, share)
    if share.kind == SESSION:
        found = list_shared_turns(call, share)
        return show_session_turns(call, share.subject, found, shared, may_show_payload(call, share))
    request = find_shared_request(call, share, share.subject)
    return show_found(call, request, shared, may_show_payload(call, share))


def show_turn(call: PageCall) -> Outbound:
    """Show a request of a shared session."""
    share = find_share(call)
    if share.kind != SESSION:
        raise NotFound(ENDED)
    request = find_shared_request(call, share, call.params["log_id"][:80])
    return show_found(call, request, describe_share(call, share), may_show_payload(call, share))


OPERATIONS: tuple[Operation, ...] = (
    *page_operations(f"{PATH}/<share_id>", show),
    *page_operations(f"{PATH}/<share_id>/<log_id>", show_turn),
)
