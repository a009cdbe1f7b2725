"""Every operation in the gateway's own format, which is OpenAI's where OpenAI has the operation."""

from gateway.surfaces.openai import (
    batches,
    chat,
    completions,
    decisions,
    embeddings,
    explain,
    files,
    fill_in_middle,
    images,
    key,
    model_list,
    moderations,
    ocr,
    realtime,
    rerank,
    speech,
    transcriptions,
    videos,
)
from gateway.surfaces.web.http import Surface
from gateway.surfaces.web.http_responses import OPENAI

# Operations that clients of Azure send with the model in the path.
OF_DEPLOYMENTS = (
    *("/chat/completions", "/completions", "/responses", "/embeddings", "/images/generations", "/images/edits"),
    *("/audio/transcriptions", "/audio/translations", "/audio/speech"),
)
# Clients of Groq, Azure and DeepInfra add /openai to the address; Google documents /v1beta/openai as base URL, Azure
# /models for the models of all vendors.
ALIASES = {f"/openai/deployments/<path:model>{path}": f"/v1{path}" for path in OF_DEPLOYMENTS} | {
    "/models/chat/completions": "/v1/chat/completions",
    "/models/embeddings": "/v1/embeddings",
    "/openai/v1": "/v1",
    "/v1beta/openai": "/v1",
    "/openai": "/v1",
}
NO_ASSISTANTS = "assistants are not supported: use POST /v1/responses."
UNSUPPORTED_PATHS = {
    "/v1/vector_stores": "vector stores are not supported.",
    "/v1/assistants": NO_ASSISTANTS,
    "/v1/threads": NO_ASSISTANTS,
    "/v1/conversations": "conversation objects are not supported: use previous_response_id of POST /v1/responses.",
    "/v1/fine_tuning": "models cannot be fine-tuned here; a fine-tuned model is called by its name.",
    "/v1/images/variations": "use POST /v1/images/edits.",
}

SURFACE = Surface(
    "openai",
    OPENAI,
    (
        *chat.OPERATIONS,
        *completions.OPERATIONS,
        *fill_in_middle.OPERATIONS,
        *embeddings.OPERATIONS,
        *images.OPERATIONS,
        *rerank.OPERATIONS,
        *moderations.OPERATIONS,
        *ocr.OPERATIONS,
        *decisions.OPERATIONS,
        *speech.OPERATIONS,
        *transcriptions.OPERATIONS,
        *realtime.OPERATIONS,
        *realtime.SECRET_OPERATIONS,
        *videos.OPERATIONS,
        *files.OPERATIONS,
        *batches.OPERATIONS,
        *model_list.OPERATIONS,
        *explain.OPERATIONS,
        *key.OPERATIONS,
    ),
    absent=videos.ABSENT,
    instead=UNSUPPORTED_PATHS | realtime.UNSUPPORTED_PATHS,
    aliases=ALIASES,
)
