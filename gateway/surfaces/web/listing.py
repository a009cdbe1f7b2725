"""Lists of models: those that a caller could call now, and responses that are serialized once for all callers who see
the same, with an ETag, compressed where accepted."""

import hashlib
import re
import zlib
from collections.abc import Callable, Iterator, Sequence

from gateway.callers.access import CUSTOM, Predicate
from gateway.callers.authentication import Caller
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue, day_of
from gateway.catalogue.entries import Mapping, Model, Provider
from gateway.catalogue.lifecycle import ACTIVE, has_ended, state_on
from gateway.neutral.request import AUTO
from gateway.routes.compiled import CompiledRoute
from gateway.routes.route_book import SMART_LISTED, SMART_NAMES
from gateway.runtime.threads import compute
from gateway.surfaces.web.http import VARY_BY_KEY, Inbound, Outbound
from gateway.surfaces.web.http_responses import JSON
from gateway.worker.services import Services

# The models that a caller could call now: mappings in service for which a credential exists (`available=true`).

GENERIC = Mapping(CUSTOM, CUSTOM, CUSTOM)

# Lists the caller's credentials for a mapping.
Usable = Callable[[Mapping], Sequence[object]]


def reach_of(services: Services, caller: Caller | None) -> frozenset[str]:
    """Return the mapping keys and pseudo model names that the caller's project can reach; for the public those that the
    platform can reach. Some of them may be cooling down or exceed the caller's budget, which is not considered.

    It is computed in a thread, once for all callers with the same credentials on one day.
    """
    holder = services.routing.catalogue
    catalogue = holder.current()
    credentials = services.routing.credentials
    day = day_of(services.clock.now_us())
    usable = credentials.usable(caller)
    has_generic = caller is not None and any(credential.base_url for credential in usable(GENERIC))

    def find() -> frozenset[str]:
        return _reachable(catalogue, usable, day, has_generic)

    key = ("reach", catalogue.version, day, credentials.scope_of(caller))
    return holder.remember(key, lambda: compute(find))


def _reachable(catalogue: Catalogue, usable: Usable, day: str, has_generic: bool) -> frozenset[str]:
    reachable = {
        mapping.key
        for model in catalogue.models.values()
        for mapping in model.mappings
        if mapping.priced
        and catalogue.providers[mapping.provider].priority > 0
        and not has_ended(mapping, day)
        and usable(mapping)
    }
    if reachable:
        reachable |= {AUTO, *SMART_LISTED}
    if has_generic:
        reachable.add(CUSTOM)
    return frozenset(reachable)


ROUTE_DESCRIPTION = "A route of the organization: its rules choose the model of each request."
SMART_DESCRIPTION = "Small, medium and large models by the difficulty of the turn."


def organization_routes(services: Services, caller: Caller) -> tuple[tuple[str, CompiledRoute], ...]:
    """Return each name by which the caller's project calls a route of its organization. The built-in route has
    SMART_LISTED. Unavailable."""
    known = services.routing.routes.names_of(caller.organization_id, caller.project_id)
    return tuple([(name, route) for name, route in known if name not in SMART_NAMES])


def models_of_route(services: Services, route: CompiledRoute) -> list[Mapping]:
    """Return the mappings of the models that a route names."""
    mappings_of = services.engine.chat.routes.prices.mappings_of
    return [mapping for model in route.models for mapping in mappings_of(model)]


def prefer_reachable(mappings: Sequence[Mapping], reach: frozenset[str]) -> Sequence[Mapping]:
    """Return the mappings within reach, all where none is: an entry shows the sizes and prices of what its reader can
    call."""
    return [mapping for mapping in mappings if mapping.key in reach] or mappings


def lists_available(services: Services, inbound: Inbound) -> bool:
    """Return whether a list contains only models that can be called now: as the caller's `available` says, else as the
    setting says."""
    text = inbound.arguments().get("available", "").lower()
    if text:
        return text in ("true", "1")
    return services.settings.catalogue.list_available


def choices_of(services: Services, reach: frozenset[str] | None) -> list[Mapping]:
    """Return the mappings among which `auto` chooses: those of its configured models in service, or all mappings in
    service where none of these is within `reach`."""
    catalogue = services.routing.catalogue.current()
    day = day_of(services.clock.now_us())
    models = [model for name in services.settings.catalogue.auto_models if (model := catalogue.find(name))]
    listed = [mapping for model in models for mapping in model.mappings if state_on(mapping, day) == ACTIVE]
    if reach is None:
        return listed
    everything = (
        mapping for model in catalogue.models.values() for mapping in model.mappings if "chat" in mapping.operations
    )
    return [mapping for mapping in listed if mapping.key in reach] or [
        mapping for mapping in everything if mapping.key in reach
    ]


