"""The generateContent protocol: builds calls with their URL, credential and service tier."""

from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import quote

from msgspec import json

from gateway.dialects import google as dialect
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.neutral.events import Batch
from gateway.providers.google.failure import read_failure
from gateway.providers.google.mended_contents import mend, mixes_tools
from gateway.providers.google.relayed_bodies import add_own_fields, can_relay, capped
from gateway.providers.google.reply import read_result
from gateway.providers.google.request import write_body
from gateway.providers.google.service_account_tokens import is_service_account
from gateway.providers.google.stream import GoogleStreamReader
from gateway.providers.google.traits import Traits, traits_of
from gateway.providers.prepared_requests import prepare
from gateway.providers.protocol import Call, CallEndpoint, Target, UpstreamReply
from gateway.providers.tool_names import GOOGLE
from gateway.runtime.threads import compute_if

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
    if "/" in name:
        path = name
    else:
        path = f"models/{name}"
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
