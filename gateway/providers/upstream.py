"""Sends a request of any operation to a target: relay or rebuild, then read the answer with its protocol's codec."""

import dataclasses
from collections.abc import Callable, Generator, Iterator
from typing import Any

from msgspec.structs import replace

from gateway.clock import Clock
from gateway.errors import (
    ContentNeeded,
    GatewayError,
    NotSupported,
    SealedElsewhere,
    UpstreamFailed,
    UpstreamTimeout,
)
from gateway.neutral.chat import ChatRequest, Conversation, VendorTool, WebSearch
from gateway.neutral.events import Batch, Heartbeat, Notice, Started
from gateway.neutral.operations import OPERATIONS
from gateway.neutral.realtime import RealtimeRequest
from gateway.neutral.request import Request
from gateway.providers import custom_tools, upstream_calls
from gateway.providers.media_fetching import Fetcher, fetch_media, release
from gateway.providers.protocol import Call, Codec, Target, UpstreamReply, WireFormat
from gateway.providers.quirks import THINK_TAGS
from gateway.providers.think_tags import split_batches, split_result
from gateway.providers.tool_names import restore_batches, restore_result
from gateway.providers.upstream_calls import (
    Answering,
    CallListener,
    CallPath,
    CapturedPending,
    Opener,
    PendingCall,
    RepeatedCall,
    SessionLink,
    UpstreamSession,
    mends,
    signed_in,
    signed_in_again,
)
from gateway.runtime.threads import compute_if
from gateway.transport.websocket_channels import HandshakeRefused

# Removes hosted tools that a request offers without requiring them.

WEB_SEARCH = "web_search"


def without_offers(request: Request, key: str) -> Request:
    """Return the request without its optional hosted tools, with a warning for each; unchanged when it has none. `key`
    is the key of the mapping that lacks them."""
    needs = request.requirements
    if not isinstance(request, ChatRequest) or not (needs.search_offered or needs.hosted):
        return request
    read = request.conversation
    kinds = dict.fromkeys(
        tool.kind if isinstance(tool, VendorTool) else WEB_SEARCH for tool in read().tools if _is_hosted(tool)
    )
    reported = tuple(f"tools: {kind} was left out: {key} has no such tool." for kind in kinds)
    return request.with_conversation(
        lambda: _strip(read()),
        requirements=replace(needs, web_search=False, search_offered=False, hosted=""),
        native=None,
        warnings=(*request.warnings, *reported),
    )


def write_bare(codec: Codec, request: Request, target: Target, error: NotSupported) -> Call:
    """Return the call without the optional tools. Raises `error` when there are none or when this fails too."""
    bare = without_offers(request, target.mapping.key)
    if bare is request:
        raise error from None
    try:
        call = upstream_calls.write_call(codec, bare, target)
    except NotSupported:
        raise error from None
    call.warnings = (*bare.warnings[len(request.warnings) :], *call.warnings)
    return call


def _is_hosted(tool: object) -> bool:
    return isinstance(tool, WebSearch) or (isinstance(tool, VendorTool) and not tool.instead)


def _strip(conversation: Conversation) -> Conversation:
    tools = tuple(tool for tool in conversation.tools if not _is_hosted(tool))
    return replace(conversation, tools=tools, tool_choice=conversation.tool_choice if tools else None)


MUTE = "The provider sent no response while another request waited for the same answer."
SILENCE_CHECK_S = 1.0  # how often a call that has not begun to answer is looked at
SILENCE_CHECK: Batch = [Heartbeat()]  # the batch at which it is, which callers do not get
CACHE_MARKS = "cache_marks"  # the field of Requirements
NOT_THERE = (404, 405, 501)
ABSENCE_LOG_INTERVAL_S = 300.0
TOOLS_REASON = "tools_reason_by_responses"  # a key of a mapping's `extra`


