"""`/console/assets/`: the console's style sheet, scripts and icon, compressed and cacheable for a year.

The URL of a file contains a hash of its content, so a browser loads it once for each version.
"""

import functools
import gzip
import hashlib
from importlib import resources
from os.path import splitext
from typing import NamedTuple
from urllib.parse import urlsplit

from gateway.errors import NotFound
from gateway.runtime.threads import compute
from gateway.surfaces.web.http import Inbound, Operation, Outbound
from gateway.surfaces.web.listing import accepts_gzip
from gateway.worker.services import Services

PATH = "/console/assets"
FOLDER = resources.files("gateway.surfaces.console").joinpath("assets")
TYPES_BY_SUFFIX = {
    ".css": "text/css; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
MEDIA_TYPES = {
    file.name: TYPES_BY_SUFFIX[suffix]
    for file in FOLDER.iterdir()
    if (suffix := splitext(file.name)[1]) in TYPES_BY_SUFFIX
}
YEAR = ("Cache-Control", "public, max-age=31536000, immutable")
# While workers of two versions run, a worker may get requests for files of the other version.
OTHER_VERSION = ("Cache-Control", "no-cache")
HEADERS = [("Vary", "Accept-Encoding"), ("X-Content-Type-Options", "nosniff")]


class Asset(NamedTuple):
    version: str
    body: bytes


@functools.cache
def load_asset(name: str) -> Asset:
    """Return a file of MEDIA_TYPES with its version."""
    body = FOLDER.joinpath(name).read_bytes()
    return Asset(hashlib.sha256(body).hexdigest()[:16], body)


@functools.cache
def pack_asset(name: str) -> bytes:
    """Return a file, compressed in a thread: the largest one takes 40 ms."""
    return compute(gzip.compress, load_asset(name).body, mtime=0)


def asset_path(name: str, base_url: str) -> str:
    """Return the path of a file with its version. It has no host: a page that is opened at another address than
    `base_url`, for example at the server's own port, still loads the file from its own origin."""
    return f"{urlsplit(base_url).path}{PATH}/{load_asset(name).version}/{name}"


def show(services: Services, inbound: Inbound) -> Outbound:
    """Return a file. Raises NotFound for an unknown name."""
    media_type = MEDIA_TYPES.get(inbound.params["name"])
    if media_type is None:
        raise NotFound("There is no file at this address.")
    asset = load_asset(inbound.params["name"])
    caching = YEAR
    if inbound.params["version"] != asset.version:
        caching = OTHER_VERSION
    headers = [("Content-Type", media_type), caching, *HEADERS]
    if accepts_gzip(inbound.header("accept-encoding")):
        return Outbound(200, [*headers, ("Content-Encoding", "gzip")], pack_asset(inbound.params["name"]))
    return Outbound(200, headers, asset.body)


OPERATIONS: tuple[Operation, ...] = (Operation("GET", f"{PATH}/<version>/<name>", show),)
