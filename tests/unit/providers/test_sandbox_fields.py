"""The sandbox takes the fields that OpenAI's SDK types; it refuses others by name."""

from operator import attrgetter
from typing import Any

import openai.types.audio
import pytest

from gateway.providers.sandbox import embeddings, images, moderations, requests, speech, transcriptions, videos

# Of dall-e and of vector images, and of newer transcription models.
IMAGES = {"style", "response_format", "user", "safety_identifier", "svg", "complexity", "frame_count"}
UNSUPPORTED = {
    images: {*IMAGES, "frame_duration_ms"},
    transcriptions: {"languages", "keywords", "known_speaker_names", "known_speaker_references"},
}
FORM = {"include": "include[]", "timestamp_granularities": "timestamp_granularities[]"}  # lists in a form


@pytest.mark.parametrize(
    ("module", "types"),
    [
        (requests, "chat.completion_create_params.CompletionCreateParamsBase"),
        (embeddings, "embedding_create_params.EmbeddingCreateParams"),
        (moderations, "moderation_create_params.ModerationCreateParams"),
        (speech, "audio.speech_create_params.SpeechCreateParams"),
        (videos, "video_create_params.VideoCreateParams"),
        (images, "image_generate_params.ImageGenerateParamsBase"),
        (images, "image_edit_params.ImageEditParamsBase"),
        (transcriptions, "audio.transcription_create_params.TranscriptionCreateParamsBase"),
    ],
)
def test_the_sandbox_knows_the_fields_of_the_sdk(module: Any, types: str) -> None:
    published = set(attrgetter(types)(openai.types).__annotations__) - UNSUPPORTED.get(module, set())
    if module is transcriptions:
        published = {FORM.get(name, name) for name in published}
    assert published <= set(module.FIELDS)
