"""`models` and `models/{model}`: the catalogue and the organization's own models, as a caller may see them."""

from collections.abc import Iterator
from typing import Any

from gateway.accounts.access import predicate
from gateway.accounts.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, day_of
from gateway.catalogue.entries import Mapping, Model
from gateway.catalogue.lifecycle import has_ended
from gateway.errors import InvalidRequest, NotFound
from gateway.runtime.threads import compute
from gateway.surfaces import auth, http_responses
from gateway.surfaces.http import Inbound, Outbound
from gateway.surfaces.listing import own_models
from gateway.worker.services import Services

Json = dict[str, Any]

PREFIX = "models/"
MOST = 1000  # entries of one page (API reference, models.list)
VERSION = "1"
METHODS = {
    "chat": ("generateContent", "streamGenerateContent", "countTokens"),
    "embeddings": ("embedContent", "batchEmbedContents"),
}
CLIENT_HEADERS = ("x-goog-api-key", "x-goog-api-client")


def shows_itself(inbound: Inbound) -> bool:
    """Return whether the caller is a client of this format, by its headers. A key in the address became a header."""
    return any(inbound.header(name) for name in CLIENT_HEADERS)


def handle_models(services: Services, inbound: Inbound) -> Outbound:
    """List the models that the key can call; all of them without `pageSize`."""
    caller = auth.caller_of(services, inbound)
    arguments = inbound.arguments()
    first = _number(arguments, "pageToken", 0)
    size = min(_number(arguments, "pageSize", MOST), MOST) or MOST
    entries = compute(_entries, services, caller)
    body: Json = {"models": entries[first : first + size]}
    if first + size < len(entries):
        body["nextPageToken"] = str(first + size)
    return http_responses.json_reply(body, inbound.shown_id)


def handle_model(services: Services, inbound: Inbound) -> Outbound:
    """Get the entry of a model."""
    caller = auth.caller_of(services, inbound)
    ident = inbound.params["model"]
    for entry in _entries(services, caller, ident):
        return http_responses.json_reply(entry, inbound.shown_id)
    text = f"models/{ident[:100]} does not exist, or the key may not use it; GET /v1beta/models lists all models."
    raise NotFound(text, param="model", code="model_not_found")


def _number(arguments: dict[str, str], name: str, default: int) -> int:
    text = arguments.get(name, "")
    if not text:
        return default
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidRequest(f"{name} must be a number.", param=name)
    return int(text)


def _entries(services: Services, caller: Caller, ident: str = "") -> list[Json]:
    """Return the entries that a caller may see; with `ident` only that of one model."""
    at_us = services.clock.now_us()
    catalogue = services.routing.catalogue.current()
    refuse = predicate(caller.rules, at_us)
    own = services.routing.custom_catalogue.of(caller)
    entries: list[Json] = []
    if own is not None:
        for model in own_models(catalogue, own.current(), ident):
            entries += _entry_of(own.current(), model, refuse, at_us, model.id)
    if ident:
        known = catalogue.find(ident if "/" not in ident else ident.split("/", 1)[1].split(":", 1)[0])
        models: Iterator[Model] = iter(() if known is None else (known,))
    else:
        models = iter(catalogue.models.values())
    for model in models:
        entries += _entry_of(catalogue, model, refuse, at_us, ident or model.id)
    return entries


def _entry_of(catalogue: Catalogue, model: Model, refuse: Any, at_us: int, name: str) -> list[Json]:
    mappings = [
        mapping
        for mapping in model.mappings
        if not has_ended(mapping, day_of(at_us))
        and (refuse is None or refuse(mapping, catalogue.providers[mapping.provider]) is None)
        and ("/" not in name or name == model.id or mapping.provider == name.partition("/")[0])
    ]
    methods = tuple(method for kind, names in METHODS.items() for method in names if _serves(mappings, kind))
    if not mappings or not methods:
        return []
    entry: Json = {
        "name": PREFIX + name,
        "version": VERSION,
        "displayName": model.name,
        "supportedGenerationMethods": list(methods),
    }
    context = max((mapping.context_length or 0 for mapping in mappings), default=0)
    output = max((mapping.max_output or 0 for mapping in mappings), default=0)
    if model.description:
        entry["description"] = model.description
    if context:
        entry["inputTokenLimit"] = context
    if output:
        entry["outputTokenLimit"] = output
    if any(mapping.reasoning for mapping in mappings):
        entry["thinking"] = True
    return [entry]


def _serves(mappings: list[Mapping], operation: str) -> bool:
    return any(operation in mapping.operations for mapping in mappings)
