"""`/orgs/…/credits`, `/orgs/…/audit` and `/audit`: the prepaid balance with its ledger, and who changed what.
`/discounts` and `/orgs/…/discounts`: discounts on the list price of what credits pay for."""

from collections.abc import Iterator
from typing import Any

from marshmallow import ValidationError, fields
from msgspec import Raw, json

from gateway.accounts import audit
from gateway.accounts.audit import AuditEntry
from gateway.admin.funding import Posting
from gateway.callers.discount_book import ALL_SCOPES, DiscountInfo
from gateway.callers.throttle import ThrottleGate
from gateway.limits.ledger import FUNDING, GRANT
from gateway.money import format_fraction, parse_fraction
from gateway.runtime.threads import pause
from gateway.surfaces.management.access_groups import OPERATOR, in_organization
from gateway.surfaces.management.answers import (
    AuditCheckAnswer,
    AuditEntryAnswer,
    AuditPageAnswer,
    BalanceAnswer,
    DiscountAnswer,
    LedgerEntryAnswer,
    PostedAnswer,
)
from gateway.surfaces.management.exports import check_again, download
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import (
    Body,
    IsoTime,
    OneOf,
    QueryInteger,
    StrictBody,
    StrictBoolean,
    TextField,
    Usd,
)
from gateway.surfaces.web.http import Operation, Outbound

CREDITS = "Credits"
AUDIT = "Audit log"
PAGE = 100
EXPORT_PAGE = 200
# Walks of the chain an hour: of one organization, and of all.
WALKS = 6
ALL_WALKS = 60
HOUR_S = 3_600
VERIFICATIONS = "verifications of the audit log"
NDJSON = "application/x-ndjson"


class HistoryQuery(Body):
    limit = QueryInteger(1, 1000, load_default=PAGE, about="Maximum number of entries; default: 100.")
    before = IsoTime(about="Only entries before this time.")


class NewPosting(Body):
    amount = Usd(signed=True, required=True)
    kind = OneOf(FUNDING, load_default=GRANT)
    note = TextField(0, 255, load_default="", about="Reason, shown in the history.")
    reference = TextField(0, 128, load_default="", about="A reference that was posted before changes nothing.")


class Unlimited(Body):
    unlimited = StrictBoolean(required=True)


class AuditQuery(Body):
    limit = QueryInteger(1, 1000, load_default=PAGE, about="Maximum number of entries; default: 100.")
    before = QueryInteger(1, 2**62, about="Only entries before this one.")


def show_credits(call: ManagedCall[str]) -> BalanceAnswer:
    """Credits funded, spent, and reserved by running requests, and the balance (funded less spent)."""
    answer: BalanceAnswer = _show_balance(call)
    return answer


def list_history(call: ManagedCall[str]) -> list[LedgerEntryAnswer]:
    """The newest entries of the ledger; usage is posted for each hour once the hour is closed."""
    entries = call.management.ledger.entries(call.subject, call.fields["limit"], call.fields.get("before"))
    return [
        LedgerEntryAnswer.of(entry, amount=entry.amount_nusd, reference=entry.ref, at=entry.at) for entry in entries
    ]


def post(call: ManagedCall[str]) -> PostedAnswer:
    """Add credits, once for each reference. Credits represent the operator's money."""
    fields = call.fields
    management = call.management
    posting = Posting(fields["kind"], fields["amount"] or 0, fields["note"], fields["reference"])
    posted = management.post_credits(call.subject, posting, actor=call.actor)
    answer: PostedAnswer = _show_balance(call, PostedAnswer, posted=posted)
    return answer


def set_unlimited(call: ManagedCall[str]) -> BalanceAnswer:
    """Let the organization spend without credits, with its usage counted, or again only what was funded."""
    call.management.set_unlimited(call.subject, call.fields["unlimited"], actor=call.actor)
    answer: BalanceAnswer = _show_balance(call)
    return answer


def list_audit(call: ManagedCall[str]) -> AuditPageAnswer:
    """The newest changes first; `next` is the `before` of the following page, null at the end."""
    return _list_page(call, call.subject)


def list_whole_audit(call: ManagedCall[str]) -> AuditPageAnswer:
    """The newest changes of the whole installation first, also those that belong to no organization; `next` is the
    `before` of the following page, null at the end."""
    return _list_page(call, "")


