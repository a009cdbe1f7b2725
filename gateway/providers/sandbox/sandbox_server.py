"""The sandbox as an upstream server, which returns a reply for a call."""

import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable, Iterable
from typing import Any
from urllib.parse import urlsplit

import orjson
from msgspec import Struct
from msgspec.structs import replace
from multipart import MultipartError, MultipartParser, parse_options_header

from gateway.clock import Clock
from gateway.errors import InvalidRequest, UpstreamTimeout, UpstreamUnreachable
from gateway.neutral.long_json import loads_in_pieces
from gateway.providers.protocol import Call, UpstreamReply
from gateway.providers.sandbox import (
    chat,
    decisions,
    embeddings,
    images,
    moderations,
    ocr,
    prompt_text,
    realtime,
    requests,
    rerank,
    speech,
    transcriptions,
    videos,
)
from gateway.providers.sandbox.directives import Bracket, Directives, apply, concerns, read_brackets
from gateway.providers.sandbox.error_responses import refuse, write_refusal
from gateway.providers.sandbox.personas import Persona, find
from gateway.providers.sandbox.playback import TIMED_OUT, SandboxReply, Timeline
from gateway.providers.sandbox.realtime import SandboxSession
from gateway.providers.sandbox.response import JSON, Response
from gateway.providers.sandbox.script import Script, stage, stage_body, stage_status
from gateway.runtime.large_files import whole
from gateway.runtime.threads import compute, compute_if

KEY_CACHE_SIZE = 1_000
# Bytes of a request, or tokens of an answer, from which the answer is generated in a thread.
THREAD_BYTES = 16 << 10
APART_TOKENS = 2_000
NAMED_WITHIN = 64 << 10  # bytes of a body that determine the request id
REFUSED_CONNECTION = "The sandbox refused the connection."


class SandboxOperation(Struct, frozen=True):
    """An operation: its name, the validation of a body, the text with the directives, and the answer."""

    name: str
    check: Callable[[dict[str, Any]], None]
    directive_text: Callable[[dict[str, Any]], str]
    respond: Callable[[dict[str, Any], Persona, Directives], Response]


OPERATIONS = {
    "/chat/completions": SandboxOperation("chat", requests.check_chat, prompt_text.directive_text, chat.respond),
    "/embeddings": SandboxOperation(
        "embeddings", embeddings.check_embeddings, embeddings.directive_text, embeddings.respond
    ),
    "/moderations": SandboxOperation(
        "moderations", moderations.check_moderations, moderations.directive_text, moderations.respond
    ),
    **{
        f"/audio/{name}": SandboxOperation(
            name, transcriptions.check_transcriptions, transcriptions.directive_text, transcriptions.respond
        )
        for name in ("transcriptions", "translations")
    },
    "/images/generations": SandboxOperation("images", images.check_images, images.directive_text, images.respond),
    "/images/edits": SandboxOperation("image_edits", images.check_images, images.directive_text, images.respond),
    "/videos": SandboxOperation("videos", videos.check_videos, videos.directive_text, videos.respond),
    "/rerank": SandboxOperation("rerank", rerank.check_rerank, rerank.directive_text, rerank.respond),
    "/ocr": SandboxOperation("ocr", ocr.check_ocr, ocr.directive_text, ocr.respond),
    "/systemone": SandboxOperation(
        "decisions", decisions.check_decisions, decisions.directive_text, decisions.respond
    ),
    "/audio/speech": SandboxOperation("speech", speech.check_speech, speech.directive_text, speech.respond),
}  # fmt: skip


class Attempts:
    """Counts requests for each key of an `attempt` directive. The oldest of more than 1,000 keys is deleted."""

    def __init__(self) -> None:
        self._seen: OrderedDict[str, int] = OrderedDict()

    def count(self, keys: Iterable[str]) -> dict[str, int]:
        """Count an attempt for each of the keys and return the numbers of these attempts."""
        for key in set(keys):
            self._seen[key] = self._seen.pop(key, 0) + 1
            if len(self._seen) > KEY_CACHE_SIZE:
                self._seen.popitem(last=False)
        return {key: self._seen[key] for key in keys}


