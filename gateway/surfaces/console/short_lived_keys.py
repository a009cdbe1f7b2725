"""Keys that a page makes for its own calls: they expire after an hour and are in the memory of the page only."""

from datetime import timedelta

from gateway.clock import to_datetime
from gateway.surfaces.console.management_calls import ManagementCall
from gateway.surfaces.console.page_calls import CSRF_SUBJECT, PageCall
from gateway.surfaces.console.visits import submitted_by_visitor
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.http_responses import json_reply
from gateway.worker.services import Services

LIFE = timedelta(hours=1)
LIST = ManagementCall("GET /keys/api")
CREATE = ManagementCall("POST /keys/api")
DELETE = ManagementCall("DELETE /keys/api/<key_id>")


def make_short_lived_key(services: Services, inbound: Inbound, page: str, name: str, kind: str) -> Outbound:
    """Create a key of this name and kind in the project of a form of `page`, and delete the visitor's expired ones. The
    answer is JSON. Raises Forbidden for a form that comes from elsewhere."""
    visitor, form = submitted_by_visitor(services, inbound, page, CSRF_SUBJECT)
    call = PageCall(visitor, inbound)
    for key in call.run(LIST, {"filter": "mine"})["apiKeys"]:
        if key["description"] == name and key["state"] == "expired":
            call.run(DELETE, key_id=key["id"])
    expiry = (to_datetime(services.clock.now_us()) + LIFE).isoformat()
    fields = {"projectId": form.get("project", ""), "description": name, "kind": kind, "expiresAt": expiry}
    made = call.run(CREATE, fields)
    return json_reply({"token": made["token"], "expiresAt": made["expiresAt"]}, inbound.shown_id)
