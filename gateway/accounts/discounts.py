"""Discounts of organizations, as the operator sets them; `callers/discount_book.py` says which one counts."""

from msgspec.structs import replace

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.discount_book import ALL_SCOPES, DiscountBook, DiscountInfo, Place
from gateway.callers.models import Discount, Organization
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import to_iso
from gateway.errors import InvalidRequest, NotFound
from gateway.money import MILLION, format_fraction


class Discounts(DiscountBook):
    """The discounts of all organizations: set in the store, read from memory."""

    def list_discounts(self, organization_id: str = "") -> list[DiscountInfo]:
        """All, or those that concern an organization (its own and everyone's), by place."""
        discounts = self._database.read(self.read_all)
        if not organization_id:
            return discounts
        return [discount for discount in discounts if discount.organization_id in (organization_id, ALL_SCOPES)]

    def put(self, discount: DiscountInfo, catalogue: Catalogue, *, actor: str) -> DiscountInfo:
        """Set the discount of a place, instead of the one that it had; in force on every worker when this returns.

        InvalidRequest: a fraction that is none, an end before the start, a provider or model that the catalogue does
        not have. NotFound: no such organization.
        """
        _check(discount, catalogue)
        new_id = ids.new("disc")

        def work(now: int) -> DiscountInfo:
            _check_organization(discount.organization_id)
            known = _load_place(discount.place)
            ident = known.id if known is not None else new_id
            times = {"starts_at": discount.starts_us, "ends_at": discount.ends_us}
            values = {"fraction_ppm": discount.fraction_ppm, **times}
            if known is not None:
                Discount.update(updated_at=now, **values).where(Discount.id == ident).execute()
            else:
                named = dict(zip(("organization", "provider", "model"), discount.place, strict=True))
                Discount.insert(id=ident, created_at=now, updated_at=now, **named, **values).execute()
            stored = replace(discount, id=ident)
            _audit("discount.set", stored, actor, now)
            return stored

        return commit(self._database, self._control, work)

    def remove(self, discount_id: str, *, actor: str) -> None:
        """Remove one; requests that come in afterwards pay without it. NotFound."""

        def work(now: int) -> None:
            row = Discount.get_or_none(Discount.id == discount_id)
            if row is None:
                raise NotFound(f"There is no discount {discount_id}.")
            Discount.delete().where(Discount.id == discount_id).execute()
            place = (row.organization, row.provider, row.model)
            _audit("discount.remove", DiscountInfo(*place, row.fraction_ppm, id=row.id), actor, now)

        commit(self._database, self._control, work)


def _check(discount: DiscountInfo, catalogue: Catalogue) -> None:
    if not 0 < discount.fraction_ppm < MILLION:
        raise InvalidRequest("A discount is a fraction between 0 and 1.", param="fraction")
    if discount.starts_us is not None and discount.ends_us is not None and discount.ends_us <= discount.starts_us:
        raise InvalidRequest("A discount must end after it starts.", param="endsAt")
    if discount.provider != ALL_SCOPES and catalogue.provider(discount.provider) is None:
        raise InvalidRequest(f"There is no provider {discount.provider}.", param="provider")
    if discount.model == ALL_SCOPES:
        return
    # By alias it would never match: usage names the canonical id.
    if discount.model not in catalogue.models:
        near = catalogue.find(discount.model)
        hint = f"; its id is {near.id}" if near else ""
        raise InvalidRequest(f"There is no model with the id {discount.model}{hint}.", param="model")
    serving = {mapping.provider for mapping in catalogue.mappings_of(discount.model)}
    if discount.provider != ALL_SCOPES and discount.provider not in serving:
        raise InvalidRequest(f"{discount.provider} does not serve {discount.model}.", param="model")


def _check_organization(organization_id: str) -> None:
    if organization_id != ALL_SCOPES and not Organization.select().where(Organization.id == organization_id).exists():
        raise NotFound(f"There is no organization {organization_id}.")


def _load_place(place: Place) -> Discount | None:
    organization, provider, model = place
    return Discount.get_or_none(
        Discount.organization == organization, Discount.provider == provider, Discount.model == model
    )


def _audit(action: str, info: DiscountInfo, actor: str, now: int) -> None:
    times = {"starts_at": info.starts_us, "ends_at": info.ends_us}
    detail: dict[str, object] = {
        "organization": info.organization_id,
        "provider": info.provider,
        "model": info.model,
        "fraction": format_fraction(info.fraction_ppm),
        **{name: to_iso(at_us) for name, at_us in times.items() if at_us is not None},
    }
    owner = "" if info.organization_id == ALL_SCOPES else info.organization_id
    audit.append(action, info.id, actor=actor, at_us=now, organization_id=owner, detail=detail)
