"""JSON schemas of the responses in the gateway's own format, for the API description."""

from typing import Any

from gateway.neutral.units import UNITS, Unit
from gateway.surfaces.shapes import ANY, COST, METADATA, OBJECT, TEXT, TOKENS, map_of, named, one_of, shape

FAILED = shape(error=OBJECT)  # the last event of a stream that failed
FINISH = one_of("stop", "length", "tool_calls", "content_filter", "function_call", null=True)
TOOL_CALL = named(
    "ToolCall",
    {"index": "integer", "id": "string", "type": "string"},
    function=shape({"name": "string", "arguments": "string"}),
)
MESSAGE = {
    "content": "string?",
    "refusal": "string?",
    "reasoning": "string?",
    "reasoning_content": "string?",
    "reasoning_details": [OBJECT],
    "tool_calls": [TOOL_CALL],
    "annotations": [OBJECT],
    "images": [OBJECT],
}
PROMPT_DETAILS = named(
    "PromptTokensDetails",
    cached_tokens="integer",
    cache_write_tokens="integer",
    cache_creation_tokens="integer",
    audio_tokens="integer",
    video_tokens="integer",
)
COMPLETION_DETAILS = named(
    "CompletionTokensDetails", reasoning_tokens="integer", image_tokens="integer", audio_tokens="integer"
)
USAGE = named(
    "ChatUsage",
    COST,
    prompt_tokens="integer",
    completion_tokens="integer",
    total_tokens="integer",
    reasoning_tokens="integer",
    prompt_tokens_details=PROMPT_DETAILS,
    completion_tokens_details=COMPLETION_DETAILS,
)
HEAD = {"id": "string", "created": "integer", "model": "string"}
CHAT = named(
    "ChatCompletion",
    {"metadata": METADATA, "service_tier": "string?"},
    **HEAD,
    object={"const": "chat.completion"},
    choices=[
        shape(
            {"logprobs": ANY},
            index="integer",
            message=named("ChatMessage", MESSAGE, role={"const": "assistant"}),
            finish_reason=FINISH,
        )
    ],
    usage=USAGE,
)
CHAT_CHUNK = named(
    "ChatCompletionChunk",
    {"usage": USAGE, "metadata": METADATA, "service_tier": "string?"},
    **HEAD,
    object={"const": "chat.completion.chunk"},
    choices=[
        shape(
            {"logprobs": ANY},
            index="integer",
            delta=named("ChatDelta", {"role": "string", **MESSAGE}),
            finish_reason=FINISH,
        )
    ],
)
COMPLETION = named(
    "Completion",
    {"usage": USAGE, "metadata": METADATA, "service_tier": "string?"},
    **HEAD,
    object={"const": "text_completion"},
    choices=[shape(text="string", index="integer", logprobs=ANY, finish_reason=FINISH)],
)
VECTOR = {"anyOf": [{"type": "array", "items": {"type": "number"}}, {"type": "string", "description": "base64"}]}
EMBEDDINGS = named(
    "Embeddings",
    object={"const": "list"},
    data=[shape(object={"const": "embedding"}, index="integer", embedding=VECTOR)],
    model="string",
    id="string",
    usage=named("EmbeddingsUsage", COST, prompt_tokens="integer", total_tokens="integer"),
    metadata=METADATA,
)
IMAGE_TOKENS = shape(image_tokens="integer", text_tokens="integer")
IMAGES_USAGE = named(
    "ImagesUsage",
    COST,
    input_tokens="integer",
    input_tokens_details=IMAGE_TOKENS,
    output_tokens="integer",
    output_tokens_details=IMAGE_TOKENS,
    total_tokens="integer",
)
IMAGES = named(
    "Images",
    {"output_format": "string", "quality": "string", "size": "string", "background": "string"},
    created="integer",
    data=[shape({"revised_prompt": "string"}, b64_json="string")],
    model="string",
    usage=IMAGES_USAGE,
    metadata=METADATA,
)
IMAGE_OF_STREAM = {
    "b64_json": "string",
    "created_at": "integer",
    **dict.fromkeys(("size", "quality", "background", "output_format"), "string"),
}
IMAGE_EVENT = {
    "title": "ImageEvent",
    "anyOf": [
        shape(
            type=one_of("image_generation.partial_image", "image_edit.partial_image"),
            partial_image_index="integer",
            **IMAGE_OF_STREAM,
        ),
        shape(type=one_of("image_generation.completed", "image_edit.completed"), usage=IMAGES_USAGE, **IMAGE_OF_STREAM),
        FAILED,
    ],
}
MODERATION = named(
    "Moderation",
    id="string",
    model="string",
    results=[
        shape(
            {"category_applied_input_types": map_of(["string"])},
            flagged="boolean",
            categories=map_of("boolean"),
            category_scores=map_of("number"),
        )
    ],
    usage=TOKENS,
    metadata=METADATA,
)
OCR = named(
    "RecognizedText",
    {"document_annotation": ANY},
    pages=[shape({"images": [OBJECT], "dimensions": ANY}, index="integer", markdown="string")],
    model="string",
    usage_info=shape(COST, pages_processed="integer"),
    metadata=METADATA,
)
DECISION = named(
    "Decisions",
    id="string",
    model="string",
    answers=map_of(shape({"confidence": "number", "probabilities": ANY}, type=one_of("noul", "choice", "score"))),
    usage=TOKENS,
    metadata=METADATA,
)
HEARD = named(
    "SoundUsage",
    {
        "seconds": "number",
        "input_tokens": "integer",
        "input_token_details": shape(text_tokens="integer", audio_tokens="integer"),
        "output_tokens": "integer",
        "total_tokens": "integer",
        **COST,
    },
    type=one_of("duration", "tokens"),
)
TRANSCRIPTION = named(
    "Transcription",
    {
        "model": "string",
        "language": "string?",
        "duration": "number",
        "segments": [OBJECT],
        "words": [OBJECT],
        "logprobs": [ANY],
        "task": one_of("transcribe", "translate"),
        "usage": HEARD,
        "metadata": METADATA,
    },
    text="string",
)
TRANSCRIPTION_EVENT = {
    "title": "TranscriptionEvent",
    "anyOf": [
        shape(type={"const": "transcript.text.delta"}, delta="string"),
        shape(type={"const": "transcript.text.done"}, text="string", usage=HEARD),
        FAILED,
    ],
}
SPEECH_EVENT = {
    "title": "SpeechEvent",
    "anyOf": [
        shape(type={"const": "speech.audio.delta"}, audio="string"),
        shape(type={"const": "speech.audio.done"}, usage=TOKENS),
        FAILED,
    ],
}


