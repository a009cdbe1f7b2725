"""The tools that spend money. Each call is a separate request to the engine: admitted, limited, billed, failed over."""

import os
import re
from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import NamedTuple, TypeVar
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from gateway.billing.context import RequestContext
from gateway.configuration.settings import Server
from gateway.errors import GatewayError, InvalidRequest, NotSupported, RateLimited, UpstreamFailed
from gateway.metering.sources import SOURCE_HEADERS
from gateway.neutral.chat import ChatRequest
from gateway.neutral.file_types import HEAD_BYTES, decode_base64, type_of
from gateway.neutral.images import ImagesInput, ImagesRequest, ImagesResult, units_of
from gateway.neutral.json_weight import OPENING, has_more_parts
from gateway.neutral.parts import Image, Media, Refusal, Text
from gateway.neutral.request import Requirements
from gateway.oauth.clients import LOOPBACK
from gateway.runtime.threads import compute_if
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.mcp import tool_schemas
from gateway.surfaces.mcp.tool_schemas import Json, ToolContext, blocks, text_of
from gateway.surfaces.web import auth as auth_module
from gateway.surfaces.web import caps as caps_module
from gateway.surfaces.web.facts import Facts

# Generation at another gateway: if MCP_GATEWAY_URL is set, tools call that gateway with the caller's key, and it
# bills.
#
# Its responses are read like those of `/v1`, and its errors keep their status and code.

CHAT_PATH = "/v1/chat/completions"
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
FORWARDED_HEADERS = (*SOURCE_HEADERS, "x-request-id")


class SentMessage(Struct):
    content: str | None = None


class SentChoice(Struct):
    message: SentMessage


