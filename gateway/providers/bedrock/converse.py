"""The Converse protocol: builds calls, signed or with an API key, and reads complete and streamed responses."""

import base64
import binascii
import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote, urlsplit

import orjson
from msgspec import json, structs

from gateway.clock import Clock
from gateway.errors import GatewayError, UpstreamFailed, UpstreamRateLimited, UpstreamRefused, UpstreamTimeout
from gateway.neutral.chat import ChatRequest, ChatResult, FinishReason, Native
from gateway.neutral.events import (
    Batch,
    BlockDone,
    Failed,
    Finished,
    PartFound,
    ReasoningDelta,
    SourceFound,
    TextDelta,
    ToolCallDelta,
)
from gateway.neutral.parameters import lost_by
from gateway.neutral.parts import ExecutedBy
from gateway.providers.answer_checks import NOT_JSON, SHAPE_ERRORS, UNKNOWN_SHAPE, empty_answer, is_empty, text_in
from gateway.providers.bedrock.content import SEALER, SIGNER
from gateway.providers.bedrock.eventstream import Frame, FrameReader
from gateway.providers.bedrock.reply import (
    DIALECT,
    read_finish,
    read_image,
    read_result,
    read_source,
    read_stop,
    read_tier,
    read_usage,
)
from gateway.providers.bedrock.request import write_body
from gateway.providers.bedrock.signing import CredentialScope, read_access_key, sign
from gateway.providers.failures import (
    MAX_ERROR_BYTES,
    Explanation,
    classify,
    diagnose,
    explain,
    read_refusal,
    retry_after,
    truncated,
)
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.sse import EventFraming, WireStream
from gateway.providers.tool_names import BEDROCK

# Classifies errors of the service, which reports their kind in a header or in the frame instead of the body.
#
# Wire facts: Amazon Bedrock API reference, Converse, "Errors"; AWS REST-JSON protocol, x-amzn-errortype.

# The status of each exception in a stream; 500 for all others.
EXCEPTION_STATUSES = {
    "validationException": 400,
    "throttlingException": 429,
    "serviceUnavailableException": 503,
    "modelStreamErrorException": 424,
}
FAILED_MODEL = 424  # the model behind the service failed; the request is not at fault
# Messages of a 400 about the account or the catalogue entry: no access to the model, or a model that is served only by
# the id of an inference profile.
ACCOUNT_ERROR = re.compile(
    r"on-demand throughput isn.t supported|inference profile|access to the model|don.t have access|not authorized"
    r"|model identifier|marked by provider as legacy|end of its life|use case details|operation not allowed",
    re.IGNORECASE,
)
QUOTA = "servicequotaexceededexception"  # which comes with the status 400


def http_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """Return the error for a response other than 2xx. Reads the body; never raises."""
    body = read_refusal(reply)
    secrets = (target.credential.secret, *target.credential.secret.split(":"))
    cause = explain(body, secrets)
    kind = reply.headers.get("x-amzn-errortype", "").partition(":")[0] or cause.kind.rpartition("#")[2]
    # `shaped` lets a caller see the message: the service's own error shape has no code in the body.
    cause = structs.replace(cause, code=kind, shaped=bool(cause.message))
    return _classify(reply.status, cause, target, retry_after(reply.headers))


def frame_failure(frame: Frame) -> GatewayError:
    """Return the error for an exception frame in a stream."""
    cause = explain(frame.payload)
    cause = structs.replace(cause, code=frame.name, message=cause.message or cause.text, shaped=True)
    return _classify(EXCEPTION_STATUSES.get(frame.name, 500), cause, None, None)


def read_failure(reply: UpstreamReply) -> GatewayError:
    """Return the error for a 2xx response that is not a stream."""
    cause = explain(reply.read_all()[:MAX_ERROR_BYTES])
    message = "The provider's response is not an event stream."
    return UpstreamFailed(message, upstream_status=reply.status, details={"responseText": cause.text})


def _classify(status: int, cause: Explanation, target: Target | None, wait: float | None) -> GatewayError:
    details = diagnose(cause, target)
    if cause.code.lower() == QUOTA:
        message = "The provider limits the rate of requests."
        return UpstreamRateLimited(message, details=details, upstream_status=status, retry_after=wait)
    if status == FAILED_MODEL:
        return UpstreamFailed("The provider's model failed.", details=details, upstream_status=status)
    if status == 400 and ACCOUNT_ERROR.search(cause.message):
        message = "The provider does not serve this model to the gateway's account."
        return UpstreamRefused(message, details=details, upstream_status=status)
    if status == 400 and target is None and "timed out" in cause.message.lower():
        return UpstreamTimeout("The provider did not answer in time.", details=details, upstream_status=status)
    return classify(status, cause, target, wait)


# Reads a ConverseStream response as batches of neutral events.
#
# A stream is complete after `messageStop`; usage follows in `metadata`, the last event. Any other stream is truncated
# (Amazon Bedrock API reference, ConverseStreamOutput).

