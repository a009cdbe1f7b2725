"""The messages protocol: the call, with everything that target and entry require."""

import re
from collections.abc import Iterator
from typing import Any

from msgspec import json

from gateway.dialects import anthropic as dialect
from gateway.errors import ContentRefused, GatewayError, UpstreamRefused
from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.neutral.events import Batch
from gateway.providers.anthropic import host_rules
from gateway.providers.anthropic.marks import apply_policy
from gateway.providers.anthropic.reply import read_result
from gateway.providers.anthropic.request import SAMPLING, has_fixed_sampling, write_body
from gateway.providers.anthropic.stream import AnthropicStreamReader
from gateway.providers.anthropic.thinking import ADAPTIVE, BUDGET, LEAST_BUDGET, forms_of
from gateway.providers.failures import classify, diagnose, explain, read_refusal, retry_after
from gateway.providers.protocol import Call, Target, UpstreamReply

# What a 400 of this format says when the account, not the request, is at fault.
ACCOUNT = re.compile(
    r"credit balance is too low|organization has been (?:disabled|suspended)|specified api usage limits"
    r"|workspace (?:is|has been) (?:archived|disabled)|spend(?:ing)? limit",
    re.IGNORECASE,
)
FILTERED = re.compile(r"blocked by content filtering policy", re.IGNORECASE)


class AnthropicMessages:
    """POST {address}/messages, or a model's own path where the entry says so.

    `tokens` makes an access token of a service account's JSON (raises UpstreamRefused); without it providers that
    want one are passed over.
    """

    dialect = dialect.NAME
    marks = True
    lost = frozenset(("penalties", "json_object"))
    waits = False

    def __init__(self, tokens: host_rules.Tokens | None = None) -> None:
        self._tokens = tokens

    def write(self, request: ChatRequest, target: Target) -> Call:
        """The call for a neutral request; NotSupported for content that this format cannot carry."""
        warnings: list[str] = []
        body = write_body(request, target, addresses=host_rules.takes_addresses(target), warnings=warnings)
        return self._finish(body, request, target, warnings)

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """The call with the caller's own body, retargeted; rebuilt where this target would refuse it as it is."""
        if not _fits(native.body, request, target):
            return self.write(request, target)
        body = apply_policy(dict(native.body), request.options.cache_marks)
        cap = target.output_cap
        if cap is not None and body["max_tokens"] > cap:
            _cap(body, cap)
        return self._finish(body, request, target, [])

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """A complete answer. UpstreamFailed for an unexpected shape or an empty answer."""
        return read_result(reply.read_all(), relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """A streamed answer as batches, one for each receive."""
        return AnthropicStreamReader(relayed).read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        """As every protocol's; a 400 about the account is the provider's fault, one about content a refusal."""
        explanation = explain(read_refusal(reply), (target.credential.secret,))
        if reply.status in (400, 403) and ACCOUNT.search(explanation.message or explanation.text):
            message = "The provider refused the gateway's account."
            return UpstreamRefused(message, details=diagnose(explanation, target), upstream_status=reply.status)
        if reply.status == 400 and FILTERED.search(explanation.message):
            return ContentRefused(explanation.message, code="content_filter", upstream_status=400)
        return classify(reply.status, explanation, target, retry_after(reply.headers))

    def _finish(self, body: dict[str, Any], request: ChatRequest, target: Target, warnings: list[str]) -> Call:
        """What relayed and rebuilt calls share: model, stream, URL, credential."""
        stream = request.requirements.stream
        body = host_rules.address_body(body, target)
        if stream:
            body["stream"] = True
        if request.options.service_tier:
            body |= dialect.fields_of_tier(request.options.service_tier)
        own = request.options.extra.get(dialect.OWN_FIELDS)
        if own:
            body |= host_rules.own_fields(own, target, warnings)
        if "tools" in body:
            body["tools"] = host_rules.plain_tools(body["tools"], target)
        way = host_rules.way_of(request, target, stream, self._tokens)
        return Call("POST", way.url, way.headers, json.encode(body), stream, tuple(warnings), None, way)


def _fits(body: dict[str, Any], request: ChatRequest, target: Target) -> bool:
    """Whether the target takes a body of its own format: media by address, a thinking budget, sampling."""
    if "temperature" in body and "top_p" in body:
        return False
    if request.requirements.media and not host_rules.takes_addresses(target):
        return False
    if not _takes_thinking(body, target):
        return False
    # 1 is the temperature that models with one sampling have, and is taken.
    given = [name for name in SAMPLING if name in body and (name, body[name]) != ("temperature", 1)]
    return not (given and has_fixed_sampling(target))


def _takes_thinking(body: dict[str, Any], target: Target) -> bool:
    """Whether the model takes the form of thinking, and an effort, as they are asked for."""
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


def _cap(body: dict[str, Any], cap: int) -> None:
    """Lower the limit; a thinking budget stays below it, or goes where none fits."""
    body["max_tokens"] = cap
    thinking = body.get("thinking")
    budget = getattr(thinking, "budget_tokens", None)
    if budget is not None and budget >= cap:
        fits = cap > LEAST_BUDGET
        if fits:
            body["thinking"] = {"type": "enabled", "budget_tokens": cap - 1}
        else:
            body["thinking"] = {"type": "disabled"}
