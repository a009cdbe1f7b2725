"""Traces and metrics as a collector gets them: by OTLP, in the words of the GenAI conventions, without content."""

import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import gevent
import httpx
import pytest
from fakes.openai import Answer, FakeOpenAI
from fakes.otlp import FakeCollector, attributes
from openai import APIStatusError, OpenAI
from support.gateways import GatewayProcess, LocalGateway, local_gateway

from gateway.configuration.settings import Settings, SettingsError
from gateway.runtime.threads import Job
from gateway.telemetry import otel
from gateway.telemetry.otel import TraceContext

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"
REQUEST = "0199c0de00007000800000000000abcd"
ASK: dict[str, Any] = {"model": "openai/gpt-4o-mini", "messages": [{"role": "user", "content": "my private words"}]}
SERVER, CLIENT, ERROR = 2, 3, 2


@pytest.fixture
def collector() -> Iterator[FakeCollector]:
    with FakeCollector() as fake:
        yield fake


@pytest.fixture
def gateway(
    settings: Callable[..., Settings], upstream: FakeOpenAI, collector: FakeCollector
) -> Iterator[LocalGateway]:
    environment = {
        "LLM_OPENAI_API_KEY": "sk-upstream-secret",
        "LLM_OPENAI_BASE_URL": upstream.url,
        "LLM_OPENAI_USE_RESPONSES_API": "false",
        "OTEL_EXPORTER_OTLP_ENDPOINT": collector.address,
        "OTEL_SERVICE_NAME": "the-gateway",
    }
    with local_gateway(settings, **environment) as running:
        yield running


def flush(gateway: LocalGateway) -> None:
    """Everything that waits is sent."""
    tracing = gateway.services.telemetry.tracing
    assert tracing is not None
    tracing._processor.force_flush(5_000)
    tracing._metrics.force_flush(5_000)


def test_a_request_is_a_span_with_its_call_below_it_in_the_words_of_the_conventions(
    gateway: LocalGateway, client: OpenAI, collector: FakeCollector, upstream: FakeOpenAI
) -> None:
    client.chat.completions.create(**ASK, extra_headers={"traceparent": f"00-{TRACE}-{SPAN}-01", "tracestate": "a=1"})
    flush(gateway)
    assert collector.problems == [] and collector.resources[0]["service.name"] == "the-gateway"
    server = next(span for span in collector.spans if span.kind == SERVER)
    call = next(span for span in collector.spans if span.kind == CLIENT)
    assert server.trace_id.hex() == call.trace_id.hex() == TRACE
    assert server.parent_span_id.hex() == SPAN and call.parent_span_id == server.span_id
    facts = attributes(server)
    assert server.name == "POST /v1/chat/completions" and facts["http.response.status_code"] == 200
    assert facts["llmgateway.key"].startswith("key_")
    facts = attributes(call)
    assert call.name == "chat gpt-4o-mini" and facts["gen_ai.operation.name"] == "chat"
    assert facts["gen_ai.provider.name"] == "openai" and facts["gen_ai.request.model"] == "gpt-4o-mini"
    assert facts["gen_ai.usage.input_tokens"] > 0 and facts["gen_ai.usage.output_tokens"] > 0
    assert facts["gen_ai.response.finish_reasons"] == ["stop"] and facts["gen_ai.response.id"]
    sent = upstream.calls[0].headers
    assert sent["traceparent"] == f"00-{TRACE}-{call.span_id.hex()}-01" and sent["tracestate"] == "a=1"


def test_a_request_without_a_trace_begins_one_by_its_own_id(
    gateway: LocalGateway, client: OpenAI, collector: FakeCollector, upstream: FakeOpenAI
) -> None:
    for _ in client.chat.completions.create(**ASK, stream=True):
        pass
    flush(gateway)
    server = next(span for span in collector.spans if span.kind == SERVER)
    assert server.trace_id.hex() == attributes(server)["llmgateway.request_id"] and not server.parent_span_id
    assert upstream.calls[0].headers["traceparent"].startswith(f"00-{server.trace_id.hex()}-")


