"""The calls about a job that a provider has: how far it is, its end, and the bytes of what it made."""

from typing import cast
from urllib.parse import urljoin, urlsplit

from gateway.clock import Clock
from gateway.errors import GatewayError, NotFound, UpstreamFailed
from gateway.neutral.videos import VideoFile, VideosRequest, VideoStatus
from gateway.providers.openers import Opener
from gateway.providers.protocol import Call, JobCodec, Target, UpstreamReply, Wire
from gateway.providers.upstream import Upstreams
from gateway.transport import Transport
from gateway.transport.client import REDIRECT_STATUSES, REDIRECTS

CALL_S = 60.0  # the most that a question takes
# What a caller gets of a file's answer: whole, in part, or that there is no such part.
SERVED = 200
PARTIAL = 206
NO_SUCH_PART = 416
# Refusals of the moment and of the credential, which say nothing of the job or the file.
UNRELATED = (401, 403, 408, 425, 429)
PASSING = (408, 425, 429)
GONE = "The provider does not have the video any more."


class JobCalls:
    """Every call needs a target of the mapping and, where it is still there, the credential that the job began with."""

    def __init__(self, upstreams: Upstreams, transport: Transport) -> None:
        self._upstreams = upstreams
        self._transport = transport

    def status(self, ident: str, target: Target, seconds: float = CALL_S, whole: bool = False) -> VideoStatus:
        """How far it is, asked for at most so many `seconds`; with the `whole` of a video that comes along, or the
        beginning. Errors of the transport and of the protocol's `failure`, NotSupported."""
        codec, wire, opener = self._carrier(target)
        reply = _wait(opener, codec.status(ident, target), target, seconds)
        try:
            _check(wire, reply, target)
            return codec.read_status(reply, target, whole)
        finally:
            reply.close()

    def cancel(self, ident: str, target: Target) -> bool:
        """Ask for its end; False where the provider cannot, or will not any more. Errors as `status`.

        A job that has ended is left alone: by the same call most providers forget a finished video, which is billed."""
        codec, wire, opener = self._carrier(target)
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
        """The reply that brings the bytes, with a status of 200, 206 or 416; `ranged` are the caller's headers about
        parts. NotFound when the provider has it no more; errors as `status`. The reply must be closed."""
        deadline = Clock.monotonic() + seconds
        if not file.file:
            return self._load(file.url, target, ranged, deadline)
        codec, wire, opener = self._carrier(target)
        call = codec.content(file, target)
        parts = {} if codec.locates else ranged  # an answer that names the place alone has no parts
        call.headers = {**call.headers, **parts}
        call.stream = True
        call.way = None
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
        """Of an address that the provider named; each of its redirects passes the address guard anew."""
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
                raise UpstreamFailed("The address of the video did not answer as it should.", upstream_status=status)
        raise UpstreamFailed("The address of the video redirects too often.", code="too_many_redirects")

    def _carrier(self, target: Target) -> tuple[JobCodec, Wire, Opener]:
        wire, opener = self._upstreams.carrier(target)
        codec = wire.codecs.get(VideosRequest.operation)
        if codec is None:
            raise NotFound(f"The protocol of provider {target.provider.id} carries no videos any more.")
        return cast(JobCodec, codec), wire, opener


def _film(reply: UpstreamReply) -> UpstreamReply:
    """UpstreamFailed for a page, an object or several parts where a video should be: it is closed then."""
    kind = reply.headers.get("content-type", "").lower()
    if reply.status != NO_SUCH_PART and ("json" in kind or kind.startswith(("text/", "multipart/"))):
        reply.close()
        raise UpstreamFailed("The address of the video led to something else.", upstream_status=reply.status)
    return reply


def _redirect(reply: UpstreamReply, url: str) -> str:
    """Where an answer sends on; "" for one that does not. A credential is not sent there. UpstreamFailed for a place
    that is none."""
    place = reply.headers.get("location", "")
    try:
        if reply.status in REDIRECT_STATUSES and place:
            return urljoin(url, place)
        return ""
    except ValueError:
        raise UpstreamFailed("The address of the video redirects to an invalid one.", code="invalid_address") from None


def _wait(opener: Opener, call: Call, target: Target, seconds: float = CALL_S) -> UpstreamReply:
    return opener.send(call, target, Clock.monotonic() + seconds).wait()


def _check(wire: Wire, reply: UpstreamReply, target: Target) -> None:
    if not 200 <= reply.status < 300:
        error: GatewayError = wire.failure(reply, target)
        error.upstream_status = reply.status
        raise error


def _check_file(wire: Wire, reply: UpstreamReply, target: Target) -> None:
    if reply.status in (404, 410):
        raise NotFound(GONE, code="video_content_gone")
    _check(wire, reply, target)
