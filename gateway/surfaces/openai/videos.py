"""`/v1/videos`: video generation jobs, and their content."""

import re
from contextlib import suppress
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

import orjson
from msgspec import Meta, Struct, json
from msgspec.json import Decoder

from gateway.callers.authentication import Caller
from gateway.engine.payload_collection import Payload
from gateway.errors import GatewayError, InvalidRequest, NotFound, RangeNotSatisfiable, Unauthenticated
from gateway.jobs.callbacks import CallbackOptions
from gateway.jobs.job_rows import JobOwner, owner_of
from gateway.money import format_usd
from gateway.neutral.images import Picture
from gateway.neutral.request import Options, Requirements
from gateway.neutral.videos import MAX_SECONDS, VideosInput, VideosRequest, units_of
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.bodies.preference_checks import Routing, read_preferences
from gateway.surfaces.bodies.validation_errors import explain, invalid, read_json, words_of
from gateway.surfaces.visitors.validation_schemas import Body, OneOf, QueryInteger, TextField, read_query
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.answer_structs import ModelApiAnswer, describe_answer, fill_page
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.forms import FILE, Form, FormLimits, describe_fields, describe_form, read_form
from gateway.surfaces.web.http import VARY_BY_KEY, About, HeaderParameter, Inbound, Operation, Outbound
from gateway.transport.addresses import check_spelling, read_receiver
from gateway.videos.content_proxy import RANGED, VideoContent
from gateway.videos.job_table import VideoJob
from gateway.videos.shown import VideoAnswer
from gateway.worker.services import Services

# The body of POST /v1/videos, as JSON or as a form: read into a neutral request.

VIDEO_SIZES = (
    *("848x480", "854x480", "480x854", "1280x720", "720x1280", "1366x768", "768x1366", "1696x960"),
    *("1792x1024", "1024x1792", "1920x1080", "1080x1920", "3840x2160", "2160x3840"),
)
SANDBOX_MODEL = "sandbox/sandbox-film"
MAX_IMAGES = 9
MAX_FILES = 3
LIMITS = FormLimits(parts=64, files=MAX_IMAGES + 2, field_bytes=128 << 10, file_bytes=uploads_module.MAX_BYTES)
DIGITS = re.compile(r"[0-9]{1,9}")
# Form fields that hold a URL: `image`, and `image[image_url]` as clients write an object in a form.
NESTED_FIELD = re.compile(r"(\w+)(?:\[\d*\])?\[(image_url|video_url|audio_url)\]")
LIST_FIELDS = ("reference_images", "reference_videos", "reference_audios")
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
    model: Annotated[str, Meta(max_length=255)] = uploads_module.AUTO
    seconds: Annotated[int, Meta(ge=1, le=MAX_SECONDS)] | Annotated[str, Meta(pattern=r"^[0-9]{1,4}$")] | None = None
    size: Literal[VIDEO_SIZES] | None = None  # type: ignore[valid-type]
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


def read_video_input(services: Services, inbound: Inbound, caller: Caller) -> tuple[VideosRequest, CallbackOptions]:
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
        pictures.setdefault(name, []).extend(uploads_module.load(services, inbound, value, name) for value in given)
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
        nested = NESTED_FIELD.fullmatch(written)
        name = nested[1] if nested else written.removesuffix("[]")
        if name in LIST_FIELDS:
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
        pictures.setdefault(name, []).append(uploads_module.detect_picture(file.data, name))
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
    return VideosRequest(model, needs, lambda: content, options, large=size >= caps_module.LARGE)


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
    if requested not in ("", uploads_module.AUTO):
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
    kept = b"" if body is None else orjson.dumps({"model": body.model, "prompt": body.prompt})
    if body is not None or len(payload.sent) <= SMALL:
        with suppress(orjson.JSONDecodeError, AttributeError):
            kept = orjson.dumps({name: value for name, value in orjson.loads(payload.sent).items() if name != SECRET})
    payload.send_instead(kept)


TAG = "Videos"
OPERATION = "videos"
ESTIMATED_COST = "x-llmgateway-estimated-cost"
POLL_AFTER = "openai-poll-after-ms"
VIDEO = "video"
MAX_PAGE_SIZE = 100
NO_LOG = "There is no video for the log id {}."
ECHOED_ID_LENGTH = 80
VIDEO_SCHEMA = describe_answer(VideoAnswer)


class VideoListAnswer(ModelApiAnswer, tag_field="object", tag="list"):
    data: list[VideoAnswer]
    has_more: bool
    first_id: str | None = None
    last_id: str | None = None


class VideoDeletedAnswer(ModelApiAnswer, tag_field="object", tag="video.deleted"):
    id: str
    deleted: bool = True


class PageQuery(Body):
    after = TextField(1, 80)
    limit = QueryInteger(1, MAX_PAGE_SIZE, load_default=20)
    order = OneOf(("asc", "desc"), load_default="desc")


class ContentQuery(Body):
    variant = TextField(1, 40, load_default=VIDEO)


class TokenQuery(Body):
    token = TextField(1, 1024)


def create(services: Services, inbound: Inbound) -> Outbound:
    """Create a video. The response is its job, which GET shows until it has ended; a callback can report its end. The
    maximum cost is reserved until then, and only the generated video is charged."""
    context = auth_module.admit(services, inbound, OPERATION, form=True)
    request, callback = read_video_input(services, inbound, context.caller)
    created = services.engine.videos.create(context, request, callback, inbound.base_url)
    facts = Facts(context, created.outcome, created.job.id)
    headers = headers_of(facts, services.clock, streamed=True)
    headers.append((ESTIMATED_COST, format_usd(created.estimate_nusd)))
    return _show(services, inbound, created.job, headers)


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show a job of the key's project; a customer key sees only its own jobs."""
    job = services.engine.videos.find(auth_module.caller_of(services, inbound), inbound.params["video_id"])
    return _show(services, inbound, job, [])


