"""`GET /v1/models`, the list or one entry: the catalogue and the organization's own models as a caller may see them."""

import re
from collections.abc import Callable, Iterable, Iterator
from collections.abc import Mapping as AbcMapping
from typing import Any, NamedTuple

import orjson
from msgspec import Struct
from msgspec.structs import replace

from gateway.callers.access import Level, Predicate, predicate
from gateway.callers.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.catalogue.entries import Mapping, Model
from gateway.clock import DAY_US
from gateway.errors import NotFound
from gateway.neutral.request import unmarked
from gateway.routes.compiled import CompiledRoute
from gateway.runtime.threads import compute
from gateway.surfaces.openai.model_answers import ModelAnswer, ModelListAnswer
from gateway.surfaces.openai.model_entries import (
    CHOOSING,
    PSEUDO_NAMES,
    EntryParts,
    Query,
    pseudo_entries,
    route_entries,
    serialise_alike,
    write_entries,
)
from gateway.surfaces.visitors.validation_schemas import Body, QueryFlag
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import listing as listing_module
from gateway.surfaces.web.http import About, Inbound, Operation, Outbound
from gateway.surfaces.web.http_responses import JSON
from gateway.surfaces.web.listing import (
    HEADERS,
    choices_of,
    lists_available,
    models_of_route,
    organization_routes,
    own_models,
    reach_of,
    tag_of,
    within,
)
from gateway.worker.services import Services

# The model list in the forms of other vendors: their clients read it at the same path, and name themselves in the
# user agent.
#
# Wire facts: the types of the models in the packages `mistralai` 3.7, `cohere` 7.3 and `anthropic` 2.14.

Json = dict[str, Any]
# "mistral-client-python/3.7.0", "mistral-client-typescript/2.7.0", "cohere/7.3.1", "cohere-ai/8.1.0",
# "AsyncAnthropic/Python 2.14.0"
find_agent = re.compile(r"(?P<mistral>mistral-client-)|(?P<cohere>^cohere(?:-ai)?/)|(?P<anthropic>Anthropic/)").search
# Endpoints of Cohere's API by the output of the models that serve them.
COHERE_ENDPOINTS = {"text": "chat", "embedding": "embed", "rerank": "rerank"}
DEFAULT = "auto"


class ListForm(NamedTuple):
    """The form of a vendor's list: `write_list` writes it from all entries and the `parameters` of the
    query, `write_entry` one entry."""

    name: str
    write_list: Callable[[list[Json], AbcMapping[str, str]], Json]
    write_entry: Callable[[Json], Json]
    parameters: frozenset[str] = frozenset()


def find_form(headers: AbcMapping[str, str]) -> ListForm | None:
    """Return the form that the client of a request reads; None for the gateway's own."""
    match = find_agent(headers.get("user-agent", ""))
    if match is None:
        return None
    return FORMS[match.lastgroup or ""]


def convert_list(form: ListForm, body: bytes, arguments: AbcMapping[str, str]) -> bytes:
    """Return a serialized list of the gateway in another form."""
    return orjson.dumps(form.write_list(orjson.loads(body)["data"], arguments))


def _write_cards(entries: list[Json], arguments: AbcMapping[str, str]) -> Json:
    return {"object": "list", "data": list(map(_write_card, entries))}


def _write_card(entry: Json) -> Json:
    inputs = entry["architecture"]["input_modalities"]
    outputs = entry["architecture"]["output_modalities"]
    chats = "text" in outputs
    abilities = {
        "completion_chat": chats,
        "function_calling": "tools" in entry["supported_parameters"],
        "reasoning": any(provider["reasoning"] for provider in entry["providers"]),
        "vision": chats and "image" in inputs,
        "audio": chats and "audio" in inputs,
        "ocr": "ocr" in outputs,
        "audio_transcription": "transcription" in outputs,
        "audio_speech": outputs == ["audio"],
    }
    return entry | {"type": "base", "max_context_length": entry["context_length"], "capabilities": abilities}


