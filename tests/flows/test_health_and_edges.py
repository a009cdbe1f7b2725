"""Health, readiness, metrics and the edges of the surface, through the whole gateway."""

import dataclasses
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import anthropic
import httpx
import pytest
from fakes.openai import FakeOpenAI
from openai import OpenAI
from support.gateways import LocalGateway, local_gateway

from gateway.build_stamp import full_version
from gateway.configuration.settings import Settings
from gateway.errors import Unavailable
from gateway.store import disk
from gateway.worker.recurring_jobs import JOB_TABLE


class Away:
    """A database that cannot be reached."""

    def now_us(self) -> int:
        raise Unavailable

    def read(self, work: object) -> None:
        raise Unavailable


def get(gateway: LocalGateway, path: str) -> httpx.Response:
    with httpx.Client(timeout=60) as http:
        return http.get(gateway.address + path, timeout=10)


def test_the_health_report_has_exactly_the_documented_shape(gateway: LocalGateway) -> None:
    answer = get(gateway, "/")
    fine, absent = {"connected": True, "error": ""}, {"connected": False, "error": "not configured"}
    assert answer.status_code == 200
    assert answer.json() == {
        "message": "OK",
        "version": full_version(),
        "health": {"status": "ok", "redis": absent, "database": fine},
    }
    skipped = get(gateway, "/?skip=redis,database").json()["health"]
    assert skipped == {"status": "ok", "redis": fine, "database": fine}


BROWSERS = (
    "text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8",
    "text/html,application/xhtml+xml,application/xml;q=0.9,image/avif,image/webp,*/*;q=0.8,application/signed-exchange;v=b3",
)
PROGRAMS = ("", "*/*", "application/json", "application/json, text/plain, */*", "text/html;q=0", "text/html;q=x, */*")


@pytest.mark.parametrize("accept", BROWSERS)
def test_a_browser_at_the_root_is_redirected_to_the_pages(gateway: LocalGateway, accept: str) -> None:
    with httpx.Client(headers={"Accept": accept}, timeout=60) as http:
        answer = http.get(gateway.address + "/")
        assert (answer.status_code, answer.headers["location"]) == (303, f"{gateway.address}/console")
        assert "Accept" in answer.headers.get_list("vary", split_commas=True)
        assert http.get(gateway.address + "/?skip=redis").json()["message"] == "OK"


@pytest.mark.parametrize("accept", PROGRAMS)
def test_programs_at_the_root_get_the_health_report(gateway: LocalGateway, accept: str) -> None:
    with httpx.Client(headers={"Accept": accept}, timeout=60) as http:
        answer = http.get(gateway.address + "/")
    assert answer.json()["health"]["status"] == "ok"
    assert {"Accept", "Authorization"} <= set(answer.headers.get_list("vary", split_commas=True))


def test_a_database_that_is_away_is_reported_unless_it_is_skipped(
    gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.services.store, "database", Away())
    answer = get(gateway, "/")
    assert answer.status_code == 503
    assert answer.json()["message"] == "Service Unavailable - Database is unavailable"
    assert get(gateway, "/?skip=redis,database").status_code == 200
    assert get(gateway, "/readyz").status_code == 503
    assert get(gateway, "/healthz").status_code == 200


def test_readiness_ends_when_the_worker_drains(own_gateway: LocalGateway) -> None:
    assert get(own_gateway, "/readyz").status_code == 200
    own_gateway.app.draining(True)
    assert get(own_gateway, "/readyz").status_code == 503


def refuse(*_: object, **__: object) -> None:
    raise Unavailable


def test_a_store_that_refuses_writes_makes_no_ready_worker(
    gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gateway.services.store.database, "write", refuse)
    with gateway.services.store.control._renewing:  # the last write that succeeded is over
        monkeypatch.setattr(gateway.services.store.control, "_row_until", 0.0)
    answer = get(gateway, "/readyz")
    assert (answer.status_code, answer.text) == (503, "the database refuses writes\n")
    monkeypatch.undo()
    assert get(gateway, "/readyz").status_code == 200


