"""Shares of a project's usage by tag, session, team, person, provider, model, key or app, for chargeback."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, NamedTuple

from gateway.accounts.keys import KeyInfo
from gateway.clock import DAY_US
from gateway.metering.activity import Owners, Span, measure
from gateway.metering.figures import ActivityFigures, sums_sql
from gateway.metering.rollups.queries import Row, StatisticsEngine, ValueQuestion, answer_or, at_once
from gateway.metering.rollups.rollup_table import fetch_exact
from gateway.metering.usage_table import raw_id
from gateway.reports.report_metrics import NEEDED, total
from gateway.store.database import Database
from gateway.store.partitions import id_at

# Values of a tag or session that are shown; the rest is one row.
MOST_VALUES = 1_000
OTHER = "(other)"
# How long after a request arrived it may still make attempts.
LONGEST_US = 2 * DAY_US
SUMMED = tuple(name for name in NEEDED if name not in ("requests", "errors", "cached_requests"))
# The column of the cost in a row of sums, after the value and the requests.
COST_COLUMN = 3 + SUMMED.index("cost_nusd")
TAG_VALUE = {
    "sqlite": "json_extract(u.tags, '$.' || ?)",
    "postgresql": "CAST(u.tags AS json) ->> ?",
}
GROUPS = ("tag", "session", "team", "person", "provider", "model", "key", "app")


class Share(NamedTuple):
    """The usage of one value; `id` "" is usage without one."""

    id: str
    figures: ActivityFigures


@dataclass(frozen=True, slots=True)
class ShareQuestion:
    """The projects, or keys if the reader sees only these, a period, and how usage is grouped. `tag` is the name of the
    tag; `teams` are the ids of the teams of each member."""

    owners: Owners
    span: Span
    group: str
    tag: str = ""
    keys: Mapping[str, KeyInfo] | None = None
    teams: Mapping[str, Sequence[str]] | None = None


def read_shares(database: Database, question: ShareQuestion) -> list[Share]:
    """Return the shares, the most expensive first. Usage of a person in several teams counts in each of them; all other
    shares add up to the usage of the projects."""
    if question.group in ("tag", "session"):
        shares = answer_or(database, partial(_ask_engine, question), partial(_sum_rows, database, question))
    else:
        shares = at_once(database, lambda: READERS[question.group](database, question))
    return sorted(shares, key=lambda share: (-share.figures.cost_nusd, share.id))


class ShareStep(NamedTuple):
    """The usage of one value in one hour or day, which is its number since the epoch (UTC)."""

    step: int
    id: str
    figures: ActivityFigures


class RowSelection(NamedTuple):
    """SQL of the usage rows of a question, and of the value by which they are grouped, with their parameters."""

    value: str
    name: list[str]
    rows: str
    bounds: list[Any]


def read_share_steps(
    database: Database, question: ShareQuestion, values: Sequence[str], step_us: int
) -> list[ShareStep]:
    """Return the usage of some tags or sessions by steps of `step_us`."""
    rows = answer_or(
        database,
        partial(_ask_engine_for_steps, question, values, step_us),
        partial(_sum_steps, database, question, values, step_us),
    )
    return [ShareStep(int(step), str(ident), _read_figures(amounts)) for step, ident, *amounts in rows]


def _sum_steps(
    database: Database, question: ShareQuestion, values: Sequence[str], step_us: int
) -> Sequence[Sequence[Any]]:
    chosen = _select(database, question)
    if chosen is None or not values:
        return []
    shown = f"COALESCE({chosen.value}, '')"
    sql = (
        f"SELECT u.at / {step_us} AS step, {shown} AS value, {_sums(database)} {chosen.rows} "
        f"AND {shown} IN ({', '.join('?' * len(values))}) GROUP BY 1, 2"
    )
    return fetch_exact(database, sql, [*chosen.name, *chosen.bounds, *chosen.name, *values])


def _sums(database: Database) -> str:
    return f"SUM(CASE WHEN u.attempt = 0 AND u.kind = 0 THEN 1 ELSE 0 END), {sums_sql(database, SUMMED)}"


def _select(database: Database, question: ShareQuestion) -> RowSelection | None:
    """Return the rows of a question about tags or sessions; None without projects and keys."""
    span = question.span
    columns = (("project", question.owners.project_ids), ("api_key", question.owners.key_ids))
    owned = " OR ".join(f"u.{column} IN ({', '.join('?' * len(ids))})" for column, ids in columns if ids)
    if not owned:
        return None
    if question.group == "tag":
        value = TAG_VALUE[database.kind]
        name = [_quoted(question.tag) if database.kind == "sqlite" else question.tag]
    else:
        value = "u.session"
        name = []
    rows = f"FROM usage u WHERE ({owned}) AND u.request >= ? AND u.request < ? AND u.at >= ? AND u.at < ?"
    owners = [raw_id(ident) for _, ids in columns for ident in ids]
    bounds = [id_at(span.start_us - LONGEST_US), id_at(span.end_us), span.start_us, span.end_us]
    return RowSelection(value, name, rows, [*owners, *bounds])


def _sum_rows(database: Database, question: ShareQuestion) -> list[Share]:
    """Sum usage rows: sessions and tags are in no rollup, since there may be as many as requests."""
    chosen = _select(database, question)
    if chosen is None:
        return []
    sums = _sums(database)
    grouped = (
        f"SELECT COALESCE({chosen.value}, '') AS value, {sums} {chosen.rows} "
        f"GROUP BY 1 ORDER BY {COST_COLUMN} DESC LIMIT {MOST_VALUES + 1}"
    )
    shares = [
        Share(ident, _read_figures(amounts))
        for ident, *amounts in fetch_exact(database, grouped, [*chosen.name, *chosen.bounds])
    ]
    return _with_rest(shares, lambda: fetch_exact(database, f"SELECT {sums} {chosen.rows}", chosen.bounds)[0])


def _value_question(question: ShareQuestion) -> ValueQuestion | None:
    """Return a question about tags or sessions for another engine; None without projects and keys."""
    columns = (("project", question.owners.project_ids), ("api_key", question.owners.key_ids))
    owners = [(column, raw_id(ident)) for column, ids in columns for ident in ids]
    if not owners:
        return None
    span = question.span
    return ValueQuestion(question.group, owners, span.first, span.end, question.tag, SUMMED, MOST_VALUES + 1)


def _ask_engine_for_steps(
    question: ShareQuestion, values: Sequence[str], step_us: int, engine: StatisticsEngine
) -> Sequence[Sequence[Any]]:
    """Ask another engine for what `_sum_steps` returns."""
    asked = _value_question(question)
    if asked is None or not values:
        return []
    return engine.sum_share_steps(asked, values, step_us)


def _ask_engine(question: ShareQuestion, engine: StatisticsEngine) -> list[Share]:
    """Ask another engine for what `_sum_rows` returns."""
    asked = _value_question(question)
    if asked is None:
        return []
    shares = [Share(str(ident), _read_figures(amounts)) for ident, *amounts in engine.sum_shares(asked)]

    def read_everything() -> Sequence[Any]:
        _, *amounts = engine.sum_shares(replace(asked, group="all"))[0]
        return amounts

    return _with_rest(shares, read_everything)


def _with_rest(shares: list[Share], read_everything: Callable[[], Sequence[Any]]) -> list[Share]:
    """Return the most expensive shares, of which there is at most one too many, and one for all others."""
    if len(shares) <= MOST_VALUES:
        return shares
    shares.pop()
    everything = _read_figures(read_everything())
    return [*shares, Share(OTHER, _subtract(everything, total([share.figures for share in shares])))]


def _read_figures(amounts: Sequence[Any]) -> ActivityFigures:
    """Return the figures of a row: the requests and then the sums of SUMMED."""
    figures = ActivityFigures()
    for figure, amount in zip(("requests", *SUMMED), amounts, strict=True):
        setattr(figures, figure, int(amount))
    return figures


def _subtract(figures: ActivityFigures, part: ActivityFigures) -> ActivityFigures:
    rest = ActivityFigures()
    for name, value in vars(figures).items():
        setattr(rest, name, value - getattr(part, name))
    return rest


def _quoted(name: str) -> str:
    """Return a tag's name as a part of a JSON path; SQLite knows no escaped quotation mark there."""
    return '"' + name.replace('"', "") + '"'


