"""JSON schemas of the results of the messages operations, for the API description."""

from gateway.surfaces.shapes import COST, METADATA, OBJECT, named, one_of

STOP = one_of(
    "end_turn",
    "max_tokens",
    "stop_sequence",
    "tool_use",
    "pause_turn",
    "refusal",
    "model_context_window_exceeded",
    null=True,
)
BLOCK = named("ContentBlock", {"text": "string", "thinking": "string", "name": "string"}, type="string")
USAGE = named(
    "MessageUsage",
    {**COST, "cache_creation": OBJECT, "server_tool_use": OBJECT, "service_tier": "string"},
    input_tokens="integer",
    cache_creation_input_tokens="integer",
    cache_read_input_tokens="integer",
    output_tokens="integer",
)
MESSAGE = named(
    "Message",
    {"metadata": METADATA},
    id="string",
    type={"const": "message"},
    role={"const": "assistant"},
    model="string",
    content=[BLOCK],
    stop_reason=STOP,
    stop_sequence="string?",
    usage=USAGE,
)
EVENT = named(
    "MessageEvent",
    {"index": "integer", "message": MESSAGE, "content_block": BLOCK, "delta": OBJECT, "usage": USAGE, "error": OBJECT},
    type=one_of(
        "message_start",
        "content_block_start",
        "content_block_delta",
        "content_block_stop",
        "message_delta",
        "message_stop",
        "ping",
        "error",
    ),
)
