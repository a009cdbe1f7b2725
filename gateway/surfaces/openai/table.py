"""Every operation in the gateway's own format, which is OpenAI's where OpenAI has the operation."""

from gateway.surfaces.http import Surface
from gateway.surfaces.http_responses import OPENAI
from gateway.surfaces.openai import (
    chat,
    client_secrets,
    completions,
    decisions,
    embeddings,
    explain,
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

# Groq's clients, and those of Azure, add the first to their address; Cohere's ClientV2 asks for the other.
ALIASES = {"/openai/v1": "/v1", "/v2/rerank": "/v1/rerank"}

SURFACE = Surface(
    "openai",
    OPENAI,
    (
        *chat.OPERATIONS,
        *completions.OPERATIONS,
        *embeddings.OPERATIONS,
        *images.OPERATIONS,
        *rerank.OPERATIONS,
        *moderations.OPERATIONS,
        *ocr.OPERATIONS,
        *decisions.OPERATIONS,
        *speech.OPERATIONS,
        *transcriptions.OPERATIONS,
        *realtime.OPERATIONS,
        *client_secrets.OPERATIONS,
        *videos.OPERATIONS,
        *model_list.OPERATIONS,
        *explain.OPERATIONS,
        *key.OPERATIONS,
    ),
    absent=videos.ABSENT,
    instead=realtime.INSTEAD,
    aliases=ALIASES,
)
