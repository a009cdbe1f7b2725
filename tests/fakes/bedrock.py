"""A strict fake of Amazon Bedrock's Converse operations, checked against the service model of botocore.

    with FakeBedrock() as upstream:
        upstream.script(Answer("Hello"), Answer(status=429, error="ThrottlingException"), Answer("Hi", cut=120))
        ... call upstream.url + "/model/<id>/converse" ...

A request needs the API key, or a signature that botocore's signer also computes. Its body is validated with botocore's
validator, enums and patterns of the model beside it, and with the rules that the real service keeps. A script is used
up one answer a request; after its end every request gets `Answer("Hello.")`.
"""

import base64
import json
import struct
import zlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import gevent
from fakes.bedrock_checks import ACCESS, API_KEY, Refused, check_body, check_credential, check_signatures
from fakes.server import FakeServer, RecordedCall, headers_of, send, send_json

__all__ = ["ACCESS", "API_KEY", "Answer", "FakeBedrock", "encode_frame"]

MESSAGES = {
    "ThrottlingException": "Too many requests, please wait before trying again.",
    "AccessDeniedException": "You don't have access to the model with the specified model ID.",
    "InternalServerException": "The system encountered an unexpected error during processing. Try your request again.",
    "ModelErrorException": "The model returned the following errors: boom",
}


@dataclass(frozen=True)
class Answer:
    """One scripted answer.

    `tools` are (name, arguments as JSON text). `reasoning` is (text, signature), `sealed` the bytes of redacted
    reasoning. `error` is an exception's name: with a `status` an HTTP error, with `error_at` an exception within the
    stream after that many events. `fragment` cuts the bytes into writes of that size, `cut` breaks the connection
    after that many; `metadata` and `stop` leave out the last events; `damage` spoils a frame's sum. `turn`
    distinguishes the ids of calls from those of other answers.
    """

    text: str = ""
    tools: tuple[tuple[str, str], ...] = ()
    reasoning: tuple[str, str] = ("", "")
    sealed: bytes = b""
    reason: str = ""
    stop_sequence: str = ""
    status: int = 200
    error: str = ""
    message: str = ""
    error_at: int | None = None
    cache_read: int = 0
    cache_write: int = 0
    cache_details: tuple[tuple[str, int], ...] = ()
    tier: str = ""
    piece: int = 8
    fragment: int = 0
    cut: int | None = None
    metadata: bool = True
    stop: bool = True
    damage: bool = False
    silence_s: float = 0.0
    turn: str = ""


