"""Embeddings in OpenAI's format, of its vendor and of servers that are compatible with it."""

import struct
from base64 import b64decode

import orjson
import pytest
from support.replies import json_reply

from gateway.catalogue.entries import Mapping, Provider
from gateway.errors import UpstreamFailed
from gateway.neutral.embeddings import EmbeddingsInput, EmbeddingsRequest, encode
from gateway.neutral.request import Native, Requirements
from gateway.providers.openai.embeddings import OpenAIEmbeddings
from gateway.providers.protocol import Credential, Target

CODEC = OpenAIEmbeddings()


def target(*quirks: str) -> Target:
    provider = Provider("acme", "Acme", "openai", auth="bearer", quirks=quirks)
    return Target(provider, Mapping("acme", "m", "text-embedding-3"), Credential("key"), "https://acme.example/v1")


def write(*quirks: str, user: str = "", **wanted: object) -> tuple[str, dict]:
    given = EmbeddingsInput(**{"inputs": ("one", [1, 2]), **wanted})
    call = CODEC.write(EmbeddingsRequest("m", Requirements(messages=2), lambda: given, user=user), target(*quirks))
    return call.url, orjson.loads(call.body)


def test_a_request_keeps_its_encoding_and_dimensions() -> None:
    url, body = write(dimensions=8, encoding="base64", user="me")
    assert url == "https://acme.example/v1/embeddings"
    assert body == {
        "model": "text-embedding-3",
        "input": ["one", [1, 2]],
        "encoding_format": "base64",
        "dimensions": 8,
        "user": "me",
    }


def test_unset_options_are_not_sent() -> None:
    assert set(write()[1]) == {"model", "input", "encoding_format"}


def test_a_compatible_server_gets_no_encoding_format() -> None:
    assert "encoding_format" not in write("compatible", encoding="base64")[1]


def test_the_callers_own_body_goes_to_the_targets_model() -> None:
    native = Native("openai", {"model": "m", "input": "one", "later": True})
    call = CODEC.relay(native, EmbeddingsRequest("m", Requirements(messages=1), lambda: None), target())
    assert orjson.loads(call.body)["input"] == "one"


def test_vectors_come_in_the_order_of_the_inputs() -> None:
    rows = [{"index": 1, "embedding": [2.0]}, {"index": 0, "embedding": [1.0]}]
    usage = {"prompt_tokens": 5, "total_tokens": 5}
    found = CODEC.read(json_reply({"data": rows, "model": "x", "usage": usage}), False)
    assert found.vectors == [[1.0], [2.0]] and (found.usage.input, found.model) == (5, "x")
    assert CODEC.read(json_reply({"data": rows}), False).usage is None


@pytest.mark.parametrize(
    "answer", [{}, {"data": None}, {"data": []}, {"data": [{"index": 0}]}, {"data": [{"index": 0, "embedding": []}]}]
)
def test_an_answer_without_vectors_is_the_providers_failure(answer: dict) -> None:
    with pytest.raises(UpstreamFailed):
        CODEC.read(json_reply(answer), False)


@pytest.mark.parametrize("vector", ["%%%", "AAA", "QUE="])
def test_base64_that_is_no_vector_is_the_providers_fault(vector: str) -> None:
    with pytest.raises(UpstreamFailed):
        encode(vector, "float")


def test_a_number_beyond_32_bits_becomes_infinite_in_base64() -> None:
    assert b64decode(encode([1e39, 1.0], "base64")) == struct.pack("<2f", float("inf"), 1.0)
