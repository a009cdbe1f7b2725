"""Charges of a month in the format FOCUS 1.2 (https://focus.finops.org/focus-specification/v1-2/): one row a charge.

The sum of `BilledCost` is what the ledger took from the organization's credits in the month, to the nano-dollar: usage
and storage of its hours, and adjustments. Rows are read page by page, each page in a short read of its own.

The specification requires times in whole seconds, and a quantity, unit and SKU for each charge of usage. A SKU price id
stays the same when the price changes, so it is the SKU's own; `x_PriceVersion` has the version of the price.
"""

import calendar
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from functools import lru_cache, partial
from typing import Any, NamedTuple

from msgspec import Struct

from gateway.accounts.keys import list_keys
from gateway.accounts.member_attributes import AttributePeriod, read_periods
from gateway.accounts.members import list_members
from gateway.accounts.organizations import find_organization
from gateway.accounts.projects import list_projects
from gateway.clock import DAY_US, HOUR_US, SECOND_US, to_iso
from gateway.errors import InvalidRequest
from gateway.limits.ledger import LATE_PREFIX
from gateway.metering.models import CREDITS
from gateway.metering.usage_table import raw_id
from gateway.money import format_usd
from gateway.store.database import Database
from gateway.store.partitions import id_at

PAGE = 500
CHARGES_PER_TURN = 40  # charges yielded at once: the event loop needs about a millisecond to write them
# How long after a request arrived it may still make attempts.
MAX_REQUEST_US = 2 * DAY_US
MONTH = re.compile(r"20\d\d-(0[1-9]|1[0-2])", re.ASCII)
ISSUER = "LLM Gateway"
STORAGE = "payload-storage"
# Kind of removed spending → description and SKU.
REMOVED = {
    "credits": ("Usage whose rows were removed", "removed-usage"),
    "storage": ("Storage of retained payloads", STORAGE),
}
# The mandatory columns of the specification, its other columns, and columns of this product: they begin with x_, as the
# specification requires.
COLUMNS = (
    *("BilledCost", "BillingAccountId", "BillingAccountName", "BillingCurrency", "BillingPeriodEnd"),
    *("BillingPeriodStart", "ChargeCategory", "ChargeClass", "ChargeDescription", "ChargePeriodEnd"),
    *("ChargePeriodStart", "ContractedCost", "EffectiveCost", "InvoiceIssuerName", "ListCost", "PricingQuantity"),
    *("PricingUnit", "ProviderName", "PublisherName", "ServiceCategory", "ServiceName"),
    *("BillingAccountType", "ChargeFrequency", "ConsumedQuantity", "ConsumedUnit", "ServiceSubcategory", "SkuId"),
    *("SkuPriceId", "SubAccountId", "SubAccountName", "SubAccountType", "Tags"),
    *("x_ApiKeyId", "x_ApiKeyName", "x_MemberId", "x_Session", "x_Operation", "x_App", "x_OwnKeyCost", "x_RequestId"),
    "x_PriceVersion",
    *("x_CostCenter", "x_Department", "x_Division", "x_Organization"),
)
# Columns with an attribute of the person at the time of the charge.
ATTRIBUTE_COLUMNS = {
    "x_CostCenter": "costCenter",
    "x_Department": "department",
    "x_Division": "division",
    "x_Organization": "organization",
}
REMOVED_SQL = "SELECT kind, hour, nusd FROM removed_spend WHERE owner = ? AND hour >= ? AND hour < ? AND kind IN (?, ?)"
ADJUSTED_SQL = (
    "SELECT id, at, amount_nusd, note FROM ledger WHERE organization = ? AND kind = 'adjustment' "
    f"AND at >= ? AND at < ? AND substr(ref, 1, {len(LATE_PREFIX)}) <> '{LATE_PREFIX}' ORDER BY at, id"
)

Row = dict[str, Any]


class _Usage(NamedTuple):
    """The columns of a usage row that its charges need."""

    request: bytes
    attempt: int
    kind: int
    at: int
    cost_nusd: int
    discount_nusd: int | None
    storage_nusd: int | None
    input: int
    cache_read: int
    cache_write: int
    output: int
    mode: int
    api_key: bytes
    member: bytes
    operation: str
    provider: str
    served: str
    source: str
    price_version: str
    label: str | None
    session: str | None
    tags: str | None