class Upstreams:
    """All protocols by name, and how their calls are sent: by `network`, except for the protocols in `openers`."""

    def __init__(
        self,
        wires: dict[str, WireFormat],
        network: Opener,
        openers: dict[str, Opener],
        heartbeat_s: float,
        fetcher: Fetcher | None = None,
    ) -> None:
        self._wires = wires
        self._fetcher = fetcher
        self._network = network
        self._openers = openers
        self._heartbeat_s = heartbeat_s
        self.marked = frozenset(name for name, wire in wires.items() if CACHE_MARKS not in wire.lost)

    def send(
        self,
        request: Request,
        target: Target,
        deadline: float,
        listener: CallListener | None = None,
        should_abandon: Callable[[], bool] | None = None,
    ) -> Any:
        """Send the request and return the result of its operation. Raises the errors of WireFormat.failure and the
        transport, and NotSupported. While no response has begun, `should_abandon` is called every few seconds;
        UpstreamTimeout when it returns true."""
        if target.credential.identity is not None:
            target = signed_in(target)
        try:
            served, call, relayed, pending = self._send(request, target, deadline, listener)
            reply = pending.wait() if should_abandon is None else self._wait(pending, should_abandon)
            if reply.status in NOT_THERE and (first := self._first_of(served, request, target)) is not None:
                reply.close()
                served, call, relayed, pending = self._send(request, target, deadline, listener, first)
                reply = pending.wait() if should_abandon is None else self._wait(pending, should_abandon)
                self._note_absence(first, reply)
            try:
                if not 200 <= reply.status < 300:
                    return self._send_renewed(served, reply, request, target, deadline, listener, should_abandon)
                result = upstream_calls.read_answer(call.reader or served.codec, reply, relayed)
                if served.check is not None:
                    served.check(request, result)
                if served.tagged or call.renamed or call.custom:
                    result = compute_if(result.large, _restore, result, served.tagged, call.renamed, call.custom)
            finally:
                reply.close()
        except BaseException:
            release(request)
            raise
        if call.warnings:
            return dataclasses.replace(result, warnings=(*call.warnings, *result.warnings))
        return result

    def _send_renewed(
        self,
        served: CallPath,
        reply: UpstreamReply,
        request: Request,
        target: Target,
        deadline: float,
        listener: CallListener | None,
        should_abandon: Callable[[], bool] | None,
    ) -> Any:
        """Send the request once more with a new token if the provider rejected that of the target, otherwise raise the
        error of its reply."""
        renewed = signed_in_again(target, reply)
        if renewed is None:
            raise _failure(served, reply, target)
        reply.close()
        return self.send(request, renewed, deadline, listener, should_abandon)

    def stream(
        self, request: Request, target: Target, deadline: float, listener: CallListener | None = None
    ) -> Answering:
        """Start a streamed answer. Its batches contain a Heartbeat while no data arrives; iterating over them raises
        the errors of `send`."""
        target = signed_in(target)
        try:
            served, call, relayed, pending = self._send(request, target, deadline, listener)
        except BaseException:
            release(request)
            raise
        answering = Answering(pending)
        again = RepeatedCall(request, target, deadline, listener)
        answering.batches = self._read(answering, pending, served, call, relayed, again)
        return answering

    def try_writing(self, request: Request, target: Target) -> None:
        """Raise NotSupported where the target cannot carry a request that is rebuilt. Nothing is sent."""
        served = target.memo.get((self, request.operation)) or self._serve(target, request.operation)
        self._write(served, request, target)

    def connect(self, request: Request, target: Target, deadline: float) -> UpstreamSession:
        """Return an open session. Raises the errors of WireFormat.failure and the transport, and NotSupported."""
        wire = self._wires.get(target.protocol)
        codec: Any = None if wire is None else wire.codecs.get(request.operation)
        if wire is None or codec is None:
            raise NotSupported(f"The protocol of provider {target.provider.id} does not carry {request.operation}.")
        opener = self._openers.get(target.protocol, self._network)
        target = signed_in(target)

        def dial(call: Call, seconds: float) -> SessionLink:
            return opener.connect(call, target, Clock.monotonic() + seconds)

        try:
            session: UpstreamSession = codec.open(request, target, dial, deadline - Clock.monotonic())
            return session
        except HandshakeRefused as refused:
            if (renewed := signed_in_again(target, refused)) is not None:
                return self.connect(request, renewed, deadline)
            error = wire.failure(refused, target)
            error.upstream_status = refused.status
            raise error from None

    def transcribes(self, target: Target) -> bool:
        """Whether a session's model transcribes the input audio itself, without a separate transcription model."""
        wire = self._wires.get(target.protocol)
        codec: Any = None if wire is None else wire.codecs.get(RealtimeRequest.operation)
        return codec is not None and codec.transcribes is True

    def carrier(self, target: Target) -> tuple[WireFormat, Opener]:
        """Return the protocol of a target and its opener, for the calls that follow a job's first answer. NotSupported
        where this worker no longer has the protocol."""
        wire = self._wires.get(target.protocol)
        if wire is None:
            raise NotSupported(f"The protocol of provider {target.provider.id} is no longer available.")
        return wire, self._openers.get(target.protocol, self._network)

    def read_usage(self, target: Target, operation: str, reply: UpstreamReply) -> Any:
        """Return the result of an answer that is only billed, read in either protocol of the target, for its usage.
        UpstreamFailed, NotSupported."""
        wires = [wire for name in (target.protocol, target.second) if (wire := self._wires.get(name)) is not None]
        codecs: list[Any] = [wire.codecs[operation] for wire in wires if operation in wire.codecs]
        failure: GatewayError = NotSupported(f"The protocol of provider {target.provider.id} is no longer available.")
        for codec in codecs:
            try:
                result = upstream_calls.read_answer(codec, reply, False)
            except UpstreamFailed as error:
                failure = error
                continue
            if result.usage is not None:
                return result
        raise failure

    def through(self, opener: Opener, target: Target, operation: str) -> Target:
        """Return a copy of the target that sends its calls of one operation to `opener`. NotSupported;
        IdentityFailed."""
        target = signed_in(target)
        credential = dataclasses.replace(target.credential, identity=None)
        target = dataclasses.replace(target, credential=credential, memo={})
        path = self._serve(target, operation)
        path.opener = opener
        if path.second is not None:
            path.second.opener = opener
        return target

    def _send(
        self,
        request: Request,
        target: Target,
        deadline: float,
        listener: CallListener | None,
        served: CallPath | None = None,
    ) -> tuple[CallPath, Call, bool, PendingCall]:
        """Send the call. Return its path (`served`, or the path that suits the request), the call, whether it was
        relayed, and the pending response."""
        if served is None:
            served = target.memo.get((self, request.operation)) or self._serve(target, request.operation)
            second = served.second
            if second is not None:
                if served.needs_second(request, second):
                    served = second
                elif served.loses_by_first(request, second):
                    if served.absent_until <= Clock.monotonic():
                        served = second
                    else:
                        request = without_offers(request, target.mapping.key)
        else:
            request = without_offers(request, target.mapping.key)
        native = request.native
        codec = served.codec
        # Only this decides between relaying and rebuilding. A codec that `mends` applies changes to a native body.
        relayed = (
            native is not None
            and native.dialect == codec.dialect
            and not served.tagged
            and (not native.adapted or mends(codec))
        )
        try:
            if native is not None and relayed:
                call = upstream_calls.relay_call(codec, native, request, target)
            else:
                served, call = self._write(served, request, target)
        except NotSupported as error:
            served, call = self._rewrite(served, request, target, error, relayed, deadline)
            relayed = False
        if request.warnings:
            call.warnings = (*request.warnings, *call.warnings)
        if listener is None:
            return served, call, relayed, served.opener.send(call, target, deadline)
        listener.sending(call)
        listener.sent(call.method, call.url, call.body)
        return served, call, relayed, CapturedPending(served.opener.send(call, target, deadline), listener)

    def _write(self, served: CallPath, request: Request, target: Target) -> tuple[CallPath, Call]:
        """Rebuild the call: over the other protocol for content that `served` cannot carry, otherwise without the
        optional tools. NotSupported."""
        try:
            return served, upstream_calls.write_call(served.codec, request, target)
        except SealedElsewhere:
            raise
        except NotSupported as error:
            first = self._first(request, target)
            other = first.second if served is first else first
            if other is None or (other is first and first.needs_second(request, served)):
                return served, write_bare(served.codec, request, target, error)
            try:
                return other, upstream_calls.write_call(other.codec, request, target)
            except ContentNeeded:
                raise  # once the content is fetched, this protocol carries what `served` does not
            except NotSupported:
                return first, write_bare(first.codec, request, target, error)

    def _rewrite(
        self,
        served: CallPath,
        request: Request,
        target: Target,
        error: NotSupported,
        relayed: bool,
        deadline: float,
    ) -> tuple[CallPath, Call]:
        """Rebuild the call after `error`: with the content of its URLs, or instead of relaying. Raises `error` where
        this fails too."""
        if isinstance(error, ContentNeeded) and self._fetcher is not None and isinstance(request, ChatRequest):
            return self._write(served, fetch_media(self._fetcher, request, deadline - Clock.monotonic()), target)
        if not relayed or isinstance(error, SealedElsewhere):
            raise error
        first = self._first(request, target)
        if not first.needs_second(request, served):
            served = first
        try:
            return self._write(served, request, target)
        except ContentNeeded as needed:
            return self._rewrite(served, request, target, needed, False, deadline)
        except NotSupported:
            raise error from None

    def _first(self, request: Request, target: Target) -> CallPath:
        path: CallPath = target.memo[self, request.operation]
        return path

    def _serve(self, target: Target, operation: str) -> CallPath:
        wire = self._wires.get(target.protocol)
        codec: Any = None if wire is None else wire.codecs.get(operation)  # a StreamCodec where streaming exists
        if wire is None or codec is None:
            raise NotSupported(f"The protocol of provider {target.provider.id} does not carry {operation}.")
        opener = self._openers.get(target.protocol, self._network)
        tagged = THINK_TAGS in target.quirks and operation == ChatRequest.operation
        check = OPERATIONS[operation].check
        served = target.memo[self, operation] = CallPath(codec, wire.failure, opener, tagged, check=check)
        other = self._wires.get(target.second) if target.second else None
        if other is not None and operation in other.codecs:
            codec = other.codecs[operation]
            served.second = CallPath(codec, other.failure, self._network, tagged)
            served.reasons = target.mapping.reasoning
            served.tools_reason = bool(target.mapping.extra.get(TOOLS_REASON))
        return served

    def _first_of(self, served: CallPath, request: Request, target: Target) -> CallPath | None:
        """Return the path for retrying a call after the second protocol was not found (an operator's base URL may lead
        to a server without it); None when the first protocol cannot carry the request."""
        first = self._first(request, target)
        if served is first or served is not first.second or first.needs_second(request, served):
            return None
        return first

    def _note_absence(self, first: CallPath, reply: UpstreamReply) -> None:
        """Note that only the first protocol exists at the target, so that the next requests skip the second."""
        if 200 <= reply.status < 300:
            first.absent_until = Clock.monotonic() + ABSENCE_LOG_INTERVAL_S

    def _read(
        self,
        answering: Answering,
        pending: PendingCall,
        served: CallPath,
        call: Call,
        relayed: bool,
        again: RepeatedCall,
    ) -> Iterator[Batch]:
        request: Request | None = again.request
        try:
            reply = yield from self._await(pending)
            answering.answered(reply)
            target = again.target
            if reply.status in NOT_THERE and (first := self._first_of(served, again.request, target)) is not None:
                reply.close()
                served, call, relayed, pending = self._send(*again, first)
                answering.sent(pending)
                reply = yield from self._await(pending)
                answering.answered(reply)
                self._note_absence(first, reply)
            if not 200 <= reply.status < 300 and (renewed := signed_in_again(target, reply)) is not None:
                reply.close()
                target = renewed
                served, call, relayed, pending = self._send(again.request, target, again.deadline, again.listener)
                answering.sent(pending)
                reply = yield from self._await(pending)
                answering.answered(reply)
            if not 200 <= reply.status < 300:
                raise _failure(served, reply, target)
            batches = (call.reader or served.codec).read_stream(reply, relayed)
            if served.tagged:
                batches = split_batches(batches)
            if call.renamed:
                batches = restore_batches(batches, call.renamed)
            if call.custom:
                batches = custom_tools.restore_batches(batches, call.custom)
            warnings = call.warnings
            # Nothing here holds the prompt while the answer is read.
            request = request if getattr(again.request, "inlined", None) is not None else None
            del again, call
            yield from _with_warnings(batches, warnings) if warnings else batches
        except BaseException:
            if request is not None:
                release(request)
            raise

    def _wait(self, pending: PendingCall, should_abandon: Callable[[], bool]) -> UpstreamReply:
        seconds = min(self._heartbeat_s, SILENCE_CHECK_S)
        reply = pending.wait(seconds)
        while reply is None:
            if should_abandon():
                pending.close()
                raise UpstreamTimeout(MUTE)
            reply = pending.wait(seconds)
        return reply

    def _await(self, pending: PendingCall) -> Generator[Batch, None, UpstreamReply]:
        seconds = min(self._heartbeat_s, SILENCE_CHECK_S)
        reply = pending.wait(seconds)
        silent_s = seconds
        while reply is None:
            if silent_s >= self._heartbeat_s:
                silent_s = 0.0
                yield [Heartbeat()]
            else:
                yield SILENCE_CHECK
            reply = pending.wait(seconds)
            silent_s += seconds
        return reply


def _restore(result: Any, tagged: bool, renamed: dict[str, str] | None, custom: frozenset[str]) -> Any:
    """Return the result with its reasoning split from its text, and with the caller's tools: their names, and calls
    with free text."""
    if tagged:
        result = split_result(result)
    if renamed:
        result = restore_result(result, renamed)
    if custom:
        result = custom_tools.restore_result(result, custom)
    return result


def _failure(served: CallPath, reply: UpstreamReply, target: Target) -> GatewayError:
    error = served.failure(reply, target)
    error.upstream_status = reply.status
    return error


def _with_warnings(batches: Iterator[Batch], warnings: tuple[str, ...]) -> Iterator[Batch]:
    """Insert the warnings behind the Started event."""
    for batch in batches:
        if warnings and type(batch[0]) is Started:
            yield [batch[0], *(Notice(text) for text in warnings), *batch[1:]]
            warnings = ()
        else:
            yield batch
