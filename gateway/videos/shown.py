"""The representation of a job in responses, lists and callbacks, and signed links to the content of a video."""

import hashlib
import hmac
from typing import Annotated, Any, Literal

from msgspec import UNSET, DecodeError, Meta, Struct, UnsetType, ValidationError, json

from gateway.clock import DAY_US, SECOND_US, Clock
from gateway.errors import Unauthenticated
from gateway.money import usd_number
from gateway.neutral.videos import FINAL_STATES
from gateway.runtime.lazy_import import LazyImport
from gateway.videos.job_table import COMPLETED, CREATING, DECODER, QUEUED, RUNNING, VideoJob
from gateway.videos.tasks import SealedColumns

# Signed links to the content of a video, which open it without an API key for a week (RFC 7515, compact, HS256).

jws = LazyImport("joserfc.jws")
jwk = LazyImport("joserfc.jwk")
jose_errors = LazyImport("joserfc.errors")

LIFETIME_US = 7 * DAY_US
CONTENT_SECRET = "LLM_VIDEO_CONTENT_JWT_SECRET"
PURPOSE = b"video content"
HEADER = {"alg": "HS256"}
MAX_LENGTH = 1024
INVALID_TOKEN = "The link's token is not valid or has expired: get a new link with GET /v1/videos/<id>."


class Claims(Struct):
    """The claims of a token: `l` is the log's id, `exp` its expiry in seconds."""

    l: str  # noqa: E741 - the name on the wire
    exp: int


class Links:
    """Signs and checks links. `secret` is the operator's; without one, secrets are derived from those of the
    installation, newest first."""

    def __init__(self, secret: str, installation: tuple[bytes, ...], clock: Clock) -> None:
        derived = (hmac.new(key, PURPOSE, hashlib.sha256).digest() for key in installation)
        self._secrets = (secret.encode(),) if secret else tuple(derived)
        self._clock = clock

    def sign(self, log_id: str) -> str:
        """Return the token of a link to the content of a log, valid for a week."""
        claims = Claims(log_id, (self._clock.now_us() + LIFETIME_US) // SECOND_US)
        token: str = jws.serialize_compact(HEADER, json.encode(claims), _key(self._secrets[0]))
        return token

    def check(self, token: str, log_id: str) -> None:
        """Unauthenticated unless the token opens the content of this log now."""
        now_s = self._clock.now_us() // SECOND_US
        claims = [claim for secret in self._secrets if (claim := _read(token, secret)) is not None]
        if not any(claim.l == log_id and claim.exp > now_s for claim in claims):
            raise Unauthenticated(INVALID_TOKEN, code="invalid_video_token")


def _key(secret: bytes) -> Any:
    return jwk.OctKey.import_key(secret)


def _read(token: str, secret: bytes) -> Claims | None:
    if len(token) > MAX_LENGTH:
        return None
    try:
        opened = jws.deserialize_compact(token, _key(secret), algorithms=["HS256"])
        return json.decode(opened.payload, type=Claims)
    except (jose_errors.JoseError, DecodeError, ValidationError, ValueError, TypeError):
        return None


LINK = "/v1/videos/logs/{}/content?token={}"
State = Annotated[str, Meta(extra_json_schema={"enum": [*RUNNING, *sorted(FINAL_STATES)]})]


class VideoErrorAnswer(Struct):
    code: str
    message: str


class VideoContentAnswer(Struct):
    url: str
    mime_type: str | None
    type: Literal["video"] = "video"


class VideoCostsAnswer(Struct):
    video_output_cost: float
    image_input_cost: float


class VideoUsageAnswer(Struct):
    cost: float
    cost_details: VideoCostsAnswer


class VideoAnswer(Struct, kw_only=True):
    """OpenAI's video object, with `usage` once the job ended and `content` once there is a video. Times are seconds
    since 1970."""

    id: str
    object: Literal["video"] = "video"
    model: str
    status: State
    progress: int
    created_at: int
    completed_at: int | None
    expires_at: int | None
    error: VideoErrorAnswer | None = None
    prompt: str
    seconds: str
    size: str
    remixed_from_video_id: str | None = None
    usage: VideoUsageAnswer | UnsetType = UNSET
    content: list[VideoContentAnswer] | UnsetType = UNSET


class Presenter:
    """Returns jobs as answers. `base_url` is the gateway's URL as the caller sees it."""

    def __init__(self, sealed: SealedColumns, links: Links) -> None:
        self._sealed = sealed
        self._links = links

    def show(self, job: VideoJob, base_url: str) -> VideoAnswer:
        """Return the answer for a job."""
        shown = VideoAnswer(
            id=job.id,
            model=job.model,
            status=QUEUED if job.state == CREATING else job.state,
            progress=job.progress,
            created_at=job.created_at // SECOND_US,
            completed_at=_seconds(job.completed_at if job.state == COMPLETED else None),
            expires_at=_seconds(job.expires_at),
            prompt=self._sealed.text(job.wish),
            seconds=str(job.seconds),
            size=job.size,
        )
        if job.outcome:
            self._add_outcome(shown, job, base_url)
        return shown

    def link(self, log_id: str, base_url: str) -> str:
        """Return the URL that opens the content of a log without a key."""
        return base_url + LINK.format(log_id, self._links.sign(log_id))

    def _add_outcome(self, shown: VideoAnswer, job: VideoJob, base_url: str) -> None:
        outcome = DECODER.decode(job.outcome)
        costs = VideoCostsAnswer(usd_number(outcome.video_nusd), usd_number(outcome.image_nusd))
        shown.usage = VideoUsageAnswer(usd_number(outcome.cost_nusd), costs)
        if outcome.code:
            shown.error = VideoErrorAnswer(outcome.code, outcome.message)
        if job.state == COMPLETED:
            files = self._sealed.files(job.files)
            url = self.link(job.request_id, base_url)
            shown.content = [VideoContentAnswer(url, files[0].media_type if files else None)]


def _seconds(at_us: int | None) -> int | None:
    if at_us is None:
        return None
    return at_us // SECOND_US
