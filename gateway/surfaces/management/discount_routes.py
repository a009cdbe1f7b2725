"""`/discounts` and `/orgs/…/discounts`: discounts on the list price of what credits pay for."""

from typing import Any

from marshmallow import ValidationError, fields

from gateway.accounts.discounts import EVERY, DiscountInfo
from gateway.errors import Forbidden
from gateway.money import format_fraction, parse_fraction
from gateway.surfaces.http import Inbound, Operation
from gateway.surfaces.management import shapes
from gateway.surfaces.management.described import managed
from gateway.surfaces.management.presenters import iso
from gateway.surfaces.validation_schemas import Moment, StrictBody, TextField, read_body
from gateway.surfaces.visitor import Visitor

TAG = "Discounts"
WANTED = 'Give a decimal fraction between 0 and 1, of at most six places, such as "0.2".'


class Fraction(fields.Field):
    """A fraction between 0 and 1, as a decimal string or a number; parts per million inside."""

    def __init__(self, **more: Any) -> None:
        super().__init__(metadata={"type": "string", "pattern": r"^0?\.\d{1,6}$", "examples": ["0.2"]}, **more)

    def _deserialize(self, value: Any, attr: str | None, data: Any, **more: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, str | float):
            raise ValidationError(WANTED)
        try:
            return parse_fraction(value[:40] if isinstance(value, str) else value)
        except ValueError:
            raise ValidationError(WANTED) from None


class NewDiscount(StrictBody):
    """Absent members mean all, absent times mean always."""

    organizationId = TextField(1, 40, load_default=EVERY)
    provider = TextField(1, 80, load_default=EVERY)
    model = TextField(1, 255, load_default=EVERY)
    fraction = Fraction(required=True)
    startsAt = Moment(allow_none=True, load_default=None)
    endsAt = Moment(allow_none=True, load_default=None)


def list_own(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """The discounts that apply to an organization: its own, and general ones where it has none more specific."""
    organization_id = visitor.managed_organization(inbound)
    return _write(visitor.services.management.discounts.list_discounts(organization_id))


def list_all(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Every discount of this installation."""
    _require_operator(visitor)
    return _write(visitor.services.management.discounts.list_discounts())


def put(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Set the discount of an organization, provider and model, each "*" for all, replacing an existing one. In force
    for requests that arrive after this returns. Only for the operator of the installation."""
    given = read_body(NewDiscount, inbound)
    _require_operator(visitor)
    wanted = DiscountInfo(
        given["organizationId"],
        given["provider"],
        given["model"],
        given["fraction"],
        given["startsAt"],
        given["endsAt"],
    )
    services = visitor.services
    made = services.management.discounts.put(wanted, services.routing.catalogue.current(), actor=visitor.user_id)
    return {"discount": show_discount(made)}


def remove(visitor: Visitor, inbound: Inbound) -> dict[str, Any]:
    """Remove a discount; what was billed with it does not change."""
    _require_operator(visitor)
    visitor.services.management.discounts.remove(inbound.params["discount_id"], actor=visitor.user_id)
    return {"message": "Discount removed."}


def show_discount(info: DiscountInfo) -> dict[str, Any]:
    return {
        "id": info.id,
        "organizationId": info.organization_id,
        "provider": info.provider,
        "model": info.model,
        "fraction": format_fraction(info.fraction_ppm),
        "startsAt": iso(info.starts_us),
        "endsAt": iso(info.ends_us),
    }


def _write(found: list[DiscountInfo]) -> dict[str, Any]:
    return {"discounts": [show_discount(one) for one in found]}


def _require_operator(visitor: Visitor) -> None:
    if not visitor.is_operator():
        raise Forbidden("Discounts are set by the owners of this installation's first organization.")


LIST = shapes.shape(discounts=[shapes.DISCOUNT])

OPERATIONS: tuple[Operation, ...] = (
    managed("GET", "/orgs/<organization_id>/discounts", list_own, "List an organization's discounts", tag=TAG,
            answer=LIST),
    managed("GET", "/discounts", list_all, "List all discounts", tag=TAG, answer=LIST),
    managed("PUT", "/discounts", put, "Set a discount", tag=TAG, request=NewDiscount,
            answer=shapes.shape(discount=shapes.DISCOUNT)),
    managed("DELETE", "/discounts/<discount_id>", remove, "Remove a discount", tag=TAG, answer=shapes.DONE),
)  # fmt: skip
