"""Usage rows and intents of attempts. Counts are estimated where the upstream reports none."""

from operator import attrgetter
from typing import Any, NamedTuple, get_type_hints

import msgspec
import orjson

from gateway.billing import unit_estimates
from gateway.billing.context import Attempt, RequestContext, Terms, upstream_text
from gateway.billing.settlement_services import BilledCall
from gateway.callers.access import logs_text
from gateway.callers.credential_sources import OWN_SOURCE
from gateway.catalogue.entries import uses_at
from gateway.catalogue.prices import ORDINARY_TIERS, Charge, cost_of, multiplier, rates_at, reduced
from gateway.errors import GatewayError
from gateway.limits.worker_leases import Reservation
from gateway.metering.models import BASES, BYOK, CAPPED, CREDITS, OVERRUN, RETRIED, SETTLEMENT
from gateway.metering.route_usage import JUDGED, REFERENCE, REFERENCE_NUSD, ROUTE, RULE, SEEN, VERSION
from gateway.metering.usage_table import INSERT_PLAIN, RECORD, UsageRecord, raw_id
from gateway.money import MAX_CALL_NUSD, cost
from gateway.neutral.units import COUNTS, UNITS
from gateway.neutral.usage import NO_USAGE, Usage
from gateway.providers.protocol import Target
from gateway.routes.choices import RouteChoice
from gateway.routing.hosted_rules import unpriced_parts
from gateway.store.journal import Row

INTERRUPTED = "interrupted"
PROVIDER_KEY = "provider_key"
BOUNDED = "bounded"
PRICE_KEY = "price_key"
UPSTREAM_ERROR = "upstream_error"
UNPRICED = "unpriced"  # names of hosted tools without a price
BASIS = {name: number for number, name in enumerate(BASES)}
# Counts and cost components without a column in the table of usage.
RARE_UNITS = (*(name for name in COUNTS if name not in UsageRecord._fields), "calls")
RARE_PARTS = tuple(dict.fromkeys(unit.component for unit in UNITS if not unit.in_columns))
READ_RARE_UNITS = attrgetter(*RARE_UNITS)
READ_RARE_PARTS = attrgetter(*RARE_PARTS)
NOT_ATTRIBUTED = (None, None)  # session and tags of a row without either


class IntentDetails(NamedTuple):
    """The contents of an intent: enough to write the row of an attempt after its worker died, and to count its cost.

    Fields with a default may be missing, because earlier releases wrote intents without them. New fields are added at
    the end, with a default, and `read_intent` leaves out what later releases wrote otherwise. Release 2.0 refuses an
    intent with more fields: for it, the choice of a route is in the place of a price key that is not read, as there
    are no units.
    """

    at: int
    organization: str
    project: str
    key: str
    member: str
    operation: str
    provider: str
    asked: str
    served: str
    source: str
    price_version: str
    label: str
    mode: int
    flags: int
    tokens: int
    cost_nusd: int
    leases: list[tuple[int, str]]
    discount_ppm: int = 0
    discount_nusd: int = 0
    provider_key: str = ""  # the provider key with a spending limit, if the leases include that limit
    units: dict[str, int] | None = None  # units other than text tokens
    parts: dict[str, int] | None = None  # their cost by price component
    price_key: str | dict[str, Any] = ""  # of `units`; without any, the choice of a route as details of the row
    output: int = 0  # output tokens until the intent was written
    output_nusd: int = 0
    session: str | None = None
    tags: str | None = None

    @property
    def route(self) -> dict[str, Any]:
        """The choice of a route as details of the row; {} without one, and for an attempt with units."""
        found = self.price_key
        if isinstance(found, dict) and all(isinstance(found.get(name), kind) for name, kind in ROUTE_MEMBERS):
            return found
        return {}


ROUTE_MEMBERS = ((ROUTE, str), (VERSION, int), (RULE, str))  # those that the row of a route needs
INTENT_TYPES = get_type_hints(IntentDetails)
FEWEST_FIELDS = len(IntentDetails._fields) - len(IntentDetails._field_defaults)


def record_of(terms: Terms, attempt: Attempt, mode: int, now_us: int) -> UsageRecord:
    """Return `row_of` as a record."""
    return UsageRecord(*row_of(terms, attempt, mode, now_us)[1][: len(UsageRecord._fields)])


