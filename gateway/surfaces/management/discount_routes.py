"""`/discounts` and `/orgs/…/discounts`: discounts on the list price of what credits pay for."""

from typing import Any

from marshmallow import ValidationError, fields

from gateway.callers.discount_book import ALL_SCOPES, DiscountInfo
from gateway.money import format_fraction, parse_fraction
from gateway.surfaces.management.access_groups import OPERATOR, in_organization
from gateway.surfaces.management.answers import DiscountAnswer
from gateway.surfaces.management.managed_operation import ManagedCall, managed
from gateway.surfaces.visitors.validation_schemas import IsoTime, StrictBody, TextField
from gateway.surfaces.web.http import Operation

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
