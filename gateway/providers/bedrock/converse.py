"""The Converse protocol: builds calls, signed or with an API key, and reads complete and streamed responses."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import json

from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.neutral.events import Batch
from gateway.neutral.parameters import lost_by
from gateway.providers.bedrock.reply import DIALECT, read_result
from gateway.providers.bedrock.request import write_body
from gateway.providers.bedrock.service_errors import http_failure
from gateway.providers.bedrock.signing import CredentialScope, read_access_key, sign
from gateway.providers.bedrock.stream import BedrockStreamReader
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.tool_names import BEDROCK

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
    if stream:
        verb = "converse-stream"
    else:
        verb = "converse"
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
