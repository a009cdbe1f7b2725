"""A routing decision as data: packed compactly for the row of each request, unpacked to the format of the HTTP API."""

from collections.abc import Iterable, Sequence
from typing import Any, NotRequired, TypedDict

from gateway.routes.choices import RouteChoiceAnswer
from gateway.routing.candidate_filter import STAGES, Excluded
from gateway.routing.candidates import Candidate
from gateway.routing.decision import Plan
from gateway.routing.plan import EXPLORED, FIRST, LOW_UPTIME, PINNED, PREFERRED, SESSION, SINGLE, WEIGHTED
from gateway.routing.score import DEFAULT_LATENCY_MS, DEFAULT_THROUGHPUT, DEFAULT_UPTIME, Scored, weigh

FORMAT_VERSION = 1
RESOLUTION_KINDS = ("canonical", "pinned", "auto", "smart", "custom")
REASONS = (PINNED, SINGLE, FIRST, PREFERRED, SESSION, WEIGHTED, EXPLORED, LOW_UPTIME)
STREAM = 1
IMAGE = 2
NO_FALLBACK = 4
# Scores, prices, uptimes, latencies and throughputs are stored as integers with these factors, which is cheaper than
# rounding.
PARTS = (1_000_000, 1_000_000, 1000, 10, 100)
NANO = 1_000_000_000 // PARTS[1]  # nano-dollars in one unit of a stored price
# Default values that a stored row omits at its end: provider, score and price are always present.
DEFAULT_TAIL = (1.0, 0, "", "")
DEFAULT_SCORE = (
    "",
    0,
    0,
    DEFAULT_UPTIME * PARTS[2],
    DEFAULT_LATENCY_MS * PARTS[3],
    DEFAULT_THROUGHPUT * PARTS[4],
    *DEFAULT_TAIL,
)
DEFAULT_EXCLUDED = ("", "", "")
ROWS = 7  # the place of the candidates in a packed decision
PRICE = 2  # the place of the price in a candidate's row
MEASURED = 6  # the places of a candidate's row from the score up to this one are measured, but for the price

Packed = list[Any]


class ProviderScore(TypedDict):
    """The score of a candidate and what it was computed from: `price` in USD per million units, `uptime` in percent,
    `latency` in ms, `throughput` in tokens per second."""

    providerId: str
    modelId: str
    score: float
    price: float
    uptime: float
    latency: float
    throughput: float
    priority: float
    cacheSupported: bool
    region: NotRequired[str]


class ExcludedCandidate(TypedDict):
    providerId: str
    modelId: str
    stage: str
    reason: str
    region: NotRequired[str]


class RestingCandidate(TypedDict):
    """A candidate in cooldown, which is tried last."""

    key: str
    reason: str


class SkippedModel(TypedDict):
    model: str
    reason: str


class TokenMixAnswer(TypedDict):
    """The tokens for which prices were compared: the share of input from the cache, output for one token of input."""

    source: str
    cached: float
    output: float


class RoutingDecision(TypedDict):
    """A routing decision with the names of the HTTP API. `order` are mapping keys as tried. For a request with several
    models, `models` lists them in their order and `skippedModels` those that could not be tried."""

    requestedModel: str
    kind: str
    selectedModel: str
    selectedProvider: str
    selectionReason: str
    availableProviders: list[str]
    providerScores: list[ProviderScore]
    order: list[str]
    excluded: list[ExcludedCandidate]
    weights: dict[str, float]
    routing: str
    selectedRegion: NotRequired[str]
    noFallback: NotRequired[bool]
    hedging: NotRequired[bool]
    tokenMix: NotRequired[TokenMixAnswer]
    waived: NotRequired[list[str]]
    resting: NotRequired[list[RestingCandidate]]
    models: NotRequired[list[str]]
    skippedModels: NotRequired[list[SkippedModel]]
    route: NotRequired[RouteChoiceAnswer]


def pack(plan: Plan) -> Packed:
    """Pack the decision into a short list of JSON-able values for `unpack`.

    Values are rounded as they are shown. Excluded candidates are grouped by their reason; the model is stored once if
    all candidates have the same.
    """
    request = plan.request
    first = plan.first.candidate
    flags = (STREAM if request.requirements.stream else 0) | (IMAGE if request.requirements.image_output else 0)
    places = {id(scored): place for place, scored in enumerate(plan.ranked)}
    order = [places[id(scored)] for scored in plan.order]
    model = first.model.id
    packed: Packed = [
        FORMAT_VERSION,
        request.requested_model,
        RESOLUTION_KINDS.index(plan.resolution.kind),
        REASONS.index(plan.reason),
        request.options.routing,
        flags | (NO_FALLBACK if request.no_fallback else 0),
        "" if model == request.requested_model else model,
        [_pack_score(scored, model) for scored in plan.ranked],
        [] if order == list(range(len(plan.ranked))) else order,
        _pack_excluded(plan.excluded, model),
    ]
    cooling = [
        (place, plan.cooling[scored.key].reason)
        for place, scored in enumerate(plan.ranked)
        if scored.key in plan.cooling
    ]
    if plan.waived or cooling or plan.parts:
        packed.append(plan.waived)
    if cooling or plan.parts:
        packed.append(cooling)
    if plan.parts:
        packed.append([part.request.requested_model for part in plan.parts])
        packed.append(plan.skipped)
    return packed


