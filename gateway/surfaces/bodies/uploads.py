"""Uploaded images and audio: their format, from their first bytes and never from their name. The default image model,
and the duration of audio."""

from typing import NamedTuple

from gateway.callers.authentication import Caller
from gateway.errors import GatewayError, InvalidRequest
from gateway.media.sounds import SECOND_MS as SECOND_MS
from gateway.media.sounds import SoundDuration, length_of
from gateway.neutral.file_types import HEAD_BYTES, decode_pieces, type_of
from gateway.neutral.images import ENDINGS, Picture
from gateway.runtime.large_files import StoredFile
from gateway.runtime.threads import compute, compute_if
from gateway.surfaces.web.http import Inbound
from gateway.worker.services import Services

MAX_BYTES = 50 << 20
FETCH_TIMEOUT_S = 30.0
LARGE = 1 << 16
AUTO = "auto"
SANDBOX = "sandbox"
SANDBOX_MODEL = "sandbox/sandbox-image"


def model_of(services: Services, caller: Caller, requested: str, default: str = "") -> str:
    """Return the model `requested`. For "auto" and "" return the `default` (else the configured image model) if it is
    reachable, else "auto" where any other provider makes images, else the sandbox's."""
    if requested not in ("", AUTO):
        return requested
    chosen = default or services.settings.media.image_model
    catalogue = services.routing.catalogue.current()
    model = catalogue.models.get(chosen.rpartition("/")[2])
    usable = services.routing.credentials.usable(caller)
    if model is not None and any(usable(mapping) for mapping in model.mappings):
        return chosen
    if any(
        usable(mapping)
        for other in catalogue.models.values()
        for mapping in other.mappings
        if "images" in mapping.operations and mapping.provider != SANDBOX
    ):
        return AUTO
    if services.settings.catalogue.sandbox:
        return SANDBOX_MODEL
    return chosen


def detect_picture(file: StoredFile, param: str) -> Picture:
    """Detect the format of a file. Raises InvalidRequest `empty_file`, or `unsupported_media` for other formats than
    PNG, JPEG and WebP."""
    if not len(file):
        raise InvalidRequest("The file is empty.", param=param, code="empty_file")
    kind = type_of(file.read(HEAD_BYTES))
    if kind not in ENDINGS:
        raise InvalidRequest("The file is not a PNG, JPEG or WebP image.", param=param, code="unsupported_media")
    return Picture(file, kind)


def load(services: Services, inbound: Inbound, url: str, param: str) -> Picture:
    """Load an image from an https URL or a data URL into a file of the request. Raises InvalidRequest, also
    `media_not_loaded`."""
    file = inbound.new_file(services.settings.spool_dir)
    if url.startswith("data:"):
        try:
            compute_if(len(url) > LARGE, _store, url, file)
        except ValueError:
            raise InvalidRequest("The data URL is not valid base64.", param=param, code="invalid_parameters") from None
        return detect_picture(file, param)
    try:
        fetched = services.routing.transport.fetch(url, MAX_BYTES, timeout_s=FETCH_TIMEOUT_S)
        why = "" if fetched.status == 200 else f"status {fetched.status}"
    except GatewayError as error:
        why = error.code
    if why:
        raise InvalidRequest(f"The image could not be downloaded ({why}).", param=param, code="media_not_loaded")
    file.write(fetched.body)
    return detect_picture(file, param)


def _store(url: str, file: StoredFile) -> None:
    """Write the bytes of a data URL. Raises ValueError for invalid base64."""
    start = url.find(",") + 1
    for piece in decode_pieces(url, start) if start else ():
        file.write(piece)


# Uploaded audio: its format, from its first bytes and never from its name, and its duration.

# Kind of audio → media type sent upstream. Containers that may also hold video are treated as audio.
KINDS = {
    "audio/wav": ("audio/wav", "wav"),
    "audio/aiff": ("audio/aiff", "aiff"),
    "audio/mpeg": ("audio/mpeg", "mp3"),
    "audio/aac": ("audio/aac", "aac"),
    "audio/flac": ("audio/flac", "flac"),
    "audio/ogg": ("audio/ogg", "ogg"),
    "audio/amr": ("audio/amr", "amr"),
    "audio/mp4": ("audio/mp4", "m4a"),
    "video/mp4": ("audio/mp4", "m4a"),
    "video/webm": ("audio/webm", "webm"),
}


class Sound(NamedTuple):
    """The format and duration of an audio file."""

    media_type: str
    filename: str
    length: SoundDuration


def detect_sound(file: StoredFile, param: str) -> Sound:
    """Detect the format of a file. Raises InvalidRequest `empty_file`, or `unsupported_media` for other content than
    audio."""
    if not len(file):
        raise InvalidRequest("The file is empty.", param=param, code="empty_file")
    kind, ending = KINDS.get(type_of(file.read(HEAD_BYTES)), ("", ""))
    if not kind:
        raise InvalidRequest(
            "The audio format of the file is not supported: send WAV, MP3, FLAC, Ogg, MP4, WebM, AAC, AIFF or AMR.",
            param=param,
            code="unsupported_media",
        )
    return Sound(kind, f"sound.{ending}", compute(length_of, file))
