"""Embeddings with every protocol that carries them: what the caller sees and what the vendor got, as the goldens say.

After a wanted change: WRITE_GOLDENS=1 pytest tests/contract, then read the difference before it is kept.
"""

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from contract import views
from fakes.embedding_services import FakeEmbeddingServices
from support.gateways import LocalGateway, local_gateway

from gateway.configuration import settings as configuration

FOLDER = Path(__file__).resolve().parent.parent / "samples" / "embeddings"
MODELS = {
    "openai": "openai/text-embedding-3-small",
    "google": "google-ai-studio/gemini-embedding-2",
    "cohere": "cohere/embed-v4.0",
}
CASES: dict[str, dict[str, Any]] = {
    "one text": {"input": "one"},
    "texts": {"input": ["one", "another text"]},
    "dimensions": {"input": ["one"], "dimensions": 4},
    "base64": {"input": ["one"], "encoding_format": "base64", "dimensions": 4},
    "token numbers": {"input": [[1, 2], [3]]},
    "empty": {"input": []},
    "unknown fields": {"input": "one", "user": "u", "nonsense": 1},
}
Json = dict[str, Any]


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeEmbeddingServices]:
    with FakeEmbeddingServices() as fake:
        yield fake


@pytest.fixture(scope="module")
def embedding(tmp_path_factory: pytest.TempPathFactory, upstream: FakeEmbeddingServices) -> Iterator[LocalGateway]:
    folder = str(tmp_path_factory.mktemp("embeddings") / "data")

    def settings(**variables: str) -> configuration.Settings:
        return configuration.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": folder} | variables)

    paths = {"OPENAI": "/v1", "GOOGLE_AI_STUDIO": "/v1beta", "COHERE": "/v2"}
    environment = {f"LLM_{name}_API_KEY": "key" for name in paths}
    environment |= {f"LLM_{name}_BASE_URL": upstream.address + path for name, path in paths.items()}
    with local_gateway(settings, **environment) as gateway:
        yield gateway


def view_of(answer: Json) -> Json:
    """Return the content of an answer without its cost and without values that differ from run to run."""
    usage = {name: answer.get("usage", {}).get(name) for name in ("prompt_tokens", "total_tokens")}
    shared = {name: answer[name] for name in ("object", "data", "model", "error") if name in answer}
    return shared | ({"usage": usage} if "usage" in answer else {})


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("vendor", MODELS)
def test_caller_and_vendor_get_what_the_golden_says(
    embedding: LocalGateway, upstream: FakeEmbeddingServices, vendor: str, name: str
) -> None:
    upstream.calls.clear()
    client = embedding.app.flask.test_client()
    body = {"model": MODELS[vendor], **CASES[name]}
    answer = client.post("/v1/embeddings", json=body, headers={"Authorization": f"Bearer {embedding.key}"})
    sent = [[call.path, call.body] for call in upstream.calls]
    found = views.steady({"status": answer.status_code, "caller": view_of(answer.json), "vendor": sent})
    assert all(call.problem == "" for call in upstream.calls)
    path = FOLDER / vendor / f"{name.replace(' ', '_')}.json"
    if os.environ.get("WRITE_GOLDENS"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps(found, indent=1, ensure_ascii=False, sort_keys=True) + "\n")
    assert found == json.loads(path.read_text())
