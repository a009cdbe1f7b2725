"""JSON schemas of the results of the Responses operations, for the API description."""

from gateway.surfaces.shapes import ANY, COST, METADATA, OBJECT, named, one_of, shape

ITEM = named("ResponseItem", {"id": "string", "status": "string?", "role": "string", "content": {}}, type="string")
USAGE = named(
    "ResponseUsage",
    COST,
    input_tokens="integer",
    input_tokens_details=shape(cached_tokens="integer"),
    output_tokens="integer",
    output_tokens_details=shape(reasoning_tokens="integer"),
    total_tokens="integer",
)
RESPONSE = named(
    "Response",
    {
        "usage": {"anyOf": [USAGE, {"type": "null"}]},
        "llmgateway": METADATA,
        "instructions": ANY,
        "service_tier": "string?",
    },
    id="string",
    object={"const": "response"},
    created_at="number",
    status=one_of("completed", "failed", "in_progress", "incomplete", "cancelled", "queued"),
    error={"type": ["object", "null"]},
    incomplete_details={"type": ["object", "null"]},
    model="string",
    output=[ITEM],
    parallel_tool_calls="boolean",
    tool_choice={},
    tools=[OBJECT],
    store="boolean",
)
EVENT = named(
    "ResponseEvent",
    {"response": RESPONSE, "item": ITEM, "output_index": "integer", "item_id": "string", "delta": {}},
    type="string",
    sequence_number="integer",
)
COMPACTION = named(
    "ResponseCompaction",
    {"llmgateway": METADATA},
    id="string",
    object={"const": "response.compaction"},
    created_at="number",
    output=[ITEM],
    usage=USAGE,
)