def leave_out_figures(packed: Packed) -> Packed:
    """Return a packed decision without what is measured: scores, uptimes, latencies and throughputs. Everything that a
    request was decided by and sent by remains, with its prices."""
    rows = [(row[0], *row[PRICE : PRICE + 1], *row[MEASURED:]) for row in packed[ROWS]]
    return [*packed[:ROWS], rows, *packed[ROWS + 1 :]]


def unpack(packed: Sequence[Any]) -> RoutingDecision:
    """Unpack a decision.

    Raise ValueError for a decision in another version.
    """
    if packed[0] != FORMAT_VERSION:
        raise ValueError("the stored decision is from another release")
    requested_model, kind, reason, strategy, flags, model, rows, order, groups, *more = packed[1:]
    waived, cooling, models, skipped, *_ = (*more, (), (), (), ())
    model = model or requested_model
    scores = [_unpack_score(row, model) for row in rows]
    order = order or range(len(scores))
    first = scores[order[0]]
    record: RoutingDecision = {
        "requestedModel": requested_model,
        "kind": RESOLUTION_KINDS[kind],
        "selectedModel": model,
        "selectedProvider": first["providerId"],
        "selectionReason": REASONS[reason],
        "availableProviders": sorted({score["providerId"] for score in scores}),
        "providerScores": scores,
        "order": [key_of_score(scores[place]) for place in order],
        "excluded": list(_unpack_excluded(groups, model)),
        "weights": weigh(strategy, bool(flags & STREAM), bool(flags & IMAGE))._asdict(),
        "routing": strategy or "auto",
    }
    if "region" in first:
        record["selectedRegion"] = first["region"]
    if flags & NO_FALLBACK:
        record["noFallback"] = True
    if waived:
        record["waived"] = list(waived)
    if cooling:
        record["resting"] = [{"key": key_of_score(scores[place]), "reason": cause} for place, cause in cooling]
    if models:
        record["models"] = list(models)
    if skipped:
        record["skippedModels"] = [{"model": name, "reason": cause} for name, cause in skipped]
    return record


def write_record(plan: Plan) -> RoutingDecision:
    """Return the decision in the format of `unpack`."""
    return unpack(pack(plan))


def _pack_score(scored: Scored, model: str) -> tuple[Any, ...]:
    score, _, (candidate, _, price, uptime, latency_ms, throughput, _) = scored
    provider = candidate.provider
    figures = candidate.figures
    known = (
        provider.id,
        round(score * 1_000_000),
        round(price / NANO),
        round(uptime * 1000),
        round(latency_ms * 10),
        round(throughput * 100),
    )
    cached = 1 if figures.cache_read != figures.input else 0
    tail = (provider.priority, cached, candidate.mapping.region, _other(candidate, model))
    if tail == DEFAULT_TAIL:
        return _trim(known, DEFAULT_SCORE)
    return _trim(known + tail, DEFAULT_SCORE)


def _unpack_score(row: Sequence[Any], model: str) -> ProviderScore:
    provider, *counts, priority, cached, region, other = _fill(row, DEFAULT_SCORE)
    score, price, uptime, latency, throughput = (count / part for count, part in zip(counts, PARTS, strict=True))
    shown: ProviderScore = {
        "providerId": provider,
        "modelId": other or model,
        "score": score,
        "price": price,
        "uptime": uptime,
        "latency": latency,
        "throughput": throughput,
        "priority": priority,
        "cacheSupported": bool(cached),
    }
    if region:
        shown["region"] = region
    return shown


def _pack_excluded(excluded: Iterable[Excluded], model: str) -> list[tuple[Any, ...]]:
    """Return (stage, reason, candidates) by stage and reason, in order of first appearance.

    A candidate is a provider's id, or (provider, region, model).
    """
    groups: dict[tuple[str, str], list[Any]] = {}
    for exclusion in excluded:
        candidate = exclusion.candidate
        row = _trim((candidate.provider.id, candidate.mapping.region, _other(candidate, model)), DEFAULT_EXCLUDED)
        groups.setdefault((exclusion.stage, exclusion.reason), []).append(row[0] if len(row) == 1 else row)
    return [(STAGES.index(stage), reason, rows) for (stage, reason), rows in groups.items()]


def _unpack_excluded(groups: Iterable[Sequence[Any]], model: str) -> Iterable[ExcludedCandidate]:
    for stage, reason, rows in groups:
        for row in rows:
            provider, region, other = _fill((row,) if isinstance(row, str) else row, DEFAULT_EXCLUDED)
            shown: ExcludedCandidate = {
                "providerId": provider,
                "modelId": other or model,
                "stage": STAGES[stage],
                "reason": reason,
            }
            if region:
                shown["region"] = region
            yield shown


def _other(candidate: Candidate, model: str) -> str:
    ident = candidate.model.id
    if ident == model:
        return ""
    return ident


def _trim(row: tuple[Any, ...], usual: tuple[Any, ...]) -> tuple[Any, ...]:
    end = len(row)
    while end > 1 and row[end - 1] == usual[end - 1]:
        end -= 1
    return row[:end]


def _fill(row: Sequence[Any], usual: tuple[Any, ...]) -> tuple[Any, ...]:
    return (*row, *usual[len(row) :])


def key_of_score(score: ProviderScore) -> str:
    region = score.get("region")
    key = f"{score['providerId']}/{score['modelId']}"
    if region:
        return f"{key}:{region}"
    return key