def within(reach: frozenset[str], refuse: Predicate | None) -> Predicate:
    """Return a rule that excludes everything that `refuse` excludes or that is out of reach."""

    def check(mapping: Mapping, provider: Provider) -> str | None:
        if mapping.key not in reach:
            return "no credential"
        if refuse is not None:
            return refuse(mapping, provider)
        return None

    return check


def beyond(reach: frozenset[str], refuse: Predicate | None) -> Predicate:
    """Return a rule that excludes everything that `refuse` excludes or that is within reach."""

    def check(mapping: Mapping, provider: Provider) -> str | None:
        if mapping.key in reach:
            return "within reach"
        if refuse is not None:
            return refuse(mapping, provider)
        return None

    return check


HEADERS = (
    ("Cache-Control", "private, no-cache"),
    ("Vary", f"{VARY_BY_KEY}, x-goog-api-client, User-Agent, Origin, Accept-Encoding"),
)
PIECE_BYTES = 1 << 16
GZIP_FORMAT = 16 + zlib.MAX_WBITS
LEVEL = 6  # compression level: reduces to a tenth; higher levels take much longer for little gain
NO_WEIGHT = re.compile(r"q=0(\.0*)?")


def reply(inbound: Inbound, holder: CurrentCatalogue, tag: str, parts: Sequence[bytes | memoryview]) -> Outbound:
    """Return the list with its ETag, or 304 when the caller's If-None-Match names it. `holder` caches the compressed
    list with its source. `parts` are the list: parts of cached lists, which are sent from there in pieces, since each
    slow caller would otherwise hold a joined copy."""
    packed = accepts_gzip(inbound.header("accept-encoding"))
    body: bytes | Iterator[bytes]
    if packed:
        tag, body = _compressed(holder, tag, parts)
    elif len(parts) == 1 and isinstance(parts[0], bytes):
        body = parts[0]
    else:
        body = _pieces_of(parts)
    headers = [*HEADERS, ("ETag", tag), ("x-request-id", inbound.shown_id)]
    if _matches(inbound.header("if-none-match"), tag):
        return Outbound(304, headers)
    return Outbound(200, [JSON, *headers, *((("Content-Encoding", "gzip"),) if packed else ())], body)


def tag_of(text: bytes) -> str:
    """Return the ETag of a serialized list."""
    return f'"{hashlib.sha256(text).hexdigest()[:32]}"'


def own_models(catalogue: Catalogue, own: Catalogue, ident: str = "") -> list[Model]:
    """Return the organization's own models, or only `ident`. Models of a provider with the same name as one in the
    catalogue are left out, because calls go to the catalogue's provider. The generic provider has its name there."""
    idents = (ident,) if ident else own.models
    hidden = {name for name in {i.partition("/")[0] for i in idents} if name != CUSTOM and catalogue.provider(name)}
    return [own.models[i] for i in idents if i in own.models and i.partition("/")[0] not in hidden]


def accepts_gzip(header: str) -> bool:
    """Return whether an Accept-Encoding header accepts gzip (RFC 9110, 12.5.3)."""
    for offer in header.lower().split(","):
        coding, _, weight = offer.partition(";")
        if coding.strip() in ("gzip", "x-gzip"):
            return not NO_WEIGHT.fullmatch(weight.strip())
    return False


def _pieces_of(parts: Sequence[bytes | memoryview]) -> Iterator[bytes]:
    for part in parts:
        for at in range(0, len(part), PIECE_BYTES):
            yield bytes(part[at : at + PIECE_BYTES])


def _compressed(holder: CurrentCatalogue, tag: str, parts: Sequence[bytes | memoryview]) -> tuple[str, bytes]:
    """Return the compressed list with a separate ETag: compressed once for all lists of the same content, in a
    thread."""

    def make() -> bytes:
        return compute(_compress, parts)

    return f'{tag[:-1]}-gzip"', holder.remember(("packed model list", tag), make)


def _compress(parts: Sequence[bytes | memoryview]) -> bytes:
    packer = zlib.compressobj(LEVEL, zlib.DEFLATED, GZIP_FORMAT)
    return b"".join((*map(packer.compress, parts), packer.flush()))


def _matches(header: str, tag: str) -> bool:
    """Return whether If-None-Match matches the tag: any of a list, weak comparison, or "*" (RFC 9110, 13.1.2)."""
    return header == "*" or any(part.strip().removeprefix("W/") == tag for part in header.split(",") if part.strip())
