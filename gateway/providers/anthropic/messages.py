"""The messages protocol: builds calls, relays native bodies and classifies failures."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import json
from msgspec.structs import replace

from gateway.dialects import anthropic as dialect
from gateway.errors import ContentRefused, GatewayError, UpstreamRefused
from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.neutral.events import Batch
from gateway.neutral.parameters import lost_by
from gateway.providers.anthropic import host_rules
from gateway.providers.anthropic.marks import apply_policy
from gateway.providers.anthropic.mended_bodies import mend, takes_whole
from gateway.providers.anthropic.reply import read_result
from gateway.providers.anthropic.request import write_body
from gateway.providers.anthropic.stream import AnthropicStreamReader
from gateway.providers.anthropic.thinking import MIN_BUDGET
from gateway.providers.failures import classify, diagnose, explain, read_refusal, retry_after
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, Target, UpstreamReply
from gateway.providers.tool_names import ANTHROPIC

# Messages of a 400 or 403 that is caused by the account and not by the request.
ACCOUNT = re.compile(
    r"credit balance is too low|organization has been (?:disabled|suspended)|specified api usage limits"
    r"|workspace (?:is|has been) (?:archived|disabled)|spend(?:ing)? limit",
    re.IGNORECASE,
)
FILTERED = re.compile(r"blocked by content filtering policy", re.IGNORECASE)


class AnthropicMessages:
    """POST {address}/messages, or the path of the model for hosts with the quirk `vertex_raw_predict`.

    `tokens` exchanges a service account's JSON for an access token (raises UpstreamRefused). Without it, providers that
    need an access token are skipped.
    """

    dialect = dialect.NAME
    lost = lost_by(dialect) | {"json_object"}
    waits = False
    mends = True

    def __init__(self, tokens: host_rules.Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Build the call for a neutral request. NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        native = request.native
        if request.contents and native is not None and native.dialect == self.dialect:
            return self._finish(mend(native, request, target, warnings), request, target, warnings)
        prepared = prepare(request, self.dialect, ANTHROPIC, warnings)
        call = self._finish(write_body(prepared.request, target, warnings), request, target, warnings)
        call.renamed = prepared.renamed
        call.custom = prepared.custom
        return call

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Build the call from the caller's native body, with what this target would refuse changed in place."""
        native = replace(native, body=apply_policy(dict(native.body), request.options.cache_marks))
        warnings: list[str] = []
        whole = takes_whole(native, request, target)
        body = native.body if whole else mend(native, request, target, warnings)
        cap = target.output_cap
        if cap is not None and body["max_tokens"] > cap:
            _cap_output(body, cap)
        return self._finish(body, request, target, warnings)

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete response. UpstreamFailed for an unexpected shape or an empty response."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the events of a streamed response, one batch for each receive."""
        return AnthropicStreamReader(relayed).read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        """Classify an error response.

        A 400 or 403 about the account counts against the provider, and a 400 of its content filter is a ContentRefused.
        """
        explanation = explain(read_refusal(reply), (target.credential.secret,))
        if reply.status in (400, 403) and ACCOUNT.search(explanation.message or explanation.text):
            message = "The provider refused the gateway's account."
            return UpstreamRefused(message, details=diagnose(explanation, target), upstream_status=reply.status)
        if reply.status == 400 and FILTERED.search(explanation.message):
            return ContentRefused(explanation.message, code="content_filter", upstream_status=400)
        return classify(reply.status, explanation, target, retry_after(reply.headers))

    def _finish(self, body: dict[str, Any], request: ChatRequest, target: Target, warnings: list[str]) -> Call:
        """Complete a relayed or rebuilt body with model, stream and tier, and add the URL and the credential."""
        stream = request.requirements.stream
        body = host_rules.address_body(body, target)
        if stream:
            body["stream"] = True
        if request.options.service_tier:
            body |= dialect.fields_of_tier(request.options.service_tier)
        vendor_fields = request.options.extra.get(dialect.OWN_FIELDS)
        if vendor_fields:
            body |= host_rules.accepted_fields(vendor_fields, target, warnings)
        if "tools" in body:
            body["tools"] = host_rules.plain_tools(body["tools"], target)
        endpoint = host_rules.endpoint_of(request, target, stream, self._tokens)
        return Call("POST", endpoint.url, endpoint.headers, json.encode(body), stream, tuple(warnings), None, endpoint)


def _cap_output(body: dict[str, Any], cap: int) -> None:
    """Lower max_tokens to `cap`, and the thinking budget below it; thinking is disabled where no budget fits."""
    body["max_tokens"] = cap
    thinking = body.get("thinking")
    if isinstance(thinking, dict):
        budget = thinking.get("budget_tokens")
    else:
        budget = getattr(thinking, "budget_tokens", None)
    if budget is not None and budget >= cap:
        if cap > MIN_BUDGET:
            body["thinking"] = {"type": "enabled", "budget_tokens": cap - 1}
        else:
            body["thinking"] = {"type": "disabled"}
