"""The generateContent protocol: builds calls with their URL, credential and service tier."""

import re
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

import orjson
from msgspec import json, structs

from gateway.dialects import google as dialect
from gateway.dialects.google import NAME, OWN_FIELDS
from gateway.errors import GatewayError, UpstreamFailed
from gateway.neutral.chat import ChatRequest, ChatResult, Conversation, Native, WebSearch
from gateway.neutral.events import Batch
from gateway.neutral.parameters import fields_of
from gateway.providers.failures import RETRY_LIMIT_S, classify, diagnose, explain, read_refusal, retry_after
from gateway.providers.google.contents import NO_SIGNATURE
from gateway.providers.google.reply import read_result
from gateway.providers.google.request import write_body, write_generation, write_schema
from gateway.providers.google.stream import GoogleStreamReader
from gateway.providers.google.traits import Traits, traits_of
from gateway.providers.identities.google_credentials import is_service_account
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, CallEndpoint, Target, UpstreamReply
from gateway.providers.tool_names import GOOGLE
from gateway.providers.unsupported_parts import UNREADABLE, mark_instruction
from gateway.runtime.threads import compute_if

# Bodies of callers who speak this format themselves: which of them a model accepts as they are.

Body = dict[str, Any]


def can_relay(body: Body, target: Target, traits: Traits) -> bool:
    """Return whether the model accepts the thinking, the tools and the history of a native body. Others are rebuilt."""
    config = body.get("generationConfig") or {}
    thinking = config.get("thinkingConfig")
    if thinking and (not target.mapping.reasoning or not _thinks(thinking, traits)):
        return False
    kinds = {name for tool in body.get("tools") or () for name in tool}
    if "googleSearch" in kinds and not target.mapping.web_search:
        return False
    if not traits.mixed_tools and kinds and (len(kinds) > 1 or config.get("responseMimeType") == "application/json"):
        return False
    if not traits.json_schema and ("responseJsonSchema" in config or _has_json_schemas(body)):
        return False
    return not (traits.signed and _lacks_signature(body))


def _thinks(thinking: Body, traits: Traits) -> bool:
    """Return whether the thinking is set as the model's generation expects it."""
    if thinking.get("thinkingLevel"):
        return traits.levels and thinking.get("thinkingBudget") is None
    return True


def _has_json_schemas(body: Body) -> bool:
    tools = body.get("tools") or ()
    declarations = (declaration for tool in tools for declaration in tool.get("functionDeclarations") or ())
    return any("parametersJsonSchema" in declaration for declaration in declarations)


def _lacks_signature(body: Body) -> bool:
    """Return whether the first call of a content has no signature, as those of other vendors' models have none."""
    for content in body["contents"]:
        calls = [part for part in content.get("parts") or () if "functionCall" in part]
        if calls and not calls[0].get("thoughtSignature"):
            return True
    return False


def capped(body: Body, cap: int | None) -> Body:
    """Return a copy of the body with at most `cap` output tokens."""
    body = dict(body)
    if cap is not None:
        config = dict(body.get("generationConfig") or {})
        limit = config.get("maxOutputTokens")
        if not isinstance(limit, int) or limit > cap:
            body["generationConfig"] = config | {"maxOutputTokens": cap}
    return body


def add_own_fields(body: Body, request: ChatRequest) -> None:
    """Add the members of the caller's body that only this format has, to one that was rebuilt."""
    own = request.options.extra.get(OWN_FIELDS)
    if not own:
        return
    for name, value in own.items():
        if name == "generationConfig":
            body[name] = {**body.get(name, {}), **value}
        else:
            body[name] = value


# Classifies errors of Google's API.

RETRY_DURATION = re.compile(r"(\d{1,9}(?:\.\d{1,9})?)s")
CLIENT_CLOSED = 499  # CANCELLED: the provider cancelled the request
# A FAILED_PRECONDITION is about billing, country or account (troubleshooting guide), so the caller is not at fault.
ACCOUNT_STATUSES = frozenset(("FAILED_PRECONDITION",))


def read_failure(reply: UpstreamReply, target: Target) -> GatewayError:
    """Return the error for a response other than 2xx.

    The body is {error: {code, message, status, details}} or a list with one such object. `details` may have
    ErrorInfo.reason (API_KEY_INVALID …) and RetryInfo.retryDelay ("34.5s"); see AIP-193.
    """
    body = read_refusal(reply)
    error = _error_of(body)
    explanation = explain(body, (target.credential.secret,))
    status = error.get("status")
    if not isinstance(status, str):
        status = ""
    reason = next((d["reason"] for d in _details(error) if isinstance(d.get("reason"), str)), "")
    explanation = structs.replace(explanation, code=(reason or status).lower(), kind=status.lower())
    wait = retry_after(reply.headers)
    if wait is None:
        wait = _delay(error)
    if reply.status == CLIENT_CLOSED:
        return UpstreamFailed(
            "The provider cancelled the request.", details=diagnose(explanation, target), upstream_status=499
        )
    if reply.status == 400 and status in ACCOUNT_STATUSES:
        return classify(402, explanation, target, wait)
    return classify(reply.status, explanation, target, wait)