def row_of(terms: Terms, attempt: Attempt, mode: int, now_us: int, teams: bytes | None = None) -> Row:
    """Return the journal row of a priced attempt; `mode` is the result of `mode_of`, `teams` pay its cost. A missing
    usage counts as zero.

    Built as a tuple: creating a record with named columns costs more than everything else here.
    """
    usage = attempt.usage or NO_USAGE
    charge = attempt.charge
    context = terms.context
    target = attempt.target
    error = attempt.error
    mapping = target.mapping
    flags = terms.flags
    if attempt.number:
        flags |= RETRIED
    if attempt.overrun:
        flags |= OVERRUN
    if attempt.capped:
        flags |= CAPPED
    columns = (
        attempt.at_us,
        now_us,
        charge.total,
        charge.input,
        charge.output + charge.reasoning,
        charge.cached_input,
        charge.cache_write + charge.cache_write_1h,
        usage.input,
        usage.cache_read,
        usage.cache_write + usage.cache_write_1h,
        usage.output,
        usage.reasoning,
        attempt.duration_ms,
        attempt.ttft_ms,
        attempt.number,
        SETTLEMENT,
        attempt.status,
        mode,
        BASIS[usage.basis],
        flags,
        terms.request,
        *terms.billing_identity.ids,
        context.operation,
        target.provider.id,
        terms.requested_model or mapping.model,
        mapping.model,
        context.source,
        attempt.finish or ("error" if error else ""),
        mapping.price_version,
        context.decision,
    )
    extra = extra_of(usage, charge, attempt)
    if terms.hosted_uses:
        extra = _add_unpriced(extra, terms, target)
    ppm = charge.discount_ppm
    attribution = context.attribution
    if extra is None and error is None and not ppm and attribution is None and teams is None:
        return INSERT_PLAIN, columns
    code = None
    label = context.label or None
    if error is not None:
        code = error.code[:64].replace("\0", "")  # PostgreSQL rejects NUL, and upstream codes may contain it
        extra = _add_text(extra, error, context)
    if attribution is not None and attribution.route is not None:
        extra = _add_route(extra, attribution.route, terms, attempt)
    # The storage fee is added where the payload is written.
    saved = charge.saved if ppm else None
    named = NOT_ATTRIBUTED if attribution is None else (attribution.session, attribution.tags)
    return RECORD, (*columns, code, label, extra, None, ppm or None, saved, *named, teams)


def _add_route(extra: str | None, route: RouteChoice, terms: Terms, attempt: Attempt) -> str:
    """Return `extra` with the choice of a route and the cost of the same usage at its reference model."""
    mapping = attempt.target.mapping
    details: dict[str, object] = orjson.loads(extra) if extra else {}
    details |= _describe_route(route)
    usage = attempt.usage or NO_USAGE
    reference_nusd = route.reference_nusd(usage, mapping, terms.context.at_us, attempt.charge.discount_ppm)
    if reference_nusd is not None:
        details[REFERENCE_NUSD] = reference_nusd
    return _write(details)


def _describe_route(route: RouteChoice) -> dict[str, object]:
    """Return the choice of a route as details of a row have it."""
    details: dict[str, object] = {
        ROUTE: route.name,
        VERSION: route.version,
        RULE: route.rule,
        REFERENCE: route.reference,
    }
    if route.turn or route.difficulty:
        details[SEEN] = [route.turn, route.agent, route.difficulty]
    if route.judged is not None:
        details[JUDGED] = [route.judged.model, route.judged.outcome, route.judged.request]
    return details


def _add_unpriced(extra: str | None, terms: Terms, target: Target) -> str | None:
    """Return `extra` with the names of what the request uses and that has no price at the target."""
    names = unpriced_parts(uses_at(target.protocol, target.second, terms.hosted_uses), target.mapping)
    if names:
        return _write({**(orjson.loads(extra) if extra else {}), UNPRICED: names})
    return extra


def _add_text(extra: str | None, error: GatewayError, context: RequestContext) -> str | None:
    """Return `extra` with the provider's error text, unless a policy forbids logging text that may quote the
    request."""
    text = upstream_text(error) if logs_text(context.caller.rules) else ""
    if text:
        return _write({**(orjson.loads(extra) if extra else {}), UPSTREAM_ERROR: text})
    return extra


def mode_of(target: Target) -> int:
    """Return the payer of a call at `target` as stored in a usage row."""
    if target.credential.source == OWN_SOURCE:
        return BYOK
    return CREDITS


def intent_of(
    terms: Terms, number: int, call: BilledCall, reservation: Reservation, used: Usage | None = None
) -> bytes:
    """Return the intent of an attempt. It is written before the upstream call, and again with the usage so far (`used`)
    when the answer was partly delivered.

    If the attempt is never settled, recovery bills `used` or the estimate of the prompt (with its media, less the
    discount), but never more than the reservation.
    """
    target = call.target
    mode = call.mode
    discount_ppm = call.discount_ppm
    call_reservation = call.call_reservation
    bound_nusd = reservation.amount_nusd
    leases = reservation.leases(mode == CREDITS)
    provider_key = ""
    if call_reservation is not None:
        if target.credential.bounded:
            provider_key = target.credential.ident
        bound_nusd = call.bound_nusd(reservation)
        leases = leases + call_reservation.leases(True)
    context = terms.context
    mapping = target.mapping
    caller = context.caller
    details: tuple[Any, ...] = ()
    if (attribution := context.attribution) is not None:
        route = "" if attribution.route is None else _describe_route(attribution.route)
        details = (None, None, route, 0, 0, attribution.session, attribution.tags)  # before there is any usage
    if used is None and terms.units is None:
        tokens = terms.prompt_tokens
        rates = mapping.steady or rates_at(mapping, context.at_us, tokens)
        listed = min(cost(tokens, rates.prompt or 0), bound_nusd, MAX_CALL_NUSD)
    else:
        usage = used or unit_estimates.estimate(terms.units, mapping, terms.prompt_bytes)
        charge = cost_of(usage, mapping, context.at_us)
        tokens = usage.input
        listed = min(charge.total, bound_nusd, MAX_CALL_NUSD)
        whole = listed == charge.total and not discount_ppm
        if whole:
            parts = _named(RARE_PARTS, READ_RARE_PARTS(charge))
            output_nusd = charge.output + charge.reasoning
        else:
            parts = {}
            output_nusd = 0
        counts = _named(RARE_UNITS, READ_RARE_UNITS(usage))
        price_key = usage.price_key if counts or not details else details[2]
        details = (counts, parts, price_key, usage.output, output_nusd, *details[5:])
    cost_nusd = reduced(listed, discount_ppm) if discount_ppm else listed
    return orjson.dumps(
        (
            context.at_us,
            caller.organization_id,
            caller.project_id,
            caller.key_id,
            caller.member_id,
            context.operation,
            target.provider.id,
            terms.requested_model or mapping.model,
            mapping.model,
            context.source,
            mapping.price_version,
            context.label,
            mode,
            terms.flags | RETRIED if number else terms.flags,
            tokens,
            cost_nusd,
            leases,
            discount_ppm,
            listed - cost_nusd,
            provider_key,
            *details,
        )
    )


