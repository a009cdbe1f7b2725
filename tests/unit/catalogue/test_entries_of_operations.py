"""What the catalogue says of mappings that serve other operations than chat: all that their money and bounds need."""

from collections.abc import Iterator

import pytest

from gateway.catalogue import loader
from gateway.catalogue.entries import Mapping
from gateway.catalogue.lifecycle import state_on
from gateway.catalogue.videos import fit, most_cost
from gateway.neutral.speech import FORMATS
from gateway.neutral.videos import VideosInput

DAY, DAY_US = "2026-11-22", 1_795_305_600_000_000
# What callers may ask for (HTTP reference, "Videos").
STEPS = ((848, 480), (854, 480), (1280, 720), (1366, 768), (1696, 960), (1792, 1024), (1920, 1080), (3840, 2160))
VIDEO_SIZES = {f"{edges[0]}x{edges[1]}" for step in STEPS for edges in (step, step[::-1])}
CATALOGUE = loader.load()
# Which price is the operation's own: one of these is told.
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
# Their answers are written of one object whatever is asked for: no field for a format is sent.
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


def test_every_mapping_that_speaks_has_voices_and_formats() -> None:
    for mapping in serving("speech"):
        assert mapping.voices and mapping.formats and set(mapping.formats) <= FORMATS.keys(), mapping.key
        ids = mapping.extra.get("voice_ids")
        assert ids is None or ids.keys() == set(mapping.voices), mapping.key


def test_every_mapping_that_hears_has_formats() -> None:
    for mapping in serving("transcriptions", "translations"):
        assert mapping.audio, mapping.key
        assert mapping.formats or mapping.provider in FORMATLESS, mapping.key


def test_every_mapping_that_draws_has_what_bounds_an_image() -> None:
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
def test_models_whose_life_ended_are_not_served(model: str) -> None:
    found = CATALOGUE.models.get(model)
    assert found is None or all(state_on(mapping, DAY) == "deactivated" for mapping in found.mappings)


def test_every_mapping_that_films_makes_what_callers_may_ask_for_at_a_price_of_its_own_size() -> None:
    for mapping in serving("videos"):
        assert set(mapping.video_sizes) <= VIDEO_SIZES and mapping.video_durations, mapping.key
        usual = fit(VideosInput("a cat"), mapping)
        for size in mapping.video_sizes:
            costs = [most_cost(VideosInput("a cat", n, size), mapping, DAY_US) for n in sorted(mapping.video_durations)]
            assert costs[0] > 0 and costs == sorted(costs), (mapping.key, size)
        assert usual.size in mapping.video_sizes and usual.seconds in mapping.video_durations, mapping.key