def _write_models(entries: list[Json], arguments: AbcMapping[str, str]) -> Json:
    models = list(map(_write_model, entries))
    endpoint = arguments.get("endpoint")
    if endpoint:
        models = [model for model in models if endpoint in model["endpoints"]]
    if arguments.get("default_only", "").lower() == "true":
        models = [model for model in models if model["default_endpoints"]]
    return {"models": models}


def _write_model(entry: Json) -> Json:
    endpoints = [
        COHERE_ENDPOINTS[output] for output in entry["architecture"]["output_modalities"] if output in COHERE_ENDPOINTS
    ]
    return {
        "name": entry["id"],
        "is_deprecated": bool(entry["deprecated_at"]),
        "endpoints": endpoints,
        "default_endpoints": endpoints if entry["id"] == DEFAULT else [],
        "finetuned": False,
        "context_length": entry["context_length"],
        "features": entry["supported_parameters"],
    }


def _write_infos(entries: list[Json], arguments: AbcMapping[str, str]) -> Json:
    return {"data": list(map(_write_info, entries)), "has_more": False}


def _write_info(entry: Json) -> Json:
    """Return the entry with dates that are null instead of empty, and the sizes by this vendor's names."""
    return entry | {
        "deprecated_at": entry["deprecated_at"] or None,
        "retires_at": entry["deactivated_at"] or None,
        "max_input_tokens": entry["context_length"] or None,
        "max_tokens": entry["max_output"] or None,
    }


FORMS = {
    "mistral": ListForm("mistral", _write_cards, _write_card),
    "cohere": ListForm("cohere", _write_models, _write_model, frozenset(("endpoint", "default_only"))),
    "anthropic": ListForm("anthropic", _write_infos, _write_info),
}


LIST_HEAD = b'{"object":"list","data":['
LIST_END = b"]}"
Parts = tuple[bytes | memoryview, ...]


class Audience(Struct, frozen=True):
    """The reader of the list: the caller's `rules` (equal rules share a cached list) and the filter that they imply,
    and the organization's `own` models, by the ids that call them. `reach` has what the reader can call now (None: not
    considered), which is listed first, or alone if `only_reach`. `routes` are the names of its project's routes."""

    rules: tuple[Level, ...] = ()
    refuse: Predicate | None = None
    own: CurrentCatalogue | None = None
    reach: frozenset[str] | None = None
    only_reach: bool = False
    routes: tuple[tuple[str, CompiledRoute], ...] = ()

    @property
    def shows(self) -> Predicate | None:
        """Return the filter of the catalogue: the rules, and models out of reach."""
        if self.reach is None or not self.only_reach:
            return self.refuse
        return within(self.reach, self.refuse)


PUBLIC = Audience()


def read_query(arguments: dict[str, str]) -> Query:
    """Return the query parameters of the list; unknown ones have no effect."""
    return Query(**{name: arguments.get(name, "").lower() in ("true", "1") for name in Query.__struct_fields__})


def audience_of(services: Services, inbound: Inbound) -> Audience:
    """Return the public audience without a key; with a key, the models that the caller's rules allow and its
    organization's own.

    Raises Unauthenticated for an invalid key.
    """
    caller = _caller(services, inbound)
    if caller is None:
        return PUBLIC
    return Audience(
        caller.rules,
        predicate(caller.rules, services.clock.now_us()),
        services.routing.custom_catalogue.of(caller),
        routes=organization_routes(services, caller),
    )


def _caller(services: Services, inbound: Inbound) -> Caller | None:
    token = auth_module.token_of(inbound)
    if token:
        return auth_module.caller_of(services, inbound)
    return None


def handle_models(services: Services, inbound: Inbound) -> Outbound:
    """List models, or return 304 when the caller's If-None-Match matches. With a key, the models that it can call now
    come first: those of the organization's custom providers, then those with an existing credential. `available=true`
    keeps only these (the default if the setting `catalogue.list_available` is on). A key is validated even when the
    public catalogue is requested."""
    query = read_query(inbound.arguments())
    audience = audience_of(services, inbound)
    only_reach = lists_available(services, inbound) and not _asks_for_everything(query, inbound)
    if only_reach or not (query.include_restricted or audience is PUBLIC):
        reach = reach_of(services, _caller(services, inbound))
    else:
        reach = None
    if query.include_restricted or audience is PUBLIC:
        # The parameter has no effect for the public: one list serves both.
        audience = PUBLIC
        query = replace(query, include_restricted=False)
    audience = replace(audience, reach=reach, only_reach=only_reach)
    tag, parts = _listed(services, query, audience)
    # A list with an organization's own models is cached with them.
    own = audience.own
    holder = services.routing.catalogue if own is None or not (own.current().models or audience.routes) else own
    form = find_form(inbound.headers)
    if form is not None:
        tag, parts = _converted(holder, form, tag, parts, inbound.arguments())
    return listing_module.reply(inbound, holder, tag, parts)


