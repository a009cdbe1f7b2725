"""The operations of /v1/ai, /v3/ai and /v4/ai, and the credits operation that their clients also call."""

from collections.abc import Iterable, Iterator
from functools import partial, wraps
from typing import Literal

import msgspec
import orjson
from msgspec import UNSET, Raw, UnsetType

from gateway.billing.context import RequestContext
from gateway.callers.access import CUSTOM, Predicate, predicate
from gateway.callers.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.lifecycle import has_ended
from gateway.catalogue.prices import prices_at
from gateway.clock import DAY_US
from gateway.dialects import aisdk as dialect
from gateway.dialects import openai
from gateway.dialects.field_names import restate
from gateway.errors import GatewayError, NotSupported, UnknownModel
from gateway.money import format_price
from gateway.routes.route_book import SMART_LISTED
from gateway.runtime.threads import compute
from gateway.surfaces.aisdk import reader, schema, stream, writer
from gateway.surfaces.aisdk.writer import GeneratedAnswer, StreamPart
from gateway.surfaces.web import attribution as attribution_module
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web import listing as listing_module
from gateway.surfaces.web.answer_structs import Answer, ModelApiAnswer, Usd, describe_answer
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import About, ErrorFormat, HeaderParameter, Inbound, Operation, Outbound, Surface
from gateway.surfaces.web.http_responses import json_reply
from gateway.surfaces.web.listing import beyond, lists_available, reach_of, within
from gateway.worker.services import Services

# `GET …/config`: the language models that a key can call, with an entry for each provider and prices.
#
# The format is the response schema of `@ai-sdk/gateway`; there a single entry of another version invalidates the
# whole list.

CONFIG_HEAD = b'{"models":['
END = b"]}"
OPERATION = "chat"
MODALITY = "text"
ROUTES = "llmgateway"  # the provider of routes
NEWEST = 4
VERSION_MEMBER = b'"specificationVersion":"v%d"'  # within a text its quotation marks are escaped


class LanguagePricingAnswer(ModelApiAnswer):
    """Prices as clients know them; the last two are absent where a provider has none."""

    input: str
    output: str
    input_cache_read: str | UnsetType = UNSET
    input_cache_write: str | UnsetType = UNSET


class SpecificationAnswer(Answer, kw_only=True):
    specification_version: str = f"v{NEWEST}"
    provider: str
    model_id: str


class LanguageModelAnswer(Answer, kw_only=True):
    id: str
    name: str
    description: str
    model_type: Literal["language"] = "language"
    pricing: LanguagePricingAnswer | None
    specification: SpecificationAnswer


class LanguageModelListAnswer(Answer):
    models: list[LanguageModelAnswer]


