"""The figures of usage reports, and the SQL that sums each from usage rows."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from gateway.metering.models import BYOK, CACHED, SETTLEMENT
from gateway.neutral.units import UNITS, Figure
from gateway.store.database import Database

# Errors that the caller caused.
CLIENT_CODES = ("client_error", "content_policy_violation", "request_cancelled")


def _members(pairs: Iterable[tuple[Figure | None, str]]) -> dict[str, tuple[str, ...]]:
    """Return the names of each figure, without repetitions."""
    members: dict[str, dict[str, None]] = {}
    for figure, name in pairs:
        if figure is not None:
            members.setdefault(figure.column, {})[name] = None
    return {column: tuple(names) for column, names in members.items()}


# Figure → the counts and cost components in a row's `extra` that belong to it.
EXTRA_UNITS = [unit for unit in UNITS if not unit.in_columns]
EXTRA_COUNTS = _members((figure, unit.count) for unit in EXTRA_UNITS for figure in unit.figures)
EXTRA_COSTS = _members((unit.cost, unit.component) for unit in EXTRA_UNITS)


@dataclass(init=False)
class ActivityFigures:
    """Sums of usage. `_nusd` are nano-dollars, `_ms` milliseconds of audio input and generated video. `byok_` is the
    part served with the caller's own provider keys. The storage fee and discount savings are not part of the cost.

    The figures of units other than text come from UNITS. A report creates thousands of objects with few figures each,
    so only figures that were set are stored; the others are 0.
    """

    requests: int = 0
    errors: int = 0
    client_errors: int = 0
    cached_requests: int = 0
    byok_requests: int = 0
    input_tokens: int = 0
    output_tokens: int = 0
    cached_tokens: int = 0
    cache_write_tokens: int = 0
    reasoning_tokens: int = 0
    cost_nusd: int = 0
    byok_nusd: int = 0
    storage_nusd: int = 0
    byok_storage_nusd: int = 0
    input_nusd: int = 0
    output_nusd: int = 0
    cached_nusd: int = 0
    cache_write_nusd: int = 0
    discount_nusd: int = 0

    def add(self, other: "ActivityFigures") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


# Figures without a column in usage rows.
RARE: tuple[str, ...] = tuple(name for name in (*EXTRA_COUNTS, *EXTRA_COSTS) if not hasattr(ActivityFigures, name))
for _name in RARE:
    setattr(ActivityFigures, _name, 0)
FIGURES: tuple[str, ...] = (*(field.name for field in fields(ActivityFigures)), *RARE)
# Figures that the statistics do not keep: they are summed from usage rows alone (cross_sums.py).
ROW_FIGURES = {"tool_answers": "CASE WHEN u.finish = 'tool_calls' THEN u.last ELSE 0 END"}
for _name in ROW_FIGURES:
    setattr(ActivityFigures, _name, 0)
CODES = ", ".join(f"'{code}'" for code in CLIENT_CODES)
# The expression that is summed for each figure; `last` is 1 for the row that represents its request, else 0.
SUM_EXPRESSIONS = {
    "requests": "u.last",
    "errors": "CASE WHEN u.error IS NOT NULL THEN u.last ELSE 0 END",
    "client_errors": f"CASE WHEN u.error IN ({CODES}) THEN u.last ELSE 0 END",
    "cached_requests": f"CASE WHEN (u.flags & {CACHED}) <> 0 THEN u.last ELSE 0 END",
    "byok_requests": f"CASE WHEN u.mode = {BYOK} THEN u.last ELSE 0 END",
}
SUMMED = {
    "input_tokens": "CAST(u.input AS BIGINT) + u.cache_read + u.cache_write",
    "output_tokens": "u.output",
    "cached_tokens": "u.cache_read",
    "cache_write_tokens": "u.cache_write",
    "reasoning_tokens": "u.reasoning",
    "cost_nusd": "u.cost_nusd",
    "byok_nusd": f"CASE WHEN u.mode = {BYOK} THEN u.cost_nusd ELSE 0 END",
    "storage_nusd": "COALESCE(u.storage_nusd, 0)",
    "byok_storage_nusd": f"CASE WHEN u.mode = {BYOK} THEN COALESCE(u.storage_nusd, 0) ELSE 0 END",
    "input_nusd": "u.input_nusd",
    "output_nusd": "u.output_nusd",
    "cached_nusd": "u.cached_nusd",
    "cache_write_nusd": "u.cache_write_nusd",
    "discount_nusd": "COALESCE(u.discount_nusd, 0)",
}
# Figures from columns of a row, and figures to which `extra` contributes.
COLUMNAR: tuple[str, ...] = tuple(name for name in FIGURES if name in SUM_EXPRESSIONS or name in SUMMED)
EXTRA_FIGURES: tuple[str, ...] = tuple(name for name in FIGURES if name in EXTRA_COUNTS or name in EXTRA_COSTS)
JSON_MEMBER = {
    "sqlite": "json_extract(u.extra, '$.{0}.{1}')",
    "postgresql": "CAST(CAST(u.extra AS json) #>> '{{{0},{1}}}' AS BIGINT)",
}
# A row represents its request when no later attempt was recorded before `horizon`. For requests before `purged` (some
# of their rows were removed) a later attempt alone does not: the request was counted with the removed rows.
LAST = f"""
CASE WHEN w.kind = {SETTLEMENT} AND NOT EXISTS (SELECT 1 FROM usage v WHERE v.request = w.request
    AND v.attempt > w.attempt AND v.posted_at < ?) AND (w.attempt = 0 OR w.request >= ? OR EXISTS (
    SELECT 1 FROM usage f WHERE f.request = w.request AND f.attempt < w.attempt AND f.posted_at < ?))
