"""What a reply tells beside the answer itself: who served it, what was used, what it cost."""

from dataclasses import dataclass
from typing import Any
from typing import Protocol as Interface

from gateway.catalogue.prices import Charge
from gateway.dialects.openai import write_usage
from gateway.money import usd_number
from gateway.neutral.usage import NOTHING, Usage


@dataclass(frozen=True, slots=True)
class ReplyFacts:
    """All facts of a finished request.

    `completion_id` is "chatcmpl-…", `created` seconds since the epoch, `external_id` the model's name at the
    provider. `requested_provider` "" = the caller named none. `storage` is nano-dollars for keeping the record, in no
    total. `routing` lists the attempts in wire form (provider,
    model, status_code, error_type, succeeded …). `discount` is a fraction, `extra` further members of the metadata
    (log_id, organization_id, project_id …).
    """

    completion_id: str
    created: int
    request_id: str
    requested_model: str
    used_model: str
    used_provider: str
    external_id: str
    requested_provider: str = ""
    region: str = ""
    usage: Usage | None = None
    charge: Charge | None = None
    storage: int = 0
    routing: tuple[dict[str, Any], ...] = ()
    requested_service_tier: str = ""
    used_service_tier: str = ""
    discount: float = 0.0
    cached: bool = False
    warnings: tuple[str, ...] = ()
    extra: dict[str, Any] | None = None

    @property
    def served(self) -> str:
        """What answered, as the reply's `model`: provider/model, with :region when one was chosen."""
        name = f"{self.used_provider}/{self.used_model}"
        return f"{name}:{self.region}" if self.region else name

    def final(self) -> "ReplyFacts":
        """Facts that are known from the start are their own end."""
        return self


class StreamFacts(Interface):
    """Facts of a request that still runs. `served` is asked for when the first piece of the answer is there."""

    completion_id: str
    created: int

    @property
    def served(self) -> str: ...

    def final(self) -> ReplyFacts:
        """Called once, after the upstream's own end and before the last bytes leave: the place to settle.
        A GatewayError that it raises ends the stream with an error."""
        ...


def write_usage_and_cost(facts: ReplyFacts) -> dict[str, Any]:
    """The `usage` object of a reply, cost in US dollars."""
    body = write_usage(facts.usage or NOTHING)
    charge = facts.charge
    if charge is None:
        return body
    cached = charge.cached_input + charge.audio_cached_input
    output = charge.output + charge.reasoning + charge.audio_output
    body["cost"] = usd_number(charge.total)
    body["cost_details"] = {
        "upstream_inference_cost": usd_number(charge.input + cached + output),
        "upstream_inference_prompt_cost": usd_number(charge.input + cached),
        "upstream_inference_completions_cost": usd_number(output),
        "total_cost": usd_number(charge.total),
        "input_cost": usd_number(charge.input),
        "output_cost": usd_number(output),
        "cached_input_cost": usd_number(cached),
        "cache_write_input_cost": usd_number(charge.cache_write + charge.cache_write_1h),
        "request_cost": usd_number(charge.request),
        "web_search_cost": usd_number(charge.web_search),
        "image_input_cost": usd_number(charge.image_input),
        "image_output_cost": usd_number(charge.image_output + charge.images),
        "audio_input_cost": usd_number(charge.audio_input + charge.audio_seconds),
        "data_storage_cost": usd_number(facts.storage),
    }
    return body


def write_metadata(facts: ReplyFacts) -> dict[str, Any]:
    """The `metadata` object of a reply: who was asked for, who served, by which way."""
    body: dict[str, Any] = {
        "request_id": facts.request_id,
        "requested_model": facts.requested_model,
        "requested_provider": facts.requested_provider or None,
        "used_model": facts.used_model,
        "used_provider": facts.used_provider,
        "underlying_used_model": facts.external_id,
    }
    if facts.region:
        body["used_region"] = facts.region
    if facts.extra:
        body.update(facts.extra)
    if facts.discount:
        body["discount"] = facts.discount
    if facts.cached:
        body["cached"] = True
    if facts.requested_service_tier:
        body["requested_service_tier"] = facts.requested_service_tier
        body["used_service_tier"] = facts.used_service_tier or None
    if facts.warnings:
        body["warnings"] = list(facts.warnings)
    body["routing"] = facts.routing
    return body
