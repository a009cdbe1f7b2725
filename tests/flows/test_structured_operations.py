"""Moderations, rerank, OCR and decisions through the whole gateway: every vendor, exact money, errors by name."""

import base64
import zlib
from typing import Any

import httpx
import mistralai.client
import pytest
from fakes.structured_services import FakeStructuredServices
from openai import OpenAI
from support.gateways import LocalGateway
from support.media import providers_at, row_of
from support.pdfs import plain
from support.shared import Share

DOCUMENTS = ["short", "a much longer document", "middle one"]
QUESTIONS = {"safe": {"type": "noul", "instructions": "Is it safe?"}}
PDF = "document_url"


@pytest.fixture
def upstream(share: Share) -> FakeStructuredServices:
    return share.fake(FakeStructuredServices)


@pytest.fixture
def installation(share: Share, upstream: FakeStructuredServices) -> LocalGateway:
    paths = {
        "OPENAI": "/v1",
        "MISTRAL": "/v1",
        "COHERE": "/v2",
        "JINA": "/v1",
        "VOYAGE": "/voyage/v1",
        "TYPESAFE": "/v1",
        "DEEPINFRA": "/v1/openai",
    }
    return share.gateway(providers_at(upstream, paths) | {"GATEWAY_ROUTING_PROVIDER_OBJECTS": "true"})


def post(installation: LocalGateway, path: str, **body: Any) -> httpx.Response:
    with httpx.Client(timeout=20) as http:
        return http.post(
            f"{installation.url}{path}", json=body, headers={"Authorization": f"Bearer {installation.key}"}
        )


def pdf(*pages: str) -> str:
    """A small PDF with these pages, packed, as a data URL."""
    streams = [zlib.compress(f"BT /F1 12 Tf ({text}) Tj ET".encode()) for text in pages]
    objects = [b"<< /Type /Catalog /Pages 2 0 R >>"]
    kids = " ".join(f"{3 + 2 * n} 0 R" for n in range(len(pages)))
    objects.append(f"<< /Type /Pages /Kids [{kids}] /Count {len(pages)} >>".encode())
    for n, stream in enumerate(streams):
        objects.append(f"<< /Type /Page /Parent 2 0 R /Contents {4 + 2 * n} 0 R >>".encode())
        head = f"<< /Length {len(stream)} /Filter /FlateDecode >>\nstream\n".encode()
        objects.append(head + stream + b"\nendstream")
    return "data:application/pdf;base64," + base64.b64encode(plain(objects)).decode()


@pytest.mark.parametrize(
    ("path", "model", "body", "nusd", "estimated"),
    [
        ("/rerank", "cohere/rerank-v3.5", {"query": "q", "documents": DOCUMENTS}, 2 * 2_000_000, 2_000_000),
        ("/rerank", "jina/jina-reranker-v3", {"query": "q", "documents": DOCUMENTS}, 70 * 50, 10 * 50),
        ("/rerank", "voyage/rerank-2.5", {"query": "q", "documents": DOCUMENTS}, 70 * 50, 10 * 50),
        ("/ocr", "mistral/mistral-ocr-4-1", {"document": {"type": PDF, PDF: pdf("a", "b")}}, 12_000_000, 12_000_000),
        ("/ocr", "mistral/mistral-ocr-2512", {"document": {"type": PDF, PDF: pdf("a")}}, 6_000_000, 6_000_000),
        ("/systemone", "typesafe/jev-1.14.0", {"state": "calm", "questions": QUESTIONS}, 70 * 42, None),
        ("/moderations", "openai/omni-moderation-latest", {"input": "hello"}, 0, 0),
        ("/moderations", "mistral/mistral-moderation-2603", {"input": ["hello", "you"]}, 70 * 100, None),
        ("/rerank", "deepinfra/qwen3-reranker-8b", {"query": "q", "documents": DOCUMENTS}, 70 * 50, 10 * 50),
    ],
)
def test_every_vendor_answers_and_is_billed_to_the_nano_dollar(
    installation, upstream, monkeypatch, path, model, body, nusd, estimated
):
    answer = post(installation, path, model=model, **body)
    assert answer.status_code == 200, answer.text
    row = row_of(installation, answer.json()["metadata"]["log_id"])
    assert (row.cost_nusd, answer.json()["model"]) == (nusd, model)
    assert float(answer.headers["x-llmgateway-cost"]) * 10**9 == pytest.approx(nusd)
    monkeypatch.setattr(upstream, "silent", True)
    row = row_of(installation, post(installation, path, model=model, **body).json()["metadata"]["log_id"])
    assert row.usage_basis == "estimated"
    if estimated is not None:
        assert row.cost_nusd == estimated


def test_documents_come_best_first_up_to_the_requested_number(installation):
    answer = post(
        installation,
        "/rerank",
        model="cohere/rerank-v3.5",
        query="q",
        documents=DOCUMENTS,
        top_n=2,
        return_documents=True,
    ).json()
    assert answer["results"] == [
        {"index": 1, "relevance_score": 0.22, "document": DOCUMENTS[1]},
        {"index": 2, "relevance_score": 0.1, "document": DOCUMENTS[2]},
    ]
    assert answer["meta"] == {
        "api_version": {"version": "1"},
        "billed_units": {"input_tokens": 0, "total_tokens": 0, "search_units": 2},
    }


