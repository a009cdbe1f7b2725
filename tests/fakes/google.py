"""A strict fake of the Gemini API: refuses the requests that the service refuses, answers by script and records calls.

    with FakeGoogle() as upstream:
        upstream.script(Answer("Hello"), Answer(tools=(("look", {"at": "sky"}),)), Answer("Hi", cut=120))
        ... call upstream.url + "/models/gemini-3-flash:generateContent" ...
        assert upstream.calls[0].model == "gemini-3-flash"

Requests are checked against the types that the `google-genai` package publishes, unknown members refused at every
depth, and against the service's rules on turns and thought signatures: a signature must come back on the part that it
was handed out with. A script is used up one answer a request; after its end every request gets `Answer("Hello.")`.
`vertex_url` is the same server as Vertex AI addresses it; `token_url` gives access tokens for any assertion.
"""

import base64
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import parse_qs

import gevent
from fakes.google_checks import Refused, check_request
from fakes.server import FakeServer, RecordedCall, headers_of, send, send_json
from google import genai

ERRORS = {
    429: ("You exceeded your current quota, please check your plan and billing details.", "RESOURCE_EXHAUSTED"),
    500: ("An internal error has occurred. Please retry.", "INTERNAL"),
    503: ("The model is overloaded. Please try again later.", "UNAVAILABLE"),
}
ACCESS_TOKEN = "ya29.fake-token"


@dataclass(frozen=True)
class Answer:
    """One scripted answer.

    Parts come in this order: `thoughts`, `text` (in pieces of `piece` characters when streamed), `images` (base64 of
    PNG), `parts` (as they are), `tools` ((name, arguments) pairs, called in parallel). `signed`: the first call, or
    else the text, carries a thought signature; `call_ids`: calls carry ids. `block` is a reason to block the prompt.
    `status` other than 200 is an error (`error` replaces its body). `silence_s` passes before the first byte, `gap_s`
    between events. `fragment` cuts the bytes into writes of that size; `cut` breaks the connection after that many
    bytes of the body. `usage` and `finish_chunk` leave out the usage and the finish reason. `error_at` puts an error
    object after that many events. `raw` replaces the whole body.
    """

    text: str = ""
    tools: tuple[tuple[str, dict[str, Any]], ...] = ()
    thoughts: str = ""
    images: tuple[str, ...] = ()
    parts: tuple[dict[str, Any], ...] = ()
    signed: bool = True
    call_ids: bool = True
    finish: str = "STOP"
    block: str = ""
    grounding: dict[str, Any] | None = None
    n: int = 1
    status: int = 200
    error: Any = None
    headers: dict[str, str] = field(default_factory=dict)
    prompt: int | None = None
    cached: int = 0
    thought_tokens: int = 0
    details: dict[str, Any] = field(default_factory=dict)
    piece: int = 8
    silence_s: float = 0.0
    gap_s: float = 0.0
    fragment: int = 0
    cut: int | None = None
    usage: bool = True
    finish_chunk: bool = True
    error_at: int | None = None
    raw: bytes | None = None
    content_type: str = ""


@dataclass
class Recorded(RecordedCall):
    """A recorded call with the parts of its URL: the model, and whether the answer is streamed."""

    query: str = ""
    model: str = ""