def list_jobs(services: Services, inbound: Inbound) -> Outbound:
    """List the jobs of the key's project, for a customer key its own, one page at a time."""
    caller = auth_module.caller_of(services, inbound)
    given = read_query(PageQuery, inbound)
    limit = given["limit"]
    videos = services.engine.videos
    jobs = videos.page(caller, given.get("after", ""), limit + 1, given["order"] == "desc")
    page = VideoListAnswer([], has_more=len(jobs) > limit)
    fill_page(page, jobs[:limit], lambda job: videos.presenter.show(job, inbound.base_url))
    return http_responses_module.json_reply(page.encode(), inbound.shown_id)


def delete(services: Services, inbound: Inbound) -> Outbound:
    """Cancel a running job, which then costs nothing, if its provider supports that; delete a job that has ended."""
    caller = auth_module.caller_of(services, inbound)
    ident = inbound.params["video_id"]
    services.engine.videos.delete(caller, ident)
    return http_responses_module.json_reply(VideoDeletedAnswer(ident).encode(), inbound.shown_id)


def content(services: Services, inbound: Inbound) -> Outbound:
    """Download the video of a completed job, complete or in the byte range of the Range header."""
    caller = auth_module.caller_of(services, inbound)
    given = read_query(ContentQuery, inbound)
    if given["variant"] != VIDEO:
        raise InvalidRequest("Only the video is available; thumbnails and spritesheets are not.", param="variant")
    return _send(services, inbound, services.engine.videos.find(caller, inbound.params["video_id"]))


def log_content(services: Services, inbound: Inbound) -> Outbound:
    """Play a video by its log id, for a caller with the signed link of a job's `content`, or with a key that may see
    the job."""
    videos = services.engine.videos
    log_id = inbound.params["log_id"]
    if inbound.arguments().get("token") == "":
        raise InvalidRequest("The token is empty: use the link in the video's content unchanged.", param="token")
    token = read_query(TokenQuery, inbound).get("token", "")
    owner: JobOwner | None = None
    if token:
        videos.links.check(token, log_id)
    elif auth_module.token_of(inbound):
        owner = owner_of(auth_module.caller_of(services, inbound))
    else:
        raise Unauthenticated("Use the link in the video's content, or send your API key.")
    job = videos.of_log(log_id)
    if job is None or (owner is not None and not owner.owns(job)):
        raise NotFound(NO_LOG.format(log_id[:ECHOED_ID_LENGTH]))
    videos.check_open(job)
    return _send(services, inbound, job)


def _show(services: Services, inbound: Inbound, job: VideoJob, headers: list[tuple[str, str]]) -> Outbound:
    if not job.has_ended:
        headers = [*headers, (POLL_AFTER, str(round(services.settings.video.poll_s * 1000)))]
    body = services.engine.videos.presenter.show(job, inbound.base_url)
    return http_responses_module.json_reply(json.encode(body), inbound.shown_id, headers=headers)


def _send(services: Services, inbound: Inbound, job: VideoJob) -> Outbound:
    ranged = {name: value for name in RANGED if (value := inbound.header(name))}
    video = services.engine.videos.content(job, ranged)
    if video.status == RangeNotSatisfiable.status:
        raise _no_such_part(video)
    headers = [(name.title(), value) for name, value in video.headers.items()]
    private = [("Cache-Control", "private, no-transform"), ("Vary", f"{VARY_BY_KEY}, Range")]
    return Outbound(video.status, [*headers, *private, ("x-request-id", inbound.shown_id)], video.pieces)


def _no_such_part(video: VideoContent) -> RangeNotSatisfiable:
    close = getattr(video.pieces, "close", None)
    if close is not None:
        close()
    length = video.headers.get("content-range", "")
    headers = (("Content-Range", length),) if length else ()
    return RangeNotSatisfiable("The requested range is outside of the video.", param="range", headers=headers)


ABSENT = ("/v1/videos/edits", "/v1/videos/extensions", "/v1/videos/characters")
PART = (
    HeaderParameter("range", "The requested byte range of the video, such as bytes=0-65535."),
    HeaderParameter("if-range", "The ETag of an earlier response: the range applies only if the video is unchanged."),
)
FILM: dict[str, Any] = {"type": "string", "format": "binary"}
OPERATIONS = (
    Operation("POST", "/v1/videos", create, body="form", paid=True,
              about=About("Create a video", TAG, request=VideoFields, form=FORM_FIELDS,
                          answer=VIDEO_SCHEMA)),
    Operation("GET", "/v1/videos", list_jobs,
              about=About("List videos", TAG, query=PageQuery, answer=VideoListAnswer)),
    Operation("GET", "/v1/videos/<video_id>", show,
              about=About("Show a video", TAG, answer=VIDEO_SCHEMA)),
    Operation("DELETE", "/v1/videos/<video_id>", delete,
              about=About("Cancel or delete a video", TAG, answer=VideoDeletedAnswer)),
    Operation("GET", "/v1/videos/<video_id>/content", content,
              about=About("Download a video", TAG, query=ContentQuery, answer=FILM, media="video/mp4",
                          headers=PART, success=(200, 206), errors=(416,))),
    Operation("GET", "/v1/videos/logs/<log_id>/content", log_content,
              about=About("Play a video", TAG, query=TokenQuery, answer=FILM, media="video/mp4", headers=PART,
                          success=(200, 206), errors=(416,), access="optional")),
)  # fmt: skip
