"""Converts a language-model request into a neutral chat request."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from msgspec import structs

from gateway.configuration.settings import LimitSettings
from gateway.errors import InvalidRequest
from gateway.neutral.chat import ChatRequest, Conversation
from gateway.surfaces import caps
from gateway.surfaces.aisdk import schema
from gateway.surfaces.aisdk.chat_options import PLACEHOLDER_BYTES, restated, write_settings
from gateway.surfaces.aisdk.prompt import Prompt
from gateway.surfaces.http import Inbound
from gateway.surfaces.validation_errors import unreadable

VERSION_HEADER = "ai-language-model-specification-version"
MODEL_HEADER = "ai-language-model-id"
STREAMING_HEADER = "ai-language-model-streaming"
NEWEST = 4
VERSIONS = {"2": 2, "3": 3, "4": NEWEST}

# The function with which chat completions read a body in this thread: returns the validated body and the neutral
# request.
ReadChat = Callable[[LimitSettings, bytes], tuple[Any, ChatRequest]]


@dataclass(frozen=True, slots=True)
class Question:
    """A request, with the facts that its response needs: the specification version (2, 3, 4), the caller's name for web
    search ("": none), and the call options that were left out."""

    request: ChatRequest
    version: int
    search: str
    warnings: list[dict[str, Any]]


def version_of(inbound: Inbound, of_prefix: int) -> int:
    """Return the version in the header, else that of the path prefix."""
    return VERSIONS.get(inbound.header(VERSION_HEADER).removeprefix("v"), of_prefix)


def read(inbound: Inbound, version: int, limits: LimitSettings, read_chat: ReadChat) -> Question:
    """Return the question of a request. Raises InvalidRequest with the dotted path of an invalid value."""
    model = inbound.header(MODEL_HEADER)
    if not model:
        raise InvalidRequest(f"Set the model in the header '{MODEL_HEADER}'.", param=MODEL_HEADER)
    stream = inbound.header(STREAMING_HEADER).lower() == "true"
    raw = inbound.body
    return caps.read(limits, raw, _read, limits, raw, model, stream, version, read_chat)


def _read(limits: LimitSettings, raw: bytes, model: str, stream: bool, version: int, read_chat: ReadChat) -> Question:
    call = schema.decode(raw)
    caps.check(limits, raw, call.prompt, None)
    if not call.prompt:
        raise InvalidRequest("The prompt is empty; give at least one message.", param="prompt")
    try:
        settings = write_settings(call, model, stream)
        prompt = Prompt(call.prompt)
    except (UnicodeDecodeError, RecursionError) as error:  # in a member that is forwarded unchanged
        raise unreadable(error) from None
    if not prompt.messages:
        raise InvalidRequest("The prompt contains nothing that a model can read.", param="prompt")
    _, request = restated(lambda: read_chat(limits, settings.body), settings)
    return Question(_join(request, prompt, len(raw) >= caps.LARGE), version, settings.search, settings.warnings)


def _join(request: ChatRequest, prompt: Prompt, large: bool) -> ChatRequest:
    """Return the request for `prompt` with the settings of `request`, which holds a placeholder for the messages."""
    needs = request.requirements
    read_settings = request.decode
    needs = structs.replace(
        needs,
        prompt_bytes=needs.prompt_bytes - PLACEHOLDER_BYTES + prompt.text,
        messages=prompt.count,
        vision=prompt.images > 0,
        audio=prompt.sounds > 0,
        documents=prompt.files > 0,
        media=prompt.images + prompt.sounds + prompt.files,
        cache_marks=needs.cache_marks or prompt.marked,
        keeps_reasoning=True,
    )

    def decode() -> Conversation:
        conversation: Conversation = read_settings()
        return structs.replace(conversation, messages=prompt.messages)

    return ChatRequest(request.requested_model, needs, decode, request.options, user=request.user, large=large)
