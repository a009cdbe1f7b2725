"""Money that was saved and money that was wasted in a period, with the cause of each.

Saved: by providers' prompt caches (the difference to the price of fresh input, in the rows' own prices), by the
gateway's response cache (an estimate by the average cost of a request), by routes (the cost at their reference model)
and by discounts. Wasted: attempts that were billed although they failed, and turns of sessions that lost their prompt
cache.
"""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec import Struct

from gateway.metering.activity import Owners, Span, TagValues, measure
from gateway.metering.figures import ActivityFigures
from gateway.metering.rollups.queries import at_once
from gateway.metering.rollups.rollup_table import ERROR
from gateway.metering.usage_table import raw_id
from gateway.store.database import Database
from gateway.store.partitions import id_at

PROMPT_CACHE = "prompt_cache"
RESPONSE_CACHE = "response_cache"
ROUTES = "routes"
DISCOUNTS = "discounts"
FAILED = "failed"  # nothing useful came of it
RETRIED = "retried"  # another attempt of the request succeeded
CACHE_LOST = "cache_lost"
CACHE_UNREAD = "cache_unread"
FIGURES = (
    *("requests", "cached_requests", "cost_nusd", "discount_nusd", "input_tokens", "cached_tokens"),
    *("cache_write_tokens", "input_nusd", "cached_nusd", "cache_write_nusd"),
)
FAILURES = (
    "SELECT u.error, CASE WHEN EXISTS (SELECT 1 FROM usage v WHERE v.request = u.request AND v.attempt > u.attempt "
    "AND v.error IS NULL) THEN 1 ELSE 0 END AS later, COUNT(*), SUM(u.cost_nusd) FROM usage u "
    "WHERE u.project = ? AND u.error IN ({errors}) AND u.request >= ? AND u.request < ? AND u.cost_nusd > 0{more} "
    "GROUP BY u.error, later"
)
LOSSES = (
    "SELECT cause, COUNT(*), SUM(cost_nusd) FROM cache_loss WHERE {column} IN ({marks}) AND at >= ? AND at < ? "
    "GROUP BY cause"
)
ROUTED = (
    "SELECT COUNT(*), COALESCE(SUM(reference_nusd - cost_nusd), 0) FROM route_usage WHERE organization IN ({marks}) "
    "AND project IN ({projects}) AND at >= ? AND at < ?"
)
ERRORS = TagValues(ERROR)
MILLION = 10**6
MAX_OWNERS = 2_000  # of one statement

# Returns the nano-dollars of a million input tokens of a model at a provider, None if it is unknown.
ReadPrice = Callable[[str, str], int | None]


class SavedSum(Struct, frozen=True):
    """The amount that one means saved, for `count` requests or tokens. `estimated`: it is not exact."""

    kind: str
    nusd: int
    count: int
    estimated: bool = False


class WastedSum(Struct, frozen=True):
    """The amount wasted for one cause: an error code for FAILED and RETRIED, or why a prompt cache was lost."""

    kind: str
    cause: str
    nusd: int
    count: int


class SavingsReport(Struct, frozen=True):
    """The largest amounts first."""

    saved: list[SavedSum]
    wasted: list[WastedSum]


class SavingsQuestion(NamedTuple):
    """Whole projects and keys, in these organizations; `projects_of` has the project of each key."""

    owners: Owners
    span: Span
    organizations: Sequence[str]
    projects_of: dict[str, str]
    price: ReadPrice


def read_savings(database: Database, question: SavingsQuestion) -> SavingsReport:
    """Return what was saved and wasted. Unavailable."""
    span = Span(question.span.first, question.span.end, "all")
    rows = at_once(database, lambda: measure(database, question.owners, span, "model", FIGURES))
    models = [(row.value[1], row.value[0], row.figures) for row in rows]
    cached, unread = _sum_prompt_caches(models, question.price)
    saved = [
        cached,
        _sum_response_cache([figures for _, _, figures in models]),
        SavedSum(DISCOUNTS, sum(figures.discount_nusd for _, _, figures in models), 0),
        database.report(lambda: _sum_routes(database, question)),
    ]
    errors = at_once(database, lambda: measure(database, question.owners, span, "tag", ("cost_nusd",), ERRORS))
    codes = sorted({row.value[0] for row in errors if row.figures.cost_nusd})
    wasted = database.report(lambda: [*_list_failures(database, question, codes), *_list_losses(database, question)])
    if unread.nusd:
        wasted.append(unread)
    return SavingsReport(
        sorted((one for one in saved if one.nusd), key=lambda one: (-one.nusd, one.kind)),
        sorted(wasted, key=lambda one: (-one.nusd, one.kind, one.cause)),
    )


