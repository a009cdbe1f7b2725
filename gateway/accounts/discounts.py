"""Discounts: fractions of the list price that organizations' credits are spared, looked up without asking the store.

The most specific one in force counts, alone: an organization's own before those for everyone; among these one for
model and provider, then for the model, then for the provider, then for all. Several never add up.
"""

from collections.abc import Iterable

from msgspec import Struct
from msgspec.structs import replace

from gateway import ids
from gateway.accounts import audit
from gateway.accounts.changes import commit
from gateway.callers.models import Discount, Organization
from gateway.catalogue.catalogue import Catalogue
from gateway.clock import to_iso
from gateway.control.version import Control
from gateway.errors import GatewayError, InvalidRequest, NotFound
from gateway.money import MILLION, format_fraction
from gateway.store.database import Database

ALL_SCOPES = "*"
COLUMNS = "id, organization, provider, model, fraction_ppm, starts_at, ends_at"

Place = tuple[str, str, str]


class DiscountInfo(Struct, frozen=True):
    """`fraction_ppm` parts per million are taken off from `starts_us` (None: always was) until before `ends_us` (None:
    never ends), judged by when a request came in. Organization, provider and model may each be ALL_SCOPES."""

    organization_id: str
    provider: str
    model: str
    fraction_ppm: int
    starts_us: int | None = None
    ends_us: int | None = None
    id: str = ""

    @property
    def place(self) -> Place:
        return self.organization_id, self.provider, self.model

    def holds_at(self, at_us: int) -> bool:
        return (self.starts_us is None or self.starts_us <= at_us) and (self.ends_us is None or at_us < self.ends_us)


class Discounts:
    """The discounts of all organizations; the table is read again after each change of the control version.

    `any` is False if there is none at all.
    """

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control
        self._book: dict[Place, DiscountInfo] | None = None
        self._version = -1
        self.any = True
        control.on_change(self._renew)

    def fraction(self, organization_id: str, provider: str, model: str, at_us: int) -> int:
        """Parts per million that are taken off, 0 for none. Unavailable when the store was down since a change."""
        book = self._book
        if book is None:
            book = self._read(self._control.version)
        for owner in (organization_id, ALL_SCOPES):
            for place in ((provider, model), (ALL_SCOPES, model), (provider, ALL_SCOPES), (ALL_SCOPES, ALL_SCOPES)):
                discount = book.get((owner, *place))
                if discount is not None and discount.holds_at(at_us):
                    return discount.fraction_ppm
        return 0

    def list_discounts(self, organization_id: str = "") -> list[DiscountInfo]:
        """All, or those that concern an organization (its own and everyone's), by place."""
        discounts = self._database.read(self._select)
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

    def _renew(self, version: int) -> None:
        """Drop the cached discounts and read the table again. They are dropped even if the table cannot be read now."""
        self._book = None
        self.any = True
        try:
            self._read(version)
        except GatewayError:
            return  # the next request that needs it asks again

    def _read(self, version: int) -> dict[Place, DiscountInfo]:
        book = {discount.place: discount for discount in self._database.read(self._select)}
        # The result of a read that a change overtook serves its caller, but is not cached.
        if version >= max(self._version, self._control.version):
            self._book = book
            self._version = version
            self.any = bool(book)
        return book

    def _select(self) -> list[DiscountInfo]:
        # Not through the model: a process may have several stores open, and this query must read this one.
        rows = self._database.execute(f"SELECT {COLUMNS} FROM discount ORDER BY organization, provider, model")
        return list(_infos(rows.fetchall()))


def _infos(rows: Iterable[tuple]) -> Iterable[DiscountInfo]:
    for ident, organization, provider, model, fraction, starts, ends in rows:
        yield DiscountInfo(organization, provider, model, fraction, starts, ends, ident)


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
