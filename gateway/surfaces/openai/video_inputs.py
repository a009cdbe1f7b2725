"""The body of POST /v1/videos, as JSON or as a form: read into a neutral request."""

import re
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import orjson
from msgspec import Meta, Struct
from msgspec.json import Decoder

from gateway.accounts.authentication import Caller
from gateway.engine.payload_collection import Payload
from gateway.errors import GatewayError
from gateway.neutral.images import Picture
from gateway.neutral.request import Options, Requirements
from gateway.neutral.videos import MAX_SECONDS, VideosInput, VideosRequest, units_of
from gateway.surfaces import caps, image_uploads
from gateway.surfaces.forms import FILE, Form, FormLimits, describe_fields, describe_form, read_form
from gateway.surfaces.http import Inbound
from gateway.surfaces.json_bodies import read_json
from gateway.surfaces.preference_checks import Routing, read_preferences
from gateway.surfaces.validation_errors import explain, invalid, words_of
from gateway.transport.addresses import check_spelling, read_receiver
from gateway.videos.creation import CallbackOptions
from gateway.worker.services import Services

SIZES = (
    *("848x480", "854x480", "480x854", "1280x720", "720x1280", "1366x768", "768x1366", "1696x960"),
    *("1792x1024", "1024x1792", "1920x1080", "1080x1920", "3840x2160", "2160x3840"),
)
SANDBOX_MODEL = "sandbox/sandbox-film"
MAX_IMAGES = 9
MAX_FILES = 3
LIMITS = FormLimits(parts=64, files=MAX_IMAGES + 2, field_bytes=128 << 10, file_bytes=image_uploads.MAX_BYTES)
DIGITS = re.compile(r"[0-9]{1,9}")
# Form fields that hold a URL: `image`, and `image[image_url]` as clients write an object in a form.
NESTED = re.compile(r"(\w+)(?:\[\d*\])?\[(image_url|video_url|audio_url)\]")
LISTS = ("reference_images", "reference_videos", "reference_audios")
REFERENCE = "input_reference"
SECRET = "callback_secret"
MAY_HAVE_SECRET = re.compile(rb"callback_secret|\\u")  # a name may be written with escapes
SMALL = 1 << 16  # bytes; a longer body may have any number of parts
Address = Annotated[str, Meta(min_length=1, extra_json_schema={"pattern": "^(https?://|data:)"})]
Link = Annotated[str, Meta(min_length=9, max_length=8192, extra_json_schema={"pattern": "^https://"})]


class ImageAddress(Struct, kw_only=True, gc=False):
    """An image at an http address, or in a data URL."""

    image_url: Address


class VideoAddress(Struct, kw_only=True, gc=False):
    """A video at an https URL, which the provider loads itself."""

    video_url: Link


class AudioAddress(Struct, kw_only=True, gc=False):
    """An audio file at an https URL, which the provider loads itself."""

    audio_url: Link


class VideoFields(Struct, kw_only=True, gc=False):
    """Every field that has an effect; all others are accepted and dropped."""

    prompt: Annotated[str, Meta(min_length=1, max_length=100_000)]
    model: Annotated[str, Meta(max_length=255)] = image_uploads.AUTO
    seconds: Annotated[int, Meta(ge=1, le=MAX_SECONDS)] | Annotated[str, Meta(pattern=r"^[0-9]{1,4}$")] | None = None
    size: Literal[SIZES] | None = None  # type: ignore[valid-type]
    audio: bool | None = None
    n: Annotated[int, Meta(ge=1, le=1)] | None = None
    image: Address | ImageAddress | None = None
    last_frame: Address | ImageAddress | None = None
    input_reference: Address | ImageAddress | None = None
    reference_images: Annotated[list[Address | ImageAddress], Meta(max_length=MAX_IMAGES)] | None = None
    reference_videos: Annotated[list[Link | VideoAddress], Meta(max_length=MAX_FILES)] | None = None
    reference_audios: Annotated[list[Link | AudioAddress], Meta(max_length=MAX_FILES)] | None = None
    callback_url: Annotated[str, Meta(max_length=2000)] | None = None
    callback_secret: Annotated[str, Meta(min_length=1, max_length=512)] | None = None
    routing: Routing = None


