"""The answers about the request log: a request, its upstream calls, and the retained payload."""

from collections.abc import Mapping
from typing import Annotated, Any

from msgspec import Meta

from gateway.billing.usage_rows import UNPRICED, UPSTREAM_ERROR
from gateway.callers.credential_sources import API_KEYS, CREDITS
from gateway.metering.log.records import LoggedRequest, input_of, output_of
from gateway.metering.models import BYOK
from gateway.metering.route_usage import REFERENCE, REFERENCE_NUSD, ROUTE, RULE, VERSION
from gateway.metering.usage_table import UsageRecord
from gateway.money import format_usd
from gateway.surfaces.web.answer_structs import Answer, Time, Usd, to_camel

MODES = (CREDITS, API_KEYS)
CREDENTIAL_REFUSALS = (401, 403)  # statuses with which a provider rejects a credential
# Cost components that have a column in the usage row.
COMPONENTS = {
    "inputCost": "input_nusd",
    "outputCost": "output_nusd",
    "cachedInputCost": "cached_nusd",
    "cacheWriteInputCost": "cache_write_nusd",
}


class LogAnswer(Answer):
    id: str
    request_id: str | None
    request_count: int
    created_at: Time
    project_id: str
    api_key_id: str
    operation: str | None
    path: str | None
    model: str
    served: str | None
    provider: str | None
    status: int
    error: str | None
    finish: str | None
    streamed: bool
    cached: bool
    mode: str | None
    source: str | None
    attempts: int
    input_tokens: int
    output_tokens: int
    duration_ms: int
    cost: Usd
    data_storage_cost: Usd
    discount_savings: Usd
    session: str | None
    metadata: Mapping[str, str]
    retained: bool
    request_bytes: int | None
    response_bytes: int | None
    expires_at: Time | None


class LoggedRouteAnswer(Answer):
    """The route that chose the model. `alternative_cost` is that of the same usage at the route's reference model, null
    without a price."""

    name: str
    version: int
    rule: str
    reference: Annotated[str, Meta(examples=["claude-opus-5-5"])]
    alternative_cost: Usd | None


class LoggedAttemptAnswer(Answer):
    """An upstream call. `costs` are the components that add up to `cost`; `unpriced` names what has no price."""

    number: int
    started_at: Time
    provider: str
    model: str
    region: str | None
    status: int
    error: str | None
    upstream_error: str | None
    finish: str | None
    mode: str
    usage_basis: str
    duration_ms: int
    time_to_first_token_ms: int | None
    input_tokens: int
    cached_tokens: int
    cache_write_tokens: int
    output_tokens: int
    reasoning_tokens: int
    cost: Usd
    costs: Mapping[str, str]
    unpriced: list[str]
    data_storage_cost: Usd
    discount_savings: Usd
    route: LoggedRouteAnswer | None
    price_version: str | None


class LoggedBodyAnswer(Answer):
    text: str
    encoding: str
    bytes: int
    truncated: bool


class UpstreamExchangeAnswer(Answer):
    provider: str
    model: str
    method: str
    url: str
    request: str
    status: int
    response: str
    truncated: bool


class LogPageAnswer(Answer):
    logs: list[LogAnswer]
    next: str | None


class LogDetailsAnswer(Answer):
    log: LogAnswer
    attempts: list[LoggedAttemptAnswer]
    routing: Mapping[str, Any] | None
    request: LoggedBodyAnswer | None
    response: LoggedBodyAnswer | None
    upstream: list[UpstreamExchangeAnswer]


def show_request(request: LoggedRequest) -> LogAnswer:
    """Return a request as lists show it."""
    last = request.last
    served = request.served
    payload = request.payload
    return LogAnswer.of(
        request,
        id=request.request_id,
        request_id=request.label or None,
        request_count=request.requests,
        created_at=request.at_us,
        project_id=f"proj_{request.owner.project.hex()}",
        api_key_id=f"key_{request.owner.api_key.hex()}",
        operation=request.operation or None,
        path=request.path or None,
        model=request.asked,
        served=f"{served.provider}/{served.served}" if served else None,
        provider=last.provider if last else None,
        error=request.error or None,
        finish=request.finish or None,
        mode=MODES[request.byok] if last else None,
        source=request.source or None,
        attempts=len(request.attempts),
        data_storage_cost=request.storage_nusd,
        discount_savings=request.discount_nusd,
        session=request.session or None,
        metadata=request.tags,
        retained=payload is not None,
        request_bytes=payload.sent_bytes if payload else None,
        response_bytes=payload.answer_bytes if payload else None,
        expires_at=payload.expires_at if payload else None,
    )


def show_attempt(record: UsageRecord, for_operator: bool = False) -> LoggedAttemptAnswer:
    """Return an upstream call. Only the operator sees why a provider rejected the platform's credential."""
    details = record.details
    parts = {name: getattr(record, column) for name, column in COMPONENTS.items()}
    parts |= {f"{to_camel(name)}Cost": nusd for name, nusd in details.get("nusd", {}).items()}
    return LoggedAttemptAnswer.of(
        record,
        number=record.attempt,
        started_at=record.at,
        model=record.served,
        region=details.get("region"),
        upstream_error=details.get(UPSTREAM_ERROR) if for_operator or _concerns_tenant(record) else None,
        finish=record.finish or None,
        mode=MODES[record.mode == BYOK],
        time_to_first_token_ms=record.ttft_ms or None,
        input_tokens=input_of(record),
        cached_tokens=record.cache_read,
        cache_write_tokens=record.cache_write,
        output_tokens=output_of(record),
        reasoning_tokens=record.reasoning,
        costs={name: format_usd(nusd) for name, nusd in parts.items() if nusd or name in COMPONENTS},
        unpriced=details.get(UNPRICED, []),
        data_storage_cost=record.storage_nusd or 0,
        discount_savings=record.discount_nusd or 0,
        route=_show_route(details),
        price_version=record.price_version or None,
    )


def _show_route(details: Mapping[str, Any]) -> LoggedRouteAnswer | None:
    if ROUTE not in details:
        return None
    return LoggedRouteAnswer.of(
        name=details[ROUTE],
        version=details[VERSION],
        rule=details[RULE],
        reference=details[REFERENCE],
        alternative_cost=details.get(REFERENCE_NUSD),
    )


def _concerns_tenant(record: UsageRecord) -> bool:
    """Return whether the provider's error text concerns the tenant, not the operator's account."""
    return record.status not in CREDENTIAL_REFUSALS or record.mode == BYOK
