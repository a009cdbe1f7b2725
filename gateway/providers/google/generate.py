"""The generateContent protocol: builds calls with their URL, credential and service tier."""

from collections.abc import Callable, Iterator
from urllib.parse import quote

from msgspec import json

from gateway.dialects import google as dialect
from gateway.errors import GatewayError, NotSupported
from gateway.neutral.chat import ChatRequest, ChatResult, Native
from gateway.neutral.events import Batch
from gateway.providers.google.failure import read_failure
from gateway.providers.google.reply import read_result
from gateway.providers.google.request import write_body
from gateway.providers.google.service_account_tokens import is_service_account
from gateway.providers.google.stream import GoogleStreamReader
from gateway.providers.google.traits import traits_of
from gateway.providers.protocol import Call, Target, UpstreamReply, Way
from gateway.providers.tool_names import renamed
from gateway.runtime.threads import compute_if

WHOLE = "generateContent"
STREAMED = "streamGenerateContent"
OAUTH = "google-oauth"
KEY_HEADER = "x-goog-api-key"
WAY = "way of generate"  # key in `Target.memo`
USUAL_TIERS = ("auto", "default")
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
    marks = False
    lost = frozenset(("cache_marks",))
    waits = True  # for a token

    def __init__(self, token_of: Callable[[str], str]) -> None:
        self._token_of = token_of

    def write(self, request: ChatRequest, target: Target) -> Call:
        """Build the call. NotSupported for parameters and content that this format or model cannot carry.

        A service account may need a new token first, which may raise UpstreamRefused or UpstreamFailed.
        """
        warnings: list[str] = []
        traits = traits_of(target)
        body = compute_if(request.large, write_body, request, target, traits, warnings)
        if traits.filtered:
            body["safetySettings"] = NO_FILTERS
        tier = _tier(request, target)
        stream = request.requirements.stream
        if tier and not traits.enterprise:
            body["serviceTier"] = tier
        way = self._way_of(target, stream, tier if traits.enterprise else "")
        names = renamed(request.conversation().tools)
        data = compute_if(request.large, json.encode, body)
        return Call("POST", way.url, way.headers, data, stream, tuple(warnings), names, way)

    def _way_of(self, target: Target, stream: bool, tier: str) -> Way:
        """Return the URL and the headers of a call.

        The value is cached in the target, except for calls with a tier and for credentials that are exchanged for
        tokens, which expire.
        """
        way: Way | None = None if tier else target.memo.get((WAY, stream))
        if way is None:
            headers = {name.lower(): value for name, value in target.provider.headers.items()}
            headers["content-type"] = "application/json"
            if stream:
                headers["accept"] = "text/event-stream"
            else:
                headers["accept"] = "application/json"
            if tier:
                headers |= {TIER_HEADER: tier, **SHARED_HEADER}
            self.authorize(headers, target)
            way = Way(address_of(target, STREAMED if stream else WHOLE), headers)
            if not tier and not _is_exchanged(target):
                target.memo[WAY, stream] = way
        return way

    def relay(self, native: Native, request: ChatRequest, target: Target) -> Call:
        """Raise NotSupported: no caller uses this dialect."""
        raise NotSupported("A request in this dialect cannot be relayed.")

    def read(self, reply: UpstreamReply, relayed: bool) -> ChatResult:
        """Read a complete response. UpstreamFailed for an unexpected shape or an empty response."""
        return read_result(reply)

    def read_stream(self, reply: UpstreamReply, relayed: bool) -> Iterator[Batch]:
        """Yield the events of a streamed response, one batch for each receive."""
        return GoogleStreamReader().read(reply)

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
    """Return the requested service tier if the provider offers it and it is not the default; otherwise ""."""
    tier = request.options.service_tier
    if not tier or tier in USUAL_TIERS:
        return ""
    if tier in target.provider.service_tiers or tier in target.mapping.service_tiers:
        return tier
    return ""
