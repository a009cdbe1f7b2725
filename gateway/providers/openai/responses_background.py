"""The background mode of the Responses API.

Source: OpenAI API reference, "Responses", and its guide "Background mode" (`background` needs `store`; a response
whose creation was streamed can be streamed again with `starting_after`; cancellation is idempotent). Azure's API is the
same.
"""

from typing import Any
from urllib.parse import quote

from msgspec import DecodeError, Struct, ValidationError, json

from gateway.errors import GatewayError
from gateway.neutral.usage import Usage
from gateway.providers.background_calls import BackgroundEvent
from gateway.providers.openai.address import Tokens, address_of
from gateway.providers.openai.responses_reply import read_usage
from gateway.providers.protocol import Call, Target
from gateway.runtime.threads import compute_if

PATH = "/responses"
DATA = b"data:"
LARGE = 1 << 16
LAST = frozenset(f"response.{state}" for state in ("completed", "incomplete", "failed", "cancelled"))


class _SentResponse(Struct):
    id: Any = ""


class _SentEvent(Struct):
    type: Any = ""
    sequence_number: Any = -1
    response: _SentResponse | None = None


EVENT = json.Decoder(_SentEvent)


class ResponsesBackground:
    """POST {address}/responses with `background`. `tokens` as for OpenAIResponses."""

    def __init__(self, tokens: Tokens | None = None) -> None:
        self._tokens = tokens

    def begin(self, call: Call) -> Call | None:
        """Return the call that creates the response of a streamed call in the background."""
        if not call.stream or not isinstance(call.body, bytes) or not call.url.partition("?")[0].endswith(PATH):
            return None
        body = compute_if(len(call.body) > LARGE, _in_background, call.body)
        return Call("POST", call.url, call.headers, body, stream=True)

    def read(self, frame: bytes) -> BackgroundEvent | None:
        """Read a frame of a stream."""
        data = next((line[len(DATA) :] for line in frame.split(b"\n") if line.startswith(DATA)), b"")
        try:
            sent: _SentEvent = EVENT.decode(data)
        except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError):
            return None  # whoever reads the stream reports it
        number = sent.sequence_number if type(sent.sequence_number) is int else -1
        ident = sent.response.id if sent.response is not None and isinstance(sent.response.id, str) else ""
        return BackgroundEvent(number, ident[:255], sent.type in LAST if isinstance(sent.type, str) else False)

    def read_usage(self, body: bytes) -> Usage | None:
        """Return what a response used, by its object; None where that does not say."""
        return compute_if(len(body) > LARGE, _read_usage, body)

    def follow(self, ident: str, after: int, target: Target) -> Call:
        """Return the call that streams the events after a number."""
        call = self._call("GET", ident, "", target)
        query = "stream=true" if after < 0 else f"stream=true&starting_after={after}"
        call.url += ("&" if "?" in call.url else "?") + query
        call.headers["accept"] = "text/event-stream"
        call.stream = True
        return call

    def show(self, ident: str, target: Target) -> Call:
        """Return the call that shows a response."""
        return self._call("GET", ident, "", target)

    def cancel(self, ident: str, target: Target) -> Call:
        """Return the call that cancels a response."""
        return self._call("POST", ident, "/cancel", target)

    def delete(self, ident: str, target: Target) -> Call:
        """Return the call that deletes a response."""
        return self._call("DELETE", ident, "", target)

    def _call(self, method: str, ident: str, end: str, target: Target) -> Call:
        url, headers = address_of(target, f"{PATH}/{quote(ident, safe='')}{end}", self._tokens)
        headers["accept"] = "application/json"
        return Call(method, url, headers)


def _read_usage(body: bytes) -> Usage | None:
    try:
        wire: dict[str, Any] = json.decode(body, type=dict)
        return read_usage(wire)
    except (DecodeError, ValidationError, UnicodeDecodeError, RecursionError, GatewayError):
        return None


def _in_background(body: bytes) -> bytes:
    members: dict[str, Any] = json.decode(body)
    return json.encode({**members, "background": True, "store": True, "stream": True})
