"""Every operation in the service's own format, which is OpenAI's where that has one."""

from gateway.surfaces.http import Surface
from gateway.surfaces.openai import chat, completions, embeddings, explain, key, models, speech, transcriptions
from gateway.surfaces.replies import OPENAI

SURFACE = Surface(
    "openai",
    OPENAI,
    (
        *chat.OPERATIONS,
        *completions.OPERATIONS,
        *embeddings.OPERATIONS,
        *speech.OPERATIONS,
        *transcriptions.OPERATIONS,
        *models.OPERATIONS,
        *explain.OPERATIONS,
        *key.OPERATIONS,
    ),
)
