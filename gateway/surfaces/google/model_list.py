"""`models` and `models/{model}`: the catalogue and the organization's own models, as a caller may see them."""

from collections.abc import Iterator

from msgspec import UNSET, Struct, UnsetType
from msgspec.structs import replace

from gateway.callers.access import Predicate, predicate
from gateway.callers.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Mapping, Model
from gateway.catalogue.lifecycle import has_ended
from gateway.errors import InvalidRequest, NotFound
from gateway.routes.route_book import SMART_LISTED, SMART_ROUTE
from gateway.runtime.threads import compute
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import Answer
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.surfaces.web.listing import (
    ROUTE_DESCRIPTION,
    SMART_DESCRIPTION,
    lists_available,
    models_of_route,
    organization_routes,
    own_models,
    prefer_reachable,
    reach_of,
)
from gateway.worker.services import Services

PREFIX = "models/"
MAX_PAGE_SIZE = 1000  # entries of one page (API reference, models.list)
VERSION = "1"
METHODS = {
    "chat": ("generateContent", "streamGenerateContent", "countTokens"),
    "embeddings": ("embedContent", "batchEmbedContents"),
}
CLIENT_HEADERS = ("x-goog-api-key", "x-goog-api-client")


class GeminiModelAnswer(Answer):
    name: str
    version: str
    display_name: str
    supported_generation_methods: tuple[str, ...]
    description: str | UnsetType = UNSET
    input_token_limit: int | UnsetType = UNSET
    output_token_limit: int | UnsetType = UNSET
    thinking: bool | UnsetType = UNSET


class GeminiModelListAnswer(Answer):
    models: list[GeminiModelAnswer]
    next_page_token: str | UnsetType = UNSET


def shows_itself(inbound: Inbound) -> bool:
    """Return whether the caller is a client of this format, by its headers. A key in the address became a header."""
    return any(inbound.header(name) for name in CLIENT_HEADERS)


def handle_models(services: Services, inbound: Inbound) -> Outbound:
    """List the models that the key may call, first those with a credential; all of them without `pageSize`.
    `available=true` keeps only models with a credential."""
    caller = auth_module.caller_of(services, inbound)
    arguments = inbound.arguments()
    first = _number(arguments, "pageToken", 0)
    size = min(_number(arguments, "pageSize", MAX_PAGE_SIZE), MAX_PAGE_SIZE) or MAX_PAGE_SIZE
    reach = reach_of(services, caller)
    only_reach = lists_available(services, inbound)
    reader = replace(_reader_of(services, caller), reach=reach, only_reach=only_reach)
    entries = compute(_list, reader)
    body = GeminiModelListAnswer(entries[first : first + size])
    if first + size < len(entries):
        body.next_page_token = str(first + size)
    return http_responses_module.json_reply(body, inbound.shown_id)


def handle_model(services: Services, inbound: Inbound) -> Outbound:
    """Get the entry of a model."""
    caller = auth_module.caller_of(services, inbound)
    ident = inbound.params["model"]
    reader = replace(_reader_of(services, caller), reach=reach_of(services, caller))
    for entry in _find(reader, ident):
        return http_responses_module.json_reply(entry, inbound.shown_id)
    text = f"models/{ident[:100]} does not exist, or the key may not use it; GET /v1beta/models lists all models."
    raise NotFound(text, param="model", code="model_not_found")


def _number(arguments: dict[str, str], name: str, default: int) -> int:
    text = arguments.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidRequest(f"{name} must be a number.", param=name)
    return int(text)


class Reader(Struct, frozen=True):
    """The models that the reader of a list may see: the catalogue and the organization's `own` models, without what
    `refuse` excludes at `at_us`. Models with a mapping in `reach` come first, or alone if `only_reach`; `routes` are
    the entries of routes."""

    catalogue: Catalogue
    own: Catalogue
    refuse: Predicate | None
    at_us: int
    reach: frozenset[str] = frozenset()
    only_reach: bool = False
    routes: tuple[GeminiModelAnswer, ...] = ()


