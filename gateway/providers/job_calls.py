"""The calls for a provider's asynchronous job: its status, its cancellation, and the download of its result."""

from typing import cast
from urllib.parse import urljoin, urlsplit

from gateway.clock import Clock
from gateway.errors import GatewayError, NotFound, UpstreamFailed
from gateway.neutral.videos import VideoFile, VideosRequest, VideoStatus
from gateway.providers.protocol import Call, JobCodec, Target, UpstreamReply, WireFormat
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Opener, signed_in
from gateway.transport import Transport
from gateway.transport.client import REDIRECT_STATUSES, REDIRECTS

CALL_TIMEOUT_S = 60.0
# The statuses of a download: complete, a range, or an invalid range.
SERVED = 200
PARTIAL = 206
NO_SUCH_PART = 416
# Temporary refusals and refusals of the credential, which reveal nothing about the job or the file.
PASSING = (408, 425, 429)
UNRELATED = (401, 403, *PASSING)
GONE = "The provider no longer has the video."


class JobCalls:
    """Calls about jobs. Each needs a target with the job's mapping and, if it still exists, the credential that started
    the job."""

    def __init__(self, upstreams: Upstreams, transport: Transport) -> None:
        self._upstreams = upstreams
        self._transport = transport

    def status(self, ident: str, target: Target, seconds: float = CALL_TIMEOUT_S, whole: bool = False) -> VideoStatus:
        """Return the job's status within `seconds`. A video inside the answer is read completely if `whole`, otherwise
        only its first bytes. Raises the errors of the transport and of the protocol's `failure`, and NotSupported."""
        codec, wire, opener, target = self._carrier(target)
        reply = _wait(opener, codec.status(ident, target), target, seconds)
        try:
            _check(wire, reply, target)
            return codec.read_status(reply, target, whole)
        finally:
            reply.close()

    def cancel(self, ident: str, target: Target) -> bool:
        """Cancel the job. Return False where the provider cannot cancel it. Raises the errors of `status`.

        A finished job is not canceled, because the same call makes most providers delete the finished video, which is
        billed."""
        codec, wire, opener, target = self._carrier(target)
        call = codec.cancel(ident, target)
        if call is None or self.status(ident, target).is_final:
            return False
        reply = _wait(opener, call, target)
        try:
            if 400 <= reply.status < 500 and reply.status not in UNRELATED:
                return False
            _check(wire, reply, target)
            return True
        finally:
            reply.close()

    def open(self, file: VideoFile, target: Target, ranged: dict[str, str], seconds: float) -> UpstreamReply:
        """Return the reply with the file's bytes, with a status of 200, 206 or 416. `ranged` are the caller's range
        headers. NotFound when the provider has deleted the file; also raises the errors of `status`. The reply must be
        closed."""
        deadline = Clock.monotonic() + seconds
        if not file.file:
            return self._load(file.url, target, ranged, deadline)
        codec, wire, opener, target = self._carrier(target)
        call = codec.content(file, target)
        parts = {} if codec.locates else ranged  # an answer with only a URL has no ranges
        call.headers = {**call.headers, **parts}
        call.stream = True
        call.endpoint = None
        reply = opener.send(call, target, deadline).wait()
        try:
            if reply.status == NO_SUCH_PART:
                return reply
            place = _redirect(reply, call.url)
            if not place:
                _check_file(wire, reply, target)
                place = codec.location(reply, target)
        except BaseException:
            reply.close()
            raise
        if not place:
            return reply
        reply.close()
        return self._load(place, target, ranged, deadline)

    def _load(self, url: str, target: Target, ranged: dict[str, str], deadline: float) -> UpstreamReply:
        """Open a URL from the provider's answer. The SSRF guard checks the URL and each redirect."""
        for _ in range(REDIRECTS + 1):
            trusted = target.trusted and urlsplit(url)[:2] == urlsplit(target.address)[:2]
            reply = self._transport.open("GET", url, ranged, stream=True, deadline=deadline, trusted=trusted)
            if reply.status in (SERVED, PARTIAL, NO_SUCH_PART):
                return _film(reply)
            status = reply.status
            try:
                url = _redirect(reply, url)
            finally:
                reply.close()
            if 400 <= status < 500 and status not in PASSING:
                raise NotFound(GONE, code="video_content_gone")
            if not url:
                raise UpstreamFailed(f"The URL of the video answered with status {status}.", upstream_status=status)
        raise UpstreamFailed("The URL of the video redirects too often.", code="too_many_redirects")

    def _carrier(self, target: Target) -> tuple[JobCodec, WireFormat, Opener, Target]:
        """Return how the calls of the target are made, and the target with its current credential."""
        wire, opener = self._upstreams.carrier(target)
        codec = wire.codecs.get(VideosRequest.operation)
        if codec is None:
            raise NotFound(f"The protocol of provider {target.provider.id} no longer supports videos.")
        return cast(JobCodec, codec), wire, opener, signed_in(target)


def _film(reply: UpstreamReply) -> UpstreamReply:
    """Return the reply if it may be a video. Closes it and raises UpstreamFailed for text, JSON or multipart
    content."""
    kind = reply.headers.get("content-type", "").lower()
    if reply.status != NO_SUCH_PART and ("json" in kind or kind.startswith(("text/", "multipart/"))):
        reply.close()
        raise UpstreamFailed("The URL of the video did not lead to a video.", upstream_status=reply.status)
    return reply


def _redirect(reply: UpstreamReply, url: str) -> str:
    """Return the URL that a reply redirects to; "" for no redirect. The credential must not be sent there.
    UpstreamFailed for an invalid URL."""
    place = reply.headers.get("location", "")
    try:
        if reply.status in REDIRECT_STATUSES and place:
            return urljoin(url, place)
        return ""
    except ValueError:
        raise UpstreamFailed("The URL of the video redirects to an invalid URL.", code="invalid_address") from None


def _wait(opener: Opener, call: Call, target: Target, seconds: float = CALL_TIMEOUT_S) -> UpstreamReply:
    return opener.send(call, target, Clock.monotonic() + seconds).wait()


def _check(wire: WireFormat, reply: UpstreamReply, target: Target) -> None:
    if not 200 <= reply.status < 300:
        error: GatewayError = wire.failure(reply, target)
        error.upstream_status = reply.status
        raise error


def _check_file(wire: WireFormat, reply: UpstreamReply, target: Target) -> None:
    if reply.status in (404, 410):
        raise NotFound(GONE, code="video_content_gone")
    _check(wire, reply, target)