class SentUsage(Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class SentMetadata(Struct):
    warnings: list[str] = []


class SentCompletion(Struct):
    """The fields that are read from a chat completion."""

    choices: list[SentChoice] = []
    usage: SentUsage | None = None
    metadata: SentMetadata | None = None


class SentImage(Struct):
    b64_json: str | None = None
    url: str | None = None


class SentError(Struct):
    message: str = ""
    code: str = ""


class SentRefusal(Struct):
    error: SentError


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


class ToolReply(NamedTuple):
    """The text of a chat completion, the token counts of its prompt and of itself, and warnings about it."""

    text: str
    prompt: int
    completion: int
    warnings: Sequence[str]


def remote_chat(ctx: ToolContext, address: str, body: Json) -> ToolReply:
    """Return the reply of the other gateway."""
    sent = _ask(ctx, address, CHAT_PATH, body, SentCompletion)
    used = sent.usage or SentUsage()
    text = sent.choices[0].message.content if sent.choices else ""
    warnings = sent.metadata.warnings if sent.metadata else ()
    return ToolReply(text or "", used.prompt_tokens, used.completion_tokens, warnings)


def images(ctx: ToolContext, address: str, content: ImagesInput, model: str) -> ImagesResult:
    """Return the images that the other gateway generated."""
    body: Json = {"model": model, "prompt": content.prompt, "n": content.n, "response_format": "b64_json"}
    for name in ("size", "aspect_ratio"):
        if value := getattr(content, name):
            body[name] = value
    sent = _ask(ctx, address, IMAGES, body, SentImages)
    warnings = sent.metadata.warnings if sent.metadata else []
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
    headers = {name: value for name in FORWARDED_HEADERS if (value := ctx.inbound.header(name))}
    headers |= {
        "authorization": f"Bearer {auth_module.token_of(ctx.inbound)}",
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
            return compute_if(len(raw) >= caps_module.LARGE, msgspec.json.decode, raw, type=kind)
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
        wait_s = float(retry_after) if WAIT.fullmatch(retry_after) else 1.0
        return RateLimited(text, retry_after=min(wait_s, MAX_WAIT_S))
    code = sent_error.code if CODE.fullmatch(sent_error.code) else None
    return UpstreamFailed(text, status=status if 400 <= status < 600 else None, code=code)


# Stores generated images for the operator: files in the folder UPLOAD_DIR, and nowhere else.

FILE_ENDINGS = {"image/png": "png", "image/jpeg": "jpg", "image/webp": "webp", "image/gif": "gif"}
KNOWN = frozenset((*FILE_ENDINGS.values(), "jpeg"))
FILE_STEM = "alt-image"
MAX_ATTEMPTS = 1000
BAD = re.compile(r"[/\\\x00-\x1f\x7f]|^[A-Za-z]:|^\.")
MAX_NAME_LENGTH = 200  # characters of a name; file systems allow 255


def check_name(name: str) -> str:
    """Return the name unchanged. Raises InvalidRequest unless it is the bare name of a file."""
    if BAD.search(name) or len(name.encode("utf-8", "replace")) > MAX_NAME_LENGTH or name != name.strip():
        raise InvalidRequest(
            "The filename must be a bare name, without folders, drives or a leading dot.", param="filename"
        )
    return name


def save(ctx: ToolContext, name: str, images: list[Media]) -> str:
    """Save the images under `name` ("" = a name with the time) and return a message; "" where no folder is configured
    or the organization disabled retention."""
    folder = ctx.services.settings.media.upload_dir
    caller = ctx.caller
    private = any(level.policy is not None and level.policy.zero_data_retention for level in caller.rules)
    if not folder or private or not images:
        return ""
    stem, dot, ending = name.rpartition(".")
    if not dot or ending.lower() not in KNOWN:
        stem = name
        ending = ""
    stem = stem or f"{FILE_STEM}-{ctx.services.clock.now_us() // 1000}"
    try:
        saved = ctx.services.background.threads.run(_write_all, folder, stem, ending, images)
    except (OSError, ValueError):
        return "The image could not be saved on the server."
    return "Saved: " + ", ".join(os.path.join(folder, name) for name in saved)


def _write_all(folder: str, stem: str, ending: str, images: list[Media]) -> list[str]:
    os.makedirs(folder, mode=0o700, exist_ok=True)
    room = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)
    try:
        return [
            _write(
                room,
                stem if len(images) == 1 else f"{stem}-{number}",
                ending or FILE_ENDINGS.get(image.media_type, "png"),
                decode_base64(image.data),
            )
            for number, image in enumerate(images, 1)
        ]
    finally:
        os.close(room)


def _write(room: int, stem: str, ending: str, data: bytes) -> str:
    """Write a new file in the open folder; an existing file or link is never followed or overwritten."""
    for number in range(MAX_ATTEMPTS):
        name = f"{stem}.{ending}" if not number else f"{stem}-{number + 1}.{ending}"
        try:
            file = os.open(name, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW, 0o600, dir_fd=room)
        except FileExistsError:
            continue
        with os.fdopen(file, "wb") as opened:
            opened.write(data)
        return name
    raise FileExistsError(stem)


OPTIONS = ("temperature", "max_tokens")
DEFAULT_IMAGE_TYPE = "image/png"


def chat(ctx: ToolContext, arguments: tool_schemas.ChatArguments) -> Json:
    """Return the reply as text with its token counts, then warnings."""
    options: Json = {name: value for name in OPTIONS if (value := getattr(arguments, name)) is not None}
    body = tool_schemas.body_of(arguments.model, arguments.messages, options)
    request = tool_schemas.request_of(ctx.services.settings.limits, body)
    address = address_of(ctx)
    reply = remote_chat(ctx, address, body) if address else _chat_here(ctx, request)
    prompt, completion = reply.prompt, reply.completion
    text = reply.text or "The model returned no text."
    if prompt or completion:
        text += f"\n\n---\nTokens: {prompt} prompt, {completion} completion, {prompt + completion} total"
    return blocks(text_of(text), *_note(reply.warnings))


def _note(warnings: Iterable[str]) -> list[Json]:
    return [text_of(f"Note: {warning}") for warning in dict.fromkeys(warnings)]


def _chat_here(ctx: ToolContext, request: ChatRequest) -> ToolReply:
    context = _context_of(ctx, ChatRequest.operation)
    answer = ctx.services.engine.chat.generate(context, request)
    parts = answer.result.choices[0].parts if answer.result.choices else ()
    used = Facts(context, answer.outcome, "").usage
    text = "".join(part.text for part in parts if isinstance(part, Text | Refusal))
    return ToolReply(text, used.input_total, used.output_total, answer.outcome.warnings)


def generate_image(ctx: ToolContext, arguments: tool_schemas.ImageArguments) -> Json:
    """Return the images, one block each."""
    content = ImagesInput(arguments.prompt, arguments.n, arguments.size)
    address = address_of(ctx)
    if address:
        return blocks(*_show(images(ctx, address, content, arguments.model or uploads_module.AUTO)))
    return blocks(
        *_show(
            _make(
                ctx,
                content,
                uploads_module.model_of(ctx.services, ctx.caller, arguments.model),
            )
        )
    )


def generate_alt_image(ctx: ToolContext, arguments: tool_schemas.AltImageArguments) -> Json:
    """Return one image of the separately configured model; its file is saved where the operator configured a folder."""
    name = check_name(arguments.filename)
    content = ImagesInput(arguments.prompt, aspect_ratio=arguments.aspect_ratio or "")
    address = address_of(ctx)
    if address:
        result = images(ctx, address, content, ctx.services.settings.media.alt_image_model or uploads_module.AUTO)
    else:
        result = _make(ctx, content, alt_model_of(ctx))
    shown = _show(result)
    saved = save(ctx, name, [image.media for image in result.images if image.media.data])
    return blocks(*([text_of(saved)] if saved else []), *shown)


def alt_model_of(ctx: ToolContext) -> str:
    """Return the model of generate-alt-image."""
    return uploads_module.model_of(ctx.services, ctx.caller, "", ctx.services.settings.media.alt_image_model)


def _context_of(ctx: ToolContext, operation: str) -> RequestContext:
    """Return the context of a request that ends with its tool call."""
    context = auth_module.context_of(ctx.services, ctx.inbound, ctx.caller, operation)
    context.deadline = min(context.deadline, ctx.deadline)
    return context


def _make(ctx: ToolContext, content: ImagesInput, model: str) -> ImagesResult:
    needs = Requirements(
        max_tokens=0,
        prompt_bytes=len(content.prompt.encode("utf-8", "replace")),
        messages=1,
        units=units_of(content),
    )
    request = ImagesRequest(model, needs, lambda: content)
    answer = ctx.services.engine.executor.generate(_context_of(ctx, ImagesRequest.operation), request)
    images: ImagesResult = replace(answer.result, warnings=tuple(dict.fromkeys(answer.outcome.warnings)))
    return images


def _show(result: ImagesResult) -> list[Json]:
    shown = []
    for image in result.images:
        media = image.media
        if media.data:
            shown.append({"type": "image", "data": media.data, "mimeType": media.media_type or DEFAULT_IMAGE_TYPE})
        else:
            shown.append(text_of(f"The image is at {media.url}"))
    if not shown:
        shown.append(
            text_of(
                "No image was generated"
                + (": the provider's content filter rejected all of them." if result.blocked else ".")
            )
        )
    revised = [text_of(f"Generated from the prompt: {prompt}") for prompt in result.revised if prompt]
    return [*revised, *shown, *_note(result.warnings)]