class FakeGoogle(FakeServer):
    """The service; `calls` are Recorded. `url` is the address of AI Studio."""

    base = "/v1beta"

    def __init__(self) -> None:
        super().__init__()
        self.assertions: list[str] = []
        self.signatures: dict[str, str] = {}
        self.turn = ""  # in the ids of calls, to distinguish them from those of other answers
        self.rejected: set[str] = set()  # access tokens that are no longer valid

    @property
    def vertex_url(self) -> str:
        return f"{self.address}/v1/projects/acme/locations/global/publishers/google"

    @property
    def token_url(self) -> str:
        return f"{self.address}/token"

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        payload = environ["wsgi.input"].read()
        if environ["PATH_INFO"] == "/token":
            return self._give_token(start, payload, environ.get("CONTENT_TYPE", ""))
        headers = headers_of(environ)
        call = Recorded(environ["PATH_INFO"], headers, query=environ.get("QUERY_STRING", ""))
        self.calls.append(call)
        if headers.get("authorization", "").removeprefix("Bearer ") in self.rejected:
            call.status = 401
            invalid = {"code": 401, "message": "Request had invalid credentials.", "status": "UNAUTHENTICATED"}
            return send_json(start, 401, {"error": invalid})
        try:
            call.model, streamed, call.body = check_request(environ, headers, payload, self.signatures)
        except Refused as refused:
            call.status, call.problem = refused.status, str(refused)
            return _respond(start, environ, call, Answer(), json.dumps(refused.body).encode(), "application/json")
        answer = self.next_answer(Answer("Hello."))
        call.status = answer.status
        if answer.status != 200:
            return _respond(start, environ, call, answer, _error(answer), "application/json")
        call.usage = _usage(answer, call.body)
        chunks = list(self._chunks(answer, call))
        if streamed and call.query == "alt=sse":
            return _respond(start, environ, call, answer, None, "text/event-stream", _events(answer, chunks))
        body = json.dumps(chunks if streamed else _joined(chunks)).encode()
        return _respond(start, environ, call, answer, body, "application/json; charset=UTF-8")

    def _give_token(self, start: Any, payload: bytes, media_type: str) -> Iterator[bytes]:
        if media_type != "application/x-www-form-urlencoded":
            return send_json(start, 400, {"error": "invalid_request"})
        self.assertions += parse_qs(payload.decode())["assertion"]
        return send_json(start, 200, {"access_token": ACCESS_TOKEN, "expires_in": 3599, "token_type": "Bearer"})

    def _sign(self, owner: str) -> str:
        """Return a new signature with every character that differs between base64 alphabets."""
        number = len(self.signatures)
        signature = base64.b64encode(b"\xfb\xef\xbe\xff" + f"{owner}-{number}".encode() + b"\xff").decode()
        self.signatures[signature] = owner
        return signature

    def _chunks(self, answer: Answer, call: Recorded) -> Iterator[dict[str, Any]]:
        """Return the streamed responses; each is a GenerateContentResponse."""
        head = {"responseId": "resp-fake", "modelVersion": call.model}
        if answer.block:
            yield _checked(head | {"promptFeedback": {"blockReason": answer.block}, "usageMetadata": call.usage})
            return
        for index in range(answer.n):
            for parts in self._parts(answer, index):
                candidate = {"content": {"role": "model", "parts": parts}, "index": index}
                yield _checked(head | {"candidates": [candidate]})
        last: list[dict[str, Any]] = []
        for index in range(answer.n):
            candidate: dict[str, Any] = {"content": {"role": "model", "parts": [{"text": ""}]}, "index": index}
            if answer.finish_chunk:
                candidate["finishReason"] = answer.finish
            last.append(candidate | ({"groundingMetadata": answer.grounding} if answer.grounding else {}))
        yield _checked(head | {"candidates": last} | ({"usageMetadata": call.usage} if answer.usage else {}))

    def _parts(self, answer: Answer, index: int) -> Iterator[list[dict[str, Any]]]:
        if answer.thoughts:
            yield [{"text": answer.thoughts, "thought": True}]
        texts = [answer.text[at : at + answer.piece] for at in range(0, len(answer.text), answer.piece)]
        for place, piece in enumerate(texts):
            last = answer.signed and not answer.tools and place == len(texts) - 1
            yield [{"text": piece} | ({"thoughtSignature": self._sign("text")} if last else {})]
        for data in answer.images:
            yield [{"inlineData": {"mimeType": "image/png", "data": data}}]
        for part in answer.parts:
            yield [part]
        calls: list[dict[str, Any]] = []
        for place, (name, arguments) in enumerate(answer.tools):
            call: dict[str, Any] = {"functionCall": {"name": name, "args": arguments}}
            if answer.call_ids:
                call["functionCall"]["id"] = f"call-{self.turn}{len(self.calls)}-{index}-{place}"
            if answer.signed and place == 0:
                call["thoughtSignature"] = self._sign(name)
            calls.append(call)
        if calls:
            yield calls


