import pytest

from gateway.catalogue.entries import Mapping, Model
from gateway.catalogue.loader import describe, load

CATALOGUE = load()


def test_a_description_lists_inputs_abilities_and_parameters_of_a_model():
    assert CATALOGUE.models["o1"].description == (
        "o1 is a reasoning model by OpenAI, released in December 2024. It reads text, images and PDF files. "
        "It supports tool calls and structured output. It takes up to 200,000 tokens and writes up to 100,000."
    )
    assert "an embedding model by OpenAI" in CATALOGUE.models["text-embedding-3-small"].description


@pytest.mark.parametrize(
    ("outputs", "kind"),
    [
        (("embedding",), "an embedding model"),
        (("rerank",), "a reranking model"),
        (("transcription",), "a transcription model"),
        (("ocr",), "a document reading model"),
        (("decision",), "a decision model"),
        (("video",), "a video model"),
        (("image",), "an image model"),
        (("audio",), "a speech model"),
        (("moderation",), "a model"),
        (("text",), "a language model"),
        (("text", "image"), "a language model that also makes images"),
    ],
)
def test_a_description_begins_with_what_the_model_makes(outputs: tuple[str, ...], kind: str):
    model = Model(
        "m", released="2026-02-01", input_modalities=("image", "audio", "video", "pdf"), output_modalities=outputs
    )
    assert describe(model, (Mapping("acme", "m", "m"),), "Acme").startswith(
        f"m is {kind} by Acme, released in February 2026. It reads images, audio, video and PDF files."
    )


def test_every_model_has_a_description_and_a_day_of_release():
    for model in CATALOGUE.models.values():
        assert len(model.description) > len(model.name) + 20, model.id
        assert model.released, model.id


def test_a_chat_model_with_a_known_limit_has_it_at_every_provider():
    for model in CATALOGUE.models.values():
        for mapping in model.mappings:
            assert "chat" not in mapping.operations or mapping.max_output or not model.max_output, mapping.key
