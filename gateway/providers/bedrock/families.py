"""A table of the abilities of each vendor's models behind the common format.

Wire facts: Amazon Bedrock user guide, "Supported models and model features" (Converse), "Prompt caching", "Inference
request parameters" of each vendor, Claude's "Extended thinking" and "Adaptive thinking"; API reference, ToolChoice,
ToolResultBlock. Nova refuses cache points among tools.
"""

import re
from typing import Literal

from msgspec import Struct
from msgspec.structs import replace

from gateway.providers.protocol import Target

Place = Literal["system", "messages", "tools"]


class Family(Struct, frozen=True):
    """The abilities of a family of models.

    `reasoning`: how reasoning is requested ("" = the format has no field for it). `cache`: where cache points are
    allowed; `long_cache`: cache points may last an hour. `choices`: the supported tool choices besides auto.
    `full_results`: a tool result may contain images and documents, and report failure. `signed`: past reasoning is
    sent back with its signature. `top_k`: path of the field in the additional request fields. `one_sampling`:
    temperature and top_p exclude each other. `stop_path`: path of the stop sequence in the additional response fields.
    `continues`: the conversation may end with an answer, which the model continues.
    """

    reasoning: Literal["", "budget", "adaptive", "levels", "effort"] = ""
    cache: frozenset[Place] = frozenset()
    long_cache: bool = False
    choices: frozenset[str] = frozenset()
    full_results: bool = False
    signed: bool = False
    top_k: tuple[str, ...] = ()
    one_sampling: bool = False
    stop_path: str = ""
    continues: bool = True


ALL_PLACES: frozenset[Place] = frozenset(("system", "messages", "tools"))
FORCED = frozenset(("required", "tool"))
CLAUDE_BUDGET = Family(
    "budget", ALL_PLACES, True, FORCED, True, True, ("top_k",), one_sampling=True, stop_path="/stop_sequence"
)
CLAUDE_ADAPTIVE = replace(CLAUDE_BUDGET, reasoning="adaptive", continues=False)
NOVA = Family(
    "", frozenset(("system", "messages")), choices=FORCED, full_results=True, top_k=("inferenceConfig", "topK")
)
NOVA_2 = replace(NOVA, reasoning="levels")
EFFORT = Family("effort")
ANY_TOOL = Family(choices=frozenset(("required",)))
OTHER_FAMILIES = Family()

# The first match wins. A pattern may match anywhere in the model's id, which begins with a region and a vendor.
FAMILIES: tuple[tuple[re.Pattern[str], Family], ...] = (
    (re.compile(r"claude-(?:3-|(?:opus|sonnet|haiku)-4-(?:[0-5](?!\d)|20\d{6}))"), CLAUDE_BUDGET),
    (re.compile(r"claude-(?:opus|sonnet|haiku)-4(?!-)"), CLAUDE_BUDGET),
    (re.compile(r"claude-"), CLAUDE_ADAPTIVE),
    (re.compile(r"nova-2"), NOVA_2),
    (re.compile(r"nova-"), NOVA),
    (re.compile(r"gpt-oss|kimi-k2"), EFFORT),
    (re.compile(r"mistral-large|pixtral"), ANY_TOOL),
)


def family_of(target: Target) -> Family:
    """Return the family of the target's model, by its id at the provider or, for an ARN, by its catalogue id."""
    for name in (target.mapping.external_id, target.mapping.model):
        for pattern, family in FAMILIES:
            if pattern.search(name):
                return family
    return OTHER_FAMILIES
