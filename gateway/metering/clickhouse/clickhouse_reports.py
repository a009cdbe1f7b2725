"""Reports from ClickHouse: the answers to the questions of the rollups, and shares by tag and session.

It answers while reports are configured to use it, its rows are at most a few minutes old, and it has all rows of the
time in question; otherwise the rollups and usage rows of the database do.
"""

from typing import Any

from gateway.clock import HOUR_US, MINUTE_US, Clock
from gateway.errors import Unavailable
from gateway.metering.clickhouse.clickhouse_http import ClickHouse
from gateway.metering.clickhouse.sink import SinkState, UsageSink
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import TAGS, NotCovered, RollupQuestion, Row, StepColumns, bucket_sql
from gateway.metering.rollups.rollup_table import ERROR, OPERATION, SESSION, USUAL_OPERATION, Series

PROGRESS_CACHE_S = 5.0  # how long a known progress and an answer to a ping count
RETRY_AFTER_S = 60.0  # how long after a failure no query goes to ClickHouse
MAX_LAG_US = 5 * MINUTE_US
HOUR_SQL = f"intDiv(at_us, {HOUR_US})"

OWNER = {
    Series.PROJECT: "project",
    Series.PROJECT_MODEL: "project",
    Series.PROJECT_SOURCE: "project",
    Series.KEY: "api_key",
    Series.KEY_MODEL: "api_key",
    Series.KEY_SOURCE: "api_key",
    Series.PROJECT_TAG: "project",
    Series.KEY_TAG: "api_key",
}
NAME = {Series.PROJECT_SOURCE: "source", Series.KEY_SOURCE: "source"}
NAME_OF_TAG = {SESSION: "session", OPERATION: "operation", ERROR: "error"}
TAG_VALUE = "JSONExtractString(tags, {tag:String})"


class ClickHouseAnswers:
    """Answers from the table that `sink` fills."""

    def __init__(self, sink: UsageSink, client: ClickHouse, clock: Clock) -> None:
        self._sink = sink
        self._client = client
        self._clock = clock
        self._asked_at = float("-inf")
        self._state: SinkState | None = None

    def is_usable(self) -> bool:
        """Return whether queries should go to ClickHouse."""
        now = self._clock.monotonic()
        if now >= self._asked_at:
            self._asked_at = now + PROGRESS_CACHE_S
            try:
                self._client.ping()
                self._state = self._sink.state()
            except Unavailable:
                self.leave()
        return self._state is not None and self._state.cursor_us > self._clock.now_us() - MAX_LAG_US

    def leave(self) -> None:
        """Ask nothing for a moment, because ClickHouse failed."""
        self._state = None
        self._asked_at = self._clock.monotonic() + RETRY_AFTER_S

    def begin_us(self) -> int | None:
        """Return the time from which ClickHouse has all rows; None while it is not usable."""
        if self._state is None:
            return None
        return self._state.since_us

    def fetch_rows(self, question: RollupQuestion) -> list[Row]:
        """Return the rows with usage, as the function of the rollups. NotCovered, Unavailable."""
        return self._fetch(question)

    def fetch_top(self, question: RollupQuestion, maximum: int) -> list[Row]:
        """Return the rows with the highest cost, as the function of the rollups. NotCovered, Unavailable."""
        return self._fetch(question, f" ORDER BY {_sum('cost_nusd')} DESC, dimension_name LIMIT {int(maximum)}")

    def _fetch(self, question: RollupQuestion, order: str = "") -> list[Row]:
        rows = []
        wide = len(question.dimensions)
        for line in self._ask(question, order):
            figures = ActivityFigures()
            values = zip(question.figures, line[wide + 3 :], strict=True)
            vars(figures).update({name: int(value) for name, value in values if int(value)})
            value = tuple(map(_read_value, question.dimensions, line[1 : wide + 1]))
            rows.append(Row(int(line[0]), value, figures, int(line[wide + 1]), int(line[wide + 2])))
        return rows

    def fetch_columns(self, question: RollupQuestion) -> list[StepColumns]:
        """Return the same figures as columns, as the function of the rollups. NotCovered, Unavailable."""
        wide = len(question.dimensions)
        steps: dict[int, StepColumns] = {}
        for line in self._ask(question):
            step = int(line[0])
            columns = steps.get(step)
            if columns is None:
                columns = steps[step] = StepColumns(step, [[] for _ in range(wide)], [[] for _ in question.figures])
            for values, value in zip(columns.dimensions, line[1:], strict=False):
                values.append(value)
            for numbers, number in zip(columns.figures, line[wide + 3 :], strict=True):
                numbers.append(int(number))
        return list(steps.values())

    def _ask(self, question: RollupQuestion, order: str = "") -> list[list[Any]]:
        """Return step, dimensions, newest hour, time of delivery and figures."""
        self._check_covered(question.first * HOUR_US)
        name, given = _name_sql(question)
        names = {"owner": OWNER[question.series], "provider": "provider", "name": name}
        listed, values = _values_sql(question, name)
        dimensions = "".join(f", {names[dimension]} AS dimension_{dimension}" for dimension in question.dimensions)
        groups = "".join(f", dimension_{dimension}" for dimension in question.dimensions)
        sums = "".join(f", {_sum(name)}" for name in question.figures)
        owners = ", ".join(f"'{owner.hex()}'" for owner in question.owners)
        sql = (
            f"SELECT {_step_sql(question)} AS step{dimensions}, max({HOUR_SQL}), max(version){sums} "
            f"FROM {self._sink.table} FINAL WHERE {OWNER[question.series]} IN ({owners}) "
            f"AND at_us >= {question.first * HOUR_US} AND at_us < {question.end * HOUR_US}{listed} "
            f"GROUP BY step{groups}{order}"
        )
        return self._client.query(sql, **given, **values)

    def _check_covered(self, start_us: int) -> None:
        begin_us = self.begin_us()
        if begin_us is None or start_us < begin_us:
            raise NotCovered


