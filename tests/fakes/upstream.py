"""A fast upstream for chat completions, which records every call, so that tests can check the billing.

Words in the text of the last message are commands: `mark:<name>` names the call, `tokens:<n>` is what the answer counts
(default: the output limit that was sent), `greedy:<n>` the same beyond any limit, `read:<n>` what the prompt counts,
`wait:<s>` passes before the answer, `gap:<s>` between the pieces of a stream, `piece:<n>` are the tokens of each
(default 5). A stream is silent for `pause:<s>` before its usage, which counts `hidden:<n>` tokens of reasoning;
`cut:<n>` ends it after so many pieces, `mute:1` without usage, `usage:<kind>` with usage that is `zero`, `partial` (the
prompt alone) or `absurd`.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gevent
from fakes.server import FakeServer, send_json

PIECE = 5  # tokens per piece of a stream
STRANGE: dict[str, dict[str, Any]] = {
    "zero": {"prompt_tokens": 0, "completion_tokens": 0, "total_tokens": 0},
    "partial": {"prompt_tokens": 10, "completion_tokens": 0, "total_tokens": 10},
    "absurd": {"prompt_tokens": -5, "completion_tokens": "many", "total_tokens": 10**30},
}


@dataclass
class Call:
    """A recorded call.

    `cap` is the output limit of the request (0: none), `tokens` the number of tokens of the complete answer and `read`
    the number of prompt tokens.
    """

    mark: str
    cap: int
    tokens: int
    usage_sent: bool = False  # the usage was sent
    read: int = 10
    hidden: int = 0


class FakeUpstream(FakeServer):
    """The service; `calls` are Call."""

    base = "/v1"

    def marks(self) -> list[str]:
        return [call.mark for call in self.calls]

    def _embed(self, start: Any, text: str) -> Iterator[bytes]:
        """Answer an embeddings request, which counts input tokens."""
        options = _options(text)
        call = Call(options.get("mark", ""), 0, int(options.get("tokens", 100)), usage_sent=True)
        self.calls.append(call)
        gevent.sleep(float(options.get("wait", 0)))
        usage = {"prompt_tokens": call.tokens, "total_tokens": call.tokens}
        row = {"object": "embedding", "index": 0, "embedding": [0.6, 0.8]}
        return send_json(start, 200, {"object": "list", "data": [row], "model": "leaf", "usage": usage})

    def _speak(self, start: Any, text: str) -> Iterator[bytes]:
        """Answer a speech request, which counts characters."""
        options = _options(text)
        self.calls.append(Call(options.get("mark", ""), 0, len(text), usage_sent=True))
        gevent.sleep(float(options.get("wait", 0)))
        start("200 OK", [("Content-Type", "audio/mpeg")])
        return self._play(float(options.get("gap", 0)))

    def _play(self, gap_s: float) -> Iterator[bytes]:
        yield b"sound " * 20
        yield b"more of it"
        gevent.sleep(gap_s)
        yield b"and its end"

    def _hear(self, start: Any, raw: bytes) -> Iterator[bytes]:
        """Answer a transcription request as a second of audio; the form's prompt contains the commands."""
        _, _, prompt = raw.partition(b'name="prompt"\r\n\r\n')
        options = _options(prompt.partition(b"\r\n")[0].decode())
        self.calls.append(Call(options.get("mark", ""), 0, 100, usage_sent=True))
        gevent.sleep(float(options.get("wait", 0)))
        return send_json(start, 200, {"text": "Heard.", "usage": {"type": "duration", "seconds": 1}})

    def _judge(self, start: Any, end: str, text: str) -> Iterator[bytes]:
        """Answer operations with one JSON object, which count input tokens or a page."""
        options = _options(text)
        self.calls.append(Call(options.get("mark", ""), 0, 100, usage_sent=True))
        gevent.sleep(float(options.get("wait", 0)))
        if end == "ocr":
            size = {"dpi": 1, "height": 1, "width": 1}
            page = {"index": 0, "markdown": "Read.", "images": [], "dimensions": size}
            return send_json(start, 200, {"pages": [page], "usage_info": {"pages_processed": 1}})
        answers = {
            "rerank": {"results": [{"index": 0, "relevance_score": 0.5}]},
            "moderations": {"results": [{"flagged": False, "categories": {}, "category_scores": {}}]},
            "systemone": {"answers": {"a": {"type": "noul", "noul": 0.5}}},
        }
        return send_json(start, 200, answers[end] | {"usage": {"prompt_tokens": 100, "total_tokens": 100}})

    def _paint(self, start: Any, raw: bytes) -> Iterator[bytes]:
        """Answer an image request, which is JSON or a form, with one image."""
        text = json.loads(raw)["prompt"] if raw.startswith(b"{") else raw.decode("latin-1")
        options = _options(text)
        self.calls.append(Call(options.get("mark", ""), 0, 100, usage_sent=True))
        gevent.sleep(float(options.get("wait", 0)))
        return send_json(start, 200, {"created": 1, "data": [{"b64_json": "aGk="}]})

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        raw = environ["wsgi.input"].read()
        if "/images/" in environ["PATH_INFO"]:
            return self._paint(start, raw)
        if "/videos" in environ["PATH_INFO"]:
            if environ["REQUEST_METHOD"] == "POST":  # the status of a job may be requested at any time
                self.calls.append(Call("", 0, 0, usage_sent=True))
            return send_json(start, 200, {"id": f"task_{len(self.calls)}", "object": "video", "status": "queued"})
        if environ["CONTENT_TYPE"].startswith("multipart/"):
            return self._hear(start, raw)
        body = json.loads(raw)
        end = environ["PATH_INFO"].rpartition("/")[2]
        if end in ("rerank", "moderations", "ocr", "systemone"):
            text = (body.get("documents") or [""])[0] or body.get("input") or body.get("state") or ""
            return self._judge(start, end, text or body.get("document", {}).get("image_url", ""))
        if environ["PATH_INFO"].endswith("/audio/speech"):
            return self._speak(start, body["input"])
        if "input" in body:
            texts = body["input"]
            return self._embed(start, texts if isinstance(texts, str) else texts[0])
        options = _options(body["messages"][-1]["content"])
        cap = body.get("max_tokens") or body.get("max_completion_tokens") or 0
        requested = int(options.get("tokens", cap or 50))
        tokens = int(options.get("greedy", min(requested, cap) if cap else requested))
        call = Call(options.get("mark", ""), cap, tokens, read=int(options.get("read", 10)))
        call.hidden = int(options.get("hidden", 0))
        self.calls.append(call)
        gevent.sleep(float(options.get("wait", 0)))
        if not body.get("stream"):
            call.usage_sent = True
            return send_json(start, 200, _whole(call))
        start("200 OK", [("Content-Type", "text/event-stream")])
        return _stream(call, options)


