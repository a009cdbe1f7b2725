"""The likely cost of prompts, learned from settled requests: what limits reserve that need no highest bound.

A bound counts each byte as a token at the highest rate, which is 16 to 20 times what an agent's prompt costs. Learned
are the tokens per byte of each model, for prompts with and without tools, and for each session of an agent the tokens
of its last prompt and how many of them the provider's cache has. A cost above the likely one exceeds a limit by the
difference, once for each request in progress; `Spending` counts such requests.

An organization chooses where its own provider keys are sent and so what the answers report: these count for its own
requests alone.
"""

from collections import OrderedDict
from typing import NamedTuple

from msgspec import Struct
from msgspec.structs import replace

from gateway.billing.context import Attempt, RequestContext
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import dearest_input, highest_rates, multiplier, reachable_rates
from gateway.clock import HOUR_US
from gateway.limits.cost_bound import CostBound
from gateway.money import MILLION
from gateway.neutral.cache_marks import AUTOMATIC
from gateway.neutral.chat import ChatRequest
from gateway.neutral.operations import MESSAGE_TOKENS
from gateway.neutral.request import Request, Requirements

LARGE_BYTES = 8192  # the bound of a smaller prompt is low enough
UNKNOWN_BYTES_PER_TOKEN = 2  # of a model without measurements: half of what English text and source code have
MIN_SAMPLES = 3
MARGIN = 1.15  # on measured tokens
LEAST_PER_BYTE = 1 / 6  # after runs of blanks, which are few tokens and may precede dense text in the same budget
DECAY = 64  # the highest measured density falls by 1 / DECAY with each lower one
CACHED_S = 270.0  # providers keep prompts for five minutes at least
CACHED_SHARE = 0.9  # of the tokens in the cache that the next turn is expected to read
MAX_MODELS = 4096
MAX_SESSIONS = 20_000

Place = tuple[str, str, str]  # project, session, model


class _Density(Struct):
    """Tokens per byte of a model's prompts: the recent maximum, and the number of measurements. `hourly`: some were
    written to the cache for an hour, which costs more."""

    tokens_per_byte: float
    hourly: bool
    samples: int = 1


class _Turn(Struct, frozen=True, gc=False):
    """The last prompt of a session: when (monotonic), its size in bytes and tokens (0: not measured), and how many
    tokens of it the provider's cache has."""

    at: float
    size: int
    tokens: int
    cached: int