def _list_page(call: ManagedCall[str], organization_id: str) -> AuditPageAnswer:
    limit = call.fields["limit"]
    entries = audit.list_entries(call.database, organization_id, limit=limit, before=call.fields.get("before", 0))
    following = None
    if len(entries) == limit:
        following = entries[-1].seq
    return AuditPageAnswer([show_entry(entry) for entry in entries], following)


def export_audit(call: ManagedCall[str]) -> Outbound:
    """Every change as JSON lines, newest first."""
    organization_id = call.subject
    return download(
        call.visitor, [organization_id], f"audit-{organization_id}.ndjson", NDJSON, _write_lines(call, organization_id)
    )


def verify_audit(call: ManagedCall[str]) -> AuditCheckAnswer:
    """Verify the whole hash chain, which covers all organizations. Since that takes long, it is limited to a few times
    an hour."""
    return _verify(call, ThrottleGate(VERIFICATIONS, call.subject, WALKS, HOUR_S))


def verify_whole_audit(call: ManagedCall[str]) -> AuditCheckAnswer:
    """Verify the whole hash chain: that no entry was changed, added or removed. It is limited to once a minute on
    average."""
    return _verify(call)


def _verify(call: ManagedCall[str], *gates: ThrottleGate) -> AuditCheckAnswer:
    call.management.throttle.take(*gates, ThrottleGate(VERIFICATIONS, "", ALL_WALKS, HOUR_S))
    checked, problems = audit.verify(call.database)
    return AuditCheckAnswer(not problems, checked, problems)


def show_entry(entry: AuditEntry) -> AuditEntryAnswer:
    return AuditEntryAnswer.of(entry, detail=Raw(entry.detail))


def _show_balance(call: ManagedCall[str], answer: type[BalanceAnswer] = BalanceAnswer, **more: Any) -> Any:
    """Return the organization's balance as `answer`, with `more` fields of it."""
    balance = call.management.ledger.balance(call.subject)
    return answer.of(balance, organization_id=call.subject, credits=balance.balance_nusd, **more)


def _write_lines(call: ManagedCall[str], organization_id: str) -> Iterator[bytes]:
    before = 0
    while True:
        if before:
            check_again(call.visitor)
        page = audit.list_entries(call.database, organization_id, limit=EXPORT_PAGE, before=before)
        if not page:
            return
        yield b"".join(json.encode(show_entry(entry)) + b"\n" for entry in page)
        pause(0)  # writing a page takes milliseconds: others have their turn in between
        before = page[-1].seq


ORG = "/orgs/<organization_id>"


# `/discounts` and `/orgs/…/discounts`: discounts on the list price of what credits pay for.

TAG = "Discounts"
EXPECTED = 'Give a decimal fraction between 0 and 1, of at most six places, such as "0.2".'


class Fraction(fields.Field[Any]):
    """A fraction between 0 and 1, as a decimal string or a number; parts per million inside."""

    def __init__(self, **more: Any) -> None:
        super().__init__(metadata={"type": "string", "pattern": r"^0?\.\d{1,6}$", "examples": ["0.2"]}, **more)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **more: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | float):
            raise ValidationError(EXPECTED)
        try:
            return parse_fraction(value[:40] if isinstance(value, str) else value)
        except ValueError:
            raise ValidationError(EXPECTED) from None


class NewDiscount(StrictBody):
    """Absent members mean all, absent times mean always."""

    organizationId = TextField(1, 40, load_default=ALL_SCOPES, about="Organization id; default: all organizations.")
    provider = TextField(1, 80, load_default=ALL_SCOPES, about="Provider id; default: all providers.")
    model = TextField(1, 255, load_default=ALL_SCOPES, about="Model id; default: all models.")
    fraction = Fraction(required=True)
    startsAt = IsoTime(allow_none=True, load_default=None, about="Start, inclusive.")
    endsAt = IsoTime(allow_none=True, load_default=None, about="End, exclusive.")


def list_own(call: ManagedCall[str]) -> list[DiscountAnswer]:
    """The discounts that apply to an organization: its own, and general ones where it has none more specific."""
    return [show_discount(info) for info in call.management.discounts.list_discounts(call.subject)]