def show_config(version: int, services: Services, inbound: Inbound) -> Outbound:
    """List the language models that the key may call, first those with a credential. `available=true` keeps only models
    with a credential."""
    caller = auth_module.caller_of(services, inbound)
    reach = reach_of(services, caller)
    only_reach = lists_available(services, inbound)
    at_us = services.clock.now_us()
    holder = services.routing.catalogue
    catalogue = holder.current()
    refuse = predicate(caller.rules, at_us)
    key = ("ai models", catalogue.version, at_us // DAY_US, caller.rules, reach, only_reach)
    # The entries are serialized once for all versions and rules.
    known: dict[str, bytes] = holder.remember(("ai model entries", catalogue.version, at_us // DAY_US), dict)

    def make() -> tuple[str, bytes]:
        shows = within(reach, refuse)
        entries = [*_serialise(catalogue, catalogue.models.values(), at_us, shows, known)]
        if not only_reach:
            shows = beyond(reach, refuse)
            entries += _serialise(catalogue, catalogue.models.values(), at_us, shows, known)
        entries[:0] = [_route_entry(name, listing_module.SMART_DESCRIPTION) for name in SMART_LISTED]
        return _tagged(_as_version(CONFIG_HEAD + b",".join(entries) + END, version))

    tag, shared = holder.remember((*key, version), lambda: compute(make))
    own = services.routing.custom_catalogue.of(caller)
    models = listing_module.own_models(catalogue, own.current()) if _reads_own(caller) else []
    routes = [name for name, _ in listing_module.organization_routes(services, caller)]
    if not models and not routes:
        return listing_module.reply(inbound, holder, tag, (shared,))

    def make_own() -> tuple[str, bytes]:
        entries = [_route_entry(name, listing_module.ROUTE_DESCRIPTION) for name in routes]
        entries += _serialise(own.current(), models, at_us, refuse, {})
        body = _as_version(CONFIG_HEAD + b",".join(entries) + END, version)
        return _tagged(_join(body, shared))

    own_key = (*key, version, bool(models), *routes)
    tag, body = services.routing.custom_catalogue.listed(own, own_key, make_own)
    return listing_module.reply(inbound, own, tag, (body,))


def _route_entry(name: str, description: str) -> bytes:
    """Return the entry of a name of a route; its price is that of the model that it chooses."""
    specification = SpecificationAnswer(provider=ROUTES, model_id=name)
    return LanguageModelAnswer(
        id=name, name=name, description=description, pricing=None, specification=specification
    ).encode()


def _reads_own(caller: Caller) -> bool:
    """Return whether the caller may see the organization's own models; customer keys may not."""
    return caller.key_kind == "user"


def _as_version(newest: bytes, version: int) -> bytes:
    """Return the list in the format of clients of `version`."""
    return newest.replace(VERSION_MEMBER % NEWEST, VERSION_MEMBER % version)


def _tagged(body: bytes) -> tuple[str, bytes]:
    return listing_module.tag_of(body), body


def _join(first: bytes, second: bytes) -> bytes:
    former = first[len(CONFIG_HEAD) : -len(END)]
    latter = second[len(CONFIG_HEAD) : -len(END)]
    return CONFIG_HEAD + former + (b"," if former and latter else b"") + latter + END


def _serialise(
    catalogue: Catalogue, models: Iterable[Model], at_us: int, refuse: Predicate | None, known: dict[str, bytes]
) -> Iterator[bytes]:
    """Return the entries as JSON; `known` caches those of this catalogue and day by the mapping's key."""
    for model in models:
        if model.output_modalities and MODALITY not in model.output_modalities:
            continue
        for mapping in model.mappings:
            provider = catalogue.providers[mapping.provider]
            if not _serves(mapping, provider, at_us) or (refuse is not None and refuse(mapping, provider) is not None):
                continue
            if mapping.key not in known:
                known[mapping.key] = _entry(model, mapping, provider, at_us).encode()
            yield known[mapping.key]


def _serves(mapping: Mapping, provider: Provider, at_us: int) -> bool:
    """Return whether the mapping can be called for text at all."""
    if OPERATION not in mapping.operations or provider.priority <= 0:
        return False
    return mapping.priced and not has_ended(mapping, day_of(at_us))


def _entry(model: Model, mapping: Mapping, provider: Provider, at_us: int) -> LanguageModelAnswer:
    ident = mapping.key.removeprefix(f"{CUSTOM}:")
    return LanguageModelAnswer(
        id=ident,
        name=model.name,
        description=model.description or f"{model.name} by {provider.name}.",
        pricing=_pricing(mapping, at_us),
        specification=SpecificationAnswer(provider=mapping.provider.removeprefix(f"{CUSTOM}:"), model_id=ident),
    )


def _pricing(mapping: Mapping, at_us: int) -> LanguagePricingAnswer | None:
    """Return today's base prices, exact decimal strings of USD per token."""
    prices = prices_at(mapping.prices, at_us)
    if prices is None:
        return None
    rates = prices.base
    return LanguagePricingAnswer(
        format_price(rates.prompt or 0),
        format_price(rates.completion or 0),
        _write_price(rates.input_cache_read),
        _write_price(rates.input_cache_write),
    )


def _write_price(price: int | None) -> str | UnsetType:
    if price is None:
        return UNSET
    return format_price(price)


# The part of a body that is retained: all except its member `headers`, in which clients repeat the caller's own
# headers, secrets included.

HEADERS_MEMBER = "headers"


def without_headers(body: bytes) -> bytes:
    """Return the body without the member, all else byte for byte; nothing for a body that is not a JSON object."""
    if len(body) < caps_module.LARGE:
        return _strip(body)
    return compute(_strip, body)


def _strip(body: bytes) -> bytes:
    try:
        members = msgspec.json.decode(body, type=dict[str, Raw])
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError):
        return b""
    if members.pop(HEADERS_MEMBER, None) is not None:
        return msgspec.json.encode(members)
    return body


# `GET /v1/credits`: the organization's remaining credits. Clients of every major call it at the root of the base URL,
# and read errors only in the format of this surface.

CREDITS_PATH = "/v1/credits"


class CreditsLeftAnswer(ModelApiAnswer):
    """The balance, and lifetime spending in both spellings that clients use."""

    balance: Usd
    unlimited: bool
    total_used: Usd
    totalUsed: Usd


def show_credits(services: Services, inbound: Inbound) -> Outbound:
    """Show the organization's balance and lifetime spending."""
    caller = auth_module.require_user_key(auth_module.caller_of(services, inbound))
    balance = services.billing.ledger.balance(caller.organization_id)
    answer = CreditsLeftAnswer.of(balance, total_used=balance.spent_nusd, totalUsed=balance.spent_nusd)
    return json_reply(answer.encode(), inbound.shown_id)


# Prefix → the specification version of its clients where no header names another.
PREFIXES = {"/v1/ai": 2, "/v3/ai": 3, "/v4/ai": 4}
NOT_FOUND = 404


def ask(of_prefix: int, services: Services, inbound: Inbound) -> Outbound:
    """Call a language model, complete or streamed; headers select model, version and streaming."""
    try:
        return _ask(of_prefix, services, inbound)
    except UnknownModel as error:
        error.status = NOT_FOUND
        raise
    except NotSupported as error:
        raise restate(error, dialect.NAME) from error


def _ask(of_prefix: int, services: Services, inbound: Inbound) -> Outbound:
    context = auth_module.admit(services, inbound, "chat", dialect.NAME)
    if inbound.payload is not None:
        inbound.payload.send_instead(without_headers(inbound.body))
    version = reader.version_of(inbound, of_prefix)
    question = reader.read_question(inbound, version, services.settings.limits)
    attribution_module.add_body(context, question.request.user)
    if question.request.requirements.stream:
        return _stream(services, context, question)
    answer = services.engine.chat.generate(context, question.request)
    facts = Facts(context, answer.outcome, writer.ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)
    shown_id = context.shown_id
    return http_responses_module.result_reply(
        answer.result, writer.reply, facts, question, request_id=shown_id, headers=headers
    )


def _stream(services: Services, context: RequestContext, question: reader.Question) -> Outbound:
    answering = services.engine.chat.stream(context, question.request)
    facts = Facts(context, answering.outcome, writer.ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    return http_responses_module.stream_reply(stream.frames(answering, facts, question), context.shown_id, headers)


def _write_frame(error: GatewayError, request_id: str) -> bytes:
    """Return the last frame of a stream that failed: a part of another kind would block a client."""
    return b"data: %b\n\n" % orjson.dumps(dialect.error_part(error, request_id))


ERRORS = ErrorFormat(
    dialect.NAME,
    dialect.error_body,
    describe_answer(openai.ErrorBody),
    frame=_write_frame,
)
HEADERS = (
    HeaderParameter(
        reader.MODEL_HEADER, "The model: provider/model, a bare id, or auto.", required=True, example="auto"
    ),
    HeaderParameter(reader.STREAMING_HEADER, "Whether the response is streamed.", ("true", "false")),
    HeaderParameter(
        reader.VERSION_HEADER, "Version of requests and responses; default: that of the path.", tuple(reader.VERSIONS)
    ),
)
TAG = "AI SDK"
ASK = About(
    "Call a language model (AI SDK)",
    TAG,
    request=schema.CallOptions,
    answer=GeneratedAnswer,
    headers=HEADERS,
    events=StreamPart,
)
ERROR_STATUSES = (401, 403, 410, 503)
CONFIG = About(
    "List the language models that a key may call (AI SDK)",
    TAG,
    answer=LanguageModelListAnswer,
    errors=ERROR_STATUSES,
)
CREDITS = About("Show the organization's credits", TAG, answer=CreditsLeftAnswer, errors=ERROR_STATUSES)


def _operations() -> Iterator[Operation]:
    for prefix, version in PREFIXES.items():
        answer = wraps(ask)(partial(ask, version))
        yield Operation("POST", f"{prefix}/language-model", answer, body="json", hot=True, paid=True, about=ASK)
        config = wraps(show_config)(partial(show_config, version))
        yield Operation("GET", f"{prefix}/config", config, about=CONFIG)
    yield Operation("GET", CREDITS_PATH, show_credits, about=CREDITS)


SURFACE = Surface("aisdk", ERRORS, tuple(_operations()), prefixes=tuple(PREFIXES))
