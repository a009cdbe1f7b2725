"""The Converse protocol: the call, signed or with an API key, and its complete or streamed answer."""

import re
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlsplit

from msgspec import json

from gateway.clock import Clock
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.neutral.events import Batch
from gateway.providers.bedrock.reply import DIALECT, read_result
from gateway.providers.bedrock.request import write_body
from gateway.providers.bedrock.service_errors import http_failure
from gateway.providers.bedrock.signing import CredentialScope, read_access_key, sign
from gateway.providers.bedrock.stream import BedrockStreamReader
from gateway.providers.protocol import Call, Target, UpstreamReply

SERVICE = "bedrock"
# The region stands in the service's own host names, those of private endpoints included.
REGION_IN_HOST = re.compile(r"bedrock-runtime(?:-fips)?\.([a-z]{2}[a-z0-9-]*-\d)\.")
REGION = re.compile(r"[a-z]{2}[a-z0-9-]*-\d")
DEFAULT_REGION = "us-east-1"
STREAMED = "application/vnd.amazon.eventstream"
WHOLE = "application/json"


class BedrockConverse:
    """POST {address}/model/{id}/converse or converse-stream. The clock dates signatures."""

    dialect = DIALECT
    marks = True
    lost = frozenset(("penalties", "json_object"))
    waits = False

    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def write(self, request: ChatRequest, target: Target) -> Call:
        """The call for a neutral request; NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        return self._finish(write_body(request, target, warnings), request, target, warnings)

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """The call with the caller's own body, retargeted."""
        body = dict(native.body)
        if target.output_cap is not None:
            limits = dict(body.get("inferenceConfig") or {})
            limits["maxTokens"] = min(limits.get("maxTokens") or target.output_cap, target.output_cap)
            body["inferenceConfig"] = limits
        return self._finish(body, request, target, [])

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """A complete answer. UpstreamFailed for an unexpected shape or an empty answer."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """A streamed answer as batches, one per receive; it is always rebuilt, since no caller uses this framing."""
        return BedrockStreamReader().read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        return http_failure(reply, target)

    def _finish(self, body: dict[str, Any], request: ChatRequest, target: Target, warnings: list[str]) -> Call:
        stream = request.requirements.stream
        url = locate(target, stream)
        headers = {name.lower(): value for name, value in target.provider.headers.items()}
        headers["content-type"] = WHOLE
        if stream:
            headers["accept"] = STREAMED
        else:
            headers["accept"] = WHOLE
        payload = json.encode(body)
        headers = self._authorize("POST", url, headers, payload, target)
        return Call("POST", url, headers, payload, stream, tuple(warnings))

    def _authorize(self, method: str, url: str, headers: dict[str, str], body: bytes, target: Target) -> dict[str, str]:
        """The headers with an API key, or signed with an access key."""
        secret = target.credential.secret
        if not secret:
            return headers
        key = read_access_key(secret)
        if key is None:
            return {**headers, "authorization": f"Bearer {secret}"}
        scope = CredentialScope(region_of(url, target), SERVICE, self._clock.now())
        return sign(method, url, headers, body, key, scope)


def locate(target: Target, stream: bool) -> str:
    """The URL of the call; the model's id (or ARN) is one segment of the path."""
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
    """The region that a signature is for: the host's, else the provider's setting (a mapping's region may be the
    name of several, which signs nothing)."""
    found = REGION_IN_HOST.search(urlsplit(url).hostname or "")
    if found:
        return found[1]
    chosen = target.settings.get("region", "")
    if REGION.fullmatch(chosen):
        return chosen
    return DEFAULT_REGION
