"""The calls about files at providers: uploaded, shown and deleted."""

from collections.abc import Callable
from typing import NamedTuple, TypeVar

from gateway.clock import Clock
from gateway.errors import GatewayError, NotSupported, UpstreamTimeout
from gateway.providers.files.file_codec import READY, REFUSED, FileCodec, FileContent, ProviderFile
from gateway.providers.protocol import Call, Target, UpstreamReply, WireFormat
from gateway.providers.upstream import Upstreams
from gateway.providers.upstream_calls import Opener, signed_in, succeeded
from gateway.runtime.threads import pause

CALL_TIMEOUT_S = 60.0
FIRST_LOOK_S, MAX_LOOK_S = 0.25, 5.0  # between looks at a file that its provider still reads
# Answers by which a provider refuses a file itself, or has no files API at this address: another one may take it.
REFUSALS = (400, 404, 405, 413, 415, 422, 501)

T = TypeVar("T")


class FileCarrier(NamedTuple):
    """How the calls of a target are made, and the target with its current credential."""

    codec: FileCodec
    wire: WireFormat
    opener: Opener
    target: Target


class FileCalls:
    """Calls about files. All raise the errors of the transport and of the protocol's `failure`, and NotSupported where
    the provider has no files API. `deadline` is in monotonic seconds."""

    def __init__(self, upstreams: Upstreams, codecs: dict[str, FileCodec]) -> None:
        self._upstreams = upstreams
        self._codecs = codecs

    def codec_of(self, target: Target) -> FileCodec | None:
        """Return the codec of the target's files API; None where it has none."""
        return self._codecs.get(target.provider.files_api)

    def upload(self, content: FileContent, target: Target, deadline: float) -> ProviderFile:
        """Upload a file and wait until requests can name it. NotSupported where the provider does not take it."""
        carrier = self._carry(target)
        codec = carrier.codec
        try:
            made = self._upload(carrier, content, deadline)
        except GatewayError as error:
            if error.upstream_status in REFUSALS:
                message = f"{target.provider.id} does not take this file: {error.message}"
                raise NotSupported(message, param="file_id", code="file_not_usable") from None
            raise
        wait_s = FIRST_LOOK_S
        while made.state != READY:
            if made.state == REFUSED:
                raise NotSupported(f"{target.provider.id} could not read this file.", param="file_id")
            if Clock.monotonic() + wait_s >= deadline:
                raise UpstreamTimeout(f"{target.provider.id} did not read the file in time.")
            pause(wait_s)
            wait_s = min(wait_s * 2, MAX_LOOK_S)
            made = self._send(carrier, codec.show(made.ident, carrier.target), codec.read, deadline)
        return made

    def exists(self, ident: str, target: Target) -> bool:
        """Return whether a provider still has a file."""
        carrier = self._carry(target)
        call = carrier.codec.show(ident, carrier.target)
        try:
            shown = self._send(carrier, call, carrier.codec.read, Clock.monotonic() + CALL_TIMEOUT_S)
        except GatewayError as error:
            if error.upstream_status in carrier.codec.gone:
                return False
            raise
        return shown.state != REFUSED

    def delete(self, ident: str, target: Target) -> None:
        """Delete a file. It is no error if that does not exist."""
        carrier = self._carry(target)
        call = carrier.codec.delete(ident, carrier.target)
        try:
            self._open(carrier, call, Clock.monotonic() + CALL_TIMEOUT_S).close()
        except GatewayError as error:
            if error.upstream_status not in carrier.codec.gone:
                raise

    def _upload(self, carrier: FileCarrier, content: FileContent, deadline: float) -> ProviderFile:
        codec = carrier.codec
        reply = self._open(carrier, codec.upload(content, carrier.target), deadline)
        try:
            following = codec.proceed(reply, content, carrier.target)
            if following is None:
                return codec.read(reply)
        finally:
            reply.close()
        return self._send(carrier, following, codec.read, deadline)

    def _carry(self, target: Target) -> FileCarrier:
        codec = self._codecs.get(target.provider.files_api)
        if codec is None:
            raise NotSupported(f"The provider {target.provider.id} has no files API.")
        wire, opener = self._upstreams.carrier(target)
        return FileCarrier(codec, wire, opener, signed_in(target))

    def _send(self, carrier: FileCarrier, call: Call, read: Callable[[UpstreamReply], T], deadline: float) -> T:
        reply = self._open(carrier, call, deadline)
        try:
            return read(reply)
        finally:
            reply.close()

    def _open(self, carrier: FileCarrier, call: Call, deadline: float) -> UpstreamReply:
        """Return the reply of a call that succeeded."""
        reply = carrier.opener.send(call, carrier.target, deadline).wait()
        return succeeded(reply, carrier.wire, carrier.target)
