"""Converts a language-model request into a neutral chat request."""

from typing import Any

from msgspec import Struct, structs

from gateway.configuration.settings import LimitSettings
from gateway.errors import InvalidRequest
from gateway.neutral.chat import ChatRequest
from gateway.surfaces import caps
from gateway.surfaces.aisdk import schema
from gateway.surfaces.aisdk.call_settings import read_options
from gateway.surfaces.aisdk.prompt import Prompt
from gateway.surfaces.chat_option_reader import PromptSize, request_of
from gateway.surfaces.http import Inbound
from gateway.surfaces.validation_errors import unreadable

VERSION_HEADER = "ai-language-model-specification-version"
MODEL_HEADER = "ai-language-model-id"
STREAMING_HEADER = "ai-language-model-streaming"
NEWEST = 4
VERSIONS = {"2": 2, "3": 3, "4": NEWEST}


class Question(Struct, frozen=True):
    """A request, with the facts that its response needs: the specification version (2, 3, 4), the caller's name for web
    search ("": none), and the call options that were left out."""

    request: ChatRequest
    version: int
    search: str
    warnings: list[dict[str, Any]]


def version_of(inbound: Inbound, of_prefix: int) -> int:
    """Return the version in the header, else that of the path prefix."""
    return VERSIONS.get(inbound.header(VERSION_HEADER).removeprefix("v"), of_prefix)


def read(inbound: Inbound, version: int, limits: LimitSettings) -> Question:
    """Return the question of a request. Raises InvalidRequest with the dotted path of an invalid value."""
    model = inbound.header(MODEL_HEADER)
    if not model:
        raise InvalidRequest(f"Set the model in the header '{MODEL_HEADER}'.", param=MODEL_HEADER)
    stream = inbound.header(STREAMING_HEADER).lower() == "true"
    raw = inbound.body
    return caps.read_measured(limits, raw, _read, limits, raw, model, stream, version)


def _read(large: bool, limits: LimitSettings, raw: bytes, model: str, stream: bool, version: int) -> Question:
    call = schema.decode(raw)
    caps.check(limits, raw, call.prompt, None)
    if not call.prompt:
        raise InvalidRequest("The prompt is empty; give at least one message.", param="prompt")
    try:
        options, settings = read_options(call, stream)
        prompt = Prompt(call.prompt)
    except (UnicodeDecodeError, RecursionError) as error:  # in a member that is forwarded unchanged
        raise unreadable(error) from None
    if not prompt.messages:
        raise InvalidRequest("The prompt contains nothing that a model can read.", param="prompt")
    caps.check(limits, raw, None, options.tools, options.response_format)
    size = PromptSize(
        prompt.text, prompt.images, prompt.sounds, prompt.files, prompt.count, earlier_images=prompt.earlier_images
    )
    request = request_of(model, options, size, prompt.messages, marks=prompt.marked)
    request.requirements = structs.replace(request.requirements, keeps_reasoning=True)
    request.large = large
    return Question(request, version, settings.search, settings.warnings)
