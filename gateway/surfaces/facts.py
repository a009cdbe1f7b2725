"""What every reply tells beside the answer itself: who served it, what it cost, by which way. Same in all dialects."""

from typing import Any

from gateway.catalogue.prices import FREE, Charge
from gateway.clock import SECOND_US, Clock
from gateway.engine.context import RequestContext
from gateway.engine.outcome import Attempt, Outcome
from gateway.limits import rates
from gateway.money import MILLION, format_usd, usd_number
from gateway.neutral.usage import NOTHING, Usage

Header = tuple[str, str]


class Facts:
    """The facts of one request. `usage`, `charge` and the trail are known once its last attempt is settled.

    `answer_id` is the id that the reply carries in its dialect, e.g. "chatcmpl-…".
    """

    def __init__(self, context: RequestContext, outcome: Outcome, answer_id: str) -> None:
        self.context = context
        self.outcome = outcome
        # An answer that is given again keeps the id that it was first given under.
        self.answer_id = answer_id.replace(context.request_id, outcome.origin) if outcome.origin else answer_id
        self.created = context.at_us // SECOND_US

    # Asked for several times in each answer, so these read `attempts[-1]` themselves.
    @property
    def serving(self) -> Attempt:
        return self.outcome.attempts[-1]

    @property
    def served(self) -> str:
        """What answered, as the reply's `model`: provider/model, with :region when one was chosen."""
        return self.outcome.attempts[-1].target.mapping.key

    @property
    def usage(self) -> Usage:
        return self.outcome.attempts[-1].usage or NOTHING

    @property
    def charge(self) -> Charge:
        return self.outcome.attempts[-1].charge or FREE

    @property
    def service_tier(self) -> str:
        return self.outcome.attempts[-1].service_tier

    def cost(self) -> dict[str, Any]:
        """`cost` and `cost_details` of the usage object, US dollars (HTTP reference, section 2.2)."""
        charge = self.charge
        prompt = usd_number(charge.input + charge.cached_input)
        output_nusd = charge.output + charge.reasoning
        inference = charge.input + charge.cached_input + output_nusd
        output, total = usd_number(output_nusd), usd_number(charge.total)
        details = {
            "upstream_inference_cost": usd_number(inference),
            "upstream_inference_prompt_cost": prompt,
            "upstream_inference_completions_cost": output,
            "total_cost": total,
            "input_cost": usd_number(charge.input),
            "output_cost": output,
            "cached_input_cost": usd_number(charge.cached_input),
            **(_rare_costs(charge) if charge.total != inference else NO_RARE_COSTS),
        }
        return {"cost": total, "cost_details": details}

    def metadata(self) -> dict[str, Any]:
        """The `metadata` object: who was asked for, who served, by which way (HTTP reference, section 2.2)."""
        context, target = self.context, self.serving.target
        body: dict[str, Any] = {
            "request_id": context.shown_id,
            "requested_model": self.outcome.request.asked,
            "requested_provider": self.outcome.requested_provider,
            "used_model": target.mapping.model,
            "used_provider": target.provider.id,
            "underlying_used_model": target.mapping.external_id,
            "log_id": context.request_id,
            "organization_id": context.caller.organization_id,
            "project_id": context.caller.project_id,
            "routing": self.outcome.trail(),
        }
        if target.mapping.region:
            body["used_region"] = target.mapping.region
        if self.charge.discount_ppm:
            body["discount"] = self.charge.discount_ppm / MILLION
        if self.outcome.cached:
            body["cached"] = True
        asked_tier = self.outcome.request.options.service_tier
        if asked_tier:
            body["requested_service_tier"] = asked_tier
            body["used_service_tier"] = self.service_tier or None
        if self.outcome.healing:
            body["healing"] = list(self.outcome.healing)
        if self.outcome.warnings:
            body["warnings"] = list(self.outcome.warnings)
        return body


def _rare_costs(charge: Charge) -> dict[str, float]:
    """The members of `cost_details` that most requests have nothing of."""
    return {
        "cache_write_input_cost": usd_number(charge.cache_write + charge.cache_write_1h),
        "request_cost": usd_number(charge.request),
        "web_search_cost": usd_number(charge.web_search),
        "image_input_cost": usd_number(charge.image_input),
        "image_output_cost": usd_number(charge.image_output + charge.images),
        "audio_input_cost": usd_number(charge.audio_input + charge.audio_cached_input),
        "audio_output_cost": usd_number(charge.audio_output),
        "data_storage_cost": 0.0,
    }


NO_RARE_COSTS = _rare_costs(FREE)


def headers_of(facts: Facts, clock: Clock, *, streamed: bool) -> list[Header]:
    """The `x-llmgateway-*` headers. A stream's cost is not known when its headers leave: its last chunk has it."""
    context, outcome = facts.context, facts.outcome
    attempt = facts.serving
    headers = [
        ("x-llmgateway-provider", attempt.target.provider.id),
        ("x-llmgateway-attempts", str(len(outcome.attempts))),
    ]
    if outcome.cached:
        headers.append(("x-llmgateway-cache", "HIT"))
    if outcome.standings:
        headers += rates.headers(outcome.standings, clock.now_us())
    if streamed:
        return headers
    spent_ms = (clock.monotonic() - context.started) * 1000 - sum([one.duration_ms for one in outcome.attempts])
    headers.append(("x-llmgateway-overhead-ms", f"{max(0.0, spent_ms):.1f}"))
    headers.append(("x-llmgateway-cost", format_usd(facts.charge.total)))
    if attempt.target.mapping.price_version:
        headers.append(("x-llmgateway-price-version", attempt.target.mapping.price_version))
    return headers