def test_unsampled_traces_are_not_recorded_but_passed_on(
    gateway: LocalGateway, client: OpenAI, collector: FakeCollector, upstream: FakeOpenAI
) -> None:
    client.chat.completions.create(**ASK, extra_headers={"traceparent": f"00-{TRACE}-{SPAN}-00"})
    flush(gateway)
    assert collector.spans == [] and upstream.calls[0].headers["traceparent"].endswith("-00")


def test_every_failed_call_and_every_refusal_is_a_span_with_its_error(
    gateway: LocalGateway, client: OpenAI, collector: FakeCollector, upstream: FakeOpenAI
) -> None:
    upstream.script(*[Answer(status=500)] * 3)
    with pytest.raises(APIStatusError):
        client.chat.completions.create(**ASK)
    httpx.post(
        f"{gateway.url}/chat/completions",
        json=ASK,
        headers={"Authorization": "Bearer llmgtwy_unknown_token"},
        timeout=60,
    )
    flush(gateway)
    calls = [span for span in collector.spans if span.kind == CLIENT]
    assert calls and all(span.status.code == ERROR for span in calls)
    servers = {attributes(span)["http.response.status_code"]: span for span in collector.spans if span.kind == SERVER}
    assert attributes(servers[502])["error.type"] == "all_providers_failed" and servers[502].status.code == ERROR
    assert attributes(servers[401])["error.type"] == "invalid_api_key" and servers[401].status.code == 0
    assert len({span.span_id for span in collector.spans}) == len(collector.spans)


def test_metrics_are_those_of_the_conventions(gateway: LocalGateway, client: OpenAI, collector: FakeCollector) -> None:
    client.chat.completions.create(**ASK)
    flush(gateway)
    found = {metric.name: metric for metric in collector.metrics}
    assert found["gen_ai.client.token.usage"].unit == "{token}" and found["http.server.request.duration"].unit == "s"
    points = found["gen_ai.client.token.usage"].histogram.data_points
    assert {attributes(point)["gen_ai.token.type"] for point in points} == {"input", "output"}
    (point,) = found["gen_ai.client.operation.duration"].histogram.data_points
    assert point.count == 1 and attributes(point)["gen_ai.request.model"] == "gpt-4o-mini"


def test_neither_content_nor_secrets_are_sent(
    gateway: LocalGateway, client: OpenAI, collector: FakeCollector, upstream: FakeOpenAI
) -> None:
    upstream.script(Answer("their private answer"))
    client.chat.completions.create(**ASK)
    flush(gateway)
    text = "\n".join(map(str, [*collector.spans, *collector.metrics]))
    for secret in ("private words", "private answer", "sk-upstream-secret", gateway.key):
        assert secret not in text


def test_nothing_exists_and_nothing_is_sent_while_it_is_off(
    settings: Callable[..., Settings], upstream: FakeOpenAI
) -> None:
    environment = {"LLM_OPENAI_API_KEY": "sk-x", "LLM_OPENAI_BASE_URL": upstream.url}
    with local_gateway(settings, **environment) as running:
        client = OpenAI(base_url=running.url, api_key=running.key, max_retries=0)
        client.chat.completions.create(**ASK, extra_headers={"traceparent": f"00-{TRACE}-{SPAN}-01"})
        assert running.services.telemetry.tracing is None
        assert "traceparent" not in upstream.calls[0].headers


def test_a_worker_under_the_real_server_sends_its_traces_before_it_ends(
    process: Callable[..., GatewayProcess], collector: FakeCollector
) -> None:
    gateway = process(OTEL_EXPORTER_OTLP_ENDPOINT=collector.address)
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    assert gateway.post("/v1/chat/completions", body)[0] == 200
    gateway.stop()
    names = {span.name for span in collector.spans}
    assert "POST /v1/chat/completions" in names and any(name.startswith("chat ") for name in names)
    assert collector.problems == [] and {metric.name for metric in collector.metrics} >= {"gen_ai.client.token.usage"}


