"""/metrics as a scraper sees it, and what dashboards and alert rules make of it."""

import json
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml
from fakes.openai import Answer, FakeOpenAI
from gevent import monkey
from openai import APIStatusError, OpenAI
from prometheus_client.parser import text_string_to_metric_families
from support.gateways import GatewayProcess, LocalGateway, free_port, local_gateway
from support.programs import find_program

from gateway.configuration import settings as module
from gateway.configuration.settings import Settings
from gateway.metering.counters import MAX_SERIES, OTHER, Counters
from gateway.surfaces import prometheus_text
from gateway.surfaces.metrics import expose

ROOT = Path(__file__).resolve().parents[2]
RULES = ROOT / "deploy" / "prometheus" / "llmgateway.rules.yml"
DASHBOARD = ROOT / "deploy" / "grafana" / "llmgateway.json"
NAME = re.compile(r"llmgateway_[a-z0-9_]+")
MODEL = "openai/gpt-4o-mini"
Samples = dict[tuple[str, frozenset[tuple[str, str]]], float]


@pytest.fixture(scope="module")
def upstream() -> Iterator[FakeOpenAI]:
    with FakeOpenAI() as fake:
        yield fake


@pytest.fixture(scope="module")
def gateway(upstream: FakeOpenAI, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalGateway]:
    def make(**environment: str) -> Settings:
        folder = tmp_path_factory.mktemp("metrics")
        return module.load({"GATEWAY_ENV": "test", "GATEWAY_DATA_DIR": str(folder / "data"), **environment})

    environment = {
        "LLM_OPENAI_API_KEY": "sk-upstream-secret",
        "LLM_OPENAI_BASE_URL": upstream.url,
        "LLM_OPENAI_USE_RESPONSES_API": "false",
        "GATEWAY_METRICS_PORT": str(free_port()),
    }
    with local_gateway(make, **environment) as running:
        yield running


@pytest.fixture(scope="module")
def text(gateway: LocalGateway, upstream: FakeOpenAI) -> str:
    """Return the metrics after a successful request, a stream, a failure, a refusal and an export."""
    client = OpenAI(base_url=gateway.url, api_key=gateway.key, max_retries=0)
    body: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "x"}]}
    client.chat.completions.create(**body)
    for _ in client.chat.completions.create(**body, stream=True):
        pass
    upstream.script(*[Answer(status=401)] * 3)
    for _ in range(3):  # one refusal may be this request's own fault
        with pytest.raises(APIStatusError):
            client.chat.completions.create(**body)
    with pytest.raises(APIStatusError):
        client.chat.completions.create(**{**body, "model": "no-such-model"})
    httpx.post(f"{gateway.url}/traces", headers={"x-api-key": gateway.key}, json={"resourceSpans": []}, timeout=60)
    for job in ("books", "budgets_near_end"):
        gateway.app.background.run(job)
    return expose(gateway.services)[1].decode()


