"""Every operation in the service's own format, which is OpenAI's where that has one."""

from gateway.surfaces.http import Surface
from gateway.surfaces.openai import (
    chat,
    completions,
    decisions,
    embeddings,
    explain,
    images,
    key,
    models,
    moderations,
    ocr,
    realtime,
    realtime_secrets,
    rerank,
    speech,
    transcriptions,
    videos,
)
from gateway.surfaces.replies import OPENAI

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
        *realtime_secrets.OPERATIONS,
        *videos.OPERATIONS,
        *models.OPERATIONS,
        *explain.OPERATIONS,
        *key.OPERATIONS,
    ),
    absent=videos.ABSENT,
    instead=realtime.INSTEAD,
)
