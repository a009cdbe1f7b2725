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
    """The sum of one model or API key."""

    name: str
    totals: Totals


def total_of(rows: Iterable[dict[str, Any]]) -> Totals:
    """Return the sum of rows."""
    total = Totals()
    for row in rows:
        total.add(Totals.of(row))
    return total


def breakdown_of(rows: Iterable[dict[str, Any]], member: str) -> list[Part]:
    """Return the sums by id over the lists `member` of all rows, the most expensive first."""
    parts: dict[str, Part] = {}
    for row in rows:
        listed = row.get(member)
        if not isinstance(listed, list):
            continue
        for item in listed:
            part = parts.setdefault(str(item.get("id")), Part(_name_of(item), Totals()))
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
