from gateway.catalogue.loader import load

CATALOGUE = load()


def test_a_description_lists_inputs_abilities_and_parameters_of_a_model():
    assert CATALOGUE.models["o1"].description == (
        "o1 is a reasoning model by OpenAI, released in December 2024. It reads text, images and PDF files. "
        "It supports tool calls and structured output. It takes up to 200,000 tokens and writes up to 100,000."
    )
    assert "an embedding model by OpenAI" in CATALOGUE.models["text-embedding-3-small"].description


def test_every_model_has_a_description_and_a_day_of_release():
    for model in CATALOGUE.models.values():
        assert len(model.description) > len(model.name) + 20, model.id
        assert model.released, model.id


def test_a_chat_model_with_a_known_limit_has_it_at_every_provider():
    for model in CATALOGUE.models.values():
        for mapping in model.mappings:
            assert "chat" not in mapping.operations or mapping.max_output or not model.max_output, mapping.key
