"""The choice that a route made for a request, as its usage row, its answer and explanations name it."""

from typing import Annotated, NotRequired, TypedDict

from msgspec import Meta, Struct

from gateway.catalogue.entries import Mapping
from gateway.catalogue.prices import cost_of, reduced
from gateway.money import usd_number
from gateway.neutral.usage import Usage

# How a model that judges difficulty answered: now, or for an earlier turn with the same text; too late, or not at all.
DECIDED, KNOWN, LATE, FAILED = "decided", "known", "late", "failed"


class JudgedDifficulty(Struct, frozen=True):
    """The judgement of a model about a turn: `difficulty` is "" if it failed; `request` is the id of the separate
    request that asked the model."""

    model: str
    outcome: str
    difficulty: str
    request: str


class JudgeAnswer(TypedDict):
    """The model that judged the difficulty, how it answered (decided, known, late or failed), and the id of the
    request to it."""

    model: str
    outcome: str
    requestId: str


class RouteChoiceAnswer(TypedDict):
    """The choice of a route, as answers show it. `wanted` is the model that the rule names while the session keeps
    another one."""

    name: str
    version: int
    rule: str
    reference: Annotated[str, Meta(examples=["claude-opus-5-5"])]
    models: NotRequired[list[str]]
    turn: NotRequired[str]
    agent: NotRequired[str]
    difficulty: NotRequired[str]
    judge: NotRequired[JudgeAnswer]
    wanted: NotRequired[str]
    lostCacheCost: NotRequired[float]


class RouteChoice(Struct, frozen=True, eq=False):
    """A version of a route and its rule that chose `models`, tried in this order. `kept`: the session stays with one
    although the rule names another one (`wanted`). `turn`, `agent` and `difficulty` are "" where no rule needed
    them. `lost_cache_nusd` is the price of a changed model, because its provider has not cached the prompt.
    `judged` is the judgement of a model about the difficulty. `references` are the mappings of the reference model,
    `last_resort` the model that is tried if none of `models` can serve.
    """

    name: str
    version: int
    rule: str
    models: tuple[str, ...]
    turn: str = ""
    agent: str = ""
    difficulty: str = ""
    judged: JudgedDifficulty | None = None
    kept: bool = False
    wanted: str = ""
    lost_cache_nusd: int = 0
    reference: str = ""
    references: tuple[Mapping, ...] = ()
    last_resort: str = ""

    def reference_nusd(self, usage: Usage, served: Mapping, at_us: int, discount_ppm: int) -> int | None:
        """Return the cost of the same usage at the reference model, at the provider that served if it has that model;
        None without a price. It has the discount of the call."""
        mapping = mapping_at(self.references, served.provider)
        if mapping is None:
            return None
        return reduced(cost_of(usage, mapping, at_us).total, discount_ppm)

    @property
    def label(self) -> str:
        """The route as headers and logs name it."""
        return f"{self.name}; version={self.version}; rule={self.rule}"


def mapping_at(mappings: tuple[Mapping, ...], provider: str) -> Mapping | None:
    """Return the mapping at a provider, else the first one; None without any."""
    return next((one for one in mappings if one.provider == provider), None) or next(iter(mappings), None)


def describe(choice: RouteChoice) -> RouteChoiceAnswer:
    """Return a choice as answers show it."""
    shown = RouteChoiceAnswer(
        name=choice.name,
        version=choice.version,
        rule=choice.rule,
        models=list(choice.models),
        reference=choice.reference,
    )
    if choice.turn:
        shown["turn"] = choice.turn
    if choice.agent:
        shown["agent"] = choice.agent
    if choice.difficulty:
        shown["difficulty"] = choice.difficulty
    if choice.judged is not None:
        judged = choice.judged
        shown["judge"] = JudgeAnswer(model=judged.model, outcome=judged.outcome, requestId=judged.request)
    if choice.kept:
        shown["wanted"] = choice.wanted
    if choice.lost_cache_nusd:
        shown["lostCacheCost"] = usd_number(choice.lost_cache_nusd)
    return shown
