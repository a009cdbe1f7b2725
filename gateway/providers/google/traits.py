"""The abilities of a Gemini model, derived from the generation in its name."""

import re

from msgspec import Struct

from gateway.catalogue.entries import Mapping
from gateway.providers.protocol import Target

NUMBERED = re.compile(r"gemini-(\d+(?:\.\d+)?)")
OPEN_THINKER = re.compile(r"gemma-([4-9]|\d\d)")  # the open family thinks by level from its fourth generation on
FAMILY = "gemini"
PRO = "-pro"
LITE = "-lite"
# Names without a number ("gemini-flash-latest") mean the newest generation; other families count as the oldest.
NEWEST = 3.0
OLDEST = 2.0
PUBLISHERS = "/publishers/"
# First generation with adjustable filters off by default (guide, safety settings).
UNFILTERED_FROM = 2.5
TRAITS_KEY = "traits"  # key in `Target.memo`


class Traits(Struct, frozen=True):
    """The traits of one target's model.

    `generation` is a number such as 2.5 or 3.0. `enterprise`: the address belongs to Vertex AI. `filtered`: the API
    filters prompts by default.
    """

    generation: float
    enterprise: bool
    pro: bool
    lite: bool
    open: bool
    filtered: bool = False

    @property
    def signed(self) -> bool:
        """Whether calls of the current turn must carry a thought signature (guide, thought signatures)."""
        return self.generation >= 3

    @property
    def levels(self) -> bool:
        """Whether thinking is set by a level instead of a budget (guide, thinking)."""
        return self.generation >= 3 or self.open

    @property
    def default_levels(self) -> tuple[str, ...]:
        """The thinking levels of a model without levels in its catalogue entry (guide, thinking levels by model)."""
        if self.open:
            return ("minimal", "high")
        if self.pro:
            if self.generation == 3:
                return ("low", "high")
            return ("low", "medium", "high")
        return ("minimal", "low", "medium", "high")

    @property
    def json_schema(self) -> bool:
        """Whether the API accepts JSON Schema (reference, responseJsonSchema and parametersJsonSchema)."""
        return self.generation >= 2.5

    @property
    def media_results(self) -> bool:
        """Whether a function response may contain media (guide, multimodal function responses)."""
        return self.generation >= 3

    @property
    def mixed_tools(self) -> bool:
        """Whether one request may combine search, functions and JSON output (guide, tool combination)."""
        return self.generation >= 3


def traits_of(target: Target) -> Traits:
    """Return the traits of a target's model, cached in the target."""
    traits: Traits = target.memo.get(TRAITS_KEY) or _read_traits(target)
    return traits


def _read_traits(target: Target) -> Traits:
    name = target.mapping.external_id.lower()
    traits = target.memo[TRAITS_KEY] = Traits(
        generation=generation_of(name),
        enterprise=PUBLISHERS in f"{target.address}/",
        pro=PRO in name,
        lite=LITE in name,
        open=bool(OPEN_THINKER.search(name)),
        filtered=0 < numbered_generation(name) < UNFILTERED_FROM,
    )
    return traits


def generation_of(name: str) -> float:
    """Return the generation of a model by its name."""
    return numbered_generation(name) or (NEWEST if FAMILY in name else OLDEST)


def numbered_generation(name: str) -> float:
    """Return the generation number in a model's name, or 0.0 for a name without one."""
    match = NUMBERED.search(name)
    if match:
        return float(match[1])
    return 0.0


def makes_images(mapping: Mapping) -> bool:
    return "images" in mapping.operations