def _converted(
    holder: CurrentCatalogue, form: ListForm, tag: str, parts: Parts, arguments: dict[str, str]
) -> tuple[str, Parts]:
    """Return a list in another form with its ETag: converted once for all callers who send no parameter of the form."""
    asked = {name: text for name, text in arguments.items() if name in form.parameters}

    def make() -> tuple[str, Parts]:
        body = convert_list(form, b"".join(parts), asked)
        return tag_of(body), (body,)

    if asked:
        return compute(make)
    return holder.remember(("model list form", form.name, tag), lambda: compute(make))


def _asks_for_everything(query: Query, inbound: Inbound) -> bool:
    """Return whether the caller requests the public catalogue without saying which models of it."""
    return query.include_restricted and "available" not in inbound.arguments()


def handle_model(services: Services, inbound: Inbound) -> Outbound:
    """Get the model entry of an id, an alias or provider/model. A 404 suggests similar ids."""
    ident = inbound.params["model"]
    catalogue = services.routing.catalogue.current()
    audience = audience_of(services, inbound)
    if audience is not PUBLIC:
        audience = replace(audience, reach=reach_of(services, _caller(services, inbound)))
    for entry in _matching(services, ident, audience):
        written = entry.encode()
        form = find_form(inbound.headers)
        if form is not None:
            written = orjson.dumps(form.write_entry(orjson.loads(written)))
        return Outbound(200, [JSON, *HEADERS, ("x-request-id", inbound.shown_id)], written)
    if any(_matching(services, ident, PUBLIC)):
        reason = f"The access rules of this key do not allow the model '{ident[:100]}'."
        raise NotFound(reason, param="model", code="model_not_found")
    near = catalogue.suggest(ident)
    hint = f" Did you mean {', '.join(near)}?" if near else ""
    raise NotFound(f"The model '{ident[:100]}' does not exist.{hint}", param="model", code="model_not_found")


def _matching(services: Services, ident: str, audience: Audience) -> Iterator[ModelAnswer]:
    """Return the entry of the model text `ident`, if the audience may see it."""
    catalogue = services.routing.catalogue.current()
    at_us = services.clock.now_us()
    if audience.own is not None:
        own = audience.own.current()
        yield from write_entries(own, own_models(catalogue, own, ident), Query(), at_us, audience.refuse)
    yield from _route_entries(services, Query(), audience, ident)
    model, model_id = _named(catalogue, ident)
    query = Query(include_deactivated=True, mapped="/" in ident)
    models = () if model is None else (model,)
    among = _choices(services, audience) if ident.rpartition("/")[2] in CHOOSING else ()
    pseudo = pseudo_entries(query, PSEUDO_NAMES, among)
    entries = (*pseudo, *write_entries(catalogue, models, query, at_us, audience.refuse, audience.reach or frozenset()))
    yield from (entry for entry in entries if entry.id == model_id)


def _choices(services: Services, audience: Audience) -> list[Mapping]:
    """Return the mappings from which `auto` has its sizes and price: those that the audience can call, in a list of all
    models those of any provider where it can call none."""
    if audience.reach is None:
        return choices_of(services, None)
    return choices_of(services, audience.reach) or ([] if audience.only_reach else choices_of(services, None))


def _named(catalogue: Catalogue, ident: str) -> tuple[Model | None, str]:
    """Return the model that the text names, alone or with a provider and a region, and the id of its entry."""
    provider, slash, rest = unmarked(ident).partition("/")
    if not slash:
        model = catalogue.find_version(provider)
        return model, model.id if model is not None else ident
    name, colon, region = rest.partition(":")
    model = catalogue.find_version(name)
    return model, f"{provider}/{model.id}{colon}{region}" if model is not None else ident


