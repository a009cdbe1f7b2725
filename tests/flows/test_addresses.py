"""Base URLs with a slash or a `/v1` too many or too few, and the headers of the framework's responses."""

import gzip
import json
from collections.abc import Callable

import anthropic
import httpx
import langchain_openai
import pytest
from fakes.openai import FakeOpenAI
from openai import AzureOpenAI, OpenAI
from openai.lib.azure import _deployments_endpoints
from support.gateways import GatewayProcess, LocalGateway
from support.shared import Share

TALK = [{"role": "user", "content": "Hi"}]
MODEL = "openai/gpt-4o-mini"
BASES = ["", "/", "/v1", "/v1/", "/v1/v1", "//v1", "/openai/v1", "/v1/openai/v1/", "/v1/openai"]


@pytest.fixture(params=["express", "flask"])
def lane(request: pytest.FixtureRequest, share: Share, upstream: FakeOpenAI) -> LocalGateway:
    """A gateway with and without its express lane."""
    environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": upstream.url}
    return share.gateway(environment | {"GATEWAY_SERVER_EXPRESS_LANE": str(request.param == "express")})


@pytest.mark.parametrize("base", BASES)
def test_every_way_to_write_the_base_url_works(lane: LocalGateway, base: str) -> None:
    client = OpenAI(base_url=lane.address + base, api_key=lane.key, max_retries=0)
    assert client.chat.completions.create(model=MODEL, messages=TALK).choices[0].message.content
    assert client.responses.create(model=MODEL, input="Hi").output_text
    assert client.models.retrieve("gpt-4o-mini").id == "gpt-4o-mini"
    claude = anthropic.Anthropic(base_url=lane.address + base, api_key=lane.key, max_retries=0)
    assert claude.messages.create(model=MODEL, messages=TALK, max_tokens=50).content


def test_clients_of_azure_need_only_the_address(lane: LocalGateway) -> None:
    """They send the key as `api-key`, and the model in the path, which decides; some send none in the body."""
    azure = AzureOpenAI(azure_endpoint=lane.address, api_key=lane.key, api_version="2024-10-21", max_retries=0)
    assert azure.chat.completions.create(model=MODEL, messages=TALK).choices[0].message.content
    assert next(iter(azure.chat.completions.create(model=MODEL, messages=TALK, stream=True))).model == MODEL
    assert azure.embeddings.create(model="sandbox/sandbox-embed", input="Hi").data
    assert azure.models.list().data and azure.responses.create(model=MODEL, input="Hi").output_text
    one = AzureOpenAI(
        azure_endpoint=lane.address, api_key=lane.key, api_version="2024-10-21", azure_deployment="gpt-4o-mini"
    )
    assert one.chat.completions.create(model="unknown", messages=TALK).choices[0].message.content
    chat = langchain_openai.AzureChatOpenAI(
        azure_endpoint=lane.address, api_key=lane.key, api_version="2024-10-21", azure_deployment=MODEL
    )
    assert chat.invoke("Hi").content and [*chat.stream("Hi")]
    headers = {"api-key": lane.key}
    with httpx.Client(base_url=f"{lane.address}/models", headers=headers, timeout=60) as http:
        assert http.post("/chat/completions", json={"model": MODEL, "messages": TALK}).json()["model"] == MODEL
        assert http.post("/embeddings", json={"model": "sandbox/sandbox-embed", "input": ["Hi"]}).json()["data"]
    with httpx.Client(base_url=f"{lane.address}/openai/deployments/{MODEL}", headers=headers, timeout=60) as http:
        query = {"api-version": "2024-10-21"}
        assert http.post("/chat/completions", params=query, json={"messages": TALK}).json()["model"] == MODEL
        assert http.post("/responses", params=query, json={"input": "Hi"}).json()["model"] == MODEL
        refusal = http.post(f"{lane.address}/openai/deployments/modèle/chat/completions", json={"messages": TALK})
        assert "modèle" in refusal.json()["error"]["message"]
        for path in _deployments_endpoints:
            assert (
                http.post(path, json=[]).status_code
                == http.post(f"{lane.address}/v1{path}", json=[]).status_code
                == 400
            )
        packed = gzip.compress(json.dumps({"messages": TALK}).encode())
        coding = {"Content-Encoding": "gzip", "Content-Type": "application/json"}
        assert http.post("/chat/completions", params=query, content=packed, headers=coding).json()["model"] == MODEL


