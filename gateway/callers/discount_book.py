"""Discounts: fractions of the list price that organizations' credits are spared, looked up without asking the store.

The most specific one in force counts, alone: an organization's own before those for everyone; among these one for
model and provider, then for the model, then for the provider, then for all. Several never add up.
"""

from collections.abc import Iterable
from typing import Any

from msgspec import Struct

from gateway.control.version import Control
from gateway.errors import GatewayError
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


class DiscountBook:
    """The discounts of all organizations; the table is read again after each change of the control version.

    `accounts/discounts.py` writes the table. `any` is False if there is none at all.
    """

    def __init__(self, database: Database, control: Control) -> None:
        self._database = database
        self._control = control
        self._book: dict[Place, DiscountInfo] | None = None
        self._version = -1
        self.any = True
        control.on_change(self._forget, self._renew)

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

    def _forget(self, version: int) -> None:
        self._book = None
        self.any = True

    def _renew(self, version: int) -> None:
        """Read the table again."""
        try:
            self._read(version)
        except GatewayError:
            return  # the next request that needs it asks again

    def _read(self, version: int) -> dict[Place, DiscountInfo]:
        book = {discount.place: discount for discount in self._database.read(self.read_all)}
        # The result of a read that a change overtook serves its caller, but is not cached.
        if version >= max(self._version, self._control.version):
            self._book = book
            self._version = version
            self.any = bool(book)
        return book

    def read_all(self) -> list[DiscountInfo]:
        """Return the discounts of the table by place, within a read of the database."""
        # Not through the model: a process may have several stores open, and this query must read this one.
        rows = self._database.execute(f"SELECT {COLUMNS} FROM discount ORDER BY organization, provider, model")
        return list(_infos(rows.fetchall()))


def _infos(rows: Iterable[tuple[Any, ...]]) -> Iterable[DiscountInfo]:
    for ident, organization, provider, model, fraction, starts, ends in rows:
        yield DiscountInfo(organization, provider, model, fraction, starts, ends, ident)
