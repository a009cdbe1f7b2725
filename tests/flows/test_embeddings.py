"""Embeddings through the whole gateway, with the official SDK: one engine, with every promise that chat has."""

import struct
from base64 import b64decode
from typing import Any

import httpx
import mistralai.client
import openai
import pytest
from fakes.embedding_services import TOKENS, FakeEmbeddingServices, vector_of
from fakes.upstream import FakeUpstream
from openai import OpenAI
from support.gateways import LocalGateway, local_gateway
from support.media import providers_at, row_of, sdk_of
from support.shared import Share, usage_of
from support.spending import write_mint

from gateway.accounts.projects import ProjectChange, update_project
from gateway.accounts.provider_keys import ProviderKeyDraft
from gateway.limits.budgets import Limits
from gateway.metering.models import CACHED

TEXTS = ["one", "another text", "three of them"]
# Model, price of a million tokens in nano-dollars.
VENDORS = {
    "openai/text-embedding-3-small": 20_000_000,
    "google-ai-studio/gemini-embedding-2": 200_000_000,
    "cohere/embed-v4.0": 120_000_000,
    "mistral/codestral-embed-2505": 150_000_000,
    "voyage/voyage-3.5": 60_000_000,
    "jina/jina-embeddings-v4": 50_000_000,
}
MODEL = "openai/text-embedding-3-small"
SANDBOX = "sandbox/sandbox-embed"


@pytest.fixture
def upstream(share: Share) -> FakeEmbeddingServices:
    return share.fake(FakeEmbeddingServices)


@pytest.fixture(params=["true", "false"], ids=["express", "flask"])
def gateway(request, share: Share, upstream: FakeEmbeddingServices) -> LocalGateway:
    paths = {"OPENAI": "/v1", "GOOGLE_AI_STUDIO": "/v1beta", "COHERE": "/v2", "VOYAGE": "/voyage/v1"}
    paths |= {"MISTRAL": "/mistral/v1", "JINA": "/jina/v1"}
    return share.gateway(providers_at(upstream, paths) | {"GATEWAY_SERVER_EXPRESS_LANE": request.param})


@pytest.fixture
def sdk(gateway: LocalGateway) -> OpenAI:
    return sdk_of(gateway)


def post(gateway: LocalGateway, headers: dict[str, str] | None = None, **body: Any) -> httpx.Response:
    sent = {"Authorization": f"Bearer {gateway.key}"} | (headers or {})
    with httpx.Client(timeout=20) as http:
        return http.post(f"{gateway.url}/embeddings", json={"model": MODEL, "input": TEXTS} | body, headers=sent)


def change(gateway: LocalGateway, **changes: Any) -> None:
    services = gateway.services
    stores = services.store.database, services.store.control
    update_project(*stores, gateway.project_id, ProjectChange(**changes), actor="test")


@pytest.mark.parametrize("encoding", [None, "float", "base64"])
@pytest.mark.parametrize("model", VENDORS)
def test_every_vendor_gives_a_vector_for_each_text(gateway, sdk, upstream, model: str, encoding: str | None) -> None:
    more = {} if encoding is None else {"encoding_format": encoding}
    answer = sdk.embeddings.create(model=model, input=TEXTS, dimensions=4, **more)
    vectors = [item.embedding for item in answer.data]
    if encoding == "base64":
        plain = sdk.embeddings.create(model=model, input=TEXTS, dimensions=4).data
        assert all(isinstance(vector, str) for vector in vectors) and len({*vectors}) == len(plain)
    else:
        assert vectors == [vector_of(text, 4) for text in TEXTS]
    assert [item.index for item in answer.data] == [0, 1, 2] and answer.model == model
    assert upstream.calls[0].problem == ""


