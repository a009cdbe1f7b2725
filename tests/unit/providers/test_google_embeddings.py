"""Embeddings of Google's models: one call at AI Studio, another at Vertex AI."""

import orjson
import pytest
from support.replies import json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.request import Options, Requirements
from gateway.providers.google.embeddings import GoogleEmbeddings
from gateway.providers.google.generate import GoogleGenerate
from gateway.providers.protocol import Credential, Target

STUDIO = "https://studio.example/v1beta"
VERTEX = "https://vertex.example/v1/projects/p/locations/eu/publishers/google"
CODEC = GoogleEmbeddings(GoogleGenerate(lambda secret: "ya29.x").authorize)


def write(address: str, dimensions: int | None = None, token_ids: int = 0, **fields: str):
    provider = Provider("acme", "Acme", "google", auth="bearer")
    target = Target(provider, Mapping("acme", "m", "text-embedding-005"), Credential("key"), address, trusted=True)
    content = EmbeddingsInput(("one", "two"), dimensions)
    needs = Requirements(messages=2)
    options = Options(extra={"google_fields": fields})
    return CODEC.write(EmbeddingsRequest("m", needs, lambda: content, options, token_ids=token_ids), target)


def test_vertex_is_called_at_predict():
    call = write(VERTEX, dimensions=8)
    assert (call.method, call.url) == ("POST", f"{VERTEX}/models/text-embedding-005:predict")
    assert orjson.loads(call.body) == {
        "instances": [{"content": "one"}, {"content": "two"}],
        "parameters": {"outputDimensionality": 8},
    }
    assert "parameters" not in orjson.loads(write(VERTEX).body)


def test_the_task_and_the_title_have_the_names_of_each_service():
    task = {"taskType": "RETRIEVAL_DOCUMENT", "title": "Numbers"}
    first, _ = orjson.loads(write(VERTEX, **task).body)["instances"]
    assert first == {"content": "one", "task_type": "RETRIEVAL_DOCUMENT", "title": "Numbers"}
    first, _ = orjson.loads(write(STUDIO, **task).body)["requests"]
    assert task.items() <= first.items()


def test_the_studio_gets_a_batch_request():
    call = write(STUDIO, dimensions=8)
    assert call.url == f"{STUDIO}/models/text-embedding-005:batchEmbedContents"
    first = orjson.loads(call.body)["requests"][0]
    assert first["content"] == {"parts": [{"text": "one"}]} and first["outputDimensionality"] == 8


def test_predictions_are_vectors_with_their_tokens():
    rows = [
        {"embeddings": {"values": [0.5, 1.0], "statistics": {"truncated": False, "token_count": tokens}}}
        for tokens in (3, 4)
    ]
    result = CODEC.read(json_reply({"predictions": rows, "metadata": {"billableCharacterCount": 6}}), False)
    assert result.vectors == [[0.5, 1.0], [0.5, 1.0]] and result.usage.input == 7
    del rows[1]["embeddings"]["statistics"]
    assert CODEC.read(json_reply({"predictions": rows}), False).usage is None


@pytest.mark.parametrize("wire", [{"predictions": []}, {"predictions": [{}]}, {"predictions": [{"embeddings": {}}]}])
def test_an_answer_without_vectors_is_the_providers_fault(wire):
    with pytest.raises(UpstreamFailed):
        CODEC.read(json_reply(wire), False)


def test_token_numbers_are_no_text():
    with pytest.raises(NotSupported):
        write(VERTEX, token_ids=3)