@pytest.fixture(scope="module")
def samples(text: str) -> Samples:
    return {
        (sample.name, frozenset(sample.labels.items())): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def value(samples: Samples, name: str, **labels: str) -> float:
    return samples[f"llmgateway_{name}", frozenset(labels.items())]


def lowest_bound(samples: Samples, name: str) -> float:
    buckets = (dict(labels) for full, labels in samples if full == f"llmgateway_{name}_bucket")
    return min(float(labels["le"]) for labels in buckets)


def test_requests_tokens_and_cost_are_reported_by_model_provider_and_operation(samples: Samples) -> None:
    place = {"provider": "openai", "model": "gpt-4o-mini", "operation": "chat"}
    assert value(samples, "attempts_total", **place, outcome="succeeded") == 2
    assert value(samples, "tokens_total", **place, direction="output") > 0
    assert value(samples, "cost_nano_usd_total", **place) > 0
    assert value(samples, "first_token_seconds_count", **place) == 1
    assert value(samples, "attempt_seconds_count", **place) == 2


def test_errors_latency_and_overhead_are_reported_by_operation(samples: Samples) -> None:
    operation = "POST /v1/chat/completions"
    assert value(samples, "requests_total", operation=operation, status="200") == 2
    assert value(samples, "errors_total", operation=operation, kind="invalid_request") == 1
    assert value(samples, "errors_total", operation=operation, kind="upstream_failed") == 3
    assert value(samples, "request_seconds_count", operation=operation) == 6
    assert value(samples, "overhead_seconds_count", operation=operation) == 2
    assert value(samples, "overhead_seconds_sum", operation=operation) < 5
    # The gateway's part of a request takes milliseconds, so its buckets are finer.
    assert lowest_bound(samples, "overhead_seconds") < 0.001 < lowest_bound(samples, "request_seconds")


def test_credentials_stores_books_and_jobs_have_their_gauges(samples: Samples) -> None:
    assert value(samples, "credentials", provider="openai", state="refused") == 1
    assert value(samples, "cooldowns", provider="openai", reason="refused") == 1
    assert value(samples, "database_up") == 1 and value(samples, "redis_up") == 1
    assert value(samples, "ledger_drift_usd") == 0 and value(samples, "journal_failed") == 0
    assert value(samples, "state_changes_total", event="credential.refused") == 1
    assert value(samples, "agent_exports_total", signal="traces", outcome="discarded") == 1


def test_no_label_holds_what_a_caller_chose_nor_any_secret(gateway: LocalGateway, text: str) -> None:
    for secret in ("no-such-model", gateway.key, "sk-upstream-secret"):
        assert secret not in text


def test_an_endless_number_of_models_is_a_bounded_number_of_series(gateway: LocalGateway) -> None:
    counters = Counters(Path("unused"))
    for number in range(MAX_SERIES + 50):
        counters.add("tokens_total", ("custom", f"model-{number}"))
    series = counters._totals["tokens_total"]
    assert len(series) == MAX_SERIES + 1 and series[OTHER, OTHER].value == 50


def test_the_metrics_port_needs_no_token_and_serves_only_metrics(gateway: LocalGateway, text: str) -> None:
    address = f"http://127.0.0.1:{gateway.services.settings.metrics.port}"
    answer = httpx.get(f"{address}/metrics", timeout=60)
    assert answer.status_code == 200 and "llmgateway_requests_total" in answer.text
    assert httpx.get(f"{address}/v1/models", timeout=60).status_code == 404
    assert httpx.get(f"{gateway.address}/metrics", timeout=60).status_code == 404


def test_gauges_and_counters_of_all_workers_of_a_node_come_together(process: Callable[..., GatewayProcess]) -> None:
    port = free_port()
    gateway = process(workers=2, GATEWAY_METRICS_PORT=str(port), GATEWAY_LOG_FORMAT="json", GATEWAY_LOG_REQUESTS="json")
    body = {"model": "sandbox-echo", "messages": [{"role": "user", "content": "Hello"}]}
    for _ in range(6):
        assert gateway.post("/v1/chat/completions", body)[0] == 200
    expected = 'llmgateway_requests_total{operation="POST /v1/chat/completions",status="200"} 6.0'
    until = 40
    while expected not in (text := httpx.get(f"http://127.0.0.1:{port}/metrics", timeout=60).text) and (
        until := until - 1
    ):
        time.sleep(0.25)
    assert expected in text
    resident = float(re.findall(r"^llmgateway_resident_bytes (\S+)", text, re.M)[0])
    assert resident > 2 * 30_000_000, "the memory of both"
    assert "llmgateway_in_flight " in text and "llmgateway_loop_lag_seconds " in text
    gateway.stop()
    lines = [line for line in gateway.log().splitlines() if line.startswith("{")]
    records = [json.loads(line) for line in lines]
    assert sum(record.get("event") == "request" and record["status"] == 200 for record in records) >= 6
    # From the first line of the server on, each is JSON.
    first = gateway.log().splitlines().index(lines[0])
    assert [line for line in gateway.log().splitlines()[first:] if not line.startswith("{")] == []
    assert {"gunicorn.error"} <= {record.get("logger") for record in records}


def described(text: str) -> set[str]:
    """Every name that a scrape can have, samples or not."""
    kinds = dict(re.findall(r"^# TYPE (\S+) (\S+)$", text, re.M))
    more = {"histogram": ("_bucket", "_sum", "_count"), "counter": ("", "_total"), "gauge": ("",)}
    return {name + ending for name, kind in kinds.items() for ending in more.get(kind, ("",))}


# Reported only by the server under the application, which these tests run in one process only.
OF_THE_SERVER = {
    *("llmgateway_in_flight", "llmgateway_connections", "llmgateway_loop_lag_seconds", "llmgateway_resident_bytes"),
    *(
        "llmgateway_bodies_bytes",
        "llmgateway_loop_busy_seconds",
        "llmgateway_loop_held",
        "llmgateway_loop_held_seconds",
    ),
}


def rules() -> list[dict[str, Any]]:
    return [rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]]


def panels() -> list[dict[str, Any]]:
    return [panel for panel in json.loads(DASHBOARD.read_text())["panels"] if panel["type"] != "row"]


