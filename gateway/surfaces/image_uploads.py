"""Uploaded images: their format, from their first bytes and never from their name; and the default image model."""

from gateway.accounts.authentication import Caller
from gateway.errors import GatewayError, InvalidRequest
from gateway.neutral.encoded import decode_pieces
from gateway.neutral.file_types import HEAD, type_of
from gateway.neutral.images import ENDINGS, Picture
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import compute_if
from gateway.surfaces.http import Inbound
from gateway.worker.services import Services

MOST_BYTES = 50 << 20
FETCH_S = 30.0
LARGE = 1 << 16
AUTO = "auto"
SANDBOX_MODEL = "sandbox/sandbox-image"


def model_of(services: Services, caller: Caller, requested: str, default: str = "") -> str:
    """The model `requested`; for "auto" and "" the `default` (else the configured model of images) where it can be
    reached, else the sandbox's."""
    if requested not in ("", AUTO):
        return requested
    chosen = default or services.settings.media.image_model
    model = services.routing.catalogue.current().models.get(chosen.rpartition("/")[2])
    usable = services.routing.credentials.usable(caller)
    if model is not None and any(usable(mapping) for mapping in model.mappings):
        return chosen
    if services.settings.catalogue.sandbox:
        return SANDBOX_MODEL
    return chosen


def look_at(file: StoredFile, param: str) -> Picture:
    """What a file is. InvalidRequest `empty_file`, or `unsupported_media` for what is no PNG, JPEG or WebP."""
    if not len(file):
        raise InvalidRequest("The file is empty.", param=param, code="empty_file")
    kind = type_of(file.read(HEAD))
    if kind not in ENDINGS:
        raise InvalidRequest("The file is not a PNG, JPEG or WebP image.", param=param, code="unsupported_media")
    return Picture(file, kind)


def load(services: Services, inbound: Inbound, url: str, param: str) -> Picture:
    """An image at an https address or in a data URL, in a file that goes with the request. InvalidRequest, also
    `media_not_loaded`."""
    file = inbound.new_file(services.settings.spool_dir)
    if url.startswith("data:"):
        try:
            compute_if(len(url) > LARGE, _store, url, file)
        except ValueError:
            raise InvalidRequest("The data URL is not valid base64.", param=param, code="invalid_parameters") from None
        return look_at(file, param)
    try:
        found = services.routing.transport.fetch(url, MOST_BYTES, timeout_s=FETCH_S)
        if found.status == 200:
            why = ""
        else:
            why = f"status {found.status}"
    except GatewayError as error:
        why = error.code
    if why:
        raise InvalidRequest(f"The image could not be downloaded ({why}).", param=param, code="media_not_loaded")
    file.write(found.body)
    return look_at(file, param)


def _store(url: str, file: StoredFile) -> None:
    """Write the bytes of a data URL. ValueError for what is no base64."""
    start = url.find(",") + 1
    for piece in decode_pieces(url, start) if start else ():
        file.write(piece)
