"""`/v1/videos`: video generation jobs, and their content."""

from typing import Any

from msgspec import json

from gateway.errors import InvalidRequest, NotFound, RangeNotSatisfiable, Unauthenticated
from gateway.money import format_usd
from gateway.runtime.threads import give_way
from gateway.surfaces import auth, http_responses
from gateway.surfaces.answer_structs import ModelApiAnswer, describe_answer
from gateway.surfaces.facts import Facts, headers_of
from gateway.surfaces.http import VARY_BY_KEY, About, HeaderParameter, Inbound, Operation, Outbound
from gateway.surfaces.openai import video_inputs
from gateway.surfaces.validation_schemas import Body, OneOf, QueryInteger, TextField, read_query
from gateway.videos.content_proxy import RANGED, VideoContent
from gateway.videos.job_table import JobOwner, VideoJob
from gateway.videos.shown import VideoAnswer
from gateway.videos.video_jobs import owner_of
from gateway.worker.services import Services

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
    context = auth.admit(services, inbound, OPERATION, form=True)
    request, callback = video_inputs.read(services, inbound, context.caller)
    created = services.engine.videos.create(context, request, callback, inbound.base_url)
    facts = Facts(context, created.outcome, created.job.id)
    headers = headers_of(facts, services.clock, streamed=True)
    headers.append((ESTIMATED_COST, format_usd(created.estimate_nusd)))
    return _show(services, inbound, created.job, headers)


def show(services: Services, inbound: Inbound) -> Outbound:
    """Show a job of the key's project; a customer key sees only its own jobs."""
    job = services.engine.videos.find(auth.caller_of(services, inbound), inbound.params["video_id"])
    return _show(services, inbound, job, [])


def list_jobs(services: Services, inbound: Inbound) -> Outbound:
    """List the jobs of the key's project, for a customer key its own, one page at a time."""
    caller = auth.caller_of(services, inbound)
    given = read_query(PageQuery, inbound)
    limit = given["limit"]
    videos = services.engine.videos
    jobs = videos.page(caller, given.get("after", ""), limit + 1, given["order"] == "desc")
    data = []
    for job in jobs[:limit]:
        data.append(videos.presenter.show(job, inbound.base_url))
        give_way()  # each is decrypted and signed
    page = VideoListAnswer(data, has_more=len(jobs) > limit)
    if data:
        page.first_id = data[0].id
        page.last_id = data[-1].id
    return http_responses.json_reply(page.encode(), inbound.shown_id)


def delete(services: Services, inbound: Inbound) -> Outbound:
    """Cancel a running job, which then costs nothing, if its provider supports that; delete a job that has ended."""
    caller = auth.caller_of(services, inbound)
    ident = inbound.params["video_id"]
    services.engine.videos.delete(caller, ident)
    return http_responses.json_reply(VideoDeletedAnswer(ident).encode(), inbound.shown_id)


def content(services: Services, inbound: Inbound) -> Outbound:
    """Download the video of a completed job, complete or in the byte range of the Range header."""
    caller = auth.caller_of(services, inbound)
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
    elif auth.token_of(inbound):
        owner = owner_of(auth.caller_of(services, inbound))
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
    return http_responses.json_reply(json.encode(body), inbound.shown_id, headers=headers)


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
              about=About("Create a video", TAG, request=video_inputs.VideoFields, form=video_inputs.FORM_FIELDS,
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
