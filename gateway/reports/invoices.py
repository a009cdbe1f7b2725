"""Comparison of a provider's usage export with the usage rows: cost and tokens by day and model.

config/invoices.toml describes the exports that are read, one table each.
"""

import csv
import io
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from decimal import ROUND_HALF_EVEN, Decimal
from functools import partial
from typing import Any, NamedTuple

import orjson
from msgspec import Struct, field

from gateway.catalogue.catalogue import Catalogue
from gateway.clock import DAY_US, SECOND_US, to_iso
from gateway.configuration.settings import CONFIG
from gateway.errors import InvalidRequest
from gateway.metering.models import CREDITS
from gateway.money import NANO, read_decimal
from gateway.store.database import Database
from gateway.store.partitions import id_at

TABLE = CONFIG / "invoices.toml"
MAX_REQUEST_US = 2 * DAY_US
VERSION = re.compile(r"-(\d{4}-\d{2}-\d{2}|\d{8})$")  # exports name dated versions of models
COUNTS = ("input", "cached", "cache_write", "output")
ROWS_SQL = (
    f"SELECT at / {DAY_US}, served, SUM(input), SUM(cache_read), SUM(cache_write), SUM(output), "
    "SUM(cost_nusd + COALESCE(discount_nusd, 0)) FROM usage "
    f"WHERE provider = ? AND mode = {CREDITS} AND request >= ? AND request < ? AND at >= ? AND at < ?"
)


class Sums(Struct):
    """Tokens by kind and cost; None: the export does not have the figure."""

    tokens: dict[str, int] = field(default_factory=dict)
    cost_nusd: int | None = None

    def add(self, name: str, count: int) -> None:
        self.tokens[name] = self.tokens.get(name, 0) + count


class Invoice(NamedTuple):
    """The figures of an export by (day since the epoch, the provider's name of the model; "" = all models).
    `operations`: it lists calls of these only; none: of all."""

    provider: str
    sums: dict[tuple[int, str], Sums]
    operations: tuple[str, ...] = ()


class InvoiceDifference(NamedTuple):
    """A figure that differs: tokens of a kind, or `cost` in nano-dollars."""

    day: str
    model: str
    figure: str
    invoiced: int
    recorded: int


def read_invoice(text: bytes) -> Invoice:
    """Read an export of any known format. InvalidRequest when it is none, or has an unreadable figure."""
    records = list(_records_of(text))
    for entry in tomllib.loads(TABLE.read_text())["export"]:
        if records and all(_find(records[0], entry[member]) is not None for member in ("time", "has")):
            return Invoice(entry["provider"], _sum(entry, records), tuple(entry.get("operations", ())))
    raise InvalidRequest("This is not a usage or cost export that the gateway knows (docs/chargeback.md lists them).")


def compare_invoice(
    database: Database, catalogue: Catalogue, invoice: Invoice, tolerance_nusd: int = 0
) -> list[InvoiceDifference]:
    """Return the figures of an export that differ from the usage rows of calls with the installation's own key, at
    list price. `tolerance_nusd`: smaller differences of a day's cost are left out, since exports are rounded."""
    if not invoice.sums:
        return []
    invoice = invoice._replace(sums=_with_own_names(catalogue, invoice))
    days = [day for day, _ in invoice.sums]
    has_tokens = any(sums.tokens for sums in invoice.sums.values())
    has_costs = any(sums.cost_nusd is not None for sums in invoice.sums.values())
    recorded = _read_rows(database, invoice, min(days), max(days) + 1)
    differences = []
    for key in sorted({*invoice.sums, *recorded}):
        theirs = invoice.sums.get(key, Sums())
        ours = recorded.get(key, Sums())
        day = to_iso(key[0] * DAY_US)[:10]
        for name in COUNTS if has_tokens else ():
            pair = theirs.tokens.get(name, 0), ours.tokens.get(name, 0)
            if pair[0] != pair[1]:
                differences.append(InvoiceDifference(day, key[1], name, *pair))
        if has_costs:
            costs = theirs.cost_nusd or 0, ours.cost_nusd or 0
            if abs(costs[0] - costs[1]) > tolerance_nusd:
                differences.append(InvoiceDifference(day, key[1], "cost", *costs))
    return differences