def test_the_paths_of_cohere_work_below_a_base_url_with_a_version(lane: LocalGateway) -> None:
    headers = {"Authorization": f"Bearer {lane.key}"}
    bodies = {
        "chat": {"model": MODEL, "messages": TALK},
        "embed": {"model": "sandbox-embed", "texts": ["Hi"], "input_type": "search_query"},
        "rerank": {"model": "sandbox-rerank", "query": "Hi", "documents": ["Hi", "Ho"]},
    }
    for name, body in bodies.items():
        for base in ("/v2", "/v1/v2"):
            answer = httpx.post(f"{lane.address}{base}/{name}", json=body, headers=headers, timeout=60)
            assert answer.status_code == 200, answer.text


def test_googles_address_of_the_format_of_openai_works(lane: LocalGateway) -> None:
    client = OpenAI(base_url=f"{lane.address}/v1beta/openai/", api_key=lane.key, max_retries=0)
    assert client.chat.completions.create(model=MODEL, messages=TALK).choices[0].message.content


def test_a_slash_at_the_end_is_no_redirect(lane: LocalGateway) -> None:
    with httpx.Client(headers={"Authorization": f"Bearer {lane.key}"}, timeout=60) as http:
        for path in ("/v1/models/", "/models", "//v1//models", "/v1/key/", "/healthz/", "/v1/v1/models"):
            assert http.get(lane.address + path).status_code == 200, path
        body = {"model": MODEL, "messages": TALK}
        assert http.post(f"{lane.address}/chat/completions/", json=body).status_code == 200


def test_a_loose_address_is_served_by_the_worker_as_the_exact_one(process: Callable[..., GatewayProcess]) -> None:
    with FakeOpenAI() as upstream:
        gateway = process(LLM_OPENAI_API_KEY="sk-upstream", LLM_OPENAI_BASE_URL=upstream.url)
        for path in ("/chat/completions", "/v1/v1/chat/completions/", "/v1/chat/completions"):
            assert gateway.post(path, {"model": MODEL, "messages": TALK})[0] == 200


@pytest.mark.parametrize(
    ("method", "path", "allowed"),
    [
        ("GET", "/v1/chat/completions", "OPTIONS, POST"),
        ("PUT", "/v1/models", "GET, HEAD, OPTIONS"),
        ("GET", "/v1/responses", "OPTIONS, POST"),
        ("DELETE", "/messages/", "OPTIONS, POST"),
    ],
)
def test_a_wrong_method_is_refused_with_the_allowed_methods(
    lane: LocalGateway, method: str, path: str, allowed: str
) -> None:
    with httpx.Client(timeout=60) as http:
        answer = http.request(method, lane.address + path)
        options = http.options(lane.address + path)
    assert (answer.status_code, answer.headers["allow"]) == (405, allowed)
    message = answer.json()["error"]["message"]
    assert "OPTIONS" not in message and "HEAD" not in message
    assert options.status_code == 204
    assert answer.headers["x-request-id"] and options.headers["x-request-id"]


@pytest.mark.parametrize(
    ("path", "hint"),
    [
        ("/v1/conversations", "use previous_response_id"),
        ("/v1beta/files", "as inlineData"),
    ],
)
def test_an_operation_of_a_vendor_that_is_not_served_names_what_to_use(
    lane: LocalGateway, path: str, hint: str
) -> None:
    answer = httpx.get(lane.address + path, timeout=60)
    body = answer.json()
    assert answer.status_code == 404 and hint in body.get("error", body)["message"]


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/nothing"),
        ("GET", "/v1/nothing"),
        ("PUT", "/v1/messages"),
        ("GET", "/"),
        ("GET", "/docs"),
        ("HEAD", "/"),
    ],
)
def test_every_answer_carries_a_request_id(lane: LocalGateway, method: str, path: str) -> None:
    with httpx.Client(timeout=60) as http:
        answer = http.request(method, lane.address + path)
        named = http.request(method, lane.address + path, headers={"x-request-id": "mine"})
    assert len(answer.headers["x-request-id"]) == 32
    assert named.headers.get_list("x-request-id") == ["mine"]
    if path == "/v1/messages":
        assert named.headers["request-id"] == "mine"
