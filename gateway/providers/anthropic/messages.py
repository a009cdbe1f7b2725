"""The messages protocol: builds calls, relays native bodies and classifies failures."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import json

from gateway.dialects import anthropic as dialect
from gateway.errors import ContentRefused, GatewayError, UpstreamRefused
from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.neutral.events import Batch
from gateway.neutral.parameters import lost_by
from gateway.providers.anthropic import host_rules
from gateway.providers.anthropic.marks import apply_policy
from gateway.providers.anthropic.reply import read_result
from gateway.providers.anthropic.request import SAMPLING, has_fixed_sampling, write_body
from gateway.providers.anthropic.stream import AnthropicStreamReader
from gateway.providers.anthropic.thinking import ADAPTIVE, BUDGET, MIN_BUDGET, forms_of
from gateway.providers.failures import classify, diagnose, explain, read_refusal, retry_after
from gateway.providers.protocol import Call, Target, UpstreamReply

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

    def __init__(self, tokens: host_rules.Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Build the call for a neutral request. NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        body = write_body(request, target, addresses=host_rules.takes_addresses(target), warnings=warnings)
        return self._finish(body, request, target, warnings)

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Build the call from the caller's native body, or from the neutral request if this target would refuse it."""
        if not _can_relay(native.body, request, target):
            return self.write(request, target)
        body = apply_policy(dict(native.body), request.options.cache_marks)
        cap = target.output_cap
        if cap is not None and body["max_tokens"] > cap:
            _cap_output(body, cap)
        return self._finish(body, request, target, [])

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


def _can_relay(body: dict[str, Any], request: ChatRequest, target: Target) -> bool:
    """Return whether the target accepts the media URLs, the thinking and the sampling of a native body."""
    if "temperature" in body and "top_p" in body:
        return False
    if request.requirements.media and not host_rules.takes_addresses(target):
        return False
    if not _supports_thinking(body, target):
        return False
    # Models with fixed sampling accept temperature 1, which is their only value.
    fixed_names = [name for name in SAMPLING if name in body and (name, body[name]) != ("temperature", 1)]
    return not (fixed_names and has_fixed_sampling(target))


def _supports_thinking(body: dict[str, Any], target: Target) -> bool:
    """Return whether the model supports the requested effort and form of thinking."""
    if getattr(body.get("output_config"), "effort", None) and not target.mapping.reasoning_efforts:
        return False
    thinking = body.get("thinking")
    if thinking is None:
        return True
    forms = forms_of(target)
    adaptive = getattr(thinking, "__struct_config__", None)
    if getattr(thinking, "budget_tokens", None) is not None:
        return forms != ADAPTIVE
    return not (adaptive is not None and adaptive.tag == "adaptive" and forms == BUDGET)


def _cap_output(body: dict[str, Any], cap: int) -> None:
    """Lower max_tokens to `cap`, and the thinking budget below it; thinking is disabled where no budget fits."""
    body["max_tokens"] = cap
    thinking = body.get("thinking")
    budget = getattr(thinking, "budget_tokens", None)
    if budget is not None and budget >= cap:
        if cap > MIN_BUDGET:
            body["thinking"] = {"type": "enabled", "budget_tokens": cap - 1}
        else:
            body["thinking"] = {"type": "disabled"}