def read_intent(payload: bytes) -> IntentDetails:
    """Parse an intent, without the fields that a later release added, and with the default of those that it wrote in
    another form. ValueError when the payload is no intent."""
    values = orjson.loads(payload)
    if not isinstance(values, list) or len(values) < FEWEST_FIELDS:
        raise ValueError("not an intent")
    read = {}
    for name, value in zip(IntentDetails._fields, values, strict=False):
        try:
            read[name] = msgspec.convert(value, INTENT_TYPES[name])
        except msgspec.ValidationError:
            if name not in IntentDetails._field_defaults:
                raise
    return IntentDetails(**read)


def interrupted(intent: IntentDetails, request: bytes, attempt: int, now_us: int) -> UsageRecord:
    """Return the usage row of an attempt that was not settled because its worker died."""
    extra: dict[str, object] = {PROVIDER_KEY: intent.provider_key, BOUNDED: True} if intent.provider_key else {}
    extra |= intent.route
    parts = intent.parts or {}
    if intent.units:
        extra |= {"units": intent.units, "nusd": parts, PRICE_KEY: intent.price_key}
    return UsageRecord(
        at=intent.at,
        posted_at=now_us,
        cost_nusd=intent.cost_nusd,
        input_nusd=intent.cost_nusd - sum(parts.values()) - intent.output_nusd,
        output_nusd=intent.output_nusd,
        cached_nusd=0,
        cache_write_nusd=0,
        input=intent.tokens,
        cache_read=0,
        cache_write=0,
        output=intent.output,
        reasoning=0,
        duration_ms=0,
        ttft_ms=0,
        attempt=attempt,
        kind=SETTLEMENT,
        status=0,
        mode=intent.mode,
        basis=BASIS["estimated"],
        flags=intent.flags,
        request=request,
        organization=raw_id(intent.organization),
        project=raw_id(intent.project),
        api_key=raw_id(intent.key),
        member=raw_id(intent.member),
        operation=intent.operation,
        provider=intent.provider,
        asked=intent.asked,
        served=intent.served,
        source=intent.source,
        finish=INTERRUPTED,
        price_version=intent.price_version,
        error=INTERRUPTED,
        label=intent.label or None,
        discount_ppm=intent.discount_ppm or None,
        discount_nusd=intent.discount_nusd if intent.discount_ppm else None,
        session=intent.session,
        tags=intent.tags,
        extra=_write(extra) if extra else None,
    )


def extra_of(usage: Usage, charge: Charge, attempt: Attempt) -> str | None:
    """Return the details of a usage row as JSON, None when there are none: counts and price components without a
    column, the region, a service tier with its own price, the provider key and whether its spending limit counted the
    call."""
    mapping = attempt.target.mapping
    credential = attempt.target.credential
    tier = attempt.service_tier
    own = credential.source == OWN_SOURCE and credential.ident
    if charge.plain and not mapping.region and not own and tier in ORDINARY_TIERS:
        return None  # the usual case
    details: dict[str, object] = {}
    if any(counts := READ_RARE_UNITS(usage)):
        details["units"] = _named(RARE_UNITS, counts)
    if any(amounts := READ_RARE_PARTS(charge)):
        details["nusd"] = _named(RARE_PARTS, amounts)
    if usage.images or usage.video_ms or usage.price_key:
        details[PRICE_KEY] = usage.price_key
    if mapping.region:
        details["region"] = mapping.region
    if multiplier(mapping, tier) != (1, 1):
        details["tier"] = tier
    if own:
        details[PROVIDER_KEY] = credential.ident
        if credential.bounded:
            details[BOUNDED] = True
    if details:
        return _write(details)
    return None


def _named(names: tuple[str, ...], values: tuple[int, ...]) -> dict[str, int]:
    return {name: value for name, value in zip(names, values, strict=True) if value}


def _write(details: dict[str, object]) -> str:
    return orjson.dumps(details).decode()