EVENT_FRAMING = EventFraming("vnd.amazon.eventstream", FrameReader, read_failure)
Wire = dict[str, Any]


class BedrockStreamReader(WireStream):
    """Reads one stream.

    Blocks are numbered by index and kind, since some models change the kind of content without a new index.
    """

    framing = EVENT_FRAMING

    def __init__(self) -> None:
        self._finish: FinishReason | None = None
        self._stop = ""
        self._tier = ""
        self._blocks: dict[tuple[int, str], int] = {}
        self._sealed: dict[int, bytearray] = {}
        self._formats: dict[int, str] = {}
        self._cited: dict[int, Batch] = {}  # by index: citations, which may arrive before their text

    def take(self, frames: list[Frame]) -> tuple[Batch, bool]:
        """Return the neutral events of some frames, and whether the last one is terminal."""
        batch: Batch = []
        for frame in frames:
            if frame.kind != "event":
                return self._fail(batch, frame_failure(frame)), True
            try:
                if self._take(frame, batch):
                    return batch, True
            except orjson.JSONDecodeError:
                return self._fail(batch, UpstreamFailed(NOT_JSON)), True
            except SHAPE_ERRORS:
                return self._fail(batch, UpstreamFailed(UNKNOWN_SHAPE)), True
            except GatewayError as error:
                return self._fail(batch, error), True
        return batch, False

    def finish(self, frames: list[Frame]) -> Batch:
        """Return the terminal event at the end of the connection; models without metadata end with messageStop."""
        return self._end([], self._last() if self._finish is not None else Failed(truncated(), self._usage))

    def _take(self, frame: Frame, batch: Batch) -> bool:
        wire = self._read(frame.payload) if frame.payload else {}
        if frame.name == "metadata":
            self._usage = read_usage(wire.get("usage")) or self._usage
            self._tier = read_tier(wire)
            if self._finish is None:
                return False
            self._end(batch, self._last())
            return True
        taker = EVENT_HANDLERS.get(frame.name)
        if taker is not None:
            taker(self, wire, batch)
        return False

    def _read(self, payload: bytes) -> Any:
        try:
            return self.loads(payload)
        except orjson.JSONDecodeError:
            wire = self._read_joined(payload)
            if wire is None:
                raise
            return wire

    def _take_start(self, wire: Wire, batch: Batch) -> None:
        self._begin(batch)

    def _block(self, index: int, kind: str) -> int:
        return self._blocks.setdefault((index, kind), len(self._blocks))

    def _take_block_start(self, wire: Wire, batch: Batch) -> None:
        self._begin(batch)
        index = wire["contentBlockIndex"]
        start = wire["start"]
        call = start.get("toolUse")
        if call:
            executed: ExecutedBy = "provider" if call.get("type") == "server_tool_use" else ""
            block = self._block(index, "toolUse")
            ident = text_in(call["toolUseId"])
            batch.append(ToolCallDelta(block, id=ident, name=text_in(call["name"]), executed=executed))
            self._content = True
        if start.get("image"):
            self._formats[index] = text_in(start["image"].get("format") or "")

    def _take_delta(self, wire: Wire, batch: Batch) -> None:
        self._begin(batch)
        index = wire["contentBlockIndex"]
        delta = wire["delta"]
        before = len(batch)
        match delta:
            case {"text": str(text)}:
                if text:
                    batch.append(TextDelta(text, self._block(index, "text")))
            case {"toolUse": call}:
                batch.append(ToolCallDelta(self._block(index, "toolUse"), call.get("input") or ""))
            case {"reasoningContent": reasoning}:
                self._take_reasoning(index, reasoning, batch)
            case {"citation": citation}:
                source = read_source(citation)
                if source is not None:
                    self._content = True
                    self._cited.setdefault(index, []).append(SourceFound(source, self._block(index, "text")))
            case {"image": {"source": source}}:
                image = {"format": self._formats.get(index, ""), "source": source}
                batch.append(PartFound(read_image(image), self._block(index, "image")))
        self._content = self._content or len(batch) > before

    def _take_reasoning(self, index: int, delta: Wire, batch: Batch) -> None:
        """Read a delta of reasoning; redacted content is passed on once its block is whole.

        Each piece of redacted content is separate base64, so the pieces cannot be joined as text.
        """
        if delta.get("redactedContent"):
            try:
                piece = base64.b64decode(delta["redactedContent"], validate=True)
            except binascii.Error:
                raise UpstreamFailed(UNKNOWN_SHAPE) from None
            self._sealed.setdefault(index, bytearray()).extend(piece)
            self._content = True
            return
        text = delta.get("text") or ""
        signature = text_in(delta.get("signature") or "")
        if text or signature:
            block = self._block(index, "reasoning")
            batch.append(ReasoningDelta(text, signature, vendor=SIGNER if signature else "", block=block))

    def _take_block_stop(self, wire: Wire, batch: Batch) -> None:
        index = wire["contentBlockIndex"]
        sealed = self._sealed.pop(index, None)
        if sealed is not None:
            text = base64.b64encode(sealed).decode()
            batch.append(ReasoningDelta(sealed=text, vendor=SEALER, block=self._block(index, "sealed")))
        batch += self._cited.pop(index, ())
        batch.extend(BlockDone(block) for (block_index, _), block in self._blocks.items() if block_index == index)

    def _take_stop(self, wire: Wire, batch: Batch) -> None:
        self._begin(batch)
        self._stop = read_stop(wire)
        self._finish = read_finish(wire["stopReason"])

    def _last(self) -> Finished | Failed:
        finish = self._finish or "stop"
        if is_empty(self._content, finish, self._usage):
            return Failed(empty_answer(finish, self._usage), self._usage)
        return Finished(finish, self._usage, self._stop, self._tier)


