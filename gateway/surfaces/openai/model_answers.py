"""The model list, its entries and their prices as answers."""

from typing import Annotated, Any, Literal

from msgspec import UNSET, Meta, UnsetType, defstruct

from gateway.neutral.units import UNITS, Unit
from gateway.surfaces.web.answer_structs import ModelApiAnswer, describe_answer


def _price_field(unit: Unit) -> tuple[str, Any] | tuple[str, Any, Any]:
    """Return the member of a price in US dollars, or of a table of prices; prices of some units may be absent."""
    kind: Any = dict[str, str] if unit.billed in ("table", "model") else str
    meta = Meta(description=f"US dollars for one {unit.meaning}")
    if unit.listed == "everywhere":
        return unit.price, Annotated[kind, meta]
    return unit.price, Annotated[kind | UnsetType, meta], UNSET


PricingAnswer = defstruct("PricingAnswer", [_price_field(unit) for unit in UNITS if not unit.derived], kw_only=True)
Pricing = Annotated[dict[str, Any], Meta(extra_json_schema=describe_answer(PricingAnswer))]


class ProviderMappingAnswer(ModelApiAnswer):
    """A provider of a model. `batch_multiplier` is the multiplier of its token prices for lines of batches, which its
    batch API serves; "" without one."""

    providerId: str
    externalId: str
    region: str
    supportedVideoSizes: list[str]
    supportsVideoAudio: bool
    supportsVideoWithoutAudio: bool
    pricing: Pricing
    streaming: bool
    vision: bool
    realtime: bool
    cancellation: bool
    tools: bool
    parallelToolCalls: bool
    reasoning: bool
    reasoning_efforts: list[str]
    reasoning_modes: list[str]
    min_cacheable_tokens: int
    max_output: int
    stability: str
    batch_multiplier: str


# An entry of a provider, or its JSON.
ProviderMapping = Annotated[Any, Meta(extra_json_schema=describe_answer(ProviderMappingAnswer))]


class ArchitectureAnswer(ModelApiAnswer):
    input_modalities: list[str]
    output_modalities: list[str]
    tokenizer: str


class TopProviderAnswer(ModelApiAnswer):
    is_moderated: bool = True


ModelStage = Literal["active", "deprecated", "retired"]  # Anthropic's words


class ModelAnswer(ModelApiAnswer, kw_only=True):
    """An entry of the list, with the members of OpenAI's and of Anthropic's model.

    `created` is in seconds since 1970, `created_at` the same time as text (1970 if it is unknown); another date that is
    not set is empty. `successor` is the model that replaces one that is deprecated or ends, "" without one.
    """

    id: str
    object: Literal["model"] = "model"
    type: Literal["model"] = "model"
    owned_by: str
    name: str
    display_name: str
    aliases: list[str]
    created: int
    created_at: str
    description: str
    family: str
    architecture: ArchitectureAnswer
    top_provider: TopProviderAnswer
    providers: list[ProviderMapping]
    pricing: Pricing
    context_length: int
    max_output: int
    per_request_limits: dict[str, str]
    supported_parameters: list[str]
    json_output: bool
    structured_outputs: bool
    free: bool
    deprecated_at: str
    deactivated_at: str
    successor: str
    lifecycle: ModelStage
    stability: str


class ModelListAnswer(ModelApiAnswer, tag_field="object", tag="list"):
    data: list[ModelAnswer]