class SandboxServer:
    """An upstream inside this process. One object serves all requests of a worker."""

    def __init__(self, clock: Clock, pause: Callable[[float], None]) -> None:
        self._clock = clock
        self._pause = pause
        self._attempts = Attempts()

    def open(self, call: Call, *, deadline: float, heartbeat_s: float) -> UpstreamReply:
        """Answer a call like a transport, and return when the headers are available.

        `deadline` is in `Clock.monotonic()` seconds. Raises UpstreamUnreachable for a refused connection and
        UpstreamTimeout when the headers are late. Other mistakes of the call become responses with an error status.
        """
        timeline = Timeline(self._clock, self._pause, deadline, heartbeat_s)
        body = compute_if(len(call.body) > THREAD_BYTES, whole, call.body)
        try:
            script = self._script(call, body, timeline)
        except InvalidRequest as error:
            script = stage_body(error.status, {"content-type": JSON}, write_refusal(error))
        timeline.pause_for(script.start_s)
        return SandboxReply(script, timeline, f"req_{hashlib.sha256(body[:NAMED_WITHIN]).hexdigest()[:32]}")

    def connect(self, call: Call) -> SandboxSession:
        """Open a session. HandshakeRefused for a model without sessions."""
        return realtime.connect(call)

    def _script(self, call: Call, raw: bytes, timeline: Timeline) -> Script:
        script = videos.find(call, urlsplit(call.url).path)
        if script is not None:
            return script
        operation = _operation(call)
        read = compute if len(raw) > THREAD_BYTES else _call
        body, persona, brackets = read(_read_call, operation, raw, call.headers.get("content-type", ""))
        directives = self._directives(body, persona, brackets)
        if directives.refuse_connection:
            raise UpstreamUnreachable(REFUSED_CONNECTION)
        if directives.timeout is not None:
            timeline.pause_for(directives.timeout or float("inf"))
            raise UpstreamTimeout(TIMED_OUT)
        if directives.status:
            return _late(stage_status(directives), directives)
        large = len(raw) > THREAD_BYTES or (directives.tokens or 0) + (directives.reasoning or 0) > APART_TOKENS
        make = compute if large else _call
        return _late(stage(make(operation.respond, body, persona, directives), directives), directives)

    def _directives(self, body: dict[str, Any], persona: Persona, brackets: tuple[Bracket, ...]) -> Directives:
        model = body["model"]
        keys = [bracket.key for bracket in brackets if bracket.key and concerns(bracket, model)]
        return apply(persona.directives, brackets, model, self._attempts.count(keys))


def _call(work: Callable[..., Any], *args: Any) -> Any:
    return work(*args)


def _read_call(
    operation: SandboxOperation, raw: bytes, kind: str
) -> tuple[dict[str, Any], Persona, tuple[Bracket, ...]]:
    """Return the checked body, its model and its directives. InvalidRequest."""
    body = _read_body(raw, kind)
    persona = find(body["model"], operation.name)
    operation.check(body)
    return body, persona, read_brackets(operation.directive_text(body))


def _late(script: Script, directives: Directives) -> Script:
    return replace(script, start_s=directives.slow_start)


def _operation(call: Call) -> SandboxOperation:
    path = urlsplit(call.url).path
    sandbox_operation = next((operation for end, operation in OPERATIONS.items() if path.endswith(end)), None)
    if sandbox_operation is None:
        raise refuse(f"Invalid URL ({call.method} {path[:200]})", "", "unknown_url", 404)
    if call.method != "POST":
        raise refuse(f"Not allowed to {call.method} on {path[-40:]}", "", "method_not_supported", 405)
    return sandbox_operation


def _read_form(raw: bytes, kind: str) -> dict[str, Any]:
    """Return fields as text and files as bytes. The last of repeated names is kept."""
    boundary = parse_options_header(kind)[1].get("boundary", "")
    parts = MultipartParser(io.BytesIO(raw), boundary, len(raw), memory_limit=len(raw) + 1, strict=True)
    return {part.name: part.value if part.filename is None else part.raw for part in parts}


def _read_body(raw: bytes, kind: str) -> dict[str, Any]:
    try:
        if kind.startswith("multipart/form-data"):
            body = _read_form(raw, kind)
        else:
            body = loads_in_pieces(raw)
    except MultipartError as error:
        raise refuse("The form could not be parsed.") from error
    except orjson.JSONDecodeError as error:
        raise refuse("The JSON body of the request could not be parsed.") from error
    if not isinstance(body, dict):
        raise refuse("The JSON body of the request is not an object.")
    if not isinstance(body.get("model"), str):
        raise refuse("You must provide a model parameter.", "model", "missing_required_parameter")
    return body