class LikelyPrompts:
    """The measurements of one worker."""

    def __init__(self) -> None:
        # By organization, "" for the platform's provider keys; by model; with or without tools.
        self._densities: OrderedDict[tuple[str, str, bool], _Density] = OrderedDict()
        self._turns: OrderedDict[Place, _Turn] = OrderedDict()
        # The request in progress that relies on a turn, and the turns of each such request.
        self._reliant: dict[Place, str] = {}
        self._relied_on: dict[str, tuple[Place, ...]] = {}

    def apply(
        self, context: RequestContext, request: Request, cost_bound: CostBound, mappings: tuple[Mapping, ...]
    ) -> CostBound:
        """Return the bound with the part of its prompt's price that is unlikely, for chat with a large prompt."""
        requirements = request.requirements
        if not _is_measurable(request) or requirements.n > 1:
            return cost_bound
        text = requirements.prompt_bytes + MESSAGE_TOKENS * (requirements.messages + 1)
        media = cost_bound.input_tokens - text
        if media < 0:
            return cost_bound
        saved = cost_bound.fixed_nusd
        tier = request.options.service_tier
        for mapping in mappings:
            counts = self._count(context, requirements, mapping.model, text, media)
            saved = min(saved, _saved(mapping, context.at_us, tier, counts))
        return replace(cost_bound, unlikely_nusd=max(0, saved))

    def rely(self, context: RequestContext, mappings: tuple[Mapping, ...]) -> None:
        """Let the request alone rely on the turns of its session that no other relies on, until it is settled or
        `release` is called."""
        if not context.session:
            return
        places = {(context.caller.project_id, context.session, mapping.model) for mapping in mappings}
        taken = tuple(place for place in places if place in self._turns and place not in self._reliant)
        if taken:
            self._relied_on[context.request_id] = taken
            self._reliant.update(dict.fromkeys(taken, context.request_id))

    def release(self, context: RequestContext) -> None:
        """Let other requests rely on the turns that the request relied on. Safe to repeat."""
        for place in self._relied_on.pop(context.request_id, ()):
            self._reliant.pop(place, None)

    def learn(self, context: RequestContext, request: Request, attempt: Attempt) -> None:
        """Count the prompt of a settled request, which relies on no turn any more."""
        if self._relied_on:
            self.release(context)
        usage = attempt.usage
        if usage is None or usage.basis != "provider" or usage.searches or not _is_measurable(request):
            return
        requirements = request.requirements
        model = attempt.target.mapping.model
        size = requirements.prompt_bytes
        tokens = 0
        if not requirements.media:
            tokens = usage.input_total
            own = attempt.target.credential.source == OWN_SOURCE
            owner = context.caller.organization_id if own else ""
            self._learn_density((owner, model, requirements.tools), tokens / size, usage.cache_write_1h > 0)
        if not context.session:
            return
        cached = usage.cache_read + usage.cache_write + usage.cache_write_1h
        place = (context.caller.project_id, context.session, model)
        self._turns[place] = _Turn(attempt.ended, size, tokens, cached)
        self._turns.move_to_end(place)
        if len(self._turns) > MAX_SESSIONS:
            self._turns.popitem(last=False)

    def _learn_density(self, kind: tuple[str, str, bool], measured: float, hourly: bool) -> None:
        known = self._densities.get(kind)
        if known is None:
            self._densities[kind] = _Density(measured, hourly)
            if len(self._densities) > MAX_MODELS:
                self._densities.popitem(last=False)
            return
        self._densities.move_to_end(kind)
        known.samples += 1
        known.hourly = known.hourly or hourly
        known.tokens_per_byte = max(measured, known.tokens_per_byte * (1 - 1 / DECAY))

    def _count(
        self, context: RequestContext, requirements: Requirements, model: str, text: int, media: int
    ) -> "_Counts":
        """Return the likely tokens of a prompt of at most `text` tokens, and `media`."""
        owner = context.caller.organization_id
        measured = [self._densities.get((place, model, requirements.tools)) for place in ("", owner)]
        known = [density for density in measured if density is not None and density.samples >= MIN_SAMPLES]
        if known:
            likely, cached = self._tokens(
                context, requirements, model, MARGIN * max(density.tokens_per_byte for density in known)
            )
            hourly = any(density.hourly for density in known) or self._may_last(context, requirements, model)
        else:
            likely, cached = self._tokens(context, requirements, model, 1 / UNKNOWN_BYTES_PER_TOKEN)
            hourly = True
        likely = min(max(likely, int(LEAST_PER_BYTE * requirements.prompt_bytes)), text)
        return _Counts(text, likely, min(cached, likely), media, hourly)

    def _may_last(self, context: RequestContext, requirements: Requirements, model: str) -> bool:
        """Return whether the prompt may be written for an hour by added marks: at the beginning of a conversation, and
        when its session was silent for so long that the provider has forgotten it."""
        if not context.session:
            return False
        turn = self._turns.get((context.caller.project_id, context.session, model))
        if turn is None or turn.size > requirements.prompt_bytes:
            return context.caller.cache_markers == AUTOMATIC
        return context.started - turn.at > CACHED_S

    def _tokens(
        self, context: RequestContext, requirements: Requirements, model: str, density: float
    ) -> tuple[int, int]:
        """Return the likely tokens of a prompt, and how many of them the provider's cache likely has."""
        size = requirements.prompt_bytes
        place = (context.caller.project_id, context.session, model)
        turn = self._turns.get(place) if context.session else None
        if self._reliant.get(place, context.request_id) != context.request_id:
            turn = None
        if turn is None or turn.size > size:  # a session that was compacted, or another conversation in it
            return int(density * size) + 1, 0
        if turn.tokens:
            tokens = int(MARGIN * turn.tokens + density * (size - turn.size)) + 1
        else:
            tokens = int(density * size) + 1
        fresh = context.started - turn.at <= CACHED_S
        return tokens, int(CACHED_SHARE * turn.cached) if fresh else 0


def _is_measurable(request: Request) -> bool:
    """Return whether the tokens of a prompt follow from its text."""
    needs = request.requirements
    unseen = needs.unseen_media or needs.web_search or needs.hosted or needs.vendor_only or needs.hosted_uses
    large = needs.prompt_bytes >= LARGE_BYTES and needs.units is None
    return large and not unseen and request.operation == ChatRequest.operation


class _Counts(NamedTuple):
    """Tokens of a prompt: the most that its text can count as, the likely number, those of them in the provider's
    cache, and the tokens of media. `hourly`: parts may be written to the cache for an hour."""

    text: int
    likely: int
    cached: int
    media: int
    hourly: bool


def _saved(mapping: Mapping, at_us: int, tier: str, counts: _Counts) -> int:
    """Return by how much the likely price of a prompt at `mapping` is below the highest."""
    most = counts.text + counts.media
    if counts.media and mapping.context_length:
        most = min(most, mapping.context_length)
    total = counts.likely + counts.media
    numerator, denominator = multiplier(mapping, tier)
    fresh = reading = 0
    for rates in reachable_rates(mapping, at_us, total):
        if counts.hourly or counts.media:
            fresh = max(fresh, dearest_input(rates, counts.media > 0))
        else:
            fresh = max(fresh, rates.prompt or 0, rates.input_cache_write or 0)
        reading = max(reading, rates.prompt or 0 if rates.input_cache_read is None else rates.input_cache_read)
    price = (total - counts.cached) * fresh + counts.cached * reading
    price = max(price, -(-price * numerator // denominator))
    highest = most * highest_rates(mapping, at_us // HOUR_US * HOUR_US, tier, counts.media > 0).input
    return highest // MILLION - -(-price // MILLION)