def _sum_prompt_caches(
    models: Sequence[tuple[str, str, ActivityFigures]], price: ReadPrice
) -> tuple[SavedSum, WastedSum]:
    """Return what reading from prompt caches saved, less what writing to them cost more than fresh input; and what was
    lost with models for which caches cost more than they saved. Answers of the response cache repeat the tokens of the
    request that they were made for, and cost nothing: what they saved is counted there, so that of the tokens of their
    model only the share of the other requests counts here."""
    saved = lost = read = unread = 0
    is_estimated = False
    for provider, model, figures in models:
        rate = _input_rate(provider, model, figures, price)
        hits, written = _paid_tokens(figures)
        if rate is None or not (hits or written):
            continue
        is_estimated = is_estimated or bool(figures.cached_requests)
        numerator, denominator = rate
        fresh_nusd = (hits + written) * numerator // denominator
        gain = fresh_nusd - figures.cached_nusd - figures.cache_write_nusd
        read += hits
        if gain >= 0:
            saved += gain
        else:
            lost -= gain
            unread += written
    return SavedSum(PROMPT_CACHE, saved, read, is_estimated), WastedSum(CACHE_UNREAD, "", lost, unread)


def _paid_tokens(figures: ActivityFigures) -> tuple[int, int]:
    """Return the tokens that were read from and written to prompt caches, without those of replayed answers."""
    requests, replayed = figures.requests, figures.cached_requests
    if not replayed:
        return figures.cached_tokens, figures.cache_write_tokens
    paid = max(0, requests - replayed)
    return figures.cached_tokens * paid // requests, figures.cache_write_tokens * paid // requests


def _input_rate(provider: str, model: str, figures: ActivityFigures, price: ReadPrice) -> tuple[int, int] | None:
    """Return the price of fresh input as nano-dollars and tokens: that of the rows themselves, or of the catalogue
    where the rows have none, or answers of the response cache are among them, in which tokens cost nothing."""
    fresh = figures.input_tokens - figures.cached_tokens - figures.cache_write_tokens
    if fresh > 0 and figures.input_nusd > 0 and not figures.cached_requests:
        return figures.input_nusd, fresh
    listed = price(provider, model)
    return None if listed is None else (listed, MILLION)


def _sum_response_cache(models: Sequence[ActivityFigures]) -> SavedSum:
    """Return what answers from the response cache would have cost, by the average of the other requests to a model."""
    nusd = count = 0
    for figures in models:
        paid = figures.requests - figures.cached_requests
        count += figures.cached_requests
        if figures.cached_requests and paid > 0:
            nusd += figures.cached_requests * figures.cost_nusd // paid
    return SavedSum(RESPONSE_CACHE, nusd, count, estimated=True)


def _sum_routes(database: Database, question: SavingsQuestion) -> SavedSum:
    """Return what routes saved in whole projects; inside a read."""
    nusd = count = 0
    organizations = [raw_id(ident) for ident in question.organizations]
    times = (question.span.start_us, question.span.end_us)
    for start in range(0, len(question.owners.project_ids), MAX_OWNERS):
        projects = [raw_id(ident) for ident in question.owners.project_ids[start : start + MAX_OWNERS]]
        sql = ROUTED.format(marks=_marks(organizations), projects=_marks(projects))
        ((requests, saved),) = database.fetch(sql, (*organizations, *projects, *times))
        count += int(requests)
        nusd += int(saved)
    return SavedSum(ROUTES, nusd, count)


def _list_failures(database: Database, question: SavingsQuestion, codes: Sequence[str]) -> list[WastedSum]:
    """Return the attempts with these errors that were billed, as far as their usage rows are kept; inside a read. The
    index of errors finds the rows of a code, so that those without an error are not read."""
    if not codes:
        return []
    found: dict[tuple[str, str], tuple[int, int]] = {}
    keys: dict[str, list[bytes]] = {}
    for key_id in question.owners.key_ids:
        keys.setdefault(question.projects_of[key_id], []).append(raw_id(key_id))
    places: list[tuple[str, list[bytes]]] = [(project_id, []) for project_id in question.owners.project_ids]
    first, end = (id_at(at_us) for at_us in (question.span.start_us, question.span.end_us))
    sql = FAILURES.format(errors=_marks(codes), more="{more}")
    for project_id, some in [*places, *keys.items()]:
        more = f" AND u.api_key IN ({_marks(some)})" if some else ""
        params = (raw_id(project_id), *codes, first, end, *some)
        for error, later, count, nusd in database.fetch(sql.format(more=more), params):
            kind = RETRIED if later else FAILED
            known = found.get((kind, error), (0, 0))
            found[kind, error] = (known[0] + int(nusd), known[1] + int(count))
    return [WastedSum(kind, error, *sums) for (kind, error), sums in found.items()]


def _list_losses(database: Database, question: SavingsQuestion) -> list[WastedSum]:
    """Return what turns without a prompt cache cost more, by cause; inside a read."""
    found: dict[str, tuple[int, int]] = {}
    times = (question.span.start_us, question.span.end_us)
    for column, idents in (("project", question.owners.project_ids), ("api_key", question.owners.key_ids)):
        for start in range(0, len(idents), MAX_OWNERS):
            some = [raw_id(ident) for ident in idents[start : start + MAX_OWNERS]]
            sql = LOSSES.format(column=column, marks=_marks(some))
            for cause, count, nusd in database.fetch(sql, (*some, *times)):
                known = found.get(cause, (0, 0))
                found[cause] = (known[0] + int(nusd), known[1] + int(count))
    return [WastedSum(CACHE_LOST, cause, *sums) for cause, sums in found.items()]


def _marks(values: Sequence[object]) -> str:
    return ", ".join("?" * len(values))