THEN 1 ELSE 0 END
"""


def rows_sql(condition: str) -> str:
    """Return SQL for usage rows `u` with `last`, of the rows `w` that meet a condition. Params: `last_params`, then
    those of the condition."""
    return f"(SELECT w.*, {LAST} AS last FROM usage w WHERE {condition}) u"


def last_params(horizon_us: int, purged: bytes) -> tuple[int, bytes, int]:
    return horizon_us, purged, horizon_us


def sums_sql(database: Database, names: Iterable[str] = FIGURES) -> str:
    """Return SQL for the sums of figures over `u`, separated by commas."""
    inside = JSON_MEMBER[database.kind]
    return ", ".join(f"SUM({_summed(name, inside)})" for name in names)


def figures_sql(database: Database) -> str:
    """Return SQL for the figures of each row of `u`, in the order of FIGURES."""
    inside = JSON_MEMBER[database.kind]
    return ", ".join(_summed(name, inside) for name in FIGURES)


def column_sums_sql(names: Iterable[str] = COLUMNAR) -> str:
    """Return SQL for the sums of figures from columns."""
    return ", ".join(f"SUM({SUM_EXPRESSIONS.get(name) or SUMMED[name]})" for name in names)


def kept_sums_sql(database: Database) -> str:
    """Return SQL for what `extra` adds to the figures EXTRA_FIGURES, over rows that have one."""
    inside = JSON_MEMBER[database.kind]
    return ", ".join(f"SUM({_kept(name, inside)})" for name in EXTRA_FIGURES)


def _summed(name: str, inside: str) -> str:
    if name in SUM_EXPRESSIONS or name in ROW_FIGURES:
        return SUM_EXPRESSIONS.get(name) or ROW_FIGURES[name]
    column = SUMMED.get(name, "0")
    removed = _kept(name, inside)
    if removed:
        return f"{column} + CASE WHEN u.extra IS NULL THEN 0 ELSE {removed} END"
    return column


def _kept(name: str, inside: str) -> str:
    places = [("units", count) for count in EXTRA_COUNTS.get(name, ())]
    places += [("nusd", component) for component in EXTRA_COSTS.get(name, ())]
    return " + ".join(f"COALESCE({inside.format(*place)}, 0)" for place in places)
