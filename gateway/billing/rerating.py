"""Re-rating: prices the usage of a period again, with past or current prices, and reports the difference."""

import dataclasses
from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from msgspec import Struct, field

from gateway.billing.usage_rows import PRICE_KEY
from gateway.callers.discount_book import DiscountBook
from gateway.catalogue.catalogue import Catalogue
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import cost_of, discounted, prices_at
from gateway.catalogue.unlisted_entries import PROVISIONAL, fine_tuned
from gateway.limits.ledger import ADJUSTMENT, LedgerBook
from gateway.metering.models import CACHED, CREDITS, SETTLEMENT
from gateway.metering.usage_table import COLUMNS, UsageRecord, record_of_row
from gateway.neutral.usage import Usage
from gateway.store.database import Database

PAGE = 500
FREE = "nothing was billed"
UNKNOWN = "not in the catalogue"
REPRICED = "priced by another version"
KEYED = "size not recorded"
INTERRUPTED = "interrupted"
AFTER = f"""
SELECT {COLUMNS} FROM usage WHERE at >= ? AND at < ? AND kind = {SETTLEMENT} AND (request, attempt) > (?, ?)
ORDER BY request, attempt LIMIT {PAGE}
"""


class RerateGroup(NamedTuple):
    """The group of a report line. `organization` is a prefixed id; `billed`: the organization's credits paid."""

    organization: str
    mapping: str
    billed: bool


class Line(Struct):
    """Sums of one group: `recorded_nusd` was billed for its rows, `rated_nusd` is their cost under the new prices."""

    rows: int = 0
    recorded_nusd: int = 0
    rated_nusd: int = 0

    @property
    def difference_nusd(self) -> int:
        return self.rated_nusd - self.recorded_nusd


class Report(Struct):
    """Lines by group. `left` counts the rows that were not priced again, by reason."""

    lines: dict[RerateGroup, Line] = field(default_factory=dict)
    left: dict[str, int] = field(default_factory=dict)

    def adjustments(self) -> dict[str, int]:
        """Return organization → nano-dollars that it was billed too little (positive) or too much (negative), without
        zeros."""
        sums: dict[str, int] = {}
        for group, line in self.lines.items():
            if group.billed:
                sums[group.organization] = sums.get(group.organization, 0) + line.difference_nusd
        return {organization: nusd for organization, nusd in sorted(sums.items()) if nusd}


def rerate(
    database: Database,
    catalogue: Catalogue,
    from_us: int,
    to_us: int,
    *,
    now_us: int | None = None,
    discounts: DiscountBook | None = None,
) -> Report:
    """Price the attempts that began in [from_us, to_us) again; writes nothing.

    `now_us` None applies the prices and discounts of the time of each row; only rows whose price version the catalogue
    still has are priced. Otherwise the price list and the `discounts` in force at `now_us` apply, with the hour of the
    day at which the row was billed; `discounts` None keeps the billed discounts.
    """
    report = Report()
    mappings = {mapping.key: mapping for model in catalogue.models.values() for mapping in model.mappings}
    for row in _rows(database, from_us, to_us):
        details = row.details
        key = f"{row.provider}/{row.served}" + (f":{details['region']}" if "region" in details else "")
        mapping = mappings.get(key) or _unlisted(catalogue, row)
        reason = _reason(row, details, mapping, now_us)
        if mapping is None or reason:
            report.left[reason] = report.left.get(reason, 0) + 1
            continue
        if now_us is not None:
            current = prices_at(mapping.prices, now_us)
            mapping = dataclasses.replace(mapping, prices=(current,) if current else ())
        line = report.lines.setdefault(RerateGroup(f"org_{row.organization.hex()}", key, row.mode == CREDITS), Line())
        line.rows += 1
        line.recorded_nusd += row.cost_nusd
        charge = cost_of(usage_of_row(row, details), mapping, row.at, details.get("tier", ""))
        ppm = row.discount_ppm or 0
        if now_us is not None and discounts is not None:
            ppm = _discount_at(discounts, row, now_us)
        line.rated_nusd += discounted(charge, ppm).total
    return report


def post(ledger: LedgerBook, report: Report, reference: str) -> dict[str, int]:
    """Post the difference of each organization as one adjustment, once for each `reference`.

    Returns organization → amount posted by this call; a positive amount returns credits. Usage rows keep the billed
    amounts: a correction is a separate entry.
    """
    posted = {}
    for organization, nusd in report.adjustments().items():
        if ledger.post(organization, ADJUSTMENT, -nusd, f"rerate:{organization}:{reference}", "usage priced again"):
            posted[organization] = -nusd
    return posted


def _discount_at(discounts: DiscountBook, row: UsageRecord, at_us: int) -> int:
    """Return the discount in millionths. Calls through an organization's provider key are not paid from credits and
    have none."""
    if row.mode != CREDITS:
        return 0
    return discounts.fraction(f"org_{row.organization.hex()}", row.provider, row.served, at_us)


def _reason(row: UsageRecord, details: dict[str, Any], mapping: Mapping | None, now_us: int | None) -> str:
    """Return why a row is not priced again; "" if it can be."""
    if row.flags & CACHED or row.finish == INTERRUPTED or (not row.cost_nusd and row.error):
        if not row.cost_nusd:
            return FREE
        return INTERRUPTED
    if mapping is None or mapping.price_version == PROVISIONAL:
        return UNKNOWN
    # A provisional price gives way to the first one that the catalogue has.
    settled = row.price_version != PROVISIONAL
    if now_us is None and settled and mapping.price_version != row.price_version:
        return REPRICED
    units = details.get("units", {})
    if ("images" in units or "video_ms" in units) and PRICE_KEY not in details:
        return KEYED
    return ""


def _unlisted(catalogue: Catalogue, row: UsageRecord) -> Mapping | None:
    """Return the entry of a model under the provider's own name, as callers use it before the catalogue lists it."""
    return catalogue.served_as(row.provider, row.served) or fine_tuned(catalogue, row.provider, row.served)


def usage_of_row(row: UsageRecord, details: dict[str, Any]) -> Usage:
    """Return the counts as they were billed. The cache-write column is the sum of both kinds of cache writes."""
    units = details.get("units", {})
    return Usage(
        input=row.input,
        cache_read=row.cache_read,
        cache_write=row.cache_write - units.get("cache_write_1h", 0),
        output=row.output,
        reasoning=row.reasoning,
        price_key=details.get(PRICE_KEY, ""),
        **units,
    )


def _page(database: Database, params: tuple[Any, ...]) -> list[tuple[Any, ...]]:
    return database.execute(AFTER, params).fetchall()


def _rows(database: Database, from_us: int, to_us: int) -> Iterator[UsageRecord]:
    """Yield rows page by page in the order of the primary key, so that pages stay short and no row is read twice."""
    last = (b"", 0)
    while True:
        page = database.report(partial(_page, database, (from_us, to_us, *last)))
        for values in page:
            yield record_of_row(values)
        if len(page) < PAGE:
            return
        end = record_of_row(page[-1])
        last = (end.request, end.attempt)