def test_voyages_client_reads_its_own_shape(installation):
    body = {"model": "cohere/rerank-v3.5", "query": "q", "documents": DOCUMENTS}
    answer = post(installation, "/rerank", **body, truncation=True, top_k=2).json()
    assert [row["index"] for row in answer["data"]] == [1, 2]
    counts = [answer["usage"][name] for name in ("prompt_tokens", "completion_tokens", "total_tokens")]
    assert counts == [0, 0, 0]
    assert "data" not in post(installation, "/rerank", **body).json()


def test_the_sdk_moderates_texts_and_parts(installation):
    sdk = OpenAI(base_url=installation.url, api_key=installation.key, max_retries=0)
    verdict = sdk.moderations.create(input=["I kill you", "hello"])
    assert [result.flagged for result in verdict.results] == [True, False] and verdict.id.startswith("modr-")
    picture = {"type": "image_url", "image_url": {"url": "https://example.com/a.png"}}
    assert not sdk.moderations.create(input=[{"type": "text", "text": "x"}, picture]).results[0].flagged


def test_the_vendors_own_sdk_reads_documents(installation):
    client = mistralai.client.Mistral(api_key=installation.key, server_url=installation.url.removesuffix("/v1"))
    answer = client.ocr.process(
        model="mistral-ocr-latest", document={"type": PDF, PDF: "https://example.com/a.pdf"}, pages=[0, 2]
    )
    assert [page.markdown for page in answer.pages] == ["# Page 0", "# Page 1", "# Page 2"]
    assert answer.usage_info.pages_processed == 3


def test_the_sandbox_reads_a_real_pdf_and_is_billed_by_its_pages(installation):
    body = {"document": {"type": PDF, PDF: pdf("First page", "Second (page)".replace("(", "\\(").replace(")", "\\)"))}}
    answer = post(installation, "/ocr", model="sandbox/sandbox-read", **body)
    assert [page["markdown"] for page in answer.json()["pages"]] == ["First page", "Second (page)"]
    assert row_of(installation, answer.json()["metadata"]["log_id"]).cost_nusd == 2_000_000
    answer = post(installation, "/ocr", model="sandbox/sandbox-read", pages="1-5", **body)
    assert [page["index"] for page in answer.json()["pages"]] == [1]


@pytest.mark.parametrize("model", ["sandbox/sandbox-rerank", "sandbox/sandbox-decide"])
def test_the_sandbox_ranks_and_decides_by_words(installation, model):
    if "rerank" in model:
        found = post(installation, "/rerank", model=model, query="red fox", documents=["a cow", "the red fox"]).json()
        assert found["results"][0] == {"index": 1, "relevance_score": 1.0}
        return
    question = {"type": "choice", "instructions": "Which?", "criteria": {"buy": "cheap price", "sell": "high price"}}
    found = post(installation, "/systemone", model=model, state="the price is cheap", questions={"q": question}).json()
    assert found["answers"]["q"]["choice"] == "buy"


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/rerank", {"query": "", "documents": ["a"]}, "query"),
        ("/rerank", {"query": "q", "documents": []}, "documents"),
        ("/rerank", {"query": "q", "documents": ["a"], "top_n": 0}, "top_n"),
        ("/moderations", {"input": []}, "input"),
        ("/moderations", {"input": [{"type": "file"}]}, "input"),
        ("/ocr", {"document": {"type": "folder"}}, "document.type"),
        ("/ocr", {"document": {"type": PDF, PDF: "ftp://x"}}, f"document.{PDF}"),
        ("/ocr", {"document": {"type": PDF, PDF: "data:application/pdf;base64,%%"}}, f"document.{PDF}"),
        ("/ocr", {"document": {"type": PDF, PDF: "https://x"}, "pages": "a-b"}, "pages"),
        ("/systemone", {"state": "s", "questions": {}}, "questions"),
        ("/systemone", {"state": "s", "questions": {"a": {"type": "x", "instructions": "i"}}}, "questions.a.type"),
        (
            "/systemone",
            {"state": "s", "questions": {"a": {"type": "choice", "instructions": "i", "criteria": {"one": 1}}}},
            "questions.a.criteria",
        ),
    ],
)
def test_each_invalid_input_is_named_and_reaches_no_provider(installation, upstream, path, body, param):
    before = len(upstream.calls)
    models = {"/rerank": "rerank-v3.5", "/ocr": "mistral-ocr-latest", "/systemone": "jev"}
    answer = post(installation, path, **{"model": models.get(path, "omni-moderation-latest")}, **body)
    error = answer.json()["error"]
    assert (answer.status_code, error["code"], error["param"]) == (400, "invalid_parameters", param)
    assert len(upstream.calls) == before


@pytest.mark.parametrize("index", [9, -1])
def test_scores_of_unsent_documents_are_a_provider_error(installation, upstream, monkeypatch, index):
    monkeypatch.setattr(upstream, "_rerank", lambda path, body: {"results": [{"index": index, "relevance_score": 1.0}]})
    answer = post(installation, "/rerank", model="jina/jina-reranker-v3", query="q", documents=DOCUMENTS)
    assert answer.status_code == 502


def test_newer_fields_of_ocr_reach_the_provider(installation, upstream):
    more = {"include_blocks": True, "confidence_scores_granularity": "word"}
    document = {"type": "file", "file_id": "3f2504e0-4f89-41d3-9a0c-0305e82c3301"}
    answer = post(installation, "/ocr", model="mistral/mistral-ocr-4-1", document=document, **more)
    assert answer.status_code == 200, answer.text
    sent = upstream.calls[-1].body
    assert {name: sent[name] for name in ("document", *more)} == {"document": document, **more}
    refused = post(installation, "/ocr", model="mistral/mistral-ocr-4-1", document={"type": "file"})
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "document.file_id")
