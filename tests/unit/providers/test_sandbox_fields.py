"""The sandbox takes the fields, events and words that OpenAI's SDK types; it refuses others by name."""

from operator import attrgetter
from typing import Any, get_args

import openai.types.audio
import openai.types.realtime
import pytest

from gateway.providers.sandbox import (
    embeddings,
    images,
    moderations,
    realtime,
    requests,
    speech,
    transcriptions,
    videos,
)

# Fields of DALL-E and of vector images, and those of newer transcription models.
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
        (transcriptions, "audio.transcription_create_params.TranscriptionCreateParamsStreaming"),
    ],
)
def test_the_sandbox_knows_the_fields_of_the_sdk(module: Any, types: str) -> None:
    published = set(attrgetter(types)(openai.types).__annotations__) - UNSUPPORTED.get(module, set())
    if module is transcriptions:
        published = {FORM.get(name, name) for name in published}
    assert published <= set(module.FIELDS)


def test_the_sandbox_answers_the_events_of_the_sdk() -> None:
    (union, *_) = get_args(openai.types.realtime.RealtimeClientEvent)
    published = {get_args(kind.model_fields["type"].annotation)[0] for kind in get_args(union)}
    # The sandbox answers at once, so that nothing is left to cancel, and it has no WebRTC.
    assert published - {"response.cancel", "output_audio_buffer.clear"} <= set(realtime.ANSWERS)


def test_the_sandbox_has_the_categories_and_the_lengths_of_the_sdk() -> None:
    categories = openai.types.moderation.Categories.model_fields
    assert {field.alias or name for name, field in categories.items()} == set(moderations.CATEGORIES)
    assert set(get_args(openai.types.VideoSeconds)) == set(videos.LENGTHS)