def _options(content: Any) -> dict[str, str]:
    text = content if isinstance(content, str) else "".join(part.get("text", "") for part in content)
    return dict(part.split(":", 1) for part in text.split() if ":" in part)


def _usage(call: Call) -> dict[str, Any]:
    output_tokens = call.tokens + call.hidden
    usage = {"prompt_tokens": call.read, "completion_tokens": output_tokens, "total_tokens": call.read + output_tokens}
    return usage | ({"completion_tokens_details": {"reasoning_tokens": call.hidden}} if call.hidden else {})


def _whole(call: Call) -> dict[str, Any]:
    choice = {"index": 0, "message": {"role": "assistant", "content": "word " * 3}, "finish_reason": "stop"}
    head = {"id": "chatcmpl-mint", "object": "chat.completion", "created": 1, "model": "coin"}
    return head | {"choices": [choice], "usage": _usage(call)}


def _stream(call: Call, options: dict[str, str]) -> Iterator[bytes]:
    gap_s = float(options.get("gap", 0))
    piece = int(options.get("piece", PIECE))
    cut = int(options.get("cut", 0))
    for at in range(0, call.tokens, piece):
        if cut and at >= cut * piece:
            return
        yield _event([{"index": 0, "delta": {"content": "word" * min(piece, call.tokens - at)}, "finish_reason": None}])
        gevent.sleep(gap_s)
    yield _event([{"index": 0, "delta": {}, "finish_reason": "stop"}])
    gevent.sleep(float(options.get("pause", 0)))
    call.usage_sent = True
    if "mute" not in options:
        yield _event([], usage=STRANGE.get(options.get("usage", "")) or _usage(call))
    yield b"data: [DONE]\n\n"


def _event(choices: list, **more: Any) -> bytes:
    chunk = {"id": "chatcmpl-mint", "object": "chat.completion.chunk", "created": 1, "model": "coin"}
    return b"data: " + json.dumps(chunk | {"choices": choices} | more).encode() + b"\n\n"