def _error_of(body: bytes) -> dict[str, Any]:
    try:
        wire = orjson.loads(body) if body else None
    except orjson.JSONDecodeError:
        return {}
    if isinstance(wire, list):
        wire = wire[0] if wire else None
    error = wire.get("error") if isinstance(wire, dict) else None
    if isinstance(error, dict):
        return error
    return {}


def _details(error: dict[str, Any]) -> list[dict[str, Any]]:
    details = error.get("details")
    if isinstance(details, list):
        return [entry for entry in details if isinstance(entry, dict)]
    return []


def _delay(error: dict[str, Any]) -> float | None:
    """Return the delay of a RetryInfo in seconds, at most RETRY_LIMIT_S."""
    for entry in _details(error):
        match = RETRY_DURATION.fullmatch(str(entry.get("retryDelay")))
        if match:
            return min(float(match[1]), RETRY_LIMIT_S)
    return None


# Bodies of callers who speak this format themselves, with what the model would refuse changed in place. Members that
# the neutral form lacks stay.
#
# The values of a native body are shared with the parsed request, so every changed object is a copy.

SEARCH_TOOLS = ("googleSearch", "googleSearchRetrieval")
DECLARATIONS = "functionDeclarations"
JSON_TYPE = "application/json"
INSTRUCTIONS = "system"
# Members of generationConfig that the neutral form has, and that are written from it; the format of the answer and the
# options of images stay as the caller wrote them.
THINKING = "thinkingConfig"
REWRITTEN = frozenset((*(path.rpartition(".")[2] for path in fields_of(NAME)), "stopSequences", THINKING))
UNTOUCHED = ("responseMimeType", "responseModalities", "imageConfig", "responseJsonSchema", "responseSchema")


def mend(native: Native, request: ChatRequest, target: Target, traits: Traits, warnings: list[str]) -> Body:
    """Return the body as the model takes it. NotSupported for combinations that it lacks."""
    body = capped(native.body, target.output_cap)
    conversation = request.conversation()
    if native.instructed:
        _place_instructions(body)
    if traits.signed:
        body["contents"] = [_signed(content) for content in body["contents"]]
    _fit_tools(body, conversation, target, traits, warnings)
    _fit_generation(body, request, target, traits, warnings)
    return body


def mixes_tools(body: Body, traits: Traits) -> bool:
    """Return whether a body still combines what the model does not: functions with its own tools, or JSON output."""
    kinds = {name for tool in body.get("tools") or () for name in tool}
    structured = (body.get("generationConfig") or {}).get("responseMimeType") == JSON_TYPE
    return not traits.mixed_tools and bool(kinds) and (len(kinds) > 1 or structured)


def _place_instructions(body: Body) -> None:
    """Move instructions at the beginning to their member; later ones become marked texts of the user."""
    contents = body["contents"]
    begun = next((place for place, one in enumerate(contents) if one["role"] != INSTRUCTIONS), len(contents))
    front = [part for content in contents[:begun] for part in content["parts"]]
    later = [_reminder(content) if content["role"] == INSTRUCTIONS else content for content in contents[begun:]]
    if not later:
        later = [{"role": "user", "parts": front}]
        front = []
    if front:
        system = body.get("systemInstruction") or {}
        body["systemInstruction"] = {**system, "parts": [*(system.get("parts") or ()), *front]}
    body["contents"] = later


def _reminder(content: Body) -> Body:
    parts = [part | {"text": mark_instruction(part["text"])} if part.get("text") else part for part in content["parts"]]
    return {**content, "role": "user", "parts": parts}


def _signed(content: Body) -> Body:
    """Return a content with a signature at its first call: calls of another vendor's model have none."""
    parts = content.get("parts") or ()
    first = next((place for place, part in enumerate(parts) if "functionCall" in part), None)
    if first is None or parts[first].get("thoughtSignature"):
        return content
    signed = parts[first] | {"thoughtSignature": NO_SIGNATURE}
    return {**content, "parts": [*parts[:first], signed, *parts[first + 1 :]]}


