"""Model `auto`: chooses the cheapest model that fits the request, from a list or from all models."""

from collections.abc import Iterable

from msgspec import Struct

from gateway.catalogue.entries import Mapping
from gateway.errors import GatewayError, NotSupported
from gateway.neutral.chat import Options, Requirements
from gateway.neutral.operations import OPERATIONS
from gateway.routing.candidate_filter import CandidateFilter
from gateway.routing.candidates import Candidate, Tables, reason_against
from gateway.routing.resolve import SANDBOX
from gateway.routing.score import ScoreEntry

DEFAULT_OUTPUT = 4096  # output tokens to leave room for if the caller set no limit
MODELS = 3  # number of models that a request may try when the providers of the first one fail
# The same for operations other than chat. Their models differ more: one that lacks the voice, size or format that the
# caller wants refuses before it is called.
FURTHER_MODELS = 12
EXAMINED_AFTER = 100  # candidates that are examined for the following models
FREE_ONLY = "is not free"
NO_REASONING = "reasons"
AGING = "is deprecated"
NO_TEXT = "makes no text"
CHAT = "chat"
PICTURES = ("images", "image_edits")  # the operations whose models are compared by the price of an image


class ModelChoice(Struct, frozen=True):
    """The chosen models: the entries of the first model, then of those to try when its providers fail.

    `fallback`: the first model is not from the configured list.
    """

    models: list[list[ScoreEntry]]
    fallback: bool


def choose(
    tables: Tables,
    candidate_filter: CandidateFilter,
    listed: tuple[str, ...],
    options: Options,
    pin: str | None,
) -> ModelChoice:
    """Choose the cheapest models of `listed` with a suitable candidate; then of the whole catalogue.

    The built-in provider is used only if no other has a credential. Models with all their providers cooling down come
    last. Where results of different models cannot be compared, only the first model is chosen, even while it cools
    down: the same request gets the same model again.

    `pin` is the mapping of an earlier request of this session: its model stays while it passes. Raises NotSupported
    or what the candidate filter refuses with when nothing passes.
    """
    cooling: list[list[ScoreEntry]] = []
    # A model that fulfils every preference, from either stage, comes before one that does not.
    for whole in (True, False):
        for number, candidates in enumerate(_stages(tables, candidate_filter, listed, options)):
            late_keys = {entry.candidate.key for entries in cooling for entry in entries}
            seen = {excluded.key for excluded in candidate_filter.excluded} | late_keys
            fresh = (candidate for candidate in candidates if candidate.key not in seen)
            models, late = _cheapest(tables, candidate_filter, _prefer(fresh, pin), options, whole)
            cooling += late
            if models:
                found = [*models, *cooling]
                return ModelChoice(found[:1] if _is_single(candidate_filter) else found, number > 0)
    if cooling:
        return ModelChoice(cooling, False)
    raise _refusal(candidate_filter, options)


def effort_of(mapping: Mapping, requirements: Requirements) -> str:
    """Return the reasoning effort that an automatic choice sends if the caller set none.

    It is "minimal" or "low", the lower one that the model accepts; "" if the model does not reason, the request
    searches the web or has an effort.
    """
    if requirements.effort or requirements.reasoning or requirements.web_search or not mapping.reasoning:
        return ""
    efforts = mapping.reasoning_efforts
    if "minimal" in efforts:
        return "minimal"
    return "low" if "low" in efforts or not efforts else ""


def _stages(
    tables: Tables, candidate_filter: CandidateFilter, listed: tuple[str, ...], options: Options
) -> list[Iterable[Candidate]]:
    by_image = candidate_filter.operation in PICTURES
    every = tables.of_all(by_image)
    built_in = not any(candidate_filter.has_credential(candidate) for candidate in every if not _is_built_in(candidate))
    chosen, others = (
        (row for row in rows if _is_built_in(row) is built_in) for rows in (tables.of_models(listed, by_image), every)
    )
    if options.free_models_only:
        return [others]
    return [chosen, others]


def _cheapest(
    tables: Tables, candidate_filter: CandidateFilter, candidates: Iterable[Candidate], options: Options, whole: bool
) -> tuple[list[list[ScoreEntry]], list[list[ScoreEntry]]]:
    """Return the entries of at most MODELS (FURTHER_MODELS) ready models, cheapest first, and of cheaper models that
    cool down.

    `whole`: only models that fulfil every preference.
    """
    models: list[list[ScoreEntry]] = []
    cooling: list[list[ScoreEntry]] = []
    chosen_ids: set[str] = set()
    examined_after = 0
    maximum = MODELS if candidate_filter.operation == CHAT else FURTHER_MODELS
    single = _is_single(candidate_filter)
    for candidate in candidates:
        if candidate.model.id in chosen_ids:
            continue
        known = len(candidate_filter.excluded)
        entries = _examine(tables, candidate_filter, candidate, options, whole)
        if entries:
            chosen_ids.add(candidate.model.id)
            late = not single and all(_cools_down(entry, candidate_filter) for entry in entries)
            (cooling if late else models).append(entries)
        elif models:
            # reasons against models after the chosen one are not part of the explanation
            del candidate_filter.excluded[known:]
        examined_after += bool(models)
        if len(models) >= maximum or examined_after > EXAMINED_AFTER:
            break
    return models, cooling


def _examine(
    tables: Tables, candidate_filter: CandidateFilter, candidate: Candidate, options: Options, whole: bool
) -> list[ScoreEntry]:
    """Return the entries of the candidate's model if it passes; otherwise none, with the reason in the filter's
    exclusions.
    """
    unwanted = _unwanted(candidate, options, candidate_filter.operation)
    if unwanted:
        candidate_filter.exclude_for(candidate, unwanted)
        return []
    entry = candidate_filter.examine(candidate)
    if entry is None or (whole and entry.lacking):
        return []
    # The model is chosen here; the score decides which of its providers serves the request.
    candidate_filter.excluded = [
        excluded for excluded in candidate_filter.excluded if excluded.candidate.model.id != candidate.model.id
    ]
    return candidate_filter.keep_usable(
        sibling
        for sibling in tables.of_model(candidate.model)
        if not _unwanted(sibling, options, candidate_filter.operation)
    )


def _cools_down(entry: ScoreEntry, candidate_filter: CandidateFilter) -> bool:
    cooling = candidate_filter.cooling.get(entry.candidate.key)
    return cooling is not None and cooling.whole


def _is_single(candidate_filter: CandidateFilter) -> bool:
    """Return whether results of different models cannot be compared, as vectors cannot."""
    operation = OPERATIONS.get(candidate_filter.operation)
    return operation is not None and operation.one_model


def _unwanted(candidate: Candidate, options: Options, operation: str) -> str:
    if options.free_models_only and not candidate.model.free:
        return FREE_ONLY
    if options.no_reasoning and candidate.mapping.reasoning:
        return NO_REASONING
    if options.provider is not None and (reason := reason_against(options.provider, candidate)):
        return reason
    if candidate.aging:
        return AGING
    if operation == CHAT and "text" not in candidate.model.output_modalities:
        return NO_TEXT
    return ""


def _prefer(candidates: Iterable[Candidate], pin: str | None) -> list[Candidate]:
    rows = list(candidates)
    if pin is None:
        return rows
    return [row for row in rows if row.key == pin] + [row for row in rows if row.key != pin]


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