PAGE_SQL = (
    f"SELECT {', '.join(_Usage._fields)} FROM usage WHERE project = ? AND request >= ? AND request < ? "
    "AND (request, attempt, kind) > (?, ?, ?) ORDER BY request, attempt, kind LIMIT ?"
)


class Month(Struct, frozen=True):
    """A calendar month in UTC, as microseconds."""

    start_us: int
    end_us: int

    @property
    def name(self) -> str:
        return to_iso(self.start_us)[:7]


def read_month(text: str) -> Month:
    """Return the month written as 2026-11. InvalidRequest."""
    if not MONTH.fullmatch(text):
        raise InvalidRequest("Write the month as 2026-11.", param="month")
    year, month = map(int, text.split("-"))
    days = calendar.monthrange(year, month)[1]
    start_us = int(datetime(year, month, 1, tzinfo=UTC).timestamp()) * SECOND_US
    return Month(start_us, start_us + days * DAY_US)


def read_charges(database: Database, organization_id: str, month: Month) -> Iterator[list[Row]]:
    """Yield the charges of an organization in small pieces."""
    organization = find_organization(database, organization_id)
    common: Row = {
        "BillingAccountId": organization_id,
        "BillingAccountName": organization.name,
        "BillingAccountType": "Organization",
        "BillingCurrency": "USD",
        "BillingPeriodStart": _to_second(month.start_us),
        "BillingPeriodEnd": _to_second(month.end_us),
        "ChargeClass": None,
        "ChargeFrequency": "Usage-Based",
        "InvoiceIssuerName": ISSUER,
        "ServiceCategory": "AI and Machine Learning",
        "ServiceSubcategory": "Generative AI",
    }
    # With service accounts, and people who were erased: their departments are still charged.
    everyone = list_members(database, organization_id, service_accounts=True)
    periods = read_periods(database, [member.id for member in everyone])
    for project in list_projects(database, [organization_id]):
        names = {key.id: key.description for key in list_keys(database, project_ids=[project.id], deleted=True)}
        place = {"SubAccountId": project.id, "SubAccountName": project.name, "SubAccountType": "Project"}
        shared = {**common, **place}
        for rows in _read_usage(database, project.id, month):
            for start in range(0, len(rows), CHARGES_PER_TURN):
                yield [
                    charge
                    for row in rows[start : start + CHARGES_PER_TURN]
                    for charge in _charges_of(row, {**shared, **_attributes_of(row, periods)}, names)
                ]
    yield _read_removed(database, organization_id, month, common)
    yield _read_adjustments(database, organization_id, month, common)


def _read_usage(database: Database, project_id: str, month: Month) -> Iterator[list[_Usage]]:
    owner = raw_id(project_id)
    low = id_at(month.start_us - MAX_REQUEST_US)
    high = id_at(month.end_us)
    place: tuple[bytes, int, int] = (low, -1, -1)
    while True:
        params = (owner, place[0], high, *place, PAGE)
        page = [_Usage(*row) for row in database.view(partial(database.fetch, PAGE_SQL, params))]
        yield [row for row in page if month.start_us <= row.at < month.end_us]
        if len(page) < PAGE:
            return
        place = (bytes(page[-1].request), page[-1].attempt, page[-1].kind)


def _attributes_of(row: _Usage, periods: Mapping[str, Sequence[AttributePeriod]]) -> Row:
    """Return the attributes of the person of a row, as they were in its hour."""
    held = periods.get(f"member_{bytes(row.member).hex()}", ())
    hour = row.at // HOUR_US
    values = {one.name: one.value for one in held if one.since <= hour and (one.until is None or hour < one.until)}
    return {column: values.get(name) for column, name in ATTRIBUTE_COLUMNS.items()}


