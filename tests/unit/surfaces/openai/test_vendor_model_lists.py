from typing import Any

import anthropic
import orjson
import pytest

from gateway.surfaces.openai.model_list import convert_list, find_form

MISTRAL = ("mistral-client-python/3.7.0", "mistral-client-typescript/2.7.0")
COHERE = ("cohere/7.3.1", "cohere-ai/8.1.0")


def entry(ident: str, outputs: list[str], inputs: tuple[str, ...] = ("text",), **more: Any) -> dict[str, Any]:
    return {
        "id": ident,
        "type": "model",
        "architecture": {"input_modalities": list(inputs), "output_modalities": outputs},
        "supported_parameters": ["tools"] if outputs == ["text"] else [],
        "providers": [{"reasoning": False}],
        "context_length": 1000,
        "max_output": 0,
        "deprecated_at": "",
        "deactivated_at": "",
    } | more


HEAD = {"display_name": "A", "created_at": "2026-01-01T00:00:00Z", "lifecycle": "active"}
ENTRIES = [
    entry("auto", ["text"], ("text", "image"), providers=[{"reasoning": False}, {"reasoning": True}]),
    entry("talk", ["text"], deprecated_at="2026-12-01T00:00:00.000Z"),
    entry("leaf", ["embedding"]),
    entry("scale", ["rerank"]),
    entry("page", ["ocr"]),
]
BODY = orjson.dumps({"object": "list", "data": ENTRIES})


def listed(agent: str, **arguments: str) -> Any:
    form = find_form({"user-agent": agent})
    assert form is not None
    return orjson.loads(convert_list(form, BODY, arguments))


@pytest.mark.parametrize("agent", MISTRAL)
def test_mistrals_clients_find_cards_with_abilities(agent: str) -> None:
    cards = {card["id"]: card for card in listed(agent)["data"]}
    assert {card["type"] for card in cards.values()} == {"base"} and cards["auto"]["max_context_length"] == 1000
    abilities = {name: {key for key, able in card["capabilities"].items() if able} for name, card in cards.items()}
    assert abilities == {
        "auto": {"completion_chat", "function_calling", "reasoning", "vision"},
        "talk": {"completion_chat", "function_calling"},
        "leaf": set(),
        "scale": set(),
        "page": {"ocr"},
    }


@pytest.mark.parametrize("agent", COHERE)
def test_coheres_clients_find_models_by_endpoint(agent: str) -> None:
    models = listed(agent)["models"]
    assert [model["endpoints"] for model in models] == [["chat"], ["chat"], ["embed"], ["rerank"], []]
    assert [model["is_deprecated"] for model in models] == [False, True, False, False, False]
    assert [model["name"] for model in listed(agent, endpoint="embed")["models"]] == ["leaf"]
    assert [model["name"] for model in listed(agent, endpoint="chat", default_only="true")["models"]] == ["auto"]


@pytest.mark.parametrize("agent", ["Anthropic/JS 0.110.0", "AsyncAnthropic/Python 2.14.0"])
def test_anthropics_clients_find_no_empty_dates(agent: str) -> None:
    body = listed(agent)
    infos = [anthropic.types.ModelInfo.model_validate(HEAD | info) for info in body["data"]]
    assert [info.deprecated_at is None for info in infos] == [True, False, True, True, True]
    assert (infos[0].max_input_tokens, infos[0].max_tokens, body["has_more"]) == (1000, None, False)


@pytest.mark.parametrize("agent", ["", "OpenAI/Python 3.57.0", "langchain-cohere"])
def test_other_clients_read_the_list_as_it_is(agent: str) -> None:
    assert find_form({"user-agent": agent} if agent else {}) is None
