"""Model lists as responses: serialized once for all callers who see the same, with an ETag, compressed where
accepted."""

import hashlib
import re
import zlib
from collections.abc import Iterator, Sequence

from gateway.callers.access import CUSTOM
from gateway.catalogue.catalogue import Catalogue, CurrentCatalogue
from gateway.catalogue.entries import Model
from gateway.runtime.threads import compute
from gateway.surfaces.web.http import VARY_BY_KEY, Inbound, Outbound
from gateway.surfaces.web.http_responses import JSON

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