def _charges_of(row: _Usage, common: Row, names: dict[str, str]) -> Iterator[Row]:
    """Yield the charge of an upstream call, and that for storing its payload."""
    saved = row.discount_nusd or 0
    if not row.cost_nusd and not saved and not row.storage_nusd:
        return
    key_id = f"key_{bytes(row.api_key).hex()}"
    shared = {
        **common,
        "ChargeCategory": "Usage",
        **_period(row.at // HOUR_US),
        "Tags": row.tags,
        "x_ApiKeyId": key_id,
        "x_ApiKeyName": names.get(key_id),
        "x_MemberId": f"member_{bytes(row.member).hex()}",
        "x_Session": row.session,
        "x_Operation": row.operation,
        "x_App": row.source or None,
        "x_RequestId": row.label or bytes(row.request).hex(),
    }
    if row.cost_nusd or saved:
        tokens = row.input + row.cache_read + row.cache_write + row.output
        billed_nusd = row.cost_nusd if row.mode == CREDITS else 0
        yield {
            **shared,
            **_costs(billed_nusd, saved if row.mode == CREDITS else 0),
            **_quantity(tokens, "Tokens"),
            "ChargeDescription": f"{row.operation} with {row.provider}/{row.served}",
            "ProviderName": row.provider,
            "PublisherName": row.provider,
            "ServiceName": row.served,
            **_sku(f"{row.provider}/{row.served}"),
            "x_OwnKeyCost": format_usd(row.cost_nusd - billed_nusd),
            "x_PriceVersion": row.price_version or None,
        }
    if row.storage_nusd:
        stored = _of_gateway("Storage of a retained payload")
        yield {**shared, **stored, **_costs(row.storage_nusd), **_quantity(1, "Requests"), **_sku(STORAGE)}


def _read_removed(database: Database, organization_id: str, month: Month, common: Row) -> list[Row]:
    """Return a charge for each hour of which usage rows were removed."""
    hours = (month.start_us // HOUR_US, month.end_us // HOUR_US)
    params = (raw_id(organization_id).hex(), *hours, *REMOVED)
    rows = database.report(partial(database.fetch, REMOVED_SQL, params))
    return [
        {
            **common,
            **_of_gateway(REMOVED[kind][0]),
            **_costs(int(nusd)),
            **_quantity(1, "Hours"),
            **_sku(REMOVED[kind][1]),
            "ChargeCategory": "Usage",
            **_period(hour),
        }
        for kind, hour, nusd in sorted(rows)
        if nusd
    ]


def _read_adjustments(database: Database, organization_id: str, month: Month, common: Row) -> list[Row]:
    """Return a charge for each adjustment of the ledger, for example after re-rating."""
    params = (organization_id, month.start_us, month.end_us)
    rows: Sequence[Any] = database.report(partial(database.fetch, ADJUSTED_SQL, params))
    return [
        {
            **common,
            **_of_gateway(note or "Adjustment of credits"),
            **_costs(-int(nusd)),
            "ChargeCategory": "Adjustment",
            "ChargeFrequency": "One-Time",
            **_period(at // HOUR_US),
            "x_RequestId": ident,
        }
        for ident, at, nusd, note in rows
    ]


def _of_gateway(description: str) -> Row:
    """Return the columns of a charge that no provider of models caused."""
    return {
        "ChargeDescription": description,
        "ProviderName": ISSUER,
        "PublisherName": ISSUER,
        "ServiceName": ISSUER,
        "x_OwnKeyCost": "0",
    }


def _costs(billed_nusd: int, saved_nusd: int = 0) -> Row:
    billed = format_usd(billed_nusd)
    listed = format_usd(billed_nusd + saved_nusd)
    return {"BilledCost": billed, "ContractedCost": billed, "EffectiveCost": billed, "ListCost": listed}


def _quantity(count: int, unit: str) -> Row:
    return {"PricingQuantity": count, "PricingUnit": unit, "ConsumedQuantity": count, "ConsumedUnit": unit}


def _sku(name: str) -> Row:
    return {"SkuId": name, "SkuPriceId": name}


@lru_cache(maxsize=1000)
def _period(hour: int) -> Row:
    """Return the columns of the hour of a charge."""
    return {"ChargePeriodStart": _to_second(hour * HOUR_US), "ChargePeriodEnd": _to_second((hour + 1) * HOUR_US)}


def _to_second(at_us: int) -> str:
    return f"{to_iso(at_us)[:-5]}Z"