def _without_signatures(contents: list[Body], traits: Traits) -> list[Body]:
    """Return the contents without past thoughts and signatures, which the account refused."""
    plain: list[Body] = []
    for content in contents:
        shown = [part for part in content.get("parts") or () if not part.get("thought")]
        parts = [{name: value for name, value in part.items() if name != "thoughtSignature"} for part in shown]
        parts = [part for part in parts if part not in ({}, {"text": ""})]
        if parts:
            unsigned = {**content, "parts": parts}
            plain.append(_signed(unsigned) if traits.signed else unsigned)
    return plain


def _fit_tools(body: Body, conversation: Conversation, target: Target, traits: Traits, warnings: list[str]) -> None:
    """Remove a search that is only offered where the model lacks it or does not combine it, and write JSON Schemas for
    models that have another form of schemas."""
    if not body.get("tools"):
        return
    searches = any(isinstance(tool, WebSearch) for tool in conversation.tools)
    if searches and (not target.mapping.web_search or mixes_tools(body, traits)):
        warnings.append(f"tools: web_search was left out: {target.mapping.key} has no such tool.")
        searches = False
    tools = body["tools"]
    if not searches:
        tools = _without(tools, lambda name: name in SEARCH_TOOLS)
    if not traits.json_schema:
        tools = [_with_older_schemas(tool, traits) for tool in tools]
    body["tools"] = tools
    if not tools:
        del body["tools"]
        body.pop("toolConfig", None)


def _without(tools: list[Body], drops: Callable[[str], bool]) -> list[Body]:
    kept = ({name: value for name, value in tool.items() if not drops(name)} for tool in tools)
    return [tool for tool in kept if tool]


def _with_older_schemas(tool: Body, traits: Traits) -> Body:
    if not tool.get(DECLARATIONS):
        return tool
    return {**tool, DECLARATIONS: [_with_older_schema(declared, traits) for declared in tool[DECLARATIONS]]}


def _with_older_schema(declared: Body, traits: Traits) -> Body:
    schema = declared.get("parametersJsonSchema")
    if not isinstance(schema, dict):
        return declared
    plain = {name: value for name, value in declared.items() if name != "parametersJsonSchema"}
    written, _ = write_schema(schema, traits, tool=True)
    return {**plain, "parameters": written} if written.get("properties") else plain


def _fit_generation(body: Body, request: ChatRequest, target: Target, traits: Traits, warnings: list[str]) -> None:
    """Write the parameters and the thinking that the model takes."""
    config: Body = body.get("generationConfig") or {}
    written = write_generation(request, request.conversation(), target, traits, warnings)
    kept = {name: value for name, value in config.items() if name not in REWRITTEN}
    older = not traits.json_schema and "responseJsonSchema" in kept
    if older:
        del kept["responseJsonSchema"]
    new = {name: value for name, value in written.items() if name not in UNTOUCHED or (older and name in written)}
    thinking = config.get(THINKING)
    if thinking and THINKING in new:
        known = ("includeThoughts", "thinkingBudget", "thinkingLevel")
        new[THINKING] = {**{name: thinking[name] for name in thinking if name not in known}, **new[THINKING]}
    level = (thinking or {}).get("thinkingLevel")
    if traits.levels and isinstance(level, str) and level.upper() not in dialect.LEVEL_WORDS:
        new[THINKING] = {**new.get(THINKING, {}), "thinkingLevel": level}
    config = kept | new
    if config:
        body["generationConfig"] = config
    else:
        body.pop("generationConfig", None)


GENERATE_CONTENT = "generateContent"
STREAMED = "streamGenerateContent"
OAUTH = "google-oauth"
KEY_HEADER = "x-goog-api-key"
ENDPOINT = "endpoint of generate"  # key in `Target.memo`
# Vertex AI guide, flex and priority pay-as-you-go: these two headers select the tier.
TIER_HEADER = "x-vertex-ai-llm-shared-request-type"
SHARED_HEADER = {"x-vertex-ai-llm-request-type": "shared"}

# Switches off the filters of models that filter prompts by default: filtering is left to the caller.
FILTERS = ("HARASSMENT", "HATE_SPEECH", "SEXUALLY_EXPLICIT", "DANGEROUS_CONTENT")
NO_FILTERS = tuple({"category": f"HARM_CATEGORY_{name}", "threshold": "BLOCK_NONE"} for name in FILTERS)


Authorize = Callable[[dict[str, str], Target], None]


