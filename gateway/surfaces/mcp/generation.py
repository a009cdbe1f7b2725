"""The tools that spend money. Each call is one request of the engine's own: admitted, limited, billed, failed over."""

from collections.abc import Callable
from typing import Any
from urllib.parse import urlsplit

import orjson

from gateway.errors import NotSupported
from gateway.neutral.chat import ChatRequest
from gateway.neutral.images import ImagesInput, ImagesRequest, ImagesResult, units_of
from gateway.neutral.parts import Text
from gateway.neutral.request import Requirements
from gateway.settings import LimitSettings
from gateway.surfaces import auth, caps, pictures
from gateway.surfaces.facts import Facts
from gateway.surfaces.mcp import saving, schemas
from gateway.surfaces.mcp.answers import Asked, Json, blocks, text_of

ReadChat = Callable[[LimitSettings, bytes], tuple[Any, ChatRequest]]
USUAL_TYPE = "image/png"


def chat(read_chat: ReadChat, asked: Asked, arguments: schemas.ChatArguments) -> Json:
    """The reply as text, then what it counted."""
    _check_place(asked)
    body: Json = {
        "model": arguments.model,
        "messages": [{"role": one.role, "content": one.content} for one in arguments.messages],
    }
    for name in ("temperature", "max_tokens"):
        if (value := getattr(arguments, name)) is not None:
            body[name] = value
    services, raw = asked.services, orjson.dumps(body)
    context = auth.context_of(services, asked.inbound, asked.caller, ChatRequest.operation)
    _, request = caps.read(services.settings.limits, raw, read_chat, services.settings.limits, raw)
    answer = services.engine.chat.generate(context, request)
    parts = answer.result.choices[0].parts if answer.result.choices else ()
    said = "".join(part.text for part in parts if isinstance(part, Text)) or "The model gave no text in response."
    used = Facts(context, answer.outcome, "").usage
    prompt, completion = used.input_total, used.output_total
    if prompt or completion:
        said += f"\n\n---\nTokens: {prompt} prompt, {completion} completion, {prompt + completion} total"
    return blocks(text_of(said))


def generate_image(asked: Asked, arguments: schemas.ImageArguments) -> Json:
    """The images, each a block."""
    _check_place(asked)
    wanted = ImagesInput(arguments.prompt, arguments.n, arguments.size)
    return blocks(*_show(_make(asked, wanted, pictures.model_of(asked.services, asked.caller, arguments.model))))


def generate_alt_image(asked: Asked, arguments: schemas.AltImageArguments) -> Json:
    """One image of a model of its own; its file is kept where the operator named a folder for that."""
    _check_place(asked)
    name = saving.check_name(arguments.filename)
    wanted = ImagesInput(arguments.prompt, aspect_ratio=arguments.aspect_ratio or "")
    result = _make(asked, wanted, alt_model_of(asked))
    shown = _show(result)
    saved = saving.save(asked, name, [one.media for one in result.images if one.media.data])
    return blocks(*([text_of(saved)] if saved else []), *shown)


def alt_model_of(asked: Asked) -> str:
    """The model of generate-alt-image."""
    return pictures.model_of(asked.services, asked.caller, "", asked.services.settings.media.alt_image_model)


def _make(asked: Asked, wanted: ImagesInput, model: str) -> ImagesResult:
    services = asked.services
    context = auth.context_of(services, asked.inbound, asked.caller, ImagesRequest.operation)
    needs = Requirements(
        max_tokens=0,
        prompt_bytes=len(wanted.prompt.encode("utf-8", "replace")),
        messages=1,
        units=units_of(wanted),
    )
    request = ImagesRequest(model, needs, lambda: wanted)
    result: ImagesResult = services.engine.executor.generate(context, request).result
    return result


def _show(result: ImagesResult) -> list[Json]:
    shown = []
    for image in result.images:
        media = image.media
        if media.data:
            shown.append({"type": "image", "data": media.data, "mimeType": media.media_type or USUAL_TYPE})
        else:
            shown.append(text_of(f"The image is at {media.url}"))
    if not shown:
        shown.append(
            text_of("No image was made" + (": the provider's filter let none pass." if result.blocked else "."))
        )
    revised = [text_of(f"Made of the prompt: {prompt}") for prompt in result.revised if prompt]
    return [*revised, *shown]


def _check_place(asked: Asked) -> None:
    """NotSupported where the operator names another gateway for generation: it would be billed here instead."""
    named = asked.services.settings.mcp.gateway_url
    own = {urlsplit(one).netloc for one in (asked.inbound.base_url, asked.services.settings.server.public_url)}
    if named and urlsplit(named).netloc not in own:
        raise NotSupported(
            "MCP_GATEWAY_URL names another gateway, and tools generate at this one only; the operator unsets it.",
            code="generation_elsewhere",
        )