def _reader_of(services: Services, caller: Caller) -> Reader:
    at_us = services.clock.now_us()
    own = services.routing.custom_catalogue.of(caller).current()
    routes = tuple(_route_entries(services, caller))
    return Reader(services.routing.catalogue.current(), own, predicate(caller.rules, at_us), at_us, routes=routes)


def _route_entries(services: Services, caller: Caller) -> Iterator[GeminiModelAnswer]:
    """Yield an entry for each name of a route, which accepts as much as the largest of its models."""
    named = [(name, route, ROUTE_DESCRIPTION) for name, route in organization_routes(services, caller)]
    named += [(name, SMART_ROUTE, SMART_DESCRIPTION) for name in SMART_LISTED]
    for name, route, description in named:
        mappings = models_of_route(services, route)
        context = max((mapping.context_length for mapping in mappings), default=0)
        output = max((mapping.max_output for mapping in mappings), default=0)
        yield GeminiModelAnswer(
            PREFIX + name, VERSION, name, METHODS["chat"], description, context or UNSET, output or UNSET
        )


def _list(reader: Reader) -> list[GeminiModelAnswer]:
    first: list[GeminiModelAnswer] = [*reader.routes]
    last: list[GeminiModelAnswer] = []
    for model in own_models(reader.catalogue, reader.own):
        first += _entry_of(model, _shown(reader, reader.own, model, model.id), model.id)
    for model in reader.catalogue.models.values():
        mappings = _shown(reader, reader.catalogue, model, model.id)
        usable = [mapping for mapping in mappings if mapping.key in reader.reach]
        if reader.only_reach:
            mappings = usable
        part = first if usable else last
        part += _entry_of(model, mappings, model.id, reader.reach)
    return first + last


def _find(reader: Reader, ident: str) -> list[GeminiModelAnswer]:
    """Return the entries of one model: the organization's own one first."""
    entries = [entry for entry in reader.routes if entry.name == PREFIX + ident]
    for model in own_models(reader.catalogue, reader.own, ident):
        entries += _entry_of(model, _shown(reader, reader.own, model, model.id), model.id)
    known = reader.catalogue.find_version(ident if "/" not in ident else ident.split("/", 1)[1].split(":", 1)[0])
    if known is not None:
        entries += _entry_of(known, _shown(reader, reader.catalogue, known, ident), ident, reader.reach)
    return entries


def _shown(reader: Reader, catalogue: Catalogue, model: Model, name: str) -> list[Mapping]:
    """Return the mappings of a model that the reader may see under `name`, which may name a provider."""
    return [
        mapping
        for mapping in model.mappings
        if not has_ended(mapping, day_of(reader.at_us))
        and (reader.refuse is None or reader.refuse(mapping, catalogue.providers[mapping.provider]) is None)
        and ("/" not in name or name == model.id or mapping.provider == name.partition("/")[0])
    ]


def _entry_of(
    model: Model, mappings: list[Mapping], name: str, reach: frozenset[str] = frozenset()
) -> list[GeminiModelAnswer]:
    methods = tuple(method for kind, names in METHODS.items() for method in names if _serves(mappings, kind))
    if not mappings or not methods:
        return []
    measured = prefer_reachable(mappings, reach)
    context = max((mapping.context_length or 0 for mapping in measured), default=0)
    output = max((mapping.max_output or 0 for mapping in measured), default=0)
    entry = GeminiModelAnswer(
        PREFIX + name,
        VERSION,
        model.name,
        methods,
        model.description or UNSET,
        context or UNSET,
        output or UNSET,
        any(mapping.reasoning for mapping in mappings) or UNSET,
    )
    return [entry]


def _serves(mappings: list[Mapping], operation: str) -> bool:
    return any(operation in mapping.operations for mapping in mappings)