DECODER = Decoder(VideoFields)
FILES = {"type": "array", "items": FILE, "minItems": 1, "maxItems": MAX_IMAGES}
FORM_FIELDS = describe_fields(
    VideoFields, {"image": FILE, "last_frame": FILE, REFERENCE: FILE, "reference_images": FILES}
)
Pictures = dict[str, list[Picture]]


def read(services: Services, inbound: Inbound, caller: Caller) -> tuple[VideosRequest, CallbackOptions]:
    """Return the request and its callback. Raises InvalidRequest."""
    if inbound.upload is None:
        body = _read_json(services, inbound)
        pictures = Pictures()
    else:
        form = read_form(inbound, LIMITS, services.settings.spool_dir)
        if inbound.payload is not None:
            fields = [field for field in form.fields if SECRET not in field[0]]
            inbound.payload.send_instead(describe_form(Form(fields, form.files)))
        body, pictures = _read_form(form)
    callback = _read_callback(services, body)
    for name, given in _addresses(body).items():
        if given and pictures.get(name):
            raise invalid(name, "send a file or a URL, not both")
        pictures.setdefault(name, []).extend(image_uploads.load(services, inbound, value, name) for value in given)
    return _request(services, caller, body, pictures), callback


def _read_json(services: Services, inbound: Inbound) -> VideoFields:
    try:
        body = read_json(services.settings.limits, DECODER, inbound.body)
    except GatewayError:
        _hide_secret(inbound.payload)
        raise
    _hide_secret(inbound.payload, body)
    return body


def _addresses(body: VideoFields) -> dict[str, list[str]]:
    """Return the URLs of images, by field."""
    single = {"image": body.image, "last_frame": body.last_frame, REFERENCE: body.input_reference}
    addresses = {name: [_url(one)] for name, one in single.items() if one is not None}
    return addresses | {"reference_images": [_url(image) for image in body.reference_images or ()]}


def _url(given: Any) -> str:
    """Return the URL in a text or in an object with one URL."""
    if isinstance(given, str):
        return given
    return str(getattr(given, given.__struct_fields__[0]))


def _read_form(form: Form) -> tuple[VideoFields, Pictures]:
    """Read the body from a form, in which values are texts."""
    values: dict[str, Any] = {}
    for written, value in form.fields:
        if value == "":
            continue
        nested = NESTED.fullmatch(written)
        if nested:
            name = nested[1]
        else:
            name = written.removesuffix("[]")
        if name in LISTS:
            values.setdefault(name, []).append(value)
        else:
            values[name] = value
    if DIGITS.fullmatch(values.get("n", "")):
        values["n"] = int(values["n"])
    if "audio" in values:
        values["audio"] = {"true": True, "1": True, "false": False, "0": False}.get(values["audio"].lower(), 0)
    try:
        body = DECODER.decode(orjson.dumps(values))
    except ValueError as error:
        raise explain(str(error), words_of(DECODER.type)) from None
    pictures: Pictures = {}
    for file in form.files:
        name = file.name.removesuffix("[]")
        if name not in ("image", "last_frame", REFERENCE, "reference_images"):
            raise invalid(name[:64], "this field does not accept a file")
        pictures.setdefault(name, []).append(image_uploads.detect_format(file.data, name))
    return body, pictures


def _read_callback(services: Services, body: VideoFields) -> CallbackOptions:
    if not body.callback_url:
        if body.callback_secret:
            raise invalid(SECRET, "it requires callback_url")
        return CallbackOptions()
    url = read_receiver(body.callback_url, "callback_url")
    if not services.settings.security.allow_private_upstreams:
        check_spelling(url, "callback_url")
    return CallbackOptions(url, body.callback_secret or "")


