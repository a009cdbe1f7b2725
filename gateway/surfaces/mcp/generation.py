"""The tools that spend money. Each call is a separate request to the engine: admitted, limited, billed, failed over."""

from dataclasses import replace

from gateway.billing.context import RequestContext
from gateway.neutral.chat import ChatRequest
from gateway.neutral.images import ImagesInput, ImagesRequest, ImagesResult, units_of
from gateway.neutral.parts import Refusal, Text
from gateway.neutral.request import Requirements
from gateway.surfaces import auth, image_uploads
from gateway.surfaces.facts import Facts
from gateway.surfaces.mcp import chat_messages, remote_gateway, saved_images, tool_schemas
from gateway.surfaces.mcp.tool_results import Json, ToolContext, blocks, text_of

OPTIONS = ("temperature", "max_tokens")
DEFAULT_IMAGE_TYPE = "image/png"


def chat(ctx: ToolContext, arguments: tool_schemas.ChatArguments) -> Json:
    """Return the reply as text, then its token counts."""
    options: Json = {name: value for name in OPTIONS if (value := getattr(arguments, name)) is not None}
    body = chat_messages.body_of(arguments.model, arguments.messages, options)
    request = chat_messages.request_of(ctx.services.settings.limits, body)
    address = remote_gateway.address_of(ctx)
    if address:
        text, prompt, completion = remote_gateway.chat(ctx, address, body)
    else:
        text, prompt, completion = _chat_here(ctx, request)
    text = text or "The model returned no text."
    if prompt or completion:
        text += f"\n\n---\nTokens: {prompt} prompt, {completion} completion, {prompt + completion} total"
    return blocks(text_of(text))


def _chat_here(ctx: ToolContext, request: ChatRequest) -> tuple[str, int, int]:
    context = _context_of(ctx, ChatRequest.operation)
    answer = ctx.services.engine.chat.generate(context, request)
    if answer.result.choices:
        parts = answer.result.choices[0].parts
    else:
        parts = ()
    used = Facts(context, answer.outcome, "").usage
    return "".join(part.text for part in parts if isinstance(part, Text | Refusal)), used.input_total, used.output_total


def generate_image(ctx: ToolContext, arguments: tool_schemas.ImageArguments) -> Json:
    """Return the images, one block each."""
    content = ImagesInput(arguments.prompt, arguments.n, arguments.size)
    address = remote_gateway.address_of(ctx)
    if address:
        return blocks(*_show(remote_gateway.images(ctx, address, content, arguments.model or image_uploads.AUTO)))
    return blocks(
        *_show(
            _make(
                ctx,
                content,
                image_uploads.model_of(ctx.services, ctx.caller, arguments.model),
            )
        )
    )


def generate_alt_image(ctx: ToolContext, arguments: tool_schemas.AltImageArguments) -> Json:
    """Return one image of the separately configured model; its file is saved where the operator configured a folder."""
    name = saved_images.check_name(arguments.filename)
    content = ImagesInput(arguments.prompt, aspect_ratio=arguments.aspect_ratio or "")
    address = remote_gateway.address_of(ctx)
    if address:
        result = remote_gateway.images(
            ctx, address, content, ctx.services.settings.media.alt_image_model or image_uploads.AUTO
        )
    else:
        result = _make(ctx, content, alt_model_of(ctx))
    shown = _show(result)
    saved = saved_images.save(ctx, name, [image.media for image in result.images if image.media.data])
    return blocks(*([text_of(saved)] if saved else []), *shown)


def alt_model_of(ctx: ToolContext) -> str:
    """Return the model of generate-alt-image."""
    return image_uploads.model_of(ctx.services, ctx.caller, "", ctx.services.settings.media.alt_image_model)


def _context_of(ctx: ToolContext, operation: str) -> RequestContext:
    """Return the context of a request that ends with its tool call."""
    context = auth.context_of(ctx.services, ctx.inbound, ctx.caller, operation)
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
    return replace(answer.result, warnings=tuple(dict.fromkeys(answer.outcome.warnings)))


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
    return [*revised, *shown, *(text_of(f"Note: {warning}") for warning in result.warnings)]