def _listed(services: Services, query: Query, audience: Audience) -> tuple[str, Parts]:
    """Return the ETag and the parts of the serialized list that all callers with equal rules see, after the
    organization's own models. Entries are serialized once for each catalogue and day; a list is built from them in
    a thread."""
    at_us = services.clock.now_us()
    holder = services.routing.catalogue
    catalogue = holder.current()
    day = (catalogue.version, at_us // DAY_US)
    parts = holder.remember(("model entries", *day), lambda: EntryParts(catalogue, at_us))

    def make() -> tuple[str, bytes]:
        reach = audience.reach
        among = _choices(services, audience)
        first = pseudo_entries(query, PSEUDO_NAMES if reach is None else PSEUDO_NAMES & reach, among)
        entries = parts.serialise(query, audience.shows, reach or frozenset())
        last: Iterable[ModelAnswer] = ()
        if reach is not None and not audience.only_reach:
            last = pseudo_entries(query, PSEUDO_NAMES - reach, among)
        return _serialise([*map(ModelAnswer.encode, first), *entries, *map(ModelAnswer.encode, last)])

    key = ("model list", *day, query, audience.rules, audience.reach, audience.only_reach)
    tag, shared = holder.remember(key, lambda: compute(make))
    if audience.own is None or not (audience.own.current().models or audience.routes):
        return tag, (shared,)
    source = audience.own

    def make_own() -> tuple[str, bytes]:
        models = own_models(catalogue, source.current())
        entries = serialise_alike(source.current(), models, query, at_us, audience.refuse)
        return _serialise([*map(ModelAnswer.encode, _route_entries(services, query, audience)), *entries])

    own_key = (*key, *[(name, route.version, route.models) for name, route in audience.routes])
    own_tag, own = services.routing.custom_catalogue.listed(source, own_key, make_own)
    return tag_of(tag.encode() + own_tag.encode()), _join(own, shared)


def _route_entries(services: Services, query: Query, audience: Audience, ident: str = "") -> Iterator[ModelAnswer]:
    """Return the entries of the audience's routes, or only of the name `ident`."""
    if not audience.routes:
        return iter(())
    shown = [(name, route) for name, route in audience.routes if ident in ("", name)]
    return route_entries(query, [(name, models_of_route(services, route)) for name, route in shown])


def _serialise(entries: Iterable[bytes]) -> tuple[str, bytes]:
    body = LIST_HEAD + b",".join(entries) + LIST_END
    return tag_of(body), body


def _join(first: bytes, second: bytes) -> Parts:
    """Join two serialized lists, without a copy of them."""
    former = memoryview(first)[len(LIST_HEAD) : -len(LIST_END)]
    latter = memoryview(second)[len(LIST_HEAD) : -len(LIST_END)]
    return LIST_HEAD, former, b"," if former and latter else b"", latter, LIST_END


class ListQuery(Body):
    """The query parameters of the list, for the API description."""

    include_restricted = QueryFlag(about="Show the public catalogue, including models that the key may not use.")
    include_deactivated = QueryFlag(about="Include deactivated models.")
    exclude_deprecated = QueryFlag(about="Leave out deprecated models.")
    no_training = QueryFlag(about="Only models and mappings whose provider does not train on API data.")
    mapped = QueryFlag(about="One entry for each provider of a model, with provider/model as its id.")
    available = QueryFlag(about="Only models that can be called now with the existing credentials.")


ABOUT = About("List models", query=ListQuery, answer=ModelListAnswer, access="optional")
ABOUT_ONE = About("Show a model", answer=ModelAnswer, access="optional")

OPERATIONS = (
    Operation(
        "GET",
        "/v1/models",
        handle_models,
        hot=True,
        about=About("List models", query=ListQuery, answer=ModelListAnswer, access="optional"),
    ),
    Operation("GET", "/v1/models/<path:model>", handle_model, about=ABOUT_ONE),
)