class FakeBedrock(FakeServer):
    """The service; `calls` are RecordedCall. `keys` are the access keys by id, `expired` ids that no longer work."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = {ACCESS[0]: ACCESS}
        self.expired: set[str] = set()
        self.signatures: set[str] = set()

    def serve(self, environ: dict[str, Any], start: Any) -> Iterator[bytes]:
        headers = headers_of(environ)
        headers["content-type"] = environ.get("CONTENT_TYPE", "")
        payload = environ["wsgi.input"].read()
        call = RecordedCall(environ["fake.target"], headers)
        self.calls.append(call)
        try:
            check_credential(environ["REQUEST_METHOD"], self.url + call.path, headers, payload, self.keys, self.expired)
            call.body = check_body(call.path, payload)
            check_signatures(call.body, self.signatures)
        except Refused as refused:
            call.status, call.problem = refused.status, str(refused)
            return _refuse(start, refused.status, refused.kind, str(refused))
        answer = self.next_answer(Answer("Hello."))
        self.signatures.add(answer.reasoning[1])
        gevent.sleep(answer.silence_s)
        call.status = answer.status
        if answer.status != 200:
            return _refuse(start, answer.status, answer.error, answer.message or MESSAGES.get(answer.error, "Refused."))
        call.usage = _usage(answer, payload)
        if call.path.endswith("converse-stream"):
            start("200 OK", [("Content-Type", "application/vnd.amazon.eventstream")])
            return send(environ, _frames(answer, call.usage), call, fragment=answer.fragment, cut=answer.cut)
        return send_json(start, 200, _whole(answer, call.usage))


def _refuse(start: Any, status: int, kind: str, message: str) -> Iterator[bytes]:
    kind = f"{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/"
    return send_json(start, status, {"message": message}, ("x-amzn-ErrorType", kind))


def _usage(answer: Answer, payload: bytes) -> dict[str, Any]:
    text = answer.text + answer.reasoning[0] + "".join(name + text for name, text in answer.tools)
    input_tokens, output_tokens = -(-len(payload) // 4), -(-len(text) // 4)
    usage: dict[str, Any] = {
        "inputTokens": input_tokens,
        "outputTokens": output_tokens,
        "totalTokens": input_tokens + output_tokens,
    }
    if answer.cache_read or answer.cache_write:
        usage |= {"cacheReadInputTokens": answer.cache_read, "cacheWriteInputTokens": answer.cache_write}
        usage["totalTokens"] += answer.cache_read + answer.cache_write
    if answer.cache_details:
        usage["cacheDetails"] = [{"ttl": ttl, "inputTokens": count} for ttl, count in answer.cache_details]
    return usage


def _reason(answer: Answer) -> str:
    return answer.reason or ("tool_use" if answer.tools else "stop_sequence" if answer.stop_sequence else "end_turn")


def _tail(answer: Answer) -> dict[str, Any]:
    if not answer.stop_sequence:
        return {}
    return {"additionalModelResponseFields": {"stop_sequence": answer.stop_sequence}}


def _whole(answer: Answer, usage: dict[str, Any]) -> dict[str, Any]:
    content: list[dict[str, Any]] = []
    text, signature = answer.reasoning
    if text or signature:
        content.append({"reasoningContent": {"reasoningText": {"text": text, "signature": signature}}})
    if answer.sealed:
        content.append({"reasoningContent": {"redactedContent": base64.b64encode(answer.sealed).decode()}})
    if answer.text:
        content.append({"text": answer.text})
    for place, (name, arguments) in enumerate(answer.tools):
        content.append(
            {"toolUse": {"toolUseId": f"tooluse_{answer.turn}{place}", "name": name, "input": json.loads(arguments)}}
        )
    body = {"output": {"message": {"role": "assistant", "content": content}}, "stopReason": _reason(answer)}
    body |= {"usage": usage, "metrics": {"latencyMs": 5}, **_tail(answer)}
    return body | ({"serviceTier": {"type": answer.tier}} if answer.tier else {})


def _frames(answer: Answer, usage: dict[str, Any]) -> Iterator[bytes]:
    for number, (name, wire) in enumerate(_events(answer, usage)):
        if answer.error_at is not None and number >= answer.error_at:
            message = {"message": answer.message or MESSAGES.get(answer.error, "Broken.")}
            yield encode_frame(answer.error, message, "exception")
            return
        frame = encode_frame(name, wire)
        yield frame[:-1] + bytes([frame[-1] ^ 1]) if answer.damage else frame


def _events(answer: Answer, usage: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    yield "messageStart", {"role": "assistant"}
    for index, (start, deltas) in enumerate(_blocks(answer)):
        if start:
            yield "contentBlockStart", {"start": start, "contentBlockIndex": index}
        for delta in deltas:
            yield "contentBlockDelta", {"delta": delta, "contentBlockIndex": index}
        yield "contentBlockStop", {"contentBlockIndex": index}
    if answer.stop:
        yield "messageStop", {"stopReason": _reason(answer), **_tail(answer)}
    if answer.metadata and answer.stop:
        tier = {"serviceTier": {"type": answer.tier}} if answer.tier else {}
        yield "metadata", {"usage": usage, "metrics": {"latencyMs": 5}, **tier}


def _blocks(answer: Answer) -> Iterator[tuple[dict[str, Any] | None, list[dict[str, Any]]]]:
    """Return the start of each block (None for text and reasoning) and its deltas."""
    text, signature = answer.reasoning
    if text or signature:
        said = [{"reasoningContent": {"text": piece}} for piece in _pieces(text, answer.piece)]
        yield None, [*said, {"reasoningContent": {"signature": signature}}]
    if answer.sealed:
        sealed = [base64.b64encode(piece).decode() for piece in _pieces(answer.sealed, answer.piece)]
        yield None, [{"reasoningContent": {"redactedContent": piece}} for piece in sealed]
    if answer.text:
        yield None, [{"text": piece} for piece in _pieces(answer.text, answer.piece)]
    for place, (name, arguments) in enumerate(answer.tools):
        pieces = [{"toolUse": {"input": piece}} for piece in _pieces(arguments, answer.piece)]
        yield {"toolUse": {"toolUseId": f"tooluse_{answer.turn}{place}", "name": name}}, pieces


def _pieces(text: Any, size: int) -> list[Any]:
    return [text[at : at + size] for at in range(0, len(text), size)]


def encode_frame(name: str, wire: dict[str, Any], kind: str = "event", before: bytes = b"") -> bytes:
    """Return a frame of application/vnd.amazon.eventstream with a JSON payload, and with encoded headers `before` its
    own."""
    label = ":exception-type" if kind == "exception" else ":event-type"
    pairs = {label: name, ":content-type": "application/json", ":message-type": kind}
    headers = before + b"".join(
        struct.pack(">B", len(key)) + key.encode() + struct.pack(">BH", 7, len(value)) + value.encode()
        for key, value in pairs.items()
    )
    payload = json.dumps(wire).encode()
    head = struct.pack(">II", 16 + len(headers) + len(payload), len(headers))
    head += struct.pack(">I", zlib.crc32(head))
    whole = head + headers + payload
    return whole + struct.pack(">I", zlib.crc32(whole))
