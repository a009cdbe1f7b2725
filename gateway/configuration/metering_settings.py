"""The settings of usage rows: how long they are kept, and their delivery to ClickHouse."""

from dataclasses import dataclass, field
from typing import Annotated, Literal

from gateway.configuration.value_parsing import NumberRange


@dataclass(frozen=True, slots=True)
class Metering:
    drain_s: float
    log_days: int
    usage_days: int


@dataclass(frozen=True, slots=True)
class Analytics:
    clickhouse_url: str = field(repr=False)
    table: str
    batch_rows: Annotated[int, NumberRange(100, 100_000)]
    backlog_days: Annotated[int, NumberRange(0, 400)]
    reports: Literal["database", "clickhouse"]