@pytest.mark.parametrize("model", VENDORS)
def test_input_tokens_are_billed_and_have_a_usage_row(gateway, sdk, model: str) -> None:
    answer = sdk.embeddings.create(model=model, input=TEXTS)
    assert answer.usage.prompt_tokens == answer.usage.total_tokens == 3 * TOKENS
    row = row_of(gateway, answer.metadata["log_id"])
    assert (row.operation, row.input, row.output) == ("embeddings", 3 * TOKENS, 0)
    assert row.cost_nusd == -(-3 * TOKENS * VENDORS[model] // 1_000_000) == round(answer.usage.cost * 1e9)


@pytest.mark.parametrize(("model", "calls"), [("cohere/embed-v4.0", 3), ("google-ai-studio/gemini-embedding-2", 3)])
@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_more_texts_than_a_call_takes_go_in_several_calls(gateway, sdk, upstream, model, calls, encoding) -> None:
    texts = ["x" * (1 + n % 7) for n in range(250)]
    answer = sdk.embeddings.create(model=model, input=texts, dimensions=4, encoding_format=encoding)
    vectors = [item.embedding for item in answer.data]
    if encoding == "base64":
        vectors = [list(struct.unpack("<4f", b64decode(vector))) for vector in vectors]
    assert vectors == [vector_of(text, 4) for text in texts]
    assert [item.index for item in answer.data] == list(range(250))
    assert len(upstream.calls) == calls and not any(call.problem for call in upstream.calls)
    row = row_of(gateway, answer.metadata["log_id"])
    assert row.input == answer.usage.prompt_tokens == 250 * TOKENS
    assert row.cost_nusd == -(-250 * TOKENS * VENDORS[model] // 1_000_000)


def test_texts_of_more_tokens_than_a_call_takes_go_in_several_calls(gateway, sdk, upstream) -> None:
    texts = [letter * 30_000 for letter in "abc"]  # some ten thousand tokens each
    answer = sdk.embeddings.create(model="mistral/codestral-embed-2505", input=texts)
    assert [item.embedding[0] for item in answer.data] == [30_000] * 3
    assert sorted(call.body["input"][0][0] for call in upstream.calls) == ["a", "b", "c"]


def test_one_call_that_fails_fails_them_all_and_what_was_used_is_paid(gateway, upstream) -> None:
    upstream.script(200, 500, 500)
    answer = post(gateway, model="cohere/embed-v4.0", input=["x"] * 200)
    assert answer.status_code == 502, answer.text
    (row,) = usage_of(gateway)
    # The calls are made at once, of 96, 96 and 8 inputs: whichever was the good one.
    assert row.input in (0, 8 * TOKENS, 96 * TOKENS) and row.cost_nusd == row.input * 120


def test_a_model_with_one_vector_size_refuses_dimensions_before_any_call(gateway, upstream) -> None:
    answer = post(gateway, model="mistral/mistral-embed", dimensions=8)
    error = answer.json()["error"]
    assert (answer.status_code, error["param"], error["code"]) == (400, "dimensions", "unsupported_parameter")
    assert upstream.calls == []


def test_the_sandbox_embeds_without_any_key(gateway, sdk) -> None:
    near, far, same = (
        item.embedding for item in sdk.embeddings.create(model=SANDBOX, input=["a b", "c d", "a b"]).data
    )
    assert near == same != far


def test_token_numbers_go_where_they_mean_something_and_nowhere_else(gateway, sdk, upstream) -> None:
    answer = sdk.embeddings.create(model=MODEL, input=[[1, 2, 3], [4]])
    assert answer.usage.prompt_tokens == 4 and len(answer.data) == 2
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.embeddings.create(model="google-ai-studio/gemini-embedding-2", input=[1, 2])
    assert refused.value.code == "unsupported_input" and len(upstream.calls) == 1


def test_an_answer_without_usage_is_billed_by_estimate(gateway, sdk, upstream) -> None:
    upstream.silent = True
    answer = sdk.embeddings.create(model="google-ai-studio/gemini-embedding-2", input="x" * 400)
    assert row_of(gateway, answer.metadata["log_id"]).input == 100


def test_a_provider_that_fails_is_passed_over(settings, upstream) -> None:
    environment = {
        **{"LLM_OPENAI_API_KEY": "sk-a", "LLM_OPENAI_BASE_URL": f"{upstream.address}/v1"},
        **{"LLM_AZURE_API_KEY": "k", "LLM_AZURE_RESOURCE": "acme", "LLM_AZURE_BASE_URL": f"{upstream.address}/v1"},
        "GATEWAY_ROUTING_EXPLORATION_RATE": "0",
    }
    with local_gateway(settings, **environment) as gateway:
        upstream.script(500)
        answer = post(gateway, model="text-embedding-3-small")
        assert answer.status_code == 200, answer.text
        assert [one["succeeded"] for one in answer.json()["metadata"]["routing"]] == [False, True]
        assert answer.headers["x-llmgateway-attempts"] == "2"


def test_an_answer_that_lacks_a_vector_is_passed_over(settings, upstream) -> None:
    environment = {
        **{"LLM_OPENAI_API_KEY": "sk-a", "LLM_OPENAI_BASE_URL": f"{upstream.address}/v1"},
        **{"LLM_AZURE_API_KEY": "k", "LLM_AZURE_RESOURCE": "acme", "LLM_AZURE_BASE_URL": f"{upstream.address}/v1"},
        "GATEWAY_ROUTING_EXPLORATION_RATE": "0",
    }
    with local_gateway(settings, **environment) as gateway:
        upstream.short = 1
        answer = post(gateway, model="text-embedding-3-small")
        assert answer.status_code == 200 and len(answer.json()["data"]) == 3, answer.text
        assert [one["succeeded"] for one in answer.json()["metadata"]["routing"]] == [False, True]


def test_a_request_is_explained_without_an_upstream_call(gateway, upstream) -> None:
    sent = {"json": {"model": MODEL, "input": TEXTS}, "headers": {"Authorization": f"Bearer {gateway.key}"}}
    with httpx.Client(timeout=20) as http:
        found = http.post(f"{gateway.url}/route/explain?operation=embeddings", **sent).json()
        assert found["order"] == [MODEL] and found["providerScores"][0]["providerId"] == "openai"
        refused = http.post(f"{gateway.url}/route/explain?operation=nonsense", **sent)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "operation") and upstream.calls == []


def test_no_provider_left_is_reported_as_for_chat(gateway, upstream) -> None:
    upstream.script(500)
    answer = post(gateway)
    assert answer.status_code == 502 and answer.json()["error"]["code"] == "all_providers_failed"


def test_a_model_of_another_operation_is_refused_by_name(gateway, sdk, upstream) -> None:
    with pytest.raises(openai.BadRequestError) as refused:
        sdk.embeddings.create(model="openai/gpt-4o-mini", input="x")
    assert "embeddings" in str(refused.value)
    with pytest.raises(openai.BadRequestError):
        sdk.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": "x"}])
    assert upstream.calls == []


@pytest.mark.parametrize("wrong", [[], "", ["a", ""], [["a"]], [1, "a"], [-1], [1, 1 << 64], 5, None], ids=repr)
def test_invalid_input_is_refused_with_its_field(gateway, upstream, wrong: Any) -> None:
    answer = post(gateway, input=wrong)
    assert answer.status_code == 400 and answer.json()["error"]["param"] == "input", answer.text
    assert upstream.calls == []


def test_unknown_fields_are_ignored_and_not_sent(gateway, upstream) -> None:
    assert post(gateway, metadata={"a": 1}, stream=True, nonsense=5, user="u" * 80).status_code == 200
    assert upstream.calls[0].body.keys() == {"model", "input", "encoding_format", "user"}
    assert len(upstream.calls[0].body["user"]) == 64


def test_a_retry_with_the_same_key_makes_one_call(gateway, upstream) -> None:
    first, second = (post(gateway, {"Idempotency-Key": "abc"}) for _ in range(2))
    assert first.content == second.content and len(upstream.calls) == 1


@pytest.mark.parametrize("encoding", ["float", "base64"])
def test_a_cached_answer_is_given_again_for_nothing(gateway, upstream, encoding: str) -> None:
    change(gateway, cache_enabled=True, cache_ttl_s=60)
    first, second = (post(gateway, encoding_format=encoding) for _ in range(2))
    assert second.headers["x-llmgateway-cache"] == "HIT" and len(upstream.calls) == 1
    assert first.json()["data"] == second.json()["data"] and second.json()["usage"]["cost"] == 0
    assert row_of(gateway, second.json()["metadata"]["log_id"]).flags & CACHED
    assert "x-llmgateway-cache" not in post(gateway, encoding_format=encoding, dimensions=3).headers


def test_an_own_provider_key_pays_instead_of_the_credits(settings, tmp_path) -> None:
    with (
        FakeUpstream() as mint,
        local_gateway(settings, **write_mint(tmp_path / "catalogue", mint.url)) as gateway,
    ):
        services = gateway.services
        stored = services.accounts.provider_keys
        caller = services.accounts.authentication.caller(gateway.key)
        stored.add(caller.organization_id, ProviderKeyDraft("mint", "own-key"), actor="test")
        change(gateway, mode="api-keys")
        answer = post(gateway, model="mint/leaf", input="text")
        assert answer.status_code == 200, answer.text
        assert answer.json()["metadata"]["routing"][0]["credentialSource"] == "byok"
        services.store.journal.flush(60)
        assert services.billing.ledger.balance(caller.organization_id).spent_nusd == 0


def test_a_spent_key_is_refused_before_anything_is_sent(gateway, upstream) -> None:
    services = gateway.services
    key_id = services.accounts.authentication.caller(gateway.key).key_id
    services.store.database.write(lambda: services.billing.budgets.write_limits("key", key_id, Limits(total_nusd=0)))
    services.store.control.confirm()
    answer = post(gateway)
    assert answer.status_code == 402 and answer.json()["error"]["code"] == "key_limit_reached"
    assert upstream.calls == []


def test_a_relayed_stream_equals_one_that_is_built(gateway, upstream, monkeypatch) -> None:
    relayed = post(gateway, dimensions=5, user="me").json()["data"]
    from gateway.surfaces.openai import embeddings

    read = embeddings.read_embeddings

    def estranged(*arguments: Any) -> Any:
        body, request = read(*arguments)
        request.native = None
        return body, request

    monkeypatch.setattr(embeddings, "read_embeddings", estranged)
    assert post(gateway, dimensions=5, user="me").json()["data"] == relayed
    assert upstream.calls[0].body == upstream.calls[1].body


def test_mistrals_client_reads_the_answer(gateway):
    with (
        httpx.Client(timeout=60) as http,
        mistralai.client.Mistral(api_key=gateway.key, server_url=gateway.address, client=http) as own,
    ):
        answer = own.embeddings.create(model="mistral/codestral-embed-2505", inputs=TEXTS, output_dimension=4)
    assert [len(row.embedding) for row in answer.data] == [4] * len(TEXTS) and answer.id.startswith("embd-")


def test_the_length_of_vectors_may_have_the_name_that_mistrals_clients_give_it(gateway, upstream):
    answer = post(gateway, model="mistral/codestral-embed-2505", output_dimension=5)
    assert [len(row["embedding"]) for row in answer.json()["data"]] == [5] * len(TEXTS)


def test_vectors_of_another_type_are_not_made_and_the_answer_says_so(gateway):
    answer = post(gateway, model="mistral/codestral-embed-2505", output_dtype="int8")
    assert answer.status_code == 200 and "output_dtype was left out" in answer.headers["x-llmgateway-warnings"]
    assert "x-llmgateway-warnings" not in post(gateway, output_dtype="float").headers


@pytest.mark.parametrize(
    ("model", "named", "sent"),
    [
        ("cohere/embed-v4.0", "query", {"input_type": "search_query"}),
        ("cohere/embed-v4.0", "clustering", {"input_type": "clustering"}),
        ("cohere/embed-v4.0", None, {"input_type": "search_document"}),
        ("voyage/voyage-4", "search_query", {"input_type": "query"}),
        ("voyage/voyage-4", "CODE_RETRIEVAL_QUERY", {"input_type": "query"}),
        ("cohere/embed-v4.0", "fact_verification", {"input_type": "search_query"}),
        ("cohere/embed-v4.0", "similarity", {"input_type": "search_document"}),
        ("jina/jina-embeddings-v4", "search_document", {"task": "retrieval.passage"}),
        ("jina/jina-embeddings-v4", "code.passage", {"task": "code.passage"}),
        ("jina/jina-embeddings-v4", "SEMANTIC_SIMILARITY", {"task": "text-matching"}),
    ],
)
def test_the_provider_learns_what_the_vectors_are_for(gateway, upstream, model, named, sent):
    answer = post(gateway, model=model, input_type=named)
    assert answer.status_code == 200 and "x-llmgateway-warnings" not in answer.headers
    assert upstream.calls[-1].problem == "" and sent.items() <= upstream.calls[-1].body.items()


@pytest.mark.parametrize(
    ("model", "named"),
    [
        ("openai/text-embedding-3-small", "query"),
        ("voyage/voyage-4", "clustering"),
        (SANDBOX, "x"),
    ],
)
def test_an_input_type_that_has_no_effect_is_left_out_with_a_warning(gateway, upstream, model, named):
    answer = post(gateway, model=model, input_type=named)
    assert answer.status_code == 200 and "input_type was left out" in answer.headers["x-llmgateway-warnings"]
    assert all("input_type" not in call.body for call in upstream.calls)


@pytest.mark.parametrize(
    ("named", "sent"),
    [
        ({"input_type": "query"}, "RETRIEVAL_QUERY"),
        ({"input_type": "code_document"}, "RETRIEVAL_DOCUMENT"),
        ({"task_type": "QUESTION_ANSWERING"}, "QUESTION_ANSWERING"),
        ({"task": "text-matching"}, "SEMANTIC_SIMILARITY"),
    ],
)
def test_googles_models_learn_what_the_vectors_are_for(gateway, upstream, named, sent):
    answer = post(gateway, model="google-ai-studio/gemini-embedding-001", **named)
    assert answer.status_code == 200 and "x-llmgateway-warnings" not in answer.headers
    assert [request["taskType"] for request in upstream.calls[-1].body["requests"]] == [sent] * len(TEXTS)


@pytest.mark.parametrize(
    ("named", "prefix"),
    [
        ("query", "task: search result | query: "),
        ("search_document", "title: none | text: "),
        ("code_document", "title: none | text: "),
        ("SEMANTIC_SIMILARITY", "task: sentence similarity | query: "),
        (None, ""),
    ],
)
def test_a_model_that_reads_the_purpose_in_the_text_gets_it_there(gateway, upstream, named, prefix):
    answer = post(gateway, model="google-ai-studio/gemini-embedding-2", input_type=named)
    assert answer.status_code == 200 and "x-llmgateway-warnings" not in answer.headers
    sent = upstream.calls[-1].body["requests"]
    assert [request["content"]["parts"][0]["text"] for request in sent] == [prefix + text for text in TEXTS]
    assert all("taskType" not in request for request in sent)


def test_queries_and_documents_have_separate_cached_answers(gateway, upstream):
    change(gateway, cache_enabled=True)
    for named in ("query", "document", "query"):
        post(gateway, model="voyage/voyage-4", input_type=named)
    assert [call.body["input_type"] for call in upstream.calls] == ["query", "document"]
