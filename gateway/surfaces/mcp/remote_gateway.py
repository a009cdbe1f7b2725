"""Generation at another gateway: if MCP_GATEWAY_URL is set, tools call that gateway with the caller's key, and it
bills.

Its responses are read like those of `/v1`, and its errors keep their status and code.
"""

import re
from base64 import b64decode
from binascii import Error as NotBase64
from typing import TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gateway.configuration.settings import Server
from gateway.errors import GatewayError, NotSupported, RateLimited, UpstreamFailed
from gateway.metering.sources import SOURCE_HEADERS
from gateway.neutral.file_types import HEAD_BYTES, type_of
from gateway.neutral.images import ImagesInput, ImagesResult
from gateway.neutral.json_parts import OPENING, has_more_parts
from gateway.neutral.parts import Image, Media
from gateway.oauth.redirects import LOOPBACK
from gateway.runtime.threads import compute_if
from gateway.surfaces import auth, caps
from gateway.surfaces.mcp.tool_results import Json, ToolContext

CHAT = "/v1/chat/completions"
IMAGES = "/v1/images/generations"
MAX_BYTES = 64 << 20
ANY_HOST = ("", "0.0.0.0", "::", "[::]")
PORTS = {"https": 443, "http": 80}
MAX_PARTS = 100_000  # objects and lists in a response
MAX_ERROR_BYTES = 64 << 10  # bytes of an error response that are read for its message
MAX_WAIT_S = 3600.0
WAIT = re.compile(r"[0-9]{1,9}")
CODE = re.compile(r"[a-z0-9_.-]{1,64}")
HEAD_CHARACTERS = 4 * HEAD_BYTES  # characters of base64 that contain the first bytes in any case
T = TypeVar("T")
# Headers that are forwarded besides the key: they identify the caller and the request.
FORWARDED = (*SOURCE_HEADERS, "x-request-id")


class SentMessage(Struct):
    content: str | None = None


class SentChoice(Struct):
    message: SentMessage


class SentUsage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class SentCompletion(Struct):
    """The fields that are read from a chat completion."""

    choices: list[SentChoice] = []
    usage: SentUsage | None = None


class SentImage(Struct):
    b64_json: str | None = None
    url: str | None = None


class SentError(Struct):
    message: str = ""
    code: str = ""


class SentRefusal(Struct):
    error: SentError


class SentMetadata(Struct):
    warnings: list[str] = []


class SentImages(Struct):
    """The fields that are read from an answer with images."""

    data: list[SentImage] = []
    metadata: SentMetadata | None = None


def address_of(ctx: ToolContext) -> str:
    """Return the URL of the other gateway; "" if this gateway generates itself.

    Only settings decide this: no header of the caller can redirect a key. Raises NotSupported `generation_elsewhere`
    where a key would be sent unencrypted, or where there is no key to send.
    """
    settings = ctx.services.settings
    named = settings.mcp.gateway_url.rstrip("/")
    if not named or _is_own(settings.server, named):
        return ""
    if urlsplit(named).scheme != "https":
        raise NotSupported(
            "MCP_GATEWAY_URL names another gateway without https, to which no key is sent; the operator sets an "
            "https URL or removes the setting.",
            code="generation_elsewhere",
        )
    if ctx.caller.by_token:
        raise NotSupported(
            "Tools generate at another gateway, which accepts API keys but no access tokens; connect with an API "
            "key instead of signing in.",
            code="generation_elsewhere",
        )
    return named


def _is_own(server: Server, named: str) -> bool:
    """Return whether a URL is this gateway's public one, or its listening address."""
    local = LOOPBACK if server.host in (*LOOPBACK, *ANY_HOST) else {server.host}
    return _place_of(named) in {_place_of(server.public_url), *((host, server.port) for host in local)}


def _place_of(url: str) -> tuple[str, int | None]:
    """Return host and port, with the default port of the scheme."""
    parts = urlsplit(url)
    return parts.hostname or "", parts.port or PORTS.get(parts.scheme)


def chat(ctx: ToolContext, address: str, body: Json) -> tuple[str, int, int]:
    """Return the text of a chat completion, and the token counts of prompt and completion."""
    sent = _ask(ctx, address, CHAT, body, SentCompletion)
    used = sent.usage or SentUsage()
    if sent.choices:
        text = sent.choices[0].message.content
    else:
        text = ""
    return text or "", used.prompt_tokens, used.completion_tokens


def images(ctx: ToolContext, address: str, content: ImagesInput, model: str) -> ImagesResult:
    """Return the images that the other gateway generated."""
    body: Json = {"model": model, "prompt": content.prompt, "n": content.n, "response_format": "b64_json"}
    for name in ("size", "aspect_ratio"):
        if value := getattr(content, name):
            body[name] = value
    sent = _ask(ctx, address, IMAGES, body, SentImages)
    if sent.metadata:
        warnings = sent.metadata.warnings
    else:
        warnings = []
    return ImagesResult(tuple(Image(_media_of(image)) for image in sent.data), warnings=tuple(warnings))


def _media_of(sent: SentImage) -> Media:
    if not sent.b64_json:
        return Media(url=sent.url or "")
    try:
        head = b64decode(sent.b64_json[:HEAD_CHARACTERS], validate=True)
    except (NotBase64, ValueError):
        raise UpstreamFailed("The other gateway returned an image that is not valid base64.") from None
    return Media(type_of(head), data=sent.b64_json)


def _ask(ctx: ToolContext, address: str, path: str, body: Json, kind: type[T]) -> T:
    """Return the other gateway's response to a request. Raises GatewayError for its error, or if it is unreachable."""
    headers = {name: value for name in FORWARDED if (value := ctx.inbound.header(name))}
    headers |= {
        "authorization": f"Bearer {auth.token_of(ctx.inbound)}",
        "content-type": "application/json",
        "accept": "application/json",
    }
    answer = ctx.services.routing.transport.request(
        "POST",
        f"{address.removesuffix('/v1')}{path}",
        headers,
        msgspec.json.encode(body),
        timeout_s=max(0.001, ctx.deadline - ctx.services.clock.monotonic()),
        max_bytes=MAX_BYTES,
        trusted=True,  # the operator configured it
    )
    if answer.status != 200:
        raise _refusal(answer.status, answer.body, answer.headers.get("retry-after", ""))
    return _read(answer.body, kind)


def _read(raw: bytes, kind: type[T]) -> T:
    """Return the decoded response; a large one is decoded in a thread."""
    try:
        if not has_more_parts(raw, MAX_PARTS, OPENING):
            return compute_if(len(raw) >= caps.LARGE, msgspec.json.decode, raw, type=kind)
    except (msgspec.DecodeError, RecursionError):
        pass
    raise UpstreamFailed("The other gateway returned an unexpected response.")


def _refusal(status: int, raw: bytes, retry_after: str) -> GatewayError:
    sent_error = SentError()
    if len(raw) <= MAX_ERROR_BYTES:
        try:
            sent_error = msgspec.json.decode(raw, type=SentRefusal).error
        except (msgspec.DecodeError, RecursionError):
            pass
    text = sent_error.message or f"The other gateway returned status {status}."
    if status == 429:
        if WAIT.fullmatch(retry_after):
            wait_s = float(retry_after)
        else:
            wait_s = 1.0
        return RateLimited(text, retry_after=min(wait_s, MAX_WAIT_S))
    if CODE.fullmatch(sent_error.code):
        code = sent_error.code
    else:
        code = None
    return UpstreamFailed(text, status=status if 400 <= status < 600 else None, code=code)
