"""JSON schemas of the results of the operations, for the API description."""

from gateway.surfaces.shapes import COST, METADATA, OBJECT, named, shape

CONTENT = named("GeminiContent", {"role": "string"}, parts=[OBJECT])
CANDIDATE = named(
    "GeminiCandidate",
    {"content": CONTENT, "finishReason": "string", "index": "integer", "groundingMetadata": OBJECT},
)
USAGE = named(
    "GeminiUsage",
    {
        **COST,
        "cachedContentTokenCount": "integer",
        "candidatesTokenCount": "integer",
        "thoughtsTokenCount": "integer",
        "toolUsePromptTokenCount": "integer",
        "promptTokensDetails": [OBJECT],
        "cacheTokensDetails": [OBJECT],
        "candidatesTokensDetails": [OBJECT],
    },
    promptTokenCount="integer",
    totalTokenCount="integer",
)
RESPONSE = named(
    "GeminiResponse",
    {
        "candidates": [CANDIDATE],
        "promptFeedback": OBJECT,
        "usageMetadata": USAGE,
        "modelVersion": "string",
        "metadata": METADATA,
    },
    responseId="string",
)
EMBEDDING = named("GeminiEmbedding", values=["number"])
EMBEDDED = shape({"usageMetadata": OBJECT, "metadata": METADATA}, embedding=EMBEDDING)
BATCH_EMBEDDED = shape({"usageMetadata": OBJECT, "metadata": METADATA}, embeddings=[EMBEDDING])
