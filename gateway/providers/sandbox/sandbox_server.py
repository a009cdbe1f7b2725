"""The sandbox as an upstream server, which returns a reply for a call."""

import hashlib
import io
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator
from typing import Any
from urllib.parse import urlsplit

import orjson
from msgspec import Struct
from msgspec.structs import replace
from multipart import MultipartError, MultipartParser, parse_options_header

from gateway.clock import Clock
from gateway.errors import InvalidRequest, StreamTruncated, UpstreamTimeout, UpstreamUnreachable
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
    speech,
    transcriptions,
    videos,
)
from gateway.providers.sandbox.checks import Check, check_fields, of
from gateway.providers.sandbox.directives import (
    Bracket,
    Directives,
    Persona,
    apply,
    concerns,
    find,
    read_brackets,
    strip,
)
from gateway.providers.sandbox.prose import count
from gateway.providers.sandbox.realtime import SandboxSession
from gateway.providers.sandbox.response import JSON, Response, refuse, write_refusal
from gateway.providers.sandbox.script import Script, stage, stage_body, stage_status
from gateway.runtime.large_files import whole
from gateway.runtime.threads import compute, compute_if

# Plays a script as a reply, with its pauses in real time.

TIMED_OUT = "The sandbox did not answer in time."
CUT = "The sandbox cut the transfer of its answer."


class Timeline:
    """Waits that respect a deadline (monotonic seconds); `pause` sleeps for a number of seconds."""

    def __init__(self, clock: Clock, pause: Callable[[float], None], deadline: float, heartbeat_s: float) -> None:
        self._clock = clock
        self._pause = pause
        self._deadline = deadline
        self._heartbeat_s = heartbeat_s

    def wait(self, seconds: float) -> Iterator[bytes]:
        """Wait, and yield b"" after every heartbeat interval. UpstreamTimeout at the deadline."""
        now = self._clock.monotonic()
        until = now + seconds
        while True:
            if now >= self._deadline:
                raise UpstreamTimeout(TIMED_OUT)
            if now >= until:
                return
            nap = min(until - now, self._deadline - now, self._heartbeat_s or seconds)
            self._pause(nap)
            now = self._clock.monotonic()
            if now < until and now < self._deadline:
                yield b""

    def pause_for(self, seconds: float) -> None:
        """Wait without heartbeats. UpstreamTimeout at the deadline."""
        for _ in self.wait(seconds):
            pass


class SandboxReply:
    """An UpstreamReply that plays a script."""

    def __init__(self, script: Script, timeline: Timeline, ident: str) -> None:
        self.status = script.status
        self.headers = {**script.headers, "x-request-id": ident}
        self._script = script
        self._timeline = timeline
        self._closed = False

    def read_all(self) -> bytes:
        """Return the whole body. UpstreamTimeout at the deadline, StreamTruncated when the transfer is cut."""
        return b"".join(self.chunks())

    def chunks(self) -> Iterator[bytes]:
        """Yield the body as it arrives, and b"" for every heartbeat interval of silence. Ends immediately after
        close()."""
        for step in self._script.steps:
            for beat in self._timeline.wait(step.wait_s):
                yield beat
                if self._closed:
                    return
            if step.data:
                yield step.data
            if self._closed:
                return
        yield from self._end()

    def close(self) -> None:
        """Stop the reply."""
        self._closed = True

    def _end(self) -> Iterator[bytes]:
        if self._script.ending == "cut":
            raise StreamTruncated(CUT)
        if self._script.ending == "stall":
            yield from self._timeline.wait(float("inf"))


# Rerank: the score is the share of the query's words that a document contains.
#
# Source: Jina API reference, rerank; `providers/openai/rerank.py` reads this format.


def check_rerank(body: dict[str, Any]) -> None:
    """Raise InvalidRequest with OpenAI's error text for the first mistake."""
    check_fields(body, FIELDS, ("model", "query", "documents"))


def directive_text(body: dict[str, Any]) -> str:
    """Return the text that may contain directives: the query."""
    query: str = body["query"]
    return query


def respond(body: dict[str, Any], persona: Persona, directives: Directives) -> Response:
    """Return the answer to a checked body, the best document first."""
    query = strip(body["query"])
    words = set(query.lower().split())
    scored = [
        (len(words & set(text.lower().split())) / max(1, len(words)), -index)
        for index, text in enumerate(body["documents"])
    ]
    rows = [{"index": -place, "relevance_score": round(score, 6)} for score, place in sorted(scored, reverse=True)]
    whole: dict[str, Any] = {"model": body["model"], "results": rows}
    if not directives.no_usage:
        whole["usage"] = {"total_tokens": sum(count(query) + count(text) for text in body["documents"])}
    return Response(orjson.dumps(whole), bare=orjson.dumps({**whole, "results": []}))


FIELDS: dict[str, Check] = {"model": of(str), "query": of(str), "documents": of(list)}


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
    "/rerank": SandboxOperation("rerank", check_rerank, directive_text, respond),
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
        body = _read_form(raw, kind) if kind.startswith("multipart/form-data") else loads_in_pieces(raw)
    except MultipartError as error:
        raise refuse("The form could not be parsed.") from error
    except orjson.JSONDecodeError as error:
        raise refuse("The JSON body of the request could not be parsed.") from error
    if not isinstance(body, dict):
        raise refuse("The JSON body of the request is not an object.")
    if not isinstance(body.get("model"), str):
        raise refuse("You must provide a model parameter.", "model", "missing_required_parameter")
    return body