# A table of the module: bound methods in each reader would be reference cycles that only the garbage collector frees.
EVENT_HANDLERS: dict[str, Callable[[BedrockStreamReader, Wire, Batch], None]] = {
    "messageStart": BedrockStreamReader._take_start,
    "contentBlockStart": BedrockStreamReader._take_block_start,
    "contentBlockDelta": BedrockStreamReader._take_delta,
    "contentBlockStop": BedrockStreamReader._take_block_stop,
    "messageStop": BedrockStreamReader._take_stop,
}


SERVICE = "bedrock"
# The host names of the service contain the region, also those of private endpoints.
REGION_IN_HOST = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z]{2}[a-z0-9-]*-\d)\.")
REGION_NAME = re.compile(r"[a-z]{2}[a-z0-9-]*-\d")
DEFAULT_REGION = "us-east-1"
EVENT_STREAM_TYPE = "application/vnd.amazon.eventstream"
JSON_TYPE = "application/json"


class BedrockConverse:
    """POST {address}/model/{id}/converse or converse-stream. `clock` gives the time of signatures."""

    dialect = DIALECT
    lost = lost_by("bedrock") | {"json_object"}
    waits = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Build the call for a neutral request. NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        prepared = prepare(request, self.dialect, BEDROCK, warnings)
        call = self._finish(write_body(prepared.request, target, warnings), request, target, warnings)
        call.renamed = prepared.renamed
        call.custom = prepared.custom
        return call

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Build the call from the caller's native body, with this target's output limit."""
        body = dict(native.body)
        if target.output_cap is not None:
            limits = dict(body.get("inferenceConfig") or {})
            limits["maxTokens"] = min(limits.get("maxTokens") or target.output_cap, target.output_cap)
            body["inferenceConfig"] = limits
        return self._finish(body, request, target, [])

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete response. UpstreamFailed for an unexpected shape or an empty response."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the events of a streamed response, one batch for each receive.

        A stream is never relayed, since no caller uses this framing.
        """
        return BedrockStreamReader().read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        return http_failure(reply, target)

    def _finish(self, body: dict[str, Any], request: ChatRequest, target: Target, warnings: list[str]) -> Call:
        stream = request.requirements.stream
        url = locate(target, stream)
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["content-type"] = JSON_TYPE
        if stream:
            headers["accept"] = EVENT_STREAM_TYPE
        else:
            headers["accept"] = JSON_TYPE
        payload = json.encode(body)
        headers = self._authorize("POST", url, headers, payload, target)
        return Call("POST", url, headers, payload, stream, tuple(warnings))

    def _authorize(self, method: str, url: str, headers: dict[str, str], body: bytes, target: Target) -> dict[str, str]:
        """Return the headers with an API key, or with a signature by an access key."""
        secret = target.credential.secret
        if not secret:
            return headers
        key = read_access_key(secret)
        if key is None:
            return {**headers, "authorization": f"Bearer {secret}"}
        scope = CredentialScope(region_of(url, target), SERVICE, self._clock.now())
        return sign(method, url, headers, body, key, scope)


def locate(target: Target, stream: bool) -> str:
    """Return the URL of the call; the model's id (or ARN) is one segment of the path."""
    base, _, query = target.address.partition("?")
    verb = "converse-stream" if stream else "converse"
    url = f"{base.rstrip('/')}/model/{quote(target.mapping.external_id, safe='~')}/{verb}"
    if query:
        return f"{url}?{query}"
    return url


def region_of(url: str, target: Target) -> str:
    """Return the region of a signature: that of the host, or else the provider's setting.

    The region of a mapping is not used, since it may name a group of regions, for which no signature is valid.
    """
    match = REGION_IN_HOST.search(urlsplit(url).hostname or "")
    if match:
        return match[1]
    chosen = target.settings.get("region", "")
    if REGION_NAME.fullmatch(chosen):
        return chosen
    return DEFAULT_REGION