def test_a_full_disk_makes_no_ready_worker(gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(disk, "MIN_FREE_BYTES", 1 << 62)
    answer = get(gateway, "/readyz")
    assert (answer.status_code, answer.text) == (503, "the disk of GATEWAY_DATA_DIR is full\n")
    assert get(gateway, "/livez").text == "ok\n"


def test_a_redis_that_is_away_is_reported_and_is_no_reason(settings: Callable[..., Settings]) -> None:
    with local_gateway(settings, REDIS_URL="redis://127.0.0.1:9/0") as gateway:
        report = get(gateway, "/")
        assert report.status_code == 503
        assert report.json()["health"]["redis"] == {"connected": False, "error": "Redis connection failed"}
        skipped = get(gateway, "/?skip=redis")
        assert skipped.status_code == 200
        assert skipped.json()["health"]["redis"] == {"connected": True, "error": ""}
        answer = get(gateway, "/readyz")
    assert (answer.status_code, answer.text) == (200, "ready\nRedis is down: the gateway serves without it\n")


def test_metrics_are_shown_to_who_has_the_token_alone(gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    assert get(gateway, "/metrics").status_code == 404
    with_token(gateway, monkeypatch)
    for headers in ({}, {"Authorization": f"Bearer {gateway.key}"}, {"Authorization": "Bearer x"}):
        answer = httpx.get(f"{gateway.address}/metrics", headers=headers, timeout=60)
        assert answer.status_code == 401 and "llmgateway_" not in answer.text


def with_token(gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    environment = {**gateway.services.settings.environment, "GATEWAY_METRICS_TOKEN": "scrape-me"}
    changed = dataclasses.replace(gateway.services.settings, environment=environment)
    monkeypatch.setattr(gateway.services, "settings", changed)
    return {"Authorization": "Bearer scrape-me"}


def test_metrics_count_requests_and_usage(own_gateway: LocalGateway, monkeypatch: pytest.MonkeyPatch) -> None:
    client = OpenAI(base_url=own_gateway.url, api_key=own_gateway.key, max_retries=0)
    client.chat.completions.create(model="openai/gpt-4o-mini", messages=[{"role": "user", "content": "x"}])
    own_gateway.app.background.run("books")
    text = httpx.get(f"{own_gateway.address}/metrics", headers=with_token(own_gateway, monkeypatch), timeout=60).text
    assert "llmgateway_ledger_drift_usd 0.0" in text and "llmgateway_ledger_drift_age_seconds " in text
    place = 'model="gpt-4o-mini",operation="chat",outcome="succeeded",provider="openai"'
    assert f"llmgateway_attempts_total{{{place}}} 1.0" in text
    assert 'llmgateway_requests_total{operation="POST /v1/chat/completions",status="200"} 1.0' in text
    assert "llmgateway_budget_reserved_usd 0.0" in text
    assert own_gateway.key not in text


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/v1/nothing", 404, "not_found"),
        ("POST", "/v1/chat/completion", 404, "not_found"),
        ("DELETE", "/v1/chat/completions", 405, "method_not_allowed"),
        ("PUT", "/v1/models", 405, "method_not_allowed"),
    ],
)
def test_a_wrong_path_or_method_has_the_error_envelope(
    gateway: LocalGateway, method: str, path: str, status: int, code: str
) -> None:
    with httpx.Client(timeout=60) as http:
        answer = http.request(method, gateway.address + path, timeout=10)
    assert answer.status_code == status
    assert answer.json()["error"]["code"] == code
    named = {"/v1/chat/completion": "did you mean /v1/chat/completions?", "/v1/nothing": "/docs lists all paths."}
    assert named.get(path, "") in answer.json()["error"]["message"]


def test_a_prompt_that_cannot_fit_is_refused_with_its_size_in_words_that_coding_agents_parse(
    gateway: LocalGateway,
) -> None:
    messages = [{"role": "user", "content": "word " * 300_000}]
    body = {"model": "sandbox-echo", "messages": messages, "max_tokens": 10}
    with httpx.Client(headers={"Authorization": f"Bearer {gateway.key}"}, timeout=60) as http:
        for path in ("/chat/completions", "/messages"):
            error = http.post(gateway.url + path, json=body, timeout=10).json()["error"]
            assert (error["code"], error["param"]) == ("context_length_exceeded", "messages")
            assert "prompt is too long: about 375" in error["message"]
            assert "tokens > 128000 maximum. The maximum context length is 128000 tokens" in error["message"]


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("completions", {"model": "sandbox-echo", "prompt": "word " * 300_000}, "prompt"),
        ("embeddings", {"model": "sandbox-embed", "input": ["word " * 20_000]}, "input"),
        ("rerank", {"model": "sandbox-rerank", "query": "q", "documents": ["word " * 20_000]}, "documents"),
    ],
)
def test_a_value_that_is_too_long_is_reported_by_the_callers_field(
    gateway: LocalGateway, path: str, body: dict[str, Any], field: str
) -> None:
    with httpx.Client(headers={"Authorization": f"Bearer {gateway.key}"}, timeout=60) as http:
        error = http.post(f"{gateway.url}/{path}", json=body, timeout=10).json()["error"]
    assert (error["code"], error["param"]) == ("context_length_exceeded", field)
    assert f"shorten `{field}`" in error["message"] and "`messages`" not in error["message"]


