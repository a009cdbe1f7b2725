"""Embeddings of Cohere's second API."""

import orjson
import pytest
from support.replies import json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import NotSupported, UpstreamFailed
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest
from gateway.neutral.request import Native, Requirements
from gateway.providers.cohere.embeddings import CohereEmbeddings
from gateway.providers.protocol import Credential, Target

CODEC = CohereEmbeddings()
PROVIDER = Provider("cohere", "Cohere", "cohere", auth="bearer")
TARGET = Target(PROVIDER, Mapping("cohere", "m", "embed-v4.0"), Credential("key"), "https://cohere.example/v2")


def request(dimensions: int | None = None, token_ids: int = 0) -> EmbeddingsRequest:
    content = EmbeddingsInput(("one", "two"), dimensions, "base64")
    return EmbeddingsRequest("m", Requirements(messages=2), lambda: content, token_ids=token_ids)


def test_texts_are_requested_as_float_vectors_of_documents() -> None:
    call = CODEC.write(request(8), TARGET)
    assert (call.method, call.url) == ("POST", "https://cohere.example/v2/embed")
    assert orjson.loads(call.body) == {
        "model": "embed-v4.0",
        "texts": ["one", "two"],
        "input_type": "search_document",
        "embedding_types": ["float"],
        "output_dimension": 8,
    }
    assert "output_dimension" not in orjson.loads(CODEC.write(request(), TARGET).body)


def test_each_purpose_is_sent_as_the_nearest_one_that_cohere_has() -> None:
    purposes = {
        "search_document": ("", "document", "similarity", "code_document"),
        "search_query": ("query", "code_query", "question_answering", "fact_verification"),
        "classification": ("classification",),
        "clustering": ("clustering",),
    }
    for sent, kinds in purposes.items():
        for kind in kinds:
            content = EmbeddingsInput(("one",), None, "base64", input_type=kind)
            call = CODEC.write(EmbeddingsRequest("m", Requirements(), lambda content=content: content), TARGET)
            assert orjson.loads(call.body)["input_type"] == sent


def test_token_numbers_of_another_vendor_are_not_sent() -> None:
    with pytest.raises(NotSupported) as refused:
        CODEC.write(request(token_ids=3), TARGET)
    assert (refused.value.code, refused.value.param) == ("unsupported_input", "input")


def test_no_caller_speaks_this_dialect() -> None:
    with pytest.raises(NotSupported):
        CODEC.relay(Native("cohere", {}), request(), TARGET)


def test_vectors_come_with_what_was_billed() -> None:
    body = {"id": "e-1", "embeddings": {"float": [[0.5], [1.0]]}, "meta": {"billed_units": {"input_tokens": 4}}}
    found = CODEC.read(json_reply(body), False)
    assert (found.vectors, found.usage.input, found.upstream_id) == ([[0.5], [1.0]], 4, "e-1")
    assert CODEC.read(json_reply({"embeddings": {"float": [[0.5]]}}), False).usage is None


@pytest.mark.parametrize(
    "found", [None, {}, {"float": []}, {"float": [[]]}, {"float": ["x"]}, {"float": [[1]], "int8": [[1]]}]
)
def test_an_answer_without_vectors_is_the_providers_failure(found: object) -> None:
    with pytest.raises(UpstreamFailed):
        CODEC.read(json_reply({"embeddings": found}), False)
