"""Image models on POST /v1/chat/completions: the last user message is the prompt, and the images are the answer."""

from collections.abc import Iterator
from typing import Any

import msgspec
from msgspec import ValidationError
from msgspec.structs import replace

from gateway.billing.context import RequestContext
from gateway.engine.executor import StreamedAnswer
from gateway.engine.planning import with_choice
from gateway.errors import GatewayError
from gateway.neutral.chat import ChatRequest, ChatResult, Choice
from gateway.neutral.events import Batch, Event, Finished, ImageMade, PartFound, TextDelta
from gateway.neutral.images import ImageEditsRequest, ImagesRequest, ImagesResult
from gateway.neutral.parts import Image, Text
from gateway.surfaces.bodies import uploads as uploads_module
from gateway.surfaces.bodies.validation_errors import explain, invalid, words_of
from gateway.surfaces.openai import chat_schema as schema
from gateway.surfaces.openai import chat_writer, images
from gateway.surfaces.openai.chat_answers import ID_PREFIX
from gateway.surfaces.web import http_responses as http_responses_module
from gateway.surfaces.web.facts import Facts, headers_of
from gateway.surfaces.web.http import Inbound, Outbound
from gateway.worker.services import Services

# The fields of an images request, by their names in chat completions.
FIELDS = {
    "prompt": "messages",
    "n": "n",
    "size": "image_config.image_size",
    "aspect_ratio": "image_config.aspect_ratio",
}
# Requirements of a chat request that an image model must fulfil as well, or that are left out with a warning.
IMAGE_REQUIREMENTS = (
    *("tools", "audio", "documents", "json_object", "json_schema"),
    *("web_search", "search_offered", "reasoning", "effort"),
)
ONE_PROMPT = "messages: only the last user message was read, because {} makes images from one prompt."
BLOCKED = "The provider's content filter rejected all images."


def makes_images(refusal: GatewayError) -> bool:
    """Return whether a model that was refused because it does not serve chat serves images."""
    return ImagesRequest.operation in (refusal.details or {}).get("operations", "").split(",")


def answer(
    services: Services, inbound: Inbound, context: RequestContext, body: schema.ChatBody, chat: ChatRequest
) -> Outbound:
    """Answer a chat completion with images, complete or streamed."""
    request = read(services, inbound, context, body, chat)
    each = _config_of(chat).get("n", 1)
    if body.stream:
        return _stream(services, context, request, each)
    made = services.engine.executor.generate(context, request)
    facts = Facts(context, made.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=False)

    def write(result: ImagesResult) -> bytes:
        return chat_writer.reply(_as_chat(result, each), facts)

    return http_responses_module.result_reply(made.result, write, request_id=context.shown_id, headers=headers)


def _stream(services: Services, context: RequestContext, request: ImagesRequest, each: int) -> Outbound:
    stream = services.engine.executor.stream(context, request)
    facts = Facts(context, stream.outcome, ID_PREFIX + context.request_id)
    headers = headers_of(facts, services.clock, streamed=True)
    frames = chat_writer.frames(_ChatEvents(stream, each), facts)
    return http_responses_module.stream_reply(frames, context.shown_id, headers)


def read(
    services: Services, inbound: Inbound, context: RequestContext, body: schema.ChatBody, chat: ChatRequest
) -> ImagesRequest:
    """Return the images request of a chat body, and set the operation of the context. Raises InvalidRequest."""
    prompt, urls = _read_prompt(body)
    kind = ImageEditsRequest if urls else ImagesRequest
    context.operation = kind.operation
    config = _config_of(chat)
    fields = _read_fields(prompt, body, config)
    pictures = tuple(uploads_module.load(services, inbound, url, param) for param, url in urls)
    request = images.request_of(services, context, fields, kind, pictures, {}, seed=config.get("seed"))
    kept = {name: getattr(chat.requirements, name) for name in IMAGE_REQUIREMENTS}
    request.requirements = replace(request.requirements, **kept)
    request.options = chat.options
    if len(body.messages) > 1:
        request.warnings = (ONE_PROMPT.format(body.model),)
    return with_choice(context, request)


def _config_of(chat: ChatRequest) -> dict[str, Any]:
    return chat.options.image_config or {}


def _read_prompt(body: schema.ChatBody) -> tuple[str, list[tuple[str, str]]]:
    """Return the text of the last user message, and the URLs of its images with their paths in the body."""
    texts: list[str] = []
    urls: list[tuple[str, str]] = []
    for place in reversed(range(len(body.messages))):
        message = body.messages[place]
        if isinstance(message, schema.UserMessage):
            break
    else:
        raise invalid("messages", "an image model needs a user message, which is its prompt")
    if isinstance(message.content, str):
        texts.append(message.content)
    else:
        for number, part in enumerate(message.content or ()):
            if isinstance(part, schema.TextPart):
                texts.append(part.text)
            elif isinstance(part, schema.ImagePart):
                urls.append((f"messages.{place}.content.{number}.image_url.url", part.image_url.url))
    prompt = "\n".join(texts).strip()
    if not prompt:
        raise invalid(f"messages.{place}.content", "an image model needs a text, which is its prompt")
    if len(urls) > images.MAX_IMAGES:
        raise invalid(f"messages.{place}.content", f"send up to {images.MAX_IMAGES} images")
    return prompt, urls


def _read_fields(prompt: str, body: schema.ChatBody, config: dict[str, Any]) -> images.ImagesFields:
    """Return the validated fields of the images request. `n` choices have `image_config.n` images each."""
    values = {
        "prompt": prompt,
        "model": body.model,
        "n": (body.n or 1) * config.get("n", 1),
        "size": config.get("image_size"),
        "quality": config.get("image_quality"),
        "aspect_ratio": config.get("aspect_ratio"),
        "stream": bool(body.stream),
    }
    try:
        return msgspec.convert(values, images.ImagesFields)
    except ValidationError as error:
        refusal = explain(str(error), words_of(images.ImagesFields))
        name = FIELDS[refusal.param] if body.n or refusal.param != "n" else "image_config.n"
        refusal.message = refusal.message.replace(f"'{refusal.param}'", f"'{name}'")
        refusal.param = name
        raise refusal from None


def _as_chat(result: ImagesResult, each: int) -> ChatResult:
    """Return the images as choices with up to `each` images, or the reason why there are none."""
    if not result.images:
        return ChatResult((Choice((Text(BLOCKED),), "content_filter"),))
    groups = [result.images[start : start + each] for start in range(0, len(result.images), each)]
    return ChatResult(tuple(Choice(group, "stop") for group in groups))


class _ChatEvents:
    """The events of a stream of images as those of a chat: choices with up to `each` images."""

    def __init__(self, stream: StreamedAnswer, each: int) -> None:
        self._stream = stream
        self._each = each
        self._made = 0

    def __iter__(self) -> Iterator[Batch]:
        for batch in self._stream:
            yield [written for event in batch for written in self._convert(event)]

    def close(self) -> None:
        self._stream.close()

    def _convert(self, event: Event) -> tuple[Event, ...]:
        if type(event) is ImageMade:
            place = self._made
            self._made += 1
            return (PartFound(Image(event.media), block=place, choice=place // self._each),)
        if type(event) is Finished and not self._made:
            return (TextDelta(BLOCKED), replace(event, reason="content_filter"))
        return (event,)