class GoogleGenerate:
    """POST {address}/models/{model}:generateContent, or :streamGenerateContent?alt=sse.

    `token_of` exchanges a service account for an access token, and returns any other credential unchanged.
    """

    dialect = dialect.NAME
    lost = frozenset(("cache_marks",))
    waits = True  # for a token
    mends = True

    def __init__(self, token_of: Callable[[str], str]) -> None:
        self._token_of = token_of

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Build the call. NotSupported for parameters and content that this format or model cannot carry.

        A service account may need a new token first, which may raise UpstreamRefused or UpstreamFailed.
        """
        warnings: list[str] = []
        traits = traits_of(target)
        prepared = compute_if(request.large, prepare, request, self.dialect, GOOGLE, warnings)
        body = compute_if(request.large, write_body, prepared.request, target, traits, warnings)
        add_own_fields(body, request)
        call = self._finish(body, request, target, traits, tuple(warnings))
        call.renamed = prepared.renamed
        call.custom = prepared.custom
        return call

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Build the call from the caller's native body, with what this model would refuse changed."""
        traits = traits_of(target)
        if not (native.instructed or native.adapted) and can_relay(native.body, target, traits):
            return self._finish(capped(native.body, target.output_cap), request, target, traits)
        warnings: list[str] = []
        body = compute_if(request.large, mend, native, request, target, traits, warnings)
        if mixes_tools(body, traits):
            return self.write(request, target)
        return self._finish(body, request, target, traits, tuple(warnings))

    def _finish(
        self,
        body: dict[str, Any],
        request: ChatRequest,
        target: Target,
        traits: Traits,
        warnings: tuple[str, ...] = (),
    ) -> Call:
        """Complete a relayed or rebuilt body with filters and tier, and add the URL and the credential."""
        if not target.unseals:
            body["contents"] = _without_signatures(body["contents"], traits)
            warnings = (*warnings, UNREADABLE)
        if traits.filtered and "safetySettings" not in body:
            body["safetySettings"] = NO_FILTERS
        tier = _tier(request, target)
        stream = request.requirements.stream
        if tier and not traits.enterprise:
            body["serviceTier"] = tier
        endpoint = self._endpoint_of(target, stream, tier if traits.enterprise else "")
        data = compute_if(request.large, json.encode, body)
        return Call("POST", endpoint.url, endpoint.headers, data, stream, warnings, None, endpoint)

    def _endpoint_of(self, target: Target, stream: bool, tier: str) -> CallEndpoint:
        """Return the URL and the headers of a call.

        The value is cached in the target, except for calls with a tier and for credentials that are exchanged for
        tokens, which expire.
        """
        endpoint: CallEndpoint | None = None if tier else target.memo.get((ENDPOINT, stream))
        if endpoint is None:
            headers = {name.lower(): value for name, value in target.provider.headers.items()}
            headers["content-type"] = "application/json"
            if stream:
                headers["accept"] = "text/event-stream"
            else:
                headers["accept"] = "application/json"
            if tier:
                headers |= {TIER_HEADER: tier, **SHARED_HEADER}
            self.authorize(headers, target)
            endpoint = CallEndpoint(address_of(target, STREAMED if stream else GENERATE_CONTENT), headers)
            if not tier and not _is_exchanged(target):
                target.memo[ENDPOINT, stream] = endpoint
        return endpoint

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete response. UpstreamFailed for an unexpected shape or an empty response."""
        return read_result(reply, relayed)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the events of a streamed response, one batch for each receive."""
        return GoogleStreamReader(relayed).read(reply)

    def failure(self, reply: UpstreamReply, target: Target) -> GatewayError:
        return read_failure(reply, target)

    def authorize(self, headers: dict[str, str], target: Target) -> None:
        """Add the credential to `headers`."""
        auth = target.provider.auth
        secret = target.credential.secret
        if not secret or auth == "none":
            return
        if _is_exchanged(target):
            headers["authorization"] = f"Bearer {self._token_of(secret)}"
        elif auth == "bearer" or auth.startswith("query:"):
            headers[KEY_HEADER] = secret
        else:
            headers[auth.lower()] = secret


def _is_exchanged(target: Target) -> bool:
    """Return whether the credential is exchanged for access tokens, as that of a service account is."""
    auth = target.provider.auth
    secret = target.credential.secret
    return auth == OAUTH or target.settings.get("token_type") == "oauth" or is_service_account(secret)


def address_of(target: Target, method: str) -> str:
    """Return the URL of a method. An external id with a slash is used as the path (tunedModels/x, endpoints/1)."""
    base, _, query = target.address.partition("?")
    name = quote(target.mapping.external_id, safe="/@:-._~")
    path = name if "/" in name else f"models/{name}"
    arguments = [part for part in (query, "alt=sse" if method == STREAMED else "") if part]
    url = f"{base.rstrip('/')}/{path}:{method}"
    if arguments:
        return f"{url}?{'&'.join(arguments)}"
    return url


def _tier(request: ChatRequest, target: Target) -> str:
    """Return the requested service tier if the provider offers it; otherwise ""."""
    tier = request.options.service_tier
    if tier in target.provider.service_tiers or tier in target.mapping.service_tiers:
        return tier
    return ""