def _by_key(database: Database, question: ShareQuestion) -> list[tuple[str, ActivityFigures]]:
    owners = Owners(key_ids=tuple(question.keys or ()))
    rows = measure(database, owners, question.span, "api_key", NEEDED)
    return [(f"key_{row.value[0].hex()}", row.figures) for row in rows]


def _keys(database: Database, question: ShareQuestion) -> list[Share]:
    return _summed(_by_key(database, question))


def _people(database: Database, question: ShareQuestion) -> list[Share]:
    keys = question.keys or {}
    return _summed([(keys[key].member_id, figures) for key, figures in _by_key(database, question)])


def _teams(database: Database, question: ShareQuestion) -> list[Share]:
    keys = question.keys or {}
    teams = question.teams or {}
    found = [(keys[key].member_id, figures) for key, figures in _by_key(database, question)]
    return _summed([(team, figures) for member, figures in found for team in teams.get(member) or ("",)])


def _models(database: Database, question: ShareQuestion) -> list[Share]:
    rows = measure(database, question.owners, question.span, "model", NEEDED)
    return _summed([(f"{row.value[1]}/{row.value[0]}", row.figures) for row in rows])


def _providers(database: Database, question: ShareQuestion) -> list[Share]:
    rows = measure(database, question.owners, question.span, "model", NEEDED)
    return _summed([(row.value[1], row.figures) for row in rows])


def _apps(database: Database, question: ShareQuestion) -> list[Share]:
    rows: list[Row] = measure(database, question.owners, question.span, "source", NEEDED)
    return _summed([(row.value[0], row.figures) for row in rows])


READERS: dict[str, Callable[[Database, ShareQuestion], list[Share]]] = {
    "team": _teams,
    "person": _people,
    "provider": _providers,
    "model": _models,
    "key": _keys,
    "app": _apps,
}


def _summed(parts: Sequence[tuple[str, ActivityFigures]]) -> list[Share]:
    sums: dict[str, ActivityFigures] = {}
    for ident, figures in parts:
        sums.setdefault(ident, ActivityFigures()).add(figures)
    return [Share(ident, figures) for ident, figures in sums.items()]