def list_all(call: ManagedCall[str]) -> list[DiscountAnswer]:
    """Every discount of this installation."""
    return [show_discount(info) for info in call.management.discounts.list_discounts()]


def put(call: ManagedCall[str]) -> DiscountAnswer:
    """Set the discount of an organization, provider and model, each "*" for all, replacing an existing one. In force
    for requests that arrive after this returns."""
    fields = call.fields
    discount = DiscountInfo(
        fields["organizationId"],
        fields["provider"],
        fields["model"],
        fields["fraction"],
        fields["startsAt"],
        fields["endsAt"],
    )
    catalogue = call.services.routing.catalogue.current()
    return show_discount(call.management.discounts.put(discount, catalogue, actor=call.actor))


def remove(call: ManagedCall[str]) -> None:
    """Remove a discount; what was billed with it does not change."""
    call.management.discounts.remove(call.params["discount_id"], actor=call.actor)


def show_discount(info: DiscountInfo) -> DiscountAnswer:
    return DiscountAnswer.of(
        info, fraction=format_fraction(info.fraction_ppm), starts_at=info.starts_us, ends_at=info.ends_us
    )


OPERATIONS: tuple[Operation, ...] = (
    managed("GET", f"{ORG}/credits", show_credits, "Show the credit balance", tag=CREDITS,
            who=in_organization("credits:read"),
            scope="usage:read", commands=("credits balance",)),
    managed("GET", f"{ORG}/credits/history", list_history, "List ledger entries", tag=CREDITS,
            who=in_organization("credits:read"),
            scope="usage:read", query=HistoryQuery, inside="history",
            commands=("credits history --organization=organization_id ...",)),
    managed("POST", f"{ORG}/credits", post, "Grant, refund or adjust credits", tag=CREDITS, who=OPERATOR,
            request=NewPosting, audit="credits.post",
            commands=("credits grant <amount> --note=note --reference=reference kind=grant",
                      "credits adjust <amount> --note=note! --reference=reference kind=adjustment")),
    managed("PATCH", f"{ORG}/credits", set_unlimited, "Set whether an organization spends without credits", tag=CREDITS,
            who=OPERATOR, request=Unlimited, audit="credits.unlimited",
            commands=("credits unlimited unlimited=true --off=unlimited=false",)),
    managed("GET", f"{ORG}/audit", list_audit, "List changes", tag=AUDIT,
            who=in_organization("audit:read"), query=AuditQuery,
            scope="audit:read",
            commands=("audit list .entries --organization=organization_id ...",)),
    managed("GET", "/audit", list_whole_audit, "List all changes of the installation", tag=AUDIT, who=OPERATOR,
            query=AuditQuery, commands=("audit list .entries ...",)),
    managed("GET", "/audit/verify", verify_whole_audit, "Verify the chain of all changes", tag=AUDIT, who=OPERATOR,
            errors=(429,), commands=("audit verify ?valid",)),
    managed("GET", f"{ORG}/audit/export", export_audit, "Export all changes", tag=AUDIT,
            who=in_organization("audit:read"),
            scope="audit:read", errors=(429,), media=NDJSON),
    managed("GET", f"{ORG}/audit/verify", verify_audit, "Verify the chain of changes", tag=AUDIT,
            who=in_organization("audit:verify"),
            errors=(429,)),
    managed("GET", "/orgs/<organization_id>/discounts", list_own, "List an organization's discounts", tag=TAG,
            who=in_organization("credits:read"), scope="usage:read", inside="discounts",
            commands=("discounts list --organization=organization_id",)),
    managed("GET", "/discounts", list_all, "List all discounts", tag=TAG, who=OPERATOR,
            inside="discounts", commands=("discounts list",)),
    managed("PUT", "/discounts", put, "Set a discount", tag=TAG, who=OPERATOR, request=NewDiscount,
            inside="discount", audit="discount.set",
            commands=("discounts set <fraction> --organization=organizationId --from=startsAt --to=endsAt ... -> id",)),
    managed("DELETE", "/discounts/<discount_id>", remove, "Remove a discount", tag=TAG, who=OPERATOR,
            message="Discount removed.", audit="discount.remove", commands=("discounts remove <discount_id>",)),
)  # fmt: skip
