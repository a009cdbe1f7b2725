"""Catalogue entries of operations other than chat have all fields that billing and cost bounds need."""

from collections.abc import Iterator

import pytest

from gateway.catalogue import loader
from gateway.catalogue.entries import Mapping
from gateway.catalogue.lifecycle import state_on
from gateway.catalogue.video_shapes import fit, max_cost
from gateway.neutral.speech import FORMATS
from gateway.neutral.videos import VideosInput

DAY, DAY_US = "2026-11-22", 1_795_305_600_000_000
# Video parameters that callers may use, from the API reference.
STEPS = ((848, 480), (854, 480), (1280, 720), (1366, 768), (1696, 960), (1792, 1024), (1920, 1080), (3840, 2160))
VIDEO_SIZES = {f"{edges[0]}x{edges[1]}" for step in STEPS for edges in (step, step[::-1])}
CATALOGUE = loader.load()
# The operation's own prices: an entry must have one of them.
PRICES = {
    "embeddings": ("prompt",),
    "images": ("per_image", "output_image", "completion"),
    "image_edits": ("per_image", "output_image", "completion"),
    "speech": ("character", "completion", "output_audio"),
    "transcriptions": ("input_audio_hour", "input_audio", "prompt"),
    "translations": ("input_audio_hour",),
    "moderations": ("prompt",),
    "ocr": ("ocr_page",),
    "rerank": ("prompt", "web_search"),
    "decisions": ("prompt",),
    "videos": ("per_second", "per_video_token"),
}
# Providers with a fixed response shape: no response format is sent to them.
FORMATLESS = ("mistral",)


def serving(*operations: str) -> Iterator[Mapping]:
    for model in CATALOGUE.models.values():
        for mapping in model.mappings:
            if set(operations) & set(mapping.operations) and state_on(mapping, DAY) != "deactivated":
                yield mapping


@pytest.mark.parametrize("operation", PRICES)
def test_every_mapping_has_a_price_of_its_operation(operation: str) -> None:
    found = list(serving(operation))
    bare = [
        mapping.key
        for mapping in found
        if not any(
            getattr(prices.base, name) not in (None, {}) for prices in mapping.prices for name in PRICES[operation]
        )
    ]
    assert found and bare == []


def test_every_speech_mapping_has_voices_and_formats() -> None:
    for mapping in serving("speech"):
        assert mapping.voices and mapping.formats and set(mapping.formats) <= FORMATS.keys(), mapping.key
        ids = mapping.extra.get("voice_ids")
        assert ids is None or ids.keys() == set(mapping.voices), mapping.key


def test_every_transcription_mapping_has_formats() -> None:
    for mapping in serving("transcriptions", "translations"):
        assert mapping.audio, mapping.key
        assert mapping.formats or mapping.provider in FORMATLESS, mapping.key


def test_every_image_mapping_has_fields_that_bound_its_cost() -> None:
    for mapping in serving("images", "image_edits"):
        by_the_piece = all(prices.base.per_image for prices in mapping.prices)
        assert by_the_piece or mapping.image_tokens, mapping.key
        assert "image_edits" not in mapping.operations or mapping.vision, mapping.key


def test_every_mapping_that_embeds_or_ranks_has_its_limits() -> None:
    for mapping in serving("embeddings"):
        assert mapping.context_length and mapping.max_inputs, mapping.key
    for mapping in serving("rerank"):
        assert mapping.context_length, mapping.key


def test_a_chat_model_offers_images_only_where_it_answers_with_some() -> None:
    for mapping in serving("images"):
        if "chat" in mapping.operations:
            assert "image" in CATALOGUE.models[mapping.model].output_modalities, mapping.key


@pytest.mark.parametrize("model", ["sora-2", "gemini-2.5-flash-image", "gemini-3-pro-image-preview"])
def test_deactivated_models_are_not_served(model: str) -> None:
    found = CATALOGUE.models.get(model)
    assert found is None or all(state_on(mapping, DAY) == "deactivated" for mapping in found.mappings)


def test_every_video_mapping_supports_public_sizes_and_has_a_price_for_each() -> None:
    for mapping in serving("videos"):
        assert set(mapping.video_sizes) <= VIDEO_SIZES and mapping.video_durations, mapping.key
        usual = fit(VideosInput("a cat"), mapping)
        for size in mapping.video_sizes:
            costs = [max_cost(VideosInput("a cat", n, size), mapping, DAY_US) for n in sorted(mapping.video_durations)]
            assert costs[0] > 0 and costs == sorted(costs), (mapping.key, size)
        assert usual.size in mapping.video_sizes and usual.seconds in mapping.video_durations, mapping.key