def _respond(
    start: Any,
    environ: dict[str, Any],
    call: Recorded,
    answer: Answer,
    body: bytes | None,
    kind: str,
    events: Iterator[bytes] | None = None,
) -> Iterator[bytes]:
    """Send the status line, then the body as the script requires."""
    gevent.sleep(answer.silence_s)
    headers = [("Content-Type", answer.content_type or kind), *answer.headers.items()]
    body = answer.raw if answer.raw is not None else body
    if body is not None:
        headers.append(("Content-Length", str(len(body))))
    start(f"{call.status} Scripted", headers)
    pieces = [body] if body is not None else events
    return send(environ, pieces, call, fragment=answer.fragment, cut=answer.cut, gap_s=answer.gap_s)


def _error(answer: Answer) -> bytes:
    message, status = ERRORS.get(answer.status, ("The request was refused.", "INVALID_ARGUMENT"))
    return json.dumps(answer.error or {"error": {"code": answer.status, "message": message, "status": status}}).encode()


def _events(answer: Answer, chunks: list[dict[str, Any]]) -> Iterator[bytes]:
    for sent, chunk in enumerate(chunks):
        if answer.error_at is not None and sent >= answer.error_at:
            yield b"data: " + (json.dumps(answer.error).encode() if answer.error else _error(answer)) + b"\r\n\r\n"
            return
        yield b"data: " + json.dumps(chunk).encode() + b"\r\n\r\n"


def _checked(response: dict[str, Any]) -> dict[str, Any]:
    genai.types.GenerateContentResponse.model_validate(response)
    return response


def _joined(chunks: list[dict[str, Any]]) -> dict[str, Any]:
    """Return the non-streamed response for the same answer, with text pieces joined up to a signature."""
    whole: dict[str, Any] = {}
    candidates: dict[int, dict[str, Any]] = {}
    for chunk in chunks:
        whole |= {name: value for name, value in chunk.items() if name != "candidates"}
        for candidate in chunk.get("candidates", ()):
            known = candidates.setdefault(candidate["index"], {"content": {"role": "model", "parts": []}})
            parts = known["content"]["parts"]
            for part in candidate.get("content", {}).get("parts", ()):
                _join_part(parts, part)
            known |= {name: value for name, value in candidate.items() if name != "content"}
    return whole | ({"candidates": list(candidates.values())} if candidates else {})


def _join_part(parts: list[dict[str, Any]], part: dict[str, Any]) -> None:
    last = parts[-1] if parts else {}
    if not part.get("text", "x"):
        return
    plain = last.keys() == {"text"} and "text" in part and not part.get("thought")
    if plain:
        parts[-1] = part | {"text": last["text"] + part["text"]}
    else:
        parts.append(part)


def _tokens(text: str) -> int:
    return -(-len(text.encode()) // 4)


def _usage(answer: Answer, body: dict[str, Any]) -> dict[str, Any]:
    said = answer.text + "".join(name + json.dumps(arguments) for name, arguments in answer.tools)
    prompt = _tokens(json.dumps(body["contents"])) if answer.prompt is None else answer.prompt
    output = answer.n * _tokens(said)
    usage = {
        "promptTokenCount": prompt,
        "candidatesTokenCount": output,
        "totalTokenCount": prompt + output + answer.thought_tokens,
        "promptTokensDetails": [{"modality": "TEXT", "tokenCount": prompt}],
    }
    if answer.cached:
        usage["cachedContentTokenCount"] = answer.cached
    if answer.thought_tokens:
        usage["thoughtsTokenCount"] = answer.thought_tokens
    return usage | answer.details
