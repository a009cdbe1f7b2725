"""Sums over the rows of a usage answer."""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self


@dataclass(slots=True)
class Totals:
    """Requests, errors, tokens, and cost in USD."""

    requests: float = 0
    errors: float = 0
    tokens: float = 0
    input: float = 0
    output: float = 0
    cost: float = 0.0

    @classmethod
    def of(cls, row: dict[str, Any]) -> Self:
        """Return the figures of a row; missing ones are 0."""
        return cls(
            _number(row.get("requestCount")),
            _number(row.get("errorCount")),
            _number(row.get("totalTokens")),
            _number(row.get("inputTokens")),
            _number(row.get("outputTokens")),
            _number(row.get("cost")),
        )

    def add(self, other: "Totals") -> None:
        self.requests += other.requests
        self.errors += other.errors
        self.tokens += other.tokens
        self.input += other.input
        self.output += other.output
        self.cost += other.cost


@dataclass(slots=True)
class Part:
    """The sum of one API key, or of one model at one provider."""

    id: str
    name: str
    totals: Totals


def total_of(rows: Iterable[dict[str, Any]]) -> Totals:
    """Return the sum of rows."""
    total = Totals()
    for row in rows:
        total.add(Totals.of(row))
    return total


def merged_rows(rows: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return one row for each date, in order: the rows of several projects are summed, their lists joined."""
    merged: dict[str, dict[str, Any]] = {}
    for row in rows:
        date = str(row.get("date", ""))
        former = merged.get(date)
        merged[date] = dict(row) if former is None else {name: _joined(former, row, name) for name in former | row}
    return [merged[date] for date in sorted(merged)]


def _joined(one: dict[str, Any], other: dict[str, Any], name: str) -> Any:
    """Return the sum of a member of two rows if it is a number, both lists, or the first value."""
    values = [row[name] for row in (one, other) if name in row]
    if all(isinstance(value, int | float) for value in values):
        return sum(values)
    if all(isinstance(value, list) for value in values):
        return [item for value in values for item in value]
    return values[0]


def breakdown_of(rows: Iterable[dict[str, Any]], member: str) -> list[Part]:
    """Return the sums by id and provider over the lists `member` of all rows, the most expensive first."""
    parts: dict[tuple[str, str], Part] = {}
    for row in rows:
        listed = row.get(member)
        if not isinstance(listed, list):
            continue
        for item in listed:
            ident = str(item.get("id"))
            part = parts.setdefault((ident, str(item.get("provider"))), Part(ident, _name_of(item), Totals()))
            part.totals.add(Totals.of(item))
    return sorted(parts.values(), key=_by_cost)


def _name_of(item: dict[str, Any]) -> str:
    """Return a key's description, or a model's id with its provider."""
    if item.get("description"):
        return str(item["description"])
    name = str(item.get("id", ""))
    if item.get("provider"):
        return f"{name} ({item['provider']})"
    return name


def _by_cost(part: Part) -> tuple[float, str]:
    return -part.totals.cost, part.name


def _number(value: Any) -> float:
    if isinstance(value, int | float):
        return value
    return 0
