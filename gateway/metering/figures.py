"""The figures of usage reports, and the SQL that sums each from usage rows."""

from collections.abc import Iterable
from dataclasses import dataclass, fields

from gateway.metering.models import BYOK, CACHED, SETTLEMENT
from gateway.store.database import Database

# Errors that the caller caused.
CLIENT_CODES = ("client_error", "content_policy_violation", "request_cancelled", "client_disconnect")
# Figure → the counts and cost components (in a row's `extra`) that belong to it and have no column.
UNITS = {
    "input_tokens": ("input_audio", "input_audio_cached", "input_image"),
    "output_tokens": ("output_audio", "output_image"),
    "cached_tokens": ("input_audio_cached",),
    "searches": ("searches", "file_searches"),
    "pages": ("pages",),
    "images": ("images",),
    "characters": ("characters",),
    "audio_ms": ("audio_ms",),
    "video_ms": ("video_ms",),
    "code_sessions": ("code_sessions",),
}
PARTS = {
    "request_nusd": ("request",),
    "image_input_nusd": ("image_input",),
    "image_output_nusd": ("image_output", "images"),
    "audio_input_nusd": ("audio_input", "audio_cached_input", "audio_seconds"),
    "audio_output_nusd": ("audio_output",),
    "video_output_nusd": ("video_output",),
    "search_nusd": ("web_search", "file_search"),
    "page_nusd": ("ocr",),
    "character_nusd": ("characters",),
    "code_nusd": ("code",),
}


@dataclass(init=False)
class ActivityFigures:
    """Sums of usage. `_nusd` are nano-dollars, `_ms` milliseconds of audio input and generated video. `byok_` is the
    part served with the caller's own provider keys. The storage fee and discount savings are not part of the cost.

    A report creates thousands of objects with few figures each, so only figures that were set are stored; the others
    are 0.
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
    request_nusd: int = 0
    image_input_nusd: int = 0
    image_output_nusd: int = 0
    audio_input_nusd: int = 0
    audio_output_nusd: int = 0
    video_output_nusd: int = 0
    searches: int = 0
    pages: int = 0
    images: int = 0
    characters: int = 0
    audio_ms: int = 0
    video_ms: int = 0
    code_sessions: int = 0
    search_nusd: int = 0
    page_nusd: int = 0
    character_nusd: int = 0
    code_nusd: int = 0

    def add(self, other: "ActivityFigures") -> None:
        for name, value in vars(other).items():
            setattr(self, name, getattr(self, name) + value)


FIGURES: tuple[str, ...] = tuple(field.name for field in fields(ActivityFigures))
CODES = ", ".join(f"'{code}'" for code in CLIENT_CODES)
# The expression that is summed for each figure; `last` is 1 for the row that represents its request, else 0.
COUNTED = {
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
COLUMNAR: tuple[str, ...] = tuple(name for name in FIGURES if name in COUNTED or name in SUMMED)
KEPT: tuple[str, ...] = tuple(name for name in FIGURES if name in UNITS or name in PARTS)
RARE: tuple[str, ...] = tuple(name for name in FIGURES if name not in COLUMNAR)
INSIDE = {
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
    inside = INSIDE[database.kind]
    return ", ".join(f"SUM({_summed(name, inside)})" for name in names)


def column_sums_sql(names: Iterable[str] = COLUMNAR) -> str:
    """Return SQL for the sums of figures from columns."""
    return ", ".join(f"SUM({COUNTED.get(name) or SUMMED[name]})" for name in names)


def kept_sums_sql(database: Database) -> str:
    """Return SQL for what `extra` adds to the figures KEPT, over rows that have one."""
    inside = INSIDE[database.kind]
    return ", ".join(f"SUM({_kept(name, inside)})" for name in KEPT)


def _summed(name: str, inside: str) -> str:
    if name in COUNTED:
        return COUNTED[name]
    column = SUMMED.get(name, "0")
    removed = _kept(name, inside)
    if removed:
        return f"{column} + CASE WHEN u.extra IS NULL THEN 0 ELSE {removed} END"
    return column


def _kept(name: str, inside: str) -> str:
    places = [("units", unit) for unit in UNITS.get(name, ())] + [("nusd", part) for part in PARTS.get(name, ())]
    return " + ".join(f"COALESCE({inside.format(*place)}, 0)" for place in places)
