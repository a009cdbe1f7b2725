"""Model `auto`: chooses the cheapest model that fits the request, from a list or from all."""

from collections.abc import Iterable
from dataclasses import dataclass

from gateway.catalogue.entries import Mapping
from gateway.errors import GatewayError, NotSupported
from gateway.neutral.chat import Options, Requirements
from gateway.routing.candidate_filter import CandidateFilter
from gateway.routing.candidates import Candidate
from gateway.routing.score import ScoreEntry
from gateway.routing.tables import Tables

SANDBOX = "sandbox"  # protocol of the built-in provider
DEFAULT_OUTPUT = 4096  # output tokens to leave room for when the caller named no limit (HTTP reference, 4)
MODELS = 3  # how many a request may go through when the providers of the first fail
LOOK_ON = 100  # candidates that are looked at for those that follow
FREE_ONLY = "is not free"
NO_REASONING = "reasons"
AGING = "is deprecated"
NO_TEXT = "makes no text"


@dataclass(frozen=True, slots=True)
class ModelChoice:
    """Entries of the chosen model, then of those that follow when its providers fail. `fallback`: it is not from the
    configured list."""

    models: list[list[ScoreEntry]]
    fallback: bool


def choose(
    tables: Tables,
    candidate_filter: CandidateFilter,
    listed: tuple[str, ...],
    options: Options,
    pin: str | None,
    strict: bool,
) -> ModelChoice:
    """The cheapest models of `listed` with a candidate that passes; then of the whole catalogue unless `strict`;
    the built-in provider only when no other has a credential. Models whose providers all cool down come last.

    `pin` is the mapping of an earlier request of this session: its model stays while it passes. Raises NotSupported
    or what the candidate filter refuses with when nothing passes.
    """
    cooling: list[list[ScoreEntry]] = []
    for whole in (True, False):  # a model that fulfils every wish, wherever it is, before one that does not
        for number, candidates in enumerate(_stages(tables, candidate_filter, listed, options, strict)):
            late_keys = {entry.candidate.key for entries in cooling for entry in entries}
            seen = {one.key for one in candidate_filter.excluded} | late_keys
            fresh = (one for one in candidates if one.key not in seen)
            models, late = _cheapest(tables, candidate_filter, _prefer(fresh, pin), options, whole)
            cooling += late
            if models:
                return ModelChoice([*models, *cooling], number > 0)
    if cooling:
        return ModelChoice(cooling, False)
    raise _refusal(candidate_filter, options)


def effort_of(mapping: Mapping, needs: Requirements) -> str:
    """The reasoning effort that an automatic choice sends when the caller named none: the least the model takes
    of minimal and low; "" where it does not reason, searches the web or was told an effort (HTTP reference, 4)."""
    if needs.effort or needs.reasoning or needs.web_search or not mapping.reasoning:
        return ""
    efforts = mapping.reasoning_efforts
    if "minimal" in efforts:
        return "minimal"
    return "low" if "low" in efforts or not efforts else ""


def _stages(
    tables: Tables, candidate_filter: CandidateFilter, listed: tuple[str, ...], options: Options, strict: bool
) -> list[Iterable[Candidate]]:
    if strict:
        return [tables.of_models(listed)]
    every = tables.of_all()
    built_in = not any(candidate_filter.has_credential(one) for one in every if not _is_built_in(one))
    chosen, others = (
        (one for one in rows if _is_built_in(one) is built_in) for rows in (tables.of_models(listed), every)
    )
    if options.free_models_only:
        return [others]
    return [chosen, others]


def _cheapest(
    tables: Tables, candidate_filter: CandidateFilter, candidates: Iterable[Candidate], options: Options, whole: bool
) -> tuple[list[list[ScoreEntry]], list[list[ScoreEntry]]]:
    """Entries of at most MODELS models that may serve now, cheapest first, and of those before them that cool down;
    `whole`: of models only that fulfil every wish."""
    models: list[list[ScoreEntry]] = []
    cooling: list[list[ScoreEntry]] = []
    found: set[str] = set()
    looked_on = 0
    for candidate in candidates:
        if candidate.model.id in found:
            continue
        known = len(candidate_filter.excluded)
        entries = _examine(tables, candidate_filter, candidate, options, whole)
        if entries:
            found.add(candidate.model.id)
            cooldowns = all(
                one.candidate.key in candidate_filter.cooling and candidate_filter.cooling[one.candidate.key].whole
                for one in entries
            )
            (cooling if cooldowns else models).append(entries)
        elif models:
            del candidate_filter.excluded[known:]  # why a model does not follow the chosen one explains nothing
        looked_on += bool(models)
        if len(models) >= MODELS or looked_on > LOOK_ON:
            break
    return models, cooling


def _examine(
    tables: Tables, candidate_filter: CandidateFilter, candidate: Candidate, options: Options, whole: bool
) -> list[ScoreEntry]:
    """Entries of the candidate's model, if it passes; else none, with the reason in the filter's exclusions."""
    unwanted = _unwanted(candidate, options)
    if unwanted:
        candidate_filter.exclude_for(candidate, unwanted)
        return []
    entry = candidate_filter.examine(candidate)
    if entry is None or (whole and entry.lacking):
        return []
    # The model is found; which of its providers serves is decided by score.
    candidate_filter.excluded = [
        one for one in candidate_filter.excluded if one.candidate.model.id != candidate.model.id
    ]
    return candidate_filter.sift(one for one in tables.of_model(candidate.model) if not _unwanted(one, options))


def _unwanted(candidate: Candidate, options: Options) -> str:
    if options.free_models_only and not candidate.model.free:
        return FREE_ONLY
    if options.no_reasoning and candidate.mapping.reasoning:
        return NO_REASONING
    if candidate.aging:
        return AGING
    if "text" not in candidate.model.output_modalities:
        return NO_TEXT
    return ""


def _prefer(candidates: Iterable[Candidate], pin: str | None) -> list[Candidate]:
    rows = list(candidates)
    if pin is None:
        return rows
    return sorted(rows, key=lambda one: one.key != pin)


def _is_built_in(candidate: Candidate) -> bool:
    return (candidate.mapping.protocol or candidate.provider.protocol) == SANDBOX


def _refusal(candidate_filter: CandidateFilter, options: Options) -> GatewayError:
    error = candidate_filter.refusal("auto")
    names = [name for name in ("free_models_only", "no_reasoning") if getattr(options, name)]
    if not names or not isinstance(error, NotSupported):
        return error
    return NotSupported(
        f"No model that fits {' and '.join(names)} can serve this request.",
        param=names[0],
        code="no_model_left",
    )