def test_the_model_list_reads_with_the_official_client(client: OpenAI) -> None:
    models = {model.id: model for model in client.models.list()}
    assert len(models) >= 250
    assert models["gpt-4o-mini"].pricing["prompt"] == "0.00000015"


def test_the_model_list_reads_with_the_client_of_anthropic(gateway: LocalGateway) -> None:
    with anthropic.Anthropic(base_url=gateway.url.removesuffix("/v1"), api_key=gateway.key) as client:
        listed = {model.id: model for model in client.models.list()}
        retrieved = client.models.retrieve("gpt-4o-mini")
    assert listed["gpt-4o-mini"] == retrieved
    assert retrieved.type == "model" and retrieved.lifecycle == "active" and retrieved.display_name == "GPT-4o mini"
    assert retrieved.created_at == datetime.fromtimestamp(retrieved.created, UTC)


def test_the_public_list_needs_no_key_and_a_wrong_key_is_reported(gateway: LocalGateway) -> None:
    assert get(gateway, "/v1/models").status_code == 200
    with httpx.Client(timeout=60) as http:
        answer = http.get(f"{gateway.url}/models", headers={"Authorization": "Bearer llmgtwy_wrong"})
    assert answer.status_code == 401


@pytest.mark.parametrize("path", ["/v1/chat/completions", "/v1/nothing"])
def test_a_websocket_is_refused_at_once_so_that_clients_fall_back(gateway: LocalGateway, path: str) -> None:
    upgrade = {"Connection": "Upgrade", "Upgrade": "websocket", "Sec-WebSocket-Version": "13"}
    with httpx.Client(timeout=60) as http:
        answer = http.get(gateway.address + path, headers=upgrade)
    assert answer.status_code == 426
    assert answer.json()["error"]["code"] == "websocket_not_supported"


def test_expired_rows_are_deleted_regularly(gateway: LocalGateway) -> None:
    services = gateway.services
    services.store.documents.put("stored_response", "old", b"x", ttl_s=-1)
    services.store.documents.put("stored_response", "new", b"x", ttl_s=60)
    services.engine.cache.trim()
    services.engine.idempotency.trim()
    for name in ("documents", "decisions", "payload_log", "responses", "journals"):
        gateway.app.background.run(name)
    sql = "SELECT key FROM document WHERE kind = 'stored_response'"
    assert services.store.database.read(lambda: services.store.database.execute(sql).fetchall()) == [("new",)]


def test_the_model_list_is_compressed_for_who_accepts_it(gateway: LocalGateway) -> None:
    with httpx.Client(headers={"Accept-Encoding": "identity"}, timeout=60) as http:
        plain = http.get(f"{gateway.url}/models")
        packed = http.get(f"{gateway.url}/models", headers={"Accept-Encoding": "br, gzip;q=0.5"})
        refused = http.get(f"{gateway.url}/models", headers={"Accept-Encoding": "gzip;q=0"})
        known = {"If-None-Match": packed.headers["etag"], "Accept-Encoding": "gzip"}
        assert http.get(f"{gateway.url}/models", headers=known).status_code == 304
    assert packed.headers["content-encoding"] == "gzip" and packed.content == plain.content
    assert int(packed.headers["content-length"]) * 5 < int(plain.headers["content-length"])
    assert "content-encoding" not in plain.headers and "content-encoding" not in refused.headers
    assert packed.headers["etag"] != plain.headers["etag"] and "Accept-Encoding" in plain.headers["vary"]


def test_input_tokens_of_a_response_are_counted_for_nothing(client: OpenAI, upstream: FakeOpenAI) -> None:
    short = client.responses.input_tokens.count(model="gpt-4o-mini", input="Hello").input_tokens
    tool = {"type": "function", "name": "f", "parameters": {"type": "object", "properties": {}}, "strict": True}
    long = client.responses.input_tokens.count(input="Hello " * 100, instructions="Be brief", tools=[tool])
    assert long.object == "response.input_tokens" and 0 < short < 20 < 200 < long.input_tokens < 900
    assert not upstream.calls


def test_every_recurring_job_does_its_round(gateway: LocalGateway) -> None:
    for job in JOB_TABLE:
        job.function(gateway.services, lambda: True)