def _price_shape(unit: Unit) -> dict[str, Any]:
    """Return the schema of a price in US dollars, or of a table of them."""
    described = {"description": f"US dollars for one {unit.meaning}"}
    if unit.billed == "table":
        return map_of("string") | described
    return TEXT | described


PRICING = named(
    "Pricing",
    {unit.price: _price_shape(unit) for unit in UNITS if unit.listed != "everywhere"},
    **{unit.price: _price_shape(unit) for unit in UNITS if unit.listed == "everywhere"},
)
MAPPING = named(
    "ProviderMapping",
    {"region": "string", "context_length": "integer"},
    providerId="string",
    externalId="string",
    supportedVideoSizes=["string"],
    supportsVideoAudio="boolean",
    supportsVideoWithoutAudio="boolean",
    pricing=PRICING,
    streaming="boolean",
    vision="boolean",
    realtime="boolean",
    cancellation="boolean",
    tools="boolean",
    parallelToolCalls="boolean",
    reasoning="boolean",
    reasoning_efforts=["string"],
    reasoning_modes=["string"],
    min_cacheable_tokens="integer",
    max_output="integer",
    stability="string",
)
MODEL = named(
    "Model",
    {"deprecated_at": "string", "deactivated_at": "string"},
    id="string",
    object={"const": "model"},
    owned_by="string",
    name="string",
    display_name="string",
    aliases=["string"],
    created="integer",
    description="string",
    family="string",
    architecture=shape(input_modalities=["string"], output_modalities=["string"], tokenizer="string"),
    top_provider=shape(is_moderated="boolean"),
    providers=[MAPPING],
    pricing=PRICING,
    context_length="integer",
    max_output="integer",
    per_request_limits=map_of("string"),
    supported_parameters=["string"],
    json_output="boolean",
    structured_outputs="boolean",
    free="boolean",
    stability="string",
)
MODELS = named("ModelList", object={"const": "list"}, data=[MODEL])
EXPLANATION = named(
    "RouteExplanation",
    {
        "log_id": "string",
        "routing": "string",
        "attempts": [shape(provider="string", model="string", status_code="integer", succeeded="boolean")],
        "models": ["string"],
        "skippedModels": [shape(model="string", reason="string")],
    },
    object={"const": "route.explanation"},
    requestedModel="string",
    kind="string",
    selectedModel="string?",
    selectedProvider="string?",
    selectionReason="string",
    availableProviders=["string"],
    providerScores=[shape({"price": "number?", "uptime": "number?"}, providerId="string", score="number?")],
    order=["string"],
    excluded=[OBJECT],
    weights=map_of("number"),
)
VIDEO = named(
    "Video",
    {
        "content": [shape(type={"const": "video"}, url="string", mime_type="string?")],
        "usage": shape(cost="number", cost_details=shape(video_output_cost="number", image_input_cost="number")),
    },
    id="string",
    object={"const": "video"},
    model="string",
    status=one_of("queued", "in_progress", "completed", "failed", "canceled", "expired"),
    progress="integer",
    created_at="integer",
    completed_at="integer?",
    expires_at="integer?",
    error="object?",
    prompt="string",
    seconds="string",
    size="string",
    remixed_from_video_id="string?",
)