def _step_sql(question: RollupQuestion) -> str:
    if question.bucket not in ("day", "week") or not question.shifts:
        return bucket_sql(question.bucket, None, HOUR_SQL, _divide)
    steps = [(hour, bucket_sql(question.bucket, minutes, HOUR_SQL, _divide)) for hour, minutes in question.shifts]
    sql = steps[0][1]
    for hour, step in steps[1:]:
        sql = f"if({HOUR_SQL} >= {hour}, {step}, {sql})"
    return sql


def _divide(number: str, divisor: int) -> str:
    return f"intDiv({number}, {divisor})"


def _name_sql(question: RollupQuestion) -> tuple[str, dict[str, str]]:
    """Return the SQL of the dimension `name`, and its parameters."""
    if question.series not in TAGS:
        return NAME.get(question.series, "served"), {}
    if question.tag in NAME_OF_TAG:
        return NAME_OF_TAG[question.tag], {}
    return TAG_VALUE, {"tag": question.tag}


def _values_sql(question: RollupQuestion, name: str) -> tuple[str, dict[str, str]]:
    """Return the condition on the values of a tag, and its parameters."""
    if question.series not in TAGS:
        return "", {}
    if not question.names:
        usual = f" AND {name} != '{USUAL_OPERATION}'" if question.tag == OPERATION else ""
        return f" AND {name} != ''{usual}", {}
    values = {f"value_{number}": value for number, value in enumerate(question.names)}
    return f" AND {name} IN ({', '.join(f'{{{parameter}:String}}' for parameter in values)})", values


def _sum(name: str) -> str:
    """Return the sum of a figure; money may exceed 64 bits."""
    if name.endswith("_nusd"):
        return f"sum(toInt128({name}))"
    return f"sum({name})"


def _read_value(dimension: str, value: Any) -> Any:
    """Return a value as the rollups do: ids as bytes."""
    if dimension == "owner":
        return bytes.fromhex(value)
    return value
