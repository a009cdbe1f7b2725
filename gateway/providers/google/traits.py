"""What a Gemini model takes, by the generation in its name."""

import re
from dataclasses import dataclass

from gateway.catalogue.entries import Mapping
from gateway.providers.protocol import Target

NUMBERED = re.compile(r"gemini-(\d+(?:\.\d+)?)")
OPEN_THINKER = re.compile(r"gemma-([4-9]|\d\d)")  # the open family thinks by level from its fourth generation on
FAMILY = "gemini"
PRO = "-pro"
LITE = "-lite"
# Names without a number ("gemini-flash-latest") stand for the newest; other families take what the oldest took.
NEWEST = 3.0
OLDEST = 2.0
PUBLISHERS = "/publishers/"
# Guide, safety settings: the filters that can be set are off by default from this generation on.
UNFILTERED_FROM = 2.5
TRAITS = "traits"  # what a target keeps of it


@dataclass(frozen=True, slots=True)
class Traits:
    """`generation` such as 2.5 or 3.0; `enterprise`: the address is Vertex AI's; `filtered`: prompts are by default."""

    generation: float
    enterprise: bool
    pro: bool
    lite: bool
    open: bool
    filtered: bool = False

    @property
    def signed(self) -> bool:
        """Calls of the current turn must carry a thought signature (guide, thought signatures)."""
        return self.generation >= 3

    @property
    def levels(self) -> bool:
        """Thinking is set by a level instead of a budget (guide, thinking)."""
        return self.generation >= 3 or self.open

    @property
    def usual_levels(self) -> tuple[str, ...]:
        """The levels of a model whose entry names none (guide, thinking levels by model)."""
        if self.open:
            return ("minimal", "high")
        if self.pro:
            if self.generation == 3:
                return ("low", "high")
            return ("low", "medium", "high")
        return ("minimal", "low", "medium", "high")

    @property
    def json_schema(self) -> bool:
        """Schemas may be JSON Schema (reference, responseJsonSchema and parametersJsonSchema)."""
        return self.generation >= 2.5

    @property
    def media_results(self) -> bool:
        """A function's response may hold media (guide, multimodal function responses)."""
        return self.generation >= 3

    @property
    def mixed_tools(self) -> bool:
        """Search and functions, or functions and JSON output, in one request (guide, tool combination)."""
        return self.generation >= 3


def traits_of(target: Target) -> Traits:
    """Those of a target's model, worked out once."""
    traits: Traits = target.memo.get(TRAITS) or _read_traits(target)
    return traits


def _read_traits(target: Target) -> Traits:
    name = target.mapping.external_id.lower()
    traits = target.memo[TRAITS] = Traits(
        generation=generation_of(name),
        enterprise=PUBLISHERS in f"{target.address}/",
        pro=PRO in name,
        lite=LITE in name,
        open=bool(OPEN_THINKER.search(name)),
        filtered=0 < numbered_generation(name) < UNFILTERED_FROM,
    )
    return traits


def generation_of(name: str) -> float:
    """The generation in a model's name."""
    return numbered_generation(name) or (NEWEST if FAMILY in name else OLDEST)


def numbered_generation(name: str) -> float:
    """The generation in the name of a model of the numbered family; 0.0 for all others."""
    found = NUMBERED.search(name)
    if found:
        return float(found[1])
    return 0.0


def makes_images(mapping: Mapping) -> bool:
    return "images" in mapping.operations
