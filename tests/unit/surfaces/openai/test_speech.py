"""The cost in the headers of a speech response, before the audio exists."""

from types import SimpleNamespace
from typing import Any

import pytest

from gateway.catalogue.entries import Mapping
from gateway.catalogue.field_checks import read_prices
from gateway.surfaces.openai import speech

TEXT = "The quick brown fox jumps over the lazy dog."


@pytest.mark.parametrize(
    ("prices", "name", "cost"),
    [
        ({"character": "0.000015"}, "x-llmgateway-cost", "0.00066"),
        # 11 tokens of text; 75 tokens of audio for the spoken text
        ({"prompt": "0.0000006", "completion": "0.000012"}, "x-llmgateway-estimated-cost", "0.0009066"),
    ],
)
def test_a_cost_that_is_not_known_yet_is_reported_as_an_estimate(prices: Any, name: str, cost: str) -> None:
    mapping = Mapping("a", "b", "c", operations=("speech",), prices=read_prices(prices))
    serving = SimpleNamespace(target=SimpleNamespace(mapping=mapping))
    outcome: Any = SimpleNamespace(
        serving=serving, request=speech.read_speech(speech.SpeechBody(model="b", input=TEXT))
    )
    assert speech.foreseen_cost(outcome, 0) == (name, cost)
