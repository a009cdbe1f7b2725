"""JSON schemas of the responses in the gateway's own format, for the API description."""

from gateway.surfaces.shapes import ANY, COST, METADATA, OBJECT, map_of, named, one_of, shape

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