def _read_rows(database: Database, invoice: Invoice, first: int, end: int) -> dict[tuple[int, str], Sums]:
    params = (
        invoice.provider,
        id_at(first * DAY_US - MAX_REQUEST_US),
        id_at(end * DAY_US),
        first * DAY_US,
        end * DAY_US,
    )
    listed = ""
    if invoice.operations:
        listed = f" AND operation IN ({', '.join('?' * len(invoice.operations))})"
    sql = f"{ROWS_SQL}{listed} GROUP BY 1, 2"
    recorded: dict[tuple[int, str], Sums] = {}
    by_model = any(model for _, model in invoice.sums)
    for day, served, *counts, cost in database.report(partial(database.fetch, sql, (*params, *invoice.operations))):
        model = VERSION.sub("", served) if by_model else ""
        sums = recorded.setdefault((int(day), model), Sums(cost_nusd=0))
        for name, count in zip(COUNTS, counts, strict=True):
            sums.add(name, int(count))
        sums.cost_nusd = (sums.cost_nusd or 0) + int(cost)
    return recorded


def _with_own_names(catalogue: Catalogue, invoice: Invoice) -> dict[tuple[int, str], Sums]:
    """Return the figures by the gateway's names of models; versions of one model are added up."""
    named: dict[tuple[int, str], Sums] = {}
    for (day, name), sums in invoice.sums.items():
        mapping = catalogue.served_as(invoice.provider, name)
        model = mapping.model if mapping else name
        known = named.setdefault((day, VERSION.sub("", model)), Sums())
        for kind, count in sums.tokens.items():
            known.add(kind, count)
        if sums.cost_nusd is not None:
            known.cost_nusd = (known.cost_nusd or 0) + sums.cost_nusd
    return named


def _records_of(text: bytes) -> Iterator[Mapping[str, Any]]:
    """Yield the rows of a CSV file, or the items of a JSON file; results of time buckets with the bucket's members."""
    stripped = text.lstrip(b"\xef\xbb\xbf \t\r\n")
    if not stripped.startswith((b"{", b"[")):
        yield from csv.DictReader(io.StringIO(stripped.decode("utf-8", "replace")))
        return
    try:
        document = orjson.loads(stripped)
    except orjson.JSONDecodeError as error:
        raise InvalidRequest("The file is neither CSV nor JSON.") from error
    pages: Sequence[Any] = document if isinstance(document, list) else [document]
    for page in pages:
        buckets = page.get("data", [page]) if isinstance(page, dict) else ()
        for bucket in buckets:
            if isinstance(bucket, dict):
                for result in bucket.get("results", [{}]):
                    yield {**{name: value for name, value in bucket.items() if name != "results"}, **result}


def _sum(entry: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> dict[tuple[int, str], Sums]:
    summed: dict[tuple[int, str], Sums] = {}
    for record in records:
        model = str(_find(record, entry.get("model", "")) or "")
        sums = summed.setdefault((_day_of(_find(record, entry["time"])), model), Sums())
        for name, fields in entry.get("tokens", {}).items():
            for member in fields:
                sign = -1 if member.startswith("-") else 1
                sums.add(name, sign * int(_number(_find(record, member.lstrip("-")))))
        if "cost" in entry:
            nusd = _number(_find(record, entry["cost"])) * NANO / entry.get("per_usd", 1)
            sums.cost_nusd = (sums.cost_nusd or 0) + int(nusd.to_integral_value(ROUND_HALF_EVEN))
    return summed


def _find(record: Any, path: str) -> Any:
    """Return the member at a path with dots; None without one."""
    for name in path.split("."):
        if not isinstance(record, Mapping):
            return None
        record = record.get(name)
    return record


def _number(value: Any) -> Decimal:
    try:
        return read_decimal(str(value or 0))
    except ValueError:
        raise InvalidRequest(f"The export has {value!r} where a number should be.") from None


def _day_of(value: Any) -> int:
    """Return the day (UTC, since the epoch) of seconds since the epoch, or of an ISO date."""
    try:
        if isinstance(value, int | float) or (str(value).isascii() and str(value).isdigit()):
            return int(value) * SECOND_US // DAY_US
        moment = datetime.fromisoformat(str(value).replace("Z", "+00:00"))
    except ValueError:
        raise InvalidRequest(f"The export has {value!r} where a date should be.") from None
    return int(moment.replace(tzinfo=moment.tzinfo or UTC).timestamp()) * SECOND_US // DAY_US