@pytest.mark.parametrize(
    "header",
    ["", "nonsense", f"01-{TRACE}-{SPAN}-01", f"00-{'0' * 32}-{SPAN}-01", f"00-{TRACE}-{'0' * 16}-01", f"00-{TRACE}"],
)
def test_a_broken_traceparent_is_as_none(header: str) -> None:
    trace = TraceContext(REQUEST, {"traceparent": header, "tracestate": "a=1"}, 1.0)
    assert (trace.trace_id, trace.parent, trace.sampled, trace.state) == (REQUEST, "", True, "")


def test_the_part_that_is_sampled_is_decided_by_the_id() -> None:
    low, high = REQUEST[:-14] + "0" * 14, REQUEST[:-14] + "f" * 14
    assert TraceContext(low, {}, 0.1).sampled and not TraceContext(high, {}, 0.1).sampled
    assert not TraceContext(low, {}, 0.0).sampled and TraceContext(high, {}, 1.0).sampled


def test_a_silent_collector_delays_the_end_of_a_worker_by_its_time_limit_at_most(
    settings: Callable[..., Settings], upstream: FakeOpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The SDK waits for its own time limit of 10 s for each batch, several times in a row."""
    monkeypatch.setattr(otel, "STOP_TIMEOUT_S", 0.2)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        environment = {"LLM_OPENAI_API_KEY": "sk-upstream", "LLM_OPENAI_BASE_URL": upstream.url}
        with local_gateway(settings, **environment, OTEL_EXPORTER_OTLP_ENDPOINT=address) as running:
            client = OpenAI(base_url=running.url, api_key=running.key, max_retries=0)
            for _ in range(3):
                client.chat.completions.create(**ASK)
            tracing = running.services.telemetry.tracing
            assert tracing is not None
            # One batch alone waits for 10 s.
            Job(tracing.close).result(timeout_s=9)


def test_the_books_are_complete_before_a_silent_collector_is_waited_for(
    gateway: LocalGateway, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    client.chat.completions.create(**ASK)
    tracing = gateway.services.telemetry.tracing
    assert tracing is not None
    pending: list[int] = []
    export = tracing.close

    def close() -> None:
        pending.append(gateway.services.store.journal.pending)
        assert gateway.services.store.journal._closed.is_set()
        export()

    monkeypatch.setattr(tracing, "close", close)
    gateway.services.close()
    assert pending == [0]


def test_without_the_extra_the_start_says_what_to_install(
    settings: Callable[..., Settings], monkeypatch: pytest.MonkeyPatch, clock
) -> None:
    class Missing:
        def __getattr__(self, name: str) -> Any:
            raise ModuleNotFoundError("no", name="opentelemetry.sdk")

    monkeypatch.setattr(otel, "sdk_resources", Missing())
    chosen = settings(GATEWAY_OTEL_ENDPOINT="http://127.0.0.1:4318")
    with pytest.raises(SettingsError, match=r"install llmgateway\[otel\]"):
        otel.Tracing(chosen.otel, clock)


def test_a_child_process_runs_its_program_and_no_greenlet_of_the_gateway(gateway: LocalGateway, tmp_path: Path) -> None:
    """The SDK's exporters start a thread in a forked child, which switches to the event loop."""
    processes = tmp_path / "processes"

    def record() -> None:
        while True:
            with processes.open("a") as file:
                file.write(f"{os.getpid()}\n")
            gevent.sleep(0)

    recorder = gevent.spawn(record)
    try:
        for _ in range(3):
            assert subprocess.run(["echo", "ran"], capture_output=True, text=True, timeout=60).stdout == "ran\n"
    finally:
        recorder.kill()
    assert set(processes.read_text().split()) == {str(os.getpid())}