def expressions() -> list[str]:
    expressions_of_panels = [target["expr"] for panel in panels() for target in panel["targets"]]
    return [rule["expr"] for rule in rules()] + expressions_of_panels


def test_rules_and_dashboard_ask_for_nothing_that_is_not_there(text: str) -> None:
    names = {name for expression in expressions() for name in NAME.findall(expression)}
    assert len(names) > 25 and names - described(text) - OF_THE_SERVER == set()


def test_the_page_names_every_metric(text: str) -> None:
    section = (ROOT / "docs" / "health.md").read_text().partition("## Metrics\n")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row[:3] == "| `"]
    named = {f"llmgateway_{name}" for row in rows for name in re.findall(r"`(\w+)`", row)}
    exposed = {family.name + "_total" * (family.type == "counter") for family in text_string_to_metric_families(text)}
    assert named == exposed | OF_THE_SERVER


def test_labels_that_rules_and_dashboard_name_exist(text: str) -> None:
    known = (
        {"instance", "job", "le"}
        | {
            label
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            for label in sample.labels
        }
        | {"organization", "scope", "state", "job", "reason", "event"}
    )
    for expression in expressions():
        named = {label for group in re.findall(r"by \(([^)]*)\)", expression) for label in re.split(r",\s*", group)}
        named |= {
            label for inner in re.findall(r"\{([^}]*)\}", expression) for label in re.findall(r"(\w+)\s*[=!]", inner)
        }
        assert named <= known, expression


def test_every_alert_says_what_is_wrong_and_what_to_do() -> None:
    for rule in rules():
        assert rule["labels"]["severity"] in ("critical", "warning", "info"), rule["alert"]
        assert set(rule["annotations"]) == {"summary", "remedy"}, rule["alert"]


def test_the_dashboard_can_be_imported() -> None:
    board = json.loads(DASHBOARD.read_text())
    assert board["uid"] == "llmgateway" and {one["name"] for one in board["templating"]["list"]} >= {"datasource"}
    places = [(panel["gridPos"]["x"], panel["gridPos"]["y"]) for panel in board["panels"]]
    assert len(set(places)) == len(places) == len({panel["id"] for panel in board["panels"]})
    assert all(panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24 for panel in board["panels"])


def test_the_rules_look_for_the_job_that_the_scrapes_have() -> None:
    scraped = yaml.safe_load(RULES.with_name("prometheus.yml").read_text())["scrape_configs"]
    named = {job for rule in rules() for job in re.findall(r'[{,]job="(\w+)"', rule["expr"])}
    assert named == {one["job_name"] for one in scraped}


def test_every_alert_is_tried_where_it_fires_and_where_it_does_not() -> None:
    groups = yaml.safe_load(RULES.with_name("llmgateway.rules.test.yml").read_text())["tests"]
    tried = [(one["alertname"], bool(one["exp_alerts"])) for group in groups for one in group["alert_rule_test"]]
    assert set(tried) == {(rule["alert"], fires) for rule in rules() for fires in (True, False)}


@pytest.fixture(scope="module")
def promtool() -> str:
    return find_program("promtool", "prometheus")


def run(*command: str, **more: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, **more)


def test_promtool_takes_scrapes_rules_their_tests_and_the_dashboards_queries(promtool: str, tmp_path: Path) -> None:
    queries = [
        {"record": f"query:{n}", "expr": e.replace("$__rate_interval", "5m")} for n, e in enumerate(expressions())
    ]
    asked = tmp_path / "queries.yml"
    asked.write_text(yaml.safe_dump({"groups": [{"name": "queries", "rules": queries}]}))
    for command in (
        ["check", "config", str(RULES.with_name("prometheus.yml"))],
        ["check", "rules", str(RULES)],
        ["check", "rules", str(asked)],
        ["test", "rules", str(RULES.with_name("llmgateway.rules.test.yml"))],
    ):
        done = run(promtool, *command)
        assert done.returncode == 0, done.stdout + done.stderr


def test_promtool_accepts_the_scraped_metrics(promtool: str, text: str) -> None:
    checked = run(promtool, "check", "metrics", input=text)
    assert checked.returncode in (0, 3), checked.stderr


def test_large_metrics_are_written_outside_of_the_event_loop(gateway: LocalGateway, monkeypatch) -> None:
    """A scrape of thousands of series does not block other requests."""
    ident = monkey.get_original("_thread", "get_ident")
    writers: list[int] = []
    write = prometheus_text.generate_latest

    def record(registry: Any) -> bytes:
        writers.append(ident())
        return write(registry)

    monkeypatch.setattr(prometheus_text, "generate_latest", record)
    assert expose(gateway.services)[1] and writers and ident() not in writers