def _request(services: Services, caller: Caller, body: VideoFields, pictures: Pictures) -> VideosRequest:
    model = _model_of(services, caller, body.model)
    if pictures.get(REFERENCE):
        _place_reference(services, model, pictures)
    references = tuple(pictures.get("reference_images", ()))
    seconds = int(body.seconds or 0)
    if body.seconds is not None and not 1 <= seconds <= MAX_SECONDS:
        raise invalid("seconds", f"expected a number from 1 to {MAX_SECONDS}")
    content = VideosInput(
        body.prompt,
        seconds,
        body.size or "",
        body.audio,
        _one(pictures, "image"),
        _one(pictures, "last_frame"),
        references,
        tuple(_https(video, "reference_videos") for video in body.reference_videos or ()),
        tuple(_https(audio, "reference_audios") for audio in body.reference_audios or ()),
    )
    _check(content)
    size = sum(len(picture.file) for picture in content.pictures)
    needs = Requirements(
        max_tokens=0,
        prompt_bytes=len(body.prompt.encode("utf-8", "replace")),
        messages=1,
        vision=bool(content.pictures),
        media=len(content.pictures),
        units=units_of(content),
    )
    options = Options(**read_preferences(routing=body.routing))
    return VideosRequest(model, needs, lambda: content, options, large=size >= caps.LARGE)


def _check(content: VideosInput) -> None:
    """Check for contradictions between fields."""
    if content.last_frame is not None and content.first_frame is None:
        raise invalid("last_frame", "it requires image, the first frame")
    references = content.reference_images or content.reference_videos or content.reference_audios
    if content.first_frame is not None and references:
        raise invalid("image", "send frames or references, not both")


def _place_reference(services: Services, model: str, pictures: Pictures) -> None:
    """Treat `input_reference` as a reference image where the model accepts those, else as the first frame, as servers
    of OpenAI's format do."""
    if pictures.get("reference_images") or pictures.get("image"):
        raise invalid(REFERENCE, "send it instead of image and reference_images")
    mappings = services.routing.catalogue.current().mappings_of(model.rpartition("/")[2], VideosRequest.operation)
    takes = any(mapping.extra.get("reference_images") for mapping in mappings)
    pictures["reference_images" if takes else "image"] = pictures.pop(REFERENCE)


def _one(pictures_by_name: Pictures, name: str) -> Picture | None:
    pictures = pictures_by_name.get(name, [])
    if len(pictures) > 1:
        raise invalid(name, "send one")
    if pictures:
        return pictures[0]
    return None


def _https(given: Any, param: str) -> str:
    url = _url(given)
    parts = urlsplit(url)
    if parts.scheme != "https" or not parts.hostname or not url.isprintable():
        raise invalid(param, "expected https URLs")
    return url


def _model_of(services: Services, caller: Caller, requested: str) -> str:
    """Return the named model; for "auto" the configured one where it is reachable, else the sandbox's."""
    if requested not in ("", image_uploads.AUTO):
        return requested
    chosen = services.settings.video.model
    mappings = services.routing.catalogue.current().mappings_of(chosen.rpartition("/")[2])
    usable = services.routing.credentials.usable(caller)
    if any(usable(mapping) for mapping in mappings) or not services.settings.catalogue.sandbox:
        return chosen
    return SANDBOX_MODEL


def _hide_secret(payload: Payload | None, body: VideoFields | None = None) -> None:
    """Retain a JSON request without the secret of its callback. A rejected request (`body` None) may have any number of
    parts: only a short one is parsed for that, a longer one is not retained."""
    if payload is None or not MAY_HAVE_SECRET.search(payload.sent):
        return
    if body is None:
        kept = b""
    else:
        kept = orjson.dumps({"model": body.model, "prompt": body.prompt})
    if body is not None or len(payload.sent) <= SMALL:
        with suppress(orjson.JSONDecodeError, AttributeError):
            kept = orjson.dumps({name: value for name, value in orjson.loads(payload.sent).items() if name != SECRET})
    payload.send_instead(kept)
