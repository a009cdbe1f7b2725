"""The chat protocol: builds calls with their URL and credential."""

from collections.abc import Iterator
from typing import Any

from msgspec import json

from gateway.dialects import cohere as dialect
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.neutral.events import Batch
from gateway.providers.cohere.reply import read_result
from gateway.providers.cohere.request import write_body
from gateway.providers.cohere.stream import CohereStreamReader
from gateway.providers.failures import classify, explain, read_refusal, retry_after
from gateway.providers.openai.address import address_of
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.tool_names import COHERE

PATH = "/chat"
# Non-standard statuses of the service (API reference, errors), and the standard statuses of the same meaning.
STATUSES = {498: 401, 499: 504}


class CohereChat:
    """POST {address}/chat."""

    dialect = dialect.NAME
    lost = frozenset(("cache_marks",))
    waits = False

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Build the call for a neutral request. NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        stream = request.requirements.stream
        prepared = prepare(request, self.dialect, COHERE, warnings)
        written = write_body(prepared.request, target, warnings)
        body = {"model": target.mapping.external_id, "stream": stream, **written}
        call = self._finish(body, target, stream, tuple(warnings))
        call.renamed = prepared.renamed
        call.custom = prepared.custom
        return call

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Build the call from the caller's native body."""
        stream = request.requirements.stream
        body = {**native.body, "model": target.mapping.external_id, "stream": stream}
        cap = target.output_cap
        if cap is not None and body.get("max_tokens", cap + 1) > cap:
            body["max_tokens"] = cap
        return self._finish(body, target, stream)

    def _finish(self, body: dict[str, Any], target: Target, stream: bool, warnings: tuple[str, ...] = ()) -> Call:
        url, headers = address_of(target, PATH)
        headers["content-type"] = "application/json"
        if stream:
            headers["accept"] = "text/event-stream"
        else:
            headers["accept"] = "application/json"
        return Call("POST", url, headers, json.encode(body), stream, warnings)

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete response. UpstreamFailed for an unexpected shape, a failure inside it, or no content."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the events of a streamed response, one batch for each receive."""
        return CohereStreamReader(relayed).read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        """Classify an error response, which is {id, message}."""
        explanation = explain(read_refusal(reply), (target.credential.secret,))
        return classify(STATUSES.get(reply.status, reply.status), explanation, target, retry_after(reply.headers))
