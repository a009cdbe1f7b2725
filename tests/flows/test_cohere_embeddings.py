"""Embeddings in Cohere's format, in both versions: answers have the published members, and cost what they must."""

import base64
import struct
from typing import Any

import httpx
import pytest
from fakes.embedding_services import IMAGE_TOKENS, TOKENS, FakeEmbeddingServices, vector_of
from support.every_operation import PNG
from support.gateways import LocalGateway
from support.media import providers_at, row_of
from support.shared import Share

COHERE = "cohere/embed-v4.0"
TEXTS = ["one", "another text"]
VECTORS = [vector_of(text) for text in TEXTS]


@pytest.fixture
def upstream(share: Share) -> FakeEmbeddingServices:
    return share.fake(FakeEmbeddingServices)


@pytest.fixture(params=["true", "false"], ids=["express", "flask"])
def gateway(request: pytest.FixtureRequest, share: Share, upstream: FakeEmbeddingServices) -> LocalGateway:
    paths = {"OPENAI": "/v1", "COHERE": "/v2", "GOOGLE_AI_STUDIO": "/v1beta"}
    return share.gateway(providers_at(upstream, paths) | {"GATEWAY_SERVER_EXPRESS_LANE": request.param})


def post(gateway: LocalGateway, path: str = "/v2/embed", **body: Any) -> httpx.Response:
    with httpx.Client(timeout=20, headers={"Authorization": f"Bearer {gateway.key}"}) as http:
        return http.post(f"{gateway.address}{path}", json={"model": COHERE, "input_type": "search_query"} | body)


def test_every_vendor_answers_with_vectors_by_type(gateway: LocalGateway) -> None:
    for model in (COHERE, "openai/text-embedding-3-small", "google-ai-studio/gemini-embedding-001"):
        answer = post(gateway, model=model, texts=TEXTS, embedding_types=["float", "base64"], output_dimension=4)
        body = answer.json()
        expected = [vector_of(text, 4) for text in TEXTS]
        assert (body["response_type"], body["texts"], body["model"]) == ("embeddings_by_type", TEXTS, model)
        assert body["embeddings"]["float"] == expected
        packed = [struct.unpack("<4f", base64.b64decode(text)) for text in body["embeddings"]["base64"]]
        assert [list(numbers) for numbers in packed] == expected
        assert body["meta"]["billed_units"] == {"input_tokens": 2 * TOKENS}
        row = row_of(gateway, body["metadata"]["log_id"])
        assert (row.operation, row.input) == ("embeddings", 2 * TOKENS)
        assert row.cost_nusd == round(body["usage"]["cost"] * 1e9) > 0


def test_the_provider_gets_the_fields_of_its_own_format(gateway: LocalGateway, upstream: FakeEmbeddingServices) -> None:
    inputs = [{"content": [{"type": "text", "text": "one"}, {"type": "text", "text": " more"}]}]
    answer = post(gateway, inputs=inputs, truncate="START", embedding_types=["int8"])
    assert answer.json()["embeddings"] == {"int8": [[8, 1]]} and '"int8":[[8,1]]' in answer.text
    (call,) = upstream.calls
    assert call.body["texts"] == ["one more"] and call.body["input_type"] == "search_query"
    assert (call.body["truncate"], call.body["embedding_types"]) == ("START", ["int8"])


def test_images_reach_the_provider_and_are_billed_by_their_tokens(
    gateway: LocalGateway, upstream: FakeEmbeddingServices
) -> None:
    mixed = [{"content": [{"type": "text", "text": "A page"}, {"type": "image_url", "image_url": {"url": PNG}}]}]
    for path in ("/v2/embed", "/v1/embed"):
        for given in ({"images": [PNG, PNG]}, {"inputs": mixed}):
            body = post(gateway, path, **given, embedding_types=["float"], input_type="image").json()
            (name,) = given
            sent = upstream.calls[-1].body
            assert sent[name] == given[name] and "texts" not in sent and sent["input_type"] == "image"
            assert len(body["embeddings"]["float"]) == len(given[name])
            row = row_of(gateway, body["metadata"]["log_id"])
            tokens = IMAGE_TOKENS * len(given[name])
            assert body["meta"]["billed_units"] == {"input_tokens": 0, "image_tokens": tokens}
            assert row.cost_nusd == round(body["usage"]["cost"] * 1e9) == tokens * 470


def test_long_lists_go_in_several_calls(gateway: LocalGateway, upstream: FakeEmbeddingServices) -> None:
    body = post(gateway, texts=["x" * (1 + n % 7) for n in range(200)], embedding_types=["ubinary"]).json()
    assert [vector[0] for vector in body["embeddings"]["ubinary"]] == [1 + n % 7 for n in range(200)]
    assert len(upstream.calls) == 3 and body["meta"]["billed_units"] == {"input_tokens": 200 * TOKENS}


def test_the_first_version_lists_vectors_unless_types_are_named(gateway: LocalGateway) -> None:
    body = post(gateway, "/v1/embed", texts=TEXTS).json()
    assert (body["response_type"], body["embeddings"], body["texts"]) == ("embeddings_floats", VECTORS, TEXTS)
    body = post(gateway, "/v1/embed", texts=TEXTS, embedding_types=["float"]).json()
    assert (body["response_type"], body["embeddings"]) == ("embeddings_by_type", {"float": VECTORS})
    assert post(gateway, texts=TEXTS).json()["embeddings"] == {"float": VECTORS}


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({}, "texts"),
        ({"texts": [""]}, "texts.0"),
        ({"images": [PNG], "texts": TEXTS}, "images"),
        ({"images": [PNG] * 97}, "images"),
        ({"inputs": [{"content": [{"type": "video_url"}]}]}, "inputs.0.content"),
        ({"images": [PNG], "model": "openai/text-embedding-3-small"}, "texts"),
        ({"texts": TEXTS, "embedding_types": ["float", "int8"]}, "embedding_types"),
        ({"texts": TEXTS, "embedding_types": ["int8"], "model": "openai/text-embedding-3-small"}, "embedding_types"),
    ],
)
def test_errors_name_the_field_in_the_form_of_the_vendor(
    gateway: LocalGateway, upstream: FakeEmbeddingServices, body: dict[str, Any], param: str
) -> None:
    answer = post(gateway, **body)
    assert (answer.status_code, answer.json()["param"]) == (400, param)
    assert answer.json()["message"] and answer.json()["id"] and not upstream.calls


def test_options_without_effect_are_named_in_the_answer(gateway: LocalGateway) -> None:
    body = post(gateway, model="openai/text-embedding-3-small", texts=TEXTS, truncate="NONE").json()
    assert [text.split()[0] for text in body["meta"]["warnings"]] == ["truncate", "input_type"]
    assert "warnings" not in post(gateway, texts=TEXTS).json()["meta"]
