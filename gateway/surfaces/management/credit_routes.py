"""`/orgs/…/credits` and `/orgs/…/audit`: the prepaid balance with its ledger, and who changed what."""

from collections.abc import Iterator
from typing import Any

import orjson
from marshmallow import fields

from gateway.accounts import audit
from gateway.accounts.audit import AuditEntry
from gateway.accounts.throttle import ThrottleGate
from gateway.admin.account_changes import Posting
from gateway.clock import to_iso
from gateway.errors import Forbidden
from gateway.money import format_usd
from gateway.runtime.threads import pause
from gateway.surfaces.http import Inbound, Operation, Outbound
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed
from gateway.surfaces.management.downloads import check_again, download
from gateway.surfaces.management.presenters import show_balance
from gateway.surfaces.validation_schemas import Body, Counted, Moment, OneOf, TextField, Usd, read_body, read_query
from gateway.surfaces.visitor import Visitor

CREDITS = "Credits"
AUDIT = "Audit log"
PAGE = 100
EXPORT_PAGE = 200
# Walks of the chain an hour: of one organization, and of all.
WALKS = 6
ALL_WALKS = 60
HOUR_S = 3_600
NDJSON = "application/x-ndjson"


class HistoryQuery(Body):
    limit = Counted(1, 1000, load_default=PAGE)
    before = Moment()


class NewPosting(Body):
    amount = Usd(signed=True, required=True)
    kind = OneOf(("grant", "refund", "adjustment"), load_default="grant")
    note = TextField(0, 255, load_default="")
    reference = TextField(0, 128, load_default="")


class Unlimited(Body):
    unlimited = fields.Boolean(required=True, truthy={True}, falsy={False})


class AuditQuery(Body):
    limit = Counted(1, 1000, load_default=PAGE)
    before = Counted(1, 2**62)


def show_credits(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Credits funded, spent, and reserved by running requests, and the balance (funded less spent)."""
    organization_id = visitor.managed_organization(inbound)
    return show_balance(visitor.services.management.ledger.balance(organization_id))


def list_history(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The newest entries of the ledger; usage is posted for each hour once the hour is closed."""
    given = read_query(HistoryQuery, inbound)
    organization_id = visitor.managed_organization(inbound)
    found = visitor.services.management.ledger.entries(organization_id, given["limit"], given.get("before"))
    entries = [
        {
            "id": row.id,
            "kind": row.kind,
            "amount": format_usd(row.amount_nusd),
            "reference": row.ref,
            "note": row.note,
            "at": to_iso(row.at),
        }
        for row in found
    ]
    return {"history": entries}


def post(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Add credits, once for each reference. Only the operator of the installation may do this,
    because credits represent the operator's money."""
    given = read_body(NewPosting, inbound)
    if not visitor.is_operator():
        raise Forbidden("Credits are granted by the owners of this installation's first organization.")
    organization_id = inbound.params["organization_id"]
    management = visitor.services.management
    posting = Posting(given["kind"], given["amount"] or 0, given["note"], given["reference"])
    posted = management.post_credits(organization_id, posting, actor=visitor.user_id)
    return {"posted": posted, **show_balance(management.ledger.balance(organization_id))}


def set_unlimited(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Let the organization spend without credits, with its usage counted, or again only what was funded. Only for the
    operator of the installation."""
    if not visitor.is_operator():
        raise Forbidden("Owners of this installation's first organization say who may spend without credits.")
    given = read_body(Unlimited, inbound)
    organization_id = inbound.params["organization_id"]
    management = visitor.services.management
    management.set_unlimited(organization_id, given["unlimited"], actor=visitor.user_id)
    return show_balance(management.ledger.balance(organization_id))


def list_audit(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The newest changes first; `next` is the `before` of the following page, null at the end."""
    given = read_query(AuditQuery, inbound)
    organization_id = visitor.managed_organization(inbound)
    found = audit.list_entries(
        visitor.services.store.database, organization_id, limit=given["limit"], before=given.get("before", 0)
    )
    if len(found) == given["limit"]:
        more = found[-1].seq
    else:
        more = None
    return {"entries": [show_entry(entry) for entry in found], "next": more}


def export_audit(visitor: Visitor, inbound: Inbound) -> Outbound:
    """Every change as JSON lines, newest first."""
    organization_id = visitor.managed_organization(inbound)
    return download(
        visitor, [organization_id], f"audit-{organization_id}.ndjson", NDJSON, _lines(visitor, organization_id)
    )


def verify_audit(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Verify the whole hash chain, which covers all organizations. Since that takes long, it is limited to a few times
    an hour."""
    organization_id = inbound.params["organization_id"]
    visitor.member(organization_id, "owner")
    what = "verifications of the audit log"
    visitor.services.management.throttle.take(
        ThrottleGate(what, organization_id, WALKS, HOUR_S), ThrottleGate(what, "", ALL_WALKS, HOUR_S)
    )
    checked, problems = audit.verify(visitor.services.store.database)
    return {"valid": not problems, "checked": checked, "problems": problems}


def show_entry(entry: AuditEntry) -> dict[str, Any]:
    return {
        "seq": entry.seq,
        "at": to_iso(entry.at_us),
        "actor": entry.actor,
        "action": entry.action,
        "subject": entry.subject,
        "detail": orjson.Fragment(entry.detail),  # it was written as JSON
    }


def _lines(visitor: Visitor, organization_id: str) -> Iterator[bytes]:
    before = 0
    while True:
        if before:
            check_again(visitor)
        page = audit.list_entries(visitor.services.store.database, organization_id, limit=EXPORT_PAGE, before=before)
        if not page:
            return
        yield b"".join(orjson.dumps(show_entry(entry)) + b"\n" for entry in page)
        pause(0)  # writing a page takes milliseconds: others have their turn in between
        before = page[-1].seq


ORG = "/orgs/<organization_id>"

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", f"{ORG}/credits", show_credits, "Show the credit balance", tag=CREDITS, answer=shapes.BALANCE),
    managed("GET", f"{ORG}/credits/history", list_history, "List ledger entries", tag=CREDITS, query=HistoryQuery,
            answer=shapes.shape(history=[shapes.LEDGER_ENTRY])),
    managed("POST", f"{ORG}/credits", post, "Grant, refund or adjust credits", tag=CREDITS, request=NewPosting,
            answer={"allOf": [shapes.BALANCE, shapes.shape(posted="boolean")]}),
    managed("PATCH", f"{ORG}/credits", set_unlimited, "Let an organization spend without credits, or not", tag=CREDITS,
            request=Unlimited, answer=shapes.BALANCE),
    managed("GET", f"{ORG}/audit", list_audit, "List changes", tag=AUDIT, query=AuditQuery,
            answer=shapes.shape(entries=[shapes.AUDIT_ENTRY], next="integer?")),
    managed("GET", f"{ORG}/audit/export", export_audit, "Export all changes", tag=AUDIT, media=NDJSON),
    managed("GET", f"{ORG}/audit/verify", verify_audit, "Verify the chain of changes", tag=AUDIT,
            answer=shapes.shape(valid="boolean", checked="integer", problems=["string"]), errors=(429,)),
)  # fmt: skip
